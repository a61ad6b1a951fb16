"""Cases of consumers: each has an export with one property, and looks at values, errors and releases."""

from __future__ import annotations

import ctypes
import gc
import time
import weakref
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from zerocopy.protocols.arrow_c import ArrowArray, ArrowArrayStream, ArrowDeviceArray
from zerocopy.protocols.arrow_schema import ArrowSchema
from zerocopy.protocols.dlpack import DLManagedTensor, DLManagedTensorVersioned
from zerocopy.testing.capsules import KEPT, Callback, address_of, new_capsule
from zerocopy.testing.cases import Skip, Violation, case
from zerocopy.testing.memory import Interface

LOST: list[str] = []  #: Errors that were set when a callback ran.
BUGS = ("Assertion", "Attribute", "Index", "Key", "Unicode", "Memory", "System")  #: Errors, but no refusals.

api = ctypes.PyDLL(None)
is_valid, fetch, decref = api.PyCapsule_IsValid, api.PyErr_Fetch, api.Py_DecRef
is_valid.argtypes, decref.argtypes = (ctypes.c_void_p, ctypes.c_char_p), (ctypes.c_void_p,)
error_set = (ctypes.c_void_p * 3)()
ERROR_PARTS = tuple(ctypes.byref(error_set, ctypes.sizeof(ctypes.c_void_p) * i) for i in range(3))
Get = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
Text = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
MESSAGE = ctypes.create_string_buffer(b"the sensor sleeps")


