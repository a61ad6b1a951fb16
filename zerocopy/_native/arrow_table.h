/* Tables that producers export through Arrow's C data interface: their plans and their memory. */
#ifndef ZEROCOPY_ARROW_TABLE_H
#define ZEROCOPY_ARROW_TABLE_H

#include "arrow.h"
#include "core.h"

/* ---- a table of an exporter, read once ---- */

/* A struct is released if its `release` is NULL. */
typedef struct {
    struct ArrowArrayStream stream;
    struct ArrowSchema schema;
    struct ArrowArray array; /* from producers that export an array, not a stream */
    PyObject *key;           /* from the exporter's check: an object that only tables of equal schemas have; or NULL */
} ArrowTable;

/* ---- table_plan.c: the columns that a route takes from tables of one schema ---- */

/* How the rows of a column hold numbers: one each, or a list of them. */
typedef enum { NUMBERS, FIXED_LISTS, LISTS, LARGE_LISTS } ColumnKind;

typedef struct {
    int64_t index; /* among the children of the schema */
    PyObject *label;
    DLDataType dtype; /* of the numbers */
    ColumnKind kind;
    int64_t list_size; /* of FIXED_LISTS */
} PlannedColumn;

typedef struct {
    PyObject_HEAD
    int64_t n_children;
    char *text; /* the name and the format of each child, each with its terminating zero */
    int64_t count;
    PlannedColumn *columns;
    bool has_lists;
    PyObject *key; /* of the last table that had this schema, or NULL */
} TablePlan;

/* Returns a new reference to the plan of a table's schema: the one in `*kept` if the schema is the same, otherwise a
   new one, which is then kept. `wanted` maps the chosen labels to their positions, or is NULL for all columns.
   Returns NULL with or without an exception for a schema of other columns than numbers and lists of them. */
TablePlan *table_plan_of(PyObject **kept, ArrowTable *table, PyObject *wanted);
/* Fills in the DLPack type of the format of a primitive number; false for other formats. */
bool arrow_dtype(const char *format, DLDataType *out);
/* Returns the number of columns of a kept plan; 0 for NULL. */
int64_t table_plan_width(PyObject **kept);
/* Parses the option `columns`, None or a sequence of different labels, into a dict from label to position, or
   NULL for None. */
int table_labels_parse(PyObject *columns, PyObject **wanted);

/* ---- fill.c: numbers written to new memory, cast and with a value in place of nulls ---- */

/* The option `nulls`. */
typedef struct {
    enum { FILL_NONE, FILL_NAN, FILL_INTEGER, FILL_FLOAT } kind;
    int64_t integer;
    double number; /* the integer too */
} Fill;

/* Parses None, "nan", a float or an int; false for other values. */
bool fill_parse(PyObject *value, Fill *out);
/* Whether numbers of a type can be written, and read. */
bool can_fill(DLDataType dtype);
/* Whether an array of numbers has nulls among `count` of them from number `first` on. */
bool arrow_has_nulls(const struct ArrowArray *array, int64_t first, int64_t count);
/* Writes `count` numbers from number `first` on, `step` bytes apart, as numbers of the type `to`; false if one of them,
   or the fill, does not fit. */
bool write_column(char *out, ptrdiff_t step, DLDataType to, const struct ArrowArray *array, DLDataType from,
                  int64_t first, int64_t count, const Fill *fill);

/* Writes `count` numbers that are `data_step` bytes apart as numbers of the type `to`, `step` bytes apart; false if one
   of them does not fit. */
bool cast_numbers(char *out, ptrdiff_t step, DLDataType to, const char *data, ptrdiff_t data_step, DLDataType from,
                  int64_t count);

/* ---- arrow_table.c: a table of an exporter, read once ---- */

typedef struct {
    PyObject_HEAD
    PyObject *function; /* returns a capsule with a stream, or a pair of capsules with a schema and an array */
    PyObject *check;    /* raises for a table that the core must not read; returns its key, None or False; or NULL */
    PyObject *select;   /* select(table, labels) returns a table of these columns only; or NULL */
    PyObject *matrix;   /* matrix(table) returns a new row-major ndarray, or None; or NULL */
    Py_ssize_t matrix_width; /* it is called after a table of this many columns at least */
    PyObject *extent;   /* extent(table) returns the bounds of the allocation of the first column, or None; or NULL */
} TableExporter;

extern PyTypeObject TableExporterType;

