/* Tables of ndarrays as one PlainArray: the structs of Arrow's C data interface over the arrays' memory.

   Consumers may move each child out of its parent, so each has memory and a release callback of its own. */
#include "arrow_table.h"

#include <stdlib.h>

/* Returns the format of a number, or NULL. */
static const char *
format_of(DLDataType dtype)
{
    static const char *const formats[] = {"c", "C", "s", "S", "i", "I", "l", "L", "e", "f", "g"};
    DLDataType known;
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
        if (arrow_dtype(formats[i], &known) && dtype_equal(known, dtype)) {
            return formats[i];
        }
    }
    return NULL;
}

/* ---- release callbacks: on any thread, also without the GIL ---- */

static void
release_field(struct ArrowSchema *field)
{
    free(field->private_data); /* its name */
    field->release = NULL;
}

static void
release_schema(struct ArrowSchema *schema)
{
    for (int64_t i = 0; i < schema->n_children; i++) {
        if (schema->children[i]->release != NULL) {
            schema->children[i]->release(schema->children[i]);
        }
    }
    free(schema->private_data);
    schema->release = NULL;
}

static void
release_column(struct ArrowArray *column)
{
    managed_tensor_free(column->private_data);
    column->release = NULL;
}

static void
release_table(struct ArrowArray *table)
{
    for (int64_t i = 0; i < table->n_children; i++) {
        if (table->children[i]->release != NULL) {
            table->children[i]->release(table->children[i]);
        }
    }
    free(table->private_data);
    table->release = NULL;
}

/* ---- parents: structs whose children are empty ---- */

/* Allocates a schema with `count` fields; -1 with an exception. */
static int
schema_new(Py_ssize_t count, struct ArrowSchema *out)
{
    struct ArrowSchema *fields = calloc((size_t)count, sizeof(*fields) + sizeof(fields));
    if (fields == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    struct ArrowSchema **children = (struct ArrowSchema **)(fields + count);
    for (Py_ssize_t i = 0; i < count; i++) {
        children[i] = fields + i;
    }
    *out = (struct ArrowSchema){
        .format = "+s",
        .name = "",
        .n_children = count,
        .children = children,
        .release = release_schema,
        .private_data = fields,
    };
    return 0;
}

/* Allocates an array of a struct with `count` columns; -1 with an exception. */
static int
table_new(Py_ssize_t count, struct ArrowArray *out)
{
    struct ArrowArray *columns = calloc(1, (size_t)count * (sizeof(*columns) + sizeof(columns)) + sizeof(void *));
    if (columns == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    struct ArrowArray **children = (struct ArrowArray **)(columns + count);
    for (Py_ssize_t i = 0; i < count; i++) {
        children[i] = columns + i;
    }
    *out = (struct ArrowArray){
        .n_buffers = 1,
        .n_children = count,
        .buffers = (const void **)(children + count), /* one, without a bitmap */
        .children = children,
        .release = release_table,
        .private_data = columns,
    };
    return 0;
}

/* ---- children ---- */

/* Fills a field of a name and a type; -1 with an exception. */
static int
fill_field(struct ArrowSchema *field, PyObject *name, const char *format)
{
    Py_ssize_t size;
    const char *text = PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, &size) : NULL;
    if (text == NULL || strlen(text) != (size_t)size) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_ValueError, "a name is not text, or has a zero byte");
        }
        return -1;
    }
    char *copy = malloc((size_t)size + 1);
    if (copy == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    memcpy(copy, text, (size_t)size + 1);
    *field = (struct ArrowSchema){
        .format = format,
        .name = copy,
        .flags = ARROW_FLAG_NULLABLE,
        .release = release_field,
        .private_data = copy,
    };
    return 0;
}

/* Fills a column over memory of one dimension, and takes its owner, also on failure; -1 with an exception. */
static int
fill_column(struct ArrowArray *column, Memory *memory)
{
    int64_t length = memory->shape[0];
    void *data = memory->data;
    ManagedTensor *tensor = managed_tensor_new(memory);
    if (tensor == NULL) {
        return -1;
    }
    /* The words of shape and stride, which are not needed, hold the two buffers: no bitmap, and the values. */
    const void **buffers = (const void **)tensor->numbers;
    buffers[0] = NULL;
    buffers[1] = data;
    *column = (struct ArrowArray){
        .length = length,
        .n_buffers = 2,
        .buffers = buffers,
        .release = release_column,
        .private_data = tensor,
    };
    return 0;
}

