/* Two producers of a conformance test: Array (DLPack, the array interface, buffers) and Table (Arrow).

   Array(fault) and Table(fault) plant one fault of FAULTS; without a fault they follow the standards. Memory is
   overwritten before it is freed, so that a read of freed memory gives other values. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include "arrow.h"
#include "dlpack.h"

enum { ROWS = 4, COLUMNS = 3, WIDTH = 6, CELLS = ROWS * WIDTH };

static const char *FAULTS[] = {
    "dlpack-deleter-frees-twice", "dlpack-deleter-leaks", "dlpack-memory-not-kept", "dlpack-capsule-name",
    "dlpack-versioned-unasked", "dlpack-max-version-refused", "dlpack-version-zero", "dlpack-version-too-new",
    "dlpack-read-only-unflagged", "dlpack-copied-unflagged", "dlpack-copy-false-copies",
    "dlpack-copy-true-aliases", "dlpack-shape", "dlpack-strides-in-bytes", "dlpack-strides-null",
    "dlpack-byte-offset", "dlpack-dtype-bits", "dlpack-dtype-lanes", "dlpack-dtype-code", "dlpack-device",
    "dlpack-device-type", "dlpack-ndim", "dlpack-wrong-error", "dlpack-dl-device",
    "dlpack-destructor-frees-used", "dlpack-destructor-leaks", "exchange-shape", "exchange-leaks",
    "exchange-data", "interface-version", "interface-read-only", "interface-typestr", "interface-strides",
    "interface-memory-not-kept", "interface-shape-type", "buffer-itemsize", "buffer-format", "buffer-strides",
    "buffer-read-only-granted", "buffer-leaks", "buffer-len", "buffer-contiguity", "buffer-memory-not-kept",
    "arrow-n-buffers", "arrow-offsets", "arrow-null-count", "arrow-release-kept", "arrow-release-twice",
    "arrow-children", "arrow-format", "arrow-length", "arrow-requested-schema", "arrow-validity-order",
    "arrow-capsule-name", "arrow-destructor-leaks", "arrow-memory-not-kept", "arrow-destructor-frees-moved",
    "stream-after-end", "stream-schema", "stream-release-kept", "device-type", NULL,
};

/* Both types begin with these fields. */
typedef struct {
    PyObject_HEAD
    const char *fault;
    char *memory;
    size_t size;
    PyObject *weakrefs;
} Owner;

#define FAULT(owner, name) (strcmp(((Owner *)(owner))->fault, name) == 0)

static int
set_fault(Owner *self, const char *name)
{
    self->fault = name;
    for (const char **known = FAULTS; *name && strcmp(*known, name); known++) {
        if (known[1] == NULL) {
            PyErr_Format(PyExc_ValueError, "unknown fault %s", name);
            return -1;
        }
    }
    for (const char **known = FAULTS; *known; known++) {
        self->fault = strcmp(*known, name) ? self->fault : *known; /* static */
    }
    self->fault = *name ? self->fault : "";
    return 0;
}

