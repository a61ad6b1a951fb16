"""``Node``: one level of a pytree, as the library that registers its type describes it.

A framework with such a registry has a class `Pytrees`, which derives from `PytreesHook`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from zerocopy.errors import Fix


class Attribute(str):
    """The name of an attribute, as a key of a path."""

    __slots__ = ()


class Node(NamedTuple):
    """One level of a pytree.

    Attributes
    ----------
    keys : list
        The key of each child; that of an attribute is an `Attribute`.
    children : list
        The children, in the order of the keys. They can be further pytrees.
    rebuild : callable
        ``rebuild(values) -> object``: the same pytree with other children.
    framework : str, optional
        The only framework whose arrays the type can hold. Default: it can hold those of all.
    fixes : tuple of Fix, optional
        Expressions that give the children in containers of other types.

    Examples
    --------
    >>> Node([0, 1], ["a", "b"], tuple).rebuild(["c", "d"])
    ('c', 'd')
    """

    keys: list[Any]
    children: list[Any]
    rebuild: Callable[[list[Any]], Any]
    framework: str = ""
    fixes: tuple[Fix, ...] = ()


class PytreesHook:
    """Base class of the frameworks' classes `Pytrees`."""

    def flatten(self, obj: Any) -> Node | None:
        """Return one level of an object of a registered type; None for other objects."""
        return None


def key_of(entry: Any) -> Any:
    """Return the key of an entry of a path, of torch or JAX: its ``idx``, ``key`` or ``name``."""
    if hasattr(entry, "idx"):
        return entry.idx
    return entry.key if hasattr(entry, "key") else Attribute(entry.name)


def one_level() -> Callable[[Any], bool]:
    """Return an ``is_leaf`` that is false for the first object, the pytree itself, and true for its children.

    A comparison with the pytree would not end for one that is its own child.
    """
    first = iter((False,))
    return lambda _: next(first, True)
