/* RecordedRoute: counts the conversions of a route, and the bytes that they share and copy, by call site.

   While conversions are recorded, the table of routes has these around the other routes; otherwise it has none.
   Only the outermost conversion on a thread is recorded: the others add their bytes to it. */
#include "recorder.h"

#include <time.h>

static _Thread_local Outcome outcome;

Outcome *
current_outcome(void)
{
    return &outcome;
}

/* Returns the time of the monotonic clock, in nanoseconds. */
static int64_t
now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* Returns the kind of a conversion that has returned `result`. */
static int
kind_of(const Outcome *bytes, bool is_same)
{
    return is_same             ? UNCHANGED
           : bytes->copied > 0  ? COPIED
           : bytes->aliased > 0 ? ALIASED
           : bytes->unchanged   ? UNCHANGED
                                : EMPTY;
}

/* ---- RecordedRoute ---- */

typedef struct {
    Route base;
    Route *inner;
    PyObject *pair;
    PyObject *sample; /* sample(obj, code, instruction) keeps why it copies, or reads slowly */
} RecordedRoute;

/* Runs the inner route, then its fallback if it fails; a failed route adds no bytes. */
static PyObject *
run_inner(Route *inner, PyObject *obj, Outcome *bytes)
{
    Outcome before = *bytes;
    PyObject *result = inner->counted(inner, obj);
    if (result == NULL && inner->fallback != NULL && clear_error()) {
        *bytes = before;
        result = PyObject_TypeCheck(inner->fallback, &RouteType) ? run_inner((Route *)inner->fallback, obj, bytes)
                                                                 : call_one(inner->fallback, obj);
    }
    if (result == NULL) {
        *bytes = before;
    }
    else if (result == obj) {
        *bytes = before;
        bytes->unchanged = true;
    }
    return result;
}

/* Whether a number is a power of two. */
static inline bool
is_power(int64_t number)
{
    return number > 0 && (number & (number - 1)) == 0;
}

/* Calls `sample`. Returns -1 with an exception that must reach the caller, such as KeyboardInterrupt. */
static int
take_sample(PyObject *sample, PyObject *obj, PyObject *code, int instruction)
{
    PyObject *number = PyLong_FromLong(instruction), *result = NULL;
    if (number != NULL) {
        PyObject *arguments[] = {NULL, obj, code == NULL ? Py_None : code, number};
        result = PyObject_Vectorcall(sample, arguments + 1, 3 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
        Py_DECREF(number);
    }
    Py_XDECREF(result);
    return result == NULL && !clear_error() ? -1 : 0;
}

/* Runs and records a conversion that is not part of another one. If it fails, the slow path records it. */
static PyObject *
run_outermost(RecordedRoute *route, PyObject *obj, Outcome *bytes)
{
    bool is_timed = records_sites();
    int64_t start = is_timed ? now() : 0;
    PyObject *result = run_inner(route->inner, obj, bytes), *code = NULL;
    if (result == NULL) {
        return NULL;
    }
    int instruction;
    Call call = {
        .kind = kind_of(bytes, result == obj),
        .aliased = bytes->aliased,
        .copied = bytes->copied,
        .nanoseconds = is_timed ? now() - start : 0,
    };
    int64_t sampled = record(route->pair, &call, &code, &instruction);
    if (is_power(sampled) && take_sample(route->sample, obj, code, instruction) < 0) {
        Py_CLEAR(result);
    }
    Py_XDECREF(code);
    return result;
}

/* Runs a route, and records the conversion unless it is part of another one. */
static PyObject *
run_recorded(Route *self, PyObject *obj)
{
    RecordedRoute *route = (RecordedRoute *)self;
    Outcome *bytes = &outcome; /* read once, because each access to a thread-local variable is a call */
    if (bytes->depth > 0) {
        bytes->depth++;
        PyObject *result = run_inner(route->inner, obj, bytes);
        bytes->depth--;
        return result;
    }
    *bytes = (Outcome){.depth = 1};
    PyObject *result = run_outermost(route, obj, bytes);
    *bytes = (Outcome){0};
    return result;
}

/* Frees a route. */
static void
recorded_route_dealloc(PyObject *self)
{
    RecordedRoute *route = (RecordedRoute *)self;
    Py_XDECREF(route->inner);
    Py_XDECREF(route->pair);
    Py_XDECREF(route->sample);
    route_dealloc(self);
}

/* Parses the arguments in the type's tp_doc. */
static PyObject *
recorded_route_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *inner, *pair, *sample;
    if (refuse_keywords(keywords) || !PyArg_ParseTuple(args, "O!O!O:RecordedRoute", &RouteType, &inner,
                                                       &PyTuple_Type, &pair, &sample)) {
        return NULL;
    }
    RecordedRoute *self = PyObject_New(RecordedRoute, type);
    if (self != NULL) {
        self->base.run = run_recorded;
        self->base.counted = run_recorded;
        self->base.asks_once = ((Route *)inner)->asks_once;
        self->base.fallback = NULL; /* run_inner() calls that of `inner` */
        self->inner = (Route *)Py_NewRef(inner);
        self->pair = Py_NewRef(pair);
        self->sample = Py_NewRef(sample);
    }
    return (PyObject *)self;
}

