"""The view in a terminal: the alternate screen, redrawn at each sample; q or Ctrl+C ends it."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console, Group
from rich.live import Live

from zerocopy.cli.monitor.view import screen
from zerocopy.cli.monitor.watching import STEP, Wait, terminated_as_exit
from zerocopy.cli.terminal import Printable
from zerocopy.monitor.observer import Rates
from zerocopy.monitor.sample import Sample


class Screen:
    """Draws samples on the alternate screen of a terminal."""

    name = "the terminal"

    def __init__(self, console: Console, title: str) -> None:
        self._console, self._title = console, title
        self._live: Any = None

    def __enter__(self) -> Screen:
        self._live = Live(
            console=self._console,
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._live.__exit__(*error)

    def write(self, sample: Sample, rates: Rates | None) -> None:
        """Draw a sample."""
        width, height = self._console.size
        clock = time.strftime("%H:%M:%S", time.localtime(sample["time"]))
        title = f"{self._title}   {clock}"
        lines = screen(sample, rates, width, height, title)
        self._live.update(Printable(Group(*lines)), refresh=True)

    def close(self) -> None:
        """Do nothing: the end of the block restores the terminal."""


def run_live(run: Callable[[Screen, Wait], Any], title: str, wait: Wait) -> None:
    """Call `run` with a screen and a wait that also ends when q is typed."""
    with terminated_as_exit(), _keys() as is_ended, Screen(Console(highlight=False), title) as drawn:

        def wait_for_keys(seconds: float) -> bool:
            end = time.monotonic() + seconds
            while True:
                left = max(end - time.monotonic(), 0.0)
                if is_ended(min(left, STEP)) or wait(0.0):
                    return True
                if left <= STEP:
                    return False

        with contextlib.suppress(KeyboardInterrupt):
            run(drawn, wait_for_keys)


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], bool]]:
    """Yield a function that waits, and returns whether q was typed; keys are not echoed."""
    if not sys.stdin.isatty():
        yield _sleep
        return
    import termios
    import tty

    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)

    def is_ended(seconds: float) -> bool:
        readable, _, _ = select.select([keyboard], [], [], seconds)
        typed = os.read(keyboard, 64) if readable else None
        return typed is not None and (not typed or bool(set(typed) & set(b"qQ\x04")))

    try:
        tty.setcbreak(keyboard)
        yield is_ended
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False
