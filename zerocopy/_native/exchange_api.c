/* DLPack's C exchange API (DLPack 1.3) of zerocopy's own types: StridedView, and objects that return one.

   Consumers in C import them without a call of `__dlpack__`. `dltensor_from_py_object_no_sync` is NULL, as DLPack
   allows: a view keeps its shape in Python objects. */
#include "core.h"

#include <stdlib.h>

#define ALIGNMENT 64
#define SUPPORTED_MINOR 3

static PyTypeObject *view_type = NULL; /* StridedView */
static PyObject *read_capsule = NULL;  /* makes one */
static PyObject *name_view, *name_ptr, *name_shape, *name_strides, *name_dtype, *name_device, *name_readonly;
static PyObject *name_code, *name_bits, *name_lanes, *name_itemsize;

/* ---- from a view ---- */

/* Reads an attribute that is an integer; -1 with an exception. */
static int
read_integer(PyObject *obj, PyObject *name, long long low, long long high, long long *out)
{
    PyObject *value = PyObject_GetAttr(obj, name);
    *out = value == NULL ? -1 : PyLong_AsLongLong(value);
    Py_XDECREF(value);
    if (PyErr_Occurred()) {
        return -1;
    }
    if (*out < low || *out > high) {
        PyErr_Format(PyExc_BufferError, "%U is %lld, which DLPack cannot describe", name, *out);
        return -1;
    }
    return 0;
}

/* Reads the data type; -1 with an exception, also for elements that are not whole bytes. */
static int
read_dtype(PyObject *view, DLDataType *out, long long *itemsize)
{
    PyObject *dtype = PyObject_GetAttr(view, name_dtype);
    long long code, bits, lanes;
    int status = dtype == NULL || read_integer(dtype, name_code, 0, UINT8_MAX, &code) < 0 ||
                         read_integer(dtype, name_bits, 1, UINT8_MAX, &bits) < 0 ||
                         read_integer(dtype, name_lanes, 1, UINT16_MAX, &lanes) < 0 ||
                         read_integer(dtype, name_itemsize, 1, INT32_MAX, itemsize) < 0
                     ? -1
                     : 0;
    Py_XDECREF(dtype);
    if (status < 0) {
        return -1;
    }
    if (bits * lanes != *itemsize * 8) {
        PyErr_SetString(PyExc_BufferError, "elements of less than a byte have another layout in DLPack");
        return -1;
    }
    *out = (DLDataType){(uint8_t)code, (uint8_t)bits, (uint16_t)lanes};
    return 0;
}

/* Reads the numbers of a tuple; returns how many, or -1 with an exception. */
static int
read_numbers(PyObject *view, PyObject *name, int64_t *out)
{
    PyObject *tuple = PyObject_GetAttr(view, name);
    Py_ssize_t count = tuple == NULL ? -1 : PyTuple_Check(tuple) ? PyTuple_GET_SIZE(tuple) : MAX_NDIM + 1;
    if (count > MAX_NDIM) {
        PyErr_Format(PyExc_BufferError, "%U is not a tuple of at most %d integers", name, MAX_NDIM);
    }
    for (Py_ssize_t i = 0; i < count && !PyErr_Occurred(); i++) {
        out[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i));
    }
    Py_XDECREF(tuple);
    return PyErr_Occurred() ? -1 : (int)count;
}

/* Whether the memory is on the host; -1 with an exception. */
static int
is_on_host(PyObject *view)
{
    PyObject *device = PyObject_GetAttr(view, name_device);
    PyObject *number = device == NULL ? NULL : PySequence_GetItem(device, 0);
    long kind = number == NULL ? -1 : PyLong_AsLong(number);
    Py_XDECREF(number);
    Py_XDECREF(device);
    return PyErr_Occurred() ? -1 : kind == kDLCPU || kind == kDLCUDAHost || kind == kDLROCMHost;
}

