"""``to_frames`` and ``from_frames``: one object as a header and frames that alias its memory, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from zerocopy import registry
from zerocopy._engine.convert import convert
from zerocopy.describe import describe_array, translated_errors
from zerocopy.errors import CopyRequiredError, Fix, Reason, UnsupportedConversionError, ZeroCopyError
from zerocopy.frames.arrays import array_frame, read_array
from zerocopy.frames.header import ARRAY, kind_of
from zerocopy.framework import Framework
from zerocopy.protocols import producer
from zerocopy.source import Array, type_name


@dataclass(slots=True, eq=False)
class Frames:
    """One object, split into a header and frames: bytes that describe it, and its memory.

    Attributes
    ----------
    header : bytes
        The framework, form, type and shape, with the version of the format, and without pickle. The
        header of an array has less than 60 bytes for usual shapes.
    frames : list of numpy.ndarray
        One-dimensional contiguous arrays of uint8. They alias the object's memory, and keep it
        alive; they are read-only if it is.
    copied_bytes : int
        Bytes that were copied; 0 if all frames alias the object's memory.

    Examples
    --------
    >>> import numpy as np
    >>> split = to_frames(np.zeros((2, 3), "f4"))
    >>> [frame.nbytes for frame in split.frames], split.copied_bytes
    ([24], 0)
    """

    header: bytes
    frames: list[Array]
    copied_bytes: int = 0

    @property
    def nbytes(self) -> int:
        """Size of all frames in bytes."""
        return sum(frame.nbytes for frame in self.frames)


def to_frames(obj: Any) -> Frames:
    """Split an array or a table into a header and frames that alias its memory.

    Parameters
    ----------
    obj : object
        An array in host memory, or a table or column, of any framework; or an object that supports
        DLPack, the buffer protocol or the Arrow C data interface.

    Returns
    -------
    Frames
        The frames of a slice of a table have only the bytes of its rows. Arrays in row-major,
        column-major or another order without gaps are aliased and keep their order; others become a
        row-major copy.

    Raises
    ------
    UnsupportedConversionError
        The object is not an array or a table, holds Python objects, is a query or a stream that has
        not been read, requires gradients, or is in the memory of a device.

    Examples
    --------
    >>> import numpy as np
    >>> from zerocopy.frames import from_frames, to_frames
    >>> x = np.arange(6.0).reshape(2, 3)
    >>> split = to_frames(x)
    >>> y = from_frames(split.header, split.frames)
    >>> np.shares_memory(x, y)
    True
    """
    cls = type(obj)
    framework = registry.target_of(cls)
    if framework is not None and not framework.tables:
        return _array(obj, framework)
    with translated_errors(lambda: _asked(obj)):
        if isinstance(obj, (dict, list, tuple)):
            raise UnsupportedConversionError(
                "", f"a {cls.__qualname__} is not one object", "split each of its values", code="not-an-array"
            )
        if framework is None and not producer.is_arrow(obj):
            return _array(obj, None)
        from zerocopy.frames import tables
        from zerocopy.tables.hub import hub

        # The hub's own tensors are frames of a form of their own.
        both = framework is not None and framework.kind == "both" and framework.name != hub().name
        if framework is not None and both and framework.table(obj) is None:
            return _array(obj, framework)
        header, frames, copied = tables.split_table(obj, framework)
    return Frames(header, frames, copied)


def _asked(obj: Any) -> str:
    return f"to_frames({type_name(obj)})"


def _array(obj: Any, framework: Framework | None) -> Frames:
    """Split an array; without a framework, NumPy is the framework in its header."""
    name = "numpy" if framework is None else framework.name
    if framework is not None and framework.has_records:  # NumPy: tensors lack some of its types
        plain = _plain_ndarray(obj)
        return _slowly(obj, name, None) if plain is None else Frames(*array_frame(plain, name))
    if framework is None and hasattr(type(obj), "__dlpack__"):
        return _slowly(obj, name, None)  # described once: it may have one capsule only
    try:
        # The compiled route takes 250 ns. It raises if the memory does not hold the values.
        array = convert(obj, "numpy", copy=False)
    except ZeroCopyError as error:
        return _slowly(obj, name, error)
    return Frames(*array_frame(array, name))


def _plain_ndarray(obj: Any) -> Array | None:
    """Return an ndarray, a subclass or a scalar as a plain ndarray; None for a masked array."""
    cls = type(obj)
    if cls is np.ndarray:
        return obj  # type: ignore[no-any-return]
    if issubclass(cls, np.generic):
        return np.asarray(obj)
    if hasattr(obj, "mask"):  # describe_array() refuses masked elements
        return None
    return np.ndarray.view(obj, np.ndarray)


def _slowly(obj: Any, name: str, error: ZeroCopyError | None) -> Frames:
    """Split an array that NumPy cannot alias: of a type that NumPy lacks, or whose values need a copy."""
    with translated_errors(lambda: _asked(obj)):
        source = describe_array(obj)
        if source.refusal is not None:
            raise _refused(source.refusal) from error
        if not source.view.device.is_host:
            raise UnsupportedConversionError(
                "",
                f"its memory is on {source.view.device}, and frames are host memory",
                code="other-device",
                fixes=[Fix(options={"device": "cpu"}, to="numpy", effect="copies it to the host")],
            ) from error
        array = source.host()
        dtype = source.view.dtype
    # A cast inside convert() is possible for CopyRequiredError only; other types have an alias.
    reasons = bool(source.reasons) or isinstance(error, CopyRequiredError)
    copied = array.nbytes if reasons else 0
    header, frames, copied_again = array_frame(array, name, dtype)
    return Frames(header, frames, max(copied, copied_again))


def _refused(reason: Reason) -> UnsupportedConversionError:
    return UnsupportedConversionError("", reason.why, reason.remedy, code=reason.code, fixes=reason.fixes)


def from_frames(header: Any, frames: Sequence[Any], to: Any = None) -> Any:
    """Build the object that ``to_frames`` split, over buffers with the same content.

    Parameters
    ----------
    header : bytes-like
        The header that ``to_frames`` returned, with the same version of the format.
    frames : sequence of buffers
        Contiguous buffers with the sizes and the order of the frames of ``to_frames``: bytes, memoryviews,
        ndarrays, mapped memory.
    to : str, module or type, optional
        The framework of the result, as in :func:`zerocopy.convert`. Default: the framework and type of the
        object that ``to_frames`` got; NumPy if that object was an array without a framework.

    Returns
    -------
    object
        It aliases the frames wherever :func:`zerocopy.convert` aliases host memory, and keeps them alive.
        It is read-only over read-only frames, in frameworks with such arrays (NumPy, JAX, Arrow).

    Raises
    ------
    UnsupportedConversionError
        The bytes are not a header, have another version, or do not agree with the frames.
    FrameworkNotInstalledError
        The framework is not installed in this process.

    Notes
    -----
    Sizes, lengths, and the first and last offsets are checked, so that a wrong header raises an error.
    The content of Arrow columns is not read: pass the result to ``zc.convert(..., validate="full")`` if
    its sender is not trusted.

    Examples
    --------
    >>> import numpy as np
    >>> from zerocopy.frames import from_frames, to_frames
    >>> split = to_frames(np.arange(3, dtype="i2"))
    >>> from_frames(split.header, [bytes(frame) for frame in split.frames])
    array([0, 1, 2], dtype=int16)
    """
    plain = header if type(header) is bytes else bytes(header)
    if kind_of(plain) == ARRAY:
        return read_array(plain, frames, to)
    from zerocopy.frames import tables

    return tables.build_table(plain, frames, to)
