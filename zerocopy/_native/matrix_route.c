/* Routes of layout="matrix" through Arrow's C data interface, each to one array: of a table whose columns have one
   type (row-major; column-major with order="F"), and of a table of one column of lists, whose elements are
   one array already. */
#include "arrow_table.h"
#include "rows.h"

/* From this size on, in bytes, the slow path is faster: it fills the matrix in several threads. */
#define MAX_BYTES (1 << 22)
#define MAX_CHUNKS 256
#define PAGE 4096

typedef struct {
    int count;
    int64_t rows;
    struct ArrowArray chunks[MAX_CHUNKS];
} Chunks;

/* Reads all chunks; false for a table that the slow path must convert. */
static bool
read_chunks(const TableRoute *route, ArrowTable *table, const TablePlan *plan, Chunks *out)
{
    /* Casts and fills of the core are faster at any size. */
    int64_t limit = route->fill.kind == FILL_NONE && !route->delivery.has_dtype ? MAX_BYTES : INT64_MAX / 64;
    int64_t max_rows = limit / (plan->count * (result_dtype(route, &plan->columns[0]).bits / 8));
    out->rows = 0;
    for (out->count = 0; out->count < MAX_CHUNKS; out->count++) {
        struct ArrowArray *chunk = &out->chunks[out->count];
        int status = arrow_table_next(table, chunk);
        if (status <= 0) {
            return status == 0 && out->rows > 0;
        }
        if (!arrow_chunk_fits(chunk, plan, &route->fill) || chunk->length > max_rows - out->rows) {
            out->count++; /* to be released */
            return false;
        }
        out->rows += chunk->length;
    }
    return false;
}

/* Whether the columns may form one array already: in order, equally spaced, with gaps of less than a page. The
   slow path aliases such an array. */
static bool
may_be_one_array(const struct ArrowArray *chunk, const TablePlan *plan)
{
    uintptr_t nbytes = (uintptr_t)chunk->length * (plan->columns[0].dtype.bits / 8), first_step = 0;
    for (int64_t i = 1; i < plan->count; i++) {
        uintptr_t step = (uintptr_t)arrow_column_data(chunk, &plan->columns[i]) -
                         (uintptr_t)arrow_column_data(chunk, &plan->columns[i - 1]);
        first_step = i == 1 ? step : first_step;
        if (step != first_step || step - nbytes >= PAGE) { /* negative differences wrap to large ones */
            return false;
        }
    }
    return true;
}

/* Whether the allocation of the first column lacks a part of the others, or is unknown: the slow path copies then too.
   Separate blocks of malloc are often equally spaced. */
static bool
is_divided(const TableRoute *route, PyObject *obj, const struct ArrowArray *chunk, const TablePlan *plan)
{
    if (route->exporter->extent == NULL || route->labels != NULL || plan->count < 2) {
        return false;
    }
    PyObject *bounds = call_one(route->exporter->extent, obj);
    unsigned long long low = 0, high = 0;
    bool is_known = bounds != NULL && PyTuple_Check(bounds) && PyArg_ParseTuple(bounds, "KK", &low, &high);
    bool is_unknown = bounds == Py_None;
    Py_XDECREF(bounds);
    const PlannedColumn *last = &plan->columns[plan->count - 1];
    uintptr_t first = (uintptr_t)arrow_column_data(chunk, &plan->columns[0]);
    uintptr_t end = (uintptr_t)arrow_column_data(chunk, last) + (uintptr_t)chunk->length * (last->dtype.bits / 8);
    return is_unknown || (is_known && (first < low || end > high));
}

/* Whether all columns have the same type. */
static bool
has_one_type(const TablePlan *plan)
{
    for (int64_t i = 1; i < plan->count; i++) {
        if (!dtype_equal(plan->columns[i].dtype, plan->columns[0].dtype)) {
            return false;
        }
    }
    return true;
}

/* Writes each column to `out`, one after another. */
static void
fill_by_columns(char *out, const Chunks *chunks, const TablePlan *plan)
{
    size_t itemsize = plan->columns[0].dtype.bits / 8;
    for (int64_t i = 0; i < plan->count; i++) {
        for (int k = 0; k < chunks->count; k++) {
            size_t nbytes = (size_t)chunks->chunks[k].length * itemsize;
            memcpy(out, arrow_column_data(&chunks->chunks[k], &plan->columns[i]), nbytes);
            out += nbytes;
        }
    }
}

