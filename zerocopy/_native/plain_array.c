/* Columns and tables of plain values of Arrow producers: one array each, whose structs are checked once.

   Consumers take a PlainArray by `__arrow_c_array__`; a ColumnExporter describes one column of numbers to the importers
   of tensors. What the checks refuse, the slow path reads. */
#include "arrow_table.h"

#include <stdatomic.h>
#include <structmember.h>

/* ---- checks ---- */

/* Whether a type is numbers, booleans, or text: no dictionary, no children, and no extension type. */
static bool
is_plain(const struct ArrowSchema *schema)
{
    if (schema == NULL || schema->format == NULL || schema->dictionary != NULL || schema->metadata != NULL ||
        schema->n_children != 0) {
        return false;
    }
    const char *format = schema->format;
    return strcmp(format, "vu") == 0 || (format[0] != 0 && format[1] == 0 && strchr("bcCsSiIlLefguU", format[0]) != NULL);
}

/* The `release` of a schema without memory of its own. */
static void
release_nothing(struct ArrowSchema *schema)
{
    schema->release = NULL;
}

/* Replaces the schema of a plain column by one of the same type without a name: a PlainArray of one has none. */
static void
forget_name(struct ArrowSchema *schema)
{
    static const char letters[] = "bcCsSiIlLefguU", *const formats[] = {"b", "c", "C", "s", "S", "i", "I", "l",
                                                                        "L", "e", "f", "g", "u", "U"};
    char code = schema->format[0];
    struct ArrowSchema bare = {
        .format = code == 'v' ? "vu" : formats[strchr(letters, code) - letters],
        .name = "",
        .flags = schema->flags,
        .release = release_nothing,
    };
    schema->release(schema);
    *schema = bare;
}

/* Whether a field's name is UTF-8: pyarrow imports other names, and raises UnicodeDecodeError when they are read. */
static bool
has_text_name(const struct ArrowSchema *field)
{
    const unsigned char *end = (const unsigned char *)field->name;
    if (end == NULL) {
        return true;
    }
    while (*end != 0 && *end < 0x80) {
        end++;
    }
    if (*end == 0) {
        return true;
    }
    PyObject *label = PyUnicode_DecodeUTF8(field->name, (Py_ssize_t)strlen(field->name), NULL);
    if (label == NULL) {
        PyErr_Clear();
        return false;
    }
    Py_DECREF(label);
    return true;
}

/* Whether a schema is a struct of plain columns. */
static bool
is_plain_table(const struct ArrowSchema *schema)
{
    if (schema->format == NULL || strcmp(schema->format, "+s") != 0 || schema->n_children < 1 ||
        schema->n_children > MAX_FIELDS || schema->children == NULL || schema->dictionary != NULL || schema->metadata != NULL) {
        return false;
    }
    for (int64_t i = 0; i < schema->n_children; i++) {
        if (!is_plain(schema->children[i]) || !has_text_name(schema->children[i])) {
            return false;
        }
    }
    return true;
}

/* Whether a column's first and last offsets of text are in order. */
static bool
has_offsets(const struct ArrowArray *array, bool is_large, int64_t end)
{
    const void *offsets = array->buffers[1];
    if (!is_in_memory(offsets, is_large ? 8 : 4, end + 1)) {
        return false;
    }
    int64_t first = is_large ? ((const int64_t *)offsets)[array->offset] : ((const int32_t *)offsets)[array->offset];
    int64_t last = is_large ? ((const int64_t *)offsets)[end] : ((const int32_t *)offsets)[end];
    return first >= 0 && last >= first && (last == 0 || array->buffers[2] != NULL);
}

/* Whether an array has the parts that a plain type needs, for exactly `length` values. */
static bool
fits_plain(const struct ArrowSchema *schema, const struct ArrowArray *array, int64_t length)
{
    char code = schema->format[0];
    bool is_view = code == 'v', is_text = code == 'u' || code == 'U';
    if (array == NULL) {
        return false;
    }
    int64_t n_buffers = is_view || is_text ? 3 : 2;
    if (is_view && array->n_buffers > n_buffers) { /* any number of blocks of text */
        n_buffers = array->n_buffers;
    }
    if (!arrow_has_parts(array, n_buffers, 0) || array->length != length) {
        return false;
    }
    if (array->null_count < -1 || array->null_count > length ||
        (array->null_count > 0 && array->buffers[0] == NULL)) {
        return false;
    }
    int64_t end = array->offset + length;
    DLDataType dtype;
    if (is_text) {
        return has_offsets(array, code == 'U', end);
    }
    if (is_view) {
        return is_in_memory(array->buffers[1], 4, 4 * end);
    }
    return code == 'b' ? is_in_memory(array->buffers[1], 1, (end + 7) / 8)
                       : arrow_dtype(schema->format, &dtype) &&
                             is_in_memory(array->buffers[1], dtype.bits / 8, end);
}

