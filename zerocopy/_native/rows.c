/* Columns of any types written as rows at given positions, and rows read into columns. */
#include "rows.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define STAGE 16384   /* bytes; half of the L1 cache of common CPUs */
#define MIN_HEIGHT 32 /* rows of a tile if rows are wide */
#define STREAM_BYTES (1 << 23) /* size of rows in order from which stores bypass the caches */
#define MAX_WIDTH (STAGE / MIN_HEIGHT)

/* Part of a row: columns with equally large items next to each other, or padding if `count` is 0. Only one item, or
   padding, is wider than MAX_WIDTH. */
typedef struct {
    size_t column, count, size; /* size: of an item, in bytes */
    size_t offset, width;       /* in the row, in bytes */
} Run;

/* Parsed arguments of write_rows and read_rows. */
typedef struct {
    PyObject *arrays;
    Column *columns;
    Run *runs;
    size_t run_count, rows, pitch; /* rows: items of a column */
} Rows;

/* Releases the members that rows_parse allocated. */
static void
rows_free(Rows *rows)
{
    Py_XDECREF(rows->arrays);
    PyMem_Free(rows->columns);
    PyMem_Free(rows->runs);
}

/* Adds padding or an item to the runs. */
static void
add_run(Rows *rows, size_t column, size_t count, size_t offset, size_t size)
{
    Run *last = rows->run_count > 0 ? &rows->runs[rows->run_count - 1] : NULL;
    if (count > 0 && last != NULL && last->count > 0 && last->size == size && last->width + size <= MAX_WIDTH &&
        last->column + last->count == column) {
        last->count++;
        last->width += size;
    } else if (size > 0) {
        rows->runs[rows->run_count++] = (Run){column, count, size, offset, size};
    }
}

/* Whether an ndarray can be a column: axis 0 has any stride, the other axes are C-contiguous. */
static bool
column_fits(PyArrayObject *array, npy_intp rows, bool is_written)
{
    if (PyArray_NDIM(array) < 1 || PyArray_DIM(array, 0) != rows || PyDataType_REFCHK(PyArray_DESCR(array))) {
        return false;
    }
    if (PyArray_SIZE(array) == 0) {
        return true;
    }
    npy_intp expected = PyArray_ITEMSIZE(array);
    for (int i = PyArray_NDIM(array) - 1; i > 0; i--) {
        if (PyArray_DIM(array, i) != 1 && PyArray_STRIDE(array, i) != expected) {
            return false;
        }
        expected *= PyArray_DIM(array, i);
    }
    return !is_written || rows <= 1 || PyArray_STRIDE(array, 0) == expected;
}

/* Whether the bytes of two arrays may overlap. */
static bool
may_overlap(PyArrayObject *block, PyArrayObject *array)
{
    if (PyArray_SIZE(array) == 0) {
        return false;
    }
    char *low = PyArray_DATA(array), *high = low + PyArray_ITEMSIZE(array);
    for (int i = 0; i < PyArray_NDIM(array); i++) {
        npy_intp extent = (PyArray_DIM(array, i) - 1) * PyArray_STRIDE(array, i);
        *(extent < 0 ? &low : &high) += extent;
    }
    char *data = PyArray_DATA(block);
    return low < data + PyArray_NBYTES(block) && data < high;
}

/* Adds a column at an offset of the row; -1 with an exception. `end` is the end of the columns before. */
static int
add_column(Rows *rows, PyArrayObject *block, size_t number, PyObject *offset, size_t *end, bool is_written)
{
    PyArrayObject *array = (PyArrayObject *)PyTuple_GET_ITEM(rows->arrays, number);
    if (!PyArray_Check(array)) {
        PyErr_SetString(PyExc_TypeError, "each column must be an ndarray");
        return -1;
    }
    if (number == 0) {
        rows->rows = PyArray_NDIM(array) < 1 ? 0 : (size_t)PyArray_DIM(array, 0);
    }
    if (!column_fits(array, (npy_intp)rows->rows, is_written)) {
        PyErr_SetString(PyExc_ValueError, "columns must have equal lengths, C-contiguous items and no Python objects");
        return -1;
    }
    if (is_written && PyArray_FailUnlessWriteable(array, "column") < 0) {
        return -1;
    }
    if (may_overlap(block, array)) {
        PyErr_SetString(PyExc_ValueError, "columns and rows must not overlap in memory");
        return -1;
    }
    size_t start = PyLong_AsSize_t(offset), size = (size_t)PyArray_ITEMSIZE(array);
    if (start == (size_t)-1 && PyErr_Occurred()) {
        PyErr_Clear(); /* negative, too large or of another type */
    }
    for (int i = 1; i < PyArray_NDIM(array); i++) {
        size *= (size_t)PyArray_DIM(array, i);
    }
    if (start < *end || start > rows->pitch || size > rows->pitch - start) {
        PyErr_SetString(PyExc_ValueError, "offsets must be integers that place the columns in order, without overlap "
                                          "and inside the row");
        return -1;
    }
    rows->columns[number] = (Column){PyArray_DATA(array), PyArray_STRIDE(array, 0)};
    add_run(rows, 0, 0, *end, start - *end);
    add_run(rows, number, 1, start, size);
    *end = start + size;
    return 0;
}