static void
free_owner(Owner *self)
{
    PyObject_ClearWeakRefs((PyObject *)self);
    if (self->memory != NULL) {
        memset(self->memory, 0x5a, self->size);
        free(self->memory);
    }
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* ---- Array ---- */

typedef struct {
    Owner owner;
    int read_only;
    double *data; /* the first element */
    Py_ssize_t shape[2], byte_strides[2];
    int64_t borrowed[4]; /* shape and strides that a consumer borrows */
    DLManagedTensorVersioned *foreign; /* memory of another exporter */
} Array;

/* One export over DLPack. */
typedef struct {
    DLManagedTensor legacy;
    DLManagedTensorVersioned versioned;
    int64_t shape[2], strides[2];
    PyObject *owner; /* NULL for a copy */
    char *copied;
    int leaks, twice;
} Export;

static void
release_export(Export *each)
{
    if (each->leaks) {
        return;
    }
    PyGILState_STATE state = PyGILState_Ensure();
    Export *volatile again = each->twice ? each : NULL;
    Py_XDECREF(each->owner);
    free(each->copied);
    free(each);
    free(again);
    PyGILState_Release(state);
}

static void
delete_legacy(DLManagedTensor *self)
{
    release_export(self->manager_ctx);
}

static void
delete_versioned(DLManagedTensorVersioned *self)
{
    release_export(self->manager_ctx);
}

static Export *
export_array(Array *self, int copy)
{
    Export *each = calloc(1, sizeof *each);
    DLTensor *tensor = &each->legacy.dl_tensor;
    for (int i = 0; i < 2; i++) {
        each->shape[i] = self->shape[i];
        each->strides[i] = self->byte_strides[i] / (Py_ssize_t)sizeof(double);
    }
    *tensor = (DLTensor){.data = (char *)self->data - sizeof(double), .device = {kDLCPU, 0}, .ndim = 2,
                         .dtype = {kDLFloat, 64, 1}, .shape = each->shape, .strides = each->strides,
                         .byte_offset = sizeof(double)};
    if (copy) {
        double *values = malloc(sizeof(double) * self->shape[0] * self->shape[1]);
        for (Py_ssize_t i = 0; i < self->shape[0] * self->shape[1]; i++) {
            Py_ssize_t row = i / self->shape[1], column = i % self->shape[1];
            values[i] = *(double *)((char *)self->data + row * self->byte_strides[0] + column * self->byte_strides[1]);
        }
        each->copied = (char *)values;
        tensor->data = values;
        tensor->byte_offset = 0;
        each->strides[0] = self->shape[1];
        each->strides[1] = 1;
    }
    else if (!FAULT(self, "dlpack-memory-not-kept")) {
        each->owner = Py_NewRef((PyObject *)self);
    }
    each->leaks = FAULT(self, "dlpack-deleter-leaks");
    each->twice = FAULT(self, "dlpack-deleter-frees-twice");
    if (FAULT(self, "dlpack-shape")) {
        each->shape[0]--;
    }
    if (FAULT(self, "dlpack-strides-in-bytes")) {
        each->strides[0] *= 8;
        each->strides[1] *= 8;
    }
    tensor->strides = FAULT(self, "dlpack-strides-null") ? NULL : tensor->strides;
    tensor->byte_offset = FAULT(self, "dlpack-byte-offset") ? 0 : tensor->byte_offset;
    tensor->dtype.bits = FAULT(self, "dlpack-dtype-bits") ? 32 : 64;
    tensor->dtype.lanes = FAULT(self, "dlpack-dtype-lanes") ? 2 : 1;
    tensor->dtype.code = FAULT(self, "dlpack-dtype-code") ? kDLInt : kDLFloat;
    tensor->ndim = FAULT(self, "dlpack-ndim") ? -1 : 2;
    uint64_t read_only = self->read_only && !copy && !FAULT(self, "dlpack-read-only-unflagged");
    uint64_t copied = copy && !FAULT(self, "dlpack-copied-unflagged") && !FAULT(self, "dlpack-copy-false-copies");
    each->legacy.manager_ctx = each->versioned.manager_ctx = each;
    each->legacy.deleter = delete_legacy;
    each->versioned.deleter = delete_versioned;
    each->versioned.version = (DLPackVersion){1, 0};
    each->versioned.version.major = FAULT(self, "dlpack-version-zero") ? 0 : FAULT(self, "dlpack-version-too-new") ? 2 : 1;
    each->versioned.flags = read_only * DLPACK_FLAG_READ_ONLY | copied * DLPACK_FLAG_IS_COPIED;
    each->versioned.dl_tensor = *tensor;
    return each;
}

static void
destroy_legacy(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor")) {
        DLManagedTensor *tensor = PyCapsule_GetPointer(capsule, "dltensor");
        tensor->deleter(tensor);
    }
}

static void
destroy_versioned(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        DLManagedTensorVersioned *tensor = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        tensor->deleter(tensor);
    }
}

static void
destroy_used(PyObject *capsule)
{
    release_export(PyCapsule_GetContext(capsule));
}

