/* DLPack's C exchange API (DLPack 1.3): the exporter and the importer of frameworks that have it. */
#include "core.h"

/* ---- calls to the C function of a descriptor, without an attribute lookup ---- */

typedef struct {
    getter get; /* of a getset descriptor; or */
    void *closure;
    PyCFunction method; /* of a method without arguments */
    PyObject *descriptor;
} Probe;

/* Takes a getset descriptor or a method descriptor without arguments; -1 with TypeError for others. */
static int
probe_init(Probe *probe, PyObject *descriptor)
{
    probe->get = NULL;
    probe->method = NULL;
    if (PyObject_TypeCheck(descriptor, &PyGetSetDescr_Type) &&
        ((PyGetSetDescrObject *)descriptor)->d_getset->get != NULL) {
        probe->get = ((PyGetSetDescrObject *)descriptor)->d_getset->get;
        probe->closure = ((PyGetSetDescrObject *)descriptor)->d_getset->closure;
    }
    else if (PyObject_TypeCheck(descriptor, &PyMethodDescr_Type) &&
             ((PyMethodDescrObject *)descriptor)->d_method->ml_flags == METH_NOARGS) {
        probe->method = ((PyMethodDescrObject *)descriptor)->d_method->ml_meth;
    }
    else {
        PyErr_Format(PyExc_TypeError, "a getset or no-argument method descriptor is required, not %R", descriptor);
        return -1;
    }
    probe->descriptor = Py_NewRef(descriptor);
    return 0;
}

/* Calls the C function of a descriptor. */
static inline PyObject *
probe_call(const Probe *probe, PyObject *obj)
{
    return probe->get != NULL ? probe->get(obj, probe->closure) : probe->method(obj, NULL);
}

/* Returns 1 if the call returns False, 0 if it returns anything else, -1 with an exception. */
static inline int
probe_is_false(const Probe *probe, PyObject *obj)
{
    PyObject *answer = probe_call(probe, obj);
    if (answer == NULL) {
        return -1;
    }
    Py_DECREF(answer);
    return answer == Py_False;
}

/* ---- ExchangeExporter ---- */

typedef struct {
    Exporter base;
    PyObject *capsule;
    const DLPackExchangeAPI *api;
    /* Guards. The object holds a pointer at `impl_offset`; the word at `key_offset` behind it must be one of
       `keys`. If the pointer at `meta_offset` is not NULL, `requires_grad` must return False, and the item
       `level_name` of `levels` must be -1: else the object may have a tangent of forward mode. */
    Py_ssize_t impl_offset, key_offset, meta_offset;
    PyObject *levels, *level_name;
    uint64_t keys[2]; /* key sets of plain objects: on the host, and on CUDA devices; 0 if unknown */
    Probe requires_grad;
    /* `storage` returns the owner of the memory, and `resizable` of it whether it may still move its memory.
       If so, `as_array(obj)` forbids that and returns an ndarray. It raises TypeError for data types that NumPy
       lacks; for these, `fix(obj)` forbids it. */
    Probe storage, resizable;
    /* The owner holds a pointer at `storage_offset`; behind it are the address and the size of its memory. */
    Py_ssize_t storage_offset, data_offset, size_offset;
    PyObject *as_array, *fix;
    PyObject *on_stream; /* on_stream(obj, stream) returns a capsule, and makes the stream wait for the work on obj */
} ExchangeExporter;

/* Whether no level of forward mode is active, in which objects can have tangents. */
static bool
has_no_level(const ExchangeExporter *exporter)
{
    /* Borrowed: levels are small integers, which Python never frees. */
    PyObject *level = PyDict_GetItemWithError(exporter->levels, exporter->level_name);
    return level != NULL && PyLong_CheckExact(level) && PyLong_AsLong(level) == -1 && !PyErr_Occurred();
}

/* Whether an object has no gradients and holds plain memory: dense, without lazy bits, not wrapped by a
   transformation, and on the host (`key` 0) or on a CUDA device (1). */
