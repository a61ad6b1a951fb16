"""Cases of producers of Arrow's arrays, streams and device arrays."""

from __future__ import annotations

import ctypes
import sys
from functools import partial
from typing import Any

import numpy as np

from zerocopy.protocols.arrow_array_checks import check_array
from zerocopy.protocols.arrow_c import ArrowArray, ArrowArrayStream, ArrowDeviceArray
from zerocopy.protocols.arrow_schema import ArrowSchema, read_schema, read_struct
from zerocopy.testing.capsules import KEPT, Callback, address_of, get_name, get_pointer, new_capsule
from zerocopy.testing.cases import Skip, case, check, made, refused, require
from zerocopy.testing.memory import as_numpy, check_leak, refill

HOME = "https://arrow.apache.org/docs/format/"
DATA = f"Arrow C data interface, {{}} ({HOME}CDataInterface.html)"
STREAM = f"Arrow C stream interface, {{}} ({HOME}CStreamInterface.html)"
DEVICE = f"Arrow C device data interface, {{}} ({HOME}CDeviceDataInterface.html)"
CAPSULE = f"Arrow PyCapsule interface, {{}} ({HOME}CDataInterface/PyCapsuleInterface.html)"

STRUCTS: dict[str, Any] = {"arrow_c_array": ArrowArray, "arrow_c_stream": ArrowArrayStream}
STRUCTS["arrow_c_device_array"] = ArrowDeviceArray
NAMES = dict(zip(STRUCTS, (b"arrow_array", b"arrow_array_stream", b"arrow_device_array"), strict=True))
Call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
Text = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)


