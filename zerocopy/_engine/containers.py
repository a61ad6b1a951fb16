"""Containers of arrays, converted leaf by leaf into the same container."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from zerocopy._engine.container_types import (
    ARRAY_TYPES,
    CONTAINERS,
    check_target,
    is_container,
    is_plain_object,
    items_of,
    rebuild,
)
from zerocopy._engine.routes import routes_of
from zerocopy._engine.target import resolve
from zerocopy.casting.leaves import leaf_options
from zerocopy.errors import UnsupportedConversionError, ZeroCopyError
from zerocopy.protocols.exporter_errors import is_error
from zerocopy.protocols.pytree_node import Attribute

# A path is a leaf's key and the path of its container, None for the outermost: formatting
# it as text for each leaf would take longer than the conversion.
Visit = Callable[[Any, Any], Any]
Rebuild = Callable[[Any, list[Any], list[Any]], Any]


def convert_leaves(obj: Any, convert: Callable[..., Any], to: Any, options: dict[str, Any]) -> Any:
    """Convert each leaf by its route or ``convert(leaf, to, options)``; an error names the leaf's path."""
    options = dict(options)
    keeps = options.pop("leaves", None) is not None
    of_leaf = leaf_options(options, lambda: _keys(obj))
    try:
        routes = routes_of(to, options)
    except TypeError as error:
        if not is_error(error):
            raise
        routes = {}  # the leaves' options can differ

    def visit(leaf: Any, path: Any) -> Any:
        if keeps and is_plain_object(leaf):
            return leaf
        try:
            return routes[type(leaf)](leaf)
        except BaseException as error:
            if not is_error(error):
                raise
            return slowly(leaf, path)

    def slowly(leaf: Any, path: Any) -> Any:
        try:
            return convert(leaf, to, of_leaf(path))
        except ZeroCopyError as error:
            place = format_path(path)
            error.with_context(why=f"at {place}: {error.why}")
            from zerocopy._engine.plain_leaves import container_calls, locate

            locate(error, leaf, place, partial(container_calls, obj, to, options))
            raise

    return map_leaves(obj, visit, to=to)


def leaf_calls(obj: Any, options: dict[str, Any], to: Any = None) -> list[tuple[str, Any, dict[str, Any]]]:
    """Return each leaf with its path as text and the options of its conversion.

    Raises
    ------
    UnsupportedConversionError
        As `map_leaves` with the default `build`, although nothing is converted.
    """
    calls: list[tuple[str, Any, dict[str, Any]]] = []
    of_leaf = leaf_options(options, lambda: _keys(obj))
    visit = lambda leaf, path: calls.append((format_path(path), leaf, of_leaf(path)))  # noqa: E731
    map_leaves(obj, visit, _rebuild_unchanged, to)
    return calls


def _keys(obj: Any) -> set[Any]:
    """Return all keys and positions in a container and the containers in it."""
    keys: set[Any] = set()
    map_leaves(obj, lambda leaf, path: None, lambda container, own, values: keys.update(own))
    return keys


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
        text = f".{key}{text}" if isinstance(key, Attribute) else f"[{key!r}]{text}"
    return text


def map_leaves(obj: Any, visit: Visit, build: Rebuild = rebuild, to: Any = None) -> Any:
    """Return the same container with ``visit(leaf, path)`` in place of each leaf.

    Parameters
    ----------
    obj : container
        May hold further containers; it is not changed.
    visit : callable
        Called with each value that is not a container, and its path (see `format_path`).
    build : callable, optional
        ``build(container, keys, values)``. Default: the same type of container.
    to : str, module or type, optional
        The target, whose arrays the containers must be able to hold.

    Raises
    ------
    UnsupportedConversionError
        A container contains itself, is nested too deep, or cannot be rebuilt from its items.
    """
    try:
        return _map(obj, visit, build, _probe(to), None, ())
    except RecursionError as error:
        raise UnsupportedConversionError(
            f"convert({type(obj).__qualname__})",
            "its containers are nested deeper than Python's recursion limit",
            "flatten it, or raise the limit with sys.setrecursionlimit",
            code="nested-too-deep",
        ) from error


def _probe(to: Any) -> Rebuild:
    """Return a function that rebuilds a container before its leaves are read, to check that it can be."""
    if to is None:
        return rebuild

    def check(obj: Any, keys: list[Any], values: list[Any]) -> Any:
        check_target(obj, resolve(to).name)
        return rebuild(obj, keys, values)

    return check


def _map(obj: Any, visit: Visit, build: Rebuild, probe: Rebuild, path: Any, parents: tuple[int, ...]) -> Any:
    if id(obj) in parents:
        raise UnsupportedConversionError(
            f"convert({type(obj).__qualname__})",
            f"the container holds itself at {format_path(path)}",
            "pass a tree of containers",
            code="cyclic-container",
        )
    parents = (*parents, id(obj))
    # A list, because a leaf's protocol methods can change the container meanwhile.
    items = _at(path, items_of, obj)
    keys = [key for key, _ in items]
    if not issubclass(type(obj), CONTAINERS):
        values = [value for _, value in items]
        _at(path, probe, obj, keys, values)  # before large leaves are read
    # Inlined so that a leaf costs one call: a container may have thousands of small arrays.
    values = [
        visit(value, (key, path))
        if type(value) in ARRAY_TYPES or not is_container(value)
        else _map(value, visit, build, probe, (key, path), parents)
        for key, value in items
    ]
    return _at(path, build, obj, keys, values)


def _at(path: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of a container; an error of an inner container names its path."""
    try:
        return function(*arguments)
    except ZeroCopyError as error:
        if path is not None:
            place = format_path(path)
            item = "{x}" + place.replace("{", "{{").replace("}", "}}")
            error.fixes = tuple(replace(fix, source=fix.source.replace("{x}", item)) for fix in error.fixes)
            remedy = "; or ".join(map(str, error.fixes)) or None
            error.with_context(why=f"at {place}: {error.why}", remedy=remedy)
        raise


def _rebuild_unchanged(obj: Any, keys: list[Any], _: list[Any]) -> Any:
    """Rebuild a container from its own values, to check that its type allows it."""
    return rebuild(obj, keys, [value for _, value in items_of(obj)])