static bool
is_plain(const ExchangeExporter *exporter, PyObject *obj, int key)
{
    const char *impl = *(char *const *)((const char *)obj + exporter->impl_offset);
    if (UNLIKELY(impl == NULL)) {
        return false; /* the garbage collector has cleared the object */
    }
    if (*(const uint64_t *)(impl + exporter->key_offset) != exporter->keys[key]) {
        return false;
    }
    return *(void *const *)(impl + exporter->meta_offset) == NULL ||
           (probe_is_false(&exporter->requires_grad, obj) == 1 && has_no_level(exporter));
}

/* Returns the owner of an object's memory; `is_fixed` is whether the owner can neither free nor move it. */
static PyObject *
take_storage(const ExchangeExporter *exporter, PyObject *obj, bool *is_fixed)
{
    PyObject *storage = probe_call(&exporter->storage, obj);
    if (UNLIKELY(storage == NULL)) {
        return NULL;
    }
    /* A mode that overrides the framework's functions may return any object. */
    int answer = LIKELY(PyObject_TypeCheck(storage, PyDescr_TYPE(exporter->resizable.descriptor)))
                     ? probe_is_false(&exporter->resizable, storage)
                     : -1;
    if (UNLIKELY(answer < 0)) {
        Py_CLEAR(storage);
    }
    *is_fixed = answer == 1;
    return storage;
}

/* Fills all fields of a Memory but the owner; -1 if the core does not support the memory, or it is on a device of
   another type. */
static int
describe(const ExchangeExporter *exporter, PyObject *obj, DLDeviceType type, Memory *out)
{
    DLTensor tensor;
    if (UNLIKELY(exporter->api->dltensor_from_py_object_no_sync(obj, &tensor) != 0)) {
        return -1;
    }
    if (UNLIKELY((DLDeviceType)tensor.device.device_type != type || tensor.ndim > MAX_NDIM || tensor.data == NULL)) {
        return -1;
    }
    for (int i = 0; i < tensor.ndim; i++) {
        if (UNLIKELY(tensor.shape[i] == 0)) {
            return -1; /* no elements: the slow path handles each target's rules for them */
        }
        out->own_shape[i] = tensor.shape[i];
        if (tensor.strides != NULL) {
            out->own_strides[i] = tensor.strides[i];
        }
    }
    out->device = type == kDLCPU ? HOST_DEVICE : tensor.device;
    out->data = (char *)tensor.data + tensor.byte_offset;
    out->ndim = tensor.ndim;
    out->shape = out->own_shape;
    out->strides = tensor.strides == NULL ? NULL : out->own_strides;
    out->dtype = tensor.dtype;
    out->readonly = false;
    return 0;
}

/* Whether the elements lie in the memory of an owner, which its framework can cut under an object
   (`untyped_storage().resize_`), and which another thread can replace after the owner was read (`set_`). */
static bool
lies_in(const ExchangeExporter *exporter, PyObject *storage, const Memory *memory)
{
    const char *impl = *(char *const *)((const char *)storage + exporter->storage_offset);
    if (UNLIKELY(impl == NULL)) {
        return false;
    }
    uintptr_t start = *(const uintptr_t *)(impl + exporter->data_offset), data = (uintptr_t)memory->data;
    int64_t size = *(const int64_t *)(impl + exporter->size_offset), end = 1, step = 1, reach;
    for (int i = memory->ndim; i-- > 0;) {
        int64_t stride = memory->strides != NULL ? memory->strides[i] : step;
        if (UNLIKELY(stride < 0 || __builtin_mul_overflow(memory->shape[i] - 1, stride, &reach) ||
                     __builtin_add_overflow(end, reach, &end))) {
            return false;
        }
        step = memory->strides != NULL ? 0 : end;
    }
    return LIKELY(!__builtin_mul_overflow(end, (int64_t)(memory->dtype.bits / 8), &end) && data >= start &&
                  end <= size && data - start <= (uint64_t)(size - end));
}

