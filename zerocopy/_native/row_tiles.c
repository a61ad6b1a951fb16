/* Tiles of rows copied to columns and back. */
#include "rows.h"

#define STAGE 16384   /* bytes of working memory; half of the L1 cache of common CPUs */
#define MIN_HEIGHT 16 /* rows; fewer would read less than a line of each column of float32 */
#define UNIT 64       /* rows that fill whole lines of every column */

/* Bytes of rows that are handled together; four times as many if rows of more than WIDE bytes are read. Measured on
   Zen 4 with one thread, to columns, with tiles of 2, 4 and 8 KiB: 18, 14 and 12 GB/s for records of 3 x f4; 18, 17 and
   15 GB/s for 8 x f4. Measured on Emerald Rapids with AVX2 and two threads, with tiles of 2 and 8 KiB: 1.04 and 1.11
   times the speed of a copy for the record of a particle (59 bytes), 1.09 and 1.21 for the same record in 64 bytes. */
#define TILE 2048
#define WIDE 32

/* Prefetch distance in bytes of records, or the size of a tile if it is greater: lines of the current tile would arrive
   too late. Lines that are farther ahead are evicted from the L1 cache before they are read, so they are prefetched to
   the L2 cache. Measured on Emerald Rapids with AVX2, in multiples of the speed of a copy: 1.15 with 2 KiB and the L1
   cache, 1.20 with 4 KiB and the L2 cache (geometric means of nine record types). */
#define AHEAD 4096

/* Prefetches a line, to the L1 cache with LOCALITY 3 and to the L2 cache with 2. Any address is safe. */
#if defined(__GNUC__)
#define FETCH(ADDRESS, LOCALITY) __builtin_prefetch((const void *)(ADDRESS), 0, LOCALITY)
#else
#define FETCH(ADDRESS, LOCALITY) ((void)(ADDRESS))
#endif

/* Copies items of PART to 2 * PART bytes as two parts, which may overlap. */
#define COPY_PARTS(PART)                                                                                          \
    for (size_t i = 0; i < rows; i++, to += to_step, from += from_step) {                                         \
        char first[PART], last[PART];                                                                             \
        memcpy(first, from, PART);                                                                                \
        memcpy(last, from + size - PART, PART);                                                                   \
        memcpy(to, first, PART);                                                                                  \
        memcpy(to + size - PART, last, PART);                                                                     \
    }
/* Copies at least 16 bytes; short items without a library call. */
static inline void
copy_long(char *to, const char *from, size_t size)
{
    if (size > 512) {
        memcpy(to, from, size);
        return;
    }
    for (size_t byte = 0; byte + 16 <= size; byte += 16) {
        memcpy(to + byte, from + byte, 16);
    }
    memcpy(to + size - 16, from + size - 16, 16);
}

static inline void
copy_row(char *to, const char *from, size_t width)
{
    if (width >= 16) {
        copy_long(to, from, width);
    } else {
        memcpy(to, from, width);
    }
}

#define COPY_EXACTLY(SIZE)                                                                                        \
    _Pragma("GCC unroll 4") for (size_t i = 0; i < rows; i++, to += to_step, from += from_step) {                 \
        memcpy(to, from, SIZE);                                                                                   \
    }

/* Copies items of any size that are `to_step` and `from_step` bytes apart. */
static void
copy_items(char *to, ptrdiff_t to_step, const char *from, ptrdiff_t from_step, size_t rows, size_t size)
{
    switch (size) {
    case 0:
        return;
    case 1:
        COPY_EXACTLY(1);
        return;
    case 2:
        COPY_EXACTLY(2);
        return;
    case 4:
        COPY_EXACTLY(4);
        return;
    case 8:
        COPY_EXACTLY(8);
        return;
    case 16:
        COPY_EXACTLY(16);
        return;
    default:
        break;
    }
    if (size > 8 && size < 16 && to_step == (ptrdiff_t)size && from_step >= 8) {
        /* One store of 16 bytes for each item: the next store overwrites the bytes after the item. */
        for (; rows > 1; rows--, to += to_step, from += from_step) {
            memcpy(to, from, 16);
        }
    }
    if (size == 3) {
        COPY_EXACTLY(3);
    } else if (size < 8) {
        COPY_PARTS(4);
    } else if (size < 16) {
        COPY_PARTS(8);
    } else if (size < 32) {
        COPY_PARTS(16);
    } else {
        for (size_t i = 0; i < rows; i++, to += to_step, from += from_step) {
            copy_long(to, from, size);
        }
    }
}

/* Returns the fewest rows whose items fill whole lines. */
static size_t
unit_of(size_t width)
{
    size_t power = width & -width;
    return power == 0 || power >= LINE ? 1 : LINE / power;
}

