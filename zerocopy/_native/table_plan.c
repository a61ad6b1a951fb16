/* The plan of a table's schema: labels, types and positions of the columns that a route takes.

   A route keeps the plan of the last schema. A table of the same schema costs a comparison of names and formats,
   instead of a new Python string, its hash and a search for duplicates for each column. If the exporter's check
   returns the key of that schema, the schema is not exported: 28 us of 155 for 300 columns of pyarrow. */
#include "arrow_table.h"

#include <stdlib.h>

#define EXTENSION "ARROW:extension:name"
/* A limit for invalid schemas, the same as on the slow path (zerocopy.protocols.arrow_format). */
#define MAX_METADATA (64 << 20)

/* Frees a plan. */
static void
plan_dealloc(PyObject *self)
{
    TablePlan *plan = (TablePlan *)self;
    for (int64_t i = 0; i < plan->count; i++) {
        Py_XDECREF(plan->columns[i].label);
    }
    PyMem_Free(plan->columns);
    PyMem_Free(plan->text);
    Py_XDECREF(plan->key);
    PyObject_Free(self);
}

static PyTypeObject TablePlanType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "zerocopy._native._core.TablePlan",
    .tp_doc = "The columns that a route takes from tables of one schema.",
    .tp_basicsize = sizeof(TablePlan),
    .tp_dealloc = plan_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
};

/* ---- checks of a schema ---- */

bool
arrow_dtype(const char *format, DLDataType *out)
{
    static const char letters[] = "cCsSiIlLefg";
    static const DLDataType dtypes[] = {
        {kDLInt, 8, 1},  {kDLUInt, 8, 1},  {kDLInt, 16, 1},  {kDLUInt, 16, 1},  {kDLInt, 32, 1},   {kDLUInt, 32, 1},
        {kDLInt, 64, 1}, {kDLUInt, 64, 1}, {kDLFloat, 16, 1}, {kDLFloat, 32, 1}, {kDLFloat, 64, 1},
    };
    const char *letter = format[0] == 0 || format[1] != 0 ? NULL : strchr(letters, format[0]);
    if (letter == NULL) {
        return false;
    }
    *out = dtypes[letter - letters];
    return true;
}

/* Reads a length of at most MAX_METADATA from metadata, and advances; false for other lengths. */
static bool
read_length(const char **metadata, int32_t *out)
{
    memcpy(out, *metadata, sizeof(*out));
    *metadata += sizeof(*out);
    return *out >= 0 && *out <= MAX_METADATA;
}

/* Whether metadata names an extension type, or is invalid: then the values are not plain numbers. */
static bool
is_extension(const char *metadata)
{
    int32_t pairs = 0, length;
    const char *start = metadata;
    if (metadata != NULL && !read_length(&metadata, &pairs)) {
        return true;
    }
    for (int32_t i = 0; i < 2 * pairs; i++) { /* a key and a value of each pair */
        if (!read_length(&metadata, &length) || metadata + length - start > MAX_METADATA) {
            return true;
        }
        if (i % 2 == 0 && length == sizeof(EXTENSION) - 1 && memcmp(metadata, EXTENSION, (size_t)length) == 0) {
            return true;
        }
        metadata += length;
    }
    return false;
}

/* Returns the name of a field; a missing name is empty. */
static const char *
name_of(const struct ArrowSchema *schema)
{
    return schema->name == NULL ? "" : schema->name;
}

/* Whether a schema is a struct whose children can be read. */
static bool
is_table(const struct ArrowSchema *schema)
{
    if (schema->format == NULL || strcmp(schema->format, "+s") != 0 || schema->dictionary != NULL ||
        schema->n_children < 1 || schema->n_children > MAX_FIELDS || schema->children == NULL ||
        is_extension(schema->metadata)) {
        return false;
    }
    for (int64_t i = 0; i < schema->n_children; i++) {
        if (schema->children[i] == NULL || schema->children[i]->format == NULL) {
            return false;
        }
    }
    return true;
}

/* Reads the length of a list from a format such as "+w:3"; false for other formats, and invalid lengths. */
static bool
read_list_size(const char *format, int64_t *out)
{
    if (strncmp(format, "+w:", 3) != 0 || format[3] < '0' || format[3] > '9' || strlen(format) > 3 + 10) {
        return false;
    }
    char *end;
    *out = strtoll(format + 3, &end, 10);
    return *end == 0 && *out <= INT32_MAX;
}

