"""Containers of arrays, converted leaf by leaf into the same container."""

from __future__ import annotations

import copy as copying
from collections.abc import Callable
from typing import Any

from zerocopy.errors import UnsupportedConversionError, ZeroCopyError

# A path is a leaf's key and the path of its container, None for the outermost: a
# string would take longer to write than the leaf to convert.
Leaf = Callable[[Any, Any], Any]

_CONTAINERS = (dict, list, tuple)


def is_container(obj: Any) -> bool:
    """Whether the object is a dict, list or tuple (a namedtuple is one)."""
    return isinstance(obj, _CONTAINERS)


def written(path: Any) -> str:
    """Return a path as one would index it.

    Examples
    --------
    >>> written((0, ("x", None)))
    "['x'][0]"
    """
    text = ""
    while path is not None:
        key, path = path
        text = f"[{key!r}]{text}"
    return text


def map_leaves(obj: Any, leaf: Leaf) -> Any:
    """Return the same container with ``leaf(value, path)`` in place of each value.

    Parameters
    ----------
    obj : dict, list, tuple
        It may hold further ones; it is left as it is.
    leaf : callable
        Called with each value that is no container, and its path (see `written`).

    Raises
    ------
    UnsupportedConversionError
        A container that contains itself, or one that is nested too deep.
    """
    try:
        return _mapped(obj, leaf, None, ())
    except RecursionError as error:
        raise UnsupportedConversionError(
            f"convert({type(obj).__qualname__})",
            "its containers are nested deeper than Python can follow",
            "flatten it, or raise sys.setrecursionlimit",
        ) from error


def _mapped(obj: Any, leaf: Leaf, path: Any, parents: tuple[int, ...]) -> Any:
    if id(obj) in parents:
        raise UnsupportedConversionError(
            f"convert({type(obj).__qualname__})",
            f"the container holds itself at {written(path)}",
            "pass a tree of containers",
        )
    inside = (*parents, id(obj))
    pairs: Any = obj.items() if isinstance(obj, dict) else enumerate(obj)
    # No call a leaf but its own: a thousand small arrays are a thousand of them.
    done = [
        _mapped(value, leaf, (key, path), inside)
        if isinstance(value, _CONTAINERS)
        else leaf(value, (key, path))
        for key, value in pairs
    ]
    if isinstance(obj, dict):
        values = dict(zip(obj, done, strict=True))
        if type(obj) is dict:
            return values
        same = copying.copy(obj)  # keeps a defaultdict's factory, an OrderedDict's kind
        for key, value in values.items():  # update() of a Counter adds
            same[key] = value
        return same
    if type(obj) is list:
        return done
    if isinstance(obj, list):
        same_list = copying.copy(obj)
        same_list[:] = done
        return same_list
    try:
        return type(obj)(*done) if hasattr(obj, "_fields") else type(obj)(done)
    except TypeError as error:
        raise UnsupportedConversionError(
            f"convert({type(obj).__qualname__})",
            f"a {type(obj).__qualname__} cannot be made of its items: {error}",
            "pass a plain tuple or list of them",
        ) from error


def convert_container(obj: Any, convert: Callable[..., Any], to: Any, options: dict[str, Any]) -> Any:
    """Convert each leaf by ``convert(leaf, to, **options)``; an error names the leaf's path."""

    def leaf(value: Any, path: Any) -> Any:
        try:
            return convert(value, to, **options) if options else convert(value, to)
        except ZeroCopyError as error:
            error.why = f"at {written(path)}: {error.why}"
            error.args = (error.asked, error.why, error.remedy)
            raise

    return map_leaves(obj, leaf)
