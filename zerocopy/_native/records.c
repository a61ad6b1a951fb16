/* Less than 2 MiB of records to new columns, and back, in one call: the steps of Python take longer than the copy.

   The Python code prepares a record type as (leaves, order, pieces): leaves with (name, dtype, shape, bytes per item),
   the numbers of the leaves in the order of the pieces, and the pieces. The functions return None for other arguments
   and after any failure; the Python code then handles the call. */
#include "rows.h"

#define MAX_LEAVES 64
#define MAX_INNER 8                    /* dimensions of a leaf */
#define PAGE 4096                      /* longer columns start STAGGER later: see layout/outputs.py */
#define STAGGER (5 * LINE)
#define MOST_BYTES ((npy_intp)2 << 20) /* more records are divided among threads */

/* Returns the value of a key as a new reference, or NULL without an exception. */
static PyObject *
value_of(PyObject *dict, PyObject *key)
{
    PyObject *value = PyObject_GetItem(dict, key);
    if (value == NULL) {
        PyErr_Clear();
    }
    return value;
}

/* Returns new memory for `bytes`, from a multiple of a cache line on. */
static PyArrayObject *
new_memory(size_t bytes, char **start)
{
    npy_intp length = (npy_intp)bytes + LINE;
    PyArrayObject *memory = (PyArrayObject *)PyArray_SimpleNew(1, &length, NPY_UINT8);
    if (memory != NULL) {
        *start = (char *)(((uintptr_t)PyArray_DATA(memory) + LINE - 1) & ~(uintptr_t)(LINE - 1));
    }
    return memory;
}

/* Returns an array of `rows` items of a dtype and a shape, over the part of `memory` that starts at `data`. */
static PyObject *
array_in(PyArrayObject *memory, char *data, npy_intp rows, PyObject *dtype, PyObject *inner)
{
    npy_intp shape[1 + MAX_INNER] = {rows};
    int ndim = 1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(inner); i++) {
        shape[ndim++] = (npy_intp)PyLong_AsSsize_t(PyTuple_GET_ITEM(inner, i));
    }
    Py_INCREF(dtype); /* the next call steals it */
    PyObject *array = PyArray_NewFromDescr(&PyArray_Type, (PyArray_Descr *)dtype, ndim, shape, NULL, data,
                                           NPY_ARRAY_WRITEABLE, NULL);
    if (array != NULL && PyArray_SetBaseObject((PyArrayObject *)array, Py_NewRef(memory)) < 0) {
        Py_CLEAR(array);
    }
    return array;
}

/* Copies between records and arrays, which are in the order of the leaves; -1 with an exception. */
static int
copy_all(PyArrayObject *records, PyObject *const *arrays, PyObject *layout, bool reads)
{
    PyObject *order = PyTuple_GET_ITEM(layout, 1), *ordered[MAX_LEAVES];
    Py_ssize_t count = PyTuple_GET_SIZE(order);
    for (Py_ssize_t i = 0; i < count; i++) {
        ordered[i] = Py_NewRef(arrays[PyLong_AsSsize_t(PyTuple_GET_ITEM(order, i))]);
    }
    PyObject *columns = sequence_of(false, ordered, count);
    Rows rows = {0};
    PyArrayObject *pieces = (PyArrayObject *)PyTuple_GET_ITEM(layout, 2);
    int failed = columns == NULL ? -1 : rows_parse(&rows, records, columns, pieces, reads);
    if (failed == 0) {
        Py_BEGIN_ALLOW_THREADS;
        if (reads) {
            read_all(&rows, false);
        } else {
            write_in_order(&rows, false);
        }
        Py_END_ALLOW_THREADS;
    }
    rows_free(&rows);
    Py_XDECREF(columns);
    return failed;
}

/* Returns the offset of the next column: after whole cache lines, and STAGGER later if this column is long. */
static size_t
end_of(size_t start, size_t bytes)
{
    return start + (bytes + LINE - 1) / LINE * LINE + (bytes >= PAGE ? STAGGER : 0);
}