/* Returns the field of the items of a list of plain numbers, or NULL. */
static const struct ArrowSchema *
items_of(const struct ArrowSchema *field)
{
    if (field->n_children != 1 || field->children == NULL || field->children[0] == NULL ||
        field->children[0]->format == NULL) {
        return NULL;
    }
    return field->children[0];
}

/* Whether a field has this number of children, and no other meaning than its format. */
static bool
is_bare(const struct ArrowSchema *field, int64_t n_children)
{
    return field->n_children == n_children && field->dictionary == NULL && !is_extension(field->metadata);
}

/* Whether a column holds plain numbers, or lists of them; fills its entry of the plan. */
static bool
is_plain(const struct ArrowSchema *field, PlannedColumn *column)
{
    column->kind = NUMBERS;
    if (field->format[0] == '+') {
        column->kind = strcmp(field->format, "+l") == 0   ? LISTS
                       : strcmp(field->format, "+L") == 0 ? LARGE_LISTS
                                                          : FIXED_LISTS;
        if ((column->kind == FIXED_LISTS && !read_list_size(field->format, &column->list_size)) ||
            items_of(field) == NULL || !is_bare(field, 1)) {
            return false;
        }
        field = items_of(field);
    }
    return arrow_dtype(field->format, &column->dtype) && is_bare(field, 0);
}

/* The texts of a field that decide its plan: its name, its format, and the format of its items. */
#define TEXTS 3

static void
texts_of(const struct ArrowSchema *field, const char *out[TEXTS])
{
    const struct ArrowSchema *items = field->format[0] == '+' ? items_of(field) : NULL;
    out[0] = name_of(field);
    out[1] = field->format;
    out[2] = items == NULL ? "" : items->format;
}

/* ---- plans ---- */

/* Whether a plan was made for this schema. */
static bool
plan_fits(const TablePlan *plan, const struct ArrowSchema *schema)
{
    if (plan->n_children != schema->n_children) {
        return false;
    }
    const char *text = plan->text;
    for (int64_t i = 0; i < schema->n_children; i++) {
        const char *parts[TEXTS];
        texts_of(schema->children[i], parts);
        for (int part = 0; part < TEXTS; part++) {
            if (strcmp(parts[part], text) != 0) {
                return false;
            }
            text += strlen(text) + 1;
        }
    }
    for (int64_t i = 0; i < plan->count; i++) {
        const struct ArrowSchema *field = schema->children[plan->columns[i].index];
        bool is_list = plan->columns[i].kind != NUMBERS;
        if (!is_bare(field, is_list) || (is_list && !is_bare(field->children[0], 0))) {
            return false;
        }
    }
    return true;
}

