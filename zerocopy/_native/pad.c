/* Lists and texts of different lengths written as rows of one length: lists="pad", and NumPy's S and U in records. */
#include "arrow_table.h"

/* The lists of a column: where each begins in the items, and how many it has. */
typedef struct {
    const char *items;
    const int64_t *starts, *counts;
    int64_t rows, item_count;
    size_t unit; /* bytes of an item */
} Lists;

/* Whether an array is one of int64 with one number for each row. */
static bool
is_numbers(PyArrayObject *array, npy_intp rows)
{
    return PyArray_NDIM(array) == 1 && PyArray_DIM(array, 0) == rows && PyArray_ISCARRAY_RO(array) &&
           PyArray_EquivTypenums(PyArray_TYPE(array), NPY_INT64);
}

/* Parses (out, items, starts, counts); false with an exception. `out` has rows of `width` items. */
static bool
parse_lists(PyArrayObject *out, PyArrayObject *items, PyArrayObject *starts, PyArrayObject *counts, Lists *lists)
{
    npy_intp rows = PyArray_NDIM(out) == 2 ? PyArray_DIM(out, 0) : -1;
    if (rows < 0 || !PyArray_ISCARRAY(out) || PyArray_NDIM(items) != 1 || !PyArray_ISCARRAY_RO(items) ||
        PyDataType_REFCHK(PyArray_DESCR(out)) || PyDataType_REFCHK(PyArray_DESCR(items)) || !is_numbers(starts, rows) ||
        !is_numbers(counts, rows)) {
        PyErr_SetString(PyExc_ValueError, "out must be a matrix, and items, starts and counts contiguous arrays, all "
                                          "without Python objects; starts and counts must have one int64 per row");
        return false;
    }
    *lists = (Lists){PyArray_DATA(items), PyArray_DATA(starts), PyArray_DATA(counts), rows, PyArray_DIM(items, 0),
                     (size_t)PyArray_ITEMSIZE(items)};
    return true;
}

/* Reads the start and the length of a list, which another thread may change; false if the list is outside the items, or
   longer than a row. */
static inline bool
read_list(const Lists *lists, int64_t row, int64_t width, int64_t *start, int64_t *count)
{
    *start = lists->starts[row];
    *count = lists->counts[row];
    return *start >= 0 && *count >= 0 && *count <= width && *start <= lists->item_count - *count;
}

/* Copies a list and its padding. Items of each of these sizes have a loop of their own, which calls no memcpy. */
#define PAD(size, type)                                                                       \
    case size:                                                                                \
    {                                                                                         \
        type value, *to = (type *)out;                                                        \
        const type *from = (const type *)(lists->items + start * (int64_t)size);              \
        memcpy(&value, pad, size);                                                            \
        for (int64_t i = 0; i < count; i++) {                                                 \
            to[i] = from[i];                                                                  \
        }                                                                                     \
        for (int64_t i = count; i < width; i++) {                                             \
            to[i] = value;                                                                    \
        }                                                                                     \
        break;                                                                                \
    }

static bool
pad_all(char *out, int64_t width, const Lists *lists, const char *pad)
{
    int64_t start, count;
    bool is_aligned = ((uintptr_t)out | (uintptr_t)lists->items) % lists->unit == 0;
    for (int64_t row = 0; row < lists->rows; row++, out += width * (int64_t)lists->unit) {
        if (!read_list(lists, row, width, &start, &count)) {
            return false;
        }
        switch (is_aligned ? lists->unit : 0) {
            PAD(1, uint8_t)
            PAD(2, uint16_t)
            PAD(4, uint32_t)
            PAD(8, uint64_t)
        default:
            memcpy(out, lists->items + start * (int64_t)lists->unit, (size_t)count * lists->unit);
            for (int64_t i = count; i < width; i++) {
                memcpy(out + i * (int64_t)lists->unit, pad, lists->unit);
            }
        }
    }
    return true;
}

/* Computes starts and lengths of lists from their offsets; returns the longest length, or -1 if an offset falls. */
#define READ_OFFSETS(name, type)                                                                          \
    static int64_t name(const type *offsets, int64_t rows, int64_t *starts, int64_t *counts)              \
    {                                                                                                     \
        int64_t longest = 0;                                                                              \
        bool decreases = false;                                                                           \
        for (int64_t i = 0; i < rows; i++) {                                                              \
            starts[i] = (int64_t)offsets[i] - (int64_t)offsets[0];                                        \
            counts[i] = (int64_t)offsets[i + 1] - (int64_t)offsets[i];                                    \
            longest = counts[i] > longest ? counts[i] : longest;                                          \
            decreases |= counts[i] < 0;                                                                   \
        }                                                                                                 \
        return decreases ? -1 : longest;                                                                  \
    }

READ_OFFSETS(read_offsets, int32_t)
READ_OFFSETS(read_large_offsets, int64_t)

