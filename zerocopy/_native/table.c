/* The table of routes: open addressing over pointers, read without a lock.

   A slot is written once: its route last, with release order, so that a reader sees a complete slot or an empty
   one. Clearing publishes a new table. Without a GIL, the old one is never freed, because another thread may read
   it. A process has few routes: one for each type, target and set of options that it uses.

   While conversions are recorded, readers see an empty table, and the routes stay in `stored`: a call that is not
   recorded tests nothing.

   Keys are compared by address. Callers pass names and types, which are the same objects in each call, but also new
   lists of labels and devices such as torch.device("cpu"): `values` has the equal object that the keys hold. */
#include "core.h"

#include <stdatomic.h>

#define SLOT_BITS 11
#define SLOTS (1 << SLOT_BITS)
#define PROBES 16

typedef struct {
    RouteKey key;
    _Atomic(Route *) route;
} Slot;

typedef struct {
    Slot slots[SLOTS];
} Table;

static _Atomic(Table *) current = NULL; /* of the readers: `stored` or `no_routes` */
static Table *stored = NULL;            /* written to while the lock is held */
static Table no_routes;

#ifdef Py_GIL_DISABLED
static PyMutex writing;
#define LOCK() PyMutex_Lock(&writing)
#define UNLOCK() PyMutex_Unlock(&writing)
#else
#define LOCK() ((void)0) /* the GIL is held, and no Python code runs meanwhile */
#define UNLOCK() ((void)0)
#endif

/* Combines the addresses and flags of a key. The factor spreads addresses at equal distances, which allocators give out,
   over all slots (Fibonacci hashing); the low bits alone reach half of them or fewer for some distances. */
static inline size_t
hash_key(const RouteKey *key)
{
    uint64_t bits = (uint64_t)(uintptr_t)key->to * 31 ^ (uintptr_t)key->type ^ key->flags * 0x9E37;
    if (key->flags & HAS_VALUES) {
        for (int i = 0; i < ROUTE_VALUES; i++) {
            bits ^= (uintptr_t)key->values[i] >> i;
        }
    }
    return (size_t)(bits * UINT64_C(0x9E3779B97F4A7C15) >> (64 - SLOT_BITS));
}

/* Whether two keys hold the same addresses and flags. */
static inline bool
keys_equal(const RouteKey *a, const RouteKey *b)
{
    return a->to == b->to && a->type == b->type && a->flags == b->flags &&
           (!(a->flags & HAS_VALUES) || memcmp(a->values, b->values, sizeof(a->values)) == 0);
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

/* ---- values of options, and equal ones ---- */

/* The most values, because programs can pass new ones in each call. With a GIL, all values and routes are then dropped. */
#define MAX_VALUES 512

static PyObject *clear_routes(PyObject *module, PyObject *nothing);

static PyObject *values = NULL; /* a dict: the identity of a value -> the first such value, which keys hold */

/* Whether all items of a tuple are texts, integers, or tuples of these, `depth` levels at most. */
static bool
is_of_texts(PyObject *items, int depth)
{
    bool is_plain = true;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items) && is_plain; i++) {
        PyObject *item = PyTuple_GET_ITEM(items, i);
        is_plain = PyUnicode_CheckExact(item) || PyLong_CheckExact(item) ||
                   (PyTuple_CheckExact(item) && depth > 0 && is_of_texts(item, depth - 1));
    }
    return is_plain;
}

/* Returns the identity of a value: the text; the texts, integers and tuples of these in a list or tuple (the dtype of
   records); a float's bits; else its type and the value, since True == 1 == 1.0. NULL without an exception for a list of
   other objects. */
static PyObject *
identity_of(PyObject *value)
{
    if (PyUnicode_CheckExact(value)) {
        return Py_NewRef(value);
    }
    if (PyFloat_CheckExact(value)) { /* by its bits, since 0.0 == -0.0, and NaN differs from itself */
        double number = PyFloat_AS_DOUBLE(value);
        uint64_t bits;
        memcpy(&bits, &number, sizeof(bits));
        return Py_BuildValue("(OK)", (PyObject *)Py_TYPE(value), (unsigned long long)bits);
    }
    if (!PyList_CheckExact(value) && !PyTuple_CheckExact(value)) {
        return PyTuple_Pack(2, (PyObject *)Py_TYPE(value), value);
    }
    PyObject *items = PySequence_Tuple(value);
    /* Fields of records are tuples in a list, with a shape at most: a tuple of tuples is another dtype. */
    if (items != NULL && !is_of_texts(items, PyList_CheckExact(value) ? 2 : 0)) {
        Py_CLEAR(items);
    }
    return items;
}