class Memory:
    """Values in memory that is overwritten when it is released, so that later reads give other values.

    `exported` counts the structs that a consumer must release, and `released` the calls of their callbacks.
    """

    def __init__(self, values: Any, view: Callable[[Any], Any] = np.asarray, skip: int = 0) -> None:
        self.raw = np.zeros(values.nbytes + 128, np.uint8)
        start = -self.raw.ctypes.data % 64 + skip
        placed = self.raw[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
        placed[...] = values
        self.array = view(placed)
        self.expected: Any = contents(self.array)
        self.exported = self.released = 0
        self.overwritten: list[tuple[Any, Any]] = []

    def release(self, *ignored: Any) -> None:
        self.released += 1
        self.overwrite(self.raw)

    def overwrite(self, buffer: Any) -> None:
        self.overwritten.append((buffer, buffer.copy()))
        buffer.view(np.uint8)[:] = 0x5A


def callback(function: Callable[[Any], Any]) -> Any:
    """Return the address of a C function. Consumers call it in destructors too, while an error is set."""

    def called(address: int) -> None:
        fetch(*ERROR_PARTS)  # the first call: all others would fail
        if error_set[0]:
            LOST.append(repr(ctypes.cast(error_set[1] or error_set[0], ctypes.py_object).value))
            for part in error_set:
                decref(part)
            error_set[:] = [None, None, None]
        function(address)

    return address_of(called)


def capsule(struct: Any, name: bytes, destroy: Callable[[int], Any]) -> Any:
    """Return a capsule; `destroy` releases the struct unless a consumer has taken it."""
    KEPT.extend([struct, name])
    return new_capsule(ctypes.addressof(struct), name, callback(destroy))


@cache
def refusal(consume: Any, protocol: str, alone: bool) -> str:
    """Return why a consumer does not take the plain export, or an empty text."""
    memory, export, changes = prepare(protocol, "plain", alone)
    try:
        read(consume(export(memory, **changes)), memory)
    except Exception as error:  # noqa: BLE001 - consumers refuse with errors of any class
        return repr(error)
    return ""


def run_case(protocol: str, name: str, consume: Any) -> None:
    """Pass an export to a consumer of its protocol: of a table, or of a column `alone`."""
    alone = bool(refusal(consume, protocol, False))
    if alone and (why := refusal(consume, protocol, True)):
        raise Skip(f"it does not take {protocol}: {why}")
    examine(consume, *prepare(protocol, name, alone))


def examine(consume: Any, memory: Memory, export: Callable[..., Any], changes: dict[str, Any]) -> None:
    """Pass an export to a consumer, which accepts it, may refuse it, or must refuse what is `forbidden`."""
    forbidden, severity = changes.get("forbidden", ""), changes.get("severity", "wrong value")
    result, values, refused = None, None, ""
    try:
        result = consume(export(memory, **changes))
        values = read(result, memory)
    except Exception as error:  # noqa: BLE001 - consumers refuse with errors of any class
        refused = LOST.pop() if LOST and isinstance(error, SystemError) else repr(error)
    gc.collect()
    if not refused and forbidden:
        raise Violation(f"it accepts {forbidden}", severity)
    if not refused and (values := read(result, memory)) != memory.expected:
        for buffer, before in memory.overwritten:
            buffer[:] = before
        kind = "use after free" if read(result, memory) == memory.expected else "wrong value"
        raise Violation(f"it returns {values}, not {memory.expected}", kind)
    if not (refused or memory.array.flags.writeable):
        values = as_array(result)
        if values.flags.writeable and np.may_share_memory(values, memory.raw):
            raise Violation("the result is writable, the producer's memory is not", "flag ignored")
    result = values = None
    check_releases(memory)
    if refused and not (forbidden or changes.get("may_refuse")):
        raise Violation(f"it refuses this: {refused}", severity)
    if refused.startswith(BUGS) or (refused and changes.get("message", "") not in refused):
        raise Violation(f"it refuses this with {refused}", "wrong error class")


def as_array(result: Any) -> Any:
    array = None if hasattr(result, "__dlpack__") and not hasattr(result, "__array__") else np.asarray(result)
    return np.from_dlpack(result) if array is None or array.dtype == object else array


def contents(array: Any) -> tuple[Any, ...]:
    return array.dtype.name, array.shape, array.tolist()


def read(result: Any, memory: Memory) -> Any:
    """Return the values of a result: the contents of an array, or a list of rows."""
    if not isinstance(memory.expected, list):
        return contents(as_array(result))
    result = result.read_all() if hasattr(result, "read_all") else result
    names = ("to_pylist", "to_dicts", "fetchall", "to_list", "to_dict")
    name = next((name for name in names if hasattr(result, name)), "")
    rows = list(result) if not name else getattr(result, name)(*(["records"] if name == "to_dict" else []))
    rows = [next(iter(row.values())) if isinstance(row, dict) and row else row for row in rows]
    rows = [row[0] if isinstance(row, tuple) and row else row for row in rows]
    return [None if row is not None and row != row else row for row in rows]  # NaN is a null of pandas


def check_releases(memory: Memory) -> None:
    """Wait for the release of the memory, which may come from another thread, and count it."""
    for attempt in range(100):
        gc.collect(2 if attempt < 3 else 0)
        if memory.released >= memory.exported:
            break
        time.sleep(0.01)
    if memory.released != memory.exported:
        kind = "leak" if memory.released < memory.exported else "use after free"
        raise Violation(f"{memory.exported} structs, {memory.released} releases", kind)


class _Tensors:
    """A producer of DLPack; the changes are fields of the struct, or say how it differs."""

    def __init__(self, memory: Memory, **changes: Any) -> None:
        self.memory, self.changes, self.device = memory, changes, changes.get("device", (1, 0))

    def __dlpack_device__(self) -> Any:
        return self.device

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, **options: Any) -> Any:
        array, changes = self.memory.array, self.changes
        if changes.get("legacy") and (max_version is not None or options):
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        versioned = max_version is not None and max_version[0] >= 1
        version, flags = changes.get("version", (1, 0)), not array.flags.writeable
        if changes.get("fails") or (not versioned and (flags or version[0] > 1)) or options.get("copy"):
            raise BufferError(MESSAGE.value.decode() if changes.get("fails") else "it cannot say or do this")
        managed: Any = DLManagedTensorVersioned() if versioned else DLManagedTensor()
        if versioned:
            (managed.major, managed.minor), managed.flags = version, flags
        tensor, before, lanes = managed.dl_tensor, changes.get("byte_offset", 0), changes.get("lanes", 1)
        tensor.data, tensor.byte_offset = array.ctypes.data - before, before
        tensor.device_type, tensor.device_id = self.device
        tensor.code, tensor.lanes = changes.get("code", CODES[array.dtype.kind]), lanes
        tensor.ndim, tensor.bits = array.ndim, changes.get("bits", 8 * array.itemsize // lanes)
        tensor.shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        if changes.get("strides", True):
            tensor.strides = (ctypes.c_int64 * array.ndim)(*(s // array.itemsize for s in array.strides))
        name = changes.get("name", b"dltensor_versioned" if versioned else b"dltensor")
        if changes.get("deleter", True) and name.startswith(b"dltensor"):
            managed.deleter = callback(self.memory.release)
            self.memory.exported += 1

        def destroy(address: int) -> None:
            if managed.deleter and is_valid(address, name):
                self.memory.release()

        return capsule(managed, name, destroy)


def interface(memory: Memory, **changes: Any) -> Interface:
    """Return a producer of an array interface alone."""
    fields = {**memory.array.__array_interface__, "strides": memory.array.strides, **changes}
    producer = Interface({name: fields[name] for name in fields.keys() - {"descr"}})
    memory.exported = 1
    weakref.finalize(producer, memory.release).atexit = False
    return producer


def buffer(memory: Memory, **changes: Any) -> memoryview:
    array: Any = np.asarray(interface(memory))
    return memoryview(array)


def numbers(dtype: str = "float32") -> Any:
    return np.arange(1, 25).astype(dtype).reshape(4, 6)


#: Cases of each protocol: the memory, the changes, and whether a consumer may refuse, or must.
MAY: dict[str, Any] = {"may_refuse": True}
LAYOUTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "read-only": {"view": lambda array: np.broadcast_to(array, (4, 6)), **MAY},
    "strided": {"view": lambda array: array[::2, 1::2], **MAY},
    "column-major": {"view": lambda array: array.T, **MAY},
    "negative-strides": {"view": lambda array: array[::-1, ::-1], **MAY},
    "zero-strides": {"view": lambda array: np.broadcast_to(array[:1], (3, 6)), **MAY},
    "empty": {"view": lambda array: array[:0], **MAY},
    "zero-dimensional": {"view": lambda array: array[2, 3, ...], **MAY},
    "many-dimensions": {"view": lambda array: array.reshape((4,) + (1,) * 40 + (6,)), **MAY},
    "unaligned": {"skip": 1, **MAY},
    "aligned-to-the-element": {"skip": 4, **MAY},
    **{name: {"values": numbers(name), **MAY} for name in ("float16", "float64", "int8", "uint32")},
    **{name: {"values": numbers(name), **MAY} for name in ("int64", "bool", "complex64")},
}
VERSION = {"severity": "version not negotiated"}
DLPACK: dict[str, dict[str, Any]] = LAYOUTS | {
    "legacy": {"legacy": True, **VERSION},
    "minor-version": {"version": (1, 99), **VERSION},
    "major-version": {"version": (99, 0), "forbidden": "a struct of version 99.0", **VERSION},
    "byte-offset": {"view": lambda array: array.ravel()[16:], "byte_offset": 64},
    "no-strides": {"strides": False, **MAY},
    "lanes": {"values": numbers("complex64"), "code": 2, "lanes": 2, "forbidden": "elements of two lanes"},
    "unknown-type": {"code": 99, "forbidden": "a type of code 99"},
    "odd-bits": {"bits": 24, "forbidden": "floating-point numbers of 24 bits"},
    "consumed-capsule": {"name": b"used_dltensor_versioned", "forbidden": "a consumed capsule"},
    "other-capsule": {"name": b"arrow_array", "forbidden": "a capsule of another name"},
    "unknown-device": {"device": (99, 0), "forbidden": "memory on a device of type 99"},
    "no-deleter": {"deleter": False, **MAY},
    "error": {"fails": True, "forbidden": "an error of the producer", "message": MESSAGE.value.decode()},
}
INTERFACE: dict[str, dict[str, Any]] = LAYOUTS | {
    "no-strides": {"strides": None},
    "byte-order": {"values": numbers(">f4"), **MAY},
    "few-strides": {"strides": (4,), "forbidden": "one stride for two dimensions"},
    "negative-shape": {"shape": (-4, 6), "strides": None, "forbidden": "the shape (-4, 6)"},
}


class Column(NamedTuple):
    """The fields of an ``ArrowSchema`` and of an ``ArrowArray``, and the values."""

    format: str
    buffers: tuple[Any, ...]
    rows: list[Any]
    offset: int = 0
    nulls: int = 0
    children: tuple[Column, ...] = ()
    dictionary: Column | None = None


class _Structs:
    """The structs of Arrow, and capsules of them; `changes` are those of a case."""

    def __init__(self, memory: Memory, column: Column, changes: dict[str, Any]) -> None:
        self.memory, self.column, self.changes = memory, column, changes

    def schema(self, column: Column, name: bytes = b"") -> Any:
        part = ArrowSchema(column.format.encode(), name, None, 2)
        dictionary = [self.schema(column.dictionary)] if column.dictionary else []
        return self.finished(part, [self.schema(each, b"x") for each in column.children], dictionary)

    def array(self, column: Column, part: Any = None) -> Any:
        buffers = [None if each is None else each.copy() for each in column.buffers]
        part = ArrowArray() if part is None else part
        part.length, part.offset, part.null_count = len(column.rows), column.offset, column.nulls
        addresses = [None if each is None else each.ctypes.data for each in buffers]
        part.n_buffers, part.buffers = len(buffers), (ctypes.c_void_p * len(buffers))(*addresses)
        dictionary = [self.array(column.dictionary)] if column.dictionary else []
        return self.finished(part, [self.array(each) for each in column.children], dictionary, buffers)

    def finished(self, part: Any, children: Any = (), dictionary: Any = (), buffers: Any = ()) -> Any:
        """Give a struct its children, its dictionary and its release callback."""
        kind = type(part)
        if children:
            part.n_children = len(children)
            part.children = (ctypes.POINTER(kind) * len(children))(*map(ctypes.pointer, children))
        for each in dictionary:
            part.dictionary = ctypes.pointer(each)

        def release(address: int) -> None:
            self.memory.released += 1
            for each in filter(lambda buffer: buffer is not None, buffers):
                self.memory.overwrite(each)
            for each in (*children, *dictionary):
                release_open(each)  # the consumer may have moved it
            kind.from_address(address).release = None

        part.release = callback(release)
        self.memory.exported += 1
        KEPT.extend([part, buffers])
        return part

    def capsule(self, part: Any, name: bytes) -> Any:
        if self.changes.get("released") and name != b"arrow_schema":
            release_open(part)
        return capsule(part, name, lambda address: release_open(part))

    def arrow_c_array(self, part: Any = None, name: bytes = b"arrow_array") -> tuple[Any, Any]:
        schema = self.capsule(self.schema(self.column), b"arrow_schema")
        return schema, self.capsule(self.array(self.column, part), name)

    def arrow_c_device_array(self) -> tuple[Any, Any]:
        owner = ArrowDeviceArray(device_type=self.changes.get("device", 1), device_id=-1)
        return self.arrow_c_array(owner.array, b"arrow_device_array")

    def arrow_c_stream(self) -> Any:
        batches = iter([self.column] * self.changes.get("batches", 1))

        def get(out: int, part: Any) -> int:
            ctypes.memmove(out, ctypes.addressof(part), ctypes.sizeof(part))
            return 0

        def get_next(stream: int, out: int) -> int:
            for column in batches:
                return get(out, self.array(column))
            return 5 if self.changes.get("fails") else get(out, ArrowArray())

        get_schema = Get(lambda stream, out: get(out, self.schema(self.column)))
        get_last_error = Text(lambda stream: ctypes.addressof(MESSAGE))
        functions = (get_schema, Get(get_next), get_last_error)
        KEPT.append(functions)
        addresses = [ctypes.cast(function, ctypes.c_void_p).value for function in functions]
        return self.capsule(self.finished(ArrowArrayStream(*addresses)), b"arrow_array_stream")


def release_open(part: Any) -> None:
    if part.release:
        Callback(part.release)(ctypes.addressof(part))


BITS, NUMBERS = np.array([0b11101101, 0], np.uint8), np.arange(10, 18)
LONG = Column("l", (None, NUMBERS), [10, 11, 12, 13, 14])
WORDS = (np.array([0, 3, 6, 11, 15], np.int32), np.frombuffer(b"onetwothreefour", np.uint8))
TEXT = Column("u", (None, *WORDS), ["one", "two", "three", "four"])
COLUMNS: dict[str, Column] = {
    "plain": LONG,
    "offset": LONG._replace(rows=[12, 13, 14], offset=2),
    "nulls": Column("l", (BITS, NUMBERS), [10, None, 12, 13, None], nulls=2),
    "nulls-and-offset": Column("l", (BITS, NUMBERS), [None, 12, 13, None], offset=1, nulls=2),
    "null-count-unknown": Column("l", (BITS, NUMBERS), [10, None, 12], nulls=-1),
    "empty": LONG._replace(rows=[]),
    "bool-and-offset": Column("b", (None, BITS), [True, True, False, True], offset=2),
    "text-and-offset": TEXT._replace(rows=["two", "three"], offset=1),
    "dictionary": Column("l", (None, NUMBERS % 4), ["three", "four", "one", "two"], dictionary=TEXT),
    "list-and-offset": Column("+l", (None, WORDS[0] // 3), [[11], [12]], offset=1, children=(LONG,)),
}
TABLE = {name: {"column": column, **MAY} for name, column in COLUMNS.items()}
CASES: dict[str, dict[str, dict[str, Any]]] = {
    "dlpack": DLPACK,
    "array_interface": INTERFACE,
    "buffer": LAYOUTS,
    "arrow_c_array": TABLE | {"released": {"released": True, "forbidden": "a released array"}},
    "arrow_c_device_array": TABLE | {"unknown-device": {"device": 99, "forbidden": "a device of type 99"}},
    "arrow_c_stream": TABLE
    | {
        "batches": {"batches": 3},
        "no-batches": {"batches": 0},
        "error": {"fails": True, "forbidden": "a batch and an error", "message": MESSAGE.value.decode()},
        "released": {"released": True, "forbidden": "a released stream"},
    },
}
EXPORTS: dict[str, Any] = {"dlpack": _Tensors, "array_interface": interface, "buffer": buffer}
ARROW = "Arrow, C data interface (https://arrow.apache.org/docs/format/CDataInterface.html)"
CLAUSES = {
    "dlpack": "DLPack, Python specification (https://dmlc.github.io/dlpack/latest/python_spec.html)",
    "array_interface": "NumPy, array interface (https://numpy.org/doc/stable/reference/arrays.interface.html)",
    "buffer": "Python/C API, buffer protocol (https://docs.python.org/3/c-api/buffer.html)",
}


def prepare(protocol: str, name: str, alone: bool) -> tuple[Memory, Any, dict[str, Any]]:
    """Return the memory of a case, the function that exports it, and its changes."""
    changes = {"column": LONG, "values": numbers(), **CASES[protocol][name]}
    memory = Memory(**{each: changes.pop(each) for each in ("values", "view", "skip") if each in changes})
    column = changes.pop("column")
    if protocol in EXPORTS:
        return memory, EXPORTS[protocol], changes
    memory.expected = column.rows * changes.get("batches", 1)
    table = Column("+s", (None,), column.rows, children=(column,))
    return memory, partial(export_column, protocol, column if alone else table), changes


def export_column(protocol: str, column: Column, memory: Memory, **changes: Any) -> Any:
    """Return a producer that has one protocol of Arrow."""
    structs = _Structs(memory, column, changes)
    method = lambda self, requested_schema=None, **options: getattr(structs, protocol)()  # noqa: E731
    return type("Producer", (), {f"__{protocol}__": method})()


for _protocol, _names in CASES.items():
    _clause = CLAUSES.get(_protocol, ARROW)
    for _name in _names:
        _run = partial(run_case, _protocol, _name)
        case(f"{_protocol}.consume-{_name}", "wrong value", _clause, "consumer")(_run)
