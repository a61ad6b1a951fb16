/* ProducerExporter: objects of types without a framework file, by DLPack's methods or its C exchange API.
   TypeExporter: an exporter for such a type, while it has the same protocols. */
#include "core.h"

typedef struct {
    Exporter base;
    /* type.__dlpack_c_exchange_api__ and its table; NULL for types with Python methods only. */
    PyObject *capsule;
    const DLPackExchangeAPI *api;
    PyObject *dlpack, *device; /* the names of the methods */
    PyObject *keywords, *stream_keyword; /* ("max_version",), ("stream",) */
    PyObject *version;         /* the highest version of a capsule; NULL for a legacy one */
} ProducerExporter;

/* The capsule of a producer that a route on this thread has refused. Some producers have one capsule only. */
static _Thread_local PyObject *spare_producer = NULL, *spare_capsule = NULL;

/* Drops a producer and its capsule, or NULL, and keeps the current exception. */
static void
drop_pair(PyObject *producer, PyObject *capsule)
{
    if (LIKELY(producer == NULL)) {
        return;
    }
    PyObject *error, *value, *traceback;
    PyErr_Fetch(&error, &value, &traceback); /* as in memory_release */
    Py_DECREF(producer);
    Py_DECREF(capsule);
    PyErr_Restore(error, value, traceback);
}

/* Drops the capsule that this thread keeps. */
static void
drop_spare_capsule(void)
{
    PyObject *producer = spare_producer, *capsule = spare_capsule;
    spare_producer = NULL; /* before a deleter runs */
    spare_capsule = NULL;
    drop_pair(producer, capsule);
}

void
keep_spare_capsule(PyObject *producer, PyObject *capsule)
{
    PyObject *former_producer = spare_producer, *former_capsule = spare_capsule;
    spare_producer = Py_NewRef(producer); /* before a destructor of the former pair runs, which may keep another */
    spare_capsule = capsule;
    drop_pair(former_producer, former_capsule);
}

/* Returns the spare capsule of a producer, or NULL without an exception. */
static PyObject *
take_spare_capsule(PyObject *producer)
{
    if (LIKELY(spare_producer != producer)) {
        return NULL;
    }
    PyObject *capsule = Py_NewRef(spare_capsule);
    drop_spare_capsule();
    return capsule;
}

/* Fills in the device that __dlpack_device__() returns; false unless it is the first host device, or a CUDA device on
   which the consumer has a stream. If the capsule has another device, the slow path raises the error. */
