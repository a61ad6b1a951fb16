/* Types and functions that the files of the compiled core share.

   An exporter describes an object's memory in a Memory on the stack; an importer makes an object of the
   target from it. Both report failure with or without a Python exception; route.c then calls the route's
   fallback in Python, and if that fails, convert.c calls the slow path, which raises errors with reasons.
   The core calls no framework by name: a framework's own Python file creates exporters and importers from
   its functions. */
#ifndef ZEROCOPY_CORE_H
#define ZEROCOPY_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define NPY_NO_DEPRECATED_API NPY_1_23_API_VERSION
#define NPY_TARGET_VERSION NPY_1_23_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL zerocopy_numpy_api
#ifndef ZEROCOPY_IMPORTS_NUMPY_API
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "dlpack.h"

#define MAX_NDIM 64 /* the limit of NumPy 2, torch and JAX */

/* The highest address of a process: 56 bits on x86-64 (five-level paging). */
#if defined(__x86_64__) || defined(_M_X64)
#define LAST_ADDRESS (((uint64_t)1 << 56) - 1)
#else
#define LAST_ADDRESS ((uint64_t)UINTPTR_MAX)
#endif

#if defined(__GNUC__) || defined(__clang__)
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#else
#define LIKELY(x) (x)
#define UNLIKELY(x) (x)
#endif

/* Calls a function with one argument, without building a tuple. */
static inline PyObject *
call_one(PyObject *function, PyObject *argument)
{
    PyObject *arguments[2] = {NULL, argument};
    return PyObject_Vectorcall(function, arguments + 1, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
}

/* Makes an object immortal without a GIL, because threads that count references to one object wait for each other: two
   had the throughput of one. Only its creator may call it, before other threads see the object. */
static inline void
make_immortal(PyObject *obj)
{
#ifdef Py_GIL_DISABLED
    Py_SET_REFCNT(obj, (Py_ssize_t)UINT32_MAX + 1); /* beyond the largest count */
#endif
}

/* Returns a value, or NULL for None. */
static inline PyObject *
unless_none(PyObject *value)
{
    return value == Py_None ? NULL : value;
}

/* Returns true with TypeError set if there are keyword arguments; for constructors that take none. */
static inline bool
refuse_keywords(PyObject *keywords)
{
    if (keywords == NULL || PyDict_GET_SIZE(keywords) == 0) {
        return false;
    }
    PyErr_SetString(PyExc_TypeError, "keyword arguments are not supported");
    return true;
}

/* Returns a new list or tuple of `count` objects; steals their references, also on failure. Code that converts items
   must not see a list or tuple with NULL slots, which gc.get_objects() returns, so it is made after the last item. */
static inline PyObject *
sequence_of(bool is_list, PyObject *const *objects, Py_ssize_t count)
{
    PyObject *result = is_list ? PyList_New(count) : PyTuple_New(count);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (result == NULL) {
            Py_DECREF(objects[i]);
        }
        else if (is_list) {
            PyList_SET_ITEM(result, i, objects[i]);
        }
        else {
            PyTuple_SET_ITEM(result, i, objects[i]);
        }
    }
    return result;
}

/* ---- memory.c: one block of memory between an exporter and an importer ---- */

typedef struct Exporter Exporter;
typedef struct Importer Importer;

typedef struct {
    /* The target's importer of memory on CUDA devices, or NULL. A route sets it before the exporter runs. The exporter
       gets the target's stream from it, and makes that stream wait for the work on the memory. */
    const Importer *consumer;
    void *data; /* first element; never NULL */
    int ndim;
    bool readonly;
    DLDevice device; /* the host, or a CUDA device */
    int64_t stream;  /* of the consumer, as DLPack numbers it; for memory on a device */
    DLDataType dtype;
    const int64_t *shape;   /* in `own_shape`, or valid as long as the owner */
    const int64_t *strides; /* in elements; NULL means row-major */
    /* Exactly one of these keeps the memory alive. Memory owns it until an importer takes it. */
    PyObject *owner;
    DLManagedTensorVersioned *versioned;
    DLManagedTensor *legacy;
    bool owner_is_result; /* whether `owner` is an ndarray of exactly this memory, made for this conversion */
    /* The consumed capsule of `versioned` or `legacy` and its borrowed producer, while the slow path may need them:
       memory_release returns the struct to the capsule. Otherwise NULL. */
    PyObject *capsule, *producer;
    /* Copies of an object's strides and shape, which another thread or code that an importer calls may free by
       setting the object's shape. */
    int64_t own_strides[MAX_NDIM];
    int64_t own_shape[MAX_NDIM];
} Memory;