PyObject *
deliver_padded(const TableRoute *route, const struct ArrowArray *chunk, const PlannedColumn *column)
{
    const void *offsets;
    void *items;
    int64_t rows = chunk->length;
    if (route->delivery.copy == OPTION_FALSE || !arrow_column_lists(chunk, column, &offsets, &items)) {
        return NULL;
    }
    int64_t *numbers = PyMem_Malloc((size_t)rows * 2 * sizeof(int64_t)), longest;
    if (numbers == NULL) {
        return PyErr_NoMemory();
    }
    int64_t *counts = numbers + rows, end;
    longest = column->kind == LISTS ? read_offsets(offsets, rows, numbers, counts)
                                    : read_large_offsets(offsets, rows, numbers, counts);
    end = numbers[rows - 1] + counts[rows - 1];
    size_t unit = column->dtype.bits / 8;
    char *data;
    PyObject *block = NULL;
    if (longest > 0 && rows <= INT64_MAX / 32 / longest) {
        block = new_block(rows * longest * (int64_t)unit, &data);
    }
    if (block == NULL) {
        PyMem_Free(numbers);
        return NULL;
    }
    Lists lists = {items, numbers, counts, rows, end, unit};
    static const char zeros[sizeof(uint64_t)];
    PyThreadState *unlocked = rows * longest * (int64_t)unit >= UNLOCK_BYTES ? PyEval_SaveThread() : NULL;
    bool is_valid = pad_all(data, longest, &lists, zeros);
    if (unlocked != NULL) {
        PyEval_RestoreThread(unlocked);
    }
    PyMem_Free(numbers);
    if (!is_valid) {
        Py_DECREF(block);
        return NULL;
    }
    Memory memory;
    memory_init(&memory);
    memory.data = data;
    memory.ndim = 2;
    memory.readonly = false;
    memory.dtype = column->dtype;
    memory.own_shape[0] = rows;
    memory.own_shape[1] = longest;
    memory.shape = memory.own_shape;
    memory.strides = NULL;
    memory.owner = block;
    Delivery fresh = route->delivery;
    bool is_cast = fresh.has_dtype && !dtype_equal(fresh.dtype, memory.dtype);
    /* The memory is a copy already. If the target needs another, the slow path decides. */
    fresh.copy = is_cast ? OPTION_NONE : OPTION_FALSE;
    return deliver_memory(&fresh, &memory);
}

/* pad_rows(out, items, starts, counts, pad): see the documentation of the function. */
static PyObject *
pad_rows(PyObject *module, PyObject *args)
{
    PyArrayObject *out, *items, *starts, *counts;
    const char *pad;
    Py_ssize_t pad_size;
    Lists lists;
    if (!PyArg_ParseTuple(args, "O!O!O!O!y#:pad_rows", &PyArray_Type, &out, &PyArray_Type, &items, &PyArray_Type,
                          &starts, &PyArray_Type, &counts, &pad, &pad_size) ||
        !parse_lists(out, items, starts, counts, &lists)) {
        return NULL;
    }
    if (pad_size == 0 || (size_t)pad_size != lists.unit || PyArray_ITEMSIZE(out) != PyArray_ITEMSIZE(items)) {
        PyErr_SetString(PyExc_ValueError, "out, items and pad must have items of one size");
        return NULL;
    }
    PyThreadState *unlocked = PyArray_NBYTES(out) >= UNLOCK_BYTES ? PyEval_SaveThread() : NULL;
    bool is_valid = pad_all(PyArray_DATA(out), PyArray_DIM(out, 1), &lists, pad);
    if (unlocked != NULL) {
        PyEval_RestoreThread(unlocked);
    }
    if (!is_valid) {
        PyErr_SetString(PyExc_IndexError, "a list is outside the items, or longer than a row");
        return NULL;
    }
    Py_RETURN_NONE;
}

/* ---- UTF-8 ---- */

/* Reads one character of UTF-8, and advances; -1 if it is invalid ("The Unicode Standard", table 3-7). */
static int64_t
read_character(const uint8_t **text, const uint8_t *end)
{
    const uint8_t *byte = *text;
    int more = byte[0] < 0xC2 ? -1 : byte[0] < 0xE0 ? 1 : byte[0] < 0xF0 ? 2 : byte[0] < 0xF5 ? 3 : -1;
    if (more < 0 || end - byte <= more) {
        return -1;
    }
    uint32_t character = byte[0] & (0x3F >> more);
    for (int i = 1; i <= more; i++) {
        if ((byte[i] & 0xC0) != 0x80) {
            return -1;
        }
        character = character << 6 | (byte[i] & 0x3F);
    }
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    if (character < least[more] || character > 0x10FFFF || (character >= 0xD800 && character < 0xE000)) {
        return -1;
    }
    *text += more + 1;
    return character;
}