/* Parses the arguments that both functions share; -1 with an exception. The caller calls rows_free in any case. */
static int
rows_parse(Rows *rows, PyArrayObject *block, PyObject *columns, PyObject *offsets, bool reads)
{
    if (PyArray_NDIM(block) != 2 || PyArray_TYPE(block) != NPY_UINT8 || !PyArray_IS_C_CONTIGUOUS(block)) {
        PyErr_SetString(PyExc_ValueError, "the rows must be a C-contiguous ndarray of uint8 with two dimensions");
        return -1;
    }
    PyObject *numbers = PySequence_Tuple(offsets);
    if (numbers == NULL) {
        return -1;
    }
    int status = -1;
    rows->arrays = PySequence_Tuple(columns);
    if (rows->arrays == NULL) {
        goto end;
    }
    size_t count = (size_t)PyTuple_GET_SIZE(rows->arrays), last = 0;
    if (count == 0 || (size_t)PyTuple_GET_SIZE(numbers) != count) {
        PyErr_SetString(PyExc_ValueError, "there must be at least one column, and one offset per column");
        goto end;
    }
    rows->pitch = (size_t)PyArray_DIM(block, 1);
    rows->columns = PyMem_Calloc(count, sizeof(Column));
    rows->runs = PyMem_Calloc(2 * count + 1, sizeof(Run));
    if (rows->columns == NULL || rows->runs == NULL) {
        PyErr_NoMemory();
        goto end;
    }
    for (size_t i = 0; i < count; i++) {
        if (add_column(rows, block, i, PyTuple_GET_ITEM(numbers, i), &last, reads) < 0) {
            goto end;
        }
    }
    add_run(rows, 0, 0, last, rows->pitch - last);
    status = 0;
end:
    Py_DECREF(numbers);
    return status;
}

/* Returns how many rows go through the stage at once. */
static size_t
tile_height(const Rows *rows)
{
    size_t height = rows->pitch > 0 ? STAGE / rows->pitch : TILE;
    return height < MIN_HEIGHT ? MIN_HEIGHT : height >= TILE ? TILE : height - height % 16;
}

/* Writes `height` rows of some runs to rows that are `pitch` bytes apart; `to` is the start of the first run. */
static void
write_runs(char *to, size_t pitch, const Rows *rows, const Run *runs, size_t count, size_t first, size_t height)
{
    for (const Run *run = runs; run < runs + count; run++, to += run[-1].width) {
        if (run->count > 0) {
            write_tile(to, pitch, rows->columns + run->column, run->count, first, height, run->size);
            continue;
        }
        for (size_t i = 0; i < height; i++) {
            memset(to + i * pitch, 0, run->width);
        }
    }
}

#if defined(__SSE2__)
/* Writes many rows in order, through the stage. */
static void
stream_in_order(char *out, const Rows *rows)
{
    _Alignas(4096) char stage[STAGE];
    size_t height = tile_height(rows);
    for (size_t first = 0; first < rows->rows; first += height) {
        size_t some = rows->rows - first < height ? rows->rows - first : height;
        write_runs(stage, rows->pitch, rows, rows->runs, rows->run_count, first, some);
        copy_past_caches(out + first * rows->pitch, stage, some * rows->pitch);
    }
    _mm_sfence();
}
#endif

/* Writes each row to its place in order. */
static void
write_in_order(char *out, const Rows *rows)
{
#if defined(__SSE2__)
    if (rows->pitch <= MAX_WIDTH && rows->rows * rows->pitch >= STREAM_BYTES) {
        stream_in_order(out, rows);
        return;
    }
#endif
    for (size_t first = 0; first < rows->rows; first += TILE) {
        size_t height = rows->rows - first < TILE ? rows->rows - first : TILE;
        write_runs(out + first * rows->pitch, rows->pitch, rows, rows->runs, rows->run_count, first, height);
    }
}

/* Copies part of a row without a library call, because rows are short. */
static inline void
copy_row(char *to, const char *from, size_t width)
{
    if (width < 16) {
        memcpy(to, from, width);
        return;
    }
    for (size_t byte = 0; byte + 16 <= width; byte += 16) {
        memcpy(to + byte, from + byte, 16);
    }
    memcpy(to + width - 16, from + width - 16, 16);
}

