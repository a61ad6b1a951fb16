/* Routes of tables that producers export through Arrow's C data interface: a dict of the target's objects. */
#include "arrow_table.h"

PyObject *
new_block(int64_t nbytes, char **data)
{
    npy_intp size = (npy_intp)nbytes + ALIGNMENT;
    PyObject *block = PyArray_SimpleNew(1, &size, NPY_UINT8);
    if (block != NULL) {
        uintptr_t address = (uintptr_t)PyArray_DATA((PyArrayObject *)block);
        *data = (char *)((address + ALIGNMENT - 1) & ~(uintptr_t)(ALIGNMENT - 1));
    }
    return block;
}

/* Makes an object over a new array of a column's numbers, cast and filled; NULL with or without an exception. */
static PyObject *
deliver_new(const TableRoute *route, const PlannedColumn *column, const struct ArrowArray *chunk)
{
    DLDataType dtype = result_dtype(route, column);
    char *data;
    PyObject *block = NULL;
    if (route->delivery.copy != OPTION_FALSE && can_fill(column->dtype) && can_fill(dtype)) {
        block = new_block(chunk->length * (dtype.bits / 8), &data);
    }
    if (block == NULL) {
        return NULL;
    }
    PyThreadState *unlocked = chunk->length * (dtype.bits / 8) >= UNLOCK_BYTES ? PyEval_SaveThread() : NULL;
    bool fits = write_column(data, dtype.bits / 8, dtype, chunk->children[column->index], column->dtype, chunk->offset,
                             chunk->length, &route->fill);
    if (unlocked != NULL) {
        PyEval_RestoreThread(unlocked);
    }
    if (!fits) { /* the slow path names the value */
        Py_DECREF(block);
        return NULL;
    }
    Memory memory;
    memory_init(&memory);
    memory.data = data;
    memory.ndim = 1;
    memory.readonly = false;
    memory.dtype = dtype;
    memory.own_shape[0] = chunk->length;
    memory.shape = memory.own_shape;
    memory.strides = NULL;
    memory.owner = block;
    Delivery fresh = route->delivery;
    fresh.copy = OPTION_FALSE; /* for a target that cannot alias the new array, the slow path decides */
    return deliver_memory(&fresh, &memory);
}

/* Whether a column's numbers are cast, or have nulls that are filled. */
static bool
is_changed(const TableRoute *route, const PlannedColumn *column, const struct ArrowArray *chunk)
{
    return column->kind == NUMBERS &&
           (!dtype_equal(column->dtype, result_dtype(route, column)) ||
            arrow_has_nulls(chunk->children[column->index], chunk->offset, chunk->length));
}

PyObject *
deliver_column(const TableRoute *route, struct ArrowArray *chunk, const PlannedColumn *column)
{
    Memory memory;
    if (route->pads && (column->kind == LISTS || column->kind == LARGE_LISTS)) {
        return deliver_padded(route, chunk, column);
    }
    if (is_changed(route, column, chunk)) {
        return deliver_new(route, column, chunk);
    }
    if (!arrow_column_memory(chunk, column, &memory)) {
        return NULL;
    }
    memory.owner = arrow_column_owner(chunk, column);
    return memory.owner == NULL ? NULL : deliver_memory(&route->delivery, &memory);
}

/* Makes an object of each column of a chunk. */
static PyObject *
deliver_columns(const TableRoute *route, const TablePlan *plan, struct ArrowArray *chunk)
{
    PyObject *result = PyDict_New();
    for (int64_t i = 0; result != NULL && i < plan->count; i++) {
        PyObject *made = deliver_column(route, chunk, &plan->columns[i]);
        if (made == NULL || PyDict_SetItem(result, plan->columns[i].label, made) < 0) {
            Py_CLEAR(result);
        }
        Py_XDECREF(made);
    }
    return result;
}

