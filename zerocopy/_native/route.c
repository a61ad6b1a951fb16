/* Routes: from an object of one type to a target, with fixed options. */
#include "arrow_table.h"

/* zerocopy.protocols.exporter_errors.is_error: whether an exception is an error of the code that was called. */
static PyObject *error_test = NULL;

/* Calls `error_test` with the current exception, which stays set; false also if the test raises. */
static bool
is_error(void)
{
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    if (traceback == NULL || error_test == NULL) { /* without a traceback, no handler in Python has raised it */
        PyErr_Restore(type, error, traceback);
        return true;
    }
    PyErr_NormalizeException(&type, &error, &traceback);
    PyException_SetTraceback(error, traceback);
    PyObject *test = Py_NewRef(error_test), *answer = call_one(test, error);
    Py_DECREF(test);
    Py_XDECREF(answer);
    if (PyErr_Occurred()) { /* Ctrl-C during the test, for example: the later exception replaces the other one */
        Py_XDECREF(type);
        Py_XDECREF(error);
        Py_XDECREF(traceback);
        return false;
    }
    PyErr_Restore(type, error, traceback);
    return answer == Py_True;
}

bool
clear_error(void)
{
    if (PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_Exception) || !is_error()) {
            return false;
        }
        PyErr_Clear();
    }
    return true;
}

/* Runs a route, then its fallback. */
static PyObject *
run_with_fallback(Route *route, PyObject *obj)
{
    PyObject *result = route->run(route, obj);
    if (UNLIKELY(result == NULL && route->fallback != NULL && clear_error())) {
        result = call_one(route->fallback, obj);
    }
    return result;
}

PyObject *
route_run(Route *route, PyObject *obj)
{
    Py_INCREF(route); /* code that it calls may clear the table */
    PyObject *result = run_with_fallback(route, obj);
    Py_DECREF(route);
    return result;
}

/* route(obj), for Python; convert does not use it. */
PyObject *
route_call(PyObject *self, PyObject *args, PyObject *keywords)
{
    if (refuse_keywords(keywords) || PyTuple_GET_SIZE(args) != 1) {
        PyErr_SetString(PyExc_TypeError, "a route takes one object");
        return NULL;
    }
    PyObject *result = route_run((Route *)self, PyTuple_GET_ITEM(args, 0));
    if (result == NULL && !PyErr_Occurred()) {
        PyErr_SetString(PyExc_BufferError, "the route does not support this object");
    }
    return result;
}

void
route_dealloc(PyObject *self)
{
    Py_XDECREF(((Route *)self)->fallback);
    PyObject_Free(self);
}

PyTypeObject RouteType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "zerocopy._native._core.Route",
    .tp_doc = "Converts objects of one type to one target with fixed options. Base of all routes.",
    .tp_basicsize = sizeof(Route),
    .tp_dealloc = route_dealloc,
    .tp_call = route_call,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
};

/* ---- IdentityRoute: objects of the target itself ---- */

/* Returns the object itself. */
PyObject *
run_identity(Route *self, PyObject *obj)
{
    return Py_NewRef(obj);
}

/* Takes no arguments. */
static PyObject *
identity_route_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    if (refuse_keywords(keywords) || !PyArg_ParseTuple(args, ":IdentityRoute")) {
        return NULL;
    }
    Route *self = PyObject_New(Route, type);
    if (self != NULL) {
        self->run = run_identity;
        self->asks_once = false;
        self->fallback = NULL;
    }
    return (PyObject *)self;
}

static PyTypeObject IdentityRouteType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "zerocopy._native._core.IdentityRoute",
    .tp_doc = "IdentityRoute(): returns the object itself.",
    .tp_base = &RouteType,
    .tp_basicsize = sizeof(Route),
    .tp_dealloc = route_dealloc,
    .tp_call = route_call,
    .tp_new = identity_route_new,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

/* ---- CallRoute: a Python function ---- */

/* Fails without an exception. */
static PyObject *
run_nothing(Route *self, PyObject *obj)
{
    return NULL; /* route_run then calls the function, which is the fallback */
}

