"""Consumers of DLPack and of Arrow in Python, right or with one planted fault."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from zerocopy.protocols.arrow_c import ArrowArray, ArrowArrayStream
from zerocopy.protocols.arrow_schema import ArrowSchema
from zerocopy.protocols.dlpack import DLManagedTensor, DLManagedTensorVersioned
from zerocopy.testing.capsules import Callback, get_name, get_pointer, set_name

#: Each fault, with a case that finds it, and the severity of the finding.
TENSOR_FAULTS = {
    "ignores the read-only flag": ("read-only", "flag ignored"),
    "forgets the deleter": ("plain", "leak"),
    "calls the deleter twice": ("plain", "use after free"),
    "calls the deleter at once": ("plain", "use after free"),
    "ignores byte_offset": ("byte-offset", "wrong value"),
    "ignores strides": ("column-major", "wrong value"),
    "reads NULL strides": ("no-strides", "crash"),
    "accepts version 99": ("major-version", "version not negotiated"),
    "forgets the deleter of version 99": ("major-version", "leak"),
    "refuses minor versions": ("minor-version", "version not negotiated"),
    "needs a version": ("legacy", "version not negotiated"),
    "accepts any name": ("other-capsule", "wrong value"),
    "does not rename the capsule": ("plain", "use after free"),
    "ignores the type's code": ("unknown-type", "wrong value"),
    "ignores lanes": ("lanes", "wrong value"),
    "ignores the device": ("unknown-device", "wrong value"),
    "calls a NULL deleter": ("no-deleter", "crash"),
    "hides the producer's error": ("error", "wrong error class"),
    "refuses with KeyError": ("unknown-type", "wrong error class"),
}
TABLE_FAULTS = {
    "ignores offsets": ("arrow_c_array.consume-offset", "wrong value"),
    "ignores validity": ("arrow_c_array.consume-nulls", "wrong value"),
    "believes null_count": ("arrow_c_array.consume-null-count-unknown", "wrong value"),
    "forgets to release": ("arrow_c_array.consume-plain", "leak"),
    "releases twice": ("arrow_c_array.consume-plain", "use after free"),
    "does not mark the move": ("arrow_c_array.consume-plain", "use after free"),
    "reads released arrays": ("arrow_c_array.consume-released", "wrong value"),
    "reads one batch": ("arrow_c_stream.consume-batches", "wrong value"),
    "ignores errors of a stream": ("arrow_c_stream.consume-error", "wrong value"),
    "loses messages of a stream": ("arrow_c_stream.consume-error", "wrong error class"),
}
KINDS = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}


class Tensor:
    """An array interface over a consumed capsule."""

    def __init__(self, managed: Any, interface: dict[str, Any], fault: str) -> None:
        self.managed, self.__array_interface__, self.fault = managed, interface, fault
        if fault == "calls the deleter at once":
            self.close()

    def close(self) -> None:
        if self.fault != "forgets the deleter" and (
            self.managed.deleter or self.fault == "calls a NULL deleter"
        ):
            for _ in range(2 if self.fault == "calls the deleter twice" else 1):
                Callback(self.managed.deleter or 0)(ctypes.addressof(self.managed))

    def __del__(self) -> None:
        if self.fault != "calls the deleter at once":
            self.close()


def requested(producer: Any, fault: str) -> Any:
    try:
        return producer.__dlpack__(max_version=(1, 3))
    except TypeError:
        if fault == "needs a version":
            raise
        return producer.__dlpack__()
    except BufferError as error:
        if fault == "hides the producer's error":
            raise RuntimeError("no capsule") from None
        raise error from None


def from_dlpack(producer: Any, fault: str = "") -> Any:
    capsule = requested(producer, fault)
    name = get_name(capsule)
    if name not in (b"dltensor", b"dltensor_versioned") and fault != "accepts any name":
        raise BufferError(f"a capsule named {name!r}")
    versioned = name != b"dltensor"
    kind: Any = DLManagedTensorVersioned if versioned else DLManagedTensor
    managed = kind.from_address(get_pointer(capsule, name))
    if fault != "does not rename the capsule":
        set_name(capsule, b"used_dltensor_versioned" if versioned else b"used_dltensor")
    tensor = managed.dl_tensor
    major, minor = (managed.major, managed.minor) if versioned else (0, 0)
    refusals = {
        "a newer version": major > 1 and fault != "accepts version 99",
        "a newer minor version": minor > 3 and fault == "refuses minor versions",
        "a device": tensor.device_type != 1 and fault != "ignores the device",
        "lanes": tensor.lanes != 1 and fault != "ignores lanes",
        "a type": tensor.code not in KINDS and fault != "ignores the type's code",
        "bits": tensor.bits not in (8, 16, 32, 64, 128),
    }
    for why, is_refused in refusals.items():
        if is_refused:
            error = KeyError if fault == "refuses with KeyError" else BufferError
            close = Tensor(managed, {}, "forgets the deleter" if "forgets" in fault else "")
            del close
            raise error(why)
    interface = {
        "version": 3,
        "shape": tuple(tensor.shape[: tensor.ndim]) if tensor.ndim else (),
        "typestr": f"={KINDS.get(tensor.code, 'f')}{tensor.bits // 8}",
        "data": (
            tensor.data + (tensor.byte_offset if fault != "ignores byte_offset" else 0),
            bool(versioned and managed.flags & 1) and fault != "ignores the read-only flag",
        ),
    }
    if tensor.ndim and (tensor.strides or fault == "reads NULL strides") and fault != "ignores strides":
        strides = tensor.strides or ctypes.cast(8, ctypes.POINTER(ctypes.c_int64))
        interface["strides"] = tuple(step * tensor.bits // 8 for step in strides[: tensor.ndim])
    return np.asarray(Tensor(managed, interface, fault))


def rows_of(array: Any, fault: str) -> list[Any]:
    """Return the values of a table that has a column of int64."""
    (column,) = (array.children[i].contents for i in range(array.n_children))
    if column.n_buffers != 2 or column.n_children or column.dictionary:
        raise TypeError("only int64")
    start = 0 if fault == "ignores offsets" else column.offset
    values = ctypes.cast(column.buffers[1], ctypes.POINTER(ctypes.c_int64))
    validity = ctypes.cast(column.buffers[0], ctypes.POINTER(ctypes.c_uint8)) if column.buffers[0] else None
    if fault == "ignores validity" or (fault == "believes null_count" and column.null_count <= 0):
        validity = None
    places = range(start, start + column.length)
    return [values[i] if validity is None or validity[i // 8] >> i % 8 & 1 else None for i in places]


def released(struct: Any, fault: str, moved: bool = False) -> None:
    if fault == "forgets to release":
        struct.release = None
        return
    for _ in range(2 if fault == "releases twice" else 1):
        release = struct.release
        Callback(release)(ctypes.addressof(struct))
        if fault == "releases twice":
            struct.release = release
    if fault == "does not mark the move":
        struct.release = release


def from_arrow(producer: Any, fault: str = "") -> Any:
    if hasattr(producer, "__arrow_c_stream__"):
        return from_stream(producer, fault)
    schema, capsule = producer.__arrow_c_array__()
    field = ArrowSchema.from_address(get_pointer(schema, b"arrow_schema"))
    array = ArrowArray.from_address(get_pointer(capsule, b"arrow_array"))
    if not array.release and fault != "reads released arrays":
        raise ValueError("a released array")
    if field.format != b"+s" or field.children[0].contents.format != b"l":
        raise TypeError("only tables of int64")
    rows = rows_of(array, fault)
    if array.release:
        released(array, fault)
    released(field, fault)
    return rows


def from_stream(producer: Any, fault: str) -> Any:
    capsule = producer.__arrow_c_stream__()
    stream = ArrowArrayStream.from_address(get_pointer(capsule, b"arrow_array_stream"))
    if not stream.release:
        raise ValueError("a released stream")
    schema = ArrowSchema()
    get = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    get(stream.get_schema)(ctypes.addressof(stream), ctypes.addressof(schema))
    format = schema.children[0].contents.format if schema.n_children else b""
    released(schema, "")
    if format != b"l":
        raise TypeError("only tables of int64")
    rows, get_next = [], get(stream.get_next)
    message = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)(stream.get_last_error)
    code, batch = 0, ArrowArray()
    while not (code := get_next(ctypes.addressof(stream), ctypes.addressof(batch))) and batch.release:
        try:
            rows += rows_of(batch, fault)
        finally:
            released(batch, fault)
        if fault == "reads one batch":
            break
    text = message(ctypes.addressof(stream)).decode() if code else ""
    released(stream, fault)
    if code and fault != "ignores errors of a stream":
        raise OSError(code, "an error" if fault == "loses messages of a stream" else text)
    return rows


def without_byte_offset(producer: Any) -> Any:
    return from_dlpack(producer, "ignores byte_offset")


def tensorflow_from_dlpack(producer: Any) -> Any:
    import tensorflow as tf

    return tf.experimental.dlpack.from_dlpack(producer.__dlpack__())


def pandas_from_arrow(producer: Any) -> Any:
    import pandas as pd

    return pd.DataFrame.from_arrow(producer)


def duckdb_from_arrow(producer: Any) -> Any:
    import duckdb

    return duckdb.from_arrow(producer)
