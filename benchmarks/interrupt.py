"""A record of Ctrl-C, for libraries that replace ``KeyboardInterrupt`` with another error.

DuckDB raises ``RuntimeError`` if the interrupt arrives during one of its calls. Code that catches
all errors of a contender calls :func:`check` to find out.
"""

from __future__ import annotations

_requested = False


def request() -> None:
    """Record that the run should end."""
    global _requested
    _requested = True


def reset() -> None:
    """Forget an earlier request."""
    global _requested
    _requested = False


def check() -> None:
    """Raise KeyboardInterrupt if it was requested."""
    if _requested:
        raise KeyboardInterrupt