static bool
read_device(const ProducerExporter *exporter, PyObject *obj, Memory *out)
{
    PyObject *arguments[2] = {NULL, obj};
    PyObject *pair = PyObject_VectorcallMethod(exporter->device, arguments + 1,
                                               1 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    bool is_pair = pair != NULL && PyTuple_CheckExact(pair) && PyTuple_GET_SIZE(pair) == 2 &&
                   PyLong_Check(PyTuple_GET_ITEM(pair, 0)) && PyLong_Check(PyTuple_GET_ITEM(pair, 1));
    long type = is_pair ? PyLong_AsLong(PyTuple_GET_ITEM(pair, 0)) : 0;
    long index = is_pair ? PyLong_AsLong(PyTuple_GET_ITEM(pair, 1)) : -1;
    Py_XDECREF(pair);
    if (PyErr_Occurred() || index < 0 || index > INT32_MAX) { /* PyLong_AsLong may raise OverflowError */
        return false;
    }
    out->device = (DLDevice){(int32_t)type, (int32_t)index};
    return type == kDLCPU ? index == 0 : type == kDLCUDA && get_consumer_stream(out, (int32_t)index) == 0;
}

/* Returns the capsule of an object; producers older than DLPack 1.0 raise TypeError for max_version. A producer on a
   device gets the consumer's stream, because without it the legacy default stream would wait for the work. */
static PyObject *
request_capsule(const ProducerExporter *exporter, PyObject *obj, const Memory *memory)
{
    PyObject *capsule = take_spare_capsule(obj);
    if (UNLIKELY(capsule != NULL)) {
        return capsule;
    }
    PyObject *arguments[3] = {NULL, obj, exporter->version};
    size_t count = 1 | PY_VECTORCALL_ARGUMENTS_OFFSET;
    if (memory->device.device_type == kDLCUDA) {
        arguments[2] = PyLong_FromLongLong(memory->stream);
        capsule = arguments[2] == NULL ? NULL
                                       : PyObject_VectorcallMethod(exporter->dlpack, arguments + 1, count,
                                                                   exporter->stream_keyword);
        Py_XDECREF(arguments[2]);
        return capsule;
    }
    if (LIKELY(exporter->version != NULL)) {
        capsule = PyObject_VectorcallMethod(exporter->dlpack, arguments + 1, count, exporter->keywords);
        if (capsule != NULL || !PyErr_ExceptionMatches(PyExc_TypeError) || !clear_error()) {
            return capsule;
        }
    }
    return PyObject_VectorcallMethod(exporter->dlpack, arguments + 1, count, NULL);
}

/* Returns the CUDA device of a struct if the consumer uses the producer's current stream there: the exchange API orders
   no streams. Else returns the host, so that memory on a device is refused. */
static DLDevice
device_of(const ProducerExporter *exporter, const DLManagedTensorVersioned *versioned, Memory *out)
{
    DLDevice device = versioned->version.major == 1 ? versioned->dl_tensor.device : HOST_DEVICE;
    bool is_ordered = device.device_type == kDLCUDA && get_consumer_stream(out, device.device_id) == 0 &&
                      exchange_api_stream(exporter->api, device.device_id) == out->stream;
    return is_ordered ? device : HOST_DEVICE;
}

/* Replaces negative strides over one element, which importers would take for reversed memory. */
static void
replace_unused_strides(Memory *memory)
{
    bool is_negative = false;
    for (int i = 0; memory->strides != NULL && i < memory->ndim; i++) {
        bool is_unused = memory->shape[i] == 1;
        is_negative |= is_unused && memory->strides[i] < 0;
        memory->own_strides[i] = is_unused ? 1 : memory->strides[i];
    }
    if (UNLIKELY(is_negative)) {
        memory->strides = memory->own_strides;
    }
}

/* Describes the memory of an object; -1 for what the slow path has to judge: other devices, copies, and booleans,
   whose bytes it reads. */
static int
run_producer(Exporter *self, PyObject *obj, Memory *out)
{
    const ProducerExporter *exporter = (const ProducerExporter *)self;
    int status;
    memory_init(out);
    if (exporter->api != NULL) {
        DLManagedTensorVersioned *versioned = NULL;
        status = exporter->api->managed_tensor_from_py_object_no_sync(obj, &versioned) == 0 && versioned != NULL
                     ? memory_from_versioned(versioned, device_of(exporter, versioned, out), out)
                     : -1;
    }
    else {
        PyObject *capsule = read_device(exporter, obj, out) ? request_capsule(exporter, obj, out) : NULL;
        status = memory_from_capsule(Py_XNewRef(capsule), out->device, out);
        if (LIKELY(status == 0)) {
            out->capsule = capsule;
            out->producer = obj;
        }
        else if (capsule != NULL) {
            keep_spare_capsule(obj, capsule);
        }
    }
    if (UNLIKELY(status < 0)) {
        return -1;
    }
    const DLTensor *tensor = out->versioned != NULL ? &out->versioned->dl_tensor : &out->legacy->dl_tensor;
    bool is_copy = out->versioned != NULL && (out->versioned->flags & DLPACK_FLAG_IS_COPIED) != 0;
    bool is_other_host = out->device.device_type == kDLCPU && tensor->device.device_id != 0;
    if (UNLIKELY(is_copy || is_other_host || out->dtype.code == kDLBool)) {
        memory_release(out);
        return -1;
    }
    replace_unused_strides(out);
    return 0;
}

/* Frees an exporter. */
static void
producer_exporter_dealloc(PyObject *self)
{
    ProducerExporter *exporter = (ProducerExporter *)self;
    Py_XDECREF(exporter->capsule);
    Py_XDECREF(exporter->dlpack);
    Py_XDECREF(exporter->device);
    Py_XDECREF(exporter->keywords);
    Py_XDECREF(exporter->stream_keyword);
    Py_XDECREF(exporter->version);
    PyObject_Free(self);
}

/* Parses (api, version). */
static PyObject *
producer_exporter_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *capsule, *version;
    if (refuse_keywords(keywords) || !PyArg_ParseTuple(args, "OO:ProducerExporter", &capsule, &version)) {
        return NULL;
    }
    const DLPackExchangeAPI *api =
        capsule == Py_None
            ? NULL
            : exchange_api_of(capsule, offsetof(DLPackExchangeAPI, managed_tensor_from_py_object_no_sync));
    if (api == NULL) { /* also another version, no function, or not a capsule: __dlpack__ serves */
        PyErr_Clear();
        capsule = Py_None;
    }
    ProducerExporter *self = PyObject_New(ProducerExporter, type);
    if (self == NULL) {
        return NULL;
    }
    self->base.run = run_producer;
    self->capsule = Py_NewRef(capsule);
    self->api = api;
    self->dlpack = PyUnicode_InternFromString("__dlpack__");
    self->device = PyUnicode_InternFromString("__dlpack_device__");
    self->keywords = Py_BuildValue("(s)", "max_version");
    self->stream_keyword = Py_BuildValue("(s)", "stream");
    self->version = Py_XNewRef(unless_none(version));
    if (self->dlpack == NULL || self->device == NULL || self->keywords == NULL ||
        self->stream_keyword == NULL) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static PyTypeObject ProducerExporterType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "zerocopy._native._core.ProducerExporter",
    .tp_doc = "ProducerExporter(api, version): objects with __dlpack__, from which it requests this version of "
              "capsules, or None; or with the capsule `api` of __dlpack_c_exchange_api__, or None.",
    .tp_base = &ExporterType,
    .tp_basicsize = sizeof(ProducerExporter),
    .tp_dealloc = producer_exporter_dealloc,
    .tp_new = producer_exporter_new,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

/* ---- TypeExporter ---- */

/* What `zerocopy.describe` looks up on a type before it takes an interface of its instances, or their buffer. */
static const char *const protocols[] = {
    "__zerocopy_open__", "__dlpack__", "__cuda_array_interface__", "__array_interface__",
    "__arrow_c_stream__", "__arrow_c_array__", "__arrow_c_device_array__", "__getattr__",
};
#define PROTOCOLS (sizeof(protocols) / sizeof(protocols[0]))
static PyObject *protocol_names[PROTOCOLS];

typedef struct {
    Exporter base;
    Exporter *exporter;
    PyObject *method;   /* type.__dlpack__, if the exporter reads its C exchange API, which goes with it; or NULL */
    unsigned protocols; /* as protocols_of */
} TypeExporter;

/* Returns the protocols that a type has, as bits. PyObject_HasAttr would raise and clear an AttributeError for each that
   is absent, before CPython 3.13. */
static unsigned
protocols_of(PyTypeObject *type)
{
    unsigned bits = 0;
    for (size_t i = 0; i < PROTOCOLS; i++) {
        bits |= (unsigned)(_PyType_Lookup(type, protocol_names[i]) != NULL) << i;
    }
    return bits;
}

/* Runs the exporter; -1 if the type has gained, lost or replaced a protocol, so that the slow path describes the
   object as `explain` does. */
static int
run_type(Exporter *self, PyObject *obj, Memory *out)
{
    const TypeExporter *exporter = (const TypeExporter *)self;
    PyTypeObject *type = Py_TYPE(obj);
    if (UNLIKELY(protocols_of(type) != exporter->protocols ||
                 (exporter->method != NULL && _PyType_Lookup(type, protocol_names[1]) != exporter->method))) {
        return -1;
    }
    return exporter->exporter->run(exporter->exporter, obj, out);
}

/* Frees an exporter. */
static void
type_exporter_dealloc(PyObject *self)
{
    Py_XDECREF(((TypeExporter *)self)->exporter);
    Py_XDECREF(((TypeExporter *)self)->method);
    PyObject_Free(self);
}

bool
is_producer_exporter(const PyObject *exporter)
{
    const Exporter *run = (const Exporter *)exporter;
    if (run->run == run_type) {
        run = ((const TypeExporter *)exporter)->exporter;
    }
    return run->run == run_producer && ((const ProducerExporter *)run)->api == NULL;
}

/* Parses (exporter, type); returns the exporter itself for types that cannot change. */
static PyObject *
type_exporter_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *exporter, *cls;
    if (refuse_keywords(keywords) ||
        !PyArg_ParseTuple(args, "O!O!:TypeExporter", &ExporterType, &exporter, &PyType_Type, &cls)) {
        return NULL;
    }
    if (PyType_HasFeature((PyTypeObject *)cls, Py_TPFLAGS_IMMUTABLETYPE)) {
        return Py_NewRef(exporter);
    }
    TypeExporter *self = PyObject_New(TypeExporter, type);
    if (self != NULL) {
        bool has_api = ((Exporter *)exporter)->run == run_producer && !is_producer_exporter(exporter);
        self->base.run = run_type;
        self->exporter = (Exporter *)Py_NewRef(exporter);
        self->method = has_api ? Py_XNewRef(_PyType_Lookup((PyTypeObject *)cls, protocol_names[1])) : NULL;
        self->protocols = protocols_of((PyTypeObject *)cls);
    }
    return (PyObject *)self;
}

