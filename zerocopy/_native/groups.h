/* Groups of columns transposed in registers of BYTES bytes, which tiles.c includes for each size of register.

   A window is the items of a group in one row. A register is filled with the windows of the next rows. With one letter
   for each item, two rounds sort those of four columns: abcd abcd ... -> acac ... bdbd ... -> aaaa bbbb cccc dddd. */

#define LANES(SIZE) (BYTES / (SIZE))

/* Defines NAME(gather_N_SIZE) and NAME(scatter_N_SIZE) for N columns, of which COUNT are used. */
#define DEFINE_GROUP(N, COUNT, SIZE, WINDOW)                                                                      \
    TARGET static size_t NAME(gather_##COUNT##_##SIZE)(char *const *to, const char *from, ptrdiff_t pitch,        \
                                                       size_t rows, bool swaps, bool streams)                     \
    {                                                                                                             \
        size_t i = 0;                                                                                             \
        for (; i + LANES(SIZE) <= rows; i += LANES(SIZE), from += LANES(SIZE) * pitch) {                          \
            REGISTER(SIZE) v[N];                                                                                  \
            UNROLL for (int k = 0; k < N; k++) {                                                                  \
                v[k] = (REGISTER(SIZE))NAME(load_windows_##WINDOW)(from + k * (LANES(SIZE) / N) * pitch, pitch);  \
            }                                                                                                     \
            UNZIP_##N(SIZE, v);                                                                                   \
            UNROLL for (int k = 0; k < COUNT; k++) {                                                              \
                REGISTER(1) items = (REGISTER(1))v[k];                                                            \
                if (swaps) {                                                                                      \
                    items = NAME(reversed_##SIZE)(v[k]);                                                          \
                }                                                                                                 \
                NAME(store)(to[k] + i * SIZE, items, streams);                                                    \
            }                                                                                                     \
        }                                                                                                         \
        return i;                                                                                                 \
    }                                                                                                             \
    TARGET static size_t NAME(scatter_##COUNT##_##SIZE)(char *to, ptrdiff_t pitch, const char *const *from,       \
                                                        size_t rows, bool swaps)                                  \
    {                                                                                                             \
        size_t i = 0;                                                                                             \
        for (; i + LANES(SIZE) <= rows; i += LANES(SIZE), to += LANES(SIZE) * pitch) {                            \
            REGISTER(SIZE) v[N];                                                                                  \
            v[N - 1] = (REGISTER(SIZE)){0};                                                                       \
            UNROLL for (int k = 0; k < COUNT; k++) {                                                              \
                memcpy(&v[k], from[k] + i * SIZE, BYTES);                                                         \
                if (swaps) {                                                                                      \
                    v[k] = (REGISTER(SIZE))NAME(reversed_##SIZE)(v[k]);                                           \
                }                                                                                                 \
            }                                                                                                     \
            ZIP_##N(SIZE, v);                                                                                     \
            UNROLL for (int k = 0; k < N; k++) {                                                                  \
                NAME(store_windows_##WINDOW)(to + k * (LANES(SIZE) / N) * pitch, pitch, (REGISTER(1))v[k]);       \
            }                                                                                                     \
        }                                                                                                         \
        return i;                                                                                                 \
    }

DEFINE_GROUP(4, 4, 4, 16)
DEFINE_GROUP(4, 3, 4, 12)
DEFINE_GROUP(2, 2, 4, 8)
DEFINE_GROUP(1, 1, 4, 4)
DEFINE_GROUP(2, 2, 8, 16)
DEFINE_GROUP(1, 1, 8, 8)
#if BYTES == 64 /* a window fits into the register: 1.25 times as fast to rows as two groups of two */
DEFINE_GROUP(4, 4, 8, 32)
#endif
DEFINE_GROUP(4, 4, 2, 8)
DEFINE_GROUP(2, 2, 2, 4)

#define GROUP_OF(COUNT, SIZE) {COUNT, SIZE, NAME(gather_##COUNT##_##SIZE), NAME(scatter_##COUNT##_##SIZE)}
static const Group NAME(groups)[] = {
    GROUP_OF(4, 4), GROUP_OF(3, 4), GROUP_OF(2, 4), GROUP_OF(1, 4),
#if BYTES == 64
    GROUP_OF(4, 8),
#endif
    GROUP_OF(2, 8), GROUP_OF(1, 8), GROUP_OF(4, 2), GROUP_OF(2, 2), {0, 0, NULL, NULL},
};
#undef GROUP_OF
#undef DEFINE_GROUP
#undef LANES