/* Parses (function). */
static PyObject *
call_route_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *function;
    if (refuse_keywords(keywords) || !PyArg_ParseTuple(args, "O:CallRoute", &function)) {
        return NULL;
    }
    Route *self = PyObject_New(Route, type);
    if (self != NULL) {
        self->run = run_nothing;
        self->asks_once = false;
        self->fallback = function == Py_None ? NULL : Py_NewRef(function);
        if (self->fallback == NULL) { /* one such route is stored for many types, by any thread */
            make_immortal((PyObject *)self);
        }
    }
    return (PyObject *)self;
}

static PyTypeObject CallRouteType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "zerocopy._native._core.CallRoute",
    .tp_doc = "CallRoute(function): a route in Python, for frameworks without native exporters or importers. None fails always.",
    .tp_base = &RouteType,
    .tp_basicsize = sizeof(Route),
    .tp_dealloc = route_dealloc,
    .tp_call = route_call,
    .tp_new = call_route_new,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

/* ---- MemoryRoute: an exporter and an importer ---- */

typedef struct {
    Route base;
    Exporter *exporter;
    Delivery delivery;
    bool is_owned;       /* objects of the target: returned themselves if the options change nothing */
    bool only_unchanged; /* whether others of them are refused, because the target copies its own objects */
} MemoryRoute;

/* zerocopy.protocols.array_interface.aligned_copy: returns a row-major, 64-byte aligned copy of an ndarray. */
static PyObject *copy_function = NULL;

/* Replaces memory by a copy that the importer can alias. -1 with or without an exception. */
static int
copy_memory(Memory *memory)
{
    PyObject *array = import_ndarray(memory);
    if (array == NULL || copy_function == NULL) {
        Py_XDECREF(array);
        return -1;
    }
    PyObject *function = Py_NewRef(copy_function), *copy = call_one(function, array);
    Py_DECREF(function);
    Py_DECREF(array);
    int status = copy == NULL || !PyArray_CheckExact(copy) ? -1 : export_ndarray(copy, memory);
    Py_XDECREF(copy); /* `memory` holds it */
    return status;
}

/* Replaces row-major memory by a copy that is cast to another type. -1 with or without an exception, also if the core
   does not cast the types, or if a number does not fit: the slow path decides. Takes the owner if it fails. */
static int
cast_memory(Memory *memory, DLDataType dtype)
{
    int64_t count = 1;
    for (int i = 0; i < memory->ndim; i++) {
        count *= memory->shape[i]; /* does not overflow, because the elements are in memory */
    }
    char *data = NULL;
    PyObject *block = NULL;
    bool can_cast = memory->dtype.lanes == 1 && can_fill(memory->dtype) && can_fill(dtype) &&
                    (uintptr_t)memory->data % (memory->dtype.bits / 8) == 0;
    if (can_cast && count > 0 && count < INT64_MAX / 8 && memory_is_row_major(memory)) {
        block = new_block(count * (dtype.bits / 8), &data);
    }
    if (block != NULL) {
        ptrdiff_t from = memory->dtype.bits / 8, to = dtype.bits / 8;
        PyThreadState *unlocked = count * to >= UNLOCK_BYTES ? PyEval_SaveThread() : NULL;
        bool fits = cast_numbers(data, to, dtype, memory->data, from, memory->dtype, count);
        if (unlocked != NULL) {
            PyEval_RestoreThread(unlocked);
        }
        if (!fits) {
            Py_CLEAR(block);
        }
    }
    if (block != NULL) {
        Py_CLEAR(memory->capsule);
        /* The owner, which is released, may hold `shape`. */
        memmove(memory->own_shape, memory->shape, sizeof(int64_t) * (size_t)memory->ndim);
        memory->shape = memory->own_shape;
    }
    memory_release(memory);
    if (block == NULL) {
        return -1;
    }
    memory_init(memory);
    memory->owner = block;
    memory->data = data;
    memory->dtype = dtype;
    memory->strides = NULL;
    memory->readonly = false;
    return 0;
}

