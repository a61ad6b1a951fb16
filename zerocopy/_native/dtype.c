/* Tables from NumPy's dtypes to DLPack's data types and back, which Python fills from zerocopy.dtype. */
#include "core.h"

#define TYPE_NUMBERS 512 /* NumPy's own are below 32; ml_dtypes' begin at 256 */
#define NO_COUNTERPART 255

static DLDataType by_number[TYPE_NUMBERS];
static PyArray_Descr *by_code[32][5]; /* by code and by the binary logarithm of the size in bytes */

int
log2_bytes(int bits)
{
    switch (bits) {
    case 8:
        return 0;
    case 16:
        return 1;
    case 32:
        return 2;
    case 64:
        return 3;
    case 128:
        return 4;
    default:
        return -1;
    }
}

bool
dtype_from_numpy(const PyArray_Descr *descr, DLDataType *out)
{
    unsigned number = (unsigned)descr->type_num;
    if (UNLIKELY(number >= TYPE_NUMBERS || by_number[number].code == NO_COUNTERPART ||
                 !PyArray_ISNBO(descr->byteorder))) {
        return false;
    }
    *out = by_number[number];
    return true;
}

PyArray_Descr *
dtype_to_numpy(DLDataType dtype)
{
    int log2 = log2_bytes(dtype.bits);
    return log2 < 0 || dtype.code >= 32 || dtype.lanes != 1 ? NULL : by_code[dtype.code][log2];
}

bool
dtype_set_has(const DTypeSet *set, DLDataType dtype)
{
    int log2 = log2_bytes(dtype.bits);
    return log2 >= 0 && dtype.code < 32 && dtype.lanes == 1 && (set->codes[log2] >> dtype.code & 1);
}

int
dtype_set_parse(PyObject *pairs, DTypeSet *out)
{
    memset(out, 0, sizeof(DTypeSet));
    PyObject *fast = PySequence_Fast(pairs, "expected a sequence of pairs (code, bits)");
    if (fast == NULL) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast); i++) {
        int code, bits;
        if (!PyArg_ParseTuple(PySequence_Fast_GET_ITEM(fast, i), "ii", &code, &bits)) {
            Py_DECREF(fast);
            return -1;
        }
        if (code < 0 || code >= 32 || log2_bytes(bits) < 0) {
            Py_DECREF(fast);
            PyErr_Format(PyExc_ValueError, "no DLPack data type has code %d and %d bits", code, bits);
            return -1;
        }
        out->codes[log2_bytes(bits)] |= (uint32_t)1 << code;
    }
    Py_DECREF(fast);
    return 0;
}

/* set_dtype(dtype, code, bits): declares the DLPack type of a NumPy dtype. Results have the first dtype that was
   declared for a DLPack type. */
static PyObject *
set_dtype(PyObject *module, PyObject *args)
{
    PyArray_Descr *descr;
    int code, bits;
    if (!PyArg_ParseTuple(args, "O!ii:set_dtype", &PyArrayDescr_Type, &descr, &code, &bits)) {
        return NULL;
    }
    int log2 = log2_bytes(bits);
    if (log2 < 0 || code < 0 || code >= 32 || (unsigned)descr->type_num >= TYPE_NUMBERS ||
        PyDataType_ELSIZE(descr) * 8 != bits || !PyArray_ISNBO(descr->byteorder)) {
        PyErr_Format(PyExc_ValueError, "no counterpart of %R: code %d, %d bits", descr, code, bits);
        return NULL;
    }
    if (by_code[code][log2] == NULL) {
        Py_INCREF(descr);
        by_code[code][log2] = descr;
    }
    by_number[descr->type_num] = (DLDataType){(uint8_t)code, (uint8_t)bits, 1};
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"set_dtype", set_dtype, METH_VARARGS, "set_dtype(dtype, code, bits): declare a NumPy dtype's DLPack type."},
    {NULL, NULL, 0, NULL},
};

int
add_dtypes(PyObject *module)
{
    for (int i = 0; i < TYPE_NUMBERS; i++) {
        by_number[i].code = NO_COUNTERPART;
    }
    return PyModule_AddFunctions(module, methods);
}
