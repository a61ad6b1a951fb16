"""Types that are registered with ``jax.tree_util``."""

from __future__ import annotations

from typing import Any

from zerocopy.protocols.pytree_node import Node, PytreesHook, key_of, one_level


class Pytrees(PytreesHook):
    """The registry of ``jax.tree_util``."""

    def flatten(self, obj: Any) -> Node | None:
        """Return one level of a registered object; None for other objects."""
        import jax

        tree = jax.tree_util
        if tree.all_leaves([obj]):
            return None
        pairs, treedef = tree.tree_flatten_with_path(obj, is_leaf=one_level())
        keys = [key_of(path[0]) for path, _ in pairs]
        return Node(keys, [child for _, child in pairs], lambda values: tree.tree_unflatten(treedef, values))
