/* A consumer of DLPack's C exchange API: an extension module for test_exchange_api.py. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "dlpack.h"

/* Returns the table of an object's type, or NULL with an exception. */
static const DLPackExchangeAPI *
api_of(PyObject *type)
{
    PyObject *capsule = PyObject_GetAttrString(type, "__dlpack_c_exchange_api__");
    const DLPackExchangeAPI *api = capsule == NULL ? NULL : PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    Py_XDECREF(capsule); /* the table is static */
    return api;
}

static void
set_error(void *context, const char *kind, const char *message)
{
    PyGILState_STATE state = PyGILState_Ensure();
    PyErr_SetString(strcmp(kind, "MemoryError") == 0 ? PyExc_MemoryError : PyExc_BufferError, message);
    PyGILState_Release(state);
}

/* Returns the sum of the float64 elements that have `offset` in the dimensions from `dimension` on. */
static double
sum(const DLTensor *tensor, int dimension, int64_t offset)
{
    if (dimension == tensor->ndim) {
        return ((const double *)((const char *)tensor->data + tensor->byte_offset))[offset];
    }
    double total = 0;
    for (int64_t i = 0; i < tensor->shape[dimension]; i++) {
        total += sum(tensor, dimension + 1, offset + i * tensor->strides[dimension]);
    }
    return total;
}

/* total(obj): the sum of an object's elements. */
static PyObject *
total(PyObject *module, PyObject *obj)
{
    const DLPackExchangeAPI *api = api_of((PyObject *)Py_TYPE(obj));
    DLManagedTensorVersioned *tensor;
    if (api == NULL || api->managed_tensor_from_py_object_no_sync(obj, &tensor) != 0) {
        return NULL;
    }
    double result = sum(&tensor->dl_tensor, 0, 0);
    tensor->deleter(tensor);
    return PyFloat_FromDouble(result);
}

/* passed(obj): what the type makes of the tensor of an object. */
static PyObject *
passed(PyObject *module, PyObject *obj)
{
    const DLPackExchangeAPI *api = api_of((PyObject *)Py_TYPE(obj));
    DLManagedTensorVersioned *tensor;
    void *result;
    if (api == NULL || api->managed_tensor_from_py_object_no_sync(obj, &tensor) != 0) {
        return NULL;
    }
    return api->managed_tensor_to_py_object_no_sync(tensor, &result) == 0 ? result : NULL;
}

/* allocated(type, count): a new tensor of `count` rows of 3 float32, without the GIL. */
static PyObject *
allocated(PyObject *module, PyObject *args)
{
    PyObject *type;
    long long count;
    int device;
    if (!PyArg_ParseTuple(args, "OLi", &type, &count, &device)) {
        return NULL;
    }
    const DLPackExchangeAPI *api = api_of(type);
    if (api == NULL) {
        return NULL;
    }
    int64_t shape[] = {count, 3};
    DLTensor prototype = {.device = {device, 0}, .ndim = 2, .dtype = {kDLFloat, 32, 1}, .shape = shape};
    DLManagedTensorVersioned *tensor;
    void *result;
    int status;
    Py_BEGIN_ALLOW_THREADS
    status = api->managed_tensor_allocator(&prototype, &tensor, NULL, set_error);
    Py_END_ALLOW_THREADS
    if (status != 0) {
        return NULL;
    }
    return api->managed_tensor_to_py_object_no_sync(tensor, &result) == 0 ? result : NULL;
}

/* table(type): the version of the table, and whether it has each function. */
static PyObject *
table(PyObject *module, PyObject *type)
{
    const DLPackExchangeAPI *api = api_of(type);
    void *stream = &stream;
    if (api == NULL || api->current_work_stream(kDLCPU, 0, &stream) != 0) {
        return NULL;
    }
    return Py_BuildValue("(iiii)", (int)api->header.version.major, (int)api->header.version.minor,
                         api->dltensor_from_py_object_no_sync != NULL, stream == NULL);
}

static PyMethodDef methods[] = {
    {"total", total, METH_O, NULL},
    {"passed", passed, METH_O, NULL},
    {"allocated", allocated, METH_VARARGS, NULL},
    {"table", table, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "exchange_consumer", NULL, -1, methods};

PyMODINIT_FUNC
PyInit_exchange_consumer(void)
{
    return PyModule_Create(&definition);
}