#define HOST_DEVICE ((DLDevice){kDLCPU, 0})

/* Initializes a Memory of the host that has no owner. Keeps `consumer`. */
static inline void
memory_init(Memory *memory)
{
    memory->device = HOST_DEVICE;
    memory->owner = NULL;
    memory->versioned = NULL;
    memory->legacy = NULL;
    memory->owner_is_result = false;
    memory->capsule = NULL;
}

/* Drops the owner and keeps the current exception. An importer that fails calls it. */
void memory_release(Memory *memory);
/* Fills a Memory from an unconsumed DLPack capsule, and consumes the capsule. Steals `capsule`, which may be
   NULL with an exception set. Returns -1 unless the capsule describes a valid block of memory on this device. */
int memory_from_capsule(PyObject *capsule, DLDevice device, Memory *out);
/* As memory_from_capsule, for a struct without a capsule; takes it, also on failure. */
int memory_from_versioned(DLManagedTensorVersioned *versioned, DLDevice device, Memory *out);
/* Whether shape and strides (in elements) describe row-major memory; dimensions of size 1 do not count. */
bool memory_is_row_major(const Memory *memory);
/* Whether no stride is negative. */
bool memory_is_ascending(const Memory *memory);
/* Whether some order of the dimensions is row-major: no gaps, no overlaps, no negative strides. */
bool memory_is_compact(const Memory *memory);

/* zerocopy's own managed tensor over a Memory, in both of DLPack's forms. */
typedef struct ManagedTensor {
    DLManagedTensorVersioned versioned;
    DLManagedTensor legacy;
    PyObject *owner;
    DLManagedTensorVersioned *source_versioned;
    DLManagedTensor *source_legacy;
    int64_t numbers[]; /* shape, then strides */
} ManagedTensor;

/* Takes the owner of `memory`. Returns NULL with an exception set if there is no memory for it. */
ManagedTensor *managed_tensor_new(Memory *memory);
/* Runs the owner's release; safe on any thread and after the interpreter has ended. */
void managed_tensor_free(ManagedTensor *tensor);
/* Returns a capsule named "dltensor" that an importer consumes. */
PyObject *managed_tensor_capsule(Memory *memory);

/* Returns a Python object that releases what keeps `memory` alive: its owner, or an object around its DLPack
   struct. Takes the ownership. */
PyObject *memory_take_owner(Memory *memory);

/* ---- producer.c: producers without a framework file, some of which have one capsule only ---- */

/* Keeps the capsule of a producer that a route has refused, for the slow path. Steals `capsule`. */
void keep_spare_capsule(PyObject *producer, PyObject *capsule);
/* Whether an exporter requests capsules that the slow path cannot request again. */
bool is_producer_exporter(const PyObject *exporter);

/* ---- dtype.c: NumPy's dtypes and DLPack's data types ---- */

/* Return false if there is no counterpart. */
bool dtype_from_numpy(const PyArray_Descr *descr, DLDataType *out);
/* Returns a borrowed descr, or NULL without an exception. */
PyArray_Descr *dtype_to_numpy(DLDataType dtype);

/* A set of DLPack data types of whole bytes with one lane. */
typedef struct {
    uint32_t codes[5]; /* bit c of codes[log2_bytes(bits)] */
} DTypeSet;

/* Returns 0 to 4 for 8 to 128 bits, or -1. */
int log2_bytes(int bits);
/* Whether a set contains a data type. */
bool dtype_set_has(const DTypeSet *set, DLDataType dtype);
/* Fills a set from a sequence of pairs (code, bits); -1 with an exception on failure. */
int dtype_set_parse(PyObject *pairs, DTypeSet *out);