/* Returns how many rows are read together: their items fill whole lines of each column. */
static size_t
rows_read_together(const Rows *rows)
{
    size_t unit = 1;
    for (size_t i = 0; i < rows->run_count; i++) {
        size_t lines = unit_of(rows->widths[rows->runs[i].column]);
        unit = lines > unit ? lines : unit;
    }
    size_t bytes = rows->width > WIDE ? 4 * TILE : TILE;
    size_t height = rows->width > 0 ? bytes / rows->width : TILE;
    return height < unit ? unit : height - height % unit;
}

/* Returns how many rows are written together: they fill whole lines, and fit the stage unless they are wide. */
static size_t
rows_written_together(const Rows *rows)
{
    size_t height = rows->width > 0 ? TILE / rows->width : TILE, most = rows->width > 0 ? STAGE / rows->width : UNIT;
    if (height >= UNIT || most >= UNIT) {
        return height < UNIT ? UNIT : height - height % UNIT;
    }
    most -= most % unit_of(rows->width);
    return most < MIN_HEIGHT ? UNIT : most;
}

/* Whether an address is the start of a cache line. */
static bool
starts_line(const char *to)
{
    return (uintptr_t)to % LINE == 0;
}

/* Reverses the bytes of the units of items that are `step` bytes apart. */
static void
swap_items(char *data, ptrdiff_t step, size_t rows, size_t size, size_t unit)
{
    if (step == (ptrdiff_t)size) {
        swap_bytes(data, rows * size, unit);
        return;
    }
    for (size_t i = 0; i < rows; i++, data += step) {
        swap_bytes(data, size, unit);
    }
}

/* Returns how many rows precede the first one whose items start a line in each column of a run, or LINE if none does. */
static size_t
rows_to_line(const Rows *rows, const Run *run)
{
    size_t shift = 0, k = 0;
    while (shift < LINE && k < run->count) {
        const Column *column = &rows->columns[run->column + k++];
        if (!starts_line(column->data + (ptrdiff_t)shift * column->stride)) {
            shift++;
            k = 0;
        }
    }
    return shift;
}

/* Reads a piece of the items of one column. */
static void
read_piece(const Rows *rows, const Run *run, const char *from, size_t first, size_t height, char *stage)
{
    const Column *column = &rows->columns[run->column];
    char *to = column->data + (ptrdiff_t)first * column->stride;
    size_t width = rows->widths[run->column];
    if (!run->streams || height * width > STAGE) {
        copy_items(to + run->inner, column->stride, from, rows->pitch, height, run->size);
        if (run->swap > 0) {
            swap_items(to + run->inner, column->stride, height, run->size, run->swap);
        }
        return;
    }
    copy_items(stage + run->inner, (ptrdiff_t)width, from, rows->pitch, height, run->size);
    if (!run->is_last) {
        return;
    }
    if (run->swap > 0) {
        swap_bytes(stage, height * width, run->swap);
    }
    stream(to, stage, height * width);
}

/* Reads a group of columns. */
static void
read_group(const Rows *rows, const Run *run, const char *from, size_t first, size_t height)
{
    char *to[MAX_GROUP];
    for (size_t k = 0; k < run->count; k++) {
        to[k] = rows->columns[run->column + k].data + first * run->size;
    }
    size_t done = run->group->gather(to, from, rows->pitch, height, run->swap > 0, run->streams);
    if (done == height) {
        return;
    }
    from += (ptrdiff_t)done * rows->pitch;
    for (size_t k = 0; k < run->count; k++, from += run->size) {
        char *rest = to[k] + done * run->size;
        copy_items(rest, (ptrdiff_t)run->size, from, rows->pitch, height - done, run->size);
        if (run->swap > 0) {
            swap_bytes(rest, (height - done) * run->size, run->swap);
        }
    }
}

/* Prefetches the lines from `next` to `end`; returns the first line that was not prefetched. */
static inline uintptr_t
fetch_lines(uintptr_t next, uintptr_t end)
{
    for (; next < end; next += LINE) {
        FETCH(next, 2);
    }
    return next;
}

/* Reads the items of a run of some rows. */
static void
read_run(const Rows *rows, const Run *run, size_t first, size_t height, char *stage)
{
    const char *from = rows->data + (ptrdiff_t)first * rows->pitch + run->offset;
    if (run->group != NULL) {
        read_group(rows, run, from, first, height);
    } else {
        read_piece(rows, run, from, first, height, stage);
    }
}

