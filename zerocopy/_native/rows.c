/* Columns of any types written as rows, and rows read into columns: records, batches of the loader, matrices. */
#include "rows.h"

#define PIECE 4 /* numbers of a piece: column, offset in the row, bytes, bytes of a unit whose order is reversed */

void
rows_free(Rows *rows)
{
    Py_XDECREF(rows->arrays);
    PyMem_Free(rows->columns);
    PyMem_Free(rows->widths);
    PyMem_Free(rows->runs);
}

/* Whether the items of two runs are next to each other in the row, and can be transposed together. */
static bool
is_next(const Rows *rows, const Run *run, const Run *next)
{
    return next->column == run->column + 1 && next->offset == run->offset + run->size && next->size == run->size &&
           next->swap == run->swap && next->is_last && is_contiguous(rows, next->column);
}

/* Joins runs of single columns to groups. */
static void
join_runs(Rows *rows)
{
    size_t joined = 0;
    for (size_t i = 0; i < rows->run_count;) {
        Run run = rows->runs[i];
        size_t count = 1;
        bool is_whole = run.is_last && run.inner == 0 && (run.swap == 0 || run.swap == run.size);
        if (is_whole && is_contiguous(rows, run.column)) {
            while (count < MAX_GROUP && i + count < rows->run_count &&
                   is_next(rows, &rows->runs[i + count - 1], &rows->runs[i + count])) {
                count++;
            }
            run.group = group_of(count, run.size);
        }
        run.count = run.group == NULL ? 1 : run.group->count;
        rows->runs[joined++] = run;
        i += run.count;
    }
    rows->run_count = joined;
}

/* Returns the bytes of the items of axis 0, or -1 unless the other axes are C-contiguous. */
static npy_intp
item_bytes(PyArrayObject *array)
{
    npy_intp size = PyArray_ITEMSIZE(array);
    bool is_empty = PyArray_SIZE(array) == 0;
    for (int i = PyArray_NDIM(array) - 1; i > 0; i--) {
        if (!is_empty && PyArray_DIM(array, i) != 1 && PyArray_STRIDE(array, i) != size) {
            return -1;
        }
        size *= PyArray_DIM(array, i);
    }
    return size;
}

/* Whether the items of axis 0 of an array that is written do not overlap. */
static bool
is_spaced(PyArrayObject *array, npy_intp size)
{
    npy_intp stride = PyArray_STRIDE(array, 0);
    return PyArray_DIM(array, 0) <= 1 || size == 0 || (stride < 0 ? -stride : stride) >= size;
}

/* Adds a column; -1 with an exception. */
static int
add_column(Rows *rows, size_t number, bool is_written)
{
    PyArrayObject *array = (PyArrayObject *)PyTuple_GET_ITEM(rows->arrays, number);
    npy_intp size = PyArray_NDIM(array) < 1 ? -1 : item_bytes(array);
    if (number == 0 && size >= 0) {
        rows->count = (size_t)PyArray_DIM(array, 0);
    }
    if (size < 0 || (size_t)PyArray_DIM(array, 0) != rows->count || PyDataType_REFCHK(PyArray_DESCR(array)) ||
        (is_written && !is_spaced(array, size))) {
        PyErr_SetString(PyExc_ValueError, "columns must have equal lengths, C-contiguous items and no Python objects");
        return -1;
    }
    rows->columns[number] = (Column){PyArray_DATA(array), rows->count > 1 ? PyArray_STRIDE(array, 0) : size};
    rows->widths[number] = (size_t)size;
    return 0;
}

