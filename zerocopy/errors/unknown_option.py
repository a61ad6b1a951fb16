"""The message for a keyword argument that a function does not take."""

from __future__ import annotations

from collections.abc import Iterable


def unknown_option(function: str, name: str, options: Iterable[str]) -> str:
    """Return the message of the TypeError, with the options whose names are nearest.

    Examples
    --------
    >>> unknown_option("loader", "batch_size", ["to", "batch"])
    "loader() got an unexpected keyword argument 'batch_size'; did you mean 'batch'? It takes 'to', 'batch'"
    """
    from difflib import get_close_matches

    options = list(options)
    near = get_close_matches(name, options, 2)
    hint = f"did you mean {' or '.join(map(repr, near))}? It" if near else "it"
    listed = ", ".join(map(repr, options)) or "none"
    return f"{function}() got an unexpected keyword argument {name!r}; {hint} takes {listed}"