/* More columns are an invalid schema, as on the slow path (zerocopy.protocols.arrow_format). */
#define MAX_FIELDS (1 << 20)

/* Exports an object's table. Returns -1 with or without an exception; the caller then closes nothing. `labels` is
   NULL, or a list for `select`. */
int arrow_table_open(const TableExporter *exporter, PyObject *obj, PyObject *labels, ArrowTable *out);
/* Returns the schema of a table, which is read from a stream at the first call; or NULL without an exception. */
const struct ArrowSchema *arrow_table_schema(ArrowTable *table);
/* Moves the next chunk to `out`. Returns 1, 0 at the end, or -1 without an exception. */
int arrow_table_next(ArrowTable *table, struct ArrowArray *out);
void arrow_table_close(ArrowTable *table);
/* Releases an array that is not released yet; keeps the current exception. */
void arrow_array_release(struct ArrowArray *array);

/* Whether an array certainly has no nulls. With a bitmap, its number of nulls can be unknown (-1). */
bool arrow_has_no_nulls(const struct ArrowArray *array);
/* Whether an array has these numbers of buffers and children, and a valid length and offset. */
bool arrow_has_parts(const struct ArrowArray *array, int64_t n_buffers, int64_t n_children);

/* Whether a chunk meets its plan: rows, no nulls unless they are filled, and structs as the specification
   requires. Columns of lists are not checked: arrow_column_memory reads their offsets once. */
bool arrow_chunk_fits(const struct ArrowArray *chunk, const TablePlan *plan, const Fill *fill);
/* Describes a column of a chunk that fits, but for its owner; false if its lists have nulls or several lengths. */
bool arrow_column_memory(const struct ArrowArray *chunk, const PlannedColumn *column, Memory *out);
/* Finds the offsets of a column of LISTS or LARGE_LISTS in a chunk that fits, and the first item of its lists; false if
   it has nulls, or offsets outside the items. */
bool arrow_column_lists(const struct ArrowArray *chunk, const PlannedColumn *column, const void **offsets,
                        void **items);
/* Returns the address of the first value of a column of numbers of a chunk that fits. */
char *arrow_column_data(const struct ArrowArray *chunk, const PlannedColumn *column);
/* Moves a column's array to a Python object that releases it; NULL with or without an exception. */
PyObject *arrow_column_owner(struct ArrowArray *chunk, const PlannedColumn *column);

/* ---- table_route.c: the base of TableRoute and MatrixRoute ---- */

typedef struct {
    Route base;
    TableExporter *exporter;
    Delivery delivery;
    PyObject *labels; /* list of the chosen columns' labels, or NULL */
    PyObject *wanted; /* dict from label to position, or NULL */
    PyObject *plan;   /* of the last schema, or NULL */
    int by_columns;   /* of a MatrixRoute: whether each column of the matrix is contiguous */
    int pads;         /* whether lists with offsets are padded with 0 to one length */
    int single;       /* of a MatrixRoute: whether the object is a column, exported as a table */
    Fill fill;
} TableRoute;

/* Returns the type of a column in the result. */
static inline DLDataType
result_dtype(const TableRoute *route, const PlannedColumn *column)
{
    return route->delivery.has_dtype ? route->delivery.dtype : column->dtype;
}

#define ALIGNMENT 64 /* of new memory, as JAX and TensorFlow require for an alias */
/* Returns an array of bytes that holds `nbytes` of aligned memory at `data`; NULL with an exception. */
PyObject *new_block(int64_t nbytes, char **data);
/* From this size on, in bytes, memory is written without the GIL. That takes about 5 us; taking the GIL again can take
   longer. */
#define UNLOCK_BYTES (1 << 16)

/* Makes an object over new memory that holds the lists of a column, padded to one length; NULL with or without an
   exception. In pad.c. */
PyObject *deliver_padded(const TableRoute *route, const struct ArrowArray *chunk, const PlannedColumn *column);
/* Makes an object over a column of a chunk that fits; NULL with or without an exception. */
PyObject *deliver_column(const TableRoute *route, struct ArrowArray *chunk, const PlannedColumn *column);

/* Parses (exporter, importer, mutable, marks_readonly, *, fallback, copy, writable, dtype, columns, nulls,
   by_columns, pads, single). */
PyObject *table_route_make(PyTypeObject *type, PyObject *args, PyObject *keywords,
                           PyObject *(*run)(Route *self, PyObject *obj));
void table_route_dealloc(PyObject *self);

#endif