/* Exports an object whose storage can still move its memory: as an ndarray, or after a call of `fix`. */
static int
export_new_storage(const ExchangeExporter *exporter, PyObject *obj, PyObject *before, Memory *out)
{
    PyObject *array = call_one(exporter->as_array, obj);
    if (LIKELY(array != NULL)) {
        int status = PyArray_CheckExact(array) ? export_ndarray(array, out) : -1;
        Py_DECREF(array); /* `out` holds it */
        if (status == 0 && UNLIKELY(!lies_in(exporter, before, out))) {
            memory_release(out);
            return -1;
        }
        out->owner_is_result = status == 0;
        return status;
    }
    if (!PyErr_ExceptionMatches(PyExc_TypeError) || !clear_error()) {
        return -1;
    }
    PyObject *done = call_one(exporter->fix, obj);
    if (done == NULL) {
        return -1;
    }
    Py_DECREF(done);
    /* `fix`, or another thread during it, may have changed the object or its storage. */
    bool is_fixed;
    PyObject *storage = is_plain(exporter, obj, 0) ? take_storage(exporter, obj, &is_fixed) : NULL;
    out->owner = storage;
    if (storage == NULL || !is_fixed || describe(exporter, obj, kDLCPU, out) < 0 || !lies_in(exporter, storage, out)) {
        Py_CLEAR(out->owner);
        return -1;
    }
    return 0;
}

/* Describes memory on a CUDA device. If the consumer uses the framework's current stream, it need not wait; for another
   stream, `on_stream` exports the object. The owner may still resize its memory, as with the framework's exporter. */
static int
export_on_device(const ExchangeExporter *exporter, PyObject *obj, Memory *out)
{
    bool is_fixed;
    PyObject *storage = out->consumer == NULL ? NULL : take_storage(exporter, obj, &is_fixed);
    int64_t current = -1;
    if (storage != NULL && describe(exporter, obj, kDLCUDA, out) == 0 && lies_in(exporter, storage, out) &&
        get_consumer_stream(out, out->device.device_id) == 0) {
        current = exchange_api_stream(exporter->api, out->device.device_id);
    }
    if (LIKELY(current >= 0 && current == out->stream)) {
        out->owner = storage;
        return 0;
    }
    Py_XDECREF(storage);
    if (current < 0 || exporter->on_stream == Py_None) {
        return -1;
    }
    PyObject *capsule = PyObject_CallFunction(exporter->on_stream, "OL", obj, (long long)out->stream);
    return memory_from_capsule(capsule, out->device, out);
}

/* Describes the memory of an object that passes the guards. */
static int
run_exchange(Exporter *self, PyObject *obj, Memory *out)
{
    const ExchangeExporter *exporter = (const ExchangeExporter *)self;
    memory_init(out);
    if (UNLIKELY(!is_plain(exporter, obj, 0))) {
        return exporter->keys[1] != 0 && is_plain(exporter, obj, 1) ? export_on_device(exporter, obj, out) : -1;
    }
    bool is_fixed;
    PyObject *storage = take_storage(exporter, obj, &is_fixed);
    if (UNLIKELY(storage == NULL || !is_fixed)) {
        int status = storage == NULL ? -1 : export_new_storage(exporter, obj, storage, out);
        Py_XDECREF(storage);
        return status;
    }
    out->owner = storage;
    if (UNLIKELY(describe(exporter, obj, kDLCPU, out) < 0 || !lies_in(exporter, storage, out))) {
        Py_CLEAR(out->owner);
        return -1;
    }
    return 0;
}

#define MAX_OLDER_TABLES 16 /* a chain that contains itself must end */