/* Fills all fields of a Memory but the owner; -1 with an exception. */
static int
describe_view(PyObject *view, Memory *out)
{
    long long itemsize;
    int64_t size = 1;
    memory_init(out);
    PyObject *ptr = PyObject_GetAttr(view, name_ptr);
    PyObject *readonly = ptr == NULL ? NULL : PyObject_GetAttr(view, name_readonly);
    unsigned long long address = readonly == NULL ? 0 : PyLong_AsUnsignedLongLong(ptr); /* an error if negative */
    out->data = (void *)(uintptr_t)address;
    out->readonly = readonly != Py_False;
    Py_XDECREF(ptr);
    Py_XDECREF(readonly);
    int on_host = PyErr_Occurred() ? -1 : is_on_host(view);
    if (on_host < 0 || read_dtype(view, &out->dtype, &itemsize) < 0 ||
        (out->ndim = read_numbers(view, name_shape, out->own_shape)) < 0) {
        return -1;
    }
    int strides = read_numbers(view, name_strides, out->own_strides);
    const char *problem = strides < 0             ? ""
                          : strides != out->ndim ? "shape and strides differ in length"
                          : !on_host             ? "the memory is not on the host: request it with a stream"
                                                 : NULL;
    for (int i = 0; problem == NULL && i < out->ndim; i++) {
        int64_t count = out->own_shape[i], stride = out->own_strides[i];
        if (count < 0 || (count > 0 && size > INT64_MAX / 16 / count)) {
            problem = "the shape has a negative number, or too many elements";
        }
        else if (count > 1 && stride % itemsize != 0) {
            problem = "a stride is not a multiple of the item size: copy it";
        }
        else if (count > 1 && stride < 0) { /* consumers abort: pytorch/pytorch#188023 */
            problem = "a stride is negative: copy it";
        }
        else {
            size *= count;
            out->own_strides[i] = count > 1 ? stride / itemsize : 1;
        }
    }
    if (problem == NULL && size > 0 && (address == 0 || address > LAST_ADDRESS)) {
        problem = "no memory has this address";
    }
    if (problem != NULL) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_BufferError, problem);
        }
        return -1;
    }
    out->shape = out->own_shape;
    out->strides = out->own_strides;
    return 0;
}

/* managed_tensor_from_py_object_no_sync */
static int
from_object(void *py_object, DLManagedTensorVersioned **out)
{
    PyObject *obj = py_object;
    if (view_type == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the interpreter ends");
        return -1;
    }
    PyObject *view = PyObject_TypeCheck(obj, view_type) ? Py_NewRef(obj) : PyObject_CallMethodNoArgs(obj, name_view);
    if (view != NULL && !PyObject_TypeCheck(view, view_type)) {
        PyErr_Format(PyExc_TypeError, "__zerocopy_view__ returned %R", Py_TYPE(view));
        Py_CLEAR(view);
    }
    Memory memory;
    if (view == NULL || describe_view(view, &memory) < 0) {
        Py_XDECREF(view);
        return -1;
    }
    memory.owner = view;
    ManagedTensor *tensor = managed_tensor_new(&memory);
    if (tensor == NULL) {
        return -1;
    }
    *out = &tensor->versioned;
    return 0;
}

/* ---- to a view ---- */

/* Frees the tensor of a capsule that no importer has consumed. */
static void
destroy_capsule(PyObject *capsule)
{
    if (!PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        return;
    }
    DLManagedTensorVersioned *tensor = PyCapsule_GetPointer(capsule, "dltensor_versioned");
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback); /* as in memory_release */
    if (tensor->deleter != NULL) {
        tensor->deleter(tensor);
    }
    PyErr_Restore(type, value, traceback);
}

/* managed_tensor_to_py_object_no_sync: a view, which keeps the tensor in a capsule. */
static int
to_object(DLManagedTensorVersioned *tensor, void **out)
{
    PyObject *capsule = PyCapsule_New(tensor, "dltensor_versioned", destroy_capsule);
    *out = NULL;
    if (capsule == NULL) {
        if (tensor->deleter != NULL) {
            tensor->deleter(tensor);
        }
        return -1;
    }
    PyObject *read = Py_XNewRef(read_capsule); /* read once: it may be cleared meanwhile */
    if (read == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the interpreter ends");
    }
    else {
        *out = PyObject_CallOneArg(read, capsule);
    }
    Py_XDECREF(read);
    Py_DECREF(capsule);
    return *out == NULL ? -1 : 0;
}

/* ---- new memory, without Python: the caller may not hold the GIL ---- */

typedef struct {
    DLManagedTensorVersioned versioned;
    void *data;
    int64_t numbers[]; /* shape, then strides */
} NewTensor;

static void
free_new(DLManagedTensorVersioned *versioned)
{
    NewTensor *tensor = versioned->manager_ctx;
    free(tensor->data);
    free(tensor);
}