/* Returns a reference to the first value of this identity; NULL with or without an exception. */
static PyObject *
get_value(PyObject *identity)
{
#ifdef Py_GIL_DISABLED
    PyObject *value; /* another thread may drop a borrowed one */
    (void)PyDict_GetItemRef(values, identity, &value);
    return value;
#else
    return Py_XNewRef(PyDict_GetItemWithError(values, identity));
#endif
}

/* Adds a value unless there is one of this identity, and returns a reference to the first; NULL with an exception. */
static PyObject *
add_value(PyObject *identity, PyObject *value)
{
#ifdef Py_GIL_DISABLED
    PyObject *first;
    (void)PyDict_SetDefaultRef(values, identity, value, &first);
    return first;
#else
    return Py_XNewRef(PyDict_SetDefault(values, identity, value));
#endif
}

/* Returns a reference to the value that keys hold for an equal one; with `adds`, that is `value` if there is none.
   NULL without an exception if there is none, or if it cannot be hashed. */
static PyObject *
held_value(PyObject *value, bool adds)
{
    PyObject *identity = identity_of(value), *held = NULL;
    if (identity != NULL) {
        held = get_value(identity);
        if (held == NULL && adds && !PyErr_Occurred()) {
            bool is_sequence = PyList_CheckExact(value) || PyTuple_CheckExact(value);
            PyObject *kept = Py_NewRef(is_sequence ? identity : value);
            if (PyUnicode_CheckExact(kept)) {
                PyUnicode_InternInPlace(&kept); /* literals in the caller's code then have its address */
            }
            held = add_value(identity, kept);
            Py_DECREF(kept);
        }
        Py_DECREF(identity);
    }
    if (held == NULL) {
        clear_error();
    }
    return held;
}

/* Replaces the target and the values of a key by references to those that the table holds. Returns false, without
   references, if it holds none, also with an exception that must reach the caller. */
static bool
hold_key(RouteKey *key, bool adds)
{
    int done = 0;
#ifdef Py_GIL_DISABLED
    /* Tables are never freed, so no new one is made: calls with further values have no route. */
    adds = adds && PyDict_GET_SIZE(values) + ROUTE_VALUES <= MAX_VALUES;
#else
    if (adds && PyDict_GET_SIZE(values) + ROUTE_VALUES > MAX_VALUES) {
        PyDict_Clear(values);
        PyObject *dropped = clear_routes(NULL, NULL);
        if (dropped == NULL) {
            PyErr_Clear(); /* no memory for another table: the routes stay */
        }
        Py_XDECREF(dropped);
    }
#endif
    for (; done < ROUTE_VALUES; done++) {
        PyObject *value = key->values[done];
        if (value != NULL && (key->values[done] = held_value(value, adds)) == NULL) {
            break;
        }
    }
    if (done < ROUTE_VALUES) {
        while (done > 0) {
            Py_XDECREF(key->values[--done]);
        }
        return false;
    }
    Py_INCREF(key->to);
    if (PyUnicode_CheckExact(key->to)) {
        PyUnicode_InternInPlace(&key->to);
    }
    return true;
}

/* Drops the references of a key that hold_key has filled. */
static void
release_key(RouteKey *key)
{
    Py_XDECREF(key->to);
    for (int i = 0; i < ROUTE_VALUES; i++) {
        Py_XDECREF(key->values[i]);
    }
}

Route *
find_route_of_equal(const RouteKey *key)
{
    RouteKey held = *key;
    if (!hold_key(&held, false)) {
        return NULL;
    }
    Route *route = find_route(&held);
    release_key(&held);
    return route;
}

