/* Transposes tiles of columns to rows, and back. */
#include "rows.h"

#if defined(__SSE2__)
#include <emmintrin.h>

void
copy_past_caches(char *to, const char *from, size_t nbytes)
{
    size_t byte = -(uintptr_t)to % 16;
    byte = byte < nbytes ? byte : nbytes;
    memcpy(to, from, byte);
    for (; byte + 16 <= nbytes; byte += 16) {
        _mm_stream_si128((__m128i *)(to + byte), _mm_loadu_si128((const __m128i *)(from + byte)));
    }
    memcpy(to + byte, from + byte, nbytes - byte);
}
#endif

#define AHEAD 512 /* bytes */

/* A zip interleaves the lanes of two vectors. Compilers reduce these shuffles to one instruction of SSE2 or NEON. */
#if defined(__clang__)
#define SHUFFLE(A, B, ...) __builtin_shufflevector(A, B, __VA_ARGS__)
#define UNROLL
#define UNROLL_4
#define HAS_ZIP 1
#elif defined(__GNUC__)
#define SHUFFLE(A, B, ...) __builtin_shuffle(A, B, (__typeof__(A)){__VA_ARGS__})
#define UNROLL _Pragma("GCC unroll 16")
#define UNROLL_4 _Pragma("GCC unroll 4")
#define HAS_ZIP 1
#else
#define UNROLL_4
#define HAS_ZIP 0
#endif

/* Writes or reads one column. memcpy allows any alignment. */
#define DEFINE_PLAIN(SIZE)                                                                                        \
    static void write_column_##SIZE(char *to, size_t pitch, const char *from, ptrdiff_t stride, size_t rows)      \
    {                                                                                                             \
        UNROLL_4 for (size_t i = 0; i < rows; i++, to += pitch, from += stride) {                                 \
            memcpy(to, from, SIZE);                                                                               \
        }                                                                                                         \
    }                                                                                                             \
    static void read_column_##SIZE(const char *from, size_t pitch, char *to, size_t rows)                         \
    {                                                                                                             \
        UNROLL_4 for (size_t i = 0; i < rows; i++, to += SIZE, from += pitch) {                                   \
            memcpy(to, from, SIZE);                                                                               \
        }                                                                                                         \
    }

DEFINE_PLAIN(1)
DEFINE_PLAIN(2)
DEFINE_PLAIN(4)
DEFINE_PLAIN(8)
DEFINE_PLAIN(16)

#if HAS_ZIP

typedef uint8_t Bytes __attribute__((vector_size(16)));
typedef uint16_t Shorts __attribute__((vector_size(16)));
typedef uint32_t Words __attribute__((vector_size(16)));
typedef uint64_t Longs __attribute__((vector_size(16)));

#define LOW_1(A, B) SHUFFLE(A, B, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define HIGH_1(A, B) SHUFFLE(A, B, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#define LOW_2(A, B) SHUFFLE(A, B, 0, 8, 1, 9, 2, 10, 3, 11)
#define HIGH_2(A, B) SHUFFLE(A, B, 4, 12, 5, 13, 6, 14, 7, 15)
#define LOW_4(A, B) SHUFFLE(A, B, 0, 4, 1, 5)
#define HIGH_4(A, B) SHUFFLE(A, B, 2, 6, 3, 7)
#define LOW_8(A, B) SHUFFLE(A, B, 0, 2)
#define HIGH_8(A, B) SHUFFLE(A, B, 1, 3)

/* The perfect shuffle of four vectors. Two rounds interleave four columns. log2(lanes) rounds are the inverse. */
#define ROUND(SIZE, VECTOR, V)                                                                                    \
    do {                                                                                                          \
        VECTOR a = LOW_##SIZE(V[0], V[2]), b = HIGH_##SIZE(V[0], V[2]);                                           \
        VECTOR c = LOW_##SIZE(V[1], V[3]), d = HIGH_##SIZE(V[1], V[3]);                                           \
        V[0] = a, V[1] = b, V[2] = c, V[3] = d;                                                                   \
    } while (0)
