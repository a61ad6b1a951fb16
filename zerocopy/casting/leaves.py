"""``dtype=`` for containers: a mapping's keys can be keys of the container, and apply to what they hold."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any


def leaf_options(
    options: dict[str, Any], keys: Callable[[], set[Hashable]]
) -> Callable[[Any], dict[str, Any]]:
    """Return a function from a leaf's path to the options of its conversion.

    Parameters
    ----------
    options : dict
        The options of the call.
    keys : callable
        Returns all keys and positions in the container.

    Returns
    -------
    callable
        The innermost key on the path that the mapping has gives the leaf's dtype. Otherwise the leaf has
        the entries of the mapping that are not keys of the container.
    """
    spec = options.get("dtype")
    if not isinstance(spec, Mapping):
        return lambda path: options
    named = {key for key in spec if key in keys()}
    if not named:
        return lambda path: options
    plain = {name: value for name, value in options.items() if name != "dtype"}
    others = {key: value for key, value in spec.items() if key not in named}
    rest = {**plain, "dtype": others} if others else plain

    def of_leaf(path: Any) -> dict[str, Any]:
        while path is not None:
            key, path = path
            if key in named:
                return {**plain, "dtype": spec[key]}
        return rest

    return of_leaf
