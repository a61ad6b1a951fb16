/* BufferExporter: objects with Python's buffer protocol (PEP 3118). */
#include "core.h"

/* The owner of memory that the buffer protocol exported. */
typedef struct {
    PyObject_HEAD
    Py_buffer view;
} HeldBuffer;

/* Releases the buffer, which may run Python code (__release_buffer__), and keeps the current exception. */
static void
held_dealloc(PyObject *self)
{
    PyObject *error, *value, *traceback;
    PyErr_Fetch(&error, &value, &traceback);
    PyBuffer_Release(&((HeldBuffer *)self)->view);
    PyErr_Restore(error, value, traceback);
    PyObject_Free(self);
}

static PyTypeObject HeldBufferType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "zerocopy._native._core.HeldBuffer",
    .tp_doc = "Owns an exported buffer; the base of an ndarray over it.",
    .tp_basicsize = sizeof(HeldBuffer),
    .tp_dealloc = held_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
};

/* Fills in the DLPack type of a native format of the struct module; false for other formats. */
static bool
dtype_of_format(const char *format, Py_ssize_t itemsize, DLDataType *out)
{
    if (format == NULL) {
        format = "B";
    }
    if (*format == '@' || *format == '=' || (PY_LITTLE_ENDIAN && *format == '<')) {
        format++;
    }
    if (*format == 'Z' && (format[1] == 'f' || format[1] == 'd')) { /* complex */
        format++;
        out->code = kDLComplex;
    }
    else {
        switch (*format) {
        case 'b': case 'h': case 'i': case 'l': case 'q':
            out->code = kDLInt;
            break;
        case 'B': case 'H': case 'I': case 'L': case 'Q':
            out->code = kDLUInt;
            break;
        case 'e': case 'f': case 'd':
            out->code = kDLFloat;
            break;
        case '?':
            out->code = kDLBool;
            break;
        default:
            return false;
        }
    }
    out->bits = (uint8_t)(itemsize * 8);
    out->lanes = 1;
    return format[1] == '\0' && itemsize >= 1 && itemsize <= 16;
}

/* Writes strides in elements to `out`; false if they are negative or not multiples of the item size. */
static bool
set_strides(const Py_buffer *view, Memory *out)
{
    int64_t step = view->itemsize;
    bool row_major = true;
    if (view->ndim > 0 && view->shape == NULL) {
        return false;
    }
    for (int i = view->ndim; i-- > 0;) {
        if (view->shape[i] < 1 || view->shape[i] > PY_SSIZE_T_MAX / step) {
            return false;
        }
        /* Exporters may omit the strides of row-major memory, as ctypes does. */
        if (view->strides != NULL && view->shape[i] > 1) {
            if (view->strides[i] < 0 || view->strides[i] % view->itemsize) {
                return false;
            }
            row_major &= view->strides[i] == step;
        }
        out->own_strides[i] = view->strides != NULL && view->shape[i] > 1 ? view->strides[i] / view->itemsize : 1;
        step *= view->shape[i];
    }
    out->strides = row_major ? NULL : out->own_strides;
    return true;
}

typedef struct {
    Exporter base;
    bool takes_booleans; /* whether all bytes of booleans are 0 or 1 */
} BufferExporter;

/* Describes the memory of a buffer, which a HeldBuffer keeps. */
static int
run_buffer(Exporter *self, PyObject *obj, Memory *out)
{
    HeldBuffer *held = PyObject_New(HeldBuffer, &HeldBufferType);
    if (held == NULL) {
        return -1;
    }
    held->view.obj = NULL; /* so that PyBuffer_Release does nothing if PyObject_GetBuffer fails */
    memory_init(out);
    const Py_buffer *view = &held->view;
    if (UNLIKELY(PyObject_GetBuffer(obj, &held->view, PyBUF_FORMAT | PyBUF_STRIDES) < 0 || view->buf == NULL ||
                 view->ndim > MAX_NDIM || view->suboffsets != NULL ||
                 !dtype_of_format(view->format, view->itemsize, &out->dtype) ||
                 (out->dtype.code == kDLBool && !((BufferExporter *)self)->takes_booleans) ||
                 (uintptr_t)view->buf % (uintptr_t)view->itemsize || !set_strides(view, out))) {
        Py_DECREF(held);
        return -1;
    }
    out->data = view->buf;
    out->ndim = view->ndim;
    out->shape = (const int64_t *)view->shape;
    out->readonly = view->readonly != 0;
    out->owner = (PyObject *)held;
    return 0;
}

/* Frees an exporter. */
static void
buffer_exporter_dealloc(PyObject *self)
{
    PyObject_Free(self);
}

/* Parses (booleans=True). */
static PyObject *
buffer_exporter_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    int takes_booleans = 1;
    if (refuse_keywords(keywords) || !PyArg_ParseTuple(args, "|p:BufferExporter", &takes_booleans)) {
        return NULL;
    }
    BufferExporter *self = PyObject_New(BufferExporter, type);
    if (self != NULL) {
        self->base.run = run_buffer;
        self->takes_booleans = takes_booleans;
    }
    return (PyObject *)self;
}

static PyTypeObject BufferExporterType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "zerocopy._native._core.BufferExporter",
    .tp_doc = "BufferExporter(booleans=True): objects with the buffer protocol and a numeric format; False refuses "
              "booleans, whose bytes may be other than 0 and 1.",
    .tp_base = &ExporterType,
    .tp_basicsize = sizeof(BufferExporter),
    .tp_dealloc = buffer_exporter_dealloc,
    .tp_new = buffer_exporter_new,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

int
add_buffer_exporter(PyObject *module)
{
    return PyModule_AddType(module, &HeldBufferType) < 0 ? -1 : PyModule_AddType(module, &BufferExporterType);
}
