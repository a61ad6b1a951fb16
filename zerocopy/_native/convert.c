/* The function ``convert``: it looks up a route and runs it. Without a route, it calls the function in Python. */
#include "core.h"

static PyObject *python_function = NULL; /* convert in Python, with the same arguments */
static PyObject *slow_function = NULL;   /* (obj, to, options, error): after a route has failed */
static PyObject *name_obj, *name_to, *name_copy, *name_writable, *name_device, *name_dtype;

typedef struct {
    PyObject *obj, *to, *copy, *writable, *device, *dtype; /* borrowed; NULL if not passed */
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
                           : name == name_device   ? &out->device
                           : name == name_dtype    ? &out->dtype
                           : name == name_obj      ? &out->obj
                                                   : NULL;
        if (field == NULL || *field != NULL) {
            return false;
        }
        *field = args[count + i];
    }
    return out->obj != NULL && out->to != NULL;
}

/* Returns the route for these arguments, or NULL without an exception. */
static Route *
find(const Arguments *arguments)
{
    int copy = option_flag(arguments->copy), writable = option_flag(arguments->writable);
    if (copy < 0 || writable < 0) {
        return NULL;
    }
    RouteKey key = {
        .to = arguments->to,
        .type = Py_TYPE(arguments->obj),
        .device = arguments->device == Py_None ? NULL : arguments->device,
        .dtype = arguments->dtype == Py_None ? NULL : arguments->dtype,
        .flags = (unsigned)(copy << COPY_SHIFT | writable << WRITABLE_SHIFT),
    };
    Route *route = find_route(&key);
    if (UNLIKELY(route == NULL && PyUnicode_CheckExact(key.to) && !PyUnicode_CHECK_INTERNED(key.to))) {
        Py_INCREF(key.to);
        PyUnicode_InternInPlace(&key.to); /* the table holds interned strings */
        route = find_route(&key);
        Py_DECREF(key.to);
    }
    return route;
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
        result = PyObject_Vectorcall(slow_function, values + 1, 4 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
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
    PyObject *result = route == NULL ? NULL : route_run(route, arguments.obj);
    if (LIKELY(result != NULL)) {
        return result;
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

static PyMethodDef definition = {
    "convert", (PyCFunction)(void (*)(void))convert, METH_FASTCALL | METH_KEYWORDS, NULL,
};

/* make_convert(python_function, slow_function, doc, module): returns the compiled function. */
static PyObject *
make_convert(PyObject *module, PyObject *args)
{
    PyObject *python, *slow, *doc, *name;
    if (!PyArg_ParseTuple(args, "OOUU:make_convert", &python, &slow, &doc, &name)) {
        return NULL;
    }
    const char *text = PyUnicode_AsUTF8(doc);
    if (text == NULL) {
        return NULL;
    }
    Py_INCREF(doc); /* never freed, because the static definition points into it */
    definition.ml_doc = text;
    Py_XSETREF(python_function, Py_NewRef(python));
    Py_XSETREF(slow_function, Py_NewRef(slow));
    return PyCFunction_NewEx(&definition, NULL, name);
}

static PyMethodDef methods[] = {
    {"make_convert", make_convert, METH_VARARGS,
     "make_convert(python_function, slow_function, doc, module): return the compiled convert."},
    {NULL, NULL, 0, NULL},
};

int
add_convert(PyObject *module)
{
    struct {
        PyObject **field;
        const char *text;
    } names[] = {{&name_obj, "obj"},           {&name_to, "to"},         {&name_copy, "copy"},
                 {&name_writable, "writable"}, {&name_device, "device"}, {&name_dtype, "dtype"}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        *names[i].field = PyUnicode_InternFromString(names[i].text);
        if (*names[i].field == NULL) {
            return -1;
        }
    }
    return PyModule_AddFunctions(module, methods);
}
