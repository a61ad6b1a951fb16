/* Columns written next to each other into rows. */
#include "rows.h"

void
interleave(char *out, size_t pitch, const Column *columns, size_t count, size_t rows, size_t itemsize)
{
    for (size_t first = 0; first < rows; first += TILE) {
        size_t height = rows - first < TILE ? rows - first : TILE;
        write_tile(out + first * pitch, pitch, columns, count, first, height, itemsize);
    }
}

/* Fills a Column; -1 with an exception unless the object is a 1-dimensional ndarray that fits a column of `out`. */
static int
column_of(PyObject *obj, PyArrayObject *out, Column *column)
{
    PyArrayObject *array = (PyArrayObject *)obj;
    if (!PyArray_Check(obj) || PyArray_NDIM(array) != 1 || PyArray_DIM(array, 0) != PyArray_DIM(out, 0) ||
        PyArray_ITEMSIZE(array) != PyArray_ITEMSIZE(out) || PyDataType_REFCHK(PyArray_DESCR(array))) {
        PyErr_SetString(PyExc_ValueError, "interleave: each column must be a 1-dimensional ndarray with one item for "
                                          "each row of out, and items of the same size");
        return -1;
    }
    column->data = PyArray_DATA(array);
    column->stride = PyArray_STRIDE(array, 0);
    return 0;
}

/* interleave(out, columns): writes the items of each column to a column of out. */
static PyObject *
interleave_arrays(PyObject *module, PyObject *args)
{
    PyArrayObject *out;
    PyObject *sequence;
    if (!PyArg_ParseTuple(args, "O!O:interleave", &PyArray_Type, &out, &sequence)) {
        return NULL;
    }
    PyObject *arrays = PySequence_Tuple(sequence);
    if (arrays == NULL) {
        return NULL;
    }
    size_t count = (size_t)PyTuple_GET_SIZE(arrays), itemsize = (size_t)PyArray_ITEMSIZE(out);
    Column *columns = PyMem_Malloc(count * sizeof(Column));
    if (columns == NULL) {
        PyErr_NoMemory();
        goto error;
    }
    if (PyArray_NDIM(out) != 2 || (size_t)PyArray_DIM(out, 1) != count || !PyArray_IS_C_CONTIGUOUS(out) ||
        PyDataType_REFCHK(PyArray_DESCR(out)) || itemsize == 0 || itemsize > 16 || (itemsize & (itemsize - 1)) != 0) {
        PyErr_SetString(PyExc_ValueError, "interleave: out must be a row-major ndarray with as many columns as are "
                                          "passed, and items of 1, 2, 4, 8 or 16 bytes");
        goto error;
    }
    if (PyArray_FailUnlessWriteable(out, "out") < 0) {
        goto error;
    }
    for (size_t i = 0; i < count; i++) {
        if (column_of(PyTuple_GET_ITEM(arrays, i), out, &columns[i]) < 0) {
            goto error;
        }
    }
    size_t rows = (size_t)PyArray_DIM(out, 0);
    char *data = PyArray_DATA(out);
    Py_BEGIN_ALLOW_THREADS;
    interleave(data, count * itemsize, columns, count, rows, itemsize);
    Py_END_ALLOW_THREADS;
    PyMem_Free(columns);
    Py_DECREF(arrays);
    Py_RETURN_NONE;
error:
    PyMem_Free(columns);
    Py_DECREF(arrays);
    return NULL;
}

static PyMethodDef methods[] = {
    {"interleave", interleave_arrays, METH_VARARGS,
     "interleave(out, columns): write 1-dimensional arrays to the columns of a row-major array, without the GIL. "
     "Items are copied as bytes."},
    {NULL, NULL, 0, NULL},
};

int
add_interleave(PyObject *module)
{
    return PyModule_AddFunctions(module, methods);
}
