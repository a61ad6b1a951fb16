/* Importers that a framework's Python file creates from the framework's own functions. */
#include "core.h"

#include "arrow.h"

/* Frees an importer without references. */
static void
importer_dealloc(PyObject *self)
{
    PyObject_Free(self);
}

PyTypeObject ImporterType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "zerocopy._native._core.Importer",
    .tp_doc = "Makes objects of a framework over memory. Base of all importers.",
    .tp_basicsize = sizeof(Importer),
    .tp_dealloc = importer_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
};

/* ---- NDArrayImporter ---- */

/* Refuses data types that NumPy lacks. */
static int
check_ndarray(const Importer *self, const Memory *memory)
{
    return dtype_to_numpy(memory->dtype) != NULL ? IMPORT_ALIASES : IMPORT_REFUSES;
}

/* Makes an ndarray over memory. */
static PyObject *
run_ndarray(Importer *self, Memory *memory)
{
    return import_ndarray(memory);
}

/* Takes no arguments. */
static PyObject *
ndarray_importer_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    if (refuse_keywords(keywords) || !PyArg_ParseTuple(args, ":NDArrayImporter")) {
        return NULL;
    }
    Importer *self = PyObject_New(Importer, type);
    if (self != NULL) {
        self->check = check_ndarray;
        self->run = run_ndarray;
        self->stream = NULL;
    }
    return (PyObject *)self;
}

static PyTypeObject NDArrayImporterType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "zerocopy._native._core.NDArrayImporter",
    .tp_doc = "NDArrayImporter(): ndarrays, read-only over immutable memory.",
    .tp_base = &ImporterType,
    .tp_basicsize = sizeof(Importer),
    .tp_dealloc = importer_dealloc,
    .tp_new = ndarray_importer_new,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

/* ---- CapsuleImporter: a function that takes a legacy DLPack capsule ---- */

#define MAX_ARGUMENTS 3

typedef struct {
    Importer base;
    PyObject *function;
    PyObject *arguments;   /* tuple of further arguments */
    PyObject *wide;        /* (object, name): object.name is whether 64-bit elements are supported; or NULL */
    uintptr_t alignment;   /* in bytes, a power of 2; 0 for the size of an element */
    char layout;           /* 'r': row-major, 'c': compact, 's': any without negative strides */
    DTypeSet dtypes;
    bool takes_stream; /* whether the function takes the index of a device and the stream on it after the capsule */
    Getter stream;     /* the stream on a device, or a function of its index; for importers of device memory */
} CapsuleImporter;

/* Frees an importer. */
static void
capsule_importer_dealloc(PyObject *self)
{
    CapsuleImporter *importer = (CapsuleImporter *)self;
    Py_XDECREF(importer->function);
    Py_XDECREF(importer->arguments);
    Py_XDECREF(importer->wide);
    Py_XDECREF(importer->stream.function);
    PyObject_Free(self);
}

/* Whether a framework's 32-bit mode would reduce the width of the elements. */
static bool
is_wide(DLDataType dtype)
{
    return dtype.code == kDLComplex ? dtype.bits == 128 : dtype.bits == 64;
}

/* Returns the stream on a device. */
static int64_t
capsule_stream(const Importer *self, int32_t device)
{
    return getter_read_for_device(&((const CapsuleImporter *)self)->stream, device);
}

/* Refuses data types that the framework lacks; copies other layouts and alignments. */
static int
check_capsule(const Importer *self, const Memory *memory)
{
    const CapsuleImporter *importer = (const CapsuleImporter *)self;
    if (UNLIKELY(!dtype_set_has(&importer->dtypes, memory->dtype))) {
        return IMPORT_REFUSES;
    }
    if (importer->wide != NULL && is_wide(memory->dtype)) {
        PyObject *allowed =
            PyObject_GetAttr(PyTuple_GET_ITEM(importer->wide, 0), PyTuple_GET_ITEM(importer->wide, 1));
        int answer = allowed == NULL ? -1 : PyObject_IsTrue(allowed);
        Py_XDECREF(allowed);
        if (answer != 1) {
            return IMPORT_REFUSES;
        }
    }
    bool fits = importer->layout == 'r'   ? memory_is_row_major(memory)
                : importer->layout == 'c' ? memory_is_compact(memory)
                                          : memory_is_ascending(memory);
    uintptr_t alignment = importer->alignment != 0 ? importer->alignment : memory->dtype.bits / 8;
    return fits && ((uintptr_t)memory->data & (alignment - 1)) == 0 ? IMPORT_ALIASES : IMPORT_COPIES;
}

