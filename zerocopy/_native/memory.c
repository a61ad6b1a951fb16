/* Memory: checks of its layout, DLPack capsules, and zerocopy's own managed tensors. */
#include "core.h"

#include <stdlib.h>

void
memory_release(Memory *memory)
{
    /* A deleter may call Python code, which must not run while an exception is set. */
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *owner = memory->owner;
    DLManagedTensorVersioned *versioned = memory->versioned;
    DLManagedTensor *legacy = memory->legacy;
    PyObject *capsule = memory->capsule, *producer = memory->producer;
    memory_init(memory); /* before a deleter runs */
    Py_XDECREF(owner);
    if (capsule != NULL && PyCapsule_SetName(capsule, versioned != NULL ? "dltensor_versioned" : "dltensor") == 0) {
        keep_spare_capsule(producer, capsule);
        versioned = NULL;
        legacy = NULL;
    }
    if (versioned != NULL && versioned->deleter != NULL) {
        versioned->deleter(versioned);
    }
    if (legacy != NULL && legacy->deleter != NULL) {
        legacy->deleter(legacy);
    }
    PyErr_Restore(type, value, traceback);
}

/* ---- layout ---- */

bool
memory_is_row_major(const Memory *memory)
{
    if (memory->strides == NULL) {
        return true;
    }
    int64_t step = 1;
    for (int i = memory->ndim; i-- > 0;) {
        if (memory->shape[i] != 1 && memory->strides[i] != step) {
            return false;
        }
        step *= memory->shape[i];
    }
    return true;
}

bool
memory_is_ascending(const Memory *memory)
{
    for (int i = 0; memory->strides != NULL && i < memory->ndim; i++) {
        if (memory->strides[i] < 0) {
            return false;
        }
    }
    return true;
}

bool
memory_is_compact(const Memory *memory)
{
    if (memory_is_row_major(memory)) {
        return true;
    }
    /* Find the dimension of each step in turn; few arrays have more than four dimensions. */
    int64_t step = 1;
    uint64_t seen = 0;
    for (int i = 0; i < memory->ndim; i++) {
        if (memory->shape[i] == 1) {
            seen |= (uint64_t)1 << i;
        }
    }
    for (int left = memory->ndim; left-- > 0;) {
        for (int i = 0; i < memory->ndim; i++) {
            if (!(seen >> i & 1) && memory->strides[i] == step) {
                seen |= (uint64_t)1 << i;
                step *= memory->shape[i];
                break;
            }
        }
    }
    return seen == (memory->ndim == 64 ? UINT64_MAX : ((uint64_t)1 << memory->ndim) - 1);
}

/* Whether the elements of a DLTensor with `size` elements have addresses that a process can have. */
static bool
has_valid_addresses(const DLTensor *tensor, int64_t size)
{
    int64_t limit = INT64_MAX / 16; /* no element is larger than 16 bytes */
    int64_t before = 0, after = tensor->strides == NULL ? size - 1 : 0; /* elements around the first one */
    for (int i = 0; tensor->strides != NULL && i < tensor->ndim; i++) {
        int64_t stride = tensor->strides[i], steps = tensor->shape[i] - 1;
        if (steps == 0) {
            continue;
        }
        int64_t *reach = stride < 0 ? &before : &after;
        if (stride == INT64_MIN || (stride < 0 ? -stride : stride) > (limit - *reach) / steps) {
            return false;
        }
        *reach += (stride < 0 ? -stride : stride) * steps;
    }
    uint64_t itemsize = tensor->dtype.bits / 8, data = (uintptr_t)tensor->data;
    if (data > LAST_ADDRESS || tensor->byte_offset > LAST_ADDRESS - data) {
        return false;
    }
    uint64_t first = data + tensor->byte_offset;
    return (uint64_t)before * itemsize < first && ((uint64_t)after + 1) * itemsize - 1 <= LAST_ADDRESS - first;
}

/* Whether a DLTensor describes a block of memory on this device that the core can pass on: at least one element of
   whole bytes, at most 64 dimensions, and valid addresses. In Python: exporter_errors.check_layout. */