/* Writes the rows of the chunks to `out`, one after another; -1 with an exception if there is no memory. */
static int
fill_by_rows(char *out, const Chunks *chunks, const TablePlan *plan)
{
    size_t count = (size_t)plan->count, itemsize = plan->columns[0].dtype.bits / 8;
    Column *columns = PyMem_Malloc(count * (size_t)chunks->count * sizeof(Column));
    if (columns == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < count * (size_t)chunks->count; i++) {
        columns[i].data = arrow_column_data(&chunks->chunks[i / count], &plan->columns[i % count]);
        columns[i].stride = (ptrdiff_t)itemsize;
    }
    size_t nbytes = (size_t)chunks->rows * count * itemsize;
    PyThreadState *unlocked = nbytes >= UNLOCK_BYTES ? PyEval_SaveThread() : NULL;
    for (int i = 0; i < chunks->count; i++) {
        size_t rows = (size_t)chunks->chunks[i].length;
        interleave(out, count * itemsize, columns + (size_t)i * count, count, rows, itemsize);
        out += rows * count * itemsize;
    }
    if (unlocked != NULL) {
        PyEval_RestoreThread(unlocked);
    }
    PyMem_Free(columns);
    return 0;
}

/* Whether a column is cast, or has nulls that are filled. */
static bool
is_changed(const TableRoute *route, const Chunks *chunks, const TablePlan *plan)
{
    for (int64_t i = 0; i < plan->count; i++) {
        const PlannedColumn *column = &plan->columns[i];
        if (!dtype_equal(column->dtype, result_dtype(route, column))) {
            return true;
        }
        for (int k = 0; k < chunks->count; k++) {
            const struct ArrowArray *chunk = &chunks->chunks[k];
            if (arrow_has_nulls(chunk->children[column->index], chunk->offset, chunk->length)) {
                return true;
            }
        }
    }
    return false;
}

/* Writes the columns, cast and filled, to a matrix with these distances in bytes between rows and between columns;
   false if a number does not fit, or with an exception if memory runs out. */
static bool
fill_matrix(const TableRoute *route, char *out, const Chunks *chunks, const TablePlan *plan, ptrdiff_t row,
            ptrdiff_t step)
{
    DLDataType dtype = result_dtype(route, &plan->columns[0]);
    ptrdiff_t itemsize = dtype.bits / 8;
    bool fits = true, is_tiled = step == itemsize && plan->count > 1;
    Column *tile = is_tiled ? tile_new((size_t)plan->count, (size_t)itemsize) : NULL;
    if (is_tiled && tile == NULL) {
        PyErr_NoMemory();
        return false;
    }
    PyThreadState *unlocked = chunks->rows * plan->count * itemsize >= UNLOCK_BYTES ? PyEval_SaveThread() : NULL;
    for (int k = 0; k < chunks->count; k++) {
        const struct ArrowArray *chunk = &chunks->chunks[k];
        for (int64_t start = 0; start < chunk->length && fits; start += TILE_ROWS) {
            int64_t rows = chunk->length - start < TILE_ROWS ? chunk->length - start : TILE_ROWS;
            for (int64_t i = 0; i < plan->count && fits; i++) {
                const PlannedColumn *column = &plan->columns[i];
                fits = write_column(is_tiled ? tile[i].data : out + i * step, is_tiled ? itemsize : row, dtype,
                                    chunk->children[column->index], column->dtype, chunk->offset + start, rows,
                                    &route->fill);
            }
            if (is_tiled) {
                interleave(out, (size_t)row, tile, (size_t)plan->count, (size_t)rows, (size_t)itemsize);
            }
            out += rows * row;
        }
    }
    if (unlocked != NULL) {
        PyEval_RestoreThread(unlocked);
    }
    PyMem_RawFree(tile);
    return fits;
}

/* Whether all columns are of types that the core casts. */
static bool
can_cast(const TableRoute *route, const TablePlan *plan)
{
    bool can = can_fill(result_dtype(route, &plan->columns[0]));
    for (int64_t i = 0; i < plan->count; i++) {
        can = can && can_fill(plan->columns[i].dtype);
    }
    return can;
}