const DLPackExchangeAPI *
exchange_api_of(PyObject *capsule, size_t function)
{
    const DLPackExchangeAPIHeader *header = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    if (header == NULL) {
        return NULL;
    }
    for (int i = 0; header != NULL && header->version.major != 1 && i < MAX_OLDER_TABLES; i++) {
        header = header->prev_api;
    }
    void *address = NULL;
    if (header != NULL && header->version.major == 1) {
        memcpy(&address, (const char *)header + function, sizeof(address));
    }
    if (address == NULL) {
        PyErr_SetString(PyExc_ValueError, "the exchange API has no table of major version 1 with the function");
        return NULL;
    }
    return (const DLPackExchangeAPI *)header;
}

int64_t
exchange_api_stream(const DLPackExchangeAPI *api, int32_t device)
{
    void *handle = NULL;
    if (api->current_work_stream == NULL || api->current_work_stream(kDLCUDA, device, &handle) != 0) {
        return -1;
    }
    return handle == NULL ? 1 : (int64_t)(intptr_t)handle; /* DLPack's number of the legacy default stream is 1 */
}

/* Frees an exporter. */
static void
exchange_exporter_dealloc(PyObject *self)
{
    ExchangeExporter *exporter = (ExchangeExporter *)self;
    Py_XDECREF(exporter->capsule);
    Py_XDECREF(exporter->requires_grad.descriptor);
    Py_XDECREF(exporter->storage.descriptor);
    Py_XDECREF(exporter->resizable.descriptor);
    Py_XDECREF(exporter->levels);
    Py_XDECREF(exporter->level_name);
    Py_XDECREF(exporter->as_array);
    Py_XDECREF(exporter->fix);
    Py_XDECREF(exporter->on_stream);
    PyObject_Free(self);
}

