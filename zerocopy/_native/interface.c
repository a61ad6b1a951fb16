/* InterfaceExporter: objects with NumPy's array interface (version 3) and an address. */
#include "core.h"

static PyObject *name_interface, *name_on_device, *key_data, *key_shape, *key_strides, *key_typestr, *key_mask,
    *key_offset;

/* Fills in the DLPack type of a typestr of native numbers; false for others, and for booleans, whose bytes the slow
   path reads. */
static bool
dtype_of_typestr(PyObject *typestr, DLDataType *out)
{
    if (typestr == NULL || !PyUnicode_CheckExact(typestr) || !PyUnicode_IS_ASCII(typestr)) {
        return false;
    }
    const char *text = PyUnicode_DATA(typestr);
    Py_ssize_t length = PyUnicode_GET_LENGTH(typestr);
    bool is_short = length == 3 && text[2] >= '1' && text[2] <= '8';
    int size = is_short ? text[2] - '0' : length == 4 && text[2] == '1' && text[3] == '6' ? 16 : 0;
    if (log2_bytes(size * 8) < 0 || (text[0] != (PY_LITTLE_ENDIAN ? '<' : '>') && (text[0] != '|' || size != 1))) {
        return false;
    }
    switch (text[1]) {
    case 'i': out->code = kDLInt; break;
    case 'u': out->code = kDLUInt; break;
    case 'f': out->code = kDLFloat; break;
    case 'c': out->code = kDLComplex; break;
    default: return false;
    }
    out->bits = (uint8_t)(size * 8);
    out->lanes = 1;
    return text[1] == 'c' ? size >= 8 : text[1] == 'f' ? size >= 2 && size <= 8 : size <= 8;
}

/* Reads a tuple of integers; returns how many, or -1 with or without an exception. */
static int
read_numbers(PyObject *tuple, int64_t *out)
{
    if (tuple == NULL || !PyTuple_CheckExact(tuple) || PyTuple_GET_SIZE(tuple) > MAX_NDIM) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        PyObject *number = PyTuple_GET_ITEM(tuple, i);
        if (!PyLong_CheckExact(number)) {
            return -1;
        }
        out[i] = PyLong_AsLongLong(number);
        if (out[i] == -1 && PyErr_Occurred()) {
            return -1;
        }
    }
    return (int)PyTuple_GET_SIZE(tuple);
}

/* Fills the data pointer and whether it is read-only; false, with or without an exception, for other objects. */
static bool
read_data(PyObject *data, Memory *out)
{
    if (data == NULL || !PyTuple_CheckExact(data) || PyTuple_GET_SIZE(data) != 2 ||
        !PyLong_CheckExact(PyTuple_GET_ITEM(data, 0)) || !PyBool_Check(PyTuple_GET_ITEM(data, 1))) {
        return false;
    }
    unsigned long long address = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(data, 0));
    out->data = (void *)(uintptr_t)address;
    out->readonly = PyTuple_GET_ITEM(data, 1) == Py_True;
    return address != 0 && address <= LAST_ADDRESS; /* after an error, it is the highest number */
}

/* Writes strides in elements; false if they are negative or not multiples of the item size, and for no elements or
   too many. The memory ends at an address that a process can have. */
static bool
set_layout(PyObject *strides, Memory *out)
{
    int64_t itemsize = out->dtype.bits / 8, step = 1;
    uint64_t reach = 0, limit = LAST_ADDRESS - (uintptr_t)out->data;
    bool has_strides = strides != NULL && strides != Py_None, is_row_major = true;
    if (has_strides && read_numbers(strides, out->own_strides) != out->ndim) {
        return false;
    }
    for (int i = out->ndim; i-- > 0;) {
        int64_t count = out->own_shape[i];
        int64_t stride = has_strides && count > 1 ? out->own_strides[i] : step * itemsize;
        if (count < 1 || stride < 0 || stride % itemsize != 0 ||
            (count > 1 && (uint64_t)stride > (limit - reach) / (uint64_t)(count - 1)) || step > INT64_MAX / 16 / count) {
            return false;
        }
        reach += (uint64_t)stride * (uint64_t)(count - 1);
        is_row_major &= count == 1 || stride == step * itemsize;
        out->own_strides[i] = count > 1 ? stride / itemsize : 1;
        step *= count;
    }
    out->strides = is_row_major ? NULL : out->own_strides;
    return (uint64_t)itemsize <= limit - reach;
}

