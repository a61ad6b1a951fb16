"""``progress``: a bar on standard error while the loader works on many files or row groups."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

T = TypeVar("T")

#: Seconds before a bar appears, so that short work shows none.
_DELAY = 0.5


def progress(items: Sequence[T], title: str, show: bool | None) -> Iterator[T]:
    """Return an iterator of `items` that shows a bar.

    Parameters
    ----------
    items : sequence
        Items to iterate over.
    title : str
        Label of the bar.
    show : bool or None
        True shows a bar; False shows none. None shows one after 0.5 s if standard error is a terminal.
        Without rich, no bar is shown.

    Examples
    --------
    >>> list(progress([1, 2], "Reading", show=False))
    [1, 2]
    """
    wanted = show if show is not None else _is_terminal()
    bar, began = None, time.perf_counter()
    try:
        for done, item in enumerate(items):
            if wanted and bar is None and (show or time.perf_counter() - began > _DELAY):
                bar = _bar(title, len(items))
                wanted = bar is not None
            if bar is not None:
                bar.update(bar.task_ids[0], completed=done)
            yield item
        if bar is not None:
            bar.update(bar.task_ids[0], completed=len(items))
    finally:
        if bar is not None:
            bar.stop()


def _is_terminal() -> bool:
    # A process without a console has no standard error.
    return sys.stderr is not None and sys.stderr.isatty()


def _bar(title: str, total: int) -> Any:
    """Return a bar that has been started; None without rich, which is an optional dependency."""
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        return None
    bar = Progress(console=Console(file=sys.stderr), transient=_is_terminal())
    bar.add_task(title, total=total)
    bar.start()
    return bar