def content(field: Any, array: Any) -> list[Any]:
    """Return the length, the nulls and the bytes of an array and of its children, after checks."""
    check_array("", field, array, True)
    start, stop, nulls = array.offset, array.offset + array.length, array.null_count
    parts: list[Any] = [field.format, array.length]
    buffers = [array.buffers[i] or 0 for i in range(array.n_buffers)]
    if array.length and field.kind not in ("null", "union", "run_end_encoded"):
        valid = np.ones(array.length, bool)
        if buffers[0]:
            packed = np.frombuffer(ctypes.string_at(buffers[0], (stop + 7) // 8), np.uint8)
            valid = np.unpackbits(packed, bitorder="little")[start:stop].astype(bool)
        count = array.length - int(valid.sum())
        require(nulls in (-1, count), f"the null count is {nulls}, and {count} rows are null")
        parts.append(valid.tobytes())
        if field.width:
            parts.append(ctypes.string_at(buffers[1] + start * field.width, array.length * field.width))
        elif field.kind in ("string", "binary", "list", "map"):
            item = np.int64 if field.wide else np.int32
            size = item().itemsize
            raw = ctypes.string_at(buffers[1] + start * size, (array.length + 1) * size)
            offsets = np.frombuffer(raw, item)
            require((np.diff(offsets) >= 0).all(), "its offsets decrease")
            parts.append((offsets - offsets[0]).tobytes())
            if field.kind in ("string", "binary") and offsets[-1] > offsets[0]:
                parts.append(ctypes.string_at(buffers[2] + int(offsets[0]), int(offsets[-1] - offsets[0])))
    parts += [content(child, array.children[i].contents) for i, child in enumerate(field.children)]
    if field.dictionary is not None:
        parts.append(content(field.dictionary, array.dictionary.contents))
    return parts


class Exported:
    """One export: its capsule, and the struct in it."""

    def __init__(self, x: Any, protocol: str, *arguments: Any) -> None:
        # Interned, because the cache of attributes would keep each new text.
        exported = getattr(x, sys.intern(f"__{protocol}__"))(*arguments)
        self.protocol = protocol
        names = [NAMES[protocol]]
        if protocol != "arrow_c_stream":
            is_pair = isinstance(exported, tuple) and len(exported) == 2
            require(is_pair, f"it returns {exported!r}, not two capsules")
            names.insert(0, b"arrow_schema")
        capsules = exported if isinstance(exported, tuple) else (exported,)
        for name, capsule in zip(names, capsules, strict=True):
            actual = get_name(capsule) if type(capsule).__name__ == "PyCapsule" else type(capsule).__name__
            require(actual == name, f"it returns a capsule {actual!r} instead of {name!r}")
        self.schema: Any = capsules[0] if capsules[1:] else None
        self.capsule: Any = capsules[-1]
        self.struct: Any = STRUCTS[protocol].from_address(get_pointer(self.capsule, names[-1]))
        require(self.owner.release, "the struct was released already")

    @property
    def owner(self) -> Any:
        """The struct that has the release callback."""
        return self.struct.array if self.protocol == "arrow_c_device_array" else self.struct

    def contents(self) -> list[Any]:
        """Return the content of each array; a stream is read to its end."""
        if self.protocol == "arrow_c_stream":
            return [part for _, part in self.arrays()]
        if self.protocol == "arrow_c_device_array" and self.struct.device_type not in (1, 3):
            raise Skip(f"memory on a device of type {self.struct.device_type}")
        return [content(read_schema(self.schema), self.owner)]

    def arrays(self) -> Any:
        """Yield the field and the content of each array of a stream."""
        stream, schema = self.struct, ArrowSchema()
        self.call(stream.get_schema, schema)
        field = read_struct(schema)
        Callback(schema.release)(ctypes.addressof(schema))
        while True:
            array = ArrowArray()
            self.call(stream.get_next, array)
            if not array.release:
                return
            yield field, content(field, array)
            Callback(array.release)(ctypes.addressof(array))

    def call(self, function: int, out: Any) -> None:
        code = Call(function)(ctypes.addressof(self.struct), ctypes.addressof(out))
        message = Text(self.struct.get_last_error)(ctypes.addressof(self.struct)) if code else b""
        require(not code, f"the stream fails with {code}: {message!r}")

    def move(self) -> None:
        """Move the struct out of its capsule, as a consumer does, and drop the capsule."""
        moved = type(self.struct).from_buffer_copy(self.struct)
        self.owner.release = None
        self.struct, self.capsule = moved, None

    def release(self) -> None:
        Callback(self.owner.release)(ctypes.addressof(self.owner))

    def count_releases(self) -> list[int]:
        """Replace the release callback by one that counts its calls and forwards them."""
        original, calls, struct = self.owner.release, [], type(self.owner)

        def counted(address: int) -> None:
            calls.append(address)
            struct.from_address(address).release = original
            Callback(original)(address)

        self.owner.release = address_of(counted)
        return calls


def requested(format: bytes) -> Any:
    """Return a capsule of a schema that a consumer asks for."""
    schema = ArrowSchema(format=format, name=b"", flags=2)

    def release(address: int) -> None:
        ArrowSchema.from_address(address).release = None

    KEPT.append(schema)
    schema.release = address_of(release)
    return new_capsule(ctypes.addressof(schema), b"arrow_schema", None)


@case("valid", "wrong value", DATA.format("Structure definitions"), protocols=STRUCTS)
def arrow_valid(protocol: str, x: Any) -> None:
    """Capsules, structs, buffers, null counts and offsets are valid for the type."""
    Exported(x, protocol).contents()


@case("values", "wrong value", DATA.format("Structure definitions"), protocols=STRUCTS)
def arrow_values(protocol: str, x: Any) -> None:
    """All protocols of an object have the same values; numbers are those of ``numpy.asarray``."""
    parts = Exported(x, protocol).contents()
    for other in STRUCTS:
        if hasattr(x, f"__{other}__") and len(others := Exported(x, other).contents()) == len(parts) == 1:
            check(others == parts, f"__{other}__ has other values than __{protocol}__")
    array, part = as_numpy(x), parts[0] if len(parts) == 1 else []
    if array is not None and array.dtype.kind in "iuf" and len(part) == 4 and part[0] in "cCsSiIlLefg":
        nbytes = array.nbytes if 0 not in part[2] else -1  # NumPy casts nulls to NaN
        check(len(part[3]) != nbytes or part[3] == array.tobytes(), f"the values are not those of {array}")


@case("alive", "use after free", DATA.format("Memory management"), protocols=STRUCTS)
def arrow_alive(protocol: str, make: Any) -> None:
    """The memory lives as long as the struct, without the producer; a consumer may move the struct."""

    def lives() -> bool:
        try:
            return exported.contents() == expected
        except Exception:  # noqa: BLE001 - of memory that was freed
            return False

    x = made(make, protocol)
    expected = Exported(x, protocol).contents()
    for moves in (False, True):
        exported = Exported(made(make, protocol), protocol)
        if moves:
            exported.move()
        refill(64)
        check(lives(), f"other values without the producer{' and capsule' * moves}")
        if moves:
            exported.release()
            check(not exported.owner.release, "the release callback does not mark the struct as released")


@case("release", "use after free", DATA.format("Release callback semantics"), protocols=STRUCTS)
def arrow_release(protocol: str, x: Any) -> None:
    """An unused capsule releases its struct once, and not one that was moved out of it."""
    exported = Exported(x, protocol)
    calls = exported.count_releases()
    exported.capsule = None
    check(calls, "an unused capsule does not release its struct", "leak")
    check(len(calls) == 1, f"an unused capsule releases its struct {len(calls)} times")
    exported = Exported(x, protocol)
    calls = exported.count_releases()
    exported.move()
    check(not calls, "a capsule releases a struct that was moved out of it")
    exported.release()


@case("leak", "leak", DATA.format("Release callback semantics"), protocols=STRUCTS)
def arrow_leak(protocol: str, x: Any) -> None:
    """Neither an unused nor a consumed capsule keeps memory."""

    def use() -> None:
        exported = Exported(x, protocol)
        exported.move()
        exported.release()

    check_leak(x, lambda: Exported(x, protocol))
    check_leak(x, use)


@case("schema", "wrong value", CAPSULE.format("ArrowSchema export"), protocols=STRUCTS)
def arrow_schema(protocol: str, x: Any) -> None:
    """``__arrow_c_schema__`` is the type of the exported data."""
    if not hasattr(x, "__arrow_c_schema__"):
        raise Skip("no __arrow_c_schema__")
    expected, exported = read_schema(x.__arrow_c_schema__()), Exported(x, protocol)
    if protocol == "arrow_c_stream":
        fields = [field for field, _ in exported.arrays()]
    else:
        fields = [read_schema(exported.schema)]
    for field in fields:
        check(field == expected, f"__arrow_c_schema__ is {expected}, and the data {field}")


@case("requested_schema", "wrong error class", CAPSULE.format("Schema requests"), protocols=STRUCTS)
def arrow_requested_schema(protocol: str, x: Any) -> None:
    """A schema is a request: it is followed, ignored, or refused with a plain error."""
    Exported(x, protocol, None)
    for format in (b"i", b"u", b"tsu:"):
        export = partial(Exported, x, protocol, requested(format))
        read = partial(lambda export: export().contents(), export)
        refused(read, ValueError, TypeError, NotImplementedError)


@case("arrow_c_stream.end", "wrong value", STREAM.format("get_next"))
def arrow_stream_end(x: Any) -> None:
    """After its end a stream returns released arrays, and no error."""
    exported = Exported(x, "arrow_c_stream")
    require(exported.struct.get_last_error, "its function get_last_error is NULL")
    exported.contents()
    for _ in range(2):
        array = ArrowArray()
        exported.call(exported.struct.get_next, array)
        check(not array.release, "the stream returns an array after its end")


@case("arrow_c_stream.twice", "wrong value", CAPSULE.format("ArrowStream export"))
def arrow_stream_twice(x: Any) -> None:
    """A second stream of an object has the same rows, or is refused."""
    first, second = Exported(x, "arrow_c_stream").contents(), []
    if not refused(lambda: second.extend(Exported(x, "arrow_c_stream").contents()), Exception):
        check(second == first, f"the first stream has {len(first)} arrays, the second other ones")


@case("arrow_c_device_array.device", "wrong value", DEVICE.format("ArrowDeviceArray"))
def arrow_device(x: Any) -> None:
    """Memory of the host has the device -1 and no event; reserved bytes are 0."""
    struct = Exported(x, "arrow_c_device_array").struct
    check(struct.device_type > 0, f"the device has the type {struct.device_type}")
    if struct.device_type == 1:
        check(struct.device_id == -1, f"memory of the host has the device {struct.device_id}")
        check(not struct.sync_event, "memory of the host has an event")
    check(not any(struct.reserved), "reserved bytes are not 0")


@case("arrow_c_device_array.keywords", "flag ignored", CAPSULE.format("ArrowDeviceArray export"))
def arrow_device_keywords(x: Any) -> None:
    """A keyword that it does not know is refused with NotImplementedError unless it is None."""
    x.__arrow_c_device_array__(None, future=None)
    is_refused = refused(lambda: x.__arrow_c_device_array__(None, future=1), NotImplementedError)
    check(is_refused, "future=1 is ignored")
