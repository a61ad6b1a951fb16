"""The Arrow C data interface: reads arrays, device arrays and streams as `Memory`.

The structs are those of Arrow's specifications "The Arrow C data interface", "The Arrow C stream
interface", "The Arrow C Device data interface" and "The Arrow PyCapsule Interface". Each array is
checked against its schema, so that a wrong producer causes an error, not a read out of bounds.
"""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from zerocopy.device import CUDA, CUDA_HOST, CUDA_MANAGED, HOST, LEGACY_DEFAULT_STREAM, Device
from zerocopy.dtype import DType
from zerocopy.errors import DeviceError, UnsupportedConversionError, ZeroCopyError
from zerocopy.protocols import cuda_driver
from zerocopy.protocols.arrow_array_checks import check_array
from zerocopy.protocols.arrow_schema import ArrowSchema, Field, pointer, read_schema, read_struct
from zerocopy.protocols.cuda_array_interface import interface
from zerocopy.protocols.exporter_errors import calling, is_error, malformed, raised
from zerocopy.source import Array
from zerocopy.strided_view import StridedView

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

_GetNext = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_GetLastError = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)
_NO_MESSAGE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda stream: 0)
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
    """One Arrow array: its type, its addresses, and the object that keeps them alive."""

    field: Field
    length: int
    offset: int  #: position of element 0 in each buffer
    nulls: int  #: -1 if not counted
    buffers: tuple[int, ...]  #: addresses in the order of the format's layout, 0 for an absent buffer
    children: tuple[Memory, ...]
    dictionary: Memory | None
    owner: Any
    device: Device = HOST
    sync_event: int = 0  #: address of the event after which device memory is ready; 0 for none
    stream: int | None = None  #: without an event: the stream that writes the memory; None if it is ready


class _Owned:
    """A struct that was moved out of its capsule; released with the last object that uses its memory."""

    def __init__(self, struct: Any) -> None:
        self.struct = struct
        # Created here: module globals may be cleared when __del__ runs at interpreter exit.
        self._release = _Release(struct.release)
        self._address = ctypes.addressof(struct)

    def __del__(self) -> None:
        if self.struct.release:
            self._release(self._address)


class Export:
    """The capsules of one array, which own its memory until another importer takes them."""

    def __init__(self, capsules: tuple[Any, Any], field: Field) -> None:
        self._capsules = capsules
        self.field = field
        #: The array that another importer made of the capsules; it then owns the memory.
        self.imported: Any = None

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]:
        """Return the capsules, for one importer."""
        return self._capsules


class DeviceExport(Export):
    """The capsules of one device array."""

    def __arrow_c_device_array__(self, requested_schema: Any = None, **options: Any) -> tuple[Any, Any]:
        """Return the capsules, for one importer."""
        return self._capsules


def read_array(producer: Any) -> Memory:
    """Describe the memory of an object with ``__arrow_c_array__``; raise if it violates its schema.

    The memory's owner is an `Export`, so that a producer is called once for all importers.
    """
    asked, field, capsules, address = _export(producer, "__arrow_c_array__", ARRAY)
    return _memory(asked, field, ArrowArray.from_address(address), Export(capsules, field))


def read_device_array(producer: Any) -> Memory:
    """Describe the memory of an object with ``__arrow_c_device_array__``, on the host or a CUDA device."""
    asked, field, capsules, address = _export(producer, "__arrow_c_device_array__", DEVICE_ARRAY)
    whole = ArrowDeviceArray.from_address(address)
    if whole.device_type in _ON_HOST:
        device = HOST
    elif whole.device_type == CUDA:
        device = Device(CUDA, max(whole.device_id, 0))
    else:
        raise DeviceError(
            asked,
            f"its memory is on a device of type {whole.device_type}",
            "copy it to the host first",
            code="other-device",
        )
    memory = _memory(asked, field, whole.array, DeviceExport(capsules, field), device)
    if whole.sync_event and device is HOST:
        # The host reads pinned and managed memory, so the host waits.
        event = ctypes.c_void_p.from_address(whole.sync_event).value
        cuda_driver.finish(event or 0, max(whole.device_id, 0))
    if device is HOST:  # importers without CUDA refuse the types of pinned and managed memory
        whole.device_type, whole.device_id, whole.sync_event = 1, -1, None
    elif whole.sync_event:
        _set_event(memory, whole.sync_event)
    return memory