#define ROUNDS_1(V) ROUND(1, Bytes, V); ROUND(1, Bytes, V); ROUND(1, Bytes, V); ROUND(1, Bytes, V)
#define ROUNDS_2(V) ROUND(2, Shorts, V); ROUND(2, Shorts, V); ROUND(2, Shorts, V)
#define ROUNDS_4(V) ROUND(4, Words, V); ROUND(4, Words, V)
#define ROUNDS_8(V) ROUND(8, Longs, V)

/* Four columns at a time. A vector holds 16 / SIZE items of a column, or as many rows of four items as fit. */
#define DEFINE_GROUPS(SIZE, VECTOR)                                                                               \
    static size_t write_group_##SIZE(char *to, size_t pitch, const Column *columns, size_t first, size_t rows)    \
    {                                                                                                             \
        const char *from[4];                                                                                      \
        for (int k = 0; k < 4; k++) {                                                                             \
            from[k] = columns[k].data + first * SIZE;                                                             \
        }                                                                                                         \
        size_t i = 0;                                                                                             \
        for (; i + 16 / SIZE <= rows; i += 16 / SIZE) {                                                           \
            VECTOR v[4];                                                                                          \
            memcpy(&v[0], from[0] + i * SIZE, 16);                                                                \
            memcpy(&v[1], from[1] + i * SIZE, 16);                                                                \
            memcpy(&v[2], from[2] + i * SIZE, 16);                                                                \
            memcpy(&v[3], from[3] + i * SIZE, 16);                                                                \
            ROUND(SIZE, VECTOR, v);                                                                               \
            ROUND(SIZE, VECTOR, v);                                                                               \
            UNROLL for (int k = 0; k < 16 / SIZE; k++, to += pitch) {                                             \
                memcpy(to, (char *)v + (size_t)k * 4 * SIZE, 4 * SIZE);                                           \
            }                                                                                                     \
        }                                                                                                         \
        return i;                                                                                                 \
    }                                                                                                             \
    static size_t read_group_##SIZE(const char *from, size_t pitch, const Column *columns, size_t first,          \
                                    size_t rows)                                                                  \
    {                                                                                                             \
        char *to[4];                                                                                              \
        for (int k = 0; k < 4; k++) {                                                                             \
            to[k] = columns[k].data + first * SIZE;                                                               \
        }                                                                                                         \
        size_t i = 0;                                                                                             \
        for (; i + 16 / SIZE <= rows; i += 16 / SIZE) {                                                           \
            VECTOR v[4];                                                                                          \
            UNROLL for (int k = 0; k < 16 / SIZE; k++, from += pitch) {                                           \
                memcpy((char *)v + (size_t)k * 4 * SIZE, from, 4 * SIZE);                                         \
            }                                                                                                     \
            ROUNDS_##SIZE(v);                                                                                     \
            memcpy(to[0] + i * SIZE, &v[0], 16);                                                                  \
            memcpy(to[1] + i * SIZE, &v[1], 16);                                                                  \
            memcpy(to[2] + i * SIZE, &v[2], 16);                                                                  \
            memcpy(to[3] + i * SIZE, &v[3], 16);                                                                  \
        }                                                                                                         \
        return i;                                                                                                 \
    }

DEFINE_GROUPS(1, Bytes)
DEFINE_GROUPS(2, Shorts)
DEFINE_GROUPS(4, Words)
DEFINE_GROUPS(8, Longs)
#endif

/* The functions for items of one size. Functions for groups return how many rows they handled, or are NULL. */
typedef struct {
    size_t (*write_group)(char *, size_t, const Column *, size_t, size_t);
    size_t (*read_group)(const char *, size_t, const Column *, size_t, size_t);
    void (*write_column)(char *, size_t, const char *, ptrdiff_t, size_t);
    void (*read_column)(const char *, size_t, char *, size_t);
} Kernels;

