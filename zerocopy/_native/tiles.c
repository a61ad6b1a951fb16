/* Items of rows gathered into columns, and scattered back, with the registers that the processor has. */
#include "rows.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define UNROLL _Pragma("GCC unroll 16")
#define INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define SHUFFLE(A, B, ...) __builtin_shufflevector(A, B, __VA_ARGS__)
#else
#define SHUFFLE(A, B, ...) __builtin_shuffle(A, B, (__typeof__(A)){__VA_ARGS__})
#endif

#define JOIN(A, B) A##_##B
#define JOINED(A, B) JOIN(A, B)
#define NAME(FUNCTION) JOINED(FUNCTION, BYTES)
#define REGISTER(SIZE) JOINED(NAME(Register), SIZE)

#define DEFINE_REGISTERS(BYTES)                                                                                   \
    typedef uint8_t Register_##BYTES##_1 __attribute__((vector_size(BYTES)));                                     \
    typedef uint16_t Register_##BYTES##_2 __attribute__((vector_size(BYTES)));                                    \
    typedef uint32_t Register_##BYTES##_4 __attribute__((vector_size(BYTES)));                                    \
    typedef uint64_t Register_##BYTES##_8 __attribute__((vector_size(BYTES)));
DEFINE_REGISTERS(16)
DEFINE_REGISTERS(32)
DEFINE_REGISTERS(64)

/* Numbers of items for SHUFFLE: half a lane of A from item I on, each item followed by that of B, whose number is N
   greater. */
#define PAIRS_8(I, N) (I), (I) + (N)
#define PAIRS_4(I, N) PAIRS_8(I, N), PAIRS_8((I) + 1, N)
#define PAIRS_2(I, N) PAIRS_4(I, N), PAIRS_4((I) + 2, N)
/* PAIRS for each lane; a lane has E items. */
#define IN_LANES_16(PAIRS, I, E) PAIRS(I, E)
#define IN_LANES_32(PAIRS, I, E) PAIRS(I, 2 * (E)), PAIRS((I) + (E), 2 * (E))
#define IN_LANES_64(PAIRS, I, E)                                                                                     \
    PAIRS(I, 4 * (E)), PAIRS((I) + (E), 4 * (E)), PAIRS((I) + 2 * (E), 4 * (E)), PAIRS((I) + 3 * (E), 4 * (E))
#define LOW(SIZE, A, B) SHUFFLE(A, B, NAME(IN_LANES)(PAIRS_##SIZE, 0, 16 / SIZE))
#define HIGH(SIZE, A, B) SHUFFLE(A, B, NAME(IN_LANES)(PAIRS_##SIZE, 8 / SIZE, 16 / SIZE))

/* Numbers of items of 8 bytes for SHUFFLE: from each 32 bytes, two items of A from I on, and the same items of B. */
#define JOINED_FOUR(I, N) (I), (I) + 1, (I) + (N), (I) + (N) + 1
#define IN_FOURS_32(I) JOINED_FOUR(I, 4)
#define IN_FOURS_64(I) JOINED_FOUR(I, 8), JOINED_FOUR((I) + 4, 8)
#define FOURS(I, A, B) SHUFFLE(A, B, NAME(IN_FOURS)(I))

/* Numbers of bytes for SHUFFLE: those of units of SIZE bytes, in reverse order. */
#define BACK_2(I) (I) + 1, (I)
#define BACK_4(I) (I) + 3, (I) + 2, (I) + 1, (I)
#define BACK_8(I) BACK_4((I) + 4), BACK_4(I)
#define BACK_8_2(I) BACK_2(I), BACK_2((I) + 2), BACK_2((I) + 4), BACK_2((I) + 6)
#define BACK_8_4(I) BACK_4(I), BACK_4((I) + 4)
#define BACK_8_8(I) BACK_8(I)
#define BACK_32(EIGHT, I) EIGHT(I), EIGHT((I) + 8), EIGHT((I) + 16), EIGHT((I) + 24)

/* -- lanes of 16 bytes ---------------------------------------------------------------------------------------- */

INLINE uint32_t
load_4(const char *from)
{
    uint32_t value;
    memcpy(&value, from, 4);
    return value;
}

INLINE uint64_t
load_8(const char *from)
{
    uint64_t value;
    memcpy(&value, from, 8);
    return value;
}

INLINE void
store_4(char *to, uint32_t value)
{
    memcpy(to, &value, 4);
}

INLINE void
store_8(char *to, uint64_t value)
{
    memcpy(to, &value, 8);
}

INLINE Register_16_1
load_lane_4(const char *from, ptrdiff_t pitch)
{
    return (Register_16_1)(Register_16_4){load_4(from), load_4(from + pitch), load_4(from + 2 * pitch),
                                          load_4(from + 3 * pitch)};
}

INLINE void
store_lane_4(char *to, ptrdiff_t pitch, Register_16_1 value)
{
    Register_16_4 words = (Register_16_4)value;
    store_4(to, words[0]);
    store_4(to + pitch, words[1]);
    store_4(to + 2 * pitch, words[2]);
    store_4(to + 3 * pitch, words[3]);
}

