"""The public ``decode``: predicted numbers as words, dates or decimals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from zerocopy._engine.convert import convert
from zerocopy.describe import describe_array
from zerocopy.errors import UnsupportedConversionError
from zerocopy.errors.tracebacks import public
from zerocopy.source import Array, type_name
from zerocopy.tables.result import Encoded, Masked, masked


@public
def decode(numbers: Any, like: Any, to: Any = "pyarrow") -> Any:
    """Return numbers as a column of the type of an encoded column: the inverse of ``encode=True``.

    Parameters
    ----------
    numbers : array or Masked
        One number for each row, of any dtype and framework: codes of categories, or dates, times and
        decimals as integers in the unit of `like`. A negative code is a null.
    like : Encoded or Masked
        The column as ``convert(..., encode=True)`` returned it. Its type, categories, unit and time zone
        apply; its values are ignored.
    to : str, module or type, optional
        The table framework of the result.

    Returns
    -------
    column
        It may alias `numbers` if their dtype is that of the values of `like`.

    Raises
    ------
    UnsupportedConversionError
        `like` is not such a column, a code has no category, or rows of its type are not one number: text
        without codes, lists, structs.
    LossyConversionError
        A number is not a whole number, or does not fit the dtype of the values of `like`.

    Examples
    --------
    >>> import numpy as np, pyarrow as pa, zerocopy as zc
    >>> city = zc.convert(pa.array(["Bern", "Oslo", "Bern"]), to="numpy", encode=True)
    >>> zc.decode(np.array([1.0, 0.0]), like=city).to_pylist()
    ['Oslo', 'Bern']
    """
    column = like.values if isinstance(like, Masked) else like
    if not isinstance(column, Encoded):
        why = f"like= is {type_name(like)}, and not the result of convert(..., encode=True)"
        raise _refused(why, "pass the encoded column")
    if column.offsets is not None or isinstance(column.values, (dict, Masked, Encoded)):
        why = f"a row of {column.type} is not one number"
        raise _refused(why, "pass a column of numbers or codes: encode=True makes codes of text")
    values, mask = numbers if isinstance(numbers, Masked) else (numbers, None)
    view = describe_array(column.values).view
    is_wide = column.scale is not None and view.ndim == 2  # decimals of 128 or 256 bits
    converted = convert(values, "numpy", device="cpu", dtype="int64" if is_wide else view.dtype.name)
    limbs = _limbs(converted, view.shape[1]) if is_wide and converted.ndim == 1 else converted
    decoded = replace(column, values=limbs, mask=None)
    if column.categories is not None:
        decoded.categories = convert(column.categories, "numpy", device="cpu")
    return convert(decoded if mask is None else masked(decoded, convert(mask, "numpy", device="cpu")), to)


def _limbs(integers: Array, count: int) -> Array:
    """Return integers as limbs of 64 bits, the lowest first, in two's complement."""
    limbs = np.empty((len(integers), count), np.uint64)
    limbs[:, 0] = integers.view(np.uint64)
    limbs[:, 1:] = (integers >> 63).view(np.uint64)[:, None]
    return limbs


def _refused(why: str, remedy: str) -> UnsupportedConversionError:
    return UnsupportedConversionError("decode(numbers, like=)", why, remedy, code="not-a-column")