static PyObject *
array_dlpack(Array *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    PyObject *stream = Py_None, *max_version = Py_None, *device = Py_None, *copy = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOO", names, &stream, &max_version, &device, &copy)) {
        return NULL;
    }
    if (FAULT(self, "dlpack-max-version-refused") && kwargs && PyDict_GetItemString(kwargs, "max_version")) {
        return PyErr_Format(PyExc_BufferError, "this version is not supported");
    }
    if (stream != Py_None) {
        return PyErr_Format(PyExc_BufferError, "the CPU has no stream");
    }
    int type = kDLCPU, id = 0;
    if (device != Py_None && !PyArg_ParseTuple(device, "ii", &type, &id)) {
        return NULL;
    }
    if (type != kDLCPU && !FAULT(self, "dlpack-dl-device")) {
        return PyErr_Format(FAULT(self, "dlpack-wrong-error") ? PyExc_TypeError : PyExc_BufferError, "not this device");
    }
    int major = 0, minor = 0;
    if (max_version != Py_None && !PyArg_ParseTuple(max_version, "ii", &major, &minor)) {
        return NULL;
    }
    int copied = copy == Py_True && !FAULT(self, "dlpack-copy-true-aliases");
    copied |= copy == Py_False && FAULT(self, "dlpack-copy-false-copies");
    int versioned = major >= 1 || FAULT(self, "dlpack-versioned-unasked");
    if (self->read_only && !versioned && !copied) {
        return PyErr_Format(PyExc_BufferError, "a legacy capsule cannot mark read-only memory");
    }
    Export *each = export_array(self, copied);
    if (FAULT(self, "dlpack-copy-true-aliases") && copy == Py_True) {
        each->versioned.flags |= DLPACK_FLAG_IS_COPIED;
    }
    void *tensor = versioned ? (void *)&each->versioned : (void *)&each->legacy;
    const char *name = FAULT(self, "dlpack-capsule-name") ? "tensor" : versioned ? "dltensor_versioned" : "dltensor";
    PyCapsule_Destructor destroy = FAULT(self, "dlpack-destructor-leaks")        ? NULL
                                   : FAULT(self, "dlpack-destructor-frees-used") ? destroy_used
                                   : versioned                                   ? destroy_versioned
                                                                                 : destroy_legacy;
    PyObject *capsule = PyCapsule_New(tensor, name, destroy);
    PyCapsule_SetContext(capsule, each);
    return capsule;
}

static PyObject *
array_dlpack_device(Array *self, PyObject *ignored)
{
    if (FAULT(self, "dlpack-device-type")) {
        return PyUnicode_FromString("cpu");
    }
    return Py_BuildValue("(ii)", FAULT(self, "dlpack-device") ? kDLCUDAHost : kDLCPU, 0);
}

static PyObject *
array_interface(Array *self, void *ignored)
{
    double *data = self->data;
    double *volatile temporary = NULL;
    if (FAULT(self, "interface-memory-not-kept")) {
        temporary = malloc(self->owner.size);
        memcpy(temporary, self->owner.memory, self->owner.size);
        data = temporary + (self->data - (double *)self->owner.memory);
    }
    int unit = FAULT(self, "interface-strides") ? 8 : 1, read_only = self->read_only && !FAULT(self, "interface-read-only");
    PyObject *dict = Py_BuildValue(
        "{s:s,s:(nn),s:(nn),s:(NO)}", "typestr", FAULT(self, "interface-typestr") ? "<f4" : "<f8", "shape", self->shape[0],
        self->shape[1], "strides", self->byte_strides[0] / unit, self->byte_strides[1] / unit, "data",
        PyLong_FromVoidPtr(data), read_only ? Py_True : Py_False);
    PyObject *version = PyLong_FromLong(3);
    if (!FAULT(self, "interface-version")) {
        PyDict_SetItemString(dict, "version", version);
    }
    Py_DECREF(version);
    if (FAULT(self, "interface-shape-type")) {
        PyObject *list = PySequence_List(PyDict_GetItemString(dict, "shape"));
        PyDict_SetItemString(dict, "shape", list);
        Py_DECREF(list);
    }
    if (temporary != NULL) {
        memset(temporary, 0x5a, self->owner.size);
        free(temporary);
    }
    return dict;
}

