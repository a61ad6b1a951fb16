/* Tables of Arrow producers: the capsules, the checks of a chunk, and the owners of its columns.

   The C data interface has no sizes of buffers. If a framework's tables can have buffers that are too small, as
   from a crafted IPC file, the framework gives its exporter a `check`. */
#include "arrow_table.h"

/* ---- TableExporter ---- */

/* Frees an exporter. */
static void
table_exporter_dealloc(PyObject *self)
{
    TableExporter *exporter = (TableExporter *)self;
    Py_XDECREF(exporter->function);
    Py_XDECREF(exporter->check);
    Py_XDECREF(exporter->select);
    Py_XDECREF(exporter->matrix);
    Py_XDECREF(exporter->extent);
    PyObject_Free(self);
}

/* Parses (function, *, check, select, matrix, matrix_width, extent). */
static PyObject *
table_exporter_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"", "check", "select", "matrix", "matrix_width", "extent", NULL};
    PyObject *function, *check = Py_None, *select = Py_None, *matrix = Py_None, *extent = Py_None;
    Py_ssize_t matrix_width = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|$OOOnO:TableExporter", names, &function, &check, &select,
                                     &matrix, &matrix_width, &extent)) {
        return NULL;
    }
    TableExporter *self = PyObject_New(TableExporter, type);
    if (self != NULL) {
        self->function = Py_NewRef(function);
        self->check = Py_XNewRef(unless_none(check));
        self->select = Py_XNewRef(unless_none(select));
        self->matrix = Py_XNewRef(unless_none(matrix));
        self->matrix_width = matrix_width;
        self->extent = Py_XNewRef(unless_none(extent));
    }
    return (PyObject *)self;
}

PyTypeObject TableExporterType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "zerocopy._native._core.TableExporter",
    .tp_doc = "TableExporter(function, *, check=None, select=None, matrix=None, matrix_width=0, extent=None): "
              "function(table) returns the capsule of __arrow_c_stream__ or those of __arrow_c_array__; check(table) "
              "raises for tables that must not be read, and returns False for an object that is not a table, otherwise "
              "None or an object that tables of equal schemas have in common; select(table, labels) returns a table of these columns only; matrix(table) returns None or a "
              "new row-major ndarray of all columns, and is called after a table of at least matrix_width columns; "
              "extent(table) returns the bounds of the allocation that holds the first column, or None if they are "
              "unknown.",
    .tp_basicsize = sizeof(TableExporter),
    .tp_dealloc = table_exporter_dealloc,
    .tp_new = table_exporter_new,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

/* ---- releases: a callback may run Python code, which must not run while an exception is set ---- */

void
arrow_array_release(struct ArrowArray *array)
{
    if (array->release != NULL) {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        array->release(array);
        array->release = NULL;
        PyErr_Restore(type, value, traceback);
    }
}

/* The same for a schema. */
static void
arrow_schema_release(struct ArrowSchema *schema)
{
    if (schema->release != NULL) {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        schema->release(schema);
        schema->release = NULL;
        PyErr_Restore(type, value, traceback);
    }
}

void
arrow_table_close(ArrowTable *table)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    arrow_array_release(&table->array);
    arrow_schema_release(&table->schema);
    if (table->stream.release != NULL) {
        table->stream.release(&table->stream);
        table->stream.release = NULL;
    }
    Py_CLEAR(table->key);
    PyErr_Restore(type, value, traceback);
}

/* ---- reading ---- */

/* Moves a struct, whose `release` is at `release_offset`, out of a capsule. Returns -1 with or without an exception
   for other capsules, and for structs that were moved before. */
static int
take_struct(PyObject *capsule, const char *name, void *out, size_t size, size_t release_offset)
{
    char *source = PyCapsule_GetPointer(capsule, name);
    void *released = NULL;
    if (source == NULL || memcmp(source + release_offset, &released, sizeof(released)) == 0) {
        return -1;
    }
    memcpy(out, source, size);
    memcpy(source + release_offset, &released, sizeof(released));
    return 0;
}

#define TAKE(capsule, name, out, type) \
    take_struct(capsule, name, out, sizeof(struct type), offsetof(struct type, release))

/* Moves the structs of an export to `out`; -1 with or without an exception. */
static int
take_export(PyObject *exported, ArrowTable *out)
{
    if (PyTuple_Check(exported) && PyTuple_GET_SIZE(exported) == 2) {
        if (TAKE(PyTuple_GET_ITEM(exported, 0), "arrow_schema", &out->schema, ArrowSchema) < 0) {
            return -1;
        }
        return TAKE(PyTuple_GET_ITEM(exported, 1), "arrow_array", &out->array, ArrowArray);
    }
    if (TAKE(exported, "arrow_array_stream", &out->stream, ArrowArrayStream) < 0) {
        return -1;
    }
    return out->stream.get_schema == NULL || out->stream.get_next == NULL ? -1 : 0;
}

