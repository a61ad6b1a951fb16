"""``from_frames``: the object of a header, over any buffers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zerocopy.frames.arrays import read_array
from zerocopy.frames.header import ARRAY, kind_of


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
