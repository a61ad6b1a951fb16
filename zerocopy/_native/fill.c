/* Numbers of columns written to new memory: cast to another type, and with a value in place of Arrow's nulls.

   Types pair up through three wide ones: a block of numbers is read as int64, uint64 or double, which hold each number
   of the narrower types exactly, and written from there. That takes 40 short loops instead of 100, one for each pair.
   A number fits by the rules of zerocopy.casting.values; for one that does not, the slow path raises an error. */
#include "arrow_table.h"

#include <float.h>
#include <math.h>

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3") /* GCC vectorizes few loops at O2 */
#endif
#if defined(__GNUC__) || defined(__clang__)
#define INLINE inline __attribute__((always_inline))
#else
#define INLINE inline
#endif

#define BLOCK 256 /* numbers read at a time: they stay in the first-level cache */

typedef union {
    int64_t integers[BLOCK];
    uint64_t naturals[BLOCK];
    double floats[BLOCK];
} Wide;

/* ---- types ---- */

/* Calls X(kind, bits, C type, suffix) for each type of numbers; `kind` is the member of Wide that holds them. */
#define FOR_EACH_TYPE(X)                                                                                              \
    X(integers, 8, int8_t, i8) X(integers, 16, int16_t, i16) X(integers, 32, int32_t, i32) X(integers, 64, int64_t, i64) \
    X(naturals, 8, uint8_t, u8) X(naturals, 16, uint16_t, u16) X(naturals, 32, uint32_t, u32)                          \
    X(naturals, 64, uint64_t, u64) X(floats, 32, float, f32) X(floats, 64, double, f64)

enum { integers = kDLInt, naturals = kDLUInt, floats = kDLFloat };

#define KEY(code, bits) ((code) << 8 | (bits))
#define KEY_OF(dtype) KEY((dtype).code, (dtype).bits)

bool
can_fill(DLDataType dtype)
{
    switch (KEY_OF(dtype)) {
#define CASE(kind, bits, type, suffix) case KEY(kind, bits):
        FOR_EACH_TYPE(CASE)
#undef CASE
        return true;
    default: /* float16, for example */
        return false;
    }
}

/* ---- reading: numbers at equal distances to a wide type ---- */

static void
read_block(Wide *out, const char *data, ptrdiff_t step, DLDataType dtype, int64_t count)
{
    switch (KEY_OF(dtype)) {
#define READ(kind, bits, type, suffix)                                 \
    case KEY(kind, bits):                                              \
        if (step == (ptrdiff_t)sizeof(type)) { /* vectorized */        \
            for (int64_t i = 0; i < count; i++) {                      \
                out->kind[i] = ((const type *)data)[i];                \
            }                                                          \
        }                                                              \
        else {                                                         \
            for (int64_t i = 0; i < count; i++) {                      \
                out->kind[i] = *(const type *)(data + i * step);       \
            }                                                          \
        }                                                              \
        break;
        FOR_EACH_TYPE(READ)
#undef READ
    }
}

/* ---- writing: a wide type to numbers at equal distances; each returns whether one does not fit ---- */

/* Whether a float type of `precision` bits holds an integer of this magnitude: its set bits span no more. */
static inline bool
is_inexact(uint64_t magnitude, int precision)
{
    uint64_t lowest = magnitude & (~magnitude + 1);
    return magnitude >> precision >= (lowest | (lowest == 0));
}

static inline uint64_t
magnitude_of(int64_t number)
{
    return number < 0 ? ~(uint64_t)number + 1 : (uint64_t)number;
}

#define PRECISION(type) (sizeof(type) == sizeof(float) ? 24 : 53)
/* The integer types' least value, and the first value above the greatest: powers of two, which floats hold. */
#define LEAST(kind, bits) (kind == kDLUInt ? 0.0 : -(double)((uint64_t)1 << (bits - 1)))
#define BEYOND(kind, bits) (2.0 * (double)((uint64_t)1 << (bits - (kind == kDLUInt ? 1 : 2))))

/* Numbers of one kind written to a type: CAST is the statement for one of them. */
#define WRITE_KIND(type, CAST)                            \
    for (int64_t i = 0; i < count; i++) {                 \
        type number;                                      \
        CAST;                                             \
        *(type *)(out + i * step) = number;               \
    }

