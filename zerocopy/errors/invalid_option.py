"""Errors for keyword arguments that a function does not take, and for invalid values of options."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from zerocopy.errors import OptionError
from zerocopy.formatting import shown

#: The longest value that a message shows.
_WIDEST = 80


def unknown_option(function: str, name: str, options: Iterable[str]) -> str:
    """Return the message of the TypeError, with the options whose names are nearest, or begin with it.

    Examples
    --------
    >>> unknown_option("loader", "batch", ["batch_size"])
    "loader() got an unexpected keyword argument 'batch'; did you mean 'batch_size'? It takes 'batch_size'"
    """
    from difflib import get_close_matches

    options = list(options)
    near = get_close_matches(name, options, 2) or [each for each in options if each.startswith(f"{name}_")]
    hint = f"did you mean {' or '.join(map(repr, near))}? It" if near else "it"
    listed = ", ".join(map(repr, options)) or "none"
    return f"{function}() got an unexpected keyword argument {name!r}; {hint} takes {listed}"


def invalid_value(
    name: str, value: Any, why: str, remedy: str = "", choices: Iterable[str] = (), function: str = ""
) -> OptionError:
    """Return the error for an invalid value of an option; it names the nearest of `choices`.

    Examples
    --------
    >>> print(invalid_value("lists", "padd", "lists must be 'dense' or 'pad'", choices=["dense", "pad"]))
    lists='padd': lists must be 'dense' or 'pad', not 'padd'.
      To fix: did you mean lists="pad"?
    """
    text = _shown(value)
    asked = f"{name}={text}"
    if why.startswith(f"{name} must be "):
        why += f", not {text}"
    near = nearest(value, choices)
    if near:
        remedy = f'did you mean {name}="{near}"?'
    return OptionError(f"{function}({asked})" if function else asked, why, remedy or f"leave {name}= out")


def nearest(value: Any, choices: Iterable[str]) -> str | None:
    """Return the text that is most similar to a misspelled one."""
    if not isinstance(value, str):
        return None
    from difflib import get_close_matches

    return next(iter(get_close_matches(value.lower(), list(choices), 1, 0.5)), None)


def _shown(value: Any) -> str:
    """Return a plain value as text, else its type: the text of an object can read freed memory."""
    items = value if type(value) in (list, tuple) else [value]
    is_plain = all(isinstance(item, (str, bytes, int, float, complex, type(None))) for item in items)
    text = shown(value) if is_plain and len(items) <= _WIDEST else ""
    return text if 0 < len(text) <= _WIDEST else f"<{type(value).__qualname__}>"
