/* The table of routes: open addressing over pointers, read without a lock.

   A slot is written once: its route last, with release order, so that a reader sees a complete slot or an empty
   one. Clearing publishes a new table. Without a GIL, the old one is never freed, because another thread may read
   it. A process has few routes: one for each type, target and set of options that it uses. */
#include "core.h"

#include <stdatomic.h>

#define SLOTS 2048
#define PROBES 16

typedef struct {
    RouteKey key;
    _Atomic(Route *) route;
} Slot;

typedef struct {
    Slot slots[SLOTS];
} Table;

static _Atomic(Table *) current = NULL;

#ifdef Py_GIL_DISABLED
static PyMutex writing;
#define LOCK() PyMutex_Lock(&writing)
#define UNLOCK() PyMutex_Unlock(&writing)
#else
#define LOCK() ((void)0) /* the GIL is held, and no Python code runs meanwhile */
#define UNLOCK() ((void)0)
#endif

/* Combines the addresses and flags of a key. */
static inline size_t
hash_key(const RouteKey *key)
{
    uintptr_t hash = ((uintptr_t)key->to >> 4) * 31 ^ (uintptr_t)key->type >> 5;
    return hash ^ key->flags * 0x9E37 ^ (uintptr_t)key->device >> 3 ^ (uintptr_t)key->dtype >> 2;
}

/* Whether two keys hold the same addresses and flags. */
static inline bool
keys_equal(const RouteKey *a, const RouteKey *b)
{
    return a->to == b->to && a->type == b->type && a->flags == b->flags && a->device == b->device &&
           a->dtype == b->dtype;
}

Route *
find_route(const RouteKey *key)
{
    Table *table = atomic_load_explicit(&current, memory_order_acquire);
    size_t hash = hash_key(key);
    for (size_t i = 0; i < PROBES; i++) {
        Slot *slot = &table->slots[(hash + i) % SLOTS];
        Route *route = atomic_load_explicit(&slot->route, memory_order_acquire);
        if (route == NULL) {
            return NULL;
        }
        if (LIKELY(keys_equal(&slot->key, key))) {
            return route;
        }
    }
    return NULL;
}

int
option_flag(PyObject *value)
{
    return value == NULL || value == Py_None ? OPTION_NONE
           : value == Py_False               ? OPTION_FALSE
           : value == Py_True                ? OPTION_TRUE
                                             : -1;
}

/* set_route(to, type, route, copy=None, writable=None, device=None, dtype=None): returns whether the table had
   room. A key that exists keeps its route. The table keeps all its arguments alive. */
static PyObject *
set_route(PyObject *module, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"to", "type", "route", "copy", "writable", "device", "dtype", NULL};
    PyObject *to, *type, *route, *copy = NULL, *writable = NULL, *device = Py_None, *dtype = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO!O!|OOOO:set_route", names, &to, &PyType_Type, &type,
                                     &RouteType, &route, &copy, &writable, &device, &dtype)) {
        return NULL;
    }
    if (option_flag(copy) < 0 || option_flag(writable) < 0) {
        PyErr_SetString(PyExc_ValueError, "copy and writable must be True, False or None");
        return NULL;
    }
    Py_INCREF(to);
    if (PyUnicode_CheckExact(to)) {
        PyUnicode_InternInPlace(&to);
    }
    RouteKey key = {
        .to = to,
        .type = (PyTypeObject *)type,
        .device = device == Py_None ? NULL : device,
        .dtype = dtype == Py_None ? NULL : dtype,
        .flags = (unsigned)(option_flag(copy) << COPY_SHIFT | option_flag(writable) << WRITABLE_SHIFT),
    };
    bool has_room = false;
    LOCK();
    Table *table = atomic_load_explicit(&current, memory_order_relaxed);
    for (size_t i = 0; i < PROBES && !has_room; i++) {
        Slot *slot = &table->slots[(hash_key(&key) + i) % SLOTS];
        Route *old = atomic_load_explicit(&slot->route, memory_order_relaxed);
        has_room = old == NULL || keys_equal(&slot->key, &key);
        if (old == NULL) {
            Py_INCREF(to);
            Py_INCREF(type);
            Py_INCREF(route);
            Py_XINCREF(key.device);
            Py_XINCREF(key.dtype);
            slot->key = key;
            atomic_store_explicit(&slot->route, (Route *)route, memory_order_release);
        }
    }
    UNLOCK();
    Py_DECREF(to);
    return PyBool_FromLong(has_room);
}

/* Publishes an empty table; -1 with an exception. */
static int
publish_empty(void)
{
    Table *table = PyMem_RawCalloc(1, sizeof(Table));
    if (table == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    atomic_store_explicit(&current, table, memory_order_release);
    return 0;
}

#ifndef Py_GIL_DISABLED
/* Drops a table's references. It is no longer current, so Python code that this runs does not see it. */
static void
free_table(Table *table)
{
    for (size_t i = 0; i < SLOTS; i++) {
        Slot *slot = &table->slots[i];
        Py_XDECREF(slot->key.to);
        Py_XDECREF(slot->key.type);
        Py_XDECREF(slot->key.device);
        Py_XDECREF(slot->key.dtype);
        Py_XDECREF(atomic_load_explicit(&slot->route, memory_order_relaxed));
    }
    PyMem_RawFree(table);
}
#endif

/* Publishes an empty table unless the table is empty. */
static PyObject *
clear_routes(PyObject *module, PyObject *nothing)
{
    LOCK();
    Table *table = atomic_load_explicit(&current, memory_order_relaxed);
    bool is_empty = true;
    for (size_t i = 0; i < SLOTS && is_empty; i++) {
        is_empty = atomic_load_explicit(&table->slots[i].route, memory_order_relaxed) == NULL;
    }
    int status = is_empty ? 0 : publish_empty();
    UNLOCK();
    if (status < 0) {
        return NULL;
    }
#ifndef Py_GIL_DISABLED
    if (!is_empty) {
        free_table(table);
    }
#endif
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"set_route", (PyCFunction)(void (*)(void))set_route, METH_VARARGS | METH_KEYWORDS,
     "set_route(to, type, route, copy=None, writable=None, device=None, dtype=None): store a route."},
    {"clear_routes", clear_routes, METH_NOARGS, "clear_routes(): remove all routes."},
    {NULL, NULL, 0, NULL},
};

int
add_route_table(PyObject *module)
{
    return publish_empty() < 0 ? -1 : PyModule_AddFunctions(module, methods);
}
