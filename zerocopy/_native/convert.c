/* The function ``convert``: it looks up a route and runs it. Without a route, it calls the function in Python. */
#include "core.h"

static PyObject *python_function = NULL; /* convert in Python, with the same arguments */
static PyObject *slow_function = NULL;   /* (obj, to, options, error): after a route has failed */
static PyObject *name_obj, *name_to, *name_copy, *name_writable, *name_device, *name_dtype;
static PyObject *name_layout, *name_columns, *name_lists, *name_index, *name_names, *name_nulls, *name_leaves, *text_keep;

typedef struct {
    PyObject *obj, *to, *copy, *writable; /* borrowed; NULL if not passed, as all others */
    PyObject *values[ROUTE_VALUES], *leaves;
    bool has_others; /* whether one of the second line was passed: most calls pass none */
} Arguments;

/* Reads arguments that the keys of routes can hold; false for others, which the function in Python checks. */
static bool
read_arguments(PyObject *const *args, Py_ssize_t count, PyObject *names, Arguments *out)
{
    if (count > 2) {
        return false;
    }
    memset(out, 0, sizeof(Arguments));
    out->obj = count > 0 ? args[0] : NULL;
    out->to = count > 1 ? args[1] : NULL;
    Py_ssize_t name_count = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    for (Py_ssize_t i = 0; i < name_count; i++) {
        PyObject *name = PyTuple_GET_ITEM(names, i); /* interned by the compiler */
        PyObject **field = name == name_copy       ? &out->copy
                           : name == name_writable ? &out->writable
                           : name == name_to       ? &out->to
                           : name == name_obj      ? &out->obj
                                                   : NULL;
        if (field == NULL) {
            out->has_others = true;
            field = name == name_device    ? &out->values[0]
                    : name == name_dtype   ? &out->values[1]
                    : name == name_layout  ? &out->values[2]
                    : name == name_columns ? &out->values[3]
                    : name == name_lists   ? &out->values[4]
                    : name == name_index   ? &out->values[5]
                    : name == name_names   ? &out->values[6]
                    : name == name_nulls   ? &out->values[7]
                    : name == name_leaves  ? &out->leaves
                                           : NULL;
        }
        if (field == NULL || *field != NULL) {
            return false;
        }
        *field = args[count + i];
    }
    return out->obj != NULL && out->to != NULL;
}

/* Adds the values of options to a key. Returns false for values of `leaves` and `index` that routes do not know. */
static bool
add_values(RouteKey *key, const Arguments *arguments)
{
    set_values(key, arguments->values);
    if (option_flag(arguments->values[5]) < 0) {
        return false; /* index= has the labels of rows, which differ between calls */
    }
    return unless_none(arguments->leaves) == NULL || arguments->leaves == text_keep;
}

/* Returns the route for these arguments, or NULL, also with an exception that must reach the caller. */
static Route *
find(const Arguments *arguments)
{
    int copy = option_flag(arguments->copy), writable = option_flag(arguments->writable);
    RouteKey key = {.to = arguments->to, .type = Py_TYPE(arguments->obj)};
    key.flags = (unsigned)(copy << COPY_SHIFT | writable << WRITABLE_SHIFT);
    if (copy < 0 || writable < 0 || (arguments->has_others && !add_values(&key, arguments))) {
        return NULL;
    }
    Route *route = find_route(&key);
    route = LIKELY(route != NULL) ? route : find_route_of_equal(&key);
    /* leaves="keep" changes what a route does for dicts only: it makes no table of them. */
    bool is_kept = key.type == &PyDict_Type && arguments->leaves == text_keep;
    return is_kept && route != NULL && !Py_IS_TYPE((PyObject *)route, &TreeRouteType) ? NULL : route;
}

/* Returns the options that were passed as a new dict, in the caller's order, in which errors repeat them. */
static PyObject *
options_of(PyObject *const *values, PyObject *names)
{
    PyObject *options = PyDict_New();
    for (Py_ssize_t i = 0; options != NULL && names != NULL && i < PyTuple_GET_SIZE(names); i++) {
        PyObject *name = PyTuple_GET_ITEM(names, i);
        bool is_option = values[i] != Py_None && name != name_obj && name != name_to;
        if (is_option && PyDict_SetItem(options, name, values[i]) < 0) {
            Py_CLEAR(options);
        }
    }
    return options;
}