static int
array_buffer(Array *self, Py_buffer *view, int flags)
{
    view->obj = NULL;
    int contiguous = PyBUF_C_CONTIGUOUS | PyBUF_F_CONTIGUOUS | PyBUF_ANY_CONTIGUOUS;
    int strided = (flags & PyBUF_STRIDES) == PyBUF_STRIDES && !(flags & contiguous & ~PyBUF_STRIDES);
    if (!strided && !FAULT(self, "buffer-contiguity")) {
        PyErr_SetString(PyExc_BufferError, "the array is not contiguous");
        return -1;
    }
    if (flags & PyBUF_WRITABLE && self->read_only && !FAULT(self, "buffer-read-only-granted")) {
        PyErr_SetString(PyExc_BufferError, "the array is read-only");
        return -1;
    }
    static Py_ssize_t elements[2] = {WIDTH, 2};
    *view = (Py_buffer){.buf = self->data, .len = self->shape[0] * self->shape[1] * 8, .itemsize = 8, .ndim = 2};
    view->readonly = self->read_only && !(flags & PyBUF_WRITABLE);
    view->shape = flags & PyBUF_ND ? self->shape : NULL;
    view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? self->byte_strides : NULL;
    view->format = flags & PyBUF_FORMAT ? "d" : NULL;
    if (FAULT(self, "buffer-itemsize")) {
        view->itemsize = 4;
    }
    if (FAULT(self, "buffer-format") && view->format) {
        view->format = "q";
    }
    if (FAULT(self, "buffer-strides") && view->strides) {
        view->strides = elements;
    }
    if (FAULT(self, "buffer-len")) {
        view->len += 8;
    }
    if (FAULT(self, "buffer-leaks")) {
        Py_INCREF(self);
    }
    view->obj = FAULT(self, "buffer-memory-not-kept") ? NULL : Py_NewRef((PyObject *)self);
    return 0;
}

static int
array_init(Array *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"fault", "read_only", NULL};
    const char *fault = "";
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|zp", names, &fault, &self->read_only) ||
        set_fault(&self->owner, fault ? fault : "") < 0) {
        return -1;
    }
    self->read_only |= strstr(self->owner.fault, "-read-only") != NULL;
    self->owner.size = CELLS * sizeof(double);
    self->owner.memory = malloc(self->owner.size);
    double *values = (double *)self->owner.memory;
    for (int i = 0; i < CELLS; i++) {
        values[i] = i * 0.5 + 1;
    }
    self->data = values + 1;
    self->shape[0] = ROWS;
    self->shape[1] = COLUMNS;
    self->byte_strides[0] = WIDTH * sizeof(double);
    self->byte_strides[1] = 2 * sizeof(double);
    return 0;
}

static void
array_dealloc(Array *self)
{
    if (self->foreign != NULL && self->foreign->deleter != NULL) {
        self->foreign->deleter(self->foreign);
    }
    free_owner(&self->owner);
}

static PyMethodDef array_methods[] = {
    {"__dlpack__", (PyCFunction)(void (*)(void))array_dlpack, METH_VARARGS | METH_KEYWORDS, NULL},
    {"__dlpack_device__", (PyCFunction)array_dlpack_device, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef array_getset[] = {{"__array_interface__", (getter)array_interface, NULL, NULL, NULL}, {NULL}};
static PyBufferProcs array_buffer_procs = {(getbufferproc)array_buffer, NULL};
static PyTypeObject ArrayType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "toy_producer.Array",
    .tp_basicsize = sizeof(Array),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)array_init,
    .tp_dealloc = (destructor)array_dealloc,
    .tp_methods = array_methods,
    .tp_getset = array_getset,
    .tp_as_buffer = &array_buffer_procs,
    .tp_weaklistoffset = offsetof(Owner, weakrefs),
};

/* ---- the C exchange API of Array ---- */