static PyTypeObject TypeExporterType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "zerocopy._native._core.TypeExporter",
    .tp_doc = "TypeExporter(exporter, type): the exporter, for objects of a type as long as it has the same protocols.",
    .tp_base = &ExporterType,
    .tp_basicsize = sizeof(TypeExporter),
    .tp_dealloc = type_exporter_dealloc,
    .tp_new = type_exporter_new,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

/* take_capsule(producer): the capsule that a route on this thread has requested and refused, or None. */
static PyObject *
take_capsule(PyObject *module, PyObject *producer)
{
    PyObject *capsule = take_spare_capsule(producer);
    return capsule != NULL ? capsule : Py_NewRef(Py_None);
}

/* drop_capsule(): drops that capsule, if there is one. */
static PyObject *
drop_capsule(PyObject *module, PyObject *nothing)
{
    drop_spare_capsule();
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"drop_capsule", drop_capsule, METH_NOARGS, "drop_capsule(): drop the capsule of take_capsule, if there is one."},
    {"take_capsule", take_capsule, METH_O,
     "take_capsule(producer): return the capsule that a route on this thread has requested and refused, or None."},
    {NULL, NULL, 0, NULL},
};

int
add_producer_exporter(PyObject *module)
{
    for (size_t i = 0; i < PROTOCOLS; i++) {
        protocol_names[i] = PyUnicode_InternFromString(protocols[i]);
        if (protocol_names[i] == NULL) {
            return -1;
        }
    }
    PyTypeObject *types[] = {&ProducerExporterType, &TypeExporterType};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (PyModule_AddType(module, types[i]) < 0) {
            return -1;
        }
    }
    return PyModule_AddFunctions(module, methods);
}
