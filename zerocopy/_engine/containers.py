"""Containers of arrays, converted leaf by leaf into the same container."""

from __future__ import annotations

import copy as copying
from collections.abc import Callable
from typing import Any

from zerocopy.errors import UnsupportedConversionError, ZeroCopyError

# A path is a leaf's key and the path of its container, None for the outermost: a
# string would take longer to write than the leaf to convert.
Leaf = Callable[[Any, Any], Any]
Make = Callable[[Any, list[Any], list[Any]], Any]

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


def map_leaves(obj: Any, leaf: Leaf, make: Make | None = None) -> Any:
    """Return the same container with ``leaf(value, path)`` in place of each value.

    Parameters
    ----------
    obj : dict, list, tuple
        It may hold further ones; it is left as it is.
    leaf : callable
        Called with each value that is no container, and its path (see `written`).
    make : callable, optional
        ``make(container, keys, values)`` in place of making the same container.

    Raises
    ------
    UnsupportedConversionError
        A container that contains itself, one that is nested too deep, one that cannot be made of its items.
    """
    try:
        return _mapped(obj, leaf, make or _same, None, ())
    except RecursionError as error:
        raise UnsupportedConversionError(
            f"convert({type(obj).__qualname__})",
            "its containers are nested deeper than Python can follow",
            "flatten it, or raise sys.setrecursionlimit",
        ) from error


def _mapped(obj: Any, leaf: Leaf, make: Make, path: Any, parents: tuple[int, ...]) -> Any:
    if id(obj) in parents:
        raise UnsupportedConversionError(
            f"convert({type(obj).__qualname__})",
            f"the container holds itself at {written(path)}",
            "pass a tree of containers",
        )
    inside = (*parents, id(obj))
    # As it is now: what a leaf's own protocol does to the container meanwhile is no part of it.
    pairs = [*(obj.items() if isinstance(obj, dict) else enumerate(obj))]
    # No call a leaf but its own: a thousand small arrays are a thousand of them.
    done = [
        _mapped(value, leaf, make, (key, path), inside)
        if isinstance(value, _CONTAINERS)
        else leaf(value, (key, path))
        for key, value in pairs
    ]
    return make(obj, [key for key, _ in pairs], done)


def _same(obj: Any, keys: list[Any], values: list[Any]) -> Any:
    """Return a container of the same type: a copy with other values, or one that is made of them."""
    if type(obj) is dict:
        return dict(zip(keys, values, strict=True))
    if type(obj) is list:
        return values
    try:
        if isinstance(obj, dict):
            same = copying.copy(obj)  # keeps a defaultdict's factory, an OrderedDict's kind
            for key, value in zip(keys, values, strict=True):  # update() of a Counter adds
                same[key] = value
            return same
        if isinstance(obj, list):
            same_list = copying.copy(obj)
            same_list[:] = values
            return same_list
        return type(obj)(*values) if hasattr(obj, "_fields") else type(obj)(values)
    except (TypeError, ValueError, AttributeError) as error:  # a type of the user's: frozen, or particular
        raise UnsupportedConversionError(
            f"convert({type(obj).__qualname__})",
            f"a {type(obj).__qualname__} cannot be made of its items: {error}",
            "pass a plain dict, list or tuple of them",
        ) from error


def made_again(obj: Any, keys: list[Any], _: list[Any]) -> Any:
    """Make a container of its own values again: what explaining does, to see whether it can be made."""
    return _same(obj, keys, [*(obj.values() if isinstance(obj, dict) else obj)])


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