/* Makes an object of the target over a new matrix of the chunks; NULL with or without an exception. */
static PyObject *
deliver_matrix(const TableRoute *route, const Chunks *chunks, const TablePlan *plan, bool changed)
{
    int64_t shape[2] = {chunks->rows, plan->count};
    DLDataType dtype = result_dtype(route, &plan->columns[0]);
    ptrdiff_t itemsize = dtype.bits / 8;
    char *data;
    PyObject *block = new_block(shape[0] * shape[1] * itemsize, &data);
    if (block == NULL) {
        return NULL;
    }
    Memory memory;
    memory_init(&memory);
    memory.data = data;
    memory.ndim = 2;
    memory.readonly = false;
    memory.dtype = dtype;
    memory.shape = shape;
    memory.strides = NULL;
    memory.owner = block;
    if (route->by_columns) {
        memory.own_strides[0] = 1;
        memory.own_strides[1] = chunks->rows;
        memory.strides = memory.own_strides;
        if (route->delivery.importer->check(route->delivery.importer, &memory) != IMPORT_ALIASES) {
            memory.strides = NULL; /* JAX and TensorFlow would copy it again, to row-major memory */
        }
    }
    bool by_columns = memory.strides != NULL, is_written = true;
    if (changed) {
        is_written = fill_matrix(route, data, chunks, plan, by_columns ? itemsize : shape[1] * itemsize,
                                 by_columns ? shape[0] * itemsize : itemsize);
    }
    else if (by_columns) {
        fill_by_columns(data, chunks, plan);
    }
    else {
        is_written = fill_by_rows(data, chunks, plan) == 0;
    }
    if (!is_written) {
        Py_DECREF(block);
        return NULL;
    }
    Delivery fresh = route->delivery;
    fresh.copy = OPTION_FALSE; /* the matrix is a copy; for a target that cannot alias it, the slow path decides */
    return deliver_memory(&fresh, &memory);
}

/* Makes an object of the target over the one column of a table; lists are the rows of a matrix. NULL with or without an
   exception. */
static PyObject *
deliver_single(const TableRoute *route, ArrowTable *table, const TablePlan *plan)
{
    struct ArrowArray chunk = {0}, next = {0};
    PyObject *result = NULL;
    if (arrow_table_next(table, &chunk) == 1 && arrow_chunk_fits(&chunk, plan, &route->fill) &&
        arrow_table_next(table, &next) == 0) {
        result = deliver_column(route, &chunk, &plan->columns[0]);
    }
    arrow_array_release(&chunk);
    arrow_array_release(&next);
    return result;
}

/* Makes an object of the target over a matrix that the table's framework copies; NULL with or without an exception,
   also if its function returns None. */
static PyObject *
deliver_own_matrix(const TableRoute *route, PyObject *obj)
{
    PyObject *array = call_one(route->exporter->matrix, obj), *result = NULL;
    Memory memory;
    if (array != NULL && PyArray_CheckExact(array) && export_ndarray(array, &memory) == 0) {
        if ((uintptr_t)memory.data % ALIGNMENT != 0) {
            memory_release(&memory);
            Py_DECREF(array);
            return NULL;
        }
        Delivery fresh = route->delivery;
        fresh.copy = OPTION_FALSE;
        result = deliver_memory(&fresh, &memory);
    }
    Py_XDECREF(array);
    return result;
}

/* Converts a table through its export; NULL with or without an exception. */
static PyObject *
convert_export(TableRoute *route, PyObject *obj)
{
    ArrowTable table;
    if (arrow_table_open(route->exporter, obj, route->labels, &table) < 0) {
        return NULL;
    }
    PyObject *result = NULL;
    Chunks chunks;
    chunks.count = 0;
    TablePlan *plan = table_plan_of(&route->plan, &table, route->wanted);
    if (plan != NULL && (plan->has_lists || route->single)) {
        result = plan->count == 1 && !route->by_columns ? deliver_single(route, &table, plan) : NULL;
    }
    else if (plan != NULL && route->delivery.copy != OPTION_FALSE &&
             (route->delivery.has_dtype || has_one_type(plan)) && read_chunks(route, &table, plan, &chunks)) {
        bool changed = is_changed(route, &chunks, plan);
        int64_t nbytes = chunks.rows * plan->count * (plan->columns[0].dtype.bits / 8);
        if (changed                ? can_cast(route, plan)
            : nbytes > MAX_BYTES ? false
                                   : chunks.count > 1 || route->delivery.copy == OPTION_TRUE ||
                          !may_be_one_array(&chunks.chunks[0], plan) ||
                          is_divided(route, obj, &chunks.chunks[0], plan)) {
            result = deliver_matrix(route, &chunks, plan, changed);
        }
    }
    for (int i = 0; i < chunks.count; i++) {
        arrow_array_release(&chunks.chunks[i]);
    }
    arrow_table_close(&table);
    Py_XDECREF(plan);
    return result;
}

/* Converts a table to a matrix; NULL with or without an exception. */
static PyObject *
run_matrix(Route *self, PyObject *obj)
{
    TableRoute *route = (TableRoute *)self;
    bool may_copy = route->exporter->matrix != NULL && route->labels == NULL && !route->by_columns &&
                    route->delivery.copy != OPTION_FALSE && route->fill.kind == FILL_NONE && !route->delivery.has_dtype;
    if (may_copy && table_plan_width(&route->plan) >= route->exporter->matrix_width) { /* of the last table */
        PyObject *result = deliver_own_matrix(route, obj);
        if (result != NULL || !clear_error()) {
            return result;
        }
    }
    return convert_export(route, obj);
}