def _export(producer: Any, method: str, name: bytes) -> tuple[str, Field, tuple[Any, Any], int]:
    """Call an export method; return its call text, the field, the capsules, and the struct's address."""
    asked = f"{type(producer).__qualname__}.{method}()"
    with calling(asked):
        exported = getattr(producer, method)()
    try:
        schema, capsule = exported
        return asked, read_schema(schema), (schema, capsule), pointer(capsule, name)
    except ZeroCopyError:
        raise
    except Exception as error:
        if not is_error(error):
            raise
        raise raised(asked, error) from error


def _set_event(memory: Memory, sync_event: int) -> None:
    """Set the event of an array, its children and its dictionary, which may be read separately."""
    memory.sync_event = sync_event
    for part in (*memory.children, *((memory.dictionary,) if memory.dictionary is not None else ())):
        _set_event(part, sync_event)


def read_field(producer: Any) -> Field | None:
    """Return the type of a producer's array without exporting it; None if the producer cannot report it."""
    if not hasattr(type(producer), "__arrow_c_schema__"):
        return None
    with calling(f"{type(producer).__qualname__}.__arrow_c_schema__()"):
        return read_schema(producer.__arrow_c_schema__())


def read_exported_field(producer: Any) -> Field:
    """Return the type of an array that its producer exports, for producers without ``__arrow_c_schema__``."""
    if hasattr(type(producer), "__arrow_c_device_array__"):
        return _export(producer, "__arrow_c_device_array__", DEVICE_ARRAY)[1]
    return _export(producer, "__arrow_c_array__", ARRAY)[1]


class Stream:
    """A stream that was requested from its producer once: first its type, then its arrays.

    The type is read in place, so another importer can still take the whole stream from its capsule.
    Its arrays are checked as those of `batches`; `refusal` is the error of one that is wrong,
    or the exception of a signal handler meanwhile.
    """

    def __init__(self, producer: Any) -> None:
        self.refusal: BaseException | None = None
        self._asked = f"{type(producer).__qualname__}.__arrow_c_stream__()"
        with calling(self._asked):
            self._capsule = producer.__arrow_c_stream__()
        try:
            self._exported = ArrowArrayStream.from_address(pointer(self._capsule, STREAM))
        except ZeroCopyError:
            raise
        except Exception as error:
            if not is_error(error):
                raise
            raise raised(self._asked, error) from error
        self._check_unread()
        if not (self._exported.get_schema and self._exported.get_next):
            raise malformed(self._asked, "a function of the stream is NULL")
        schema = ArrowSchema()
        _call(self._asked, self._exported, self._exported.get_schema, schema, "when asked for its schema")
        schema_owner = _Owned(schema)
        self.field: Field = read_struct(schema)
        del schema_owner

    def batches(self) -> Iterator[Memory]:
        """Yield the arrays.

        The stream is moved out of its capsule, so that a producer that exports the same stream twice
        causes an error, not an empty table.
        """
        self._check_unread()
        stream = ArrowArrayStream.from_buffer_copy(self._exported)
        self._exported.release = None
        return _batches(self._asked, stream, self.field, _Owned(stream))

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return the producer's capsule for an importer, which may read it while this object lives."""
        self._check_unread()
        self._get_next = _GetNext(self._checked(_GetNext(self._exported.get_next)))
        self._exported.get_next = ctypes.cast(self._get_next, ctypes.c_void_p).value
        if not self._exported.get_last_error:  # importers call it without a check after an error
            self._exported.get_last_error = ctypes.cast(_NO_MESSAGE, ctypes.c_void_p).value
        return self._capsule

    def _checked(self, get_next: Callable[[int, int], int]) -> Callable[[int, int], int]:
        """Return a ``get_next`` that checks each array before the importer, which does not, reads it."""

        def checked(stream: int, out: int) -> int:
            code = get_next(stream, out)
            array = ArrowArray.from_address(out)
            if code or not array.release:
                return code
            try:
                _node(self._asked, self.field, array, None, HOST)
            except BaseException as error:  # noqa: BLE001 - C code cannot raise it; the importer's caller does
                own = isinstance(error, UnsupportedConversionError) or not is_error(error)
                self.refusal = error if own else raised(self._asked, error)
                _Release(array.release)(out)
                return errno.EINVAL
            return 0

        return checked

    def _check_unread(self) -> None:
        """Refuse a stream that was moved: its functions must not be called."""
        if not self._exported.release:
            why, remedy = "the stream was read already, and can be read once", "export a new one"
            raise UnsupportedConversionError(self._asked, why, remedy, code="consumed")


