/* Rows and columns: declarations of rows.c, records.c, row_tiles.c, tiles.c and cast.c. */
#ifndef ZEROCOPY_ROWS_H
#define ZEROCOPY_ROWS_H

#include "core.h"

#define LINE 64     /* bytes of a cache line */
#define MAX_GROUP 4 /* columns */

typedef struct {
    char *data;
    ptrdiff_t stride; /* in bytes */
} Column;

/* Columns next to each other in the rows whose items are transposed in registers. Both functions return how many of the
   first rows they handled. */
typedef struct {
    size_t count, size; /* of the columns; of an item, in bytes */
    size_t (*gather)(char *const *to, const char *from, ptrdiff_t pitch, size_t rows, bool swaps, bool streams);
    size_t (*scatter)(char *to, ptrdiff_t pitch, const char *const *from, size_t rows, bool swaps);
} Group;

/* Returns the largest group of at most `count` columns, or NULL. */
const Group *group_of(size_t count, size_t size);

/* Returns the name of an instruction set that copies records and that this processor has, or NULL; 0 is the widest. */
const char *isa_name(size_t number);
/* Selects the instruction set of the next copies; false if this processor does not have it. */
bool use_isa(const char *name);
/* Returns the name of the instruction set in use. */
const char *isa_in_use(void);

/* Reverses the bytes of each `unit` of some memory. */
void swap_bytes(char *data, size_t nbytes, size_t unit);

/* Copies whole lines with stores that bypass the caches; `to` is the start of a line. The caller calls end_stream after
   the last copy. */
void stream(char *to, const char *from, size_t nbytes);
void end_stream(void);

/* A group of columns, or one piece of the items of a column. */
typedef struct {
    size_t column, count;
    size_t inner;        /* offset of the piece in the column's item */
    size_t offset, size; /* in the row */
    size_t swap;         /* bytes of the units whose order is reversed, or 0 */
    const Group *group;  /* how the columns are transposed, or NULL for one column */
    bool streams;        /* whether the columns are written past the caches */
    size_t shift;        /* rows before the first tile, for columns that do not start a cache line */
    bool is_last;        /* whether the items of the columns end with it */
} Run;

/* Parsed arguments of write_rows and read_rows. */
typedef struct {
    PyObject *arrays;
    Column *columns;
    size_t *widths; /* bytes of the items of each column */
    Run *runs;
    size_t run_count;
    size_t count;    /* items of a column */
    char *data;      /* the first row */
    ptrdiff_t pitch; /* bytes between rows */
    size_t width;    /* bytes of a row */
    size_t covered;  /* bytes of a row that the pieces copy */
    bool swaps_vary; /* whether the pieces of one column have units of different sizes */
    bool is_full;    /* whether the pieces cover the row in order, without gaps */
} Rows;

/* Whether the items of a column are next to each other. */
static inline bool
is_contiguous(const Rows *rows, size_t column)
{
    return rows->columns[column].stride == (ptrdiff_t)rows->widths[column];
}

/* Describes rows and the columns of their pieces; -1 with an exception. The caller calls rows_free in any case. */
int rows_parse(Rows *rows, PyArrayObject *block, PyObject *columns, PyArrayObject *pieces, bool reads);

/* Releases the members that rows_parse allocated. */
void rows_free(Rows *rows);

/* Reads all rows. If `streams`, columns are written past the caches from a row whose items start a cache line. */
void read_all(const Rows *rows, bool streams);

/* Writes all rows in order: if `streams`, past the caches. */
void write_in_order(const Rows *rows, bool streams);

/* Writes each row to its position. Another thread may change a position after it was checked, so it is checked again. */
void write_at(const Rows *rows, size_t out_rows, const int64_t *positions);

/* Writes `rows` items of each of `count` columns to rows that are `pitch` bytes apart. */
void interleave(char *out, size_t pitch, const Column *columns, size_t count, size_t rows, size_t itemsize);

/* ---- cast.c ---- */

#define TILE_ROWS 512 /* cast at a time, so that the tile stays in the cache */
/* Returns columns of TILE_ROWS items each, which the caller interleaves and frees with PyMem_RawFree; NULL without an
   exception. */
Column *tile_new(size_t count, size_t itemsize);

#endif