/* Adds the pieces of all columns, those of a column one after the other; -1 with an exception. */
static int
add_pieces(Rows *rows, PyArrayObject *pieces)
{
    const int64_t *numbers = PyArray_DATA(pieces);
    size_t columns = (size_t)PyTuple_GET_SIZE(rows->arrays), bytes = 0, last = 0, inner = 0, end = 0;
    npy_intp count = PyArray_DIM(pieces, 0), i = 0;
    rows->is_full = true;
    for (; i < count; i++, numbers += PIECE) {
        size_t column = (size_t)numbers[0], offset = (size_t)numbers[1], size = (size_t)numbers[2];
        size_t swap = (size_t)numbers[3];
        inner = column == last ? inner : 0;
        if (column < last || column >= columns || inner > rows->widths[column] || size > rows->widths[column] - inner ||
            offset > rows->width || size > rows->width - offset || (swap != 0 && size % swap != 0)) {
            break;
        }
        if (size > 0) {
            const Run *before = rows->run_count > 0 ? &rows->runs[rows->run_count - 1] : NULL;
            rows->swaps_vary |= before != NULL && before->column == column && before->swap != (swap > 1 ? swap : 0);
            bool is_last = inner + size == rows->widths[column];
            rows->runs[rows->run_count++] = (Run){column, 1, inner, offset, size, swap > 1 ? swap : 0, NULL, false, 0, is_last};
        }
        rows->is_full = rows->is_full && offset == end;
        rows->covered += size;
        last = column;
        inner += size;
        end = offset + size;
    }
    rows->is_full = rows->is_full && end == rows->width;
    for (size_t column = 0; column < columns; column++) {
        bytes += rows->widths[column];
    }
    if (i < count || rows->covered != bytes) { /* no column has more bytes than its items */
        PyErr_SetString(PyExc_ValueError, "the pieces must lie inside the row, and be those of the columns in order");
        return -1;
    }
    join_runs(rows);
    return 0;
}

/* Checks what may run Python code: afterwards nothing does, so that no array changes while it is described. */
static int
check_arrays(Rows *rows, PyArrayObject *block, PyObject *columns, bool reads)
{
    rows->arrays = PySequence_Tuple(columns);
    if (rows->arrays == NULL) {
        return -1;
    }
    if (!reads && PyArray_FailUnlessWriteable(block, "out") < 0) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(rows->arrays); i++) {
        PyArrayObject *array = (PyArrayObject *)PyTuple_GET_ITEM(rows->arrays, i);
        if (!PyArray_Check(array)) {
            PyErr_SetString(PyExc_TypeError, "each column must be an ndarray");
            return -1;
        }
        if (reads && PyArray_FailUnlessWriteable(array, "column") < 0) {
            return -1;
        }
    }
    return 0;
}

int
rows_parse(Rows *rows, PyArrayObject *block, PyObject *columns, PyArrayObject *pieces, bool reads)
{
    if (check_arrays(rows, block, columns, reads) < 0) {
        return -1;
    }
    npy_intp width = PyArray_NDIM(block) < 1 ? -1 : item_bytes(block);
    if (width < 0 || (!reads && (PyDataType_REFCHK(PyArray_DESCR(block)) || !is_spaced(block, width)))) {
        PyErr_SetString(PyExc_ValueError, "rows must be an ndarray with C-contiguous items; if they are written, they "
                                          "do not overlap and have no Python objects");
        return -1;
    }
    if (PyArray_TYPE(pieces) != NPY_INT64 || PyArray_NDIM(pieces) != 2 || PyArray_DIM(pieces, 1) != PIECE ||
        !PyArray_ISCARRAY_RO(pieces)) {
        PyErr_SetString(PyExc_ValueError, "pieces must be a contiguous ndarray of int64 with rows of four numbers");
        return -1;
    }
    size_t count = (size_t)PyTuple_GET_SIZE(rows->arrays);
    if (count == 0) {
        PyErr_SetString(PyExc_ValueError, "there must be at least one column");
        return -1;
    }
    rows->data = PyArray_DATA(block);
    rows->pitch = PyArray_STRIDE(block, 0);
    rows->width = (size_t)width;
    rows->columns = PyMem_Calloc(count, sizeof(Column));
    rows->widths = PyMem_Calloc(count, sizeof(size_t));
    rows->runs = PyMem_Calloc((size_t)PyArray_DIM(pieces, 0), sizeof(Run));
    if (rows->columns == NULL || rows->widths == NULL || rows->runs == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < count; i++) {
        if (add_column(rows, i, reads) < 0) {
            return -1;
        }
    }
    return add_pieces(rows, pieces);
}

/* Checks `positions` against the rows of `out`; -1 with an exception. `data` becomes NULL for None. */
static int
check_positions(PyObject *positions, PyArrayObject *out, size_t count, const int64_t **data)
{
    npy_intp rows = PyArray_DIM(out, 0);
    *data = NULL;
    if (positions == Py_None) {
        if (count > (size_t)rows) {
            PyErr_SetString(PyExc_ValueError, "there are more items in a column than rows");
            return -1;
        }
        return 0;
    }
    PyArrayObject *array = (PyArrayObject *)positions;
    if (!PyArray_Check(positions) || PyArray_NDIM(array) != 1 || !PyArray_EquivTypenums(PyArray_TYPE(array), NPY_INT64) ||
        !PyArray_ISCARRAY_RO(array) || (size_t)PyArray_DIM(array, 0) != count) {
        PyErr_SetString(PyExc_ValueError, "positions must be None or a contiguous ndarray of int64 with one position "
                                          "per row");
        return -1;
    }
    *data = PyArray_DATA(array);
    for (size_t i = 0; i < count; i++) {
        if ((uint64_t)(*data)[i] >= (uint64_t)rows) {
            PyErr_Format(PyExc_IndexError, "position %lld is not in the %zd rows", (long long)(*data)[i],
                         (Py_ssize_t)rows);
            return -1;
        }
    }
    return 0;
}

