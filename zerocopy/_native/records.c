/* The counts of recorded conversions by call site and pair of types. */
#include "recorder.h"

/* One call site and pair of types. */
typedef struct {
    PyObject *code; /* of the function that calls, or NULL */
    int instruction;
    PyObject *pair; /* names of the source and the target; compared by address */
    int64_t calls[KINDS];
    int64_t aliased, copied, unmeasured, nanoseconds;
} Entry;

#define SLOTS 8192
#define MAX_SITES 4096 /* calls at further sites are counted without their site */
#define MAX_ENTRIES 7168

static struct {
    Entry **slots; /* open addressing; NULL while nothing is recorded */
    int count;
    bool has_sites;
    PyObject *package; /* prefix of files whose frames are not call sites */
    PyObject *skipped; /* tuple of further prefixes */
} records;

#ifdef Py_GIL_DISABLED
static PyMutex writing;
#define LOCK() PyMutex_Lock(&writing)
#define UNLOCK() PyMutex_Unlock(&writing)
#else
#define LOCK() ((void)0) /* the GIL is held, and no Python code runs meanwhile */
#define UNLOCK() ((void)0)
#endif

/* ---- call sites ---- */

/* Whether frames of a file are skipped; `is_own` is set to whether the file is zerocopy's. */
static bool
is_skipped(PyObject *file, PyObject *package, PyObject *skipped, bool *is_own)
{
    *is_own = PyUnicode_Tailmatch(file, package, 0, PY_SSIZE_T_MAX, -1) == 1;
    bool answer = *is_own;
    for (Py_ssize_t i = 0; !answer && i < PyTuple_GET_SIZE(skipped); i++) {
        answer = PyUnicode_Tailmatch(file, PyTuple_GET_ITEM(skipped, i), 0, PY_SSIZE_T_MAX, -1) == 1;
    }
    return answer;
}

/* Returns the code of the first frame outside of zerocopy, a new reference, and its instruction. If there is none, such
   as in a thread of zerocopy, returns the last code in zerocopy with the instruction -1, or NULL. */
static PyObject *
find_site(PyObject *package, PyObject *skipped, int *instruction)
{
    PyFrameObject *frame = PyEval_GetFrame();
    PyObject *own = NULL;
    Py_XINCREF(frame);
    while (frame != NULL) {
        PyCodeObject *code = PyFrame_GetCode(frame);
        bool is_own;
        if (!is_skipped(code->co_filename, package, skipped, &is_own)) {
            *instruction = PyFrame_GetLasti(frame);
            Py_DECREF(frame);
            Py_XDECREF(own);
            return (PyObject *)code;
        }
        if (is_own) {
            Py_XSETREF(own, Py_NewRef(code));
        }
        Py_DECREF(code);
        PyFrameObject *caller = PyFrame_GetBack(frame);
        Py_DECREF(frame);
        frame = caller;
    }
    *instruction = -1;
    return own;
}

/* Returns the site of the running conversion, or NULL if sites are not recorded. */
static PyObject *
current_site(int *instruction)
{
    LOCK();
    PyObject *package = records.has_sites ? Py_XNewRef(records.package) : NULL;
    PyObject *skipped = package == NULL ? NULL : Py_NewRef(records.skipped);
    UNLOCK();
    PyObject *code = package == NULL ? NULL : find_site(package, skipped, instruction);
    Py_XDECREF(package);
    Py_XDECREF(skipped);
    return code;
}

/* ---- entries ---- */

/* Returns the slot of a key: its entry's, or an empty one. The caller holds the lock. */
static Entry **
find_slot(PyObject *code, int instruction, PyObject *pair)
{
    size_t hash = ((uintptr_t)code >> 4) * 31 ^ ((uintptr_t)pair >> 4) ^ (size_t)(unsigned)instruction * 0x9E37;
    for (;; hash++) {
        Entry **slot = &records.slots[hash % SLOTS], *entry = *slot;
        if (entry == NULL ||
            (entry->code == code && entry->instruction == instruction && entry->pair == pair)) {
            return slot;
        }
    }
}

