/* Exporters that a framework's Python file creates from the framework's own functions. */
#include "core.h"

#include <stdatomic.h>

/* Frees an exporter without references. */
static void
exporter_dealloc(PyObject *self)
{
    PyObject_Free(self);
}

PyTypeObject ExporterType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "zerocopy._native._core.Exporter",
    .tp_doc = "Describes the memory of a framework's objects. Base of all exporters.",
    .tp_basicsize = sizeof(Exporter),
    .tp_dealloc = exporter_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
};

/* ---- NDArrayExporter: exact ndarrays ---- */

/* Describes the memory of an ndarray. */
static int
run_ndarray(Exporter *self, PyObject *obj, Memory *out)
{
    return export_ndarray(obj, out);
}

/* Takes no arguments. */
static PyObject *
ndarray_exporter_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    if (refuse_keywords(keywords) || !PyArg_ParseTuple(args, ":NDArrayExporter")) {
        return NULL;
    }
    Exporter *self = PyObject_New(Exporter, type);
    if (self != NULL) {
        self->run = run_ndarray;
    }
    return (PyObject *)self;
}

static PyTypeObject NDArrayExporterType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "zerocopy._native._core.NDArrayExporter",
    .tp_doc = "NDArrayExporter(): ndarrays, not their subclasses, which may change the meaning of the values.",
    .tp_base = &ExporterType,
    .tp_basicsize = sizeof(Exporter),
    .tp_dealloc = exporter_dealloc,
    .tp_new = ndarray_exporter_new,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

/* ---- CapsuleExporter and ArrayExporter: a function that returns a DLPack capsule or an ndarray ---- */

int
getter_init(Getter *getter, PyObject *value)
{
    bool is_function = PyCallable_Check(value);
    getter->number = is_function ? 0 : PyLong_AsLongLong(value);
    getter->function = is_function ? Py_NewRef(value) : NULL;
    return PyErr_Occurred() ? -1 : 0;
}

int64_t
getter_read(const Getter *getter, PyObject *argument)
{
    if (getter->function == NULL) {
        return getter->number;
    }
    PyObject *value = call_one(getter->function, argument);
    long long number = value == NULL || !PyLong_Check(value) ? -1 : PyLong_AsLongLong(value);
    Py_XDECREF(value);
    return number < 0 ? -1 : number;
}

int64_t
getter_read_for_device(const Getter *getter, int32_t device)
{
    PyObject *index = getter->function == NULL ? NULL : PyLong_FromLong(device);
    if (index == NULL) {
        return getter->function == NULL ? getter->number : -1;
    }
    int64_t number = getter_read(getter, index);
    Py_DECREF(index);
    return number;
}

typedef struct {
    Exporter base;
    PyObject *function;
    Getter device;           /* the index of an object's CUDA device, if `function` takes a stream */
    PyObject *keyword_names; /* tuple, or NULL */
    PyObject *keyword_values;
    bool readonly;
    /* ArrayExporter refuses an object if the array's type is in `ambiguous` and `refuse(obj)` is true; or NULL. */
    PyObject *refuse;
    DTypeSet ambiguous;
} FunctionExporter;

/* Frees an exporter. */
static void
function_exporter_dealloc(PyObject *self)
{
    FunctionExporter *exporter = (FunctionExporter *)self;
    Py_XDECREF(exporter->function);
    Py_XDECREF(exporter->device.function);
    Py_XDECREF(exporter->keyword_names);
    Py_XDECREF(exporter->keyword_values);
    Py_XDECREF(exporter->refuse);
    PyObject_Free(self);
}

/* Calls the function and consumes the capsule that it returns. */
static int
run_capsule(Exporter *self, PyObject *obj, Memory *out)
{
    FunctionExporter *exporter = (FunctionExporter *)self;
    PyObject *arguments[4] = {NULL, obj, NULL, NULL};
    Py_ssize_t extra = exporter->keyword_names == NULL ? 0 : PyTuple_GET_SIZE(exporter->keyword_names);
    for (Py_ssize_t i = 0; i < extra; i++) {
        arguments[2 + i] = PyTuple_GET_ITEM(exporter->keyword_values, i);
    }
    PyObject *capsule = PyObject_Vectorcall(exporter->function, arguments + 1,
                                            1 | PY_VECTORCALL_ARGUMENTS_OFFSET, exporter->keyword_names);
    if (UNLIKELY(memory_from_capsule(capsule, HOST_DEVICE, out) < 0)) {
        return -1;
    }
    out->readonly |= exporter->readonly;
    return 0;
}