/* Fills a key from options that Python passes; borrows them. -1 with an exception. */
static int
fill_key(RouteKey *key, PyObject *to, PyObject *const *options)
{
    int copy = option_flag(options[0]), writable = option_flag(options[1]);
    if (copy < 0 || writable < 0) {
        PyErr_SetString(PyExc_ValueError, "copy and writable must be True, False or None");
        return -1;
    }
    *key = (RouteKey){
        .to = to,
        .flags = (unsigned)(copy << COPY_SHIFT | writable << WRITABLE_SHIFT),
    };
    set_values(key, options + 2);
    return 0;
}

#define OPTION_NAMES "copy", "writable", "device", "dtype", "layout", "columns", "lists", "index", "names", "nulls", \
    NULL
#define OPTION_FIELDS(o) &o[0], &o[1], &o[2], &o[3], &o[4], &o[5], &o[6], &o[7], &o[8], &o[9]
#define NO_OPTIONS {Py_None, Py_None, Py_None, Py_None, Py_None, Py_None, Py_None, Py_None, Py_None, Py_None}

/* Stores a route; returns whether it had room. A key that exists keeps its route. */
static bool
store_route(const RouteKey *key, Route *route)
{
    bool has_room = false;
    LOCK();
    for (size_t i = 0; i < PROBES && !has_room; i++) {
        Slot *slot = &stored->slots[(hash_key(key) + i) % SLOTS];
        Route *old = atomic_load_explicit(&slot->route, memory_order_relaxed);
        has_room = old == NULL || keys_equal(&slot->key, key);
        if (old == NULL) {
            Py_INCREF(key->to);
            Py_INCREF(key->type);
            for (int value = 0; value < ROUTE_VALUES; value++) {
                Py_XINCREF(key->values[value]);
            }
            Py_INCREF(route);
            make_immortal((PyObject *)route); /* its table is never freed without a GIL */
            slot->key = *key;
            atomic_store_explicit(&slot->route, route, memory_order_release);
        }
    }
    UNLOCK();
    return has_room;
}

/* set_route(to, type, route, copy=None, writable=None, device=None, dtype=None, layout=None, columns=None,
   lists=None, index=None, names=None, nulls=None): returns whether the table had room, and can hold the values. The table keeps
   all its arguments alive. */
static PyObject *
set_route(PyObject *module, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"to", "type", "route", OPTION_NAMES};
    PyObject *to, *type, *route, *options[] = NO_OPTIONS;
    RouteKey key;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO!O!|OOOOOOOOOO:set_route", names, &to, &PyType_Type, &type,
                                     &RouteType, &route, OPTION_FIELDS(options)) ||
        fill_key(&key, to, options) < 0) {
        return NULL;
    }
    bool is_stored = false;
    if (hold_key(&key, true)) {
        key.type = (PyTypeObject *)type;
        is_stored = store_route(&key, (Route *)route);
        release_key(&key);
    }
    return PyErr_Occurred() ? NULL : PyBool_FromLong(is_stored);
}

/* ---- Routes: the routes to one target with fixed options, by type ---- */

typedef struct {
    PyObject_HEAD
    RouteKey key; /* its type is NULL */
} Routes;

static PyObject *
routes_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"to", OPTION_NAMES};
    PyObject *to, *options[] = NO_OPTIONS;
    RouteKey key;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|OOOOOOOOOO:Routes", names, &to, OPTION_FIELDS(options)) ||
        fill_key(&key, to, options) < 0) {
        return NULL;
    }
    if (!hold_key(&key, true)) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_LookupError, "no routes are kept for these options");
        }
        return NULL;
    }
    Routes *self = PyObject_New(Routes, type);
    if (self == NULL) {
        release_key(&key);
        return NULL;
    }
    self->key = key;
    return (PyObject *)self;
}

static void
routes_dealloc(PyObject *self)
{
    release_key(&((Routes *)self)->key);
    PyObject_Free(self);
}

/* routes.get(type): returns the route, or None. */
static PyObject *
routes_get(PyObject *self, PyObject *type)
{
    RouteKey key = ((Routes *)self)->key;
    key.type = (PyTypeObject *)type; /* another object than a type is never found */
    Route *route = find_route(&key);
    if (UNLIKELY(route == NULL && key.flags & HAS_VALUES)) {
        route = find_route_of_equal(&key); /* the values may have been dropped, and equal ones stored */
    }
    if (UNLIKELY(route == NULL && PyErr_Occurred())) {
        return NULL;
    }
    return Py_NewRef(route == NULL ? Py_None : (PyObject *)route);
}