/* Defines the function of a type by the statements for floats, integers and naturals (unsigned integers). The function
   tests for contiguous numbers because the compiler vectorizes only their loops: without the test, float64 to float32
   took three times as long. */
#define WRITE(type, suffix, FROM_FLOATS, FROM_INTEGERS, FROM_NATURALS)                                              \
    static INLINE bool write_at_##suffix(char *out, ptrdiff_t step, const Wide *in, int from, int64_t count)        \
    {                                                                                                               \
        unsigned differs = 0;                                                                                       \
        if (from == floats) {                                                                                       \
            WRITE_KIND(type, FROM_FLOATS)                                                                           \
        }                                                                                                           \
        else if (from == integers) {                                                                                \
            WRITE_KIND(type, FROM_INTEGERS)                                                                         \
        }                                                                                                           \
        else {                                                                                                      \
            WRITE_KIND(type, FROM_NATURALS)                                                                         \
        }                                                                                                           \
        return differs != 0;                                                                                        \
    }                                                                                                               \
    static bool write_##suffix(char *out, ptrdiff_t step, const Wide *in, int from, int64_t count)                  \
    {                                                                                                               \
        return step == (ptrdiff_t)sizeof(type) ? write_at_##suffix(out, sizeof(type), in, from, count)              \
                                               : write_at_##suffix(out, step, in, from, count);                     \
    }

#define FLOAT_TO_INTEGER(kind, bits, type)                                               \
    double value = in->floats[i];                                                        \
    bool fits = (value >= LEAST(kind, bits)) & (value < BEYOND(kind, bits));             \
    number = fits ? (type)value : 0;                                                     \
    differs |= !fits | ((double)number != value)
/* Signs are compared too: the bits of -1 and of the greatest unsigned number are equal. */
#define INTEGER_TO_INTEGER(kind, type)                                                   \
    number = (type)in->integers[i];                                                      \
    differs |= kind == kDLUInt ? ((uint64_t)number != in->naturals[i]) | (in->integers[i] < 0) \
                               : (int64_t)number != in->integers[i]
#define NATURAL_TO_INTEGER(kind, type)                                                   \
    number = (type)in->naturals[i];                                                      \
    differs |= ((uint64_t)number != in->naturals[i]) | (kind == kDLInt && in->naturals[i] >> 63 != 0)
#define WRITE_INTEGERS(kind, bits, type, suffix)                                         \
    WRITE(type, suffix, FLOAT_TO_INTEGER(kind, bits, type), INTEGER_TO_INTEGER(kind, type), \
          NATURAL_TO_INTEGER(kind, type))

/* Floats may be rounded, but a finite one must not become infinite. The loop only notes whether a result is not finite;
   `write_block` then compares that block with its input. */
#define FLOAT_TO_FLOAT(type)                                                             \
    number = (type)in->floats[i];                                                        \
    differs |= number - number != 0
#define INTEGER_TO_FLOAT(type)                                                           \
    number = (type)in->integers[i];                                                      \
    differs |= is_inexact(magnitude_of(in->integers[i]), PRECISION(type))
#define NATURAL_TO_FLOAT(type)                                                           \
    number = (type)in->naturals[i];                                                      \
    differs |= is_inexact(in->naturals[i], PRECISION(type))
#define WRITE_FLOATS(bits, type, suffix)                                                 \
    WRITE(type, suffix, FLOAT_TO_FLOAT(type), INTEGER_TO_FLOAT(type), NATURAL_TO_FLOAT(type))

WRITE_INTEGERS(kDLInt, 8, int8_t, i8)
WRITE_INTEGERS(kDLInt, 16, int16_t, i16)
WRITE_INTEGERS(kDLInt, 32, int32_t, i32)
WRITE_INTEGERS(kDLInt, 64, int64_t, i64)
WRITE_INTEGERS(kDLUInt, 8, uint8_t, u8)
WRITE_INTEGERS(kDLUInt, 16, uint16_t, u16)
WRITE_INTEGERS(kDLUInt, 32, uint32_t, u32)
WRITE_INTEGERS(kDLUInt, 64, uint64_t, u64)
WRITE_FLOATS(32, float, f32)
WRITE_FLOATS(64, double, f64)