/* Whether an array has rows, and what its plain schema needs. */
static bool
fits(const struct ArrowSchema *schema, const struct ArrowArray *array, bool is_table)
{
    if (array->length < 1) {
        return false;
    }
    if (!is_table) {
        return fits_plain(schema, array, array->length);
    }
    /* Consumers lose the offset of a struct, and the rows that are null. */
    if (!arrow_has_parts(array, 1, schema->n_children) || array->children == NULL || array->offset != 0 ||
        !arrow_has_no_nulls(array)) {
        return false;
    }
    for (int64_t i = 0; i < schema->n_children; i++) {
        if (!fits_plain(schema->children[i], array->children[i], array->length)) {
            return false;
        }
    }
    return true;
}

/* ---- PlainArray ---- */

typedef struct {
    PyObject_HEAD
    struct ArrowSchema schema;
    struct ArrowArray array;
    const char *format; /* of a column, in static memory; NULL for a table */
    PyObject *schema_key; /* the same object for tables of the same schema, or NULL */
    char is_table, has_views;
    _Atomic(bool) is_taken; /* by the thread that moves the structs: without the GIL, several may ask */
} PlainArray;

/* Releases what no consumer has taken. */
static void
plain_array_dealloc(PyObject *self)
{
    PlainArray *plain = (PlainArray *)self;
    arrow_array_release(&plain->array);
    arrow_schema_release(&plain->schema);
    Py_XDECREF(plain->schema_key);
    PyObject_Free(self);
}

/* Releases the struct of a capsule that no consumer has taken. The context is its pointer too, because a consumer that
   has taken the struct may rename the capsule, as those of DLPack do. */
static void
schema_capsule_free(PyObject *capsule)
{
    struct ArrowSchema *schema = PyCapsule_GetContext(capsule);
    arrow_schema_release(schema);
    PyMem_Free(schema);
}

static void
array_capsule_free(PyObject *capsule)
{
    struct ArrowArray *array = PyCapsule_GetContext(capsule);
    arrow_array_release(array);
    PyMem_Free(array);
}

/* Moves a struct to the heap, and returns its capsule; NULL with an exception. */
static PyObject *
new_capsule(void *source, size_t size, size_t release_offset, const char *name, PyCapsule_Destructor destructor)
{
    void *moved = PyMem_Malloc(size), *released = NULL;
    if (moved == NULL) {
        return PyErr_NoMemory();
    }
    memcpy(moved, source, size);
    PyObject *capsule = PyCapsule_New(moved, name, destructor);
    if (capsule == NULL) {
        PyMem_Free(moved);
        return NULL;
    }
    (void)PyCapsule_SetContext(capsule, moved); /* fails for objects that are not capsules */
    memcpy((char *)source + release_offset, &released, sizeof(released));
    return capsule;
}

/* Marks the structs as taken; -1 with an exception if they are taken already. */
static int
take(PlainArray *plain)
{
    if (atomic_exchange(&plain->is_taken, true)) {
        PyErr_SetString(PyExc_ValueError, "the array was exported before, which is possible once");
        return -1;
    }
    return 0;
}

/* plain.array_address(): where the struct is, for a consumer that moves it and knows its type; once. */
static PyObject *
plain_array_address(PyObject *self, PyObject *unused)
{
    PlainArray *plain = (PlainArray *)self;
    return take(plain) < 0 ? NULL : PyLong_FromVoidPtr(&plain->array);
}