/* Creates a route that makes a matrix. */
static PyObject *
matrix_route_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    return table_route_make(type, args, keywords, run_matrix);
}

static PyTypeObject MatrixRouteType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "zerocopy._native._core.MatrixRoute",
    .tp_doc = "MatrixRoute(exporter, importer, mutable, marks_readonly, *, fallback=None, copy=None, writable=None, "
              "dtype=None, columns=None, nulls=None, by_columns=False, single=False): a table whose columns have one type, "
              "or get one by dtype, copied to one array; or a single column as an array of its own.",
    .tp_base = &RouteType,
    .tp_basicsize = sizeof(TableRoute),
    .tp_dealloc = table_route_dealloc,
    .tp_call = route_call,
    .tp_new = matrix_route_new,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

/* ---- stack ---- */

/* Whether an object is a column of numbers like `first`: a contiguous ndarray of its length and type. */
static bool
is_like(PyObject *obj, PyArrayObject *first)
{
    PyArrayObject *array = (PyArrayObject *)obj;
    return PyArray_CheckExact(obj) && PyArray_NDIM(array) == 1 && PyArray_IS_C_CONTIGUOUS(array) &&
           PyArray_TYPE(array) < NPY_OBJECT && PyArray_ISNOTSWAPPED(array) &&
           PyArray_TYPE(array) == PyArray_TYPE(first) && PyArray_DIM(array, 0) == PyArray_DIM(first, 0);
}

/* stack(columns): see the documentation of the function. */
static PyObject *
stack(PyObject *module, PyObject *obj)
{
    PyObject *columns = PySequence_Tuple(obj);
    size_t count = columns == NULL ? 0 : (size_t)PyTuple_GET_SIZE(columns);
    Column *pointers = count == 0 ? NULL : PyMem_Malloc(count * sizeof(Column));
    PyArrayObject *first = count == 0 ? NULL : (PyArrayObject *)PyTuple_GET_ITEM(columns, 0);
    PyObject *block = NULL, *result = NULL;
    for (size_t i = 0; pointers != NULL && i < count; i++) {
        PyArrayObject *column = (PyArrayObject *)PyTuple_GET_ITEM(columns, i);
        if (!is_like((PyObject *)column, first)) {
            PyErr_SetString(PyExc_ValueError, "columns must be contiguous ndarrays of numbers of one type and length");
            goto done;
        }
        pointers[i] = (Column){PyArray_DATA(column), (ptrdiff_t)PyArray_ITEMSIZE(column)};
    }
    if (pointers == NULL) {
        if (!PyErr_Occurred()) {
            count == 0 ? PyErr_SetString(PyExc_ValueError, "no columns") : (void)PyErr_NoMemory();
        }
        goto done;
    }
    size_t itemsize = (size_t)PyArray_ITEMSIZE(first), rows = (size_t)PyArray_DIM(first, 0);
    if (rows > INT64_MAX / 2 / count / itemsize) {
        PyErr_NoMemory();
        goto done;
    }
    char *data;
    block = new_block((int64_t)(rows * count * itemsize), &data);
    if (block == NULL) {
        goto done;
    }
    PyThreadState *unlocked = rows * count * itemsize >= UNLOCK_BYTES ? PyEval_SaveThread() : NULL;
    interleave(data, count * itemsize, pointers, count, rows, itemsize);
    if (unlocked != NULL) {
        PyEval_RestoreThread(unlocked);
    }
    npy_intp shape[2] = {(npy_intp)rows, (npy_intp)count};
    Py_INCREF(PyArray_DESCR(first)); /* the next call steals it */
    result = PyArray_NewFromDescr(&PyArray_Type, PyArray_DESCR(first), 2, shape, NULL, data, NPY_ARRAY_WRITEABLE, NULL);
    if (result != NULL && PyArray_SetBaseObject((PyArrayObject *)result, Py_NewRef(block)) < 0) {
        Py_CLEAR(result);
    }
done:
    Py_XDECREF(block);
    PyMem_Free(pointers);
    Py_XDECREF(columns);
    return result;
}

static PyMethodDef methods[] = {
    {"stack", stack, METH_O,
     "stack(columns): return a new row-major matrix, aligned to 64 bytes, of contiguous columns of numbers of one type."},
    {NULL, NULL, 0, NULL},
};

int
add_matrix_routes(PyObject *module)
{
    return PyModule_AddFunctions(module, methods) < 0 ? -1 : PyModule_AddType(module, &MatrixRouteType);
}