/* Parses (capsule, *, offsets, keys, descriptors, as_array, fix, on_stream, offsets of the storage). */
static PyObject *
exchange_exporter_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"", "impl_offset", "key_offset", "meta_offset", "keys",
                            "requires_grad", "storage", "resizable", "as_array", "fix", "on_stream",
                            "levels", "level_name", "storage_offset", "data_offset", "size_offset", NULL};
    PyObject *capsule, *requires_grad, *storage, *resizable, *as_array, *fix, *on_stream, *levels, *level_name;
    unsigned long long host_key, device_key;
    Py_ssize_t impl, key, meta, of_storage, data, size;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "Onnn(KK)OOOOOOO!Unnn:ExchangeExporter", names, &capsule, &impl,
                                     &key, &meta, &host_key, &device_key, &requires_grad, &storage, &resizable,
                                     &as_array, &fix, &on_stream, &PyDict_Type, &levels, &level_name, &of_storage,
                                     &data, &size)) {
        return NULL;
    }
    const DLPackExchangeAPI *api =
        exchange_api_of(capsule, offsetof(DLPackExchangeAPI, dltensor_from_py_object_no_sync));
    if (api == NULL) {
        return NULL;
    }
    ExchangeExporter *self = PyObject_New(ExchangeExporter, type);
    if (self == NULL) {
        return NULL;
    }
    memset((char *)self + sizeof(PyObject), 0, sizeof(ExchangeExporter) - sizeof(PyObject));
    self->base.run = run_exchange;
    self->capsule = Py_NewRef(capsule);
    self->api = api;
    self->impl_offset = impl;
    self->key_offset = key;
    self->meta_offset = meta;
    self->levels = Py_NewRef(levels);
    self->level_name = Py_NewRef(level_name);
    self->storage_offset = of_storage;
    self->data_offset = data;
    self->size_offset = size;
    self->as_array = Py_NewRef(as_array);
    self->fix = Py_NewRef(fix);
    self->on_stream = Py_NewRef(on_stream);
    self->keys[0] = host_key;
    self->keys[1] = device_key;
    if (probe_init(&self->requires_grad, requires_grad) < 0 ||
        probe_init(&self->storage, storage) < 0 || probe_init(&self->resizable, resizable) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static PyTypeObject ExchangeExporterType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "zerocopy._native._core.ExchangeExporter",
    .tp_doc = "ExchangeExporter(api, *, ...): objects of a type with __dlpack_c_exchange_api__ and guards.",
    .tp_base = &ExporterType,
    .tp_basicsize = sizeof(ExchangeExporter),
    .tp_dealloc = exchange_exporter_dealloc,
    .tp_new = exchange_exporter_new,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

/* ---- ExchangeImporter ---- */

typedef struct {
    Importer base;
    PyObject *capsule;
    const DLPackExchangeAPI *api;
    DTypeSet dtypes;
} ExchangeImporter;

/* Makes an object of the framework over memory. */
static PyObject *
import_exchange(Importer *self, Memory *memory)
{
    const ExchangeImporter *importer = (const ExchangeImporter *)self;
    DLManagedTensorVersioned *versioned;
    /* A source's struct without strides, or with others, is replaced by a ManagedTensor. */
    if (memory->versioned != NULL && memory->strides != NULL &&
        memory->strides == memory->versioned->dl_tensor.strides) {
        versioned = memory->versioned;
        memory->versioned = NULL;
    }
    else {
        ManagedTensor *tensor = managed_tensor_new(memory);
        if (tensor == NULL) {
            return NULL;
        }
        versioned = &tensor->versioned;
    }
    void *result = NULL;
    /* The API does not define who owns the tensor after a failure: a leak is safer than a second release.
       check_exchange has refused all tensors that the framework refuses. */
    return importer->api->managed_tensor_to_py_object_no_sync(versioned, &result) == 0 ? result : NULL;
}

/* Returns the framework's current stream, on which it uses what it imports. */
static int64_t
exchange_stream(const Importer *self, int32_t device)
{
    return exchange_api_stream(((const ExchangeImporter *)self)->api, device);
}

/* Refuses data types that the framework lacks; copies misaligned and reversed memory. */
static int
check_exchange(const Importer *self, const Memory *memory)
{
    if (UNLIKELY(!dtype_set_has(&((const ExchangeImporter *)self)->dtypes, memory->dtype))) {
        return IMPORT_REFUSES;
    }
    bool is_aligned = (uintptr_t)memory->data % (memory->dtype.bits / 8) == 0;
    /* Negative strides end the process: pytorch/pytorch#188023. */
    return is_aligned && memory_is_ascending(memory) ? IMPORT_ALIASES : IMPORT_COPIES;
}

/* Frees an importer. */
static void
exchange_importer_dealloc(PyObject *self)
{
    Py_XDECREF(((ExchangeImporter *)self)->capsule);
    PyObject_Free(self);
}

/* Parses (capsule, dtypes). */
static PyObject *
exchange_importer_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *capsule, *pairs;
    DTypeSet dtypes;
    if (refuse_keywords(keywords) || !PyArg_ParseTuple(args, "OO:ExchangeImporter", &capsule, &pairs) ||
        dtype_set_parse(pairs, &dtypes) < 0) {
        return NULL;
    }
    const DLPackExchangeAPI *api =
        exchange_api_of(capsule, offsetof(DLPackExchangeAPI, managed_tensor_to_py_object_no_sync));
    ExchangeImporter *self = api == NULL ? NULL : PyObject_New(ExchangeImporter, type);
    if (self != NULL) {
        self->base.check = check_exchange;
        self->base.run = import_exchange;
        self->base.stream = exchange_stream;
        self->capsule = Py_NewRef(capsule);
        self->api = api;
        self->dtypes = dtypes;
    }
    return (PyObject *)self;
}

static PyTypeObject ExchangeImporterType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "zerocopy._native._core.ExchangeImporter",
    .tp_doc = "ExchangeImporter(api, dtypes): objects of a type with __dlpack_c_exchange_api__.",
    .tp_base = &ImporterType,
    .tp_basicsize = sizeof(ExchangeImporter),
    .tp_dealloc = exchange_importer_dealloc,
    .tp_new = exchange_importer_new,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

int
add_exchange(PyObject *module)
{
    return PyModule_AddType(module, &ExchangeExporterType) < 0 ? -1
                                                               : PyModule_AddType(module, &ExchangeImporterType);
}