/* Calls the function with the consumer's stream, which then waits for the work on the object. */
static int
run_capsule_on_device(Exporter *self, PyObject *obj, Memory *out)
{
    FunctionExporter *exporter = (FunctionExporter *)self;
    int64_t index = out->consumer == NULL ? -1 : getter_read(&exporter->device, obj);
    if (index < 0 || index > INT32_MAX || get_consumer_stream(out, (int32_t)index) < 0) {
        return -1;
    }
    PyObject *arguments[3] = {NULL, obj, PyLong_FromLongLong(out->stream)};
    PyObject *capsule = arguments[2] == NULL ? NULL
                                             : PyObject_Vectorcall(exporter->function, arguments + 1,
                                                                   1 | PY_VECTORCALL_ARGUMENTS_OFFSET,
                                                                   exporter->keyword_names);
    Py_XDECREF(arguments[2]);
    if (UNLIKELY(memory_from_capsule(capsule, (DLDevice){kDLCUDA, (int32_t)index}, out) < 0)) {
        return -1;
    }
    out->readonly |= exporter->readonly;
    return 0;
}

/* Whether `refuse(obj)` is false. */
static bool
is_allowed(const FunctionExporter *exporter, PyObject *obj)
{
    PyObject *answer = call_one(exporter->refuse, obj);
    int refused = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    return refused == 0;
}

/* Calls the function and describes the memory of the ndarray that it returns. */
static int
run_array(Exporter *self, PyObject *obj, Memory *out)
{
    FunctionExporter *exporter = (FunctionExporter *)self;
    PyObject *array = call_one(exporter->function, obj);
    if (UNLIKELY(array == NULL)) {
        return -1;
    }
    /* An ndarray without a base is a copy: text as objects, or a layout that the function does not alias. */
    int status = -1;
    if (PyArray_CheckExact(array) && PyArray_BASE((PyArrayObject *)array) != NULL) {
        if (exporter->readonly) {
            PyArray_CLEARFLAGS((PyArrayObject *)array, NPY_ARRAY_WRITEABLE);
        }
        status = export_ndarray(array, out);
    }
    Py_DECREF(array); /* `out` holds it */
    if (UNLIKELY(status < 0)) {
        return -1;
    }
    out->owner_is_result = true;
    if (exporter->refuse != NULL && dtype_set_has(&exporter->ambiguous, out->dtype) && !is_allowed(exporter, obj)) {
        memory_release(out);
        return -1;
    }
    return 0;
}

/* Parses (function, *, keywords=None, readonly=False, refuse=None) for the types on the host. */
static PyObject *
function_exporter_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"", "keywords", "readonly", "refuse", NULL};
    PyObject *function, *extra = Py_None, *refuse = NULL, *pairs = NULL;
    int readonly = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|Op(OO):Exporter", names, &function, &extra, &readonly,
                                     &pairs, &refuse)) {
        return NULL;
    }
    DTypeSet ambiguous = {{0}};
    if (pairs != NULL && dtype_set_parse(pairs, &ambiguous) < 0) {
        return NULL;
    }
    if (!PyCallable_Check(function) || (extra != Py_None && (!PyDict_Check(extra) || PyDict_Size(extra) > 2))) {
        PyErr_SetString(PyExc_TypeError, "expected a function, and None or a dict of at most two keywords");
        return NULL;
    }
    FunctionExporter *self = PyObject_New(FunctionExporter, type);
    if (self == NULL) {
        return NULL;
    }
    self->base.run = NULL; /* set by the caller */
    self->function = Py_NewRef(function);
    self->device = (Getter){NULL, 0};
    self->keyword_names = NULL;
    self->keyword_values = NULL;
    self->readonly = readonly;
    self->refuse = Py_XNewRef(refuse);
    self->ambiguous = ambiguous;
    if (extra != Py_None) {
        PyObject *keys = PyDict_Keys(extra), *values = PyDict_Values(extra);
        self->keyword_names = keys == NULL ? NULL : PyList_AsTuple(keys);
        self->keyword_values = values == NULL ? NULL : PyList_AsTuple(values);
        Py_XDECREF(keys);
        Py_XDECREF(values);
        if (self->keyword_names == NULL || self->keyword_values == NULL) {
            Py_DECREF(self);
            return NULL;
        }
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self->keyword_names); i++) {
            if (!PyUnicode_CheckExact(PyTuple_GET_ITEM(self->keyword_names, i))) {
                PyErr_SetString(PyExc_TypeError, "keywords must be strings");
                Py_DECREF(self);
                return NULL;
            }
        }
    }
    return (PyObject *)self;
}

/* Creates an exporter whose function returns capsules. */
static PyObject *
capsule_exporter_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *self = function_exporter_new(type, args, keywords);
    if (self != NULL) {
        ((Exporter *)self)->run = run_capsule;
    }
    return self;
}

/* Creates an exporter whose function returns ndarrays. */
static PyObject *
array_exporter_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *self = function_exporter_new(type, args, keywords);
    if (self != NULL) {
        ((Exporter *)self)->run = run_array;
    }
    return self;
}

/* Parses (function, device, *, readonly=False). */
static PyObject *
device_exporter_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"", "", "readonly", NULL};
    PyObject *function, *device;
    int readonly = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO|p:DeviceExporter", names, &function, &device, &readonly)) {
        return NULL;
    }
    PyObject *positional = PyTuple_Pack(1, function);
    PyObject *self = positional == NULL ? NULL : function_exporter_new(type, positional, NULL);
    Py_XDECREF(positional);
    FunctionExporter *exporter = (FunctionExporter *)self;
    if (self != NULL && ((exporter->keyword_names = Py_BuildValue("(s)", "stream")) == NULL ||
                         getter_init(&exporter->device, device) < 0)) {
        Py_CLEAR(self);
    }
    if (self != NULL) {
        exporter->base.run = run_capsule_on_device;
        exporter->readonly = readonly;
    }
    return self;
}