/* Calls the function with a legacy capsule over memory. */
static PyObject *
run_capsule(Importer *self, Memory *memory)
{
    CapsuleImporter *importer = (CapsuleImporter *)self;
    int32_t index = memory->device.device_id;
    int64_t stream = memory->stream;
    PyObject *capsule = managed_tensor_capsule(memory);
    if (capsule == NULL) {
        return NULL;
    }
    if (importer->takes_stream) {
        PyObject *result = PyObject_CallFunction(importer->function, "OiL", capsule, index, (long long)stream);
        Py_DECREF(capsule);
        return result;
    }
    PyObject *arguments[2 + MAX_ARGUMENTS] = {NULL, capsule};
    size_t count = 1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(importer->arguments); i++) {
        arguments[1 + count++] = PyTuple_GET_ITEM(importer->arguments, i);
    }
    PyObject *result =
        PyObject_Vectorcall(importer->function, arguments + 1, count | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    Py_DECREF(capsule); /* frees the memory unless the function has consumed it */
    return result;
}

/* Parses (function, *, dtypes, alignment, layout, arguments, wide, stream, takes_stream). */
static PyObject *
capsule_importer_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"", "dtypes", "alignment", "layout", "arguments", "wide", "stream", "takes_stream", NULL};
    PyObject *function, *pairs, *arguments, *wide = Py_None, *stream = Py_None;
    const char *layout;
    unsigned long alignment;
    int takes_stream = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OOksO!|OOp:CapsuleImporter", names, &function, &pairs,
                                     &alignment, &layout, &PyTuple_Type, &arguments, &wide, &stream, &takes_stream)) {
        return NULL;
    }
    Getter getter = {NULL, 0};
    DTypeSet dtypes;
    if (dtype_set_parse(pairs, &dtypes) < 0) {
        return NULL;
    }
    bool valid = (alignment != 0 || layout[0] == 's') && (alignment & (alignment - 1)) == 0 &&
                 PyTuple_GET_SIZE(arguments) < MAX_ARGUMENTS &&
                 (wide == Py_None || (PyTuple_Check(wide) && PyTuple_GET_SIZE(wide) == 2)) &&
                 (strcmp(layout, "row-major") == 0 || strcmp(layout, "compact") == 0 || strcmp(layout, "strided") == 0);
    if (!valid) {
        PyErr_SetString(PyExc_ValueError, "CapsuleImporter: invalid alignment, layout, arguments or wide");
        return NULL;
    }
    if (stream != Py_None && getter_init(&getter, stream) < 0) {
        return NULL;
    }
    CapsuleImporter *self = PyObject_New(CapsuleImporter, type);
    if (self != NULL) {
        self->base.check = check_capsule;
        self->base.run = run_capsule;
        self->base.stream = stream == Py_None ? NULL : capsule_stream;
        self->stream = getter;
        self->takes_stream = takes_stream;
        self->function = Py_NewRef(function);
        self->arguments = Py_NewRef(arguments);
        self->wide = wide == Py_None ? NULL : Py_NewRef(wide);
        self->alignment = alignment;
        self->layout = layout[0];
        self->dtypes = dtypes;
    }
    return (PyObject *)self;
}

static PyTypeObject CapsuleImporterType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "zerocopy._native._core.CapsuleImporter",
    .tp_doc = "CapsuleImporter(function, *, dtypes, alignment, layout, arguments, wide=None, stream=None, "
              "takes_stream=False): function(capsule, *arguments) returns an object over the memory. For memory on "
              "CUDA devices, stream is the target's stream, or a function of a device's index that returns it; with "
              "takes_stream, function(capsule, index, stream) is called.",
    .tp_base = &ImporterType,
    .tp_basicsize = sizeof(CapsuleImporter),
    .tp_dealloc = capsule_importer_dealloc,
    .tp_new = capsule_importer_new,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

/* ---- ArrowImporter: a function that takes the address of an ArrowArray, and a type ---- */

typedef struct {
    Importer base;
    PyObject *function;
    PyObject *types[32][5]; /* by code and by log2_bytes(bits) */
} ArrowImporter;

/* Frees an importer. */
static void
arrow_importer_dealloc(PyObject *self)
{
    ArrowImporter *importer = (ArrowImporter *)self;
    Py_XDECREF(importer->function);
    for (int i = 0; i < 32 * 5; i++) {
        Py_XDECREF(importer->types[i / 5][i % 5]);
    }
    PyObject_Free(self);
}

