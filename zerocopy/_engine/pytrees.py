"""Types that optree or a framework registers as pytrees: their children, and how they are rebuilt.

optree's registrations come first, then those of the frameworks in the order of their names. A library that is
not imported has no registrations, and is not imported here.
"""

from __future__ import annotations

import pkgutil
import sys
from functools import lru_cache
from typing import Any

from zerocopy import registry
from zerocopy.framework import Framework
from zerocopy.protocols.exporter_errors import is_error
from zerocopy.protocols.pytree_node import Attribute, Node, one_level

#: Types with a registration. A registration can come later, so that other types are not remembered.
_known: set[type] = set()

registry.on_change(_known.clear)


def is_registered(obj: Any) -> bool:
    """Whether the type of an object is registered as a pytree."""
    cls = type(obj)
    if cls in _known:
        return True
    try:
        if _flatten(obj) is None:
            return False
    except (MemoryError, RecursionError):
        raise
    except Exception as error:
        if not is_error(error):
            raise
        return True  # the registered function failed; flatten() raises its error again
    _known.add(cls)
    return True


def flatten(obj: Any) -> Node:
    """Return the keys and children of a registered pytree, and how it is rebuilt."""
    node = _flatten(obj)
    if node is None:
        _known.discard(type(obj))
        raise LookupError("its type is not registered as a pytree any more")
    return node


def _flatten(obj: Any) -> Node | None:
    """Return one level of a pytree; None if its type is not registered."""
    optree = sys.modules.get("optree")
    node: Node | None
    if getattr(optree, "tree_unflatten", None) is not None:  # None while another thread imports it
        node = _of_optree(optree, obj)
        if node is not None:
            return node
    for framework in _with_pytrees():
        if registry.is_imported(framework.name):
            node = _resolved(framework.pytree_hook)(obj)
            if node is not None:
                return node
    return None


@lru_cache(maxsize=1)
def _with_pytrees() -> list[Framework]:
    return [framework for framework in registry.known() if framework.pytree_hook]


registry.on_change(_with_pytrees.cache_clear)
_resolved = lru_cache(maxsize=64)(pkgutil.resolve_name)


def _of_optree(optree: Any, obj: Any) -> Node | None:
    registration = getattr(optree.register_pytree_node, "get", None)  # not in old versions
    if registration is None or registration(type(obj)) is None:
        return None
    accessors, children, treespec = optree.tree_flatten_with_accessor(
        obj, is_leaf=one_level(), none_is_leaf=True
    )
    keys = [_key(accessor[0]) for accessor in accessors]
    return Node(keys, children, lambda values: optree.tree_unflatten(treespec, values))


def _key(entry: Any) -> Any:
    """Return the key of an entry of optree: an attribute's name as `Attribute`."""
    name = getattr(entry, "name", None)
    return entry.entry if name is None else Attribute(name)
