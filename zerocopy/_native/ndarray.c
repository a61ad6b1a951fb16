/* ndarrays: the description of their memory, and their creation over memory. */
#include "core.h"

int
export_ndarray(PyObject *obj, Memory *out)
{
    PyArrayObject *array = (PyArrayObject *)obj;
    int flags = PyArray_FLAGS(array), ndim = PyArray_NDIM(array);
    const npy_intp *shape = PyArray_DIMS(array);
    if (UNLIKELY(!(flags & NPY_ARRAY_ALIGNED) || !dtype_from_numpy(PyArray_DESCR(array), &out->dtype))) {
        return -1;
    }
    for (int i = 0; i < ndim; i++) {
        if (UNLIKELY(shape[i] == 0)) {
            return -1; /* no elements: the slow path handles each target's rules for them */
        }
        out->own_shape[i] = shape[i];
    }
    out->strides = NULL;
    if (!(flags & NPY_ARRAY_C_CONTIGUOUS)) {
        int64_t itemsize = out->dtype.bits / 8;
        const npy_intp *strides = PyArray_STRIDES(array);
        for (int i = 0; i < ndim; i++) {
            if (shape[i] > 1 && (strides[i] < 0 || strides[i] % itemsize)) {
                return -1;
            }
            /* NumPy leaves strides of dimensions of size 1 undefined; torch refuses negative ones. */
            out->own_strides[i] = shape[i] > 1 ? strides[i] / itemsize : 1;
        }
        out->strides = out->own_strides;
    }
    out->data = PyArray_DATA(array);
    out->ndim = ndim;
    out->shape = out->own_shape;
    out->readonly = !(flags & NPY_ARRAY_WRITEABLE);
    memory_init(out);
    out->owner = Py_NewRef(obj);
    return 0;
}

PyObject *
import_ndarray(Memory *memory)
{
    if (memory->owner_is_result && memory->readonly == !PyArray_ISWRITEABLE((PyArrayObject *)memory->owner)) {
        PyObject *array = memory->owner;
        memory->owner = NULL;
        return array;
    }
    PyArray_Descr *descr = dtype_to_numpy(memory->dtype);
    int max_ndim = PyArray_RUNTIME_VERSION >= NPY_2_0_API_VERSION ? NPY_MAXDIMS : 32;
    if (UNLIKELY(descr == NULL || memory->ndim > max_ndim)) {
        memory_release(memory);
        return NULL;
    }
    npy_intp strides[MAX_NDIM], *given = NULL;
    if (memory->strides != NULL) {
        int64_t itemsize = memory->dtype.bits / 8;
        for (int i = 0; i < memory->ndim; i++) {
            /* A stride over one element may be any number. */
            strides[i] = memory->shape[i] > 1 ? memory->strides[i] * itemsize : itemsize;
        }
        given = strides;
    }
    void *data = memory->data;
    int flags = memory->readonly ? 0 : NPY_ARRAY_WRITEABLE;
    Py_INCREF(descr); /* the next call steals it */
    PyObject *array = PyArray_NewFromDescr(&PyArray_Type, descr, memory->ndim, (npy_intp *)memory->shape, given,
                                           data, flags, NULL);
    PyObject *owner = memory_take_owner(memory);
    if (UNLIKELY(array == NULL || owner == NULL)) {
        Py_XDECREF(array);
        Py_XDECREF(owner);
        return NULL;
    }
    if (UNLIKELY(PyArray_SetBaseObject((PyArrayObject *)array, owner) < 0)) { /* steals the owner */
        Py_DECREF(array);
        return NULL;
    }
    return array;
}
