/* Aligned memory for NumPy: functions that replace those of its default allocator (NEP 49).

   NumPy calls its allocator from any thread, and also after the end of the interpreter. Therefore no function
   here calls Python; CPython never unloads an extension. NumPy's own free() frees all blocks, so every block
   comes from the C library's malloc family. Windows frees aligned blocks with another function, so these
   functions are not compiled there. */
#include "core.h"

#ifdef _WIN32
int
add_allocator(PyObject *module)
{
    return 0;
}
#else

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define ALIGNMENT ((size_t)64)
#define CACHED ((size_t)1024)    /* NumPy caches blocks below this size */
#define PADDED ((size_t)1 << 20) /* blocks below this size come from malloc if it returns an aligned one */
#define HEADER sizeof(size_t)    /* of glibc, before each block */

typedef void *malloc_function(void *ctx, size_t size);
typedef void *calloc_function(void *ctx, size_t count, size_t size);

/* NumPy's own functions and the thresholds. Written before NumPy's allocator calls any function here. */
static struct {
    malloc_function *default_malloc;
    calloc_function *default_calloc;
    size_t huge; /* from this size on, blocks request huge pages */
    size_t lazy; /* from this size on, pages of zeros are dropped instead of written */
    size_t page;
} numpy;

/* Whether a block is 64-byte aligned; true for NULL. */
static inline bool
is_aligned(const void *block)
{
    return (uintptr_t)block % ALIGNMENT == 0;
}

/* Computes count * size; returns false if it overflows. */
static inline bool
multiply(size_t count, size_t size, size_t *out)
{
#if defined(__GNUC__) || defined(__clang__)
    return !__builtin_mul_overflow(count, size, out);
#else
    *out = count * size;
    return count == 0 || size <= SIZE_MAX / count;
#endif
}

/* Returns the number of bytes between `block` and the next page boundary. */
static inline size_t
bytes_to_page(const void *block)
{
    return (0 - (uintptr_t)block) & (numpy.page - 1);
}

/* Requests huge pages, as NumPy does for large blocks. A refusal has no effect. */
static void
request_huge_pages(char *block, size_t size)
{
#ifdef MADV_HUGEPAGE
    size_t head = bytes_to_page(block);
    if (head < size) {
        (void)madvise(block + head, size - head, MADV_HUGEPAGE);
    }
#endif
}

/* Returns an aligned block of any size, or NULL. */
static inline void *
allocate(size_t size)
{
    void *block;
    if (size < PADDED) {
        /* The size of the block with its header becomes a multiple of 64, so the block after an aligned block is
           aligned too, and malloc, which is faster than posix_memalign, often suffices. */
        size = ((size + HEADER + ALIGNMENT - 1) & ~(ALIGNMENT - 1)) - HEADER;
        block = malloc(size);
        if (is_aligned(block)) {
            return block; /* or NULL */
        }
        free(block);
    }
    if (posix_memalign(&block, ALIGNMENT, size) != 0) {
        return NULL;
    }
    if (size >= numpy.huge) {
        request_huge_pages(block, size);
    }
    return block;
}

/* Aligned malloc. Small blocks come from NumPy's cache while its blocks are aligned. */
static void *
fresh(void *ctx, size_t size)
{
    if (size < CACHED) {
        void *block = numpy.default_malloc(ctx, size);
        if (is_aligned(block)) {
            return block; /* or NULL */
        }
        /* Freed without NumPy's cache, so that the cache fills with aligned blocks. */
        free(block);
    }
    return allocate(size);
}

/* Drops the whole pages of a block and clears the rest. Dropped pages read as zero and take no memory until
   they are written. Returns false if the system refuses, as for locked memory. */
static bool
drop_pages(char *block, size_t size)
{
#ifdef __linux__ /* other systems may keep the content */
    size_t head = bytes_to_page(block);
    if (head >= size) {
        return false;
    }
    size_t pages = (size - head) & ~(numpy.page - 1);
    if (madvise(block + head, pages, MADV_DONTNEED) != 0) {
        return false;
    }
    memset(block, 0, head);
    memset(block + head + pages, 0, size - head - pages);
    return true;
#else
    return false;
#endif
}

/* Aligned calloc. */
static void *
zeroed(void *ctx, size_t count, size_t size)
{
    size_t bytes;
    if (!multiply(count, size, &bytes)) {
        return NULL;
    }
    void *block = fresh(ctx, bytes);
    if (block != NULL && (bytes < numpy.lazy || !drop_pages(block, bytes))) {
        memset(block, 0, bytes);
    }
    return block;
}

/* NumPy's own calloc for small blocks, and aligned calloc, which drops pages, for large ones. */
static void *
sparse(void *ctx, size_t count, size_t size)
{
    size_t bytes;
    if (!multiply(count, size, &bytes)) {
        return NULL;
    }
    return bytes < numpy.lazy ? numpy.default_calloc(ctx, count, size) : zeroed(ctx, count, size);
}

/* Aligned realloc. */
static void *
resized(void *ctx, void *old, size_t size)
{
    size = size > 0 ? size : 1; /* realloc(old, 0) may free `old` and return NULL */
    void *moved = realloc(old, size);
    if (is_aligned(moved)) {
        return moved; /* or NULL: then `old` is unchanged */
    }
    void *block = allocate(size);
    if (block == NULL) {
        return moved; /* the content matters more than the alignment */
    }
    memcpy(block, moved, size);
    free(moved);
    return block;
}

PyDoc_STRVAR(allocator_functions_doc,
             "allocator_functions(default_malloc, default_calloc, huge, lazy)\n--\n\n"
             "Set NumPy's own functions and the thresholds, and return the addresses of the functions.\n\n"
             "No thread may run in one of the functions meanwhile.");

/* Sets NumPy's own functions and the thresholds, and returns the addresses of the functions. */
static PyObject *
allocator_functions(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 4) {
        return PyErr_Format(PyExc_TypeError, "allocator_functions expected 4 arguments, got %zd", nargs);
    }
    size_t values[4];
    for (int i = 0; i < 4; i++) {
        values[i] = PyLong_AsSize_t(args[i]);
        if (values[i] == (size_t)-1 && PyErr_Occurred()) {
            return NULL;
        }
    }
    long page = sysconf(_SC_PAGESIZE);
    if (values[0] == 0 || values[1] == 0 || page <= 0) {
        PyErr_SetString(PyExc_ValueError, "NumPy's functions and the page size must be known");
        return NULL;
    }
    numpy.default_malloc = (malloc_function *)(uintptr_t)values[0];
    numpy.default_calloc = (calloc_function *)(uintptr_t)values[1];
    numpy.huge = values[2];
    numpy.lazy = values[3];
    numpy.page = (size_t)page;
    return Py_BuildValue("{sNsNsNsN}", "fresh", PyLong_FromSize_t((size_t)(uintptr_t)fresh), "zeroed",
                         PyLong_FromSize_t((size_t)(uintptr_t)zeroed), "sparse",
                         PyLong_FromSize_t((size_t)(uintptr_t)sparse), "resized",
                         PyLong_FromSize_t((size_t)(uintptr_t)resized));
}

static PyMethodDef methods[] = {
    {"allocator_functions", (PyCFunction)(void (*)(void))allocator_functions, METH_FASTCALL,
     allocator_functions_doc},
    {NULL, NULL, 0, NULL},
};

int
add_allocator(PyObject *module)
{
    return PyModule_AddFunctions(module, methods);
}

#endif