/* Whether two data types are the same. */
static inline bool
dtype_equal(DLDataType a, DLDataType b)
{
    return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

/* An integer, or a function of an object or of a device that returns it: the index of a device, or a stream. */
typedef struct {
    PyObject *function; /* NULL for an integer */
    int64_t number;
} Getter;

/* Fills a Getter from an integer or a function; -1 with an exception for other objects. */
int getter_init(Getter *getter, PyObject *value);
/* Returns the integer, at least 0; -1 with or without an exception. */
int64_t getter_read(const Getter *getter, PyObject *argument);
/* As getter_read, for the index of a device. */
int64_t getter_read_for_device(const Getter *getter, int32_t device);

/* ---- ndarray.c ---- */

/* Describes the memory of an ndarray, which becomes the owner; -1 if the core does not take it. */
int export_ndarray(PyObject *array, Memory *out);
/* Returns an ndarray that aliases `memory`; takes its owner, also on failure. */
PyObject *import_ndarray(Memory *memory);

/* ---- exchange.c ---- */

/* Returns the table of a capsule of DLPack's C exchange API, or an older one behind it. `function` is the offset of the
   function that the caller needs; NULL with an exception if it is missing. */
const DLPackExchangeAPI *exchange_api_of(PyObject *capsule, size_t function);
/* Returns the framework's current stream on a CUDA device; -1 with or without an exception. */
int64_t exchange_api_stream(const DLPackExchangeAPI *api, int32_t device);

/* ---- exporters and importers: Python objects with C functions ---- */

struct Exporter {
    PyObject_HEAD
    /* Returns 0, or -1 with or without an exception. */
    int (*run)(Exporter *self, PyObject *obj, Memory *out);
};

enum { IMPORT_REFUSES, IMPORT_COPIES, IMPORT_ALIASES };

struct Importer {
    PyObject_HEAD
    /* Returns whether `run` aliases the memory, or would alias a row-major, 64-byte aligned copy. */
    int (*check)(const Importer *self, const Memory *memory);
    /* Called after `check`. Takes the owner, also on failure. Returns NULL with or without an exception. */
    PyObject *(*run)(Importer *self, Memory *memory);
    /* Returns the stream on which the target uses memory of a CUDA device; -1 with or without an exception. NULL for
       importers of host memory. */
    int64_t (*stream)(const Importer *self, int32_t device);
};

/* Sets `stream` to the consumer's on a CUDA device; -1 with or without an exception if it takes no memory there. */
static inline int
get_consumer_stream(Memory *memory, int32_t device)
{
    const Importer *consumer = memory->consumer;
    memory->stream = consumer == NULL ? -1 : consumer->stream(consumer, device);
    return memory->stream < 0 ? -1 : 0;
}

extern PyTypeObject ExporterType, ImporterType; /* abstract bases */

/* ---- route.c: from an object of one type to a target, with fixed options ---- */

typedef struct Route Route;
struct Route {
    PyObject_HEAD
    /* Returns NULL with or without an exception; the slow path then decides. */
    PyObject *(*run)(Route *self, PyObject *obj);
    PyObject *fallback; /* another route or a Python function, called with the object if `run` fails; or NULL */
    bool asks_once; /* whether trees leave the object to the slow path, which does not repeat a request */
};

extern PyTypeObject RouteType, TreeRouteType; /* the first is an abstract base */

/* The `run` of routes that return the object itself. */
PyObject *run_identity(Route *self, PyObject *obj);

/* Whether the fallback may run after a failure: there is no exception, or an error of the code that was called, which
   is cleared. Other exceptions, such as Ctrl-C and those of signal handlers, stay set and must reach the caller. */
bool clear_error(void);
/* Runs a route, then its fallback; keeps the route alive meanwhile. */
PyObject *route_run(Route *route, PyObject *obj);
/* The slots tp_call and tp_dealloc of route types. */
PyObject *route_call(PyObject *self, PyObject *args, PyObject *keywords);
void route_dealloc(PyObject *self);

/* How a route makes an object of the target over memory. */
typedef struct {
    Importer *importer;        /* of host memory, or NULL */
    Importer *device_importer; /* of memory on CUDA devices, or NULL */
    int copy, writable;  /* OPTION_NONE, OPTION_FALSE or OPTION_TRUE */
    bool is_mutable;     /* whether callers can write to the target's objects */
    bool marks_readonly; /* whether the target marks objects over immutable memory */
    bool has_dtype;      /* whether the source must have `dtype` */
    DLDataType dtype;
} Delivery;

/* Fills a Delivery, which owns a reference to `importer` and has no importer for devices; -1 with an exception for
   invalid options. */
int delivery_init(Delivery *delivery, PyObject *importer, bool is_mutable, bool marks_readonly, PyObject *copy,
                  PyObject *writable, PyObject *dtype);
/* Returns an object of the target over `memory`, or over a copy. Takes the owner, also on failure. */
PyObject *deliver_memory(const Delivery *delivery, Memory *memory);

/* ---- table.c: the routes by target, type and options ---- */

/* The options of a key whose values are objects: device, dtype, layout, columns, lists, index, names, nulls. */
#define ROUTE_VALUES 8

typedef struct {
    PyObject *to; /* as the caller passes it; a str is interned */
    PyTypeObject *type;
    PyObject *values[ROUTE_VALUES]; /* NULL, or objects that the table holds */
    unsigned flags;                 /* copy and writable, from option_flag; HAS_VALUES */
} RouteKey;

#define COPY_SHIFT 0
#define WRITABLE_SHIFT 2
#define HAS_VALUES 16u /* some of the values are not NULL: the keys of most calls have none */
enum { OPTION_NONE, OPTION_FALSE, OPTION_TRUE };

/* Returns the flags of an option that is True, False or None (NULL); -1 for other values. */
static inline int
option_flag(PyObject *value)
{
    return value == NULL || value == Py_None ? OPTION_NONE
           : value == Py_False               ? OPTION_FALSE
           : value == Py_True                ? OPTION_TRUE
                                             : -1;
}

/* Fills the values of a key; NULL and None are no values. */
static inline void
set_values(RouteKey *key, PyObject *const *values)
{
    for (int i = 0; i < ROUTE_VALUES; i++) {
        key->values[i] = unless_none(values[i]);
        if (key->values[i] != NULL) {
            key->flags |= HAS_VALUES;
        }
    }
}

/* Returns a borrowed route, or NULL without an exception. Takes no lock. Clearing the table may free the route, so
   the caller takes a reference before Python code can run; route_run does. */
Route *find_route(const RouteKey *key);
/* As find_route, for values that may be other objects than those that the table holds, and are equal to them. May
   call Python code. Returns NULL also with an exception that must reach the caller. */
Route *find_route_of_equal(const RouteKey *key);

#ifdef Py_GIL_DISABLED
/* Frees the lock of table_plan.c, in a forked child. */
void table_plan_free_lock(void);
#endif

/* ---- references that static variables hold, for the garbage collector ---- */

int visit_convert(visitproc visit, void *arg);
void clear_convert(void);
int visit_route(visitproc visit, void *arg);
int visit_exchange_api(visitproc visit, void *arg);
void clear_exchange_api(void);
void clear_route(void);

/* ---- each file adds its types and functions to the module; -1 with an exception on failure ---- */

int add_dtypes(PyObject *module);
int add_owner(PyObject *module);
int add_exporters(PyObject *module);
int add_buffer_exporter(PyObject *module);
int add_producer_exporter(PyObject *module);
int add_exchange(PyObject *module);
int add_importers(PyObject *module);
int add_routes(PyObject *module);
int add_route_table(PyObject *module);
int add_trees(PyObject *module);
int add_convert(PyObject *module);
int add_allocator(PyObject *module);
int add_arrow_tables(PyObject *module);
int add_table_plans(PyObject *module);
int add_table_routes(PyObject *module);
int add_rows(PyObject *module);
int add_casts(PyObject *module);
int add_records(PyObject *module);
int add_pads(PyObject *module);
int add_matrix_routes(PyObject *module);
int add_exchange_api(PyObject *module);
int add_interface_exporter(PyObject *module);

#endif
