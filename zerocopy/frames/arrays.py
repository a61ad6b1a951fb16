"""One array as a header and one frame, and back.

A header has NumPy's dtype as text that is parsed without evaluating it.
"""

from __future__ import annotations

import json
import re
import struct
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from zerocopy import registry
from zerocopy._engine.convert import convert
from zerocopy.device import HOST
from zerocopy.dtype import DType, by_name, from_numpy, to_numpy
from zerocopy.errors import Fix, UnsupportedConversionError
from zerocopy.frames.header import ARRAY, Reader, invalid, start, text
from zerocopy.protocols.array_interface import aligned_copy, host_view
from zerocopy.source import Array
from zerocopy.strided_view import MAX_NDIM

_NO_BYTES = np.empty(0, np.uint8)
# numpy.dtype() also accepts lists, names of modules and Python types; these texts are all that is sent.
_PLAIN = re.compile(r"[<>|](?:b1|[iufc]\d{1,2}|[SUV]\d{1,10}|[mM]8(?:\[\d{0,9}[a-zA-Z]{1,2}\])?)", re.ASCII)
_KEYS = {"names", "formats", "offsets", "itemsize", "titles"}
_MAX_DEPTH = 16


class Layout(NamedTuple):
    """The parsed header of an array."""

    framework: str
    dtype: np.dtype[Any]
    standard: DType | None  # the type of the elements, if NumPy lacks it
    shape: tuple[int, ...]
    order: tuple[int, ...]  # the axes by decreasing stride; empty for row-major
    nbytes: int


def array_frame(array: Array, name: str, standard: DType | None = None) -> tuple[bytes, list[Array], int]:
    """Return the header, the frames and the copied bytes of an ndarray.

    Parameters
    ----------
    array : numpy.ndarray
        With any strides. The frame aliases an array without gaps in some order of its axes; other arrays
        are copied.
    name : str
        The framework that `read_array` restores.
    standard : DType, optional
        The type of its elements, if `array` holds them as unsigned integers.
    """
    dtype = array.dtype
    if dtype.hasobject:
        why = f"its dtype {dtype} holds Python objects, which have no memory to send"
        raise UnsupportedConversionError(
            f"to_frames({name})",
            why,
            code="python-objects",
            fixes=[Fix("{x}.astype('float64')", "casts it, if all objects are numbers", alone=True)],
        )
    copied = 0
    order: tuple[int, ...] = ()
    flags = array.flags
    if flags.c_contiguous:
        flat = array
    else:
        order = dense_order(array)
        if order:
            flat = array.transpose(order)
        else:
            flat = np.ascontiguousarray(array)
            copied = flat.nbytes
    flat = flat if flat.ndim == 1 else flat.reshape(-1)
    frame = flat.view(np.uint8) if flat.nbytes else _NO_BYTES
    return array_header(name, dtype, standard, array.shape, order), [frame], copied


def dense_order(array: Array) -> tuple[int, ...]:
    """Return the axes by decreasing stride if the elements have no gaps in this order, else ()."""
    strides, shape = array.strides, array.shape
    order = tuple(sorted(range(array.ndim), key=lambda i: (strides[i], shape[i]), reverse=True))
    return order if array.transpose(order).flags.c_contiguous else ()


@lru_cache(maxsize=1024)
def array_header(
    name: str, dtype: np.dtype[Any], standard: DType | None, shape: tuple[int, ...], order: tuple[int, ...]
) -> bytes:
    """Return the header of an array; `order` as in `Layout`."""
    of_type = standard.name if standard is not None and not standard.in_numpy else describe_dtype(dtype)
    counts = struct.pack(f"<BB{len(shape)}Q", len(shape), bool(order), *shape)
    return b"".join((start(ARRAY), text(name), text(of_type), counts, bytes(order)))


@lru_cache(maxsize=1024)
def parse_array(header: bytes) -> Layout:
    """Parse the header of an array; equal headers are parsed once."""
    fields = Reader(header)
    name, of_type = fields.text(), fields.text()
    ndim, ordered = fields.unpack("<BB")
    if ndim > MAX_NDIM or ordered > 1:
        raise invalid(f"an array of {ndim} dimensions cannot be read")
    shape = fields.unpack(f"<{ndim}Q")
    order = tuple(fields.take(ndim)) if ordered else ()
    fields.end()
    if order and sorted(order) != list(range(ndim)):
        raise invalid(f"{order} is not an order of {ndim} axes")
    dtype, standard = parse_dtype(of_type)
    nbytes = prod(shape) * dtype.itemsize
    # NumPy refuses dimensions whose product, without those of size 0, is out of range.
    if prod(filter(None, shape)) * max(dtype.itemsize, 1) >= 1 << 63:
        raise invalid(f"an array of shape {shape} is larger than memory can be")
    return Layout(name, dtype, standard, shape, order, nbytes)