static bool
is_valid(const DLTensor *tensor, DLDevice device)
{
    bool is_there = tensor->device.device_type == device.device_type &&
                    (device.device_type == kDLCPU || tensor->device.device_id == device.device_id);
    if (!is_there || tensor->data == NULL || tensor->dtype.lanes != 1 ||
        log2_bytes(tensor->dtype.bits) < 0 || tensor->ndim < 0 || tensor->ndim > MAX_NDIM ||
        (tensor->ndim > 0 && tensor->shape == NULL)) {
        return false;
    }
    int64_t limit = INT64_MAX / 16, size = 1;
    for (int i = 0; i < tensor->ndim; i++) {
        if (tensor->shape[i] < 1 || tensor->shape[i] > limit / size) {
            return false;
        }
        size *= tensor->shape[i];
    }
    return has_valid_addresses(tensor, size);
}

/* Copies the fields of the struct's tensor. */
static int
fill(const DLTensor *tensor, DLDevice device, Memory *out)
{
    out->device = device;
    out->data = (char *)tensor->data + tensor->byte_offset;
    out->ndim = tensor->ndim;
    out->shape = tensor->shape;
    out->strides = tensor->strides;
    out->dtype = tensor->dtype;
    return 0;
}

int
memory_from_versioned(DLManagedTensorVersioned *versioned, DLDevice device, Memory *out)
{
    memory_init(out);
    out->versioned = versioned;
    /* Other major versions may have another layout. */
    if (versioned->version.major != 1 || !is_valid(&versioned->dl_tensor, device)) {
        memory_release(out);
        return -1;
    }
    out->readonly = (versioned->flags & DLPACK_FLAG_READ_ONLY) != 0;
    return fill(&versioned->dl_tensor, device, out);
}

int
memory_from_capsule(PyObject *capsule, DLDevice device, Memory *out)
{
    if (capsule == NULL) {
        return -1;
    }
    const char *used_name = NULL;
    DLTensor *tensor = NULL;
    memory_init(out);
    if (PyCapsule_IsValid(capsule, "dltensor")) {
        out->legacy = PyCapsule_GetPointer(capsule, "dltensor");
        tensor = &out->legacy->dl_tensor;
        out->readonly = false;
        used_name = "used_dltensor";
    }
    else if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        out->versioned = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        if (out->versioned->version.major == 1) { /* other versions may have another layout */
            tensor = &out->versioned->dl_tensor;
            out->readonly = (out->versioned->flags & DLPACK_FLAG_READ_ONLY) != 0;
        }
        used_name = "used_dltensor_versioned";
    }
    /* Checked before the capsule is consumed, so that its destructor frees refused memory. */
    if (tensor == NULL || !is_valid(tensor, device) || PyCapsule_SetName(capsule, used_name) < 0) {
        memory_init(out);
        Py_DECREF(capsule);
        return -1;
    }
    Py_DECREF(capsule);
    return fill(tensor, device, out);
}

/* ---- managed tensors ---- */

/* Whether this thread may take the GIL: not while the interpreter ends, unless the thread holds it. */
static bool
can_take_gil(void)
{
    if (!Py_IsInitialized()) {
        return false;
    }
#if PY_VERSION_HEX >= 0x030D0000
    return !Py_IsFinalizing() || PyGILState_Check();
#else
    return !_Py_IsFinalizing() || PyGILState_Check();
#endif
}

void
managed_tensor_free(ManagedTensor *tensor)
{
    /* A consumer may call a deleter on any thread. After the end of the interpreter, the owner and the source's
       structs are not freed, because most deleters call Python. */
    if (can_take_gil()) {
        if (tensor->owner != NULL) {
            PyGILState_STATE state = PyGILState_Ensure();
            Py_DECREF(tensor->owner);
            PyGILState_Release(state);
        }
        if (tensor->source_versioned != NULL && tensor->source_versioned->deleter != NULL) {
            tensor->source_versioned->deleter(tensor->source_versioned);
        }
        if (tensor->source_legacy != NULL && tensor->source_legacy->deleter != NULL) {
            tensor->source_legacy->deleter(tensor->source_legacy);
        }
    }
    free(tensor);
}