/* Returns a dict of new columns of records, or NULL. */
static PyObject *
columns_of(PyArrayObject *records, PyObject *layout)
{
    PyObject *leaves = PyTuple_GET_ITEM(layout, 0), *arrays[MAX_LEAVES] = {NULL}, *result = NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(leaves), made = 0;
    size_t rows = (size_t)PyArray_DIM(records, 0), sizes[MAX_LEAVES], end = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        sizes[i] = rows * PyLong_AsSize_t(PyTuple_GET_ITEM(PyTuple_GET_ITEM(leaves, i), 3));
        end = end_of(end, sizes[i]);
    }
    char *start;
    PyArrayObject *memory = new_memory(end, &start);
    for (; memory != NULL && made < count; made++) {
        PyObject *leaf = PyTuple_GET_ITEM(leaves, made);
        arrays[made] = array_in(memory, start, (npy_intp)rows, PyTuple_GET_ITEM(leaf, 1), PyTuple_GET_ITEM(leaf, 2));
        if (arrays[made] == NULL) {
            break;
        }
        start += end_of(0, sizes[made]);
    }
    if (made == count && copy_all(records, arrays, layout, true) == 0) {
        result = PyDict_New();
        for (Py_ssize_t i = 0; result != NULL && i < count; i++) {
            if (PyDict_SetItem(result, PyTuple_GET_ITEM(PyTuple_GET_ITEM(leaves, i), 0), arrays[i]) < 0) {
                Py_CLEAR(result);
            }
        }
    }
    while (made > 0) {
        Py_DECREF(arrays[--made]);
    }
    Py_XDECREF(memory);
    return result;
}

/* split_records(records, layouts): returns new columns of an array of a record type in `layouts`, or None. */
static PyObject *
split_records(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    PyArrayObject *records = (PyArrayObject *)args[0];
    if (count != 2 || !PyArray_CheckExact(records) || PyArray_NDIM(records) != 1 ||
        PyArray_NBYTES(records) >= MOST_BYTES) {
        Py_RETURN_NONE;
    }
    PyObject *layout = value_of(args[1], (PyObject *)PyArray_DESCR(records)), *result = NULL;
    if (layout != NULL && layout != Py_None) {
        result = columns_of(records, layout);
    }
    Py_XDECREF(layout);
    if (result == NULL) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    return result;
}

/* Returns the key of columns in `layouts`: their names and dtypes; NULL unless all are arrays of one dimension. */
static PyObject *
key_of(PyObject *columns)
{
    PyObject *names = PyDict_Keys(columns), *key = NULL, *parts[2 * MAX_LEAVES];
    Py_ssize_t count = names == NULL ? 0 : PyList_GET_SIZE(names), made = 0;
    for (Py_ssize_t i = 0; i < count && count <= MAX_LEAVES; i++) {
        PyObject *column = value_of(columns, PyList_GET_ITEM(names, i));
        if (column == NULL || !PyArray_CheckExact(column) || PyArray_NDIM((PyArrayObject *)column) != 1 ||
            PyDataType_METADATA(PyArray_DESCR((PyArrayObject *)column)) != NULL) { /* equal dtypes may differ in it */
            Py_XDECREF(column);
            break;
        }
        parts[made++] = Py_NewRef(PyList_GET_ITEM(names, i));
        parts[made++] = Py_NewRef((PyObject *)PyArray_DESCR((PyArrayObject *)column));
        Py_DECREF(column);
    }
    if (made > 0 && made == 2 * count) {
        key = sequence_of(false, parts, made);
        made = 0;
    }
    while (made > 0) {
        Py_DECREF(parts[--made]);
    }
    Py_XDECREF(names);
    return key;
}