/* Copies the names and formats of a schema; NULL with an exception if there is no memory. */
static char *
copy_text(const struct ArrowSchema *schema)
{
    size_t size = 1;
    for (int64_t i = 0; i < schema->n_children; i++) {
        const char *parts[TEXTS];
        texts_of(schema->children[i], parts);
        for (int part = 0; part < TEXTS; part++) {
            size += strlen(parts[part]) + 1;
        }
    }
    char *text = PyMem_Malloc(size), *end = text;
    if (text == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    for (int64_t i = 0; i < schema->n_children; i++) {
        const char *parts[TEXTS];
        texts_of(schema->children[i], parts);
        for (int part = 0; part < TEXTS; part++) {
            size_t length = strlen(parts[part]) + 1;
            memcpy(end, parts[part], length);
            end += length;
        }
    }
    *end = 0;
    return text;
}

/* Fills the plan's columns; -1 with or without an exception. */
static int
choose_columns(TablePlan *plan, const struct ArrowSchema *schema, PyObject *wanted)
{
    PyObject *seen = wanted == NULL ? PySet_New(NULL) : Py_NewRef(wanted);
    int64_t chosen = 0;
    int status = -1;
    for (int64_t i = 0; seen != NULL && i < schema->n_children; i++) {
        const char *name = name_of(schema->children[i]);
        PyObject *label = PyUnicode_DecodeUTF8(name, (Py_ssize_t)strlen(name), NULL);
        Py_ssize_t place = i;
        if (label == NULL || (wanted == NULL && PySet_Add(seen, label) < 0)) {
            Py_XDECREF(label);
            goto done;
        }
        if (wanted != NULL) {
            PyObject *position = PyDict_GetItemWithError(wanted, label);
            if (position == NULL) {
                Py_DECREF(label);
                continue;
            }
            place = PyLong_AsSsize_t(position);
        }
        PlannedColumn *column = &plan->columns[place];
        if (column->label != NULL || !is_plain(schema->children[i], column)) {
            Py_DECREF(label);
            goto done; /* two columns have one name, or the values are not plain numbers */
        }
        column->label = label;
        column->index = i;
        plan->has_lists |= column->kind != NUMBERS;
        chosen++;
    }
    /* Without `wanted`, a set smaller than the schema means that two columns have one name. */
    if (seen != NULL && chosen == plan->count && (wanted != NULL || PySet_GET_SIZE(seen) == chosen)) {
        status = 0;
    }
done:
    Py_XDECREF(seen);
    return PyErr_Occurred() ? -1 : status;
}

/* Makes a plan; NULL with or without an exception. */
static TablePlan *
plan_new(const struct ArrowSchema *schema, PyObject *wanted)
{
    TablePlan *plan = PyObject_New(TablePlan, &TablePlanType);
    if (plan == NULL) {
        return NULL;
    }
    plan->n_children = schema->n_children;
    plan->count = wanted == NULL ? schema->n_children : PyDict_GET_SIZE(wanted);
    plan->text = NULL;
    plan->has_lists = false;
    plan->key = NULL;
    plan->columns = PyMem_Calloc((size_t)plan->count, sizeof(PlannedColumn));
    if (plan->columns == NULL) {
        plan->count = 0;
        PyErr_NoMemory();
    }
    else {
        plan->text = copy_text(schema);
    }
    if (plan->text == NULL || choose_columns(plan, schema, wanted) < 0) {
        Py_CLEAR(plan);
    }
    return plan;
}

#ifdef Py_GIL_DISABLED
static PyMutex keeping;
#define LOCK() PyMutex_Lock(&keeping)
#define UNLOCK() PyMutex_Unlock(&keeping)

void
table_plan_free_lock(void)
{
    keeping = (PyMutex){0};
}
#else
#define LOCK() ((void)0) /* the GIL is held, and no Python code runs meanwhile */
#define UNLOCK() ((void)0)
#endif

/* Returns a new reference to the kept plan, or NULL; sets whether its key is that of the table. */
static TablePlan *
kept_plan(PyObject **kept, const ArrowTable *table, bool *has_key)
{
    LOCK();
    TablePlan *plan = (TablePlan *)Py_XNewRef(*kept);
    *has_key = plan != NULL && plan->key != NULL && plan->key == table->key;
    UNLOCK();
    return plan;
}

/* Keeps a plan, and with it the key of a table of its schema. */
static void
keep_plan(PyObject **kept, TablePlan *plan, const ArrowTable *table)
{
    PyObject *key = Py_XNewRef(table->key);
    LOCK();
    PyObject *old = *kept, *old_key = plan->key;
    *kept = Py_NewRef(plan);
    plan->key = key;
    UNLOCK();
    Py_XDECREF(old);
    Py_XDECREF(old_key);
}

TablePlan *
table_plan_of(PyObject **kept, ArrowTable *table, PyObject *wanted)
{
    bool has_key;
    TablePlan *plan = kept_plan(kept, table, &has_key);
    if (LIKELY(has_key)) {
        return plan;
    }
    const struct ArrowSchema *schema = arrow_table_schema(table);
    bool fits = schema != NULL && is_table(schema) && plan != NULL && plan_fits(plan, schema);
    if (!fits) {
        Py_XDECREF(plan);
        plan = schema != NULL && is_table(schema) ? plan_new(schema, wanted) : NULL;
    }
    if (plan != NULL && (!fits || table->key != NULL)) {
        keep_plan(kept, plan, table);
    }
    return plan;
}

int64_t
table_plan_width(PyObject **kept)
{
    LOCK();
    int64_t width = *kept == NULL ? 0 : ((TablePlan *)*kept)->count;
    UNLOCK();
    return width;
}

int
table_labels_parse(PyObject *columns, PyObject **wanted)
{
    *wanted = NULL;
    if (columns == Py_None) {
        return 0;
    }
    PyObject *labels = PySequence_Tuple(columns), *places = labels == NULL ? NULL : PyDict_New();
    for (Py_ssize_t i = 0; places != NULL && i < PyTuple_GET_SIZE(labels); i++) {
        PyObject *place = PyLong_FromSsize_t(i);
        if (place == NULL || !PyUnicode_CheckExact(PyTuple_GET_ITEM(labels, i)) ||
            PyDict_SetItem(places, PyTuple_GET_ITEM(labels, i), place) < 0) {
            Py_CLEAR(places);
        }
        Py_XDECREF(place);
    }
    bool is_valid = places != NULL && PyDict_GET_SIZE(places) == PyTuple_GET_SIZE(labels) && PyDict_GET_SIZE(places);
    Py_XDECREF(labels);
    if (!is_valid) {
        Py_XDECREF(places);
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_ValueError, "columns must be one or more different labels of type str");
        }
        return -1;
    }
    *wanted = places;
    return 0;
}

