"""``warn``: warnings whose text is printable, and whose file and line are those of the user's code."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

from zerocopy.formatting import printable

#: Packages whose frames lie between the user's and the first: zerocopy, imports and threads.
_BETWEEN = (__name__.removesuffix("errors.warning"), "importlib.", "threading.")


def warn(text: str, category: type[Warning] = RuntimeWarning, *, raises: bool = True) -> None:
    """Emit a warning at the line of the user's code that called zerocopy.

    A fixed ``stacklevel`` becomes wrong if a function in between is wrapped or gets another caller. With
    ``raises=False``, a warning that a filter turns into an error is printed: the caller must not fail.
    """
    frame = users_frame(sys._getframe(1))
    names = frame.f_globals
    registry = names.setdefault("__warningregistry__", {})
    try:
        warnings.warn_explicit(
            printable(text, "\n"), category, frame.f_code.co_filename, frame.f_lineno,
            names.get("__name__") or "<string>", registry,
        )  # fmt: skip
    except category as warning:
        if raises:
            raise
        print(f"zerocopy: {warning}", file=sys.stderr)


def users_frame(caller: FrameType) -> FrameType:
    """Return the first frame outside of zerocopy; the caller's if there is none, as in zerocopy's threads."""
    frame: FrameType | None = caller
    while frame is not None and _is_between(frame):
        frame = frame.f_back
    return caller if frame is None else frame


def _is_between(frame: FrameType) -> bool:
    name = f"{frame.f_globals.get('__name__')}."
    # Frozen importlib has its name only in the code's file name.
    return name.startswith(_BETWEEN) or "importlib._bootstrap" in frame.f_code.co_filename
