"""Text of files and frameworks, made safe for a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return text with unprintable characters escaped.

    Names come from files: a line feed would break the grid, and an escape sequence would control
    the terminal.
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