/* Returns the entry of a key, created if there is room; NULL without an exception otherwise. The caller holds the
   lock, and conversions are recorded. */
static Entry *
find_entry(PyObject *code, int instruction, PyObject *pair)
{
    Entry **slot = find_slot(code, instruction, pair);
    if (*slot == NULL && code != NULL && records.count >= MAX_SITES) {
        code = NULL;
        instruction = -1;
        slot = find_slot(code, instruction, pair);
    }
    if (*slot != NULL || records.count >= MAX_ENTRIES) {
        return *slot;
    }
    Entry *entry = PyMem_RawCalloc(1, sizeof(Entry));
    if (entry != NULL) {
        entry->code = Py_XNewRef(code);
        entry->instruction = instruction;
        entry->pair = Py_NewRef(pair);
        records.count++;
        *slot = entry;
    }
    return entry;
}

/* Adds a call to an entry. */
static void
add_call(Entry *entry, const Call *call)
{
    entry->calls[call->kind]++;
    entry->aliased += call->aliased;
    entry->copied += call->copied;
    entry->nanoseconds += call->nanoseconds;
    entry->unmeasured += call->is_unmeasured;
}

bool
records_sites(void)
{
    return records.has_sites;
}

int64_t
record(PyObject *pair, const Call *call, PyObject **code, int *instruction)
{
    *code = NULL;
    *instruction = -1;
    if (records.has_sites) {
        *code = current_site(instruction);
    }
    int64_t sampled = 0;
    LOCK();
    Entry *entry = records.slots == NULL ? NULL : find_entry(*code, *instruction, pair);
    PyObject *counted = NULL;
    if (entry != NULL) {
        add_call(entry, call);
        sampled = call->kind == COPIED || call->kind == ALIASED ? entry->calls[call->kind] : 0;
        counted = Py_XNewRef(entry->code);
        *instruction = entry->instruction;
    }
    UNLOCK();
    Py_XSETREF(*code, counted);
    return sampled;
}

/* ---- functions for Python ---- */

/* Frees entries that are no longer in the table. */
static void
free_entries(Entry **slots)
{
    for (int i = 0; slots != NULL && i < SLOTS; i++) {
        if (slots[i] != NULL) {
            Py_XDECREF(slots[i]->code);
            Py_DECREF(slots[i]->pair);
            PyMem_RawFree(slots[i]);
        }
    }
    PyMem_RawFree(slots);
}

/* start_recording(package, skipped): record conversions, or continue. */
static PyObject *
start_recording(PyObject *module, PyObject *args)
{
    PyObject *package, *skipped;
    if (!PyArg_ParseTuple(args, "UO!:start_recording", &package, &PyTuple_Type, &skipped)) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(skipped); i++) {
        if (!PyUnicode_Check(PyTuple_GET_ITEM(skipped, i))) {
            PyErr_SetString(PyExc_TypeError, "names of files are texts");
            return NULL;
        }
    }
    Entry **slots = PyMem_RawCalloc(SLOTS, sizeof(Entry *));
    if (slots == NULL) {
        return PyErr_NoMemory();
    }
    Py_INCREF(package);
    Py_INCREF(skipped);
    LOCK();
    if (records.slots == NULL) {
        records.slots = slots;
        records.count = 0;
        slots = NULL;
    }
    PyObject *old_package = records.package, *old_skipped = records.skipped;
    records.package = package;
    records.skipped = skipped;
    UNLOCK();
    PyMem_RawFree(slots);
    Py_XDECREF(old_package);
    Py_XDECREF(old_skipped);
    Py_RETURN_NONE;
}

