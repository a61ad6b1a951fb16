"""Producers of Arrow tables made with ctypes, which count the calls of each release callback."""

from __future__ import annotations

import ctypes
import functools
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from zerocopy import registry
from zerocopy._native import core
from zerocopy.protocols.arrow_c import ArrowArray, ArrowArrayStream
from zerocopy.protocols.arrow_schema import ArrowSchema

_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
ROWS = 5
_Release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_Get = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
FORMATS = {
    **{np.dtype(f"{kind}{size}"): code for kind, codes in (("i", "csil"), ("u", "CSIL"))
       for size, code in zip((1, 2, 4, 8), codes, strict=True)},
    **{np.dtype(f"f{size}"): code for size, code in ((2, "e"), (4, "f"), (8, "g"))},
}  # fmt: skip

#: Never freed: a consumer may release a struct at any time, and a callback must not be freed while it runs.
_ALIVE: list[TableProducer] = []


def metadata_of(pairs: Mapping[bytes, bytes]) -> bytes:
    """Return the encoding of an ``ArrowSchema``'s metadata."""
    texts = [text for pair in pairs.items() for text in pair]
    return struct.pack("=i", len(pairs)) + b"".join(struct.pack("=i", len(t)) + t for t in texts)


class TableProducer:
    """An object with ``__arrow_c_stream__`` and ``__arrow_c_array__`` over ndarrays of one dimension.

    `chunks` has a dict of arrays for each chunk. The structs are `schema`, `fields`, `batches` and `columns`
    (a list for each batch); tests change them before the export. `exported` counts by name the structs that a
    consumer received in the last export, and `released` the calls of their callbacks.
    """

    def __init__(self, *chunks: Mapping[str, Any]) -> None:
        self.kept: list[Any] = []
        _ALIVE.append(self)
        self.released: Counter[str] = Counter()
        self.exported: Counter[str] = Counter()
        self.error = 0  # of get_next
        self.schema_error = 0
        self.chunks = [{name: np.ascontiguousarray(a) for name, a in chunk.items()} for chunk in chunks]
        self.fields = [self._field(name, array) for name, array in self.chunks[0].items()]
        self.schema = self._keep(ArrowSchema())
        self.schema.format = b"+s"
        self.schema.n_children, self.schema.children = len(self.fields), self._pointers(self.fields)
        self.schema.release = self._release("schema", ArrowSchema, self.fields)
        self.columns = [
            [self._column(f"column {name}", array) for name, array in chunk.items()] for chunk in self.chunks
        ]
        self.batches = [
            self._array("batch", len(next(iter(chunk.values()), ())), [None], columns)
            for columns, chunk in zip(self.columns, self.chunks, strict=True)
        ]

    def _keep(self, thing: Any) -> Any:
        self.kept.append(thing)
        return thing

    def _pointers(self, structs: Sequence[Any]) -> Any:
        if not structs:
            return None
        kind = ctypes.POINTER(type(structs[0]))
        return self._keep((kind * len(structs))(*map(ctypes.pointer, structs)))

    def _release(self, name: str, cls: Any, children: Sequence[Any] = ()) -> int:
        def release(address: int) -> None:
            self.released[name] += 1
            for child in children:  # those that the consumer has not moved
                if child.release:
                    _Release(child.release)(ctypes.addressof(child))
            cls.from_address(address).release = None

        callback = self._keep(_Release(release))
        return int(ctypes.cast(callback, ctypes.c_void_p).value or 0)

    def _field(self, name: str, array: Any) -> Any:
        field = self._keep(ArrowSchema())
        field.format, field.name = FORMATS[array.dtype].encode(), name.encode()
        field.release = self._release(f"field {name}", ArrowSchema)
        return field

    def _array(
        self, name: str, length: int, buffers: Sequence[int | None], children: Sequence[Any] = ()
    ) -> Any:
        part = self._keep(ArrowArray())
        part.length, part.n_buffers = length, len(buffers)
        part.buffers = self._keep((ctypes.c_void_p * len(buffers))(*buffers))
        part.n_children, part.children = len(children), self._pointers(children)
        part.release = self._release(name, ArrowArray, children)
        return part

    def _column(self, name: str, array: Any) -> Any:
        return self._array(name, len(array), [None, array.ctypes.data])

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        self.exported = Counter(("stream",))
        batches = iter(self.batches)

        def get_schema(stream: int, out: int) -> int:
            if self.schema_error:
                return self.schema_error
            self.exported.update(("schema", *(f"field {name}" for name in self.chunks[0])))
            ctypes.memmove(out, ctypes.addressof(self.schema), ctypes.sizeof(ArrowSchema))
            return 0

        def get_next(stream: int, out: int) -> int:
            batch = next(batches, None)
            if batch is None:
                ctypes.memset(out, 0, ctypes.sizeof(ArrowArray))
                return self.error
            self.exported.update(("batch", *(f"column {name}" for name in self.chunks[0])))
            ctypes.memmove(out, ctypes.addressof(batch), ctypes.sizeof(ArrowArray))
            return 0

        stream = self._keep(ArrowArrayStream())
        stream.release = self._release("stream", ArrowArrayStream)
        stream.get_schema, stream.get_next = (
            int(ctypes.cast(self._keep(_Get(function)), ctypes.c_void_p).value or 0)
            for function in (get_schema, get_next)
        )
        self.stream = stream
        return self._capsule(stream, b"arrow_array_stream")

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]:
        names = self.chunks[0]
        self.exported = Counter(
            ("schema", "batch", *(f"field {name}" for name in names), *(f"column {name}" for name in names))
        )
        return self._capsule(self.schema, b"arrow_schema"), self._capsule(self.batches[0], b"arrow_array")

    def _capsule(self, part: Any, name: bytes) -> Any:
        return _new_capsule(ctypes.addressof(part), self._keep(name), None)


@functools.cache
def declare_dtypes() -> None:
    """Declare NumPy's dtypes to the core, as the first conversion does."""
    from zerocopy.dtype import by_name
    from zerocopy.protocols.array_interface import aligned_copy

    core.set_copy_function(aligned_copy)
    for name in ("bool", "complex64", "complex128", *map(str, FORMATS)):
        dtype = by_name(name)
        core.set_dtype(np.dtype(name), dtype.code, dtype.bits)


def route_of(exporter: Any, to: str = "numpy", **options: Any) -> Any:
    """Return a route without a fallback, so that a refusal raises BufferError."""
    target = registry.find(to)
    assert target is not None
    marks = {"mutable": target.mutable, "marks_readonly": to == "numpy"}
    return core.TableRoute(exporter, target.fast_importers()["native"], **marks, **options)


def by_stream(producer: Any, **options: Any) -> Any:
    return route_of(core.TableExporter(TableProducer.__arrow_c_stream__), **options)(producer)


def by_array(producer: Any, **options: Any) -> Any:
    return route_of(core.TableExporter(TableProducer.__arrow_c_array__), **options)(producer)


def numbers() -> dict[str, Any]:
    return {"a": np.arange(ROWS, dtype=np.float32), "b": np.arange(ROWS, dtype=np.int64) * 10}
