/* InterfaceExporter: objects with NumPy's array interface (version 3) and an address.
   DeviceInterfaceExporter, DeviceInterfaceImporter: the CUDA Array Interface. */
#include "core.h"

static PyObject *name_interface, *name_on_device, *key_data, *key_shape, *key_strides, *key_typestr, *key_mask,
    *key_offset, *key_stream, *key_version, *import_keywords;

/* Fills in the DLPack type of a typestr of native numbers; false for others, and for booleans on the host, whose bytes
   the slow path reads. */
static bool
dtype_of_typestr(PyObject *typestr, bool on_device, DLDataType *out)
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
    case 'b': out->code = kDLBool; break;
    default: return false;
    }
    out->bits = (uint8_t)(size * 8);
    out->lanes = 1;
    switch (text[1]) {
    case 'b': return on_device && size == 1;
    case 'c': return size >= 8;
    case 'f': return size >= 2 && size <= 8;
    default: return size <= 8;
    }
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

/* Returns an object's interface, a dict that no other thread changes; NULL with or without an exception. */
static PyObject *
get_interface(PyObject *obj, PyObject *name)
{
    PyObject *interface = PyObject_GetAttr(obj, name);
    if (interface != NULL && !PyDict_CheckExact(interface)) {
        Py_CLEAR(interface);
    }
#ifdef Py_GIL_DISABLED
    if (interface != NULL) { /* another thread may drop the items of the producer's own dict */
        Py_XSETREF(interface, PyDict_Copy(interface));
    }
#endif
    return interface;
}

/* Describes the memory of an interface, with these strides; -1 with or without an exception for an object that the slow
   path checks. */
static int
read_interface(PyObject *obj, PyObject *interface, PyObject *strides, bool on_device, Memory *out)
{
    if (unless_none(PyDict_GetItemWithError(interface, key_mask)) == NULL &&
        PyDict_GetItemWithError(interface, key_offset) == NULL &&
        read_data(PyDict_GetItemWithError(interface, key_data), out) &&
        dtype_of_typestr(PyDict_GetItemWithError(interface, key_typestr), on_device, &out->dtype) &&
        (out->ndim = read_numbers(PyDict_GetItemWithError(interface, key_shape), out->own_shape)) >= 0 &&
        (uintptr_t)out->data % (out->dtype.bits / 8) == 0 && set_layout(strides, out) && !PyErr_Occurred()) {
        out->shape = out->own_shape;
        out->owner = PyTuple_Pack(2, obj, interface); /* the interface may hold what keeps the memory */
    }
    return out->owner == NULL ? -1 : 0;
}

