/* Columns cast to a matrix: `cast_columns`, and tiles for a row-major matrix, which is written in blocks of rows. */
#include "arrow_table.h"
#include "rows.h"

Column *
tile_new(size_t count, size_t itemsize)
{
    /* LINE is added because columns at multiples of 4 KiB would map to the same sets of the cache. */
    size_t height = TILE_ROWS * itemsize + LINE;
    Column *columns = PyMem_RawMalloc(count * (sizeof(Column) + height) + 1);
    for (size_t i = 0; columns != NULL && i < count; i++) {
        columns[i] = (Column){(char *)(columns + count) + i * height, (ptrdiff_t)itemsize};
    }
    return columns;
}

/* A column of numbers that is cast. */
typedef struct {
    Column memory;
    DLDataType dtype;
} Numbers;

/* Casts columns to a matrix whose rows are `pitch` bytes apart and whose columns are `step` bytes apart; false if a
   number does not fit. `tile` is NULL unless the matrix is row-major. */
static bool
cast_matrix(char *out, ptrdiff_t pitch, ptrdiff_t step, DLDataType to, const Numbers *columns, size_t count,
            int64_t rows, const Column *tile)
{
    ptrdiff_t itemsize = to.bits / 8;
    for (int64_t start = 0; start < rows; start += TILE_ROWS, out += TILE_ROWS * pitch) {
        int64_t size = rows - start < TILE_ROWS ? rows - start : TILE_ROWS;
        for (size_t i = 0; i < count; i++) {
            const Column *from = &columns[i].memory;
            char *place = tile == NULL ? out + (ptrdiff_t)i * step : tile[i].data;
            if (!cast_numbers(place, tile == NULL ? pitch : itemsize, to, from->data + start * from->stride,
                              from->stride, columns[i].dtype, size)) {
                return false;
            }
        }
        if (tile != NULL) {
            interleave(out, (size_t)pitch, tile, count, (size_t)size, (size_t)itemsize);
        }
    }
    return true;
}

/* Fills in the type of an array of NumPy's own number types; false for other types and for swapped byte order. */
static bool
number_dtype(PyArrayObject *array, DLDataType *out)
{
    char kind = PyArray_DESCR(array)->kind;
    int code = kind == 'i' ? kDLInt : kind == 'u' ? kDLUInt : kDLFloat;
    *out = (DLDataType){(uint8_t)code, (uint8_t)(8 * PyArray_ITEMSIZE(array)), 1};
    return PyTypeNum_ISNUMBER(PyArray_TYPE(array)) && strchr("iuf", kind) != NULL && PyArray_ISNOTSWAPPED(array) &&
           can_fill(*out);
}

/* Describes a column; false unless it has numbers that can be cast, as many as the matrix has rows. */
static bool
describe_numbers(PyObject *obj, npy_intp rows, Numbers *out)
{
    PyArrayObject *array = (PyArrayObject *)obj;
    if (!PyArray_Check(obj) || PyArray_NDIM(array) != 1 || PyArray_DIM(array, 0) != rows ||
        !PyArray_ISBEHAVED_RO(array) || !number_dtype(array, &out->dtype)) {
        return false;
    }
    out->memory = (Column){PyArray_DATA(array), PyArray_STRIDE(array, 0)};
    return true;
}

/* cast_columns(out, columns): see the documentation of the function. */
static PyObject *
cast_columns(PyObject *module, PyObject *args)
{
    PyArrayObject *out;
    PyObject *sequence;
    if (!PyArg_ParseTuple(args, "O!O:cast_columns", &PyArray_Type, &out, &sequence)) {
        return NULL;
    }
    PyObject *columns = PySequence_Tuple(sequence), *result = NULL;
    size_t count = columns == NULL ? 0 : (size_t)PyTuple_GET_SIZE(columns);
    Numbers *numbers = columns == NULL ? NULL : PyMem_Malloc(count * sizeof(Numbers));
    Column *tile = NULL;
    DLDataType to;
    if (numbers == NULL) {
        Py_XDECREF(columns);
        return columns == NULL ? NULL : PyErr_NoMemory();
    }
    bool is_valid = PyArray_NDIM(out) == 2 && PyArray_DIM(out, 1) == (npy_intp)count && PyArray_ISBEHAVED(out) &&
                    number_dtype(out, &to);
    for (size_t i = 0; i < count && is_valid; i++) {
        is_valid = describe_numbers(PyTuple_GET_ITEM(columns, i), PyArray_DIM(out, 0), &numbers[i]);
    }
    if (!is_valid) {
        PyErr_SetString(PyExc_ValueError, "out and columns must be aligned ndarrays of numbers that the core casts");
        goto done;
    }
    if (count > 1 && PyArray_STRIDE(out, 1) == PyArray_ITEMSIZE(out)) {
        tile = tile_new(count, to.bits / 8);
        if (tile == NULL) {
            PyErr_NoMemory();
            goto done;
        }
    }
    PyThreadState *unlocked = PyArray_NBYTES(out) >= UNLOCK_BYTES ? PyEval_SaveThread() : NULL;
    bool fits = cast_matrix(PyArray_DATA(out), PyArray_STRIDE(out, 0), PyArray_STRIDE(out, 1), to, numbers, count,
                            PyArray_DIM(out, 0), tile);
    if (unlocked != NULL) {
        PyEval_RestoreThread(unlocked);
    }
    result = PyBool_FromLong(fits);
done:
    PyMem_RawFree(tile);
    PyMem_Free(numbers);
    Py_DECREF(columns);
    return result;
}

static PyMethodDef methods[] = {
    {"cast_columns", cast_columns, METH_VARARGS,
     "cast_columns(out, columns): cast columns, one-dimensional ndarrays of numbers, into a matrix of another type of "
     "numbers, without the GIL. Returns whether each number fits; if one does not, the matrix is undefined."},
    {NULL, NULL, 0, NULL},
};

int
add_casts(PyObject *module)
{
    return PyModule_AddFunctions(module, methods);
}
