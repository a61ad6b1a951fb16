/* Groups of columns transposed in registers of BYTES bytes, which tiles.c includes for each size of register.

   A register has lanes of 16 bytes. Each lane is transposed separately, because the shuffles of AVX2 do not move bytes
   between lanes. A window is the items of a group in one row; a lane holds the windows of consecutive rows. Each round
   of ZIP halves the distance between items of one column: with one letter for each of four columns, abcd abcd abcd
   abcd -> aabb ccdd aabb ccdd -> aaaa bbbb cccc dddd. */

#define ITEMS(SIZE) (16 / (SIZE)) /* of a lane, and so rows of a column */
#define LOG_2(NUMBER) ((NUMBER) >= 8 ? 3 : (NUMBER) >= 4 ? 2 : (NUMBER) >= 2 ? 1 : 0)

/* Defines functions that fill a register, with lanes that are `step` bytes apart. */
#define DEFINE_WINDOWS(WINDOW)                                                                                    \
    INLINE TARGET REGISTER(1) NAME(load_##WINDOW)(const char *from, ptrdiff_t pitch, ptrdiff_t step)              \
    {                                                                                                             \
        return JOIN_LANES(LOAD_##WINDOW);                                                                         \
    }
#define LOAD_4(I) load_lane_4(from + I * step, pitch)
#define LOAD_8(I) load_lane_8(from + I * step, pitch)
#define LOAD_12(I) load_lane_12(from + I * step, pitch)
#define LOAD_16(I) load_lane_16(from + I * step, pitch)
DEFINE_WINDOWS(4)
DEFINE_WINDOWS(8)
DEFINE_WINDOWS(12)
DEFINE_WINDOWS(16)

#define ZIP(N, SIZE, V, ROUNDS)                                                                                   \
    UNROLL for (int round = 0; N > 1 && round < ROUNDS; round++) {                                                \
        REGISTER(SIZE) w[N];                                                                                      \
        UNROLL for (int k = 0; k < N / 2; k++) {                                                                  \
            w[2 * k] = LOW(SIZE, V[k], V[k + N / 2]);                                                             \
            w[2 * k + 1] = HIGH(SIZE, V[k], V[k + N / 2]);                                                        \
        }                                                                                                         \
        UNROLL for (int k = 0; k < N; k++) {                                                                      \
            V[k] = w[k];                                                                                          \
        }                                                                                                         \
    }

/* Writes a lane of each register, so that rows are written in order. */
#define STORE_LANE(I, N, SIZE, WINDOW)                                                                            \
    UNROLL for (int k = 0; k < N; k++) {                                                                          \
        store_lane_##WINDOW(to + I * step + k * (ITEMS(SIZE) / N) * pitch, pitch, (Register_16_1)LANE_##I(v[k])); \
    }

/* Defines NAME(gather_COUNT_SIZE) and NAME(scatter_COUNT_SIZE) for N columns, of which COUNT are used.
   All parts of a cache line are written one after the other. If stores past the caches alternated between lines, each
   part would cost a memory transaction. */
#define DEFINE_GROUP(N, COUNT, SIZE, WINDOW)                                                                      \
    TARGET static size_t NAME(gather_##COUNT##_##SIZE)(char *const *to, const char *from, ptrdiff_t pitch,        \
                                                       size_t rows, bool swaps, bool streams)                     \
    {                                                                                                             \
        const ptrdiff_t step = ITEMS(SIZE) * pitch;                                                               \
        size_t i = 0;                                                                                             \
        for (; i + LINE / SIZE <= rows; i += LINE / SIZE, from += LINE / SIZE * pitch) {                          \
            REGISTER(SIZE) v[LINE / BYTES][N];                                                                    \
            UNROLL for (int part = 0; part < LINE / BYTES; part++) {                                              \
                const char *first = from + part * (BYTES / 16) * step;                                            \
                UNROLL for (int k = 0; k < N; k++) {                                                              \
                    v[part][k] = (REGISTER(SIZE))NAME(load_##WINDOW)(first + k * (ITEMS(SIZE) / N) * pitch, pitch, \
                                                                     step);                                       \
                }                                                                                                 \
                ZIP(N, SIZE, v[part], LOG_2(ITEMS(SIZE)))                                                         \
            }                                                                                                     \
            UNROLL for (int k = 0; k < COUNT; k++) {                                                              \
                UNROLL for (int part = 0; part < LINE / BYTES; part++) {                                          \
                    REGISTER(1) items = (REGISTER(1))v[part][k];                                                  \
                    items = swaps ? NAME(reversed_##SIZE)(items) : items;                                         \
                    NAME(store)(to[k] + i * SIZE + part * BYTES, items, streams);                                 \
                }                                                                                                 \
            }                                                                                                     \
        }                                                                                                         \
        return i;                                                                                                 \
    }                                                                                                             \
    TARGET static size_t NAME(scatter_##COUNT##_##SIZE)(char *to, ptrdiff_t pitch, const char *const *from,       \
                                                        size_t rows, bool swaps)                                  \
    {                                                                                                             \
        const ptrdiff_t step = ITEMS(SIZE) * pitch;                                                               \
        size_t i = 0;                                                                                             \
        for (; i + BYTES / SIZE <= rows; i += BYTES / SIZE, to += BYTES / SIZE * pitch) {                         \
            REGISTER(SIZE) v[N];                                                                                  \
            v[N - 1] = (REGISTER(SIZE)){0};                                                                       \
            UNROLL for (int k = 0; k < COUNT; k++) {                                                              \
                REGISTER(1) items;                                                                                \
                memcpy(&items, from[k] + i * SIZE, BYTES);                                                        \
                v[k] = (REGISTER(SIZE))(swaps ? NAME(reversed_##SIZE)(items) : items);                            \
            }                                                                                                     \
            ZIP(N, SIZE, v, LOG_2(N))                                                                             \
            EACH_LANE(STORE_LANE, N, SIZE, WINDOW)                                                                \
        }                                                                                                         \
        return i;                                                                                                 \
    }

DEFINE_GROUP(4, 4, 4, 16)
DEFINE_GROUP(4, 3, 4, 12)
DEFINE_GROUP(2, 2, 4, 8)
DEFINE_GROUP(1, 1, 4, 4)
DEFINE_GROUP(2, 2, 8, 16)
DEFINE_GROUP(1, 1, 8, 8)
DEFINE_GROUP(4, 4, 2, 8)
DEFINE_GROUP(2, 2, 2, 4)

#if BYTES > 16 /* four columns of 8 bytes: to rows, stores of 32 bytes are 1.25 times as fast as two groups of two */
TARGET static size_t
NAME(gather_4_8)(char *const *to, const char *from, ptrdiff_t pitch, size_t rows, bool swaps, bool streams)
{
    NAME(gather_2_8)(to, from, pitch, rows, swaps, streams);
    return NAME(gather_2_8)(to + 2, from + 16, pitch, rows, swaps, streams);
}

#define STORE_HALF(I, W)                                                                                          \
    UNROLL for (int k = 0; k < 4; k++) {                                                                          \
        __m256i row = HALF_##I(W[k]);                                                                             \
        memcpy(to + (I * 4 + k) * pitch, &row, 32);                                                               \
    }

TARGET static size_t
NAME(scatter_4_8)(char *to, ptrdiff_t pitch, const char *const *from, size_t rows, bool swaps)
{
    size_t i = 0;
    for (; i + BYTES / 8 <= rows; i += BYTES / 8, to += BYTES / 8 * pitch) {
        REGISTER(8) v[4];
        UNROLL for (int k = 0; k < 4; k++) {
            REGISTER(1) items;
            memcpy(&items, from[k] + i * 8, BYTES);
            v[k] = (REGISTER(8))(swaps ? NAME(reversed_8)(items) : items);
        }
        REGISTER(8) a = LOW(8, v[0], v[1]), b = HIGH(8, v[0], v[1]), c = LOW(8, v[2], v[3]), d = HIGH(8, v[2], v[3]);
        REGISTER(8) w[] = {FOURS(0, a, c), FOURS(0, b, d), FOURS(2, a, c), FOURS(2, b, d)};
        EACH_HALF(STORE_HALF, w)
    }
    return i;
}
#undef STORE_HALF
#endif

#define GROUP_OF(COUNT, SIZE) {COUNT, SIZE, NAME(gather_##COUNT##_##SIZE), NAME(scatter_##COUNT##_##SIZE)}
static const Group NAME(groups)[] = {
    GROUP_OF(4, 4), GROUP_OF(3, 4), GROUP_OF(2, 4), GROUP_OF(1, 4),
#if BYTES > 16
    GROUP_OF(4, 8),
#endif
    GROUP_OF(2, 8), GROUP_OF(1, 8), GROUP_OF(4, 2), GROUP_OF(2, 2), {0, 0, NULL, NULL},
};

TARGET static void
NAME(stream)(char *to, const char *from, size_t nbytes)
{
    size_t byte = 0;
    for (; byte + LINE <= nbytes; byte += LINE) {
        UNROLL for (int part = 0; part < LINE; part += BYTES) {
            REGISTER(1) bytes;
            memcpy(&bytes, from + byte + part, BYTES);
            NAME(store)(to + byte + part, bytes, true);
        }
    }
    memcpy(to + byte, from + byte, nbytes - byte);
}

#undef ITEMS
#undef LOG_2
#undef LOAD_4
#undef LOAD_8
#undef LOAD_12
#undef LOAD_16
#undef DEFINE_WINDOWS
#undef ZIP
#undef STORE_LANE
#undef DEFINE_GROUP
#undef GROUP_OF
#undef BYTES
#undef TARGET
#undef JOIN_LANES
#undef LANE_0
#undef EACH_LANE
#undef HALF_0
#undef EACH_HALF
