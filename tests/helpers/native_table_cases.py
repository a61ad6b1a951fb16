"""Bytes -> a table in Arrow's C data interface with arbitrary fields, and whether the core takes it."""

from __future__ import annotations

import ctypes
import struct
from collections import Counter
from typing import Any

import numpy as np

from helpers.native_cases import SIZE, Reader
from helpers.native_core import core
from zerocopy.protocols.arrow_c import ArrowArray
from zerocopy.protocols.arrow_schema import ArrowSchema

_FORMATS = {"c": "i1", "C": "u1", "s": "i2", "S": "u2", "i": "i4", "I": "u4", "l": "i8", "L": "u8"}
_FORMATS |= {"e": "f2", "f": "f4", "g": "f8"}
_ODD_FORMATS = ["b", "u", "+l", "+s", "tsn:", "w:3", "", None, "cc", "n", "z", "+w:2", "tdD"]
_NAMES = [b"a", b"b", b"c", b"\xc3\xa9", b"long name " * 9]
_WILD = [-1, -(2**63), 2**63 - 1, 2**62, 2**59, 2**31, 1000, 1, 0, 3]
_MOST = 4
_Release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)


def _metadata(key: bytes, value: bytes) -> bytes:
    return struct.pack("=ii", 1, len(key)) + key + struct.pack("=i", len(value)) + value


_PLAIN_METADATA = [_metadata(b"key", b"value"), struct.pack("=i", 0), _metadata(b"ARROW:extension:nam", b"x")]
_ODD_METADATA = [_metadata(b"ARROW:extension:name", b"x"), struct.pack("=i", -1) + bytes(8)]
_ODD_METADATA += [struct.pack("=ii", 1, -5) + bytes(64), struct.pack("=ii", 1, 2**31 - 1) + bytes(64)]


