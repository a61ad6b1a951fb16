"""Files that another library has opened, such as NumPy's ``NpzFile``: whether their arrays are copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from zerocopy._engine.container_types import is_handle, is_plain_object
from zerocopy.describe import describe_array
from zerocopy.errors import CopyRequiredError, Fix, Reason, ZeroCopyError
from zerocopy.protocols.array_interface import address

_COPY = Fix(options={"copy": None}, effect="copies")


def reading(obj: Any, keys: Sequence[Any], values: Sequence[Any], to: str) -> tuple[Any, Reason] | None:
    """Return the key of an array, and why the arrays of a container are copies; None if they are not.

    The first array with memory is accessed again: ``safe_open`` returns the same memory for torch, and new
    memory for NumPy.
    """
    if not is_handle(obj):
        return None
    for key, value in zip(keys, values, strict=True):
        low, high = _bounds(value)
        if low == high:
            continue
        first, last = _bounds(obj[key] if hasattr(type(obj), "__getitem__") else obj.get_tensor(key))
        if first < high and low < last:
            return None
        why = f"a {type(obj).__qualname__} reads its arrays from the file, at each access anew"
        return key, Reason(why, code="exporter-copies", fixes=_load(obj, to))
    return None


def _bounds(value: object) -> tuple[int, int]:
    """Return the addresses between which an array lies; two equal ones for an object without memory."""
    if type(value) is np.ndarray:  # also text and dates, which are not tensors
        return address(value), address(value) + value.nbytes
    try:
        return (0, 0) if is_plain_object(value) else describe_array(value).view.bounds
    except ZeroCopyError:
        return 0, 0  # its conversion is refused, or copies


def _load(obj: object, to: str) -> list[Fix]:
    """Return the call that maps the file of a handle that has its path."""
    path = getattr(getattr(obj, "zip", None), "filename", None)  # of an NpzFile; None over a stream
    if not isinstance(path, str):
        return []
    code = f"zc.open_weights({path!r}, to={to!r})".replace("{", "{{").replace("}", "}}")
    return [Fix(code, "aliases the members that are not compressed", alone=True)]


def read_error(place: str, reason: Reason) -> CopyRequiredError:
    """Return the error of ``copy=False`` for an array at `place` of a container whose arrays are copies."""
    why = f"at {place}: copy=False, but a copy is needed: {reason.why}"
    return CopyRequiredError("", why, code=reason.code, fixes=[*reason.fixes, _COPY])
