"""Containers of arrays, converted leaf by leaf into the same container."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from zerocopy._engine.call_text import arguments, as_code, relocate, with_imports
from zerocopy._engine.container_types import (
    ARRAY_TYPES,
    CONTAINERS,
    check_target,
    is_container,
    is_plain_object,
    items_of,
    rebuild,
)
from zerocopy._engine.open_files import read_error, reading
from zerocopy._engine.target import resolve
from zerocopy.casting.option import leaf_options
from zerocopy.errors import Reason, UnsupportedConversionError, ZeroCopyError
from zerocopy.protocols.python_numbers import NUMBERS, is_array
from zerocopy.protocols.pytree_node import Attribute

T = TypeVar("T")
#: A leaf's key and the path of its container, None for the outermost: formatting it as text for each leaf
#: would take longer than the conversion.
Path = tuple[Any, Any]
Visit = Callable[[object, Path], object]
Rebuild = Callable[[object, list[Any], list[object]], object]
Probe = Callable[[object, list[object], list[object], Path | None], object]
OnRead = Callable[[Path, Reason], None]
#: See `leaf_calls`.
LeafCall = tuple[str, object, dict[str, Any], Reason | None]


def convert_leaves(obj: object, convert: Callable[..., object], to: object, options: dict[str, Any]) -> Any:
    """Convert each leaf by ``convert(leaf, to, **options)``; an error names the leaf's path."""
    options = dict(options)
    keeps = options.pop("leaves", None) is not None
    of_leaf = leaf_options(options, lambda: _keys(obj))

    def visit(leaf: object, path: Path) -> object:
        if type(leaf) in NUMBERS or (keeps and is_plain_object(leaf)):
            return leaf
        try:
            return convert(leaf, to, **of_leaf(path))
        except ZeroCopyError as error:
            place = format_path(path)
            error.with_context(why=f"at {place}: {error.why}")
            locate(error, leaf, place, partial(container_calls, obj, to, options))
            raise
        except MemoryError as error:
            error.add_note(f"at {format_path(path)}")
            raise

    def refuse(path: Path, reason: Reason) -> None:
        raise read_error(format_path(path), reason)

    on_read = refuse if options.get("copy") is False else None
    return map_leaves(obj, visit, to=to, is_leaf=None if keeps else is_array, on_read=on_read)


def leaf_calls(obj: object, options: dict[str, object], to: object = None) -> list[LeafCall]:
    """Return each leaf with its path as text, the options of its conversion, and why a file is copied."""
    calls: list[LeafCall] = []
    is_leaf = None if "leaves" in options else is_array
    of_leaf = leaf_options(options, lambda: _keys(obj))
    read: dict[Path, Reason] = {}  # by the path of the container

    def visit(leaf: object, path: Path) -> None:
        calls.append((format_path(path), leaf, of_leaf(path), read.get(path[1]) if read else None))

    def keep(path: Path, reason: Reason) -> None:
        read[path[1]] = reason

    map_leaves(obj, visit, _rebuild_unchanged, to, is_leaf, None if to is None else keep)
    return calls


def _keys(obj: object) -> set[object]:
    """Return all keys and positions in a container and the containers in it."""
    keys = set[object]()
    map_leaves(obj, lambda leaf, path: None, lambda container, own, values: keys.update(own))
    return keys


def format_path(path: Path | None) -> str:
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