/* Calls the slow path with the exception of the route, which becomes the context of its errors. */
static PyObject *
call_slow_function(const Arguments *arguments, PyObject *const *values, PyObject *names)
{
#if PY_VERSION_HEX >= 0x030C0000
    PyObject *error = PyErr_GetRaisedException();
#else
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    if (type != NULL) {
        PyErr_NormalizeException(&type, &error, &traceback);
        if (traceback != NULL) {
            PyException_SetTraceback(error, traceback);
        }
    }
    Py_XDECREF(type);
    Py_XDECREF(traceback);
#endif
    PyObject *options = options_of(values, names), *result = NULL;
    if (options != NULL) {
        PyObject *values[] = {NULL, arguments->obj, arguments->to, options, error == NULL ? Py_None : error};
        PyObject *function = Py_NewRef(slow_function);
        result = PyObject_Vectorcall(function, values + 1, 4 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
        Py_DECREF(function);
        Py_DECREF(options);
    }
    Py_XDECREF(error);
    return result;
}

/* convert(obj, to, **options): runs the route of these arguments, or the function in Python. */
static PyObject *
convert(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    Arguments arguments;
    Route *route = NULL;
    if (LIKELY(count == 2 && names == NULL)) {
        RouteKey key = {.to = args[1], .type = Py_TYPE(args[0])};
        arguments = (Arguments){.obj = args[0], .to = args[1]};
        route = find_route(&key);
        if (UNLIKELY(route == NULL)) {
            route = find(&arguments);
        }
    }
    else if (read_arguments(args, count, names, &arguments)) {
        route = find(&arguments);
    }
    if (LIKELY(route != NULL)) {
        if (route->run == run_identity) {
            return Py_NewRef(arguments.obj);
        }
        PyObject *result = route_run(route, arguments.obj);
        if (LIKELY(result != NULL)) {
            return result;
        }
    }
    else if (UNLIKELY(PyErr_Occurred())) { /* Ctrl-C while values of options were compared */
        return NULL;
    }
    if (python_function == NULL) { /* cleared at the end of the interpreter */
        PyErr_SetString(PyExc_RuntimeError, "convert cannot make a plan while the interpreter ends");
        return NULL;
    }
    return route == NULL ? PyObject_Vectorcall(python_function, args, (size_t)count, names)
                         : call_slow_function(&arguments, args + count, names);
}

int
visit_convert(visitproc visit, void *arg)
{
    Py_VISIT(python_function);
    Py_VISIT(slow_function);
    return 0;
}

void
clear_convert(void)
{
    Py_CLEAR(python_function);
    Py_CLEAR(slow_function);
}

/* ---- the type of the function: it binds to classes, and has a docstring, a signature and annotations, as functions
   in Python do. Functions in C have none of these but the docstring. ---- */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *dict;
} FunctionObject;

/* Returns the name under which pickle finds the function in its module. */
static PyObject *
function_reduce(PyObject *self, PyObject *nothing)
{
    return PyObject_GetAttrString(self, "__qualname__");
}

static PyObject *
function_repr(PyObject *self)
{
    PyObject *name = PyObject_GetAttrString(self, "__qualname__");
    PyObject *text = name == NULL ? NULL : PyUnicode_FromFormat("<compiled function %U>", name);
    Py_XDECREF(name);
    return text;
}

/* Binds the function to an object whose class has it as an attribute. */
static PyObject *
function_get(PyObject *self, PyObject *obj, PyObject *type)
{
    return obj == NULL || obj == Py_None ? Py_NewRef(self) : PyMethod_New(self, obj);
}

static void
function_dealloc(PyObject *self)
{
    Py_XDECREF(((FunctionObject *)self)->dict);
    PyObject_Free(self);
}

static PyMethodDef function_methods[] = {
    {"__reduce__", function_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef function_members[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject FunctionType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "zerocopy._native._core.Function",
    .tp_doc = "A compiled function.",
    .tp_basicsize = sizeof(FunctionObject),
    .tp_dictoffset = offsetof(FunctionObject, dict),
    .tp_vectorcall_offset = offsetof(FunctionObject, vectorcall),
    .tp_dealloc = function_dealloc,
    .tp_call = PyVectorcall_Call,
    .tp_repr = function_repr,
    .tp_descr_get = function_get,
    .tp_getattro = PyObject_GenericGetAttr,
    .tp_setattro = PyObject_GenericSetAttr,
    .tp_methods = function_methods,
    .tp_getset = function_members,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
};

/* The calling convention of FunctionObject. */
static PyObject *
call_convert(PyObject *self, PyObject *const *args, size_t count, PyObject *names)
{
    return convert(self, args, PyVectorcall_NARGS(count), names);
}

/* make_convert(python_function, slow_function, attributes): returns the compiled function with these attributes. */
static PyObject *
make_convert(PyObject *module, PyObject *args)
{
    PyObject *python, *slow, *attributes;
    if (!PyArg_ParseTuple(args, "OOO!:make_convert", &python, &slow, &PyDict_Type, &attributes)) {
        return NULL;
    }
    FunctionObject *function = PyObject_New(FunctionObject, &FunctionType);
    if (function == NULL) {
        return NULL;
    }
    function->vectorcall = call_convert;
    function->dict = PyDict_Copy(attributes);
    if (function->dict == NULL) {
        Py_DECREF(function);
        return NULL;
    }
    make_immortal((PyObject *)function);
    Py_XSETREF(python_function, Py_NewRef(python));
    Py_XSETREF(slow_function, Py_NewRef(slow));
    return (PyObject *)function;
}

static PyMethodDef methods[] = {
    {"make_convert", make_convert, METH_VARARGS,
     "make_convert(python_function, slow_function, attributes): return the compiled convert."},
    {NULL, NULL, 0, NULL},
};

int
add_convert(PyObject *module)
{
    struct {
        PyObject **field;
        const char *text;
    } names[] = {{&name_obj, "obj"},           {&name_to, "to"},         {&name_copy, "copy"},
                 {&name_writable, "writable"}, {&name_device, "device"}, {&name_dtype, "dtype"},
                 {&name_layout, "layout"},     {&name_columns, "columns"},
                 {&name_lists, "lists"},       {&name_index, "index"},   {&name_names, "names"},
                 {&name_nulls, "nulls"},       {&name_leaves, "leaves"}, {&text_keep, "keep"}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        *names[i].field = PyUnicode_InternFromString(names[i].text);
        if (*names[i].field == NULL) {
            return -1;
        }
    }
    return PyType_Ready(&FunctionType) < 0 ? -1 : PyModule_AddFunctions(module, methods);
}
