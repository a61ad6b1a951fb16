"""Types that optree or a framework registers as pytrees: their children, and how they are rebuilt.

optree's registrations come first, then those of the frameworks in the order of their names. A library that is
not imported has no registrations, and is not imported here.
"""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from zerocopy import registry
from zerocopy.protocols.pytree_node import Attribute, Node

#: Types with a registration. A registration can come later, so that other types are not remembered.
_known: set[type] = set()

registry.on_change(_known.clear)


def is_registered(obj: Any) -> bool:
    """Whether the type of an object is registered as a pytree."""
    cls = type(obj)
    if cls in _known:
        return True
    if flatten(obj) is None:
        return False
    _known.add(cls)
    return True


def flatten(obj: Any) -> Node | None:
    """Return the keys and children of a pytree and how it is rebuilt; None if its type is not registered."""
    optree = sys.modules.get("optree")
    node: Node | None
    if getattr(optree, "tree_unflatten", None) is not None:  # None while another thread imports it
        node = _of_optree(optree, obj)
        if node is not None:
            return node
    for flatten_node in _hooks():
        node = flatten_node(obj)
        if node is not None:
            return node
    return None


def _hooks() -> list[Callable[[Any], Node | None]]:
    """Return the functions of the imported frameworks that have pytrees."""
    frameworks = [framework for framework in registry.imported() if framework.pytree_hook]
    return [_resolved(framework.pytree_hook) for framework in frameworks]


_resolved = lru_cache(maxsize=64)(pkgutil.resolve_name)


def _of_optree(optree: Any, obj: Any) -> Node | None:
    if optree.register_pytree_node.get(type(obj)) is None:
        return None
    accessors, children, treespec = optree.tree_flatten_with_accessor(
        obj, is_leaf=lambda child: child is not obj, none_is_leaf=True
    )
    keys = [_key(accessor[0]) for accessor in accessors]
    return Node(keys, children, lambda values: optree.tree_unflatten(treespec, values))


def _key(entry: Any) -> Any:
    """Return the key of an entry of optree: an attribute's name as `Attribute`."""
    name = getattr(entry, "name", None)
    return entry.entry if name is None else Attribute(name)
