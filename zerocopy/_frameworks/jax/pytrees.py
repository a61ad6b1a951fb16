"""Types that are registered with ``jax.tree_util``."""

from __future__ import annotations

from typing import Any

from zerocopy.protocols.pytree_node import Attribute, Node, one_level


def flatten(obj: Any) -> Node | None:
    """Return one level of a registered object; None for other objects."""
    import jax

    tree = jax.tree_util
    if tree.all_leaves([obj]):
        return None
    pairs, treedef = tree.tree_flatten_with_path(obj, is_leaf=one_level())
    keys = [_key(path[0]) for path, _ in pairs]
    return Node(keys, [child for _, child in pairs], lambda values: tree.tree_unflatten(treedef, values))


def _key(entry: Any) -> Any:
    """Return the key of an entry: `SequenceKey`, `DictKey`, `FlattenedIndexKey` or `GetAttrKey`."""
    if hasattr(entry, "idx"):
        return entry.idx
    return entry.key if hasattr(entry, "key") else Attribute(entry.name)