/* Refuses memory that is not one column of a type in `types`. */
static int
check_arrow(const Importer *self, const Memory *memory)
{
    int log2 = log2_bytes(memory->dtype.bits);
    bool has_type = log2 >= 0 && memory->dtype.code < 32 && memory->dtype.lanes == 1 &&
                    ((const ArrowImporter *)self)->types[memory->dtype.code][log2] != NULL;
    /* Only one dimension: the slow path converts others, and makes copies. */
    return has_type && memory->ndim == 1 && memory_is_row_major(memory) &&
                   (uintptr_t)memory->data % (memory->dtype.bits / 8) == 0
               ? IMPORT_ALIASES
               : IMPORT_REFUSES;
}

/* The release callback of an ArrowArray over a ManagedTensor. */
static void
release_array(struct ArrowArray *array)
{
    managed_tensor_free(array->private_data);
    array->release = NULL;
}

/* Calls the function with the address of an ArrowArray over memory. */
static PyObject *
run_arrow(Importer *self, Memory *memory)
{
    ArrowImporter *importer = (ArrowImporter *)self;
    PyObject *type = importer->types[memory->dtype.code][log2_bytes(memory->dtype.bits)];
    int64_t length = memory->shape[0];
    void *data = memory->data;
    ManagedTensor *tensor = managed_tensor_new(memory);
    if (tensor == NULL) {
        return NULL;
    }
    /* The words of shape and stride, which are no longer needed, hold the two buffers: no bitmap, and the values. */
    const void **buffers = (const void **)tensor->numbers;
    buffers[0] = NULL;
    buffers[1] = data;
    struct ArrowArray array = {
        .length = length,
        .null_count = 0,
        .offset = 0,
        .n_buffers = 2,
        .n_children = 0,
        .buffers = buffers,
        .release = release_array,
        .private_data = tensor,
    };
    PyObject *address = PyLong_FromVoidPtr(&array), *result = NULL;
    if (address != NULL) {
        PyObject *arguments[3] = {NULL, address, type};
        result = PyObject_Vectorcall(importer->function, arguments + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
        Py_DECREF(address);
    }
    if (array.release != NULL) { /* the function has not moved the array */
        PyObject *error, *value, *traceback;
        PyErr_Fetch(&error, &value, &traceback); /* as in memory_release */
        array.release(&array);
        PyErr_Restore(error, value, traceback);
    }
    return result;
}

/* Parses (function, types). */
static PyObject *
arrow_importer_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *function, *types, *key, *value;
    if (refuse_keywords(keywords) || !PyArg_ParseTuple(args, "OO!:ArrowImporter", &function, &PyDict_Type, &types)) {
        return NULL;
    }
    ArrowImporter *self = PyObject_New(ArrowImporter, type);
    if (self == NULL) {
        return NULL;
    }
    memset((char *)self + sizeof(PyObject), 0, sizeof(ArrowImporter) - sizeof(PyObject)); /* no stream, no types */
    self->base.check = check_arrow;
    self->base.run = run_arrow;
    self->function = Py_NewRef(function);
    Py_ssize_t position = 0;
    while (PyDict_Next(types, &position, &key, &value)) {
        int code, bits;
        if (!PyArg_ParseTuple(key, "ii", &code, &bits)) {
            Py_DECREF(self);
            return NULL;
        }
        if (code < 0 || code >= 32 || log2_bytes(bits) < 0) {
            PyErr_SetString(PyExc_ValueError, "ArrowImporter: not a DLPack data type");
            Py_DECREF(self);
            return NULL;
        }
        Py_XSETREF(self->types[code][log2_bytes(bits)], Py_NewRef(value));
    }
    return (PyObject *)self;
}

static PyTypeObject ArrowImporterType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "zerocopy._native._core.ArrowImporter",
    .tp_doc = "ArrowImporter(function, types): function(address of an ArrowArray, type) returns a column.",
    .tp_base = &ImporterType,
    .tp_basicsize = sizeof(ArrowImporter),
    .tp_dealloc = arrow_importer_dealloc,
    .tp_new = arrow_importer_new,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

int
add_importers(PyObject *module)
{
    PyTypeObject *types[] = {&ImporterType, &NDArrayImporterType, &CapsuleImporterType, &ArrowImporterType};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (PyModule_AddType(module, types[i]) < 0) {
            return -1;
        }
    }
    return 0;
}
