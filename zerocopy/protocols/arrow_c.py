"""The Arrow C data interface: arrays and streams as memory that can be looked at.

Structs are those of Arrow's specification: "The Arrow C data interface", "The Arrow C
stream interface", "The Arrow C Device data interface", and for Python "The Arrow
PyCapsule Interface". What comes is checked against its schema: a producer that is
wrong gets an error and no read out of bounds.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from zerocopy.device import CUDA, CUDA_HOST, CUDA_MANAGED, HOST, Device
from zerocopy.errors import DeviceError, UnsupportedConversionError, ZeroCopyError
from zerocopy.protocols import cuda_driver
from zerocopy.protocols.arrow_schema import ArrowSchema, Field, pointer, read_schema, read_struct

ARRAY, STREAM, DEVICE_ARRAY = b"arrow_array", b"arrow_array_stream", b"arrow_device_array"

_ON_HOST = (1, CUDA_HOST, CUDA_MANAGED)


class ArrowArray(ctypes.Structure):
    """``struct ArrowArray``."""


ArrowArray._fields_ = (
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(ArrowArray))),
    ("dictionary", ctypes.POINTER(ArrowArray)),
    ("release", ctypes.c_void_p),
    ("private_data", ctypes.c_void_p),
)

_Call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_Say = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)
_Release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class ArrowArrayStream(ctypes.Structure):
    """``struct ArrowArrayStream``."""

    _fields_ = (
        ("get_schema", ctypes.c_void_p),
        ("get_next", ctypes.c_void_p),
        ("get_last_error", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    )


class ArrowDeviceArray(ctypes.Structure):
    """``struct ArrowDeviceArray``; `sync_event` points to a ``cudaEvent_t`` or is NULL."""

    _fields_ = (
        ("array", ArrowArray),
        ("device_id", ctypes.c_int64),
        ("device_type", ctypes.c_int32),
        ("sync_event", ctypes.c_void_p),
        ("reserved", ctypes.c_int64 * 3),
    )


@dataclass(slots=True, eq=False)
class Memory:
    """One array as it lies in memory: addresses, and who keeps them alive.

    Attributes
    ----------
    field : Field
        Its type.
    length, offset : int
        In elements: element 0 is the one at `offset` of each buffer.
    nulls : int
        How many elements are null; -1 where nobody has counted.
    buffers : tuple of int
        Addresses, 0 for an absent one, in the order of the format's layout.
    children, dictionary
        The arrays below it.
    owner : object
        Keeps all of it alive.
    device : Device
    sync_event : int
        Address of the event after which device memory is ready; 0 for none.
    stream : int or None
        Where there is no event: the stream whose work makes device memory, or None for
        memory that is ready.
    """

    field: Field
    length: int
    offset: int
    nulls: int
    buffers: tuple[int, ...]
    children: tuple[Memory, ...]
    dictionary: Memory | None
    owner: Any
    device: Device = HOST
    sync_event: int = 0
    stream: int | None = None


class _Owned:
    """A struct that was moved to us, and is released when nothing looks at its memory any more."""

    def __init__(self, struct: Any) -> None:
        self.struct = struct
        # Made now: when the interpreter shuts down, names of modules may be gone.
        self._release = _Release(struct.release)
        self._address = ctypes.addressof(struct)

    def __del__(self) -> None:
        if self.struct.release:
            self._release(self._address)


def read_array(producer: Any) -> Memory:
    """Describe the memory of an object with ``__arrow_c_array__``.

    Raises
    ------
    UnsupportedConversionError
        The exporter raised, or what it gave is not what its schema says.
    """
    asked = f"{type(producer).__qualname__}.__arrow_c_array__()"
    try:
        schema_capsule, capsule = producer.__arrow_c_array__()
        field = read_schema(schema_capsule)
        array = ArrowArray.from_address(pointer(capsule, ARRAY))
    except ZeroCopyError:
        raise
    except Exception as error:
        raise _raised(asked, error) from error
    return _memory(asked, field, array, capsule)


def read_device_array(producer: Any) -> Memory:
    """Describe the memory of an object with ``__arrow_c_device_array__``, wherever it is.

    Raises
    ------
    UnsupportedConversionError
        As for :func:`read_array`.
    DeviceError
        The memory is on a device of another kind than the host's and CUDA's.
    """
    asked = f"{type(producer).__qualname__}.__arrow_c_device_array__()"
    try:
        schema_capsule, capsule = producer.__arrow_c_device_array__()
        field = read_schema(schema_capsule)
        whole = ArrowDeviceArray.from_address(pointer(capsule, DEVICE_ARRAY))
    except ZeroCopyError:
        raise
    except Exception as error:
        raise _raised(asked, error) from error
    if whole.device_type in _ON_HOST:
        device = HOST
    elif whole.device_type == CUDA:
        device = Device(CUDA, max(whole.device_id, 0))
    else:
        raise DeviceError(
            asked, f"its memory is on a device of type {whole.device_type}", "copy it to the host first"
        )
    memory = _memory(asked, field, whole.array, capsule, device)
    if whole.sync_event and device is HOST:
        # Pinned or managed memory, which the host reads: so it is the host that waits.
        event = ctypes.c_void_p.from_address(whole.sync_event).value
        cuda_driver.finish(event or 0, max(whole.device_id, 0))
    elif whole.sync_event:
        _after(memory, whole.sync_event)
    return memory


def _after(memory: Memory, sync_event: int) -> None:
    """Note the event with an array and all below it: each may be looked at by itself."""
    memory.sync_event = sync_event
    for below in (*memory.children, *((memory.dictionary,) if memory.dictionary is not None else ())):
        _after(below, sync_event)


def read_field(producer: Any) -> Field | None:
    """Return the type of what a producer would export, where it says so without exporting."""
    if not hasattr(type(producer), "__arrow_c_schema__"):
        return None
    try:
        return read_schema(producer.__arrow_c_schema__())
    except Exception as error:
        raise _raised(f"{type(producer).__qualname__}.__arrow_c_schema__()", error) from error


def read_stream(producer: Any) -> tuple[Field, Iterator[Memory]]:
    """Read an object with ``__arrow_c_stream__``: its type, and its arrays as they come.

    The stream is taken from its capsule, so that a producer that hands out the same
    one twice gets an error and not an empty table.

    Raises
    ------
    UnsupportedConversionError
        The exporter raised; the stream failed, even in its middle; what it gave is
        not what its schema says.
    """
    asked = f"{type(producer).__qualname__}.__arrow_c_stream__()"
    try:
        capsule = producer.__arrow_c_stream__()
        given = ArrowArrayStream.from_address(pointer(capsule, STREAM))
    except ZeroCopyError:
        raise
    except Exception as error:
        raise _raised(asked, error) from error
    if not given.release:
        raise UnsupportedConversionError(
            asked, "the stream was read already, and can be read once", "ask for a fresh one"
        )
    stream = ArrowArrayStream.from_buffer_copy(given)
    given.release = None
    owner = _Owned(stream)
    schema = ArrowSchema()
    _call(asked, stream, stream.get_schema, schema, "telling its schema")
    schema_owner = _Owned(schema)
    field = read_struct(schema)
    del schema_owner
    return field, _batches(asked, stream, field, owner)


def _batches(asked: str, stream: ArrowArrayStream, field: Field, owner: _Owned) -> Iterator[Memory]:
    count = 0
    while True:
        array = ArrowArray()
        _call(asked, stream, stream.get_next, array, f"after {count} arrays")
        if not array.release:  # "a released array marks the end of the stream"
            break
        yield _memory(asked, field, array, _Owned(array))
        count += 1
    del owner  # held until here: a generator's own frame keeps it


def _call(asked: str, stream: ArrowArrayStream, function: int, out: Any, when: str) -> None:
    code = _Call(function)(ctypes.addressof(stream), ctypes.addressof(out))
    if code:
        said = _Say(stream.get_last_error)(ctypes.addressof(stream)) if stream.get_last_error else None
        why = (said or b"").decode(errors="replace") or f"error {code}"
        raise UnsupportedConversionError(
            asked, f"the stream failed {when}: {why}", "mend what feeds it; nothing of it was kept"
        )


def _raised(asked: str, error: Exception) -> UnsupportedConversionError:
    return UnsupportedConversionError(
        asked,
        f"the exporter raised {type(error).__name__}: {error}",
        "see the exporter's own message, above",
    )


def _memory(asked: str, field: Field, array: ArrowArray, owner: Any, device: Device = HOST) -> Memory:
    if not array.release:
        raise UnsupportedConversionError(
            asked, "the array has been released already", "ask the producer for fresh capsules"
        )
    return _node(asked, field, array, owner, device)


def _check_buffers(asked: str, field: Field, array: ArrowArray, device: Device) -> None:
    """Check that what the length says is there: what is not would be read all the same."""
    kind, stop = field.kind, array.offset + array.length
    if not array.length:
        return
    why = ""
    if kind not in ("null", "struct", "fixed_list", "union", "run_end_encoded") and not array.buffers[1]:
        why = f"its length is {array.length} and its buffer is NULL"
    elif kind != "null" and array.null_count > 0 and field.buffers and not array.buffers[0]:
        why = f"{array.null_count} of its rows are null and it has no bitmap"
    elif any(not array.children[i] for i in range(array.n_children)):
        why = "one of its children is NULL"
    elif kind in ("struct", "fixed_list"):
        need = stop * (field.list_size if kind == "fixed_list" else 1)
        lengths = [array.children[i].contents.length for i in range(array.n_children)]
        if any(length < need for length in lengths):
            why = f"it needs {need} rows of each child, and they have {lengths}"
    elif kind in ("list", "map") and device.is_host:
        ends = ctypes.c_int64 if field.wide else ctypes.c_int32
        end = ends.from_address(array.buffers[1] + stop * ctypes.sizeof(ends)).value
        if end > array.children[0].contents.length:
            why = f"its lists end at {end}, and their elements are {array.children[0].contents.length}"
    if why:
        raise UnsupportedConversionError(asked, f"the {field} array is wrong: {why}", "mend the exporter")


def _node(asked: str, field: Field, array: ArrowArray, owner: Any, device: Device) -> Memory:
    # View types have a buffer for each block of text; polars exports nulls with a bitmap, which
    # nobody reads ("Null Layout": no buffers).
    spare = field.kind in ("string_view", "binary_view", "null")
    has = int(array.n_buffers)
    for what, says, got in (
        ("children", len(field.children), int(array.n_children)),
        ("buffers", field.buffers, min(has, field.buffers) if spare else has),
        ("dictionaries", int(field.dictionary is not None), int(bool(array.dictionary))),
    ):
        if says != got:
            raise UnsupportedConversionError(
                asked,
                f"the schema says {field} with {says} {what}, and the array has {got}",
                "mend the exporter: schema and array do not match",
            )
    if array.length < 0 or array.offset < 0 or not -1 <= array.null_count <= array.length:
        raise UnsupportedConversionError(
            asked,
            f"length {array.length}, offset {array.offset} and null count {array.null_count} make no array",
            "mend the exporter",
        )
    _check_buffers(asked, field, array, device)
    children = tuple(
        _node(asked, child, array.children[i].contents, owner, device)
        for i, child in enumerate(field.children)
    )
    inner = field.dictionary
    return Memory(
        field,
        array.length,
        array.offset,
        array.null_count,
        tuple(array.buffers[i] or 0 for i in range(has)),
        children,
        _node(asked, inner, array.dictionary.contents, owner, device) if inner is not None else None,
        owner,
        device,
    )