def read_stream(producer: Any) -> tuple[Field, Iterator[Memory]]:
    """Return the type of an object with ``__arrow_c_stream__``, and an iterator of its arrays."""
    stream = Stream(producer)
    return stream.field, stream.batches()


def _batches(asked: str, stream: ArrowArrayStream, field: Field, owner: _Owned) -> Iterator[Memory]:
    count = 0
    while True:
        array = ArrowArray()
        _call(asked, stream, stream.get_next, array, f"after {count} arrays")
        if not array.release:  # "a released array marks the end of the stream"
            break
        yield _memory(asked, field, array, _Owned(array))
        count += 1
    del owner  # the generator's frame kept it alive


def _call(asked: str, stream: ArrowArrayStream, function: int, out: Any, when: str) -> None:
    code = _GetNext(function)(ctypes.addressof(stream), ctypes.addressof(out))
    if code:
        last_error = stream.get_last_error
        text = _GetLastError(last_error)(ctypes.addressof(stream)) if last_error else None
        why = (text or b"").decode(errors="replace") or f"error {code}"
        remedy = "fix its data source; all arrays read so far were dropped"
        raise malformed(asked, f"the stream failed {when}: {why}", remedy)


def _memory(asked: str, field: Field, array: ArrowArray, owner: Any, device: Device = HOST) -> Memory:
    if not array.release:
        raise UnsupportedConversionError(
            asked, "the array was released already", "export it again for new capsules", code="consumed"
        )
    return _node(asked, field, array, owner, device)


def _node(asked: str, field: Field, array: ArrowArray, owner: Any, device: Device) -> Memory:
    check_array(asked, field, array, device.is_host)
    if not array.length:
        # pyarrow 26 imports views without rows as a buffer of 0 bytes, which it then refuses for an offset.
        array.offset = 0
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
        tuple(array.buffers[i] or 0 for i in range(array.n_buffers)),
        children,
        _node(asked, inner, array.dictionary.contents, owner, device) if inner is not None else None,
        owner,
        device,
    )


# In ``struct ArrowDeviceArray`` only `buffers` point to device memory. `sync_event` is a host pointer to a
# ``cudaEvent_t`` for which "the consumer MUST wait".


def event_of(address: int) -> int:
    """Return the event at the address `sync_event`; 0 for none."""
    return (ctypes.c_void_p.from_address(address).value or 0) if address else 0


def ready(memory: Memory) -> int | None:
    """Return a stream on which the memory is ready; None if it is ready on all streams.

    If there is an event, the legacy default stream waits for it and is returned. The host does not
    wait (P8).
    """
    event = event_of(memory.sync_event)
    if not event:
        return memory.stream
    cuda_driver.wait(LEGACY_DEFAULT_STREAM, event, memory.device.id)
    return LEGACY_DEFAULT_STREAM


def fetch(memory: Memory, ptr: int, count: int, dtype: DType) -> Array:
    """Copy `count` elements at a device address to the host, and wait for the copy."""
    array = np.empty(count, dtype.storage)
    if array.nbytes:
        stream = ready(memory) or LEGACY_DEFAULT_STREAM
        cuda_driver.fetch(array.ctypes.data, ptr, array.nbytes, memory.device.id, stream)
    return array


class BufferProducer:
    """Exports a buffer of `memory`, and keeps it alive, through the CUDA Array Interface, version 3.

    It is never marked read-only, because consumers refuse read-only memory; the plan warns about it.
    """

    __slots__ = ("_memory", "_view")

    def __init__(self, view: StridedView, memory: Memory) -> None:
        self._view, self._memory = view, memory

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return interface(self._view, ready(self._memory) if self._view.size else None)