/* plain.__arrow_c_array__(requested_schema=None): the capsules, once. */
static PyObject *
plain_array_capsules(PyObject *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"requested_schema", NULL};
    PlainArray *plain = (PlainArray *)self;
    PyObject *requested = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|O:__arrow_c_array__", names, &requested)) {
        return NULL;
    }
    if (take(plain) < 0) {
        return NULL;
    }
    PyObject *schema = new_capsule(&plain->schema, sizeof(plain->schema), offsetof(struct ArrowSchema, release),
                                   "arrow_schema", schema_capsule_free);
    PyObject *array = schema == NULL ? NULL
                                     : new_capsule(&plain->array, sizeof(plain->array),
                                                   offsetof(struct ArrowArray, release), "arrow_array",
                                                   array_capsule_free);
    PyObject *both = array == NULL ? NULL : PyTuple_Pack(2, schema, array);
    Py_XDECREF(schema);
    Py_XDECREF(array);
    return both;
}

static PyMethodDef plain_array_methods[] = {
    {"__arrow_c_array__", (PyCFunction)(void (*)(void))plain_array_capsules, METH_VARARGS | METH_KEYWORDS,
     "__arrow_c_array__(requested_schema=None): return the capsules of the schema and the array, once."},
    {"array_address", plain_array_address, METH_NOARGS,
     "array_address(): return the address of the ArrowArray, instead of the capsules. The consumer knows the schema, and "
     "moves the struct while this object lives."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef plain_array_members[] = {
    {"is_table", T_BOOL, offsetof(PlainArray, is_table), READONLY, "whether it is a struct of columns"},
    {"has_views", T_BOOL, offsetof(PlainArray, has_views), READONLY, "whether text is in views"},
    {"format", T_STRING, offsetof(PlainArray, format), READONLY, "the format of a column, or None"},
    {"schema_key", T_OBJECT, offsetof(PlainArray, schema_key), READONLY,
     "the same object for tables of the same names and types, all nullable; None for others"},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject PlainArrayType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "zerocopy._native._core.PlainArray",
    .tp_doc = "One array of plain values without a name, or of a struct of such columns without null rows: "
              "TableExporter.plain and plain_table make it.",
    .tp_basicsize = sizeof(PlainArray),
    .tp_dealloc = plain_array_dealloc,
    .tp_methods = plain_array_methods,
    .tp_members = plain_array_members,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
};

/* Whether text of a plain schema is in views. */
static bool
has_views(const struct ArrowSchema *schema, bool is_table)
{
    for (int64_t i = 0; is_table && i < schema->n_children; i++) {
        if (schema->children[i]->format[0] == 'v') {
            return true;
        }
    }
    return schema->format[0] == 'v';
}

PyObject *
plain_array_new(struct ArrowSchema *schema, struct ArrowArray *array, bool is_table, bool with_views)
{
    PlainArray *plain = PyObject_New(PlainArray, &PlainArrayType);
    if (plain != NULL) {
        plain->schema_key = NULL;
        plain->format = is_table ? NULL : schema->format; /* of forget_name */
        plain->is_table = is_table;
        plain->has_views = with_views;
        atomic_init(&plain->is_taken, false);
        plain->schema = *schema;
        plain->array = *array;
        schema->release = NULL;
        array->release = NULL;
    }
    return (PyObject *)plain;
}

/* Whether all fields of a table may have nulls, which plans do not compare. */
static bool
has_nullable_fields(const struct ArrowSchema *schema)
{
    for (int64_t i = 0; i < schema->n_children; i++) {
        if (schema->children[i]->flags != ARROW_FLAG_NULLABLE) {
            return false;
        }
    }
    return true;
}

PyObject *
plain_export(PyObject *exporter, PyObject *obj)
{
    ArrowTable table;
    struct ArrowArray array = {0}, next = {0};
    PyObject *plain = NULL;
    if (arrow_table_open((TableExporter *)exporter, obj, NULL, &table) == 0) {
        const struct ArrowSchema *schema = arrow_table_schema(&table);
        bool is_table = schema != NULL && is_plain_table(schema);
        /* Read before the data, so that an object that is refused for its type exports none. */
        if (schema != NULL && (is_table || is_plain(schema)) && arrow_table_next(&table, &array) == 1 &&
            fits(schema, &array, is_table) && arrow_table_next(&table, &next) == 0) {
            bool with_views = has_views(schema, is_table);
            PyObject *schema_key = NULL;
            if (!is_table) {
                forget_name(&table.schema);
            }
            else if (has_nullable_fields(schema)) {
                schema_key = (PyObject *)table_plan_of(&((TableExporter *)exporter)->plan, &table, NULL, true);
            }
            plain = PyErr_Occurred() ? NULL : plain_array_new(&table.schema, &array, is_table, with_views);
            if (plain == NULL) {
                Py_XDECREF(schema_key);
            }
            else {
                ((PlainArray *)plain)->schema_key = schema_key;
            }
        }
        arrow_array_release(&array);
        arrow_array_release(&next);
        arrow_table_close(&table);
    }
    if (plain == NULL && clear_error()) {
        PyErr_SetString(PyExc_ValueError, "not plain values in one chunk, or no rows: the slow path decides");
    }
    return plain;
}

/* ---- ColumnExporter: a column of numbers, as the memory of a tensor ---- */

typedef struct {
    Exporter base;
    TableExporter *exporter;
} ColumnExporter;

/* Frees an exporter. */
static void
column_exporter_dealloc(PyObject *self)
{
    Py_XDECREF(((ColumnExporter *)self)->exporter);
    PyObject_Free(self);
}

/* Describes a column of numbers in one chunk, without nulls. */
static int
run_column(Exporter *self, PyObject *obj, Memory *out)
{
    ArrowTable column;
    struct ArrowArray array = {0}, next = {0};
    DLDataType dtype;
    int status = -1;
    if (arrow_table_open(((ColumnExporter *)self)->exporter, obj, NULL, &column) < 0) {
        return -1;
    }
    memory_init(out);
    const struct ArrowSchema *schema = arrow_table_schema(&column);
    if (schema != NULL && is_plain(schema) && arrow_dtype(schema->format, &dtype) &&
        arrow_table_next(&column, &array) == 1 && array.length > 0 &&
        arrow_has_numbers(&array, dtype, 0, array.length, &out->data) && arrow_table_next(&column, &next) == 0) {
        out->ndim = 1;
        out->own_shape[0] = array.length;
        out->shape = out->own_shape;
        out->strides = NULL;
        out->readonly = true;
        out->dtype = dtype;
        out->owner = arrow_owner_new(&array);
        status = out->owner == NULL ? -1 : 0;
    }
    arrow_array_release(&array);
    arrow_array_release(&next);
    arrow_table_close(&column);
    return status;
}

/* Parses (exporter). */
static PyObject *
column_exporter_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *exporter;
    if (refuse_keywords(keywords) || !PyArg_ParseTuple(args, "O!:ColumnExporter", &TableExporterType, &exporter)) {
        return NULL;
    }
    ColumnExporter *self = PyObject_New(ColumnExporter, type);
    if (self != NULL) {
        self->base.run = run_column;
        self->exporter = (TableExporter *)Py_NewRef(exporter);
    }
    return (PyObject *)self;
}

static PyTypeObject ColumnExporterType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "zerocopy._native._core.ColumnExporter",
    .tp_doc = "ColumnExporter(exporter): columns of numbers in one chunk without nulls, which a TableExporter exports.",
    .tp_base = &ExporterType,
    .tp_basicsize = sizeof(ColumnExporter),
    .tp_dealloc = column_exporter_dealloc,
    .tp_new = column_exporter_new,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

/* ---- the module ---- */

/* plain_schema(capsule): what a type is. Consumers ask before they export data: nanoarrow aborts the process for some
   types. */
static PyObject *
plain_schema(PyObject *module, PyObject *capsule)
{
    const struct ArrowSchema *schema = PyCapsule_GetPointer(capsule, "arrow_schema");
    DLDataType dtype;
    if (schema == NULL) {
        return NULL;
    }
    bool is_table = schema->release != NULL && is_plain_table(schema);
    if (schema->release == NULL || !(is_table || is_plain(schema)) || has_views(schema, is_table)) {
        Py_RETURN_NONE;
    }
    return PyUnicode_InternFromString(is_table                             ? "table"
                                      : arrow_dtype(schema->format, &dtype) ? "numbers"
                                                                            : "other");
}

static PyMethodDef methods[] = {
    {"plain_schema", plain_schema, METH_O,
     "plain_schema(capsule): \"numbers\", \"other\" for booleans and text, \"table\" for a struct of these; None for "
     "other types, and views of text."},
    {NULL, NULL, 0, NULL},
};

int
add_plain_arrays(PyObject *module)
{
    return PyModule_AddFunctions(module, methods) < 0 || PyModule_AddType(module, &PlainArrayType) < 0
               ? -1
               : PyModule_AddType(module, &ColumnExporterType);
}