/* Whether an object is an array of the dtype and the shape of a leaf's column; `rows` is negative for any length. */
static bool
is_column_of(PyObject *column, PyObject *leaf, npy_intp rows)
{
    PyArrayObject *array = (PyArrayObject *)column;
    PyObject *inner = PyTuple_GET_ITEM(leaf, 2);
    if (column == NULL || !PyArray_CheckExact(column) || PyArray_NDIM(array) != 1 + (int)PyTuple_GET_SIZE(inner)) {
        return false;
    }
    for (int i = 1; i < PyArray_NDIM(array); i++) {
        if (PyArray_DIM(array, i) != PyLong_AsSsize_t(PyTuple_GET_ITEM(inner, i - 1))) {
            return false;
        }
    }
    PyArray_Descr *dtype = (PyArray_Descr *)PyTuple_GET_ITEM(leaf, 1);
    return (rows < 0 || PyArray_DIM(array, 0) == rows) &&
           (PyArray_DESCR(array) == dtype || PyArray_EquivTypes(PyArray_DESCR(array), dtype));
}

/* Returns new records of a dtype that hold columns, or NULL. */
static PyObject *
records_of(PyObject *columns, PyArray_Descr *dtype, PyObject *layout)
{
    PyObject *leaves = PyTuple_GET_ITEM(layout, 0), *arrays[MAX_LEAVES] = {NULL}, *result = NULL;
    PyArrayObject *memory = NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(leaves), collected = 0;
    npy_intp rows = -1, itemsize = PyDataType_ELSIZE(dtype);
    for (; count == PyDict_GET_SIZE(columns) && collected < count; collected++) {
        PyObject *leaf = PyTuple_GET_ITEM(leaves, collected);
        arrays[collected] = value_of(columns, PyTuple_GET_ITEM(leaf, 0));
        if (!is_column_of(arrays[collected], leaf, rows)) {
            Py_XDECREF(arrays[collected]);
            break;
        }
        rows = PyArray_DIM((PyArrayObject *)arrays[collected], 0);
    }
    /* With a greater stride, the columns may be fields of existing records, which the Python code aliases. */
    if (collected == count && rows > 0 && rows < MOST_BYTES / itemsize &&
        PyArray_STRIDE((PyArrayObject *)arrays[0], 0) < itemsize) {
        char *start;
        PyObject *none = PyTuple_New(0);
        memory = none == NULL ? NULL : new_memory((size_t)(rows * itemsize), &start);
        result = memory == NULL ? NULL : array_in(memory, start, rows, (PyObject *)dtype, none);
        Py_XDECREF(none);
    }
    if (result != NULL && copy_all((PyArrayObject *)result, arrays, layout, false) < 0) {
        Py_CLEAR(result);
    }
    while (collected > 0) {
        Py_DECREF(arrays[--collected]);
    }
    Py_XDECREF(memory);
    return result;
}

/* join_columns(columns, dtype, layouts): returns new records that hold columns, or None. Without a dtype, `layouts` has
   one for the names and dtypes of the columns. */
static PyObject *
join_columns(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    PyObject *dtype = NULL, *layout = NULL, *result = NULL;
    if (count == 3 && PyDict_CheckExact(args[0])) {
        PyObject *key = args[1] == Py_None ? key_of(args[0]) : NULL;
        dtype = args[1] != Py_None ? Py_NewRef(args[1]) : key != NULL ? value_of(args[2], key) : NULL;
        Py_XDECREF(key);
    }
    if (dtype != NULL && PyArray_DescrCheck(dtype)) {
        layout = value_of(args[2], dtype);
    }
    if (layout != NULL && layout != Py_None) {
        result = records_of(args[0], (PyArray_Descr *)dtype, layout);
    }
    Py_XDECREF(dtype);
    Py_XDECREF(layout);
    if (result == NULL) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    return result;
}

static PyMethodDef methods[] = {
    {"split_records", (PyCFunction)(void (*)(void))split_records, METH_FASTCALL,
     "split_records(records, layouts): return new columns of small arrays of prepared record types, or None."},
    {"join_columns", (PyCFunction)(void (*)(void))join_columns, METH_FASTCALL,
     "join_columns(columns, dtype, layouts): return new records of small columns, or None."},
    {NULL, NULL, 0, NULL},
};

int
add_records(PyObject *module)
{
    return PyModule_AddFunctions(module, methods);
}