PyObject *
deliver_memory(const Delivery *delivery, Memory *memory)
{
    bool is_on_host = memory->device.device_type == kDLCPU;
    Importer *importer = is_on_host ? delivery->importer : delivery->device_importer;
    bool is_cast = delivery->has_dtype && !dtype_equal(memory->dtype, delivery->dtype);
    if (importer == NULL || (is_cast && (delivery->copy == OPTION_FALSE || !is_on_host))) {
        memory_release(memory);
        return NULL;
    }
    if (is_cast) {
        if (cast_memory(memory, delivery->dtype) < 0) {
            return NULL;
        }
        Delivery fresh = *delivery;
        fresh.copy = OPTION_FALSE; /* if the target cannot alias new memory, the slow path decides */
        return deliver_memory(&fresh, memory);
    }
    bool copies = delivery->copy == OPTION_TRUE ||
                  (delivery->writable == OPTION_TRUE && memory->readonly && delivery->is_mutable);
    int answer = importer->check(importer, memory);
    if (UNLIKELY(answer != IMPORT_ALIASES || copies)) {
        if (answer == IMPORT_REFUSES || delivery->copy == OPTION_FALSE || !is_on_host) {
            memory_release(memory);
            return NULL;
        }
        Py_CLEAR(memory->capsule);
        if (copy_memory(memory) < 0) {
            return NULL;
        }
        if (importer->check(importer, memory) != IMPORT_ALIASES) {
            memory_release(memory);
            return NULL;
        }
    }
    if (delivery->marks_readonly && delivery->writable == OPTION_FALSE) {
        memory->readonly = true;
    }
    Py_CLEAR(memory->capsule);
    return importer->run(importer, memory);
}

int
delivery_init(Delivery *delivery, PyObject *importer, bool is_mutable, bool marks_readonly, PyObject *copy,
              PyObject *writable, PyObject *dtype)
{
    int code = 0, bits = 0;
    if (dtype != Py_None && !PyArg_Parse(dtype, "(ii)", &code, &bits)) {
        return -1;
    }
    if (option_flag(copy) < 0 || option_flag(writable) < 0) {
        PyErr_SetString(PyExc_ValueError, "copy and writable must be True, False or None");
        return -1;
    }
    *delivery = (Delivery){
        .importer = (Importer *)Py_XNewRef(unless_none(importer)),
        .copy = option_flag(copy),
        .writable = option_flag(writable),
        .is_mutable = is_mutable,
        .marks_readonly = marks_readonly,
        .has_dtype = dtype != Py_None,
        .dtype = {(uint8_t)code, (uint8_t)bits, 1},
    };
    return 0;
}

/* Whether memory of the target's own object fulfills the options as it is. */
static bool
is_unchanged(const Delivery *delivery, const Memory *memory)
{
    bool is_copied = delivery->copy == OPTION_TRUE ||
                     (delivery->writable == OPTION_TRUE && memory->readonly && delivery->is_mutable);
    bool is_marked = delivery->writable == OPTION_FALSE && delivery->marks_readonly && !memory->readonly;
    return !is_copied && !is_marked &&
           (!delivery->has_dtype || dtype_equal(memory->dtype, delivery->dtype));
}

/* Exports an object's memory and imports it into the target. */
static PyObject *
run_memory(Route *self, PyObject *obj)
{
    const MemoryRoute *route = (const MemoryRoute *)self;
    Memory memory;
    memory.consumer = route->delivery.device_importer;
    if (UNLIKELY(route->exporter->run(route->exporter, obj, &memory) < 0)) {
        return NULL;
    }
    if (route->is_owned) {
        bool unchanged = is_unchanged(&route->delivery, &memory);
        if (unchanged || route->only_unchanged) {
            memory_release(&memory);
            return unchanged ? Py_NewRef(obj) : NULL;
        }
    }
    return deliver_memory(&route->delivery, &memory);
}

/* Frees a route. */
static void
memory_route_dealloc(PyObject *self)
{
    MemoryRoute *route = (MemoryRoute *)self;
    Py_XDECREF(route->exporter);
    Py_XDECREF(route->delivery.importer);
    Py_XDECREF(route->delivery.device_importer);
    route_dealloc(self);
}

