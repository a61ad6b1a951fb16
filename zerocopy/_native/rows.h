/* Columns and rows: kernels that interleave.c and rows.c share. */
#ifndef ZEROCOPY_ROWS_H
#define ZEROCOPY_ROWS_H

#include "core.h"

typedef struct {
    char *data;
    ptrdiff_t stride; /* in bytes */
} Column;

/* Rows of a tile: few enough that their cache lines stay in the L1 cache between two groups of columns. With 3 to
   200 columns, tiles of 64 rows were at most a fifth slower than the best size. */
#define TILE 64
#define LINE 64 /* bytes of a cache line */

/* Prefetches a line to the L2 cache, because the L1 cache has few fill buffers. Any address is safe. */
#if defined(__GNUC__)
#define FETCH(ADDRESS) __builtin_prefetch((const void *)(ADDRESS), 0, 2)
#else
#define FETCH(ADDRESS) ((void)(ADDRESS))
#endif

/* Writes the items first..first+rows-1 of columns next to each other into rows that are `pitch` bytes apart. Items
   have any size; 1, 2, 4, 8 and 16 bytes are fast. */
void write_tile(char *out, size_t pitch, const Column *columns, size_t count, size_t first, size_t rows, size_t size);
/* The inverse: columns are contiguous. */
void read_tile(const char *in, size_t pitch, const Column *columns, size_t count, size_t first, size_t rows,
               size_t size);

/* Copies with non-temporal stores, which do not load the destination into the caches. The caller calls _mm_sfence
   after the last copy. SSE2 only. */
void copy_past_caches(char *to, const char *from, size_t nbytes);

/* Writes `rows` items of each of `count` columns to rows that are `pitch` bytes apart. */
void interleave(char *out, size_t pitch, const Column *columns, size_t count, size_t rows, size_t itemsize);

#endif