static int
exchange_from(void *obj, DLManagedTensorVersioned **out)
{
    Array *self = obj;
    Export *each = export_array(self, 0);
    if (FAULT(self, "exchange-shape")) {
        each->shape[1]--;
    }
    if (FAULT(self, "exchange-leaks")) {
        Py_INCREF(self);
    }
    *out = &each->versioned;
    return 0;
}

static int
exchange_borrow(void *obj, DLTensor *out)
{
    Array *self = obj;
    for (int i = 0; i < 2; i++) {
        self->borrowed[i] = self->shape[i];
        self->borrowed[i + 2] = self->byte_strides[i] / 8;
    }
    void *data = FAULT(self, "exchange-data") ? self->data + 1 : self->data;
    *out = (DLTensor){data, {kDLCPU, 0}, 2, {kDLFloat, 64, 1}, self->borrowed, self->borrowed + 2, 0};
    return 0;
}

static int
exchange_to(DLManagedTensorVersioned *tensor, void **out)
{
    DLTensor *each = &tensor->dl_tensor;
    if (each->ndim != 2 || each->dtype.code != kDLFloat || each->dtype.bits != 64 || each->dtype.lanes != 1) {
        PyErr_SetString(PyExc_BufferError, "only matrices of float64");
        return -1;
    }
    Array *self = (Array *)ArrayType.tp_alloc(&ArrayType, 0);
    self->owner.fault = "";
    self->foreign = tensor;
    self->read_only = tensor->flags & DLPACK_FLAG_READ_ONLY;
    self->data = (double *)((char *)each->data + each->byte_offset);
    for (int i = 0; i < 2; i++) {
        self->shape[i] = each->shape[i];
        self->byte_strides[i] = 8 * (each->strides ? each->strides[i] : i ? 1 : each->shape[1]);
    }
    *out = self;
    return 0;
}

static void
delete_allocated(DLManagedTensorVersioned *self)
{
    free(self->dl_tensor.data);
    free(self->dl_tensor.shape);
    free(self);
}

static int
exchange_allocate(DLTensor *prototype, DLManagedTensorVersioned **out, void *context,
                  void (*set_error)(void *context, const char *kind, const char *message))
{
    if (prototype->device.device_type != kDLCPU) {
        set_error(context, "BufferError", "only memory of the CPU");
        return -1;
    }
    DLManagedTensorVersioned *self = calloc(1, sizeof *self);
    int64_t *shape = malloc(2 * prototype->ndim * sizeof *shape + 1), cells = 1;
    for (int i = prototype->ndim - 1; i >= 0; i--) {
        shape[i] = prototype->shape[i];
        shape[prototype->ndim + i] = cells;
        cells *= shape[i];
    }
    self->version = (DLPackVersion){1, 3};
    self->deleter = delete_allocated;
    self->dl_tensor = (DLTensor){malloc(cells * prototype->dtype.bits * prototype->dtype.lanes / 8 + 1), {kDLCPU, 0},
                                 prototype->ndim, prototype->dtype, shape, shape + prototype->ndim, 0};
    *out = self;
    return 0;
}

static int
exchange_stream(int32_t type, int32_t id, void **out)
{
    *out = NULL;
    return 0;
}

static DLPackExchangeAPI exchange = {
    {{1, 3}, NULL}, exchange_allocate, exchange_from, exchange_to, exchange_borrow, exchange_stream,
};

/* ---- Table ---- */

enum { LENGTH = 5 };

/* The memory of a table: column a has a null, s is text, l has lists of int32. */
typedef struct {
    int32_t a[LENGTH];
    int32_t text_offsets[LENGTH + 1], list_offsets[LENGTH + 1], items[8];
    char text[16];
    uint8_t validity[8];
} Columns;

typedef Owner Table;

/* The private data of one Arrow struct. */
typedef struct {
    PyObject *owner;
    const void *buffers[4];
    int position; /* of a stream */
    int release_kept, twice;
} Private;

static Private *
private_of(Table *owner)
{
    Private *own = calloc(1, sizeof *own);
    own->owner = FAULT(owner, "arrow-memory-not-kept") ? NULL : Py_NewRef((PyObject *)owner);
    own->twice = FAULT(owner, "arrow-release-twice");
    own->release_kept = FAULT(owner, "arrow-release-kept");
    return own;
}