/* Describes host memory. */
static int
run_interface(Exporter *self, PyObject *obj, Memory *out)
{
    PyObject *interface = get_interface(obj, name_interface);
    memory_init(out);
    if (interface == NULL) {
        return -1;
    }
    int status = has_attribute(obj, name_on_device) != 0
                     ? -1
                     : read_interface(obj, interface, PyDict_GetItemWithError(interface, key_strides), false, out);
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

/* ---- DeviceInterfaceExporter ---- */

typedef struct {
    Exporter base;
    Getter device;    /* the index of an object's CUDA device */
    int64_t stream;   /* of pending work if the interface names no stream, or the legacy default one; 0: no work */
    bool has_strides; /* whether the object has the attribute `strides`, which its interface may omit */
    PyObject *order;  /* order(first, then, device) makes the stream `then` wait for the work on `first` */
} DeviceInterfaceExporter;

/* Returns the stream of the work on an interface's memory; 0 if there is none, -1 for invalid ones. */
static int64_t
pending_stream(const DeviceInterfaceExporter *exporter, PyObject *interface)
{
    PyObject *version = PyDict_GetItemWithError(interface, key_version);
    long number = version == NULL || !PyLong_CheckExact(version) ? -1 : PyLong_AsLong(version);
    PyObject *stream = number >= 3 ? unless_none(PyDict_GetItemWithError(interface, key_stream)) : NULL;
    if (number < 2 || (stream != NULL && !PyLong_CheckExact(stream))) {
        return -1;
    }
    int64_t pending = stream != NULL ? PyLong_AsLongLong(stream) : number == 2;
    if ((stream != NULL && pending < 1) || PyErr_Occurred()) { /* 0 is ambiguous, and the specification disallows it */
        return -1;
    }
    return pending <= 1 && exporter->stream != 0 ? exporter->stream : pending;
}

/* Describes memory on a device, and makes the consumer's stream wait for the work on it. */
static int
run_device_interface(Exporter *self, PyObject *obj, Memory *out)
{
    const DeviceInterfaceExporter *exporter = (const DeviceInterfaceExporter *)self;
    memory_init(out);
    PyObject *interface = out->consumer == NULL ? NULL : get_interface(obj, name_on_device);
    if (interface == NULL) {
        return -1;
    }
    PyObject *strides = exporter->has_strides ? PyObject_GetAttr(obj, key_strides)
                                              : Py_XNewRef(PyDict_GetItemWithError(interface, key_strides));
    int64_t pending = PyErr_Occurred() ? -1 : pending_stream(exporter, interface);
    int64_t index = pending < 0 ? -1 : getter_read(&exporter->device, obj);
    int status = index < 0 || index > INT32_MAX || get_consumer_stream(out, (int32_t)index) < 0
                     ? -1
                     : read_interface(obj, interface, strides, true, out);
    Py_XDECREF(strides);
    Py_DECREF(interface);
    out->device = (DLDevice){kDLCUDA, (int32_t)index};
    if (status == 0 && pending != 0 && pending != out->stream) {
        PyObject *done = PyObject_CallFunction(exporter->order, "LLL", (long long)pending, (long long)out->stream,
                                               (long long)index);
        if (done == NULL) {
            memory_release(out);
            return -1;
        }
        Py_DECREF(done);
    }
    return status;
}

/* Frees an exporter. */
static void
device_interface_exporter_dealloc(PyObject *self)
{
    Py_XDECREF(((DeviceInterfaceExporter *)self)->device.function);
    Py_XDECREF(((DeviceInterfaceExporter *)self)->order);
    PyObject_Free(self);
}

/* Parses (device, order, *, stream=0, has_strides=False). */
static PyObject *
device_interface_exporter_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"", "", "stream", "has_strides", NULL};
    PyObject *device, *order;
    long long stream = 0;
    int has_strides = 0;
    Getter getter;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO|Lp:DeviceInterfaceExporter", names, &device, &order, &stream,
                                     &has_strides) ||
        getter_init(&getter, device) < 0) {
        return NULL;
    }
    DeviceInterfaceExporter *self = PyObject_New(DeviceInterfaceExporter, type);
    if (self == NULL) {
        Py_XDECREF(getter.function);
        return NULL;
    }
    self->base.run = run_device_interface;
    self->device = getter;
    self->stream = stream;
    self->has_strides = has_strides;
    self->order = Py_NewRef(order);
    return (PyObject *)self;
}

static PyTypeObject DeviceInterfaceExporterType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "zerocopy._native._core.DeviceInterfaceExporter",
    .tp_doc = "DeviceInterfaceExporter(device, order, *, stream=0, has_strides=False): objects with "
              "__cuda_array_interface__. device is the index of their device, or a function that returns it; "
              "order(first, then, index) makes the stream `then` wait for the work on `first`; stream is that of "
              "pending work if the interface names none; has_strides is whether the objects have strides that the "
              "interface may omit.",
    .tp_base = &ExporterType,
    .tp_basicsize = sizeof(DeviceInterfaceExporter),
    .tp_dealloc = device_interface_exporter_dealloc,
    .tp_new = device_interface_exporter_new,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

/* ---- DeviceInterfaceImporter ---- */

typedef struct {
    Importer base;
    PyObject *function;
    Getter stream; /* the target's stream on a device, or a function of its index */
    DTypeSet dtypes;
} DeviceInterfaceImporter;

/* Returns the stream on a device. */
static int64_t
interface_stream(const Importer *self, int32_t device)
{
    return getter_read_for_device(&((const DeviceInterfaceImporter *)self)->stream, device);
}

/* Refuses data types that the framework lacks, negative strides and misaligned memory, which kernels cannot read. */
static int
check_interface(const Importer *self, const Memory *memory)
{
    bool fits = dtype_set_has(&((const DeviceInterfaceImporter *)self)->dtypes, memory->dtype) &&
                memory_is_ascending(memory) && (uintptr_t)memory->data % (memory->dtype.bits / 8) == 0;
    return fits ? IMPORT_ALIASES : IMPORT_REFUSES;
}