def read_array(header: bytes, frames: Any, to: Any) -> Any:
    """Return the array of a header over its frame, in its framework or in `to`."""
    name, dtype, standard, shape, order, nbytes = parse_array(header)
    if len(frames) != 1:
        raise invalid(f"an array has one frame, and there are {len(frames)}")
    array = ndarray_over(frames[0], dtype, shape, order, nbytes)
    target = name if to is None else to
    if target == "numpy":
        return array
    if standard is None or dtype is not standard.storage:
        return convert(array, target)
    return _restored(array, standard, target)


def ndarray_over(
    frame: Any, dtype: Any, shape: tuple[int, ...], order: tuple[int, ...], nbytes: int
) -> Array:
    """Return an ndarray over a buffer of exactly `nbytes`; `order` as in `Layout`."""
    flat = frame if type(frame) is np.ndarray and frame.flags.c_contiguous else as_bytes(frame)
    if flat.nbytes != nbytes:
        raise invalid(f"the frame has {flat.nbytes:,} bytes, and the header describes {nbytes:,}")
    if not nbytes:
        return np.empty(shape, dtype)
    if order:
        inverse = sorted(range(len(order)), key=order.__getitem__)
        dense = np.ndarray([shape[axis] for axis in order], dtype, flat)
        return dense.transpose(inverse)
    return np.ndarray(shape, dtype, flat)


def as_bytes(frame: Any) -> Array:
    """Return any contiguous buffer as an ndarray of bytes, read-only if the buffer is."""
    try:
        view = memoryview(frame)
    except TypeError as error:
        raise invalid(f"a {type(frame).__qualname__} is not a buffer") from error
    if not view.c_contiguous:
        raise invalid("a frame is not contiguous")
    return np.frombuffer(view, np.uint8) if view.nbytes else _NO_BYTES


def _restored(array: Array, dtype: DType, target: Any) -> Any:
    """Return an array in a framework; NumPy lacks its type, and holds its elements as unsigned integers."""
    framework = registry.by_name(target)
    framework.module()
    if framework.aliases_host and framework.copy_reasons(host_view(array, dtype)):
        array = aligned_copy(array)
    return framework.from_host(array, dtype, HOST, None)


def describe_dtype(dtype: np.dtype[Any]) -> str:
    """Return the text of a NumPy dtype without objects; that of records is JSON."""
    known = from_numpy(dtype)
    if known is not None and not known.in_numpy:
        return known.name
    return dtype.str if dtype.fields is None and dtype.subdtype is None else json.dumps(_tree(dtype))


def parse_dtype(text: str) -> tuple[np.dtype[Any], DType | None]:
    """Return the NumPy dtype of a text, and the standard type that it stores if NumPy lacks it.

    Without ``ml_dtypes`` the NumPy dtype of such a type is that of unsigned integers.
    """
    if text[:1] == "{":
        try:
            return _dtype(json.loads(text), 0), None
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise invalid(f"the dtype {text[:100]!r} is invalid: {error}") from error
    if text[:1] in "<>|":
        return _plain(text), None
    try:
        known = by_name(text)
    except KeyError:
        raise invalid(f"the dtype {text[:100]!r} does not exist") from None
    return to_numpy(known) or known.storage, known


def _plain(text: str) -> np.dtype[Any]:
    if not _PLAIN.fullmatch(text):
        raise invalid(f"the dtype {text[:100]!r} does not exist")
    try:
        return np.dtype(text)
    except (TypeError, ValueError) as error:
        raise invalid(f"the dtype {text!r} does not exist here: {error}") from error


def _tree(dtype: np.dtype[Any]) -> Any:
    """Return a dtype as JSON: a text, ``[base, shape]``, or the dict that ``numpy.dtype`` accepts."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return [_tree(base), list(shape)]
    if dtype.fields is None:
        return describe_dtype(dtype)
    names = list(dtype.names or ())
    fields = [dtype.fields[name] for name in names]
    tree = {
        "names": names,
        "formats": [_tree(field[0]) for field in fields],
        "offsets": [field[1] for field in fields],
        "itemsize": dtype.itemsize,
    }
    titles = [field[2] if len(field) > 2 else None for field in fields]
    return tree | {"titles": titles} if any(title is not None for title in titles) else tree


def _dtype(tree: Any, depth: int) -> np.dtype[Any]:
    if depth > _MAX_DEPTH:
        raise ValueError("records are nested too deep")
    if isinstance(tree, str):
        return parse_dtype(tree)[0] if tree[:1] != "{" else _dtype(None, depth)
    if isinstance(tree, list):
        base, shape = tree
        if not all(type(count) is int and count >= 0 for count in shape):
            raise ValueError(f"the shape {shape} is invalid")
        return np.dtype((_dtype(base, depth + 1), tuple(shape)))
    if not isinstance(tree, dict) or not tree.keys() <= _KEYS:
        raise ValueError("it is not a record")
    offsets, itemsize = tree["offsets"], tree["itemsize"]
    if not all(type(number) is int and 0 <= number < 1 << 31 for number in (*offsets, itemsize)):
        raise ValueError("an offset is invalid")
    spec: Any = dict(tree, formats=[_dtype(part, depth + 1) for part in tree["formats"]])
    record: np.dtype[Any] = np.dtype(spec)
    return record