const struct ArrowSchema *
arrow_table_schema(ArrowTable *table)
{
    if (table->schema.release == NULL && table->stream.release != NULL) {
        struct ArrowSchema schema = {0}; /* if get_schema fails, its output is invalid and must not be released */
        if (table->stream.get_schema(&table->stream, &schema) == 0) {
            table->schema = schema;
        }
    }
    return table->schema.release == NULL ? NULL : &table->schema;
}

int
arrow_table_open(const TableExporter *exporter, PyObject *obj, PyObject *labels, ArrowTable *out)
{
    out->stream.release = NULL;
    out->schema.release = NULL;
    out->array.release = NULL;
    out->key = NULL;
    if (labels != NULL && exporter->select != NULL) {
        PyObject *arguments[3] = {NULL, obj, labels};
        obj = PyObject_Vectorcall(exporter->select, arguments + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
        if (obj == NULL) {
            return -1;
        }
    }
    else {
        Py_INCREF(obj);
    }
    PyObject *exported = NULL;
    int status = -1;
    if (exporter->check != NULL) {
        out->key = call_one(exporter->check, obj);
        if (out->key == NULL) {
            goto done;
        }
        bool is_declined = out->key == Py_False;
        if (is_declined || out->key == Py_None) {
            Py_CLEAR(out->key);
        }
        if (is_declined) {
            goto done;
        }
    }
    exported = call_one(exporter->function, obj);
    if (exported != NULL) {
        status = take_export(exported, out);
    }
    if (status < 0) {
        arrow_table_close(out);
    }
done:
    Py_XDECREF(exported);
    Py_DECREF(obj);
    return status;
}

int
arrow_table_next(ArrowTable *table, struct ArrowArray *out)
{
    struct ArrowArray array = {0}; /* if get_next fails, its output is invalid and must not be released */
    if (table->stream.release == NULL) {
        array = table->array;
        table->array.release = NULL;
    }
    else if (table->stream.get_next(&table->stream, &array) != 0) {
        return -1;
    }
    *out = array;
    return array.release != NULL;
}

/* ---- chunks ---- */

bool
arrow_has_no_nulls(const struct ArrowArray *array)
{
    return array->null_count == 0 || (array->null_count == -1 && array->buffers[0] == NULL);
}

bool
arrow_has_parts(const struct ArrowArray *array, int64_t n_buffers, int64_t n_children)
{
    const int64_t limit = INT64_MAX / 32; /* the sum of three such numbers, times 8 bytes, fits into 63 bits */
    return array->release != NULL && array->dictionary == NULL && array->n_buffers == n_buffers &&
           array->n_children == n_children && array->buffers != NULL && array->length >= 0 && array->offset >= 0 &&
           array->length <= limit && array->offset <= limit;
}

/* Whether `count` elements at an address are aligned, and at addresses that a process can have. */
static bool
is_in_memory(const void *buffer, uint64_t width, int64_t count)
{
    uint64_t address = (uintptr_t)buffer;
    return address != 0 && address % width == 0 && address <= LAST_ADDRESS &&
           (uint64_t)count <= (LAST_ADDRESS - address) / width;
}

/* Whether an array of numbers holds `count` of them from number `first` on, aligned; fills their address. */
static bool
has_values(const struct ArrowArray *array, DLDataType dtype, int64_t first, int64_t count, void **out)
{
    if (array == NULL || !arrow_has_parts(array, 2, 0) || array->length < first + count) {
        return false;
    }
    /* Misaligned values are refused here; the slow path copies them. */
    if (!is_in_memory(array->buffers[1], dtype.bits / 8, array->offset + first + count)) {
        return false;
    }
    *out = (char *)array->buffers[1] + (array->offset + first) * (dtype.bits / 8);
    return true;
}

/* Whether an array of numbers holds `count` of them from number `first` on, aligned and without nulls; fills their
   address. */
static bool
arrow_has_numbers(const struct ArrowArray *array, DLDataType dtype, int64_t first, int64_t count, void **out)
{
    return has_values(array, dtype, first, count, out) && arrow_has_no_nulls(array);
}

/* Whether all `rows` lists have one length; fills it, and the item with which the first begins. The offsets of the
   first list and of the last are inside the items if the others are equally spaced: the caller checks the items. */
#define HAS_ONE_LENGTH(name, type, unsigned_type)                                                    \
    static bool name(const type *offsets, int64_t rows, int64_t *start, int64_t *size)               \
    {                                                                                                \
        unsigned_type step = (unsigned_type)offsets[1] - (unsigned_type)offsets[0], differs = 0;     \
        for (int64_t i = 1; i < rows; i++) {                                                         \
            differs |= ((unsigned_type)offsets[i + 1] - (unsigned_type)offsets[i]) ^ step;           \
        }                                                                                            \
        *start = (int64_t)offsets[0];                                                                \
        *size = (int64_t)offsets[1] - (int64_t)offsets[0];                                           \
        return differs == 0;                                                                         \
    }

HAS_ONE_LENGTH(has_one_length, int32_t, uint32_t)
HAS_ONE_LENGTH(has_one_large_length, int64_t, uint64_t)

/* Finds the items of `rows` lists from row `first` of an array on; false for nulls and several lengths. */
static bool
find_items(const struct ArrowArray *array, const PlannedColumn *column, int64_t first, int64_t rows, int64_t *start,
           int64_t *size)
{
    bool is_fixed = column->kind == FIXED_LISTS;
    if (!arrow_has_parts(array, is_fixed ? 1 : 2, 1) || array->children == NULL || array->length < first + rows ||
        !arrow_has_no_nulls(array)) {
        return false;
    }
    first += array->offset;
    if (is_fixed) {
        *size = column->list_size;
        *start = *size == 0 || first <= INT64_MAX / 32 / *size ? first * *size : -1;
    }
    else {
        const void *offsets = array->buffers[1];
        size_t width = column->kind == LISTS ? sizeof(int32_t) : sizeof(int64_t);
        if (!is_in_memory(offsets, width, first + rows + 1) ||
            !(column->kind == LISTS ? has_one_length((const int32_t *)offsets + first, rows, start, size)
                                    : has_one_large_length((const int64_t *)offsets + first, rows, start, size))) {
            return false;
        }
    }
    /* The product and the sum fit into 63 bits. */
    int64_t limit = column->kind == LISTS ? INT32_MAX : INT64_MAX / 32;
    return *start >= 0 && *size >= 0 && (*size == 0 || rows <= limit / *size) && *start <= limit - rows * *size;
}

bool
arrow_column_lists(const struct ArrowArray *chunk, const PlannedColumn *column, const void **offsets, void **items)
{
    const struct ArrowArray *array = chunk->children[column->index];
    size_t width = column->kind == LISTS ? sizeof(int32_t) : sizeof(int64_t);
    int64_t first = chunk->offset, rows = chunk->length;
    if (array == NULL || !arrow_has_parts(array, 2, 1) || array->children == NULL || array->length < first + rows ||
        !arrow_has_no_nulls(array) || !is_in_memory(array->buffers[1], width, array->offset + first + rows + 1)) {
        return false;
    }
    *offsets = (const char *)array->buffers[1] + (size_t)(array->offset + first) * width;
    int64_t start = width == 4 ? ((const int32_t *)*offsets)[0] : ((const int64_t *)*offsets)[0];
    int64_t end = width == 4 ? ((const int32_t *)*offsets)[rows] : ((const int64_t *)*offsets)[rows];
    return start >= 0 && start <= end && end <= INT64_MAX / 32 &&
           arrow_has_numbers(array->children[0], column->dtype, start, end - start, items);
}

bool
arrow_column_memory(const struct ArrowArray *chunk, const PlannedColumn *column, Memory *out)
{
    const struct ArrowArray *array = chunk->children[column->index];
    int64_t start = chunk->offset, rows = chunk->length, size = 1;
    memory_init(out);
    out->ndim = 1;
    if (column->kind != NUMBERS) {
        if (array == NULL || !find_items(array, column, chunk->offset, rows, &start, &size)) {
            return false;
        }
        array = array->children[0];
        out->ndim = 2;
    }
    if (!arrow_has_numbers(array, column->dtype, start, rows * size, &out->data)) {
        return false;
    }
    out->own_shape[0] = rows;
    out->own_shape[1] = size;
    out->shape = out->own_shape;
    out->strides = NULL;
    out->readonly = true;
    out->dtype = column->dtype;
    return true;
}

bool
arrow_chunk_fits(const struct ArrowArray *chunk, const TablePlan *plan, const Fill *fill)
{
    if (!arrow_has_parts(chunk, 1, plan->n_children) || chunk->length == 0 || chunk->children == NULL ||
        !arrow_has_no_nulls(chunk)) {
        return false;
    }
    void *data;
    for (int64_t i = 0; i < plan->count; i++) {
        const PlannedColumn *column = &plan->columns[i];
        const struct ArrowArray *array = chunk->children[column->index];
        if (column->kind != NUMBERS) {
            continue;
        }
        if (!has_values(array, column->dtype, chunk->offset, chunk->length, &data) ||
            !(arrow_has_no_nulls(array) || (fill->kind != FILL_NONE &&
              is_in_memory(array->buffers[0], 1, (array->offset + chunk->offset + chunk->length + 7) / 8)))) {
            return false;
        }
    }
    return true;
}

char *
arrow_column_data(const struct ArrowArray *chunk, const PlannedColumn *column)
{
    const struct ArrowArray *array = chunk->children[column->index];
    return (char *)array->buffers[1] + (chunk->offset + array->offset) * (column->dtype.bits / 8);
}

/* ---- owners ---- */

typedef struct {
    PyObject_HEAD
    struct ArrowArray array;
} ArrowOwner;

/* Releases the array. */
static void
arrow_owner_dealloc(PyObject *self)
{
    arrow_array_release(&((ArrowOwner *)self)->array);
    PyObject_Free(self);
}

/* owner.import_by(function, schema): returns function(address of the ArrowArray, schema). The function moves the array.
   The owner lives until the function returns. */
static PyObject *
arrow_owner_import_by(PyObject *self, PyObject *args)
{
    PyObject *function, *schema;
    if (!PyArg_ParseTuple(args, "OO:import_by", &function, &schema)) {
        return NULL;
    }
    return PyObject_CallFunction(function, "NO", PyLong_FromVoidPtr(&((ArrowOwner *)self)->array), schema);
}

/* owner.move_to(address): moves the ArrowArray to an address. */
static PyObject *
arrow_owner_move_to(PyObject *self, PyObject *address)
{
    struct ArrowArray *array = &((ArrowOwner *)self)->array, *out = PyLong_AsVoidPtr(address);
    if (out == NULL || array->release == NULL) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_ValueError, "the address is NULL, or the array has already been moved");
        }
        return NULL;
    }
    *out = *array;
    array->release = NULL;
    Py_RETURN_NONE;
}

