"""Text of files and frameworks, made safe for a terminal."""

from __future__ import annotations


def printable(text: str, keep: str = "") -> str:
    """Return text with unprintable characters escaped, except those in `keep`.

    Names come from files and programs: a line feed would break a grid, an escape sequence would control
    the terminal, and a bidirectional character would reorder what follows it.
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape").decode("ascii") for c in text
    )
