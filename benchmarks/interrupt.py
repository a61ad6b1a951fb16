"""Ctrl-C, remembered: a library may have made an error of its own of the exception.

DuckDB does: of a ``KeyboardInterrupt`` that is raised inside one of its calls nothing is left but a
``RuntimeError``. Who catches whatever a contender raises asks here whether it was that.
"""

from __future__ import annotations

_asked = False


def ask() -> None:
    """Remember that the run is to end."""
    global _asked
    _asked = True


def forget() -> None:
    """Begin anew."""
    global _asked
    _asked = False


def check() -> None:
    """Raise KeyboardInterrupt if it was asked for."""
    if _asked:
        raise KeyboardInterrupt