/* managed_tensor_allocator: row-major host memory. */
static int
allocate(DLTensor *prototype, DLManagedTensorVersioned **out, void *error_ctx,
         void (*set_error)(void *error_ctx, const char *kind, const char *message))
{
    int64_t size = ((int64_t)prototype->dtype.bits * prototype->dtype.lanes + 7) / 8;
    size_t ndim = (size_t)prototype->ndim;
    bool fits = prototype->device.device_type == kDLCPU && prototype->ndim >= 0 && prototype->ndim <= MAX_NDIM;
    for (size_t i = 0; fits && i < ndim; i++) {
        int64_t count = prototype->shape[i];
        fits = count >= 0 && (count == 0 || size <= (INT64_MAX - ALIGNMENT) / count);
        size *= fits ? count : 0;
    }
    if (!fits) {
        set_error(error_ctx, "BufferError", "zerocopy allocates host memory of at most 64 dimensions");
        return -1;
    }
    NewTensor *tensor = malloc(sizeof(NewTensor) + sizeof(int64_t) * 2 * (ndim > 0 ? ndim : 1));
    void *data = tensor == NULL ? NULL : aligned_alloc(ALIGNMENT, ((size_t)size / ALIGNMENT + 1) * ALIGNMENT);
    if (data == NULL) {
        free(tensor);
        set_error(error_ctx, "MemoryError", "there is not enough memory for the tensor");
        return -1;
    }
    int64_t *shape = tensor->numbers, *strides = shape + ndim, step = 1;
    for (size_t i = ndim; i-- > 0;) {
        shape[i] = prototype->shape[i];
        strides[i] = step;
        step *= shape[i] > 0 ? shape[i] : 1;
    }
    tensor->data = data;
    tensor->versioned = (DLManagedTensorVersioned){
        .version = {1, SUPPORTED_MINOR},
        .manager_ctx = tensor,
        .deleter = free_new,
        .dl_tensor = {.data = data, .device = {kDLCPU, 0}, .ndim = prototype->ndim, .dtype = prototype->dtype,
                      .shape = shape, .strides = strides},
    };
    *out = &tensor->versioned;
    return 0;
}

/* current_work_stream: host memory has none. */
static int
current_stream(int32_t device_type, int32_t device_id, void **out)
{
    *out = NULL;
    return 0;
}

static const DLPackExchangeAPI api = {
    .header = {.version = {1, SUPPORTED_MINOR}, .prev_api = NULL},
    .managed_tensor_allocator = allocate,
    .managed_tensor_from_py_object_no_sync = from_object,
    .managed_tensor_to_py_object_no_sync = to_object,
    .dltensor_from_py_object_no_sync = NULL,
    .current_work_stream = current_stream,
};

/* exchange_api(view_type, read): returns the capsule for __dlpack_c_exchange_api__. */
static PyObject *
exchange_api(PyObject *module, PyObject *args)
{
    PyObject *type, *read;
    if (!PyArg_ParseTuple(args, "O!O:exchange_api", &PyType_Type, &type, &read)) {
        return NULL;
    }
    Py_XSETREF(view_type, (PyTypeObject *)Py_NewRef(type));
    Py_XSETREF(read_capsule, Py_NewRef(read));
    return PyCapsule_New((void *)&api, "dlpack_exchange_api", NULL);
}

static PyMethodDef methods[] = {
    {"exchange_api", exchange_api, METH_VARARGS,
     "exchange_api(view_type, read): return the capsule of DLPack's C exchange API for StridedView, and for types whose "
     "__zerocopy_view__() returns one; read(capsule) describes a DLPack capsule as one."},
    {NULL, NULL, 0, NULL},
};

int
visit_exchange_api(visitproc visit, void *arg)
{
    Py_VISIT(view_type);
    Py_VISIT(read_capsule);
    return 0;
}

void
clear_exchange_api(void)
{
    Py_CLEAR(view_type);
    Py_CLEAR(read_capsule);
}

int
add_exchange_api(PyObject *module)
{
    struct {
        PyObject **field;
        const char *text;
    } names[] = {{&name_view, "__zerocopy_view__"}, {&name_ptr, "ptr"},       {&name_shape, "shape"},
                 {&name_strides, "strides"},        {&name_dtype, "dtype"},   {&name_device, "device"},
                 {&name_readonly, "readonly"},      {&name_code, "code"},     {&name_bits, "bits"},
                 {&name_lanes, "lanes"},            {&name_itemsize, "itemsize"}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        *names[i].field = PyUnicode_InternFromString(names[i].text);
        if (*names[i].field == NULL) {
            return -1;
        }
    }
    return PyModule_AddFunctions(module, methods);
}