static PyMethodDef arrow_owner_methods[] = {
    {"import_by", arrow_owner_import_by, METH_VARARGS, NULL},
    {"move_to", arrow_owner_move_to, METH_O, NULL},
    {0},
};

static PyTypeObject ArrowOwnerType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "zerocopy._native._core.ArrowOwner",
    .tp_doc = "Keeps an Arrow array alive.",
    .tp_basicsize = sizeof(ArrowOwner),
    .tp_dealloc = arrow_owner_dealloc,
    .tp_methods = arrow_owner_methods,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
};

/* Moves an array to a Python object that releases it; NULL with an exception. */
static PyObject *
arrow_owner_new(struct ArrowArray *array)
{
    ArrowOwner *owner = PyObject_New(ArrowOwner, &ArrowOwnerType);
    if (owner != NULL) {
        owner->array = *array;
        array->release = NULL; /* moved: a chunk that it belongs to does not release it */
    }
    return (PyObject *)owner;
}

PyObject *
arrow_column_owner(struct ArrowArray *chunk, const PlannedColumn *column)
{
    struct ArrowArray *array = chunk->children[column->index];
    if (array->release == NULL) {
        return NULL; /* moved before: the chunk has one array twice among its children */
    }
    return arrow_owner_new(array);
}

/* read_single_array(exported): see the documentation of the function. */
static PyObject *
read_single_array(PyObject *module, PyObject *exported)
{
    ArrowTable table = {0};
    struct ArrowArray array = {0}, other = {0};
    PyObject *owner = NULL;
    if (take_export(exported, &table) == 0 && arrow_table_next(&table, &array) == 1 &&
        (table.stream.release == NULL || arrow_table_next(&table, &other) == 0)) {
        owner = arrow_owner_new(&array);
    }
    arrow_array_release(&array);
    arrow_array_release(&other);
    arrow_table_close(&table);
    if (owner == NULL && !PyErr_Occurred()) {
        PyErr_SetString(PyExc_ValueError, "the export has no array, or several");
    }
    return owner;
}

static PyMethodDef methods[] = {
    {"read_single_array", read_single_array, METH_O,
     "read_single_array(exported): return the only array of a stream's capsule, or of a pair of capsules, as an object "
     "that releases the array unless it is moved. Raises ValueError for another number of arrays."},
    {NULL, NULL, 0, NULL},
};

int
add_arrow_tables(PyObject *module)
{
    return PyModule_AddType(module, &TableExporterType) < 0 || PyModule_AddType(module, &ArrowOwnerType) < 0
               ? -1
               : PyModule_AddFunctions(module, methods);
}