static void
free_private(Private *own)
{
    PyGILState_STATE state = PyGILState_Ensure();
    Private *volatile again = own->twice ? own : NULL;
    Py_XDECREF(own->owner);
    free(own);
    free(again);
    PyGILState_Release(state);
}

static void
release_schema(struct ArrowSchema *self)
{
    for (int i = 0; i < self->n_children; i++) {
        if (self->children[i]->release != NULL) {
            self->children[i]->release(self->children[i]);
        }
        free(self->children[i]);
    }
    free(self->children);
    free_private(self->private_data);
    self->release = NULL;
}

static void
release_array(struct ArrowArray *self)
{
    Private *own = self->private_data;
    int kept = own->release_kept;
    for (int i = 0; i < self->n_children; i++) {
        if (self->children[i]->release != NULL) {
            self->children[i]->release(self->children[i]);
        }
        free(self->children[i]);
    }
    free(self->children);
    self->children = NULL;
    self->n_children = 0;
    self->private_data = NULL;
    free_private(own);
    if (!kept) {
        self->release = NULL;
    }
}

static struct ArrowSchema *
fill_schema(Table *owner, struct ArrowSchema *out, const char *format, const char *name, int children)
{
    *out = (struct ArrowSchema){.format = format, .name = name, .flags = *name ? ARROW_FLAG_NULLABLE : 0};
    out->n_children = children;
    out->children = children ? malloc(children * sizeof *out->children) : NULL;
    for (int i = 0; i < children; i++) {
        out->children[i] = malloc(sizeof *out);
    }
    out->release = release_schema;
    out->private_data = private_of(owner);
    return out;
}

static void
fill_table_schema(Table *owner, struct ArrowSchema *out, int stream)
{
    fill_schema(owner, out, "+s", "", 3);
    int wide = stream && FAULT(owner, "stream-schema");
    fill_schema(owner, out->children[0], FAULT(owner, "arrow-format") ? "Z!" : wide ? "l" : "i", "a", 0);
    fill_schema(owner, out->children[1], "u", "s", 0);
    fill_schema(owner, out->children[2], "+l", "l", 1);
    fill_schema(owner, out->children[2]->children[0], "i", "item", 0);
}

static struct ArrowArray *
fill_array(Table *owner, struct ArrowArray *out, int64_t length, int buffers, const void *second, const void *third,
           int children)
{
    Private *own = private_of(owner);
    *out = (struct ArrowArray){.length = length, .n_buffers = buffers, .n_children = children};
    own->buffers[1] = second;
    own->buffers[2] = third;
    out->buffers = own->buffers;
    out->children = children ? malloc(children * sizeof *out->children) : NULL;
    for (int i = 0; i < children; i++) {
        out->children[i] = malloc(sizeof *out);
    }
    out->release = release_array;
    out->private_data = own;
    return out;
}

static void
fill_batch(Table *owner, struct ArrowArray *out, int variant)
{
    Columns *columns = (Columns *)owner->memory;
    int missing = FAULT(owner, "arrow-children");
    fill_array(owner, out, LENGTH, 1, NULL, NULL, missing ? 2 : 3);
    struct ArrowArray *a = fill_array(owner, out->children[0], LENGTH - FAULT(owner, "arrow-length"),
                                      FAULT(owner, "arrow-n-buffers") ? 1 : 2, columns->a, NULL, 0);
    a->null_count = FAULT(owner, "arrow-null-count") ? 3 : 1;
    a->buffers[0] = &columns->validity[variant && FAULT(owner, "arrow-validity-order")];
    fill_array(owner, out->children[1], LENGTH, 3, columns->text_offsets, columns->text, 0);
    if (!missing) {
        fill_array(owner, out->children[2], LENGTH, 2, columns->list_offsets, NULL, 1);
        fill_array(owner, out->children[2]->children[0], 8, 2, columns->items, NULL, 0);
    }
}