void
read_all(const Rows *rows, bool streams)
{
    _Alignas(4096) char stage[STAGE];
    size_t height = rows_read_together(rows);
    size_t step = rows->pitch < 0 ? (size_t)-rows->pitch : (size_t)rows->pitch;
    size_t ahead = height * step > AHEAD ? height * step : AHEAD;
    bool fetches = rows->pitch > 0 && 2 * rows->covered > step; /* hardware follows the lines of few fields */
    for (Run *run = rows->runs; run < rows->runs + rows->run_count; run++) {
        /* The last piece of a column swaps the bytes of all its pieces. */
        bool can_stream = streams && !rows->swaps_vary && is_contiguous(rows, run->column);
        size_t shift = can_stream ? rows_to_line(rows, run) : LINE;
        if (shift < LINE) { /* the tiles of these columns start `shift` rows later, with a line */
            read_run(rows, run, 0, shift < rows->count ? shift : rows->count, stage);
            run->shift = shift;
            run->streams = true;
        }
    }
    const Run *only = rows->run_count == 1 && rows->is_full ? rows->runs : NULL;
    if (only != NULL && only->streams && only->shift == 0 && only->count == 1 && only->swap == 0 &&
        rows->pitch == (ptrdiff_t)rows->width) {
        stream(rows->columns[only->column].data, rows->data, rows->count * rows->width); /* the rows are the column */
        end_stream();
        return;
    }
    for (size_t first = 0; first < rows->count; first += height) {
        size_t some = rows->count - first < height ? rows->count - first : height;
        uintptr_t next = (uintptr_t)rows->data + first * step + ahead, end = next;
        for (const Run *run = rows->runs; run < rows->runs + rows->run_count; run++) {
            if (fetches) { /* as large a part of a later tile as the run is of this one */
                end += some * step * run->size * run->count / rows->covered;
                next = fetch_lines(next, end);
            }
            size_t start = first + run->shift, rest = start < rows->count ? rows->count - start : 0;
            read_run(rows, run, start, rest < height ? rest : height, stage);
        }
    }
    if (streams) {
        end_stream();
    }
}

/* Writes a piece of the items of one column; `to` is the place of the first one. */
static void
write_piece(const Rows *rows, const Run *run, char *to, ptrdiff_t pitch, const char *from, size_t height)
{
    char items[STAGE];
    ptrdiff_t step = rows->columns[run->column].stride;
    if (run->swap == 0) {
        copy_items(to, pitch, from, step, height, run->size);
    } else if (height * run->size <= STAGE) {
        copy_items(items, (ptrdiff_t)run->size, from, step, height, run->size);
        swap_bytes(items, height * run->size, run->swap);
        copy_items(to, pitch, items, (ptrdiff_t)run->size, height, run->size);
    } else {
        copy_items(to, pitch, from, step, height, run->size);
        swap_items(to, pitch, height, run->size, run->swap);
    }
}

/* Prefetches the lines of the rows at some positions, because stores wait for lines that are in no cache: 131,072 rows
   of 29 x f4 at random positions of 524,288 rows took 8.2 ms without this, and take 4.7 ms. */
static void
prefetch_rows(const Rows *rows, const int64_t *positions, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uintptr_t line = (uintptr_t)rows->data + (size_t)positions[i] * (size_t)rows->pitch;
        uintptr_t last = line + rows->width - 1;
        for (; line < last; line += LINE) {
            FETCH(line, 2);
        }
        FETCH(last, 2);
    }
}

/* Writes a run of some rows; `to` is the place of its first item. */
static void
write_run(const Rows *rows, const Run *run, char *to, ptrdiff_t pitch, size_t first, size_t height)
{
    const char *from[MAX_GROUP];
    size_t done = 0;
    for (size_t k = 0; k < run->count; k++) {
        const Column *column = &rows->columns[run->column + k];
        from[k] = column->data + (ptrdiff_t)first * column->stride + run->inner;
        for (size_t byte = 0; column->stride == (ptrdiff_t)run->size && byte < height * run->size; byte += LINE) {
            FETCH((uintptr_t)from[k] + 2 * height * run->size + byte, 2);
        }
    }
    if (run->count > 1 || (run->group != NULL && run->swap > 0)) {
        done = run->group->scatter(to, pitch, from, height, run->swap > 0);
    }
    for (size_t k = 0; done < height && k < run->count; k++) {
        write_piece(rows, run, to + (ptrdiff_t)done * pitch + k * run->size, pitch, from[k] + done * run->size,
                    height - done);
    }
}

/* Writes some rows that are `pitch` bytes apart. Other bytes of the rows stay as they are. */
static void
write_tile(const Rows *rows, char *to, ptrdiff_t pitch, size_t first, size_t height)
{
    for (const Run *run = rows->runs; run < rows->runs + rows->run_count; run++) {
        write_run(rows, run, to + run->offset, pitch, first, height);
    }
}

/* Sets all bytes of some rows to zero. */
static void
clear_rows(const Rows *rows, char *to, ptrdiff_t pitch, size_t height)
{
    if (pitch == (ptrdiff_t)rows->width) { /* one call: 1.9 times as fast for records of 24 bytes in the L2 cache */
        memset(to, 0, height * rows->width);
        return;
    }
    for (size_t i = 0; i < height; i++, to += pitch) {
        memset(to, 0, rows->width);
    }
}