INLINE Register_16_1
load_lane_8(const char *from, ptrdiff_t pitch)
{
    return (Register_16_1)(Register_16_8){load_8(from), load_8(from + pitch)};
}

INLINE void
store_lane_8(char *to, ptrdiff_t pitch, Register_16_1 value)
{
    store_8(to, ((Register_16_8)value)[0]);
    store_8(to + pitch, ((Register_16_8)value)[1]);
}

INLINE Register_16_1
load_lane_12(const char *from, ptrdiff_t pitch)
{
    return (Register_16_1)(Register_16_8){load_8(from), load_4(from + 8)};
}

INLINE void
store_lane_12(char *to, ptrdiff_t pitch, Register_16_1 value)
{
    store_8(to, ((Register_16_8)value)[0]);
    store_4(to + 8, ((Register_16_4)value)[2]);
}

INLINE Register_16_1
load_lane_16(const char *from, ptrdiff_t pitch)
{
    Register_16_1 value;
    memcpy(&value, from, 16);
    return value;
}

INLINE void
store_lane_16(char *to, ptrdiff_t pitch, Register_16_1 value)
{
    memcpy(to, &value, 16);
}

/* -- registers of 16 bytes: SSE2, NEON ------------------------------------------------------------------------ */

INLINE void
store_16(char *to, Register_16_1 value, bool streams)
{
#if defined(__SSE2__)
    if (streams) {
        _mm_stream_si128((__m128i *)to, (__m128i)value);
        return;
    }
#endif
    memcpy(to, &value, 16);
}

/* SSE2 has no shuffle of bytes: bytes are swapped by shifts, then shorts within their item. */
INLINE Register_16_1
reversed_2_16(Register_16_1 value)
{
    Register_16_2 shorts = (Register_16_2)value;
    return (Register_16_1)(shorts << 8 | shorts >> 8);
}

INLINE Register_16_1
reversed_4_16(Register_16_1 value)
{
    Register_16_2 shorts = (Register_16_2)reversed_2_16(value);
    return (Register_16_1)SHUFFLE(shorts, shorts, 1, 0, 3, 2, 5, 4, 7, 6);
}

INLINE Register_16_1
reversed_8_16(Register_16_1 value)
{
    Register_16_2 shorts = (Register_16_2)reversed_2_16(value);
    return (Register_16_1)SHUFFLE(shorts, shorts, 3, 2, 1, 0, 7, 6, 5, 4);
}

#define BYTES 16
#define TARGET
#define JOIN_LANES(LANE) LANE(0)
#define LANE_0(VALUE) (VALUE)
#define EACH_LANE(STORE, ...) STORE(0, __VA_ARGS__)
#include "groups.h"

#if defined(__x86_64__)

/* -- registers of 32 bytes: AVX2 ------------------------------------------------------------------------------ */

#define BYTES 32
#define TARGET __attribute__((target("avx2")))
#define JOIN_LANES(LANE) (Register_32_1)_mm256_set_m128i((__m128i)LANE(1), (__m128i)LANE(0))
#define LANE_0(VALUE) _mm256_castsi256_si128((__m256i)VALUE)
#define LANE_1(VALUE) _mm256_extracti128_si256((__m256i)VALUE, 1)
#define EACH_LANE(STORE, ...) STORE(0, __VA_ARGS__) STORE(1, __VA_ARGS__)
#define HALF_0(VALUE) ((__m256i)VALUE)
#define EACH_HALF(STORE, ...) STORE(0, __VA_ARGS__)

INLINE TARGET void
store_32(char *to, Register_32_1 value, bool streams)
{
    if (streams) {
        _mm256_stream_si256((__m256i *)to, (__m256i)value);
    } else {
        memcpy(to, &value, 32);
    }
}

