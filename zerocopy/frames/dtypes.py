"""NumPy's dtypes as text that is parsed without evaluating it."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np

from zerocopy.dtype import DType, by_name, from_numpy, to_numpy
from zerocopy.frames.header import invalid

# numpy.dtype() also accepts lists, names of modules and Python types; these texts are all that is sent.
_PLAIN = re.compile(r"[<>|](?:b1|[iufc]\d{1,2}|[SUV]\d{1,10}|[mM]8(?:\[\d{0,9}[a-zA-Z]{1,2}\])?)", re.ASCII)
_KEYS = {"names", "formats", "offsets", "itemsize", "titles"}
_MAX_DEPTH = 16


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