/* routes[type]: returns the route, or raises KeyError. */
static PyObject *
routes_subscript(PyObject *self, PyObject *type)
{
    PyObject *route = routes_get(self, type);
    if (UNLIKELY(route == Py_None)) {
        Py_CLEAR(route);
        PyErr_SetObject(PyExc_KeyError, type);
    }
    return route;
}

static PyMethodDef routes_methods[] = {
    {"get", routes_get, METH_O, "get(type): return the route for objects of a type, or None."},
    {NULL, NULL, 0, NULL},
};

static PyMappingMethods routes_mapping = {.mp_subscript = routes_subscript};

static PyTypeObject RoutesType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "zerocopy._native._core.Routes",
    .tp_doc = "Routes(to, copy=None, writable=None, device=None, dtype=None, layout=None, columns=None, "
              "lists=None, index=None, names=None, nulls=None): the routes to one target with these options, by type. It reads "
              "the table, so that it is never stale.",
    .tp_basicsize = sizeof(Routes),
    .tp_dealloc = routes_dealloc,
    .tp_methods = routes_methods,
    .tp_as_mapping = &routes_mapping,
    .tp_new = routes_new,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

/* ---- the table as a whole ---- */

/* Stores an empty table, and publishes it unless routes are bypassed; -1 with an exception. */
static int
publish_empty(void)
{
    Table *table = PyMem_RawCalloc(1, sizeof(Table));
    if (table == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    stored = table;
    if (atomic_load_explicit(&current, memory_order_relaxed) != &no_routes) {
        atomic_store_explicit(&current, table, memory_order_release);
    }
    return 0;
}

#ifndef Py_GIL_DISABLED
/* Drops a table's references. It is no longer current, so Python code that this runs does not see it. */
static void
free_table(Table *table)
{
    for (size_t i = 0; i < SLOTS; i++) {
        Slot *slot = &table->slots[i];
        release_key(&slot->key);
        Py_XDECREF(slot->key.type);
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
    Table *table = stored;
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

/* bypass_routes(flag): whether conversions find none of the stored routes, because they are recorded. */
static PyObject *
bypass_routes(PyObject *module, PyObject *flag)
{
    LOCK();
    atomic_store_explicit(&current, flag == Py_True ? &no_routes : stored, memory_order_release);
    UNLOCK();
    Py_RETURN_NONE;
}

/* Frees the locks of this file and of table_plan.c, in a forked child: a thread that does not exist there may have got
   one before the fork. */
static PyObject *
free_locks(PyObject *module, PyObject *nothing)
{
#ifdef Py_GIL_DISABLED
    writing = (PyMutex){0};
    table_plan_free_lock();
#endif
    Py_RETURN_NONE;
}

/* Forgets the values of options, at the end of the interpreter. */
static PyObject *
clear_values(PyObject *module, PyObject *nothing)
{
    PyDict_Clear(values);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"set_route", (PyCFunction)(void (*)(void))set_route, METH_VARARGS | METH_KEYWORDS,
     "set_route(to, type, route, copy=None, writable=None, device=None, dtype=None, layout=None, columns=None, "
     "lists=None, index=None, names=None, nulls=None): store a route."},
    {"clear_routes", clear_routes, METH_NOARGS, "clear_routes(): remove all routes."},
    {"bypass_routes", bypass_routes, METH_O, "bypass_routes(flag): hide the routes, or show them again."},
    {"free_locks", free_locks, METH_NOARGS, "free_locks(): free the locks of the tables, in a forked child."},
    {"clear_values", clear_values, METH_NOARGS, "clear_values(): forget the values of options."},
    {NULL, NULL, 0, NULL},
};

int
add_route_table(PyObject *module)
{
    values = PyDict_New();
    if (values == NULL || publish_empty() < 0 || PyModule_AddType(module, &RoutesType) < 0) {
        return -1;
    }
    return PyModule_AddFunctions(module, methods);
}