/* Texts of a column of Arrow: text number i is between offset i and offset i + 1. */
typedef struct {
    const uint8_t *bytes;
    int64_t size, rows;
    const char *offsets;
    bool is_large; /* whether the offsets are int64, not int32 */
} Texts;

static inline int64_t
read_offset(const Texts *texts, int64_t row)
{
    return texts->is_large ? ((const int64_t *)texts->offsets)[row] : ((const int32_t *)texts->offsets)[row];
}

/* Writes a text as code points; returns how many, or -1 if it is invalid, or longer than a row. */
static inline int64_t
decode_text(uint32_t *out, int64_t width, const uint8_t *text, const uint8_t *end)
{
    int64_t count = 0;
    for (; text < end; count++) {
        int64_t character = *text < 0x80 ? *text++ : read_character(&text, end);
        if (character < 0 || count >= width) {
            return -1;
        }
        out[count] = (uint32_t)character;
    }
    return count;
}

/* Writes texts as bytes, or as code points, to rows that are `step` bytes apart, padded with zeros; false if one is outside
   the bytes, invalid, longer than a row, or ends with a NUL. */
static bool
write_texts(char *out, ptrdiff_t step, int64_t width, bool is_decoded, const Texts *texts)
{
    int64_t begin, end = read_offset(texts, 0);
    for (int64_t row = 0; row < texts->rows; row++, out += step) {
        begin = end;
        end = read_offset(texts, row + 1);
        if (begin < 0 || end < begin || end > texts->size) {
            return false;
        }
        const uint8_t *text = texts->bytes + begin;
        int64_t count = is_decoded ? decode_text((uint32_t *)out, width, text, texts->bytes + end) : end - begin;
        if (count < 0 || count > width || (end > begin && texts->bytes[end - 1] == 0)) {
            return false;
        }
        if (is_decoded) {
            memset(out + 4 * count, 0, (size_t)(4 * (width - count)));
            continue;
        }
        for (int64_t i = 0; i < width; i++) { /* texts are short: no call of memcpy */
            out[i] = i < count ? (char)text[i] : 0;
        }
    }
    return true;
}

/* write_texts(out, text, offsets): see the documentation of the function. */
static PyObject *
write_texts_of(PyObject *module, PyObject *args)
{
    PyArrayObject *out, *text, *offsets;
    if (!PyArg_ParseTuple(args, "O!O!O!:write_texts", &PyArray_Type, &out, &PyArray_Type, &text, &PyArray_Type,
                          &offsets)) {
        return NULL;
    }
    npy_intp rows = PyArray_NDIM(out) == 1 ? PyArray_DIM(out, 0) : -1;
    int kind = PyArray_TYPE(out), type = PyArray_TYPE(offsets);
    bool is_large = PyArray_EquivTypenums(type, NPY_INT64);
    if (rows < 0 || (kind != NPY_STRING && kind != NPY_UNICODE) || !PyArray_ISBEHAVED(out) || PyArray_NDIM(text) != 1 ||
        !PyArray_ISCARRAY_RO(text) || PyArray_ITEMSIZE(text) != 1 || PyDataType_REFCHK(PyArray_DESCR(text)) ||
        PyArray_NDIM(offsets) != 1 || PyArray_DIM(offsets, 0) != rows + 1 || !PyArray_ISCARRAY_RO(offsets) ||
        !(is_large || PyArray_EquivTypenums(type, NPY_INT32))) {
        PyErr_SetString(PyExc_ValueError, "out must be an array of S or U, text contiguous bytes, and offsets contiguous "
                                          "int32 or int64, one more than rows");
        return NULL;
    }
    Texts texts = {PyArray_DATA(text), PyArray_DIM(text, 0), rows, PyArray_DATA(offsets), is_large};
    bool is_decoded = kind == NPY_UNICODE;
    int64_t width = PyArray_ITEMSIZE(out) / (is_decoded ? 4 : 1);
    PyThreadState *unlocked = PyArray_NBYTES(out) >= UNLOCK_BYTES ? PyEval_SaveThread() : NULL;
    bool fits = write_texts(PyArray_DATA(out), PyArray_STRIDE(out, 0), width, is_decoded, &texts);
    if (unlocked != NULL) {
        PyEval_RestoreThread(unlocked);
    }
    return PyBool_FromLong(fits);
}

static PyMethodDef methods[] = {
    {"pad_rows", pad_rows, METH_VARARGS,
     "pad_rows(out, items, starts, counts, pad): write lists of items to the rows of a matrix, each followed by "
     "padding, without the GIL. `pad` has the bytes of one item."},
    {"write_texts", write_texts_of, METH_VARARGS,
     "write_texts(out, text, offsets): write texts in UTF-8 to an array of NumPy's S, or of U as code points, without the "
     "GIL. Returns False if a text is invalid in U, longer than an item, or ends with a NUL."},
    {NULL, NULL, 0, NULL},
};

int
add_pads(PyObject *module)
{
    return PyModule_AddFunctions(module, methods);
}
