"""Arrow arrays as nodes (numbers) and frames, each trimmed to the rows that the array shows.

`Writer.write` appends one node for each level of a type, and `ArrowReader.read` reads them in this order;
pyarrow checks the arrays that it builds. A written array has the offset 0: a bitmap that does not start at a
byte is shifted. In contrast, the pickle of a slice by pyarrow (protocol 5) has its whole buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy import ndarray

from zerocopy.errors import UnsupportedConversionError
from zerocopy.frames.arrays import as_bytes
from zerocopy.frames.header import invalid
from zerocopy.source import Array
from zerocopy.tables.hub import hub

_NO_BYTES = np.empty(0, np.uint8)
_ZERO = np.zeros(8, np.uint8)
_ZERO.flags.writeable = False
#: pyarrow's number of extension types, which has no name in Python.
EXTENSION = 31
#: The text buffers of a view type are inspected only if they have more bytes than this for each row.
_WIDE_TEXT = 32


class Writer:
    """Collects the nodes and the frames of Arrow arrays.

    Attributes
    ----------
    nodes : list of int
        For each level: length, null count, whether it has a bitmap; for views also the number of
        text buffers.
    frames : list of numpy.ndarray
        The buffers of each level: bitmap, then those of its type.
    copied_bytes : int
        Bytes of frames that do not alias the arrays.
    has_extensions : bool
        Whether an array has an extension type.
    """

    __slots__ = ("copied_bytes", "frames", "has_extensions", "nodes")

    def __init__(self) -> None:
        self.nodes: list[int] = []
        self.frames: list[Array] = []
        self.copied_bytes: int = 0
        self.has_extensions: bool = False

    def write(self, array: Any) -> None:
        """Append an array (not chunked) and its children."""
        kind = array.type
        special = _special().get(kind.id)
        if special is not None:
            special(self, array)
            return
        if kind.num_fields or kind.num_buffers != 2:
            raise UnsupportedConversionError(
                "",
                f"frames cannot hold pyarrow's type {kind}",
                "x.cast(...) to another type",
                code="missing-dtype",
            )
        width = kind.bit_width // 8
        self._node(array)
        start = array.offset * width
        self.frames.append(_bytes(array.buffers()[1])[start : start + len(array) * width])

    def _node(self, array: Any) -> None:
        """Append the length, the null count and the bitmap."""
        length, nulls = len(array), array.null_count
        self.nodes += (length, nulls, int(nulls > 0))
        if nulls:
            self._bits(array.buffers()[0], array.offset, length)

    def _bits(self, buffer: Any, offset: int, length: int) -> None:
        bits, shift = _bytes(buffer), offset % 8
        bits = bits[offset // 8 : (offset + length + 7) // 8]
        if shift:
            low = bits >> shift
            low[:-1] |= bits[1:] << (8 - shift)
            bits = low[: (length + 7) // 8]
            self.copied_bytes += bits.nbytes
        self.frames.append(bits)

    def _offsets(self, array: Any, of: type) -> tuple[int, int]:
        """Append offsets that start at 0; return the first and the last as they were."""
        length = len(array)
        buffer = array.buffers()[1]
        width = of().itemsize
        if not length:  # polars 2.1.0 reads the first offset of an array without rows
            self.frames.append(_ZERO[:width])
            return 0, 0
        part = _bytes(buffer)[array.offset * width : (array.offset + length + 1) * width]
        offsets: Array = part.view(of)
        first, last = int(offsets[0]), int(offsets[-1])
        if first:
            offsets = offsets - offsets.dtype.type(first)
            self.copied_bytes += offsets.nbytes
        self.frames.append(offsets.view(np.uint8))
        return first, last

    def _bool(self, array: Any) -> None:
        self._node(array)
        self._bits(array.buffers()[1], array.offset, len(array))

    def _null(self, array: Any) -> None:
        self.nodes += (len(array), len(array), 0)

    def _text(self, array: Any, of: type) -> None:
        self._node(array)
        first, last = self._offsets(array, of)
        self.frames.append(_bytes(array.buffers()[2])[first:last])

    def _list(self, array: Any, of: type) -> None:
        self._node(array)
        first, last = self._offsets(array, of)
        self.write(array.values.slice(first, last - first))

    def _fixed_list(self, array: Any) -> None:
        self._node(array)
        size = array.type.list_size
        self.write(array.values.slice(array.offset * size, len(array) * size))

    def _struct(self, array: Any) -> None:
        self._node(array)
        for i in range(array.type.num_fields):
            self.write(array.field(i))

    def _dictionary(self, array: Any) -> None:
        self.write(array.indices)
        self.write(array.dictionary)

    def _extension(self, array: Any) -> None:
        self.has_extensions = True
        self.write(array.storage)

    def _sparse_union(self, array: Any) -> None:
        self.nodes += (len(array), 0, 0)
        self.frames.append(_bytes(array.buffers()[1])[array.offset : array.offset + len(array)])
        for i in range(array.type.num_fields):
            self.write(array.field(i))

    def _dense_union(self, array: Any) -> None:
        length, buffers = len(array), array.buffers()
        children = [array.field(i) for i in range(array.type.num_fields)]
        if sum(map(len, children)) > length:  # a slice: its children have values that it does not show
            array = self._copied(array.take(hub().module().array(np.arange(length))))
            buffers = array.buffers()
            children = [array.field(i) for i in range(array.type.num_fields)]
        start = array.offset
        self.nodes += (length, 0, 0)
        self.frames.append(_bytes(buffers[1])[start : start + length])
        self.frames.append(_bytes(buffers[2])[start * 4 : (start + length) * 4])
        for child in children:
            self.write(child)

    def _run_ends(self, array: Any) -> None:
        length, ends, values = len(array), array.run_ends, array.values
        if array.offset or (length and (len(ends) == 0 or ends[-1].as_py() != length)):
            first, count = array.find_physical_offset(), array.find_physical_length()
            shown = np.minimum(ends.slice(first, count).to_numpy() - array.offset, length)
            ends = hub().module().array(shown, ends.type)
            self.copied_bytes += ends.nbytes
            values = values.slice(first, count)
        self.nodes += (length, 0, 0)
        self.write(ends)
        self.write(values)

    def _list_view(self, array: Any, of: type) -> None:
        width, length, start = of().itemsize, len(array), array.offset
        self._node(array)
        buffers = array.buffers()
        parts = [_bytes(buffer)[start * width : (start + length) * width] for buffer in buffers[1:3]]
        offsets: Array = parts[0].view(of)
        sizes: Array = parts[1].view(of)
        shown = sizes > 0
        first = int(offsets[shown].min()) if shown.any() else 0
        last = int((offsets[shown] + sizes[shown]).max()) if shown.any() else 0
        if first or not shown.all():
            offsets = np.where(shown, offsets - first, 0).astype(of)
            self.copied_bytes += offsets.nbytes
        self.frames += [offsets.view(np.uint8), sizes.view(np.uint8)]
        self.write(array.values.slice(first, last - first))

    def _views(self, array: Any) -> None:
        texts = array.buffers()[2:]
        total = sum(text.size for text in texts if text is not None)
        if total > _WIDE_TEXT * len(array) and 2 * self._long_text(array) < total:
            # A slice has the text buffers of the whole column: casting it writes new ones.
            pa = hub().module()
            wide = pa.large_string() if pa.types.is_string_view(array.type) else pa.large_binary()
            array = self._copied(hub().cast_views(array, wide).cast(array.type))
            texts = array.buffers()[2:]
        self._node(array)
        self.nodes.append(len(texts))
        start = array.offset * 16
        self.frames.append(_bytes(array.buffers()[1])[start : start + len(array) * 16])
        self.frames += map(_bytes, texts)

    def _long_text(self, array: Any) -> int:
        """Return the bytes of the texts that are in text buffers: those longer than 12 bytes."""
        start = array.offset * 16
        views = _bytes(array.buffers()[1])[start : start + len(array) * 16]
        sizes = views.view(np.int32)[::4]
        return int(sizes[sizes > 12].sum(dtype=np.int64))

    def _copied(self, array: Any) -> Any:
        # Not nbytes: it reads the text buffer that a cast to short views lacks (apache/arrow#49740).
        self.copied_bytes += array.get_total_buffer_size()
        return array


def _bytes(buffer: Any) -> Array:
    """Return a buffer of pyarrow as bytes; None is an empty one."""
    return np.frombuffer(buffer, np.uint8) if buffer is not None and buffer.size else _NO_BYTES


_SPECIAL: dict[int, Callable[[Writer, Any], None]] = {}


def _special() -> dict[int, Callable[[Writer, Any], None]]:
    """Return the methods for types that are not values of one width, by pyarrow's number of the type."""
    if _SPECIAL:
        return _SPECIAL
    lib = hub().module().lib
    small, large = np.int32, np.int64
    names: dict[str, Callable[[Writer, Any], None]] = {
        "NA": Writer._null,
        "BOOL": Writer._bool,
        "STRING": lambda writer, array: writer._text(array, small),
        "BINARY": lambda writer, array: writer._text(array, small),
        "LARGE_STRING": lambda writer, array: writer._text(array, large),
        "LARGE_BINARY": lambda writer, array: writer._text(array, large),
        "STRING_VIEW": Writer._views,
        "BINARY_VIEW": Writer._views,
        "LIST": lambda writer, array: writer._list(array, small),
        "MAP": lambda writer, array: writer._list(array, small),
        "LARGE_LIST": lambda writer, array: writer._list(array, large),
        "LIST_VIEW": lambda writer, array: writer._list_view(array, small),
        "LARGE_LIST_VIEW": lambda writer, array: writer._list_view(array, large),
        "FIXED_SIZE_LIST": Writer._fixed_list,
        "STRUCT": Writer._struct,
        "SPARSE_UNION": Writer._sparse_union,
        "DENSE_UNION": Writer._dense_union,
        "DICTIONARY": Writer._dictionary,
        "RUN_END_ENCODED": Writer._run_ends,
    }
    _SPECIAL.update({getattr(lib, f"Type_{name}"): write for name, write in names.items()})
    _SPECIAL[EXTENSION] = Writer._extension
    return _SPECIAL


