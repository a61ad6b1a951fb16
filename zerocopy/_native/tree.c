/* TreeRoute: dicts, lists and tuples of exactly these types, converted leaf by leaf into new ones.

   If a leaf has no route, or its route fails, the route of the tree fails: the slow path then converts the tree
   from the beginning, and its errors name the leaf's path. */
#include "core.h"

typedef struct {
    Route base;
    RouteKey key; /* of the leaves, with the type of the last leaf */
} TreeRoute;

typedef struct {
    RouteKey key; /* owns a reference to its type, or NULL: a new type could have the address of a freed one */
    Route *route; /* of the last leaf: most leaves of a tree have one type */
} Walk;

static PyObject *convert_tree(PyObject *obj, Walk *walk);

/* Converts a leaf by its route, or a container; NULL with or without an exception. */
static inline PyObject *
convert_leaf(PyObject *obj, Walk *walk)
{
    PyTypeObject *type = Py_TYPE(obj);
    if (UNLIKELY(type != walk->key.type)) {
        if (type == &PyDict_Type || type == &PyList_Type || type == &PyTuple_Type) {
            return convert_tree(obj, walk);
        }
        Py_XSETREF(walk->key.type, (PyTypeObject *)Py_NewRef(type));
        Py_XSETREF(walk->route, (Route *)Py_XNewRef(find_route(&walk->key)));
    }
    return UNLIKELY(walk->route == NULL || walk->route->asks_once) ? NULL : route_run(walk->route, obj);
}

/* Whether an object is a Python number, which is kept among other leaves. */
static inline bool
is_number(PyObject *obj)
{
    return PyFloat_CheckExact(obj) || PyLong_CheckExact(obj) || PyBool_Check(obj) || PyComplex_CheckExact(obj);
}

/* Converts the values of a dict. */
static PyObject *
convert_dict(PyObject *obj, Walk *walk)
{
    /* The copy keeps the order of the keys; only its values are replaced. */
    PyObject *result = PyDict_Copy(obj), *key, *value;
    Py_ssize_t position = 0, count = result == NULL ? 0 : PyDict_GET_SIZE(result);
    while (result != NULL && PyDict_Next(result, &position, &key, &value)) {
        if (UNLIKELY(Py_TYPE(value) != walk->key.type) && is_number(value)) {
            continue;
        }
        Py_INCREF(key);
        Py_INCREF(value);
        PyObject *converted = convert_leaf(value, walk);
        /* A key whose hash has changed is added again; the loop would not end if it changes each time. */
        if (converted == NULL || PyDict_SetItem(result, key, converted) < 0 ||
            PyDict_GET_SIZE(result) != count) {
            Py_CLEAR(result);
        }
        Py_XDECREF(converted);
        Py_DECREF(key);
        Py_DECREF(value);
    }
    return result;
}

/* Converts the items of a tuple to `converted`; returns whether all were converted. */
static bool
convert_items(PyObject *items, Walk *walk, PyObject **converted)
{
    Py_ssize_t count = PyTuple_GET_SIZE(items), done = 0;
    bool numbers = false, others = false;
    while (done < count) {
        PyObject *item = PyTuple_GET_ITEM(items, done);
        if (Py_TYPE(item) == walk->key.type) {
            others = true;
        }
        else if (is_number(item)) {
            numbers = true;
            converted[done++] = Py_NewRef(item);
            continue;
        }
        else if (!PyList_CheckExact(item) && !PyTuple_CheckExact(item)) {
            others = true;
        }
        if ((converted[done] = convert_leaf(item, walk)) == NULL) {
            break;
        }
        done++;
    }
    if (done == count && numbers && !others) {
        count = done + 1; /* numbers alone are one array, which the slow path makes */
    }
    for (Py_ssize_t i = 0; done < count && i < done; i++) {
        Py_DECREF(converted[i]);
    }
    return done == count;
}

#define FEW 8 /* the most items whose results are kept on the stack */