static void
destroy_schema(PyObject *capsule)
{
    struct ArrowSchema *schema = PyCapsule_GetPointer(capsule, "arrow_schema");
    if (schema->release != NULL) {
        schema->release(schema);
    }
    free(schema);
}

static void
destroy_array(PyObject *capsule)
{
    struct ArrowArray *array = PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule));
    if (array->release != NULL) {
        array->release(array);
    }
    else if (PyCapsule_GetContext(capsule) != NULL) {
        release_array(array);
    }
    free(array);
}

/* Checks a requested schema: a struct of three fields, or it is refused. */
static int
refused(Table *self, PyObject *requested)
{
    if (requested == Py_None) {
        return 0;
    }
    if (FAULT(self, "arrow-requested-schema")) {
        PyErr_SetString(PyExc_KeyError, "a");
        return 1;
    }
    struct ArrowSchema *schema = PyCapsule_GetPointer(requested, "arrow_schema");
    if (schema != NULL && (strcmp(schema->format, "+s") || schema->n_children != 3)) {
        PyErr_SetString(PyExc_ValueError, "the requested schema does not have the columns of this table");
    }
    return PyErr_Occurred() != NULL;
}

static PyObject *
array_capsules(Table *self, void *array, const char *name)
{
    struct ArrowSchema *schema = malloc(sizeof *schema);
    fill_table_schema(self, schema, 0);
    PyCapsule_Destructor destroy = FAULT(self, "arrow-destructor-leaks") ? NULL : destroy_array;
    PyObject *first = PyCapsule_New(schema, "arrow_schema", destroy_schema);
    PyObject *second = PyCapsule_New(array, FAULT(self, "arrow-capsule-name") ? "array" : name, destroy);
    PyCapsule_SetContext(second, FAULT(self, "arrow-destructor-frees-moved") ? self : NULL);
    return Py_BuildValue("(NN)", first, second);
}

static PyObject *
table_array(Table *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"requested_schema", NULL};
    PyObject *requested = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O", names, &requested) || refused(self, requested)) {
        return NULL;
    }
    struct ArrowArray *array = malloc(sizeof *array);
    fill_batch(self, array, 1);
    return array_capsules(self, array, "arrow_array");
}

struct ArrowDeviceArray {
    struct ArrowArray array;
    int64_t device_id;
    int32_t device_type;
    void *sync_event;
    int64_t reserved[3];
};

static PyObject *
table_device_array(Table *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"requested_schema", NULL};
    PyObject *requested = Py_None, *name, *value;
    Py_ssize_t position = 0;
    while (kwargs != NULL && PyDict_Next(kwargs, &position, &name, &value)) {
        if (PyUnicode_CompareWithASCIIString(name, names[0]) == 0) {
            requested = value;
        }
        else if (value != Py_None) {
            return PyErr_Format(PyExc_NotImplementedError, "unknown argument %U", name);
        }
    }
    if (!PyArg_ParseTuple(args, "|O", &requested) || refused(self, requested)) {
        return NULL;
    }
    struct ArrowDeviceArray *array = calloc(1, sizeof *array);
    fill_batch(self, &array->array, 0);
    array->device_id = -1;
    array->device_type = FAULT(self, "device-type") ? 0 : kDLCPU;
    return array_capsules(self, array, "arrow_device_array");
}

static int
stream_schema(struct ArrowArrayStream *self, struct ArrowSchema *out)
{
    Private *own = self->private_data;
    fill_table_schema((Table *)own->owner, out, 1);
    return 0;
}

static int
stream_next(struct ArrowArrayStream *self, struct ArrowArray *out)
{
    Private *own = self->private_data;
    Table *owner = (Table *)own->owner;
    own->position++;
    if (own->position == 1 || (own->position > 2 && FAULT(owner, "stream-after-end"))) {
        fill_batch(owner, out, 0);
    }
    else {
        memset(out, 0, sizeof *out);
    }
    return 0;
}

static const char *
stream_error(struct ArrowArrayStream *self)
{
    return NULL;
}

