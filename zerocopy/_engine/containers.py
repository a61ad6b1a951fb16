"""Containers of arrays, converted leaf by leaf into the same container."""

from __future__ import annotations

import copy as copying
from collections.abc import Callable
from typing import Any

from zerocopy._engine.fixes import relocate
from zerocopy.errors import UnsupportedConversionError, ZeroCopyError

# A path is a leaf's key and the path of its container, None for the outermost: formatting
# it as text for each leaf would take longer than the conversion.
Visit = Callable[[Any, Any], Any]
Rebuild = Callable[[Any, list[Any], list[Any]], Any]

#: Types of containers, with their subclasses: a namedtuple is a tuple.
CONTAINERS = (dict, list, tuple)


def convert_leaves(obj: Any, convert: Callable[..., Any], to: Any, options: dict[str, Any]) -> Any:
    """Convert each leaf by ``convert(leaf, to, **options)``; an error names the leaf's path."""

    def visit(leaf: Any, path: Any) -> Any:
        try:
            return convert(leaf, to, **options) if options else convert(leaf, to)
        except ZeroCopyError as error:
            place = format_path(path)
            error.with_context(why=f"at {place}: {error.why}")
            relocate(error, place)
            raise

    return map_leaves(obj, visit)


def leaf_paths(obj: Any) -> list[tuple[str, Any]]:
    """Return each leaf with its path.

    Raises
    ------
    UnsupportedConversionError
        As `map_leaves` with the default `rebuild`, although nothing is converted.
    """
    leaves: list[tuple[str, Any]] = []
    map_leaves(obj, lambda leaf, path: leaves.append((format_path(path), leaf)), _rebuild_unchanged)
    return leaves


def format_path(path: Any) -> str:
    """Return a path as an index expression.

    Examples
    --------
    >>> format_path((0, ("x", None)))
    "['x'][0]"
    """
    text = ""
    while path is not None:
        key, path = path
        text = f"[{key!r}]{text}"
    return text


def map_leaves(obj: Any, visit: Visit, rebuild: Rebuild | None = None) -> Any:
    """Return the same container with ``visit(leaf, path)`` in place of each leaf.

    Parameters
    ----------
    obj : dict, list, tuple
        May hold further containers; it is not changed.
    visit : callable
        Called with each value that is not a container, and its path (see `format_path`).
    rebuild : callable, optional
        ``rebuild(container, keys, values)``. Default: the same type of container.

    Raises
    ------
    UnsupportedConversionError
        A container contains itself, is nested too deep, or cannot be rebuilt from its items.
    """
    try:
        return _map(obj, visit, rebuild or _rebuild, None, ())
    except RecursionError as error:
        raise UnsupportedConversionError(
            f"convert({type(obj).__qualname__})",
            "its containers are nested deeper than Python's recursion limit",
            "flatten it, or raise the limit with sys.setrecursionlimit",
            code="nested-too-deep",
        ) from error


def _map(obj: Any, visit: Visit, rebuild: Rebuild, path: Any, parents: tuple[int, ...]) -> Any:
    if id(obj) in parents:
        raise UnsupportedConversionError(
            f"convert({type(obj).__qualname__})",
            f"the container holds itself at {format_path(path)}",
            "pass a tree of containers",
            code="cyclic-container",
        )
    parents = (*parents, id(obj))
    # Copy the items, because a leaf's protocol methods can change the container meanwhile.
    items = [*(obj.items() if isinstance(obj, dict) else enumerate(obj))]
    # Inlined so that a leaf costs one call: a container may have thousands of small arrays.
    values = [
        _map(value, visit, rebuild, (key, path), parents)
        if isinstance(value, CONTAINERS)
        else visit(value, (key, path))
        for key, value in items
    ]
    return rebuild(obj, [key for key, _ in items], values)


def _rebuild(obj: Any, keys: list[Any], values: list[Any]) -> Any:
    """Return a container of the same type with other values."""
    if type(obj) is dict:
        return dict(zip(keys, values, strict=True))
    if type(obj) is list:
        return values
    try:
        if isinstance(obj, dict):
            same = copying.copy(obj)  # keeps a defaultdict's factory and an OrderedDict's type
            for key, value in zip(keys, values, strict=True):  # a Counter's update() adds
                same[key] = value
            return same
        if isinstance(obj, list):
            same_list = copying.copy(obj)
            same_list[:] = values
            return same_list
        return type(obj)(*values) if hasattr(obj, "_fields") else type(obj)(values)
    except (TypeError, ValueError, AttributeError) as error:  # a subclass with its own constructor
        raise UnsupportedConversionError(
            f"convert({type(obj).__qualname__})",
            f"a {type(obj).__qualname__} cannot be rebuilt from its items: {error}",
            "pass a plain dict, list or tuple of them",
            code="container-type",
        ) from error


def _rebuild_unchanged(obj: Any, keys: list[Any], _: list[Any]) -> Any:
    """Rebuild a container from its own values, to check that its type allows it."""
    return _rebuild(obj, keys, [*(obj.values() if isinstance(obj, dict) else obj)])