/* Converts the items of a list or tuple. */
static PyObject *
convert_sequence(PyObject *obj, Walk *walk)
{
    bool is_list = PyList_CheckExact(obj);
    PyObject *items = is_list ? PyList_AsTuple(obj) : Py_NewRef(obj);
    if (items == NULL) {
        return NULL;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(items);
    PyObject *few[FEW], **converted = count <= FEW ? few : PyMem_New(PyObject *, (size_t)count), *result = NULL;
    if (converted == NULL) {
        PyErr_NoMemory();
    }
    else if (convert_items(items, walk, converted)) {
        result = sequence_of(is_list, converted, count);
    }
    if (converted != few) {
        PyMem_Free(converted);
    }
    Py_DECREF(items);
    return result;
}

/* Converts a container. */
static PyObject *
convert_tree(PyObject *obj, Walk *walk)
{
    if (Py_EnterRecursiveCall(" in zerocopy.convert")) {
        return NULL; /* nested too deeply, or a container that contains itself: the slow path reports which */
    }
    PyObject *result = PyDict_CheckExact(obj) ? convert_dict(obj, walk) : convert_sequence(obj, walk);
    Py_LeaveRecursiveCall();
    return result;
}

/* Converts a container and its leaves. */
static PyObject *
run_tree(Route *self, PyObject *obj)
{
    if (!PyDict_CheckExact(obj) && Py_SIZE(obj) == 0) {
        return NULL; /* an array without a dtype, which the slow path refuses */
    }
    Walk walk = {((TreeRoute *)self)->key, NULL};
    walk.key.type = NULL;
    PyObject *result = convert_tree(obj, &walk);
    Py_XDECREF(walk.route);
    Py_XDECREF(walk.key.type);
    return result;
}

/* Frees a route. */
static void
tree_route_dealloc(PyObject *self)
{
    Py_XDECREF(((TreeRoute *)self)->key.to);
    RouteType.tp_dealloc(self);
}

/* TreeRoute(to, copy=None, writable=None) */
static PyObject *
tree_route_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"", "copy", "writable", NULL};
    PyObject *to, *copy = NULL, *writable = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|OO:TreeRoute", names, &to, &copy, &writable)) {
        return NULL;
    }
    if (option_flag(copy) < 0 || option_flag(writable) < 0) {
        PyErr_SetString(PyExc_ValueError, "copy and writable must be True, False or None");
        return NULL;
    }
    TreeRoute *self = PyObject_New(TreeRoute, type);
    if (self == NULL) {
        return NULL;
    }
    Py_INCREF(to);
    if (PyUnicode_CheckExact(to)) {
        PyUnicode_InternInPlace(&to);
    }
    self->base.run = run_tree;
    self->base.asks_once = false;
    self->base.fallback = NULL;
    self->key = (RouteKey){.to = to};
    self->key.flags = (unsigned)(option_flag(copy) << COPY_SHIFT | option_flag(writable) << WRITABLE_SHIFT);
    return (PyObject *)self;
}

PyTypeObject TreeRouteType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "zerocopy._native._core.TreeRoute",
    .tp_doc = "TreeRoute(to, copy=None, writable=None): dicts, lists and tuples of arrays.",
    .tp_base = &RouteType,
    .tp_basicsize = sizeof(TreeRoute),
    .tp_dealloc = tree_route_dealloc,
    .tp_new = tree_route_new,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

/* Returns the one type of all items of a list or tuple; NULL without an exception if they have several or none.
   768 floats take 0.3 us, and 1.7 us with a copy of the items. */
static PyObject *
one_type(PyObject *obj)
{
#ifdef Py_GIL_DISABLED
    return NULL; /* another thread can change the list */
#else
    PyObject *const *items = PySequence_Fast_ITEMS(obj);
    Py_ssize_t count = PySequence_Fast_GET_SIZE(obj), same = 0;
    while (same < count && Py_TYPE(items[same]) == Py_TYPE(items[0])) {
        same++;
    }
    return count == 0 || same < count ? NULL : Py_NewRef(Py_TYPE(items[0]));
#endif
}

/* item_types(items): the set of the types of the items of a list or tuple. */
static PyObject *
item_types(PyObject *module, PyObject *obj)
{
    if (!PyList_Check(obj) && !PyTuple_Check(obj)) {
        PyErr_SetString(PyExc_TypeError, "item_types takes a list or a tuple");
        return NULL;
    }
    PyObject *type = one_type(obj);
    if (type != NULL) {
        PyObject *result = PySet_New(NULL);
        if (result != NULL && PySet_Add(result, type) < 0) {
            Py_CLEAR(result);
        }
        Py_DECREF(type);
        return result;
    }
    /* A hash of a metaclass can change the list meanwhile. */
    PyObject *items = PySequence_Tuple(obj), *types = items == NULL ? NULL : PySet_New(NULL), *last = NULL;
    for (Py_ssize_t i = 0; types != NULL && i < PyTuple_GET_SIZE(items); i++) {
        PyObject *type = (PyObject *)Py_TYPE(PyTuple_GET_ITEM(items, i));
        if (type != last && PySet_Add(types, type) < 0) {
            Py_CLEAR(types);
        }
        last = type;
    }
    Py_XDECREF(items);
    return types;
}

static PyMethodDef methods[] = {
    {"item_types", item_types, METH_O, "item_types(items): return the set of the types of a list or tuple."},
    {NULL, NULL, 0, NULL},
};

int
add_trees(PyObject *module)
{
    return PyModule_AddType(module, &TreeRouteType) < 0 ? -1 : PyModule_AddFunctions(module, methods);
}