/* Whether an object has an attribute; -1 with an exception. */
static int
has_attribute(PyObject *obj, PyObject *name)
{
    PyObject *value;
#if PY_VERSION_HEX >= 0x030D0000
    int status = PyObject_GetOptionalAttr(obj, name, &value);
#else
    int status = _PyObject_LookupAttr(obj, name, &value);
#endif
    Py_XDECREF(value);
    return status;
}

/* Describes the memory of an interface; -1 with or without an exception for an object that the slow path checks. */
static int
run_interface(Exporter *self, PyObject *obj, Memory *out)
{
    PyObject *interface = PyObject_GetAttr(obj, name_interface);
    memory_init(out);
    if (interface == NULL) {
        return -1;
    }
#ifdef Py_GIL_DISABLED
    if (PyDict_CheckExact(interface)) { /* another thread may drop the items of the producer's own dict */
        Py_XSETREF(interface, PyDict_Copy(interface));
        if (interface == NULL) {
            return -1;
        }
    }
#endif
    int status = -1;
    if (PyDict_CheckExact(interface) && has_attribute(obj, name_on_device) == 0 &&
        PyDict_GetItemWithError(interface, key_mask) == NULL && PyDict_GetItemWithError(interface, key_offset) == NULL &&
        read_data(PyDict_GetItemWithError(interface, key_data), out) &&
        dtype_of_typestr(PyDict_GetItemWithError(interface, key_typestr), &out->dtype) &&
        (out->ndim = read_numbers(PyDict_GetItemWithError(interface, key_shape), out->own_shape)) >= 0 &&
        (uintptr_t)out->data % (out->dtype.bits / 8) == 0 &&
        set_layout(PyDict_GetItemWithError(interface, key_strides), out) && !PyErr_Occurred()) {
        /* The interface may hold what keeps the memory. */
        out->owner = PyTuple_Pack(2, obj, interface);
        out->shape = out->own_shape;
        status = out->owner == NULL ? -1 : 0;
    }
    Py_DECREF(interface);
    return status;
}

/* Frees an exporter. */
static void
interface_exporter_dealloc(PyObject *self)
{
    PyObject_Free(self);
}

/* Takes no arguments. */
static PyObject *
interface_exporter_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    if (refuse_keywords(keywords) || !PyArg_ParseTuple(args, ":InterfaceExporter")) {
        return NULL;
    }
    Exporter *self = PyObject_New(Exporter, type);
    if (self != NULL) {
        self->run = run_interface;
    }
    return (PyObject *)self;
}

static PyTypeObject InterfaceExporterType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "zerocopy._native._core.InterfaceExporter",
    .tp_doc = "InterfaceExporter(): objects whose __array_interface__ has an address and a type of numbers.",
    .tp_base = &ExporterType,
    .tp_basicsize = sizeof(Exporter),
    .tp_dealloc = interface_exporter_dealloc,
    .tp_new = interface_exporter_new,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

int
add_interface_exporter(PyObject *module)
{
    struct {
        PyObject **field;
        const char *text;
    } names[] = {{&name_interface, "__array_interface__"}, {&name_on_device, "__cuda_array_interface__"},
                 {&key_data, "data"}, {&key_shape, "shape"}, {&key_strides, "strides"}, {&key_typestr, "typestr"},
                 {&key_mask, "mask"}, {&key_offset, "offset"}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        *names[i].field = PyUnicode_InternFromString(names[i].text);
        if (*names[i].field == NULL) {
            return -1;
        }
    }
    return PyModule_AddType(module, &InterfaceExporterType);
}