class Tables:
    """The structs of one table at a time, written for each case, and the counts of their releases."""

    def __init__(self, arena: int) -> None:
        self.arena = arena
        self.schema, self.chunk = ArrowSchema(), ArrowArray()
        self.fields = [ArrowSchema() for _ in range(_MOST)]
        self.columns = [ArrowArray() for _ in range(_MOST)]
        # The items of columns of lists.
        self.item_fields, self.items = ([cls() for _ in range(_MOST)] for cls in (ArrowSchema, ArrowArray))
        self.item_field_pointers = [(ctypes.POINTER(ArrowSchema) * 1)() for _ in range(_MOST)]
        self.item_pointers = [(ctypes.POINTER(ArrowArray) * 1)() for _ in range(_MOST)]
        self.item_buffers = [(ctypes.c_void_p * 2)() for _ in range(_MOST)]
        self.field_pointers = (ctypes.POINTER(ArrowSchema) * _MOST)()
        self.column_pointers = (ctypes.POINTER(ArrowArray) * _MOST)()
        self.buffers = [(ctypes.c_void_p * 3)() for _ in range(_MOST + 1)]
        self.released: Counter[str] = Counter()
        self._callbacks = [
            _Release(lambda address: self._release(address, ArrowSchema, "schema", self.fields)),
            _Release(lambda address: self._release(address, ArrowArray, "chunk", self.columns)),
            _Release(lambda address: self._release(address, ArrowArray, "column", ())),
        ]
        self._addresses = [ctypes.cast(callback, ctypes.c_void_p).value for callback in self._callbacks]
        pair = lambda table: (  # noqa: E731 - of the structs of this object
            _new_capsule(ctypes.addressof(table.schema), b"arrow_schema", None),
            _new_capsule(ctypes.addressof(table.chunk), b"arrow_array", None),
        )
        self.route = core.TableRoute(core.TableExporter(pair), core.NDArrayImporter(), True, True)
        self.column_route = core.MatrixRoute(
            core.TableExporter(pair), core.NDArrayImporter(), True, True, copy=False
        )

    def _release(self, address: int, cls: Any, name: str, children: Any) -> None:
        self.released[name] += 1
        for child in children:  # those that the consumer has not moved
            if child.release:
                child.release = None
                self.released["field" if name == "schema" else "column"] += 1
        cls.from_address(address).release = None

    def run(self, read: Reader) -> bool:
        """Run one case; returns whether the core took it. AssertionError for a finding."""
        self.released.clear()
        valid, expected = self._build(read)
        description = self._describe()
        # A column of lists takes the route of a matrix of one column.
        is_column = len(expected) == 1 and next(iter(expected.values())).ndim == 2 and read.below(2) == 1
        try:
            result = dict.fromkeys(expected, self.column_route(self)) if is_column else self.route(self)
        except (BufferError, UnicodeDecodeError):
            result = None
        assert (result is not None) is valid, f"{'taken' if result is not None else 'refused'}: {description}"
        if result is not None:
            assert list(result) == list(expected), description
            for name, values in expected.items():
                assert result[name].dtype == values.dtype
                assert result[name].tobytes() == values.tobytes(), description
                assert result[name].ctypes.data == values.ctypes.data
                assert not result[name].flags.writeable
            del result, values
        assert self.released == self.exported, f"{self.released}, {self.exported}: {description}"
        return valid

    def _describe(self) -> str:
        count = max(0, min(self.schema.n_children, _MOST))
        parts: list[Any] = [[field.format, field.name, field.n_children] for field in self.fields[:count]]
        for array in (self.chunk, *self.columns[:count]):
            names = ("length", "null_count", "offset", "n_buffers", "n_children")
            parts.append([getattr(array, name) for name in names])
        return str([self.schema.n_children, *parts])

    def _build(self, read: Reader) -> tuple[bool, dict[str, Any]]:
        """Write a case's structs; returns whether the core takes them, and the columns that it makes."""
        count, rows, offset = 1 + read.below(_MOST), 1 + read.below(6), read.pick([0, 0, 0, 1, 5])
        self.schema.format, self.schema.metadata, self.schema.dictionary = b"+s", None, None
        self.schema.n_children, self.schema.children = count, self.field_pointers
        self.chunk.length, self.chunk.offset, self.chunk.null_count = rows, offset, read.pick([0, 0, -1])
        self.chunk.n_buffers, self.chunk.n_children, self.chunk.dictionary = 1, count, None
        self.chunk.buffers, self.chunk.children = self.buffers[_MOST], self.column_pointers
        self.buffers[_MOST][0] = None
        self.schema.release, self.chunk.release = self._addresses[:2]
        expected: dict[str, Any] = {}
        self._offsets: dict[int, Any] = {}
        for i in range(_MOST):
            letter, name = read.pick(list(_FORMATS)), _NAMES[i]
            field, column, buffers = self.fields[i], self.columns[i], self.buffers[i]
            self.field_pointers[i], self.column_pointers[i] = ctypes.pointer(field), ctypes.pointer(column)
            field.format, field.name, field.n_children, field.dictionary = letter.encode(), name, 0, None
            field.metadata = self._keep(read.pick(_PLAIN_METADATA)) if read.rarely() else None
            own, dtype = read.pick([0, 0, 1, 4]), np.dtype(_FORMATS[letter])
            span = (own + offset + rows) * dtype.itemsize
            start = read.below(SIZE - span + 1) // dtype.itemsize * dtype.itemsize
            column.length, column.offset, column.null_count = offset + rows, own, read.pick([0, 0, -1])
            column.n_buffers, column.n_children, column.dictionary, column.children = 2, 0, None, None
            column.buffers, buffers[0], buffers[1] = buffers, None, self.arena + start
            live = i < count
            field.release = self._addresses[0] if live else None
            column.release = self._addresses[2] if live else None
            if live:
                block = (ctypes.c_char * (rows * dtype.itemsize)).from_address(
                    self.arena + start + (own + offset) * dtype.itemsize
                )
                expected[name.decode()] = np.frombuffer(block, dtype)
            if live and (kind := read.pick(["", "", "", "+l", "+L", "+w"])):
                expected[name.decode()] = self._as_lists(read, i, kind, rows, offset)
        valid = True
        for _ in range(read.pick([0, 0, 0, 1, 1, 2])):
            valid &= self._spoil(read, count)
        self.exported = Counter(
            {"schema": 1, "field": count, "chunk": 1, "column": sum(bool(c.release) for c in self.columns)}
        )
        return valid, expected

    def _as_lists(self, read: Reader, i: int, kind: str, rows: int, offset: int) -> Any:
        """Make a column one of lists of numbers of one length; returns its rows."""
        field, column, items = self.fields[i], self.columns[i], self.items[i]
        size, unused, own = read.below(4), read.below(3), column.offset
        dtype = np.dtype(_FORMATS[field.format.decode()])
        first = (own + offset) * size if kind == "+w" else unused
        count, before = first + rows * size, read.pick([0, 0, 1, 4])
        start = read.below(SIZE - (before + count) * dtype.itemsize + 1) // dtype.itemsize * dtype.itemsize
        self.item_fields[i].format, self.item_fields[i].name = field.format, b"item"
        self.item_fields[i].n_children, self.item_fields[i].metadata = 0, None
        field.format = f"+w:{size}".encode() if kind == "+w" else kind.encode()
        field.n_children, field.children = 1, self.item_field_pointers[i]
        self.item_field_pointers[i][0] = ctypes.pointer(self.item_fields[i])
        items.length, items.offset, items.null_count = count, before, read.pick([0, 0, -1])
        items.n_buffers, items.n_children, items.dictionary, items.children = 2, 0, None, None
        items.buffers, items.release = self.item_buffers[i], self._addresses[2]
        self.item_buffers[i][0], self.item_buffers[i][1] = None, self.arena + start
        column.n_buffers, column.n_children, column.children = 2, 1, self.item_pointers[i]
        self.item_pointers[i][0] = ctypes.pointer(items)
        if kind == "+w":
            column.n_buffers = 1
        else:
            offsets = np.zeros(own + offset + rows + 1, "i4" if kind == "+l" else "i8")
            offsets[own + offset :] = first + size * np.arange(rows + 1)
            column.buffers[1] = offsets.ctypes.data
            self._offsets[i] = offsets[own + offset :]
        block = (ctypes.c_char * (rows * size * dtype.itemsize)).from_address(
            self.arena + start + (before + first) * dtype.itemsize
        )
        return np.frombuffer(block, dtype).reshape(rows, size)

    def _spoil_lists(self, read: Reader, i: int) -> bool:
        """Make one field of a column of lists wrong; returns whether the core still takes the table."""
        field, column, items = self.fields[i], self.columns[i], self.items[i]
        which, offsets = read.below(8), self._offsets.get(i)
        if which == 0:
            field.format = read.pick([b"+w:", b"+w:-1", b"+w:99999999999", b"+w:2x", b"+vl", b"+m"])
        elif which == 1:
            self.item_fields[i].format = read.pick([b"u", b"+l", b"b", b"tdD"])
        elif which == 2:
            self.item_fields[i].metadata = self._keep(_ODD_METADATA[0])
        elif which == 3:
            items.null_count = read.pick([1, 2**62, -2])
        elif which == 4 and items.length > 0:
            items.length -= 1  # all of them are used
        elif which == 5:
            self.item_pointers[i][0] = None
        elif which == 6 and offsets is not None and len(offsets) > 2:
            offsets[read.below(len(offsets))] += read.pick([1, -1, 2**30, -(2**30)])
        elif which == 7 and offsets is not None:
            column.buffers[1] = read.pick([None, (column.buffers[1] or 0) + 1])
        else:
            field.dictionary = ctypes.pointer(self.item_fields[i])
        return False

    def _keep(self, content: bytes) -> int:
        self._held = getattr(self, "_held", [])[-16:]
        self._held.append(ctypes.create_string_buffer(content + bytes(16)))
        return ctypes.addressof(self._held[-1])

    def _spoil(self, read: Reader, count: int) -> bool:
        """Make one field wrong; returns whether the core still takes the table."""
        which, i = read.below(12), read.below(count)
        if (self.fields[i].format or b"").startswith(b"+") and read.below(2):
            return self._spoil_lists(read, i)
        field, column, part = self.fields[i], self.columns[i], read.pick([self.chunk, self.columns[i]])
        if which == 0:
            text = read.pick(_ODD_FORMATS)
            if text in ("+l", "+w:2") and field.n_children:
                text = "+s"  # the memory of lists of one kind can be that of another kind too
            field.format = None if text is None else text.encode()
        elif which == 1:
            field.name = self.fields[(i + 1) % count].name if count > 1 else read.pick([b"\xff", b"\xc3"])
        elif which == 2:
            field.metadata = self._keep(read.pick(_ODD_METADATA))
        elif which == 3:
            part.null_count = read.pick([1, -2, 2**63 - 1, -(2**63)])
        elif which == 4:
            part.null_count, part.buffers[0] = -1, self.arena
        elif which == 5:
            part.length = read.pick([-1, -(2**63), 0])
        elif which == 6:
            part.offset = read.pick([-1, -(2**63), 2**63 - 1, 2**62])
        elif which == 7:
            part.n_buffers = read.pick([0, 3, -1, 2**62])
        elif which == 8:
            part.n_children = read.pick([-1, _MOST + 1, 2**62])
        elif which == 9:
            column.buffers[1] = read.pick([None, 2**62, 2**64 - 8, 2**56])
            return column.n_buffers == 1  # lists of a fixed size have no such buffer
        elif which == 10:
            self.column_pointers[i] = None
        else:
            self.schema.n_children = read.pick([-1, 0, 2**40, 2**62])
        return False