/* Writes all rows past the caches, by tiles that are assembled in a stage. While a tile is assembled, parts of the one
   before it are written, so that the stores do not wait for each other. Measured on Emerald Rapids, two threads: 1.15
   times as fast for the record of a particle; no difference for records of few columns. */
static void
stream_in_order(const Rows *rows, size_t height)
{
    _Alignas(4096) char stages[2][STAGE + LINE];
    if (!rows->is_full) {
        memset(stages, 0, sizeof(stages));
    }
    char *stage = stages[0], *last_stage = stages[1];
    size_t skew = (uintptr_t)rows->data % LINE, last_bytes = 0, written = skew;
    char *last_to = rows->data - skew; /* starts a line, because each tile but the last one fills whole lines */
    for (size_t first = 0; first < rows->count; first += height) {
        size_t some = rows->count - first < height ? rows->count - first : height, assembled = 0;
        for (const Run *run = rows->runs; run < rows->runs + rows->run_count; run++) {
            write_run(rows, run, stage + skew + run->offset, rows->pitch, first, some);
            assembled += run->size * run->count;
            size_t end = last_bytes * assembled / rows->covered;
            end -= end % LINE;
            if (end > written) {
                stream(last_to + written, last_stage + written, end - written);
                written = end;
            }
        }
        memcpy(stage, last_stage + last_bytes, skew); /* the part of a line that ends in this tile */
        last_to += last_bytes;
        last_bytes = some * rows->width;
        written = 0;
        if (first == 0 && skew > 0) { /* the other bytes of the first line belong to other memory */
            written = LINE;
            memcpy(rows->data, stage + skew, last_bytes < LINE - skew ? last_bytes : LINE - skew);
        }
        last_stage = stage;
        stage = stage == stages[0] ? stages[1] : stages[0];
    }
    if (last_bytes + skew > written) {
        stream(last_to + written, last_stage + written, last_bytes + skew - written);
    }
    end_stream();
}

void
write_in_order(const Rows *rows, bool streams)
{
    size_t height = rows_written_together(rows);
    if (streams && rows->run_count > 0 && rows->pitch == (ptrdiff_t)rows->width &&
        height * rows->width <= STAGE) {
        stream_in_order(rows, height);
        return;
    }
    for (size_t first = 0; first < rows->count; first += height) {
        size_t some = rows->count - first < height ? rows->count - first : height;
        char *to = rows->data + (ptrdiff_t)first * rows->pitch;
        if (!rows->is_full) {
            clear_rows(rows, to, rows->pitch, some);
        }
        write_tile(rows, to, rows->pitch, first, some);
    }
}

void
write_at(const Rows *rows, size_t out_rows, const int64_t *positions)
{
    _Alignas(4096) char stage[STAGE];
    size_t height = rows->width > 0 ? STAGE / rows->width : UNIT;
    height = height > UNIT ? UNIT : height;
    bool staged = height > 0;
    height = staged ? height : 1;
    if (!rows->is_full) {
        memset(stage, 0, sizeof(stage));
    }
    for (size_t first = 0; first < rows->count; first += height) {
        size_t some = rows->count - first < height ? rows->count - first : height;
        if (staged) {
            prefetch_rows(rows, positions + first, some);
            write_tile(rows, stage, (ptrdiff_t)rows->width, first, some);
        }
        for (size_t i = 0; i < some; i++) {
            size_t position = (size_t)positions[first + i];
            if (position >= out_rows) {
                continue;
            }
            char *to = rows->data + (ptrdiff_t)position * rows->pitch;
            if (staged) {
                copy_row(to, stage + i * rows->width, rows->width);
                continue;
            }
            if (!rows->is_full) {
                clear_rows(rows, to, 0, 1);
            }
            write_tile(rows, to, 0, first, 1);
        }
    }
}

void
interleave(char *out, size_t pitch, const Column *columns, size_t count, size_t rows, size_t itemsize)
{
    Rows matrix = {.columns = (Column *)columns, .count = rows, .data = out, .pitch = (ptrdiff_t)pitch};
    for (size_t first = 0; first < rows; first += UNIT) {
        size_t height = rows - first < UNIT ? rows - first : UNIT;
        for (size_t k = 0; k < count;) {
            Run run = {.column = k, .count = 1, .size = itemsize, .group = group_of(count - k, itemsize), .is_last = true};
            run.count = run.group == NULL ? 1 : run.group->count;
            write_run(&matrix, &run, out + first * pitch + k * itemsize, matrix.pitch, first, height);
            k += run.count;
        }
    }
}