/* write_rows(out, columns, pieces, streams, positions): writes items of columns to rows. */
static PyObject *
write_rows(PyObject *module, PyObject *args)
{
    PyArrayObject *out, *pieces;
    PyObject *columns, *positions = Py_None;
    int streams = 0;
    if (!PyArg_ParseTuple(args, "O!OO!|pO:write_rows", &PyArray_Type, &out, &columns, &PyArray_Type, &pieces,
                          &streams, &positions)) {
        return NULL;
    }
    Rows rows = {0};
    const int64_t *places;
    if (rows_parse(&rows, out, columns, pieces, false) < 0 ||
        check_positions(positions, out, rows.count, &places) < 0) {
        rows_free(&rows);
        return NULL;
    }
    size_t out_rows = (size_t)PyArray_DIM(out, 0);
    Py_BEGIN_ALLOW_THREADS;
    if (places == NULL) {
        write_in_order(&rows, streams);
    } else {
        write_at(&rows, out_rows, places);
    }
    Py_END_ALLOW_THREADS;
    rows_free(&rows);
    Py_RETURN_NONE;
}

/* read_rows(records, columns, pieces, streams): the inverse, in order. */
static PyObject *
read_rows(PyObject *module, PyObject *args)
{
    PyArrayObject *records, *pieces;
    PyObject *columns;
    int streams = 0;
    if (!PyArg_ParseTuple(args, "O!OO!|p:read_rows", &PyArray_Type, &records, &columns, &PyArray_Type, &pieces,
                          &streams)) {
        return NULL;
    }
    Rows rows = {0};
    const int64_t *places;
    if (rows_parse(&rows, records, columns, pieces, true) < 0 ||
        check_positions(Py_None, records, rows.count, &places) < 0) {
        rows_free(&rows);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    read_all(&rows, streams);
    Py_END_ALLOW_THREADS;
    rows_free(&rows);
    Py_RETURN_NONE;
}

/* isa(name=None): returns the instruction set in use; a name selects it. */
static PyObject *
isa(PyObject *module, PyObject *args)
{
    const char *name = NULL;
    if (!PyArg_ParseTuple(args, "|z:isa", &name)) {
        return NULL;
    }
    if (name != NULL && !use_isa(name)) {
        return PyErr_Format(PyExc_ValueError, "this processor has no instruction set %s for records", name);
    }
    return PyUnicode_FromString(isa_in_use());
}

/* Adds `isas`: the names of the instruction sets that this processor has, the widest first. */
static int
add_isas(PyObject *module)
{
    PyObject *names = PyList_New(0);
    for (size_t i = 0; names != NULL && isa_name(i) != NULL; i++) {
        PyObject *name = PyUnicode_FromString(isa_name(i));
        if (name == NULL || PyList_Append(names, name) < 0) {
            Py_CLEAR(names);
        }
        Py_XDECREF(name);
    }
    int status = names == NULL ? -1 : PyModule_AddObjectRef(module, "isas", names);
    Py_XDECREF(names);
    return status;
}

static PyMethodDef methods[] = {
    {"isa", isa, METH_VARARGS,
     "isa(name=None): return the instruction set whose registers copy records; a name of `isas` selects it."},
    {"write_rows", write_rows, METH_VARARGS,
     "write_rows(out, columns, pieces, streams=False, positions=None): write the items of columns as rows of bytes, "
     "without the GIL. Bytes of a written row that no column covers become zero."},
    {"read_rows", read_rows, METH_VARARGS,
     "read_rows(records, columns, pieces, streams=False): fill columns from rows of bytes, without the GIL."},
    {NULL, NULL, 0, NULL},
};

int
add_rows(PyObject *module)
{
    use_isa(isa_name(0));
    return add_isas(module) < 0 ? -1 : PyModule_AddFunctions(module, methods);
}