/* Converts a table of one chunk to a dict; NULL with or without an exception. */
static PyObject *
run_table(Route *self, PyObject *obj)
{
    TableRoute *route = (TableRoute *)self;
    ArrowTable table;
    struct ArrowArray chunk = {0}, next = {0};
    PyObject *result = NULL;
    if (arrow_table_open(route->exporter, obj, route->labels, &table) < 0) {
        return NULL;
    }
    /* Read before the data, so that a table that is refused for its types exports no data. */
    TablePlan *plan = table_plan_of(&route->plan, &table, route->wanted);
    if (plan == NULL) {
        goto done;
    }
    /* The slow path converts tables of several chunks, and reports why it copies them. */
    if (arrow_table_next(&table, &chunk) == 1 && arrow_chunk_fits(&chunk, plan, &route->fill) &&
        arrow_table_next(&table, &next) == 0) {
        result = deliver_columns(route, plan, &chunk);
    }
done:
    arrow_array_release(&chunk);
    arrow_array_release(&next);
    arrow_table_close(&table);
    Py_XDECREF(plan);
    return result;
}

void
table_route_dealloc(PyObject *self)
{
    TableRoute *route = (TableRoute *)self;
    Py_XDECREF(route->exporter);
    Py_XDECREF(route->delivery.importer);
    Py_XDECREF(route->labels);
    Py_XDECREF(route->wanted);
    Py_XDECREF(route->plan);
    route_dealloc(self);
}

PyObject *
table_route_make(PyTypeObject *type, PyObject *args, PyObject *keywords,
                 PyObject *(*run)(Route *self, PyObject *obj))
{
    static char *names[] = {"",     "",         "mutable", "marks_readonly", "fallback",
                            "copy", "writable", "dtype",   "columns",        "nulls", "by_columns", "pads",
                            "single", NULL};
    PyObject *exporter, *importer, *fallback = Py_None, *columns = Py_None, *nulls = Py_None;
    PyObject *copy = Py_None, *writable = Py_None, *dtype = Py_None;
    int is_mutable, marks_readonly, by_columns = 0, pads = 0, single = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!O!pp|$OOOOOOppp:Route", names, &TableExporterType,
                                     &exporter, &ImporterType, &importer, &is_mutable, &marks_readonly, &fallback,
                                     &copy, &writable, &dtype, &columns, &nulls, &by_columns, &pads, &single)) {
        return NULL;
    }
    TableRoute *self = PyObject_New(TableRoute, type);
    if (self == NULL) {
        return NULL;
    }
    memset((char *)self + sizeof(PyObject), 0, sizeof(TableRoute) - sizeof(PyObject));
    self->base.run = run;
    self->base.asks_once = false;
    self->base.fallback = fallback == Py_None ? NULL : Py_NewRef(fallback);
    self->exporter = (TableExporter *)Py_NewRef(exporter);
    self->by_columns = by_columns;
    self->pads = pads;
    self->single = single;
    if (!fill_parse(nulls, &self->fill)) {
        PyErr_SetString(PyExc_ValueError, "nulls must be 'nan', a float, or an int of at most 53 bits");
        Py_DECREF(self);
        return NULL;
    }
    if (delivery_init(&self->delivery, importer, is_mutable, marks_readonly, copy, writable, dtype) < 0 ||
        table_labels_parse(columns, &self->wanted) < 0 ||
        (self->wanted != NULL && (self->labels = PyDict_Keys(self->wanted)) == NULL)) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

/* Creates a route that makes a dict of columns. */
static PyObject *
table_route_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    return table_route_make(type, args, keywords, run_table);
}

static PyTypeObject TableRouteType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "zerocopy._native._core.TableRoute",
    .tp_doc = "TableRoute(exporter, importer, mutable, marks_readonly, *, fallback=None, copy=None, writable=None, "
              "dtype=None, columns=None, nulls=None, pads=False): a table of numbers in one chunk to a dict.",
    .tp_base = &RouteType,
    .tp_basicsize = sizeof(TableRoute),
    .tp_dealloc = table_route_dealloc,
    .tp_call = route_call,
    .tp_new = table_route_new,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

int
add_table_routes(PyObject *module)
{
    return PyModule_AddType(module, &TableRouteType);
}
