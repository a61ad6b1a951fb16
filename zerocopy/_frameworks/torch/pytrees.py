"""Types that are registered with ``torch.utils._pytree``."""

from __future__ import annotations

import sys
from typing import Any

from zerocopy.errors import Fix
from zerocopy.protocols.pytree_node import Node, PytreesHook, key_of


class Pytrees(PytreesHook):
    """The registry of ``torch.utils._pytree``."""

    def flatten(self, obj: Any) -> Node | None:
        """Return one level of a registered object; None for other objects.

        torch has no public module for its registry. A version without these names has no pytrees here.
        """
        pytree = sys.modules.get("torch.utils._pytree")
        if type(obj) not in getattr(pytree, "SUPPORTED_NODES", ()):
            return None
        is_child = lambda child: child is not obj  # noqa: E731 - torch walks twice; it raises for endless trees
        try:
            pairs, spec = pytree.tree_flatten_with_path(obj, is_leaf=is_child)  # type: ignore[union-attr]
            keys = [key_of(path[0]) for path, _ in pairs]
            children = [child for _, child in pairs]
        except ValueError:  # registered without keys
            children, spec = pytree.tree_flatten(obj, is_leaf=is_child)  # type: ignore[union-attr]
            keys = list(range(len(children)))
        node = Node(keys, children, lambda values: pytree.tree_unflatten(values, spec))  # type: ignore[union-attr]
        tensordict = sys.modules.get("tensordict")
        is_tensordict = getattr(tensordict, "is_tensor_collection", None)
        if children and is_tensordict is not None and is_tensordict(obj):
            # tree_unflatten() checks nothing: methods of a TensorDict with other arrays fail later.
            return node._replace(framework="torch", fixes=(Fix("{x}.to_dict()", "converts it as a dict"),))
        return node
