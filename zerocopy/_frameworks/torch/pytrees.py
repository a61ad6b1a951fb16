"""Types that are registered with ``torch.utils._pytree``."""

from __future__ import annotations

import sys
from typing import Any

from zerocopy.protocols.pytree_node import Attribute, Node


def flatten(obj: Any) -> Node | None:
    """Return one level of a registered object; None for other objects.

    torch has no public module for its registry. A version without these names has no pytrees here.
    """
    pytree = sys.modules.get("torch.utils._pytree")
    if type(obj) not in getattr(pytree, "SUPPORTED_NODES", ()):
        return None
    one_level = {"is_leaf": lambda child: child is not obj}
    try:
        pairs, spec = pytree.tree_flatten_with_path(obj, **one_level)  # type: ignore[union-attr]
        keys = [_key(path[0]) for path, _ in pairs]
        children = [child for _, child in pairs]
    except ValueError:  # registered without keys
        children, spec = pytree.tree_flatten(obj, **one_level)  # type: ignore[union-attr]
        keys = list(range(len(children)))
    return Node(keys, children, lambda values: pytree.tree_unflatten(values, spec))  # type: ignore[union-attr]


def _key(entry: Any) -> Any:
    """Return the key of an entry: `SequenceKey`, `MappingKey` or `GetAttrKey`."""
    if hasattr(entry, "idx"):
        return entry.idx
    return entry.key if hasattr(entry, "key") else Attribute(entry.name)
