"""Containers of arrays, converted leaf by leaf into the same container."""

from __future__ import annotations

import copy as copying
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from zerocopy.errors import UnknownFrameworkError, UnsupportedConversionError, ZeroCopyError

if TYPE_CHECKING:
    from zerocopy.plan import Plan

# A path is a leaf's key and the path of its container, None for the outermost: a
# string would take longer to write than the leaf to convert.
Leaf = Callable[[Any, Any], Any]


def is_container(obj: Any) -> bool:
    """Whether the object is a dict, list or tuple (a namedtuple is one)."""
    return isinstance(obj, (dict, list, tuple))


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


def map_leaves(obj: Any, leaf: Leaf, path: Any = None, parents: tuple[int, ...] = ()) -> Any:
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
        A container that contains itself.
    """
    if id(obj) in parents:
        raise UnsupportedConversionError(
            f"convert({type(obj).__qualname__})",
            f"the container holds itself at {written(path)}",
            "pass a tree of containers",
        )
    inside = (*parents, id(obj))

    def convert(key: Any, value: Any) -> Any:
        if is_container(value):
            return map_leaves(value, leaf, (key, path), inside)
        return leaf(value, (key, path))

    if isinstance(obj, dict):
        values = {key: convert(key, value) for key, value in obj.items()}
        if type(obj) is dict:
            return values
        same = copying.copy(obj)  # keeps a defaultdict's factory, an OrderedDict's kind
        same.update(values)
        return same
    items = [convert(i, value) for i, value in enumerate(obj)]
    if type(obj) is list:
        return items
    if hasattr(obj, "_fields"):
        return type(obj)(*items)
    return type(obj)(items)


def convert_container(obj: Any, convert: Callable[[Any], Any]) -> Any:
    """Convert each leaf; an error names the leaf's path."""

    def leaf(value: Any, path: Any) -> Any:
        try:
            return convert(value)
        except ZeroCopyError as error:
            error.why = f"at {written(path)}: {error.why}"
            error.args = (error.asked, error.why, error.remedy)
            raise

    return map_leaves(obj, leaf)


def plan_container(obj: Any, to: Any, options: dict[str, Any]) -> Plan:
    """Return the plan of a container: those of its leaves, summed up."""
    from zerocopy.plan import Plan, explain, refused

    leaves: dict[str, Plan] = {}

    def leaf(value: Any, path: Any) -> None:
        leaves[written(path)] = explain(value, to, **options)

    try:
        map_leaves(obj, leaf)
    except UnknownFrameworkError:
        raise
    except ZeroCopyError as error:
        return refused(obj, to, error)
    errors = [plan.error for plan in leaves.values() if plan.error is not None]
    copied = sum(plan.copied_bytes for plan in leaves.values())
    shares = any(plan.zero_copy for plan in leaves.values())
    return Plan(
        f"{type(obj).__qualname__} of {len(leaves)}",
        str(to),
        possible=not errors,
        zero_copy=not errors and shares and copied == 0,
        copied_bytes=0 if errors else copied,
        error=errors[0] if errors else None,
        leaves=leaves,
        steps=("each leaf on its own",),
    )