_MAX_LENGTH = 1 << 58


class ArrowReader:
    """Reads arrays of known types from nodes and frames.

    ``pyarrow.Array.from_buffers`` validates each level: the sizes of buffers, the lengths of children,
    and the first and last offsets.
    """

    __slots__ = ("_frames", "_nodes", "_offsets", "_pa", "_readers", "_unions")

    def __init__(self, nodes: Sequence[int], frames: Sequence[Any]) -> None:
        self._pa = hub().module()
        self._nodes = iter(nodes)
        self._frames = iter(frames)
        lib = self._pa.lib
        self._readers = {
            lib.Type_NA: self._null,
            lib.Type_DICTIONARY: self._dictionary,
            EXTENSION: self._extension,
            lib.Type_RUN_END_ENCODED: self._run_ends,
            lib.Type_STRING_VIEW: self._views,
            lib.Type_BINARY_VIEW: self._views,
        }
        self._unions = (lib.Type_SPARSE_UNION, lib.Type_DENSE_UNION)
        small, large = ("STRING", "BINARY", "LIST", "MAP"), ("LARGE_STRING", "LARGE_BINARY", "LARGE_LIST")
        self._offsets = dict.fromkeys((getattr(lib, f"Type_{name}") for name in small), 4)
        self._offsets |= dict.fromkeys((getattr(lib, f"Type_{name}") for name in large), 8)

    def read(self, kind: Any) -> Any:
        """Return the next array, of the type `kind`."""
        special = self._readers.get(kind.id)
        return self._plain(kind) if special is None else special(kind)

    def end(self) -> None:
        """Raise unless all nodes and frames were read."""
        if next(self._nodes, None) is not None or next(self._frames, None) is not None:
            raise invalid("the header or the frames have more entries than the schema")

    def _number(self) -> int:
        number = next(self._nodes, None)
        if number is None or not 0 <= number < _MAX_LENGTH:
            raise invalid("a length is missing or out of range")
        return number

    def _frame(self) -> Any:
        frame = next(self._frames, None)
        if frame is None:
            raise invalid("a frame is missing")
        # py_buffer of an ndarray takes 0.2 us; other buffers are viewed as one first, in 1.5 us more.
        return self._pa.py_buffer(frame if type(frame) is ndarray else as_bytes(frame))

    def _node(self) -> tuple[int, int, Any]:
        """Return the length, the null count and the bitmap of the next level."""
        nodes = self._nodes
        length, nulls, has_bitmap = next(nodes, -1), next(nodes, -1), next(nodes, -1)
        if not (0 <= length < _MAX_LENGTH and nulls >= 0 <= has_bitmap):
            raise invalid("a length is missing or out of range")
        if nulls > length or has_bitmap != (nulls > 0):
            raise invalid(f"{nulls} nulls in {length} rows are inconsistent")
        bitmap = self._frame() if has_bitmap else None
        if bitmap is not None and bitmap.size * 8 < length:
            raise invalid(f"the bitmap of {length:,} rows has {bitmap.size:,} bytes")
        return length, nulls, bitmap

    def _plain(self, kind: Any) -> Any:
        length, nulls, bitmap = self._node()
        if bitmap is not None and kind.id in self._unions:  # pyarrow would end the process: arrow#14736
            raise invalid("a union has a bitmap of nulls")
        # Types with children have their bitmap, or for unions a placeholder for it, as first buffer.
        buffers = [bitmap, *(self._frame() for _ in range(kind.num_buffers - 1))]
        width = self._offsets.get(kind.id)
        if width and buffers[1].size < (length + 1) * width:  # pyarrow accepts no offsets for no rows
            raise invalid(f"{length:,} rows have {buffers[1].size:,} bytes of offsets")
        children = [self.read(kind.field(i).type) for i in range(kind.num_fields)]
        if children:
            return self._pa.Array.from_buffers(kind, length, buffers, null_count=nulls, children=children)
        return self._pa.Array.from_buffers(kind, length, buffers, null_count=nulls)

    def _null(self, kind: Any) -> Any:
        length, nulls, bitmap = self._number(), self._number(), self._number()
        if nulls != length or bitmap:
            raise invalid("a column of nulls has values")
        return self._pa.nulls(length, kind)

    def _views(self, kind: Any) -> Any:
        length, nulls, bitmap = self._node()
        texts = self._number()  # buffers of text
        views = self._frame()
        if views.size < 16 * length:
            raise invalid(f"{length:,} views have {views.size:,} bytes")
        buffers = [bitmap, views, *(self._frame() for _ in range(texts))]
        return self._pa.Array.from_buffers(kind, length, buffers, null_count=nulls)

    def _dictionary(self, kind: Any) -> Any:
        indices, values = self.read(kind.index_type), self.read(kind.value_type)
        # safe=False: the indices are content, which is not read here.
        return self._pa.DictionaryArray.from_arrays(indices, values, ordered=kind.ordered, safe=False)

    def _extension(self, kind: Any) -> Any:
        return self._pa.ExtensionArray.from_storage(kind, self.read(kind.storage_type))

    def _run_ends(self, kind: Any) -> Any:
        length, _, _ = self._node()
        ends, values = self.read(kind.run_end_type), self.read(kind.value_type)
        array = self._pa.RunEndEncodedArray.from_buffers(kind, length, [None], 0, 0, [ends, values])
        array.validate()
        return array