#if HAS_ZIP
#define KERNELS(SIZE) {write_group_##SIZE, read_group_##SIZE, write_column_##SIZE, read_column_##SIZE}
#else
#define KERNELS(SIZE) {NULL, NULL, write_column_##SIZE, read_column_##SIZE}
#endif

static const Kernels kernels[] = {
    KERNELS(1), KERNELS(2), KERNELS(4), KERNELS(8), {NULL, NULL, write_column_16, read_column_16},
};

/* Returns the kernels for a size, or NULL. */
static const Kernels *
kernels_of(size_t size)
{
    switch (size) {
    case 1:
        return &kernels[0];
    case 2:
        return &kernels[1];
    case 4:
        return &kernels[2];
    case 8:
        return &kernels[3];
    case 16:
        return &kernels[4];
    default:
        return NULL;
    }
}

/* Prefetches columns some tiles ahead. Hardware does not follow dozens of columns at once: with 29 columns of float32,
   1,048,576 rows were transposed in 6 ms instead of 14. */
static inline void
fetch_ahead(const Column *columns, size_t count, size_t first, size_t rows, size_t size)
{
    for (size_t k = 0; k < count; k++) {
        uintptr_t data = (uintptr_t)columns[k].data + first * size + AHEAD;
        for (size_t byte = 0; byte < rows * size; byte += LINE) {
            FETCH(data + byte);
        }
    }
}

/* Whether four columns are contiguous. */
static inline bool
are_contiguous(const Column *columns, ptrdiff_t size)
{
    return columns[0].stride == size && columns[1].stride == size && columns[2].stride == size &&
           columns[3].stride == size;
}

void
write_tile(char *out, size_t pitch, const Column *columns, size_t count, size_t first, size_t rows, size_t size)
{
    const Kernels *kernel = kernels_of(size);
    for (size_t j = 0; j < count;) {
        size_t width = 1, done = 0;
        if (kernel != NULL && kernel->write_group != NULL && j + 4 <= count &&
            are_contiguous(columns + j, (ptrdiff_t)size)) {
            width = 4;
            fetch_ahead(columns + j, 4, first, rows, size);
            done = kernel->write_group(out + j * size, pitch, columns + j, first, rows);
        }
        for (size_t end = j + width; j < end; j++) {
            const char *from = columns[j].data + (ptrdiff_t)(first + done) * columns[j].stride;
            char *to = out + done * pitch + j * size;
            if (kernel != NULL) {
                if (width == 1 && columns[j].stride == (ptrdiff_t)size) {
                    fetch_ahead(columns + j, 1, first, rows, size);
                }
                kernel->write_column(to, pitch, from, columns[j].stride, rows - done);
                continue;
            }
            for (size_t i = 0; i < rows; i++, to += pitch, from += columns[j].stride) {
                memcpy(to, from, size);
            }
        }
    }
}

void
read_tile(const char *in, size_t pitch, const Column *columns, size_t count, size_t first, size_t rows, size_t size)
{
    const Kernels *kernel = kernels_of(size);
    for (size_t j = 0; j < count;) {
        size_t width = 1, done = 0;
        if (kernel != NULL && kernel->read_group != NULL && j + 4 <= count) {
            width = 4;
            fetch_ahead(columns + j, 4, first, rows, size);
            done = kernel->read_group(in + j * size, pitch, columns + j, first, rows);
        }
        for (size_t end = j + width; j < end; j++) {
            const char *from = in + done * pitch + j * size;
            char *to = columns[j].data + (first + done) * size;
            if (kernel != NULL) {
                if (width == 1) {
                    fetch_ahead(columns + j, 1, first, rows, size);
                }
                kernel->read_column(from, pitch, to, rows - done);
                continue;
            }
            for (size_t i = 0; i < rows; i++, to += size, from += pitch) {
                memcpy(to, from, size);
            }
        }
    }
}