static PyTypeObject RecordedRouteType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "zerocopy._native._core.RecordedRoute",
    .tp_doc = "RecordedRoute(route, pair, sample): runs a route and records its outermost calls.",
    .tp_base = &RouteType,
    .tp_basicsize = sizeof(RecordedRoute),
    .tp_dealloc = recorded_route_dealloc,
    .tp_call = route_call,
    .tp_new = recorded_route_new,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

/* ---- functions for Python ---- */

/* Adds bytes to the running conversion. */
static PyObject *
add_bytes(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    long long aliased = count == 2 ? PyLong_AsLongLong(args[0]) : -1;
    long long copied = count == 2 ? PyLong_AsLongLong(args[1]) : -1;
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "add_bytes() takes two numbers");
        return NULL;
    }
    outcome.aliased += aliased;
    outcome.copied += copied;
    Py_RETURN_NONE;
}

/* Returns the bytes of the running conversion. */
static PyObject *
get_outcome(PyObject *module, PyObject *nothing)
{
    PyObject *unchanged = outcome.unchanged ? Py_True : Py_False;
    return Py_BuildValue("iLLO", outcome.depth, (long long)outcome.aliased, (long long)outcome.copied, unchanged);
}

/* Sets the bytes of the running conversion. */
static PyObject *
set_outcome(PyObject *module, PyObject *args)
{
    int depth, unchanged;
    long long aliased, copied;
    if (!PyArg_ParseTuple(args, "iLLp:set_outcome", &depth, &aliased, &copied, &unchanged)) {
        return NULL;
    }
    outcome = (Outcome){aliased, copied, depth, unchanged};
    Py_RETURN_NONE;
}

/* Records a call of the slow path. */
static PyObject *
record_call(PyObject *module, PyObject *args)
{
    PyObject *pair, *code;
    int is_same, is_refused, is_unmeasured, instruction;
    long long nanoseconds;
    if (!PyArg_ParseTuple(args, "O!pppL:record_call", &PyTuple_Type, &pair, &is_same, &is_refused, &is_unmeasured,
                          &nanoseconds)) {
        return NULL;
    }
    bool has_bytes = !is_same && !is_refused;
    Call call = {
        .kind = is_refused ? REFUSED : kind_of(&outcome, is_same),
        .aliased = has_bytes ? outcome.aliased : 0,
        .copied = has_bytes ? outcome.copied : 0,
        .nanoseconds = records_sites() ? nanoseconds : 0,
        .is_unmeasured = is_unmeasured,
    };
    int64_t sampled = record(pair, &call, &code, &instruction);
    return Py_BuildValue("NiO", code == NULL ? Py_NewRef(Py_None) : code, instruction,
                         is_power(sampled) ? Py_True : Py_False);
}

/* Returns the number of bytes of an unconsumed DLPack capsule's elements. */
static PyObject *
capsule_bytes(PyObject *module, PyObject *capsule)
{
    const DLTensor *tensor;
    if (PyCapsule_IsValid(capsule, "dltensor")) {
        tensor = &((DLManagedTensor *)PyCapsule_GetPointer(capsule, "dltensor"))->dl_tensor;
    }
    else if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        tensor = &((DLManagedTensorVersioned *)PyCapsule_GetPointer(capsule, "dltensor_versioned"))->dl_tensor;
    }
    else {
        PyErr_SetString(PyExc_ValueError, "an unconsumed DLPack capsule is required");
        return NULL;
    }
    int64_t size = ((int64_t)tensor->dtype.bits * tensor->dtype.lanes + 7) / 8;
    for (int i = 0; i < tensor->ndim; i++) {
        size *= tensor->shape[i];
    }
    return PyLong_FromLongLong(size);
}

static PyMethodDef methods[] = {
    {"add_bytes", (PyCFunction)(void (*)(void))add_bytes, METH_FASTCALL, "add_bytes(aliased, copied)"},
    {"outcome", get_outcome, METH_NOARGS, "outcome(): return (depth, aliased, copied, unchanged) of this thread."},
    {"set_outcome", set_outcome, METH_VARARGS, "set_outcome(depth, aliased, copied, unchanged)"},
    {"record_call", record_call, METH_VARARGS,
     "record_call(pair, same, refused, unmeasured, nanoseconds): record the bytes of `outcome`; return the code and "
     "the instruction of the call site, and whether to sample the reason."},
    {"capsule_bytes", capsule_bytes, METH_O, "capsule_bytes(capsule): the bytes of an unconsumed DLPack capsule."},
    {NULL, NULL, 0, NULL},
};

int
add_recorder(PyObject *module)
{
    return PyModule_AddType(module, &RecordedRouteType) < 0 ? -1 : PyModule_AddFunctions(module, methods);
}