/* The deleter of the versioned struct. */
static void
delete_versioned(DLManagedTensorVersioned *versioned)
{
    managed_tensor_free(versioned->manager_ctx);
}

/* The deleter of the legacy struct. */
static void
delete_legacy(DLManagedTensor *legacy)
{
    managed_tensor_free(legacy->manager_ctx);
}

ManagedTensor *
managed_tensor_new(Memory *memory)
{
    size_t ndim = (size_t)memory->ndim;
    ManagedTensor *tensor = malloc(sizeof(ManagedTensor) + sizeof(int64_t) * 2 * (ndim > 0 ? ndim : 1));
    if (tensor == NULL) {
        memory_release(memory);
        PyErr_NoMemory();
        return NULL;
    }
    int64_t *shape = tensor->numbers, *strides = tensor->numbers + ndim, step = 1;
    for (int i = memory->ndim; i-- > 0;) {
        shape[i] = memory->shape[i];
        if (memory->strides != NULL) {
            strides[i] = memory->strides[i];
        }
        else { /* with strides of 0, the product of the shape could overflow */
            strides[i] = step;
            step *= shape[i];
        }
    }
    DLTensor described = {
        .data = memory->data,
        .device = memory->device,
        .ndim = memory->ndim,
        .dtype = memory->dtype,
        .shape = shape,
        .strides = strides,
        .byte_offset = 0,
    };
    tensor->versioned = (DLManagedTensorVersioned){
        .version = {1, 0},
        .manager_ctx = tensor,
        .deleter = delete_versioned,
        .flags = memory->readonly ? DLPACK_FLAG_READ_ONLY : 0,
        .dl_tensor = described,
    };
    tensor->legacy = (DLManagedTensor){described, tensor, delete_legacy};
    tensor->owner = memory->owner;
    tensor->source_versioned = memory->versioned;
    tensor->source_legacy = memory->legacy;
    memory_init(memory);
    return tensor;
}

/* Frees the tensor of a capsule that no importer has consumed. */
static void
destroy_capsule(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor")) {
        DLManagedTensor *legacy = PyCapsule_GetPointer(capsule, "dltensor");
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback); /* as in memory_release */
        legacy->deleter(legacy);
        PyErr_Restore(type, value, traceback);
    }
}

PyObject *
managed_tensor_capsule(Memory *memory)
{
    ManagedTensor *tensor = managed_tensor_new(memory);
    if (tensor == NULL) {
        return NULL;
    }
    PyObject *capsule = PyCapsule_New(&tensor->legacy, "dltensor", destroy_capsule);
    if (capsule == NULL) {
        managed_tensor_free(tensor);
    }
    return capsule;
}

/* ---- owners: Python objects that release a DLPack struct ---- */

typedef struct {
    PyObject_HEAD
    Memory memory;
} OwnerObject;

/* Releases the DLPack struct. */
static void
owner_dealloc(PyObject *self)
{
    memory_release(&((OwnerObject *)self)->memory);
    PyObject_Free(self);
}

static PyTypeObject OwnerType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "zerocopy._native._core.Owner",
    .tp_doc = "Owns the memory of a DLPack exporter; the base of an ndarray over it.",
    .tp_basicsize = offsetof(OwnerObject, memory) + offsetof(Memory, own_strides),
    .tp_dealloc = owner_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
};

PyObject *
memory_take_owner(Memory *memory)
{
    PyObject *owner = memory->owner;
    if (owner == NULL) {
        OwnerObject *object = PyObject_New(OwnerObject, &OwnerType);
        if (object == NULL) {
            memory_release(memory);
            return NULL;
        }
        memory_init(&object->memory);
        object->memory.versioned = memory->versioned;
        object->memory.legacy = memory->legacy;
        owner = (PyObject *)object;
    }
    memory_init(memory);
    return owner;
}

int
add_owner(PyObject *module)
{
    return PyModule_AddType(module, &OwnerType);
}