/* stop_recording(): record nothing, and drop what was recorded. */
static PyObject *
stop_recording(PyObject *module, PyObject *nothing)
{
    LOCK();
    Entry **slots = records.slots;
    PyObject *package = records.package, *skipped = records.skipped;
    records.slots = NULL;
    records.package = records.skipped = NULL;
    records.has_sites = false;
    records.count = 0;
    UNLOCK();
    free_entries(slots);
    Py_XDECREF(package);
    Py_XDECREF(skipped);
    Py_RETURN_NONE;
}

/* set_sites(flag): whether call sites and durations are recorded from now on. */
static PyObject *
set_sites(PyObject *module, PyObject *flag)
{
    LOCK();
    records.has_sites = flag == Py_True;
    UNLOCK();
    Py_RETURN_NONE;
}

/* Sets all counts to zero, in a forked child: another thread of the parent may have held the lock. */
static PyObject *
reset_records(PyObject *module, PyObject *nothing)
{
#ifdef Py_GIL_DISABLED
    writing = (PyMutex){0};
#endif
    for (int i = 0; records.slots != NULL && i < SLOTS; i++) {
        Entry *entry = records.slots[i];
        if (entry != NULL) {
            *entry = (Entry){.code = entry->code, .instruction = entry->instruction, .pair = entry->pair};
        }
    }
    Py_RETURN_NONE;
}

/* Returns a tuple (code, instruction, pair, counts) for an entry. */
static PyObject *
entry_tuple(const Entry *entry)
{
    PyObject *counts = Py_BuildValue("LLLLLLLLL", (long long)entry->calls[ALIASED], (long long)entry->calls[COPIED],
                                     (long long)entry->calls[UNCHANGED], (long long)entry->calls[REFUSED],
                                     (long long)entry->calls[EMPTY], (long long)entry->aliased,
                                     (long long)entry->copied, (long long)entry->unmeasured,
                                     (long long)entry->nanoseconds);
    PyObject *instruction = counts == NULL ? NULL : PyLong_FromLong(entry->instruction), *result = NULL;
    if (instruction != NULL) {
        result = PyTuple_Pack(4, entry->code == NULL ? Py_None : entry->code, instruction, entry->pair, counts);
        Py_DECREF(instruction);
    }
    Py_XDECREF(counts);
    return result;
}

/* Returns all entries as a list. */
static PyObject *
recorded(PyObject *module, PyObject *nothing)
{
    /* Copied first, because Python code may run while objects are made. */
    Entry *copies = PyMem_RawMalloc(MAX_ENTRIES * sizeof(Entry));
    if (copies == NULL) {
        return PyErr_NoMemory();
    }
    int count = 0;
    LOCK();
    for (int i = 0; records.slots != NULL && i < SLOTS; i++) {
        if (records.slots[i] != NULL) {
            copies[count] = *records.slots[i];
            Py_XINCREF(copies[count].code);
            Py_INCREF(copies[count].pair);
            count++;
        }
    }
    UNLOCK();
    PyObject *result = PyList_New(0);
    for (int i = 0; i < count; i++) {
        PyObject *item = result == NULL ? NULL : entry_tuple(&copies[i]);
        if (item == NULL || PyList_Append(result, item) < 0) {
            Py_CLEAR(result);
        }
        Py_XDECREF(item);
        Py_XDECREF(copies[i].code);
        Py_DECREF(copies[i].pair);
    }
    PyMem_RawFree(copies);
    return result;
}

static PyMethodDef methods[] = {
    {"start_recording", start_recording, METH_VARARGS, "start_recording(package, skipped)"},
    {"stop_recording", stop_recording, METH_NOARGS, "stop_recording(): drop what was recorded."},
    {"set_sites", set_sites, METH_O, "set_sites(flag): whether call sites and durations are recorded."},
    {"reset_records", reset_records, METH_NOARGS, "reset_records(): set all counts to zero, in a forked child."},
    {"recorded", recorded, METH_NOARGS, "recorded(): return a list of (code, instruction, pair, counts)."},
    {NULL, NULL, 0, NULL},
};

int
add_records(PyObject *module)
{
    return PyModule_AddFunctions(module, methods);
}