def map_leaves(
    obj: object,
    visit: Visit,
    build: Rebuild = rebuild,
    to: object = None,
    is_leaf: Callable[[object], bool] | None = None,
    on_read: OnRead | None = None,
) -> object:
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
    is_leaf : callable, optional
        ``is_leaf(container)``: whether a container in `obj` is itself a leaf. Default: none is.
    on_read : callable, optional
        ``on_read(path, reason)`` for the first array of a container whose arrays are copies of a file,
        before they are converted.
    """
    try:
        return _map(obj, visit, build, _probe(to, on_read), is_leaf, None, ())
    except RecursionError as error:
        raise UnsupportedConversionError(
            f"convert({type(obj).__qualname__})",
            "its containers are nested deeper than Python's recursion limit",
            "flatten it, or raise the limit with sys.setrecursionlimit",
            code="nested-too-deep",
        ) from error


def _probe(to: object, on_read: OnRead | None) -> Probe:
    """Return a function that rebuilds a container before its leaves are read, to check that it can be."""

    def check(obj: object, keys: list[object], values: list[object], path: Path | None) -> None:
        if to is not None:
            _at(path, check_target, obj, resolve(to).name)
        _at(path, rebuild, obj, keys, values)
        if on_read is not None and (read := reading(obj, keys, values, resolve(to).name)) is not None:
            key, reason = read
            on_read((key, path), reason)

    return check


def _map(
    obj: object,
    visit: Visit,
    build: Rebuild,
    probe: Probe,
    is_leaf: Callable[[object], bool] | None,
    path: Path | None,
    parents: tuple[int, ...],
) -> Any:
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
        probe(obj, keys, values, path)  # before large leaves are read
    # Inlined so that a leaf costs one call: a container may have thousands of small arrays.
    values = [
        visit(value, (key, path))
        if type(value) in ARRAY_TYPES or not is_container(value) or (is_leaf is not None and is_leaf(value))
        else _map(value, visit, build, probe, is_leaf, (key, path), parents)
        for key, value in items
    ]
    return _at(path, build, obj, keys, values)


def _at(path: Path | None, function: Callable[..., T], *arguments: object) -> T:
    """Call a function of a container; an error of an inner container names its path."""
    try:
        return function(*arguments)
    except ZeroCopyError as error:
        if path is not None:
            place = format_path(path)
            item = "{x}" + place.replace("{", "{{").replace("}", "}}")
            error.fixes = tuple(fix.of(item) for fix in error.fixes)
            remedy = "; or ".join(map(str, error.fixes)) or None
            error.with_context(why=f"at {place}: {error.why}", remedy=remedy)
        raise


def _rebuild_unchanged(obj: object, keys: list[object], _: list[object]) -> object:
    """Rebuild a container from its own values, to check that its type allows it."""
    return rebuild(obj, keys, [value for _, value in items_of(obj)])


# -- errors of leaves --------------------------------------------------------------------

#: The maximum length of the expression of a container with arrays in place of its numbers.
_LONGEST = 300
#: The maximum number of levels of containers that are searched for numbers.
_MOST_LEVELS = 4


def locate(error: ZeroCopyError, leaf: object, path: str, of_container: Callable[[], dict[str, str]]) -> None:
    """Let the calls of a leaf's error convert the container ``x``, or name the leaf by its path in ``x``.

    `of_container` returns the result of `container_calls`; it is called if the leaf is a Python object.
    """
    if error.code == "not-an-array" and is_plain_object(leaf):
        calls = of_container()
        error.calls = tuple(calls)
        error.with_context(remedy="; or ".join(f"{code} {effect}" for code, effect in calls.items()))
    else:
        relocate(error, "", path)


def container_calls(obj: object, to: object, options: dict[str, object]) -> dict[str, str]:
    """Return the calls, with their effects, that convert a container with Python objects as leaves."""
    named = to if isinstance(to, str) else resolve(to).name
    end = f", {as_code('to', named)}{arguments(options)}"
    keep = f'{end}, leaves="keep"'
    keeping = {f"zc.convert(x{keep})": "keeps it unchanged"}
    kinds: set[str] = set()
    source = _with_arrays(obj, "x", kinds, 0)
    if source == "x" or len(source) > _LONGEST:
        return keeping
    code = f"zc.convert({source}{keep if 'others' in kinds else end})"
    arrays = {with_imports(code): "makes arrays of its numbers"}
    return arrays | keeping if "lists" in kinds else keeping | arrays


def _with_arrays(obj: Any, code: str, kinds: set[str], depth: int) -> str:
    """Return code for a container with arrays in place of its numbers and lists of numbers.

    `kinds` receives "lists" if one is replaced, and "others" if Python objects remain.
    """
    shape = _shape(obj)
    if shape == ():
        return code  # numbers are kept
    if shape is not None:
        kinds.add("lists")
        return f"numpy.asarray({code})"
    if type(obj) in (list, tuple) and obj and all(_shape(item) for item in obj):  # of several lengths
        kinds.add("lists")
        each = f"numpy.asarray(item) for item in {code}"
        return f"[{each}]" if type(obj) is list else f"tuple({each})"
    if type(obj) is dict and depth < _MOST_LEVELS:
        changed = ""
        for key, value in obj.items():
            item = f"{code}[{key!r}]"
            new = _with_arrays(value, item, kinds, depth + 1)
            if not as_code("", key):
                kinds.add("others")  # the key has no literal
            elif new != item:
                changed += f", {key!r}: {new}"
        return f"{{**{code}{changed}}}" if changed else code
    if is_plain_object(obj) or (is_container(obj) and _has_plain(obj, depth)):
        kinds.add("others")
    return code


def _has_plain(obj: object, depth: int) -> bool:
    """Whether a container has a leaf that is a Python object, or is too deep to know."""
    return depth >= _MOST_LEVELS or any(
        is_plain_object(item) or (is_container(item) and _has_plain(item, depth + 1))
        for _, item in items_of(obj)
    )


def _shape(obj: Any) -> tuple[int, ...] | None:
    """Return the shape of a number, or of lists of numbers of one shape; None for another object."""
    if type(obj) in (bool, int, float, complex):
        return ()
    if type(obj) not in (list, tuple) or not obj:
        return None
    first = _shape(obj[0])
    if first is None or any(_shape(item) != first for item in obj):
        return None
    return (len(obj), *first)