static bool
write_all(char *out, ptrdiff_t step, DLDataType to, const Wide *in, int from, int64_t count)
{
    switch (KEY_OF(to)) {
#define CASE(kind, bits, type, suffix) \
    case KEY(kind, bits):              \
        return write_##suffix(out, step, in, from, count);
        FOR_EACH_TYPE(CASE)
#undef CASE
    }
    return true;
}

/* Whether a finite float became an infinite float32. */
static bool
is_beyond(const char *out, ptrdiff_t step, const Wide *in, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (isinf(*(const float *)(out + i * step)) && isfinite(in->floats[i])) {
            return true;
        }
    }
    return false;
}

static bool
write_block(char *out, ptrdiff_t step, DLDataType to, const Wide *in, int from, int64_t count)
{
    bool differs = write_all(out, step, to, in, from, count);
    if (differs && from == floats && to.code == kDLFloat) {
        return to.bits == 32 && is_beyond(out, step, in, count);
    }
    return differs;
}

/* Copies numbers of one type as they are, with the bits of each NaN. */
static void
copy_block(char *out, ptrdiff_t step, const char *data, size_t itemsize, int64_t count)
{
    switch (itemsize) {
#define COPY(size, type)                                           \
    case size:                                                     \
        for (int64_t i = 0; i < count; i++) {                      \
            *(type *)(out + i * step) = ((const type *)data)[i];   \
        }                                                          \
        break;
        COPY(1, uint8_t)
        COPY(2, uint16_t)
        COPY(4, uint32_t)
        COPY(8, uint64_t)
#undef COPY
    }
}

/* Replaces the numbers that are not valid by the first bytes of `fill`, without branches: nulls are unpredictable. */
static void
fill_block(char *out, ptrdiff_t step, size_t itemsize, const void *fill, const bool *valid, int64_t count)
{
    switch (itemsize) {
#define FILL(size, type)                                                     \
    case size:                                                               \
    {                                                                        \
        type value;                                                          \
        memcpy(&value, fill, size);                                          \
        for (int64_t i = 0; i < count; i++) {                                \
            type *number = (type *)(out + i * step), keep = -(type)valid[i]; \
            *number = (*number & keep) | (value & ~keep);                    \
        }                                                                    \
        break;                                                               \
    }
        FILL(1, uint8_t)
        FILL(2, uint16_t)
        FILL(4, uint32_t)
        FILL(8, uint64_t)
#undef FILL
    }
}

/* ---- nulls ---- */

static inline bool
is_valid(const uint8_t *bitmap, int64_t place)
{
    return bitmap[place >> 3] >> (place & 7) & 1;
}

/* Whether `count` bits from bit `first` on are set. */
static bool
all_valid(const uint8_t *bitmap, int64_t first, int64_t count)
{
    int64_t place = first, end = first + count;
    for (; place < end && place % 8 != 0; place++) {
        if (!is_valid(bitmap, place)) {
            return false;
        }
    }
    for (; place + 8 <= end; place += 8) {
        if (bitmap[place / 8] != 0xFF) {
            return false;
        }
    }
    for (; place < end; place++) {
        if (!is_valid(bitmap, place)) {
            return false;
        }
    }
    return true;
}

/* Writes `count` bits from bit `first` on as booleans. */
static void
unpack_bits(bool *out, const uint8_t *bitmap, int64_t first, int64_t count)
{
    int64_t i = 0, shift = first & 7;
    const uint8_t *byte = bitmap + (first >> 3);
    for (; i + 8 <= count; i += 8, byte++) {
        unsigned bits = shift == 0 ? *byte : (unsigned)(*byte >> shift | byte[1] << (8 - shift));
        for (int k = 0; k < 8; k++) { /* vectorized */
            out[i + k] = bits >> k & 1;
        }
    }
    for (; i < count; i++) {
        out[i] = is_valid(bitmap, first + i);
    }
}

bool
arrow_has_nulls(const struct ArrowArray *array, int64_t first, int64_t count)
{
    const uint8_t *bitmap = array->buffers[0];
    if (bitmap == NULL || array->null_count == 0) {
        return false;
    }
    if (array->null_count > 0 && first == 0 && count == array->length) {
        return true;
    }
    return !all_valid(bitmap, array->offset + first, count);
}