static PyTypeObject CapsuleExporterType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "zerocopy._native._core.CapsuleExporter",
    .tp_doc = "CapsuleExporter(function, *, keywords=None, readonly=False): function(obj) returns a DLPack "
              "capsule.",
    .tp_base = &ExporterType,
    .tp_basicsize = sizeof(FunctionExporter),
    .tp_dealloc = function_exporter_dealloc,
    .tp_new = capsule_exporter_new,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

static PyTypeObject ArrayExporterType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "zerocopy._native._core.ArrayExporter",
    .tp_doc = "ArrayExporter(function, *, readonly=False, refuse=None): function(obj) returns an ndarray that aliases "
              "obj; refuse is a pair (types, test): test(obj) is true if an array of these types has other "
              "values than obj.",
    .tp_base = &ExporterType,
    .tp_basicsize = sizeof(FunctionExporter),
    .tp_dealloc = function_exporter_dealloc,
    .tp_new = array_exporter_new,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

static PyTypeObject DeviceExporterType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "zerocopy._native._core.DeviceExporter",
    .tp_doc = "DeviceExporter(function, device, *, readonly=False): function(obj, stream=) returns a DLPack capsule of "
              "memory on a CUDA device, and makes the stream wait for the work on it; device is the index of that "
              "device, or a function of obj that returns it.",
    .tp_base = &ExporterType,
    .tp_basicsize = sizeof(FunctionExporter),
    .tp_dealloc = function_exporter_dealloc,
    .tp_new = device_exporter_new,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

/* ---- FirstExporter: two exporters, tried in order ---- */

typedef struct {
    Exporter base;
    Exporter *first, *second;
    DTypeSet lacks;     /* the types that the first exporter always refuses */
    _Atomic(bool) skips; /* whether the last object had one of them: JAX takes 450 ns to refuse one */
} FirstExporter;

/* Frees an exporter. */
static void
first_exporter_dealloc(PyObject *self)
{
    Py_XDECREF(((FirstExporter *)self)->first);
    Py_XDECREF(((FirstExporter *)self)->second);
    PyObject_Free(self);
}

/* Runs the second exporter, and notes whether the next object can skip the first. */
static int
run_second(FirstExporter *self, PyObject *obj, Memory *out)
{
    int status = self->second->run(self->second, obj, out);
    bool skips = status == 0 && dtype_set_has(&self->lacks, out->dtype);
    atomic_store_explicit(&self->skips, skips, memory_order_relaxed);
    return status;
}

/* Runs the second exporter if the first fails. */
static int
run_first(Exporter *self, PyObject *obj, Memory *out)
{
    FirstExporter *exporter = (FirstExporter *)self;
    if (UNLIKELY(atomic_load_explicit(&exporter->skips, memory_order_relaxed))) {
        if (LIKELY(run_second(exporter, obj, out) == 0)) {
            return 0;
        }
        if (!clear_error()) {
            return -1;
        }
    }
    if (LIKELY(exporter->first->run(exporter->first, obj, out) == 0)) {
        return 0;
    }
    return clear_error() ? run_second(exporter, obj, out) : -1;
}

/* Parses (first, second, lacks=()). */
static PyObject *
first_exporter_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"", "", "lacks", NULL};
    PyObject *first, *second, *pairs = NULL;
    DTypeSet lacks = {{0}};
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!O!|O:FirstExporter", names, &ExporterType, &first,
                                     &ExporterType, &second, &pairs) ||
        (pairs != NULL && dtype_set_parse(pairs, &lacks) < 0)) {
        return NULL;
    }
    FirstExporter *self = PyObject_New(FirstExporter, type);
    if (self != NULL) {
        self->base.run = run_first;
        self->first = (Exporter *)Py_NewRef(first);
        self->second = (Exporter *)Py_NewRef(second);
        self->lacks = lacks;
        atomic_init(&self->skips, false);
    }
    return (PyObject *)self;
}

static PyTypeObject FirstExporterType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "zerocopy._native._core.FirstExporter",
    .tp_doc = "FirstExporter(first, second, lacks=()): runs the second exporter if the first one fails; for objects "
              "after one of a type in lacks, pairs of code and bits, it tries the second one first.",
    .tp_base = &ExporterType,
    .tp_basicsize = sizeof(FirstExporter),
    .tp_dealloc = first_exporter_dealloc,
    .tp_new = first_exporter_new,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

int
add_exporters(PyObject *module)
{
    PyTypeObject *types[] = {&ExporterType, &NDArrayExporterType, &CapsuleExporterType, &ArrayExporterType,
                             &DeviceExporterType, &FirstExporterType};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (PyModule_AddType(module, types[i]) < 0) {
            return -1;
        }
    }
    return 0;
}