/* ---- schemas that pass between tables ---- */

/* Whether a field is numbers, booleans or text: no dictionary, no children, and no metadata. */
static bool
is_plain_value(const struct ArrowSchema *field)
{
    return field->n_children == 0 && field->dictionary == NULL && field->metadata == NULL && field->format != NULL &&
           field->format[0] != 0 && field->format[1] == 0 && strchr("bcCsSiIlLfguU", field->format[0]) != NULL;
}

/* Returns the key of a plain schema, or None; NULL with an exception. */
static PyObject *
plain_key(const struct ArrowSchema *schema)
{
    bool is_struct = schema->release != NULL && schema->metadata == NULL && is_table(schema);
    if (!is_struct && (schema->release == NULL || !is_plain_value(schema))) {
        Py_RETURN_NONE;
    }
    const struct ArrowSchema *column = schema, *const *fields = is_struct ? (void *)schema->children : &column;
    int64_t count = is_struct ? schema->n_children : 1;
    size_t size = 1;
    for (int64_t i = 0; i < count; i++) {
        if (!is_plain_value(fields[i])) {
            Py_RETURN_NONE;
        }
        size += strlen(name_of(fields[i])) + 3;
    }
    PyObject *text = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    char *end = text == NULL ? NULL : PyBytes_AS_STRING(text);
    if (end != NULL) {
        *end++ = is_struct ? 't' : 'c';
    }
    for (int64_t i = 0; end != NULL && i < count; i++) {
        size_t length = strlen(name_of(fields[i])) + 1; /* with its terminating zero */
        memcpy(end, name_of(fields[i]), length);
        end[length] = fields[i]->format[0];
        end[length + 1] = (char)(fields[i]->flags & 7);
        end += length + 2;
    }
    return text;
}

/* plain_schema_key(schema): see the documentation of the function. */
static PyObject *
plain_schema_key(PyObject *module, PyObject *obj)
{
    ArrowTable table = {0};
    const struct ArrowSchema *schema;
    if (PyCapsule_IsValid(obj, "arrow_array_stream")) {
        table.stream = *(struct ArrowArrayStream *)PyCapsule_GetPointer(obj, "arrow_array_stream");
        schema = arrow_table_schema(&table);
        table.stream.release = NULL; /* the stream stays in its capsule */
    }
    else {
        schema = PyLong_Check(obj) ? PyLong_AsVoidPtr(obj) : PyCapsule_GetPointer(obj, "arrow_schema");
    }
    PyObject *parts = schema != NULL ? plain_key(schema) : PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    arrow_table_close(&table);
    return parts;
}

static PyMethodDef methods[] = {
    {"plain_schema_key", plain_schema_key, METH_O,
     "plain_schema_key(schema): return bytes that only equal schemas share: the names, formats and flags of a column "
     "of numbers, booleans or text, or of a struct of such columns, without metadata; None for other schemas. `schema` is "
     "the capsule of a schema or of a stream, or the address of an ArrowSchema. No data is read."},
    {NULL, NULL, 0, NULL},
};

int
add_table_plans(PyObject *module)
{
    return PyModule_AddFunctions(module, methods);
}