static void
release_stream(struct ArrowArrayStream *self)
{
    Private *own = self->private_data;
    if (own != NULL) {
        self->release = FAULT(own->owner, "stream-release-kept") ? self->release : NULL;
        free_private(own);
    }
    self->private_data = NULL;
}

static void
destroy_stream(PyObject *capsule)
{
    struct ArrowArrayStream *stream = PyCapsule_GetPointer(capsule, "arrow_array_stream");
    if (stream->release != NULL) {
        stream->release(stream);
    }
    free(stream);
}

static PyObject *
table_stream(Table *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"requested_schema", NULL};
    PyObject *requested = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O", names, &requested) || refused(self, requested)) {
        return NULL;
    }
    struct ArrowArrayStream *stream = malloc(sizeof *stream);
    Private *own = private_of(self);
    own->owner = own->owner ? own->owner : Py_NewRef((PyObject *)self); /* the callbacks read it */
    *stream = (struct ArrowArrayStream){stream_schema, stream_next, stream_error, release_stream, own};
    return PyCapsule_New(stream, "arrow_array_stream", destroy_stream);
}

static PyObject *
table_schema(Table *self, PyObject *ignored)
{
    struct ArrowSchema *schema = malloc(sizeof *schema);
    fill_table_schema(self, schema, 0);
    return PyCapsule_New(schema, "arrow_schema", destroy_schema);
}

static int
table_init(Table *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"fault", NULL};
    const char *fault = "";
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|z", names, &fault) || set_fault(self, fault ? fault : "") < 0) {
        return -1;
    }
    Columns columns = {{10, 20, 30, 40, 50}, {0, 2, 5, 5, 9, 12}, {0, 2, 2, 5, 7, 8}, {1, 2, 3, 4, 5, 6, 7, 8},
                       "onetwothreeA", {0x1d, 0xb8}}; /* row 1 is null; the second byte has the other order of bits */
    if (FAULT(self, "arrow-offsets")) {
        columns.text_offsets[2] = 1;
    }
    self->size = sizeof columns;
    self->memory = malloc(self->size);
    memcpy(self->memory, &columns, sizeof columns);
    return 0;
}

static PyMethodDef table_methods[] = {
    {"__arrow_c_schema__", (PyCFunction)table_schema, METH_NOARGS, NULL},
    {"__arrow_c_array__", (PyCFunction)(void (*)(void))table_array, METH_VARARGS | METH_KEYWORDS, NULL},
    {"__arrow_c_device_array__", (PyCFunction)(void (*)(void))table_device_array, METH_VARARGS | METH_KEYWORDS, NULL},
    {"__arrow_c_stream__", (PyCFunction)(void (*)(void))table_stream, METH_VARARGS | METH_KEYWORDS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyTypeObject TableType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "toy_producer.Table",
    .tp_basicsize = sizeof(Table),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)table_init,
    .tp_dealloc = (destructor)free_owner,
    .tp_methods = table_methods,
    .tp_weaklistoffset = offsetof(Owner, weakrefs),
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "toy_producer", NULL, -1, NULL};

PyMODINIT_FUNC
PyInit_toy_producer(void)
{
    PyObject *module = PyModule_Create(&definition), *faults = PyList_New(0);
    if (module == NULL || PyType_Ready(&ArrayType) < 0 || PyType_Ready(&TableType) < 0) {
        return NULL;
    }
    for (const char **name = FAULTS; *name; name++) {
        PyObject *text = PyUnicode_FromString(*name);
        PyList_Append(faults, text);
        Py_DECREF(text);
    }
    PyObject *capsule = PyCapsule_New(&exchange, "dlpack_exchange_api", NULL);
    PyDict_SetItemString(ArrayType.tp_dict, "__dlpack_c_exchange_api__", capsule);
    Py_DECREF(capsule);
    PyType_Modified(&ArrayType);
    PyModule_AddObject(module, "FAULTS", faults);
    PyModule_AddObject(module, "Array", Py_NewRef((PyObject *)&ArrayType));
    PyModule_AddObject(module, "Table", Py_NewRef((PyObject *)&TableType));
    return module;
}