bool
fill_parse(PyObject *value, Fill *out)
{
    *out = (Fill){.kind = FILL_NONE};
    if (value == Py_None) {
        return true;
    }
    if (PyUnicode_CheckExact(value) && PyUnicode_CompareWithASCIIString(value, "nan") == 0) {
        *out = (Fill){.kind = FILL_NAN, .number = Py_NAN};
    }
    else if (PyFloat_CheckExact(value)) {
        *out = (Fill){.kind = FILL_FLOAT, .number = PyFloat_AS_DOUBLE(value)};
    }
    else if (PyLong_CheckExact(value)) {
        int overflow;
        long long integer = PyLong_AsLongLongAndOverflow(value, &overflow);
        if (overflow == 0 && integer >= -((int64_t)1 << 53) && integer <= (int64_t)1 << 53) {
            *out = (Fill){.kind = FILL_INTEGER, .integer = integer, .number = (double)integer};
        }
    }
    return out->kind != FILL_NONE;
}

/* Writes the fill as a number of a type; false if the type does not hold it. */
static bool
write_fill(const Fill *fill, DLDataType dtype, void *out)
{
    Wide wide;
    if (fill->kind == FILL_INTEGER && dtype.code != kDLFloat) {
        wide.integers[0] = fill->integer;
        return !write_block(out, 0, dtype, &wide, integers, 1);
    }
    if (fill->kind == FILL_NONE || (fill->kind == FILL_NAN && dtype.code != kDLFloat)) {
        return false;
    }
    if (dtype.code == kDLFloat && dtype.bits == 32 && isfinite(fill->number) && fabs(fill->number) > FLT_MAX) {
        return false; /* also if it would be rounded to the greatest float */
    }
    wide.floats[0] = fill->number;
    return !write_block(out, 0, dtype, &wide, floats, 1);
}

/* ---- columns ---- */

bool
cast_numbers(char *out, ptrdiff_t step, DLDataType to, const char *data, ptrdiff_t data_step, DLDataType from,
             int64_t count)
{
    bool is_wide = from.bits == 64 && data_step == sizeof(double);
    Wide wide;
    for (int64_t start = 0; start < count; start += BLOCK) {
        int64_t size = count - start < BLOCK ? count - start : BLOCK;
        if (!is_wide) {
            read_block(&wide, data, data_step, from, size);
        }
        if (write_block(out, step, to, is_wide ? (const Wide *)data : &wide, from.code, size)) {
            return false;
        }
        out += size * step;
        data += size * data_step;
    }
    return true;
}

bool
write_column(char *out, ptrdiff_t step, DLDataType to, const struct ArrowArray *array, DLDataType from, int64_t first,
             int64_t count, const Fill *fill)
{
    const uint8_t *bitmap = arrow_has_nulls(array, first, count) ? array->buffers[0] : NULL;
    const char *data = (const char *)array->buffers[1] + (array->offset + first) * (from.bits / 8);
    size_t itemsize = to.bits / 8;
    uint64_t value = 0;
    Wide wide;
    if (bitmap == NULL && !dtype_equal(from, to)) {
        return cast_numbers(out, step, to, data, from.bits / 8, from, count);
    }
    if (bitmap != NULL && !write_fill(fill, to, &value)) {
        return false;
    }
    for (int64_t start = 0; start < count; start += BLOCK) {
        int64_t size = count - start < BLOCK ? count - start : BLOCK, bit = array->offset + first + start;
        bool has_nulls = bitmap != NULL && !all_valid(bitmap, bit, size), valid[BLOCK];
        if (has_nulls) {
            unpack_bits(valid, bitmap, bit, size);
        }
        if (dtype_equal(from, to)) {
            copy_block(out, step, data, itemsize, size);
        }
        else {
            read_block(&wide, data, from.bits / 8, from, size);
            for (int64_t i = 0; has_nulls && i < size; i++) { /* a value below a null is undefined */
                wide.naturals[i] &= -(uint64_t)valid[i];
            }
            if (write_block(out, step, to, &wide, from.code, size)) {
                return false;
            }
        }
        if (has_nulls) {
            fill_block(out, step, itemsize, &value, valid, size);
        }
        out += size * step;
        data += size * (from.bits / 8);
    }
    return true;
}