/* Returns a tuple of numbers, each times `factor`. */
static PyObject *
tuple_of(const int64_t *numbers, int count, int64_t factor)
{
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; tuple != NULL && i < count; i++) {
        PyObject *number = PyLong_FromLongLong(numbers[i] * factor);
        if (number == NULL) {
            Py_CLEAR(tuple);
        }
        else {
            PyTuple_SET_ITEM(tuple, i, number);
        }
    }
    return tuple;
}

/* Calls the function with an interface that names no stream: the exporter has made the target's stream wait. */
static PyObject *
import_interface(Importer *self, Memory *memory)
{
    DeviceInterfaceImporter *importer = (DeviceInterfaceImporter *)self;
    PyArray_Descr *dtype = dtype_to_numpy(memory->dtype);
    PyObject *typestr = dtype == NULL ? NULL : PyObject_GetAttrString((PyObject *)dtype, "str");
    PyObject *shape = tuple_of(memory->shape, memory->ndim, 1);
    PyObject *strides = memory_is_row_major(memory)
                            ? Py_NewRef(Py_None)
                            : tuple_of(memory->strides, memory->ndim, memory->dtype.bits / 8);
    PyObject *interface = NULL, *result = NULL;
    if (typestr != NULL && shape != NULL && strides != NULL) {
        interface = Py_BuildValue("{O(KO)OOOOOOOOOi}", key_data, (unsigned long long)(uintptr_t)memory->data, Py_False,
                                  key_typestr, typestr, key_shape, shape, key_strides, strides, key_stream, Py_None,
                                  key_version, 3);
    }
    Py_XDECREF(typestr);
    Py_XDECREF(shape);
    Py_XDECREF(strides);
    if (interface == NULL) {
        memory_release(memory);
        return NULL;
    }
    PyObject *arguments[4] = {NULL, interface, memory_take_owner(memory), Py_False};
    if (arguments[2] != NULL) {
        result = PyObject_Vectorcall(importer->function, arguments + 1, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET,
                                     import_keywords);
        Py_DECREF(arguments[2]);
    }
    Py_DECREF(interface);
    return result;
}

/* Frees an importer. */
static void
device_interface_importer_dealloc(PyObject *self)
{
    Py_XDECREF(((DeviceInterfaceImporter *)self)->function);
    Py_XDECREF(((DeviceInterfaceImporter *)self)->stream.function);
    PyObject_Free(self);
}

/* Parses (function, stream, dtypes). */
static PyObject *
device_interface_importer_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *function, *stream, *pairs;
    DTypeSet dtypes;
    Getter getter;
    if (refuse_keywords(keywords) ||
        !PyArg_ParseTuple(args, "OOO:DeviceInterfaceImporter", &function, &stream, &pairs) ||
        dtype_set_parse(pairs, &dtypes) < 0 || getter_init(&getter, stream) < 0) {
        return NULL;
    }
    DeviceInterfaceImporter *self = PyObject_New(DeviceInterfaceImporter, type);
    if (self == NULL) {
        Py_XDECREF(getter.function);
        return NULL;
    }
    self->base.check = check_interface;
    self->base.run = import_interface;
    self->base.stream = interface_stream;
    self->function = Py_NewRef(function);
    self->stream = getter;
    self->dtypes = dtypes;
    return (PyObject *)self;
}

static PyTypeObject DeviceInterfaceImporterType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "zerocopy._native._core.DeviceInterfaceImporter",
    .tp_doc = "DeviceInterfaceImporter(function, stream, dtypes): function(interface, owner=, sync=False) returns an "
              "object over the memory of a CUDA Array Interface; stream is the target's, or a function of a device's "
              "index that returns it.",
    .tp_base = &ImporterType,
    .tp_basicsize = sizeof(DeviceInterfaceImporter),
    .tp_dealloc = device_interface_importer_dealloc,
    .tp_new = device_interface_importer_new,
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
                 {&key_mask, "mask"}, {&key_offset, "offset"}, {&key_stream, "stream"}, {&key_version, "version"}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        *names[i].field = PyUnicode_InternFromString(names[i].text);
        if (*names[i].field == NULL) {
            return -1;
        }
    }
    import_keywords = Py_BuildValue("(ss)", "owner", "sync");
    if (import_keywords == NULL || PyModule_AddType(module, &InterfaceExporterType) < 0 ||
        PyModule_AddType(module, &DeviceInterfaceExporterType) < 0) {
        return -1;
    }
    return PyModule_AddType(module, &DeviceInterfaceImporterType);
}