/* Describes column number `i`: an ndarray of a sequence, or a row of a matrix. False with or without an exception. */
static bool
describe(PyObject *columns, bool is_matrix, Py_ssize_t i, Memory *out)
{
    PyObject *array = is_matrix ? columns : PySequence_Fast_GET_ITEM(columns, i);
    if (!PyArray_CheckExact(array) || PyArray_NDIM((PyArrayObject *)array) != 1 + is_matrix ||
        export_ndarray(array, out) < 0) {
        return false;
    }
    if (!memory_is_row_major(out)) {
        memory_release(out);
        return false;
    }
    if (is_matrix) {
        out->own_shape[0] = out->own_shape[1];
        out->data = (char *)out->data + i * out->own_shape[0] * (out->dtype.bits / 8);
        out->ndim = 1;
    }
    out->strides = NULL;
    return true;
}

/* Fills the children of both structs; -1 with or without an exception. */
static int
fill(PyObject *names, PyObject *columns, bool is_matrix, struct ArrowSchema *schema, struct ArrowArray *table)
{
    Memory memory;
    for (Py_ssize_t i = 0; i < schema->n_children; i++) {
        if (!describe(columns, is_matrix, i, &memory)) {
            return -1;
        }
        int64_t length = memory.shape[0];
        const char *format = format_of(memory.dtype);
        if (format == NULL || (i > 0 && length != table->length) ||
            fill_field(schema->children[i], PySequence_Fast_GET_ITEM(names, i), format) < 0) {
            memory_release(&memory);
            return -1;
        }
        table->length = length;
        if (fill_column(table->children[i], &memory) < 0) {
            return -1;
        }
    }
    return 0;
}

/* plain_table(names, columns): see the documentation of the function. */
static PyObject *
plain_table(PyObject *module, PyObject *args)
{
    PyObject *names, *columns, *made = NULL;
    if (!PyArg_ParseTuple(args, "OO:plain_table", &names, &columns)) {
        return NULL;
    }
    bool is_matrix = PyArray_CheckExact(columns) && PyArray_NDIM((PyArrayObject *)columns) == 2;
    bool are_lists = PyList_CheckExact(names) && (is_matrix || PyList_CheckExact(columns));
    Py_ssize_t count = !are_lists  ? 0
                       : is_matrix ? PyArray_DIM((PyArrayObject *)columns, 0)
                                   : PyList_GET_SIZE(columns);
    struct ArrowSchema schema = {0};
    struct ArrowArray table = {0};
    Py_INCREF(names);
    Py_INCREF(columns);
#ifdef Py_GIL_DISABLED
    if (are_lists) { /* another thread may shorten the lists */
        Py_SETREF(names, PySequence_Tuple(names));
        Py_SETREF(columns, is_matrix ? Py_NewRef(columns) : PySequence_Tuple(columns));
        count = names == NULL || columns == NULL ? 0 : is_matrix ? count : PyTuple_GET_SIZE(columns);
    }
#endif
    if (count > 0 && count == PySequence_Fast_GET_SIZE(names) && schema_new(count, &schema) == 0 &&
        table_new(count, &table) == 0 && fill(names, columns, is_matrix, &schema, &table) == 0) {
        made = plain_array_new(&schema, &table, true, false);
    }
    Py_XDECREF(names);
    Py_XDECREF(columns);
    arrow_schema_release(&schema);
    arrow_array_release(&table);
    if (made == NULL && !PyErr_Occurred()) {
        PyErr_SetString(PyExc_ValueError, "not ndarrays of plain numbers of one length, each contiguous: the slow path decides");
    }
    return made;
}

static PyMethodDef methods[] = {
    {"plain_table", plain_table, METH_VARARGS,
     "plain_table(names, columns): a PlainArray that aliases a list of ndarrays, or the rows of a matrix; ValueError "
     "unless they are contiguous numbers of one length that is not 0."},
    {NULL, NULL, 0, NULL},
};

int
add_plain_tables(PyObject *module)
{
    return PyModule_AddFunctions(module, methods);
}