#define DEFINE_REVERSED(SIZE)                                                                                     \
    INLINE TARGET Register_32_1 reversed_##SIZE##_32(Register_32_1 value)                                         \
    {                                                                                                             \
        return SHUFFLE(value, value, BACK_32(BACK_8_##SIZE, 0));                                                  \
    }
DEFINE_REVERSED(2)
DEFINE_REVERSED(4)
DEFINE_REVERSED(8)
#undef DEFINE_REVERSED
#include "groups.h"

/* -- registers of 64 bytes: AVX-512 --------------------------------------------------------------------------- */

/* A register is a cache line, which one store writes past the caches. */

#define BYTES 64
#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl")))
#define HALF(A, B) _mm256_set_m128i((__m128i)B, (__m128i)A)
#define JOIN_LANES(LANE)                                                                                          \
    (Register_64_1) _mm512_inserti64x4(_mm512_castsi256_si512(HALF(LANE(0), LANE(1))), HALF(LANE(2), LANE(3)), 1)
#undef LANE_1
#define LANE_0(VALUE) _mm512_castsi512_si128((__m512i)VALUE)
#define LANE_1(VALUE) _mm512_extracti32x4_epi32((__m512i)VALUE, 1)
#define LANE_2(VALUE) _mm512_extracti32x4_epi32((__m512i)VALUE, 2)
#define LANE_3(VALUE) _mm512_extracti32x4_epi32((__m512i)VALUE, 3)
#define EACH_LANE(STORE, ...)                                                                                     \
    STORE(0, __VA_ARGS__) STORE(1, __VA_ARGS__) STORE(2, __VA_ARGS__) STORE(3, __VA_ARGS__)
#define HALF_0(VALUE) _mm512_castsi512_si256((__m512i)VALUE)
#define HALF_1(VALUE) _mm512_extracti64x4_epi64((__m512i)VALUE, 1)
#define EACH_HALF(STORE, ...) STORE(0, __VA_ARGS__) STORE(1, __VA_ARGS__)

INLINE TARGET void
store_64(char *to, Register_64_1 value, bool streams)
{
    if (streams) {
        _mm512_stream_si512((__m512i *)to, (__m512i)value);
    } else {
        memcpy(to, &value, 64);
    }
}

#define DEFINE_REVERSED(SIZE)                                                                                     \
    INLINE TARGET Register_64_1 reversed_##SIZE##_64(Register_64_1 value)                                         \
    {                                                                                                             \
        return SHUFFLE(value, value, BACK_32(BACK_8_##SIZE, 0), BACK_32(BACK_8_##SIZE, 32));                      \
    }
DEFINE_REVERSED(2)
DEFINE_REVERSED(4)
DEFINE_REVERSED(8)
#undef DEFINE_REVERSED

INLINE TARGET Register_16_1
load_12_masked(const char *from, ptrdiff_t pitch)
{
    return (Register_16_1)_mm_maskz_loadu_epi32(7, from);
}

/* The empty statement keeps GCC from joining the store with the extraction of the value: vextracti32x4 with a mask
   faults on bytes that the mask excludes. */
INLINE TARGET void
store_12_masked(char *to, ptrdiff_t pitch, Register_16_1 value)
{
    __m128i lane = (__m128i)value;
    __asm__("" : "+x"(lane));
    _mm_mask_storeu_epi32(to, 7, lane);
}
#define load_lane_12 load_12_masked
#define store_lane_12 store_12_masked
#include "groups.h"
#endif

#define SWAP(UNIT)                                                                                                \
    for (; byte + 16 <= nbytes; byte += 16) {                                                                     \
        Register_16_1 value = reversed_##UNIT##_16(load_lane_16(data + byte, 0));                                 \
        memcpy(data + byte, &value, 16);                                                                          \
    }

void
swap_bytes(char *data, size_t nbytes, size_t unit)
{
    size_t byte = 0;
    if (unit == 2) {
        SWAP(2);
    } else if (unit == 4) {
        SWAP(4);
    } else if (unit == 8) {
        SWAP(8);
    }
    for (; byte < nbytes; byte += unit) {
        for (size_t low = byte, high = byte + unit - 1; low < high; low++, high--) {
            char value = data[low];
            data[low] = data[high];
            data[high] = value;
        }
    }
}

void
end_stream(void)
{
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

/* Registers of one size. */
typedef struct {
    const char *name; /* of the instruction set */
    const Group *groups;
    void (*stream)(char *to, const char *from, size_t nbytes);
} Isa;

static const Isa isas[] = {
#if defined(__x86_64__)
    {"avx512", groups_64, stream_64},
    {"avx2", groups_32, stream_32},
    {"sse2", groups_16, stream_16},
#elif defined(__aarch64__)
    {"neon", groups_16, stream_16},
#else
    {"generic", groups_16, stream_16},
#endif
};
#define ISAS (sizeof(isas) / sizeof(isas[0]))

static const Isa *isa = &isas[ISAS - 1];

/* Whether this processor has the instructions of a set. */
static bool
is_usable(const Isa *set)
{
#if defined(__x86_64__)
    if (set->groups == groups_64) {
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl");
    }
    return set->groups != groups_32 || __builtin_cpu_supports("avx2");
#else
    return true;
#endif
}

const char *
isa_name(size_t number)
{
    for (const Isa *set = isas; set < isas + ISAS; set++) {
        if (is_usable(set) && number-- == 0) {
            return set->name;
        }
    }
    return NULL;
}

bool
use_isa(const char *name)
{
    for (const Isa *set = isas; set < isas + ISAS; set++) {
        if (is_usable(set) && strcmp(set->name, name) == 0) {
            isa = set;
            return true;
        }
    }
    return false;
}

const char *
isa_in_use(void)
{
    return isa->name;
}

void
stream(char *to, const char *from, size_t nbytes)
{
    isa->stream(to, from, nbytes);
}

const Group *
group_of(size_t count, size_t size)
{
    for (const Group *group = isa->groups; group->count > 0; group++) {
        if (group->size == size && group->count <= count) {
            return group;
        }
    }
    return NULL;
}
