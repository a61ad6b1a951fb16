"""Parses what names a dtype: a name, a NumPy dtype or type, or another framework's dtype."""

from __future__ import annotations

from typing import Any

import numpy as np

from zerocopy import registry
from zerocopy.dtype import ALL, BOOL8, DType, by_name, from_numpy
from zerocopy.errors.invalid_option import invalid_value

#: Names that frameworks use for types of NumPy; NumPy knows the others, such as "f4" and "double".
_ALIASES = {"boolean": "bool", "half": "float16"}


def parse_dtype(spec: Any) -> DType:
    """Return the type that `spec` names.

    Parameters
    ----------
    spec : object
        A standard name, a :class:`DType`, a NumPy dtype or type, Python's ``bool``, ``int``, ``float``
        or ``complex``, or a dtype of a framework: one that :meth:`Framework.parse_dtype` knows, that has
        a NumPy dtype as ``.dtype`` or ``.as_numpy_dtype``, or whose name or text is a standard name.

    Raises
    ------
    OptionError
        It names no number or boolean type; the message has the nearest names.

    Examples
    --------
    >>> import numpy as np
    >>> [parse_dtype(spec).name for spec in ("bfloat16", np.float32, np.dtype("i2"), "f8", bool)]
    ['bfloat16', 'float32', 'int16', 'float64', 'bool']
    """
    if isinstance(spec, DType):
        return spec
    parsed = _of_name(spec) if isinstance(spec, str) else _of_object(spec)
    if parsed is None:
        import difflib  # here, because it takes 1 ms

        names = [dtype.name for dtype in (*ALL, BOOL8)]
        near = difflib.get_close_matches(str(spec).lower(), names, n=3, cutoff=0.6)
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "pass a name such as 'float32'"
        raise invalid_value("dtype", spec, f"dtype: {spec!r} is not the dtype of numbers or booleans", hint)
    return parsed


def plain_type(dtype: DType) -> DType:
    """Return bool for bool8, which is the same type wherever booleans are bytes; other types unchanged."""
    return by_name("bool") if dtype is BOOL8 else dtype


def standard_type(key: object) -> DType | None:
    """Return the type that a key of a mapping names, by its standard name only; None for labels.

    A label such as ``"b"`` or ``"double"`` must not name NumPy's type of that name.
    """
    try:
        return by_name(key) if isinstance(key, str) else plain_type(parse_dtype(key))
    except (KeyError, ValueError):
        return None


def _of_name(name: str) -> DType | None:
    """Return the type with a name, such as ``"float32"``, ``"torch.float32"``, ``"Float32"`` or ``"f4"``."""
    plain = name.rpartition(".")[2].lower()
    plain = _ALIASES.get(plain, plain)
    if plain == BOOL8.name:
        return BOOL8
    try:
        return by_name(plain)
    except KeyError:
        # Other letters are deprecated, or name text and dates.
        return (
            _of_numpy(name if len(name) == 1 else plain)
            if len(plain) != 1 or name in "?bhilqBHILQefdFD"
            else None
        )


def _of_object(spec: Any) -> DType | None:
    if isinstance(spec, np.dtype):
        return _of_numpy(spec)
    if isinstance(spec, type) and issubclass(spec, (bool, int, float, complex, np.generic)):
        return _of_numpy(spec)
    cls = spec if isinstance(spec, type) else type(spec)
    for framework in registry.by_root(cls):
        parsed = framework.parse_dtype(spec)
        if parsed is not None:
            return parsed
    for attribute in ("dtype", "as_numpy_dtype", "numpy_dtype"):
        inner = getattr(spec, attribute, None)
        if isinstance(inner, np.dtype) or (isinstance(inner, type) and issubclass(inner, np.generic)):
            return _of_numpy(inner)
    names = (getattr(spec, "name", None), getattr(spec, "__name__", None), str(spec))
    return next((parsed for n in names if isinstance(n, str) and (parsed := _of_name(n))), None)


def _of_numpy(spec: Any) -> DType | None:
    """Return the type of what NumPy takes as a dtype, in native byte order."""
    try:
        dtype = np.dtype(spec)
    except (TypeError, ValueError):
        return None
    return from_numpy(dtype if dtype.isnative else dtype.newbyteorder("="))