/* Parses the arguments in the type's tp_doc. */
static PyObject *
memory_route_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"",         "",      "mutable", "marks_readonly", "fallback",        "copy",
                            "writable", "dtype", "owned",   "only_unchanged", "device_importer", NULL};
    PyObject *exporter, *importer, *fallback = Py_None, *copy = Py_None, *writable = Py_None, *dtype = Py_None;
    PyObject *device_importer = Py_None;
    int is_mutable, marks_readonly, is_owned = 0, only_unchanged = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!Opp|OOOOppO:MemoryRoute", names, &ExporterType, &exporter,
                                     &importer, &is_mutable, &marks_readonly, &fallback, &copy, &writable, &dtype,
                                     &is_owned, &only_unchanged, &device_importer)) {
        return NULL;
    }
    PyObject *importers[] = {importer, device_importer};
    for (int i = 0; i < 2; i++) {
        bool is_importer = PyObject_TypeCheck(importers[i], &ImporterType);
        if (importers[i] != Py_None && !(is_importer && (i == 0 || ((Importer *)importers[i])->stream != NULL))) {
            PyErr_SetString(PyExc_TypeError, "MemoryRoute: importer must be an Importer or None, and device_importer "
                                             "an Importer with streams or None");
            return NULL;
        }
    }
    Delivery delivery;
    if (delivery_init(&delivery, importer, is_mutable, marks_readonly, copy, writable, dtype) < 0) {
        return NULL;
    }
    MemoryRoute *self = PyObject_New(MemoryRoute, type);
    if (self == NULL) {
        Py_XDECREF(delivery.importer);
        return NULL;
    }
    delivery.device_importer = (Importer *)Py_XNewRef(unless_none(device_importer));
    self->base.run = run_memory;
    self->base.asks_once = is_producer_exporter(exporter);
    self->base.fallback = fallback == Py_None ? NULL : Py_NewRef(fallback);
    self->exporter = (Exporter *)Py_NewRef(exporter);
    self->delivery = delivery;
    self->is_owned = is_owned;
    self->only_unchanged = only_unchanged;
    return (PyObject *)self;
}

static PyTypeObject MemoryRouteType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "zerocopy._native._core.MemoryRoute",
    .tp_doc = "MemoryRoute(exporter, importer, *, mutable, marks_readonly, fallback=None, copy=None, "
              "writable=None, dtype=None, owned=False, only_unchanged=False, device_importer=None): importer takes "
              "host memory, device_importer memory on CUDA devices; either may be None.",
    .tp_base = &RouteType,
    .tp_basicsize = sizeof(MemoryRoute),
    .tp_dealloc = memory_route_dealloc,
    .tp_call = route_call,
    .tp_new = memory_route_new,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

int
visit_route(visitproc visit, void *arg)
{
    Py_VISIT(copy_function);
    Py_VISIT(error_test);
    return 0;
}

void
clear_route(void)
{
    Py_CLEAR(copy_function);
    Py_CLEAR(error_test);
}

/* Sets the function that copies memory. */
static PyObject *
set_copy_function(PyObject *module, PyObject *function)
{
    Py_XSETREF(copy_function, Py_NewRef(function));
    Py_RETURN_NONE;
}

/* Sets the function that distinguishes errors from other exceptions. */
static PyObject *
set_error_test(PyObject *module, PyObject *function)
{
    Py_XSETREF(error_test, Py_NewRef(function));
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"set_copy_function", set_copy_function, METH_O,
     "set_copy_function(function): the function returns a row-major, 64-byte aligned copy of an ndarray."},
    {"set_error_test", set_error_test, METH_O,
     "set_error_test(function): the function returns whether a fallback may follow an exception of a route."},
    {NULL, NULL, 0, NULL},
};

int
add_routes(PyObject *module)
{
    PyTypeObject *types[] = {&RouteType, &IdentityRouteType, &CallRouteType, &MemoryRouteType};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (PyModule_AddType(module, types[i]) < 0) {
            return -1;
        }
    }
    return PyModule_AddFunctions(module, methods);
}