/* Writes some runs of a tile to rows at `places`, through the stage unless they are one wide run. */
static void
scatter_runs(char **places, char *stage, const Rows *rows, const Run *runs, size_t count, size_t first,
             size_t height)
{
    size_t offset = runs->offset, width = runs[count - 1].offset + runs[count - 1].width - offset;
    if (width > MAX_WIDTH) {
        for (size_t i = 0; i < height; i++) {
            if (places[i] != NULL) {
                write_runs(places[i] + offset, 0, rows, runs, 1, first + i, 1);
            }
        }
        return;
    }
    write_runs(stage, width, rows, runs, count, first, height);
    for (size_t i = 0; i < height; i++) {
        if (places[i] != NULL) {
            copy_row(places[i] + offset, stage + i * width, width);
        }
    }
}

/* Writes each row to its position. Another thread may change a position after it was checked, so it is checked again. */
static void
scatter(char *out, size_t out_rows, const Rows *rows, const int64_t *positions)
{
    _Alignas(4096) char stage[STAGE];
    char *places[TILE];
    size_t height = tile_height(rows);
    for (size_t first = 0; first < rows->rows; first += height) {
        size_t some = rows->rows - first < height ? rows->rows - first : height;
        for (size_t i = 0; i < some; i++) {
            size_t position = (size_t)positions[first + i];
            places[i] = position < out_rows ? out + position * rows->pitch : NULL;
        }
        for (size_t run = 0, count; run < rows->run_count; run += count) {
            size_t width = rows->runs[run].width;
            for (count = 1; run + count < rows->run_count; count++) {
                width += rows->runs[run + count].width;
                if (width > MAX_WIDTH) {
                    break;
                }
            }
            scatter_runs(places, stage, rows, rows->runs + run, count, first, some);
        }
    }
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
        !PyArray_ISCARRAY_RO(array) || (size_t)PyArray_DIM(array, 0) != count || may_overlap(out, array)) {
        PyErr_SetString(PyExc_ValueError, "positions must be None or a contiguous ndarray of int64 with one position "
                                          "per row, which does not overlap the rows");
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

/* write_rows(out, columns, offsets, positions): writes items of columns to rows. */
static PyObject *
write_rows(PyObject *module, PyObject *args)
{
    PyArrayObject *out;
    PyObject *columns, *offsets, *positions = Py_None;
    if (!PyArg_ParseTuple(args, "O!OO|O:write_rows", &PyArray_Type, &out, &columns, &offsets, &positions)) {
        return NULL;
    }
    Rows rows = {0};
    const int64_t *places;
    if (rows_parse(&rows, out, columns, offsets, false) < 0 || PyArray_FailUnlessWriteable(out, "out") < 0 ||
        check_positions(positions, out, rows.rows, &places) < 0) {
        rows_free(&rows);
        return NULL;
    }
    char *data = PyArray_DATA(out);
    size_t out_rows = (size_t)PyArray_DIM(out, 0);
    Py_BEGIN_ALLOW_THREADS;
    if (places == NULL) {
        write_in_order(data, &rows);
    } else {
        scatter(data, out_rows, &rows, places);
    }
    Py_END_ALLOW_THREADS;
    rows_free(&rows);
    Py_RETURN_NONE;
}

/* read_rows(records, columns, offsets): the inverse, in order. */
static PyObject *
read_rows(PyObject *module, PyObject *args)
{
    PyArrayObject *records;
    PyObject *columns, *offsets;
    if (!PyArg_ParseTuple(args, "O!OO:read_rows", &PyArray_Type, &records, &columns, &offsets)) {
        return NULL;
    }
    Rows rows = {0};
    const int64_t *places;
    if (rows_parse(&rows, records, columns, offsets, true) < 0 ||
        check_positions(Py_None, records, rows.rows, &places) < 0) {
        rows_free(&rows);
        return NULL;
    }
    const char *data = PyArray_DATA(records);
    Py_BEGIN_ALLOW_THREADS;
    for (size_t first = 0; first < rows.rows; first += TILE) {
        size_t height = rows.rows - first < TILE ? rows.rows - first : TILE;
        for (size_t byte = 0; byte < TILE * rows.pitch; byte += LINE) {
            FETCH((uintptr_t)data + (first + 2 * TILE) * rows.pitch + byte);
        }
        for (const Run *run = rows.runs; run < rows.runs + rows.run_count; run++) {
            if (run->count > 0) {
                read_tile(data + first * rows.pitch + run->offset, rows.pitch, rows.columns + run->column, run->count,
                          first, height, run->size);
            }
        }
    }
    Py_END_ALLOW_THREADS;
    rows_free(&rows);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"write_rows", write_rows, METH_VARARGS,
     "write_rows(out, columns, offsets, positions=None): write the items of columns as rows of bytes, without the "
     "GIL. Bytes of a written row that no column covers become zero."},
    {"read_rows", read_rows, METH_VARARGS,
     "read_rows(records, columns, offsets): fill columns from rows of bytes, without the GIL."},
    {NULL, NULL, 0, NULL},
};

int
add_rows(PyObject *module)
{
    return PyModule_AddFunctions(module, methods);
}
