"""The loop of a reader: samples at equal intervals until a limit, an end or Ctrl+C."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Protocol

from zerocopy.formatting.printable import printable
from zerocopy.monitor.observer import Observer, Rates
from zerocopy.monitor.process_record import is_zombie
from zerocopy.monitor.run_directory import FileName
from zerocopy.monitor.sample import Sample

#: Seconds between two checks for the end of a process.
STEP = 0.2

#: Waits at most some seconds, and returns whether there is nothing more to watch.
Wait = Callable[[float], bool]


class Output(Protocol):
    """A file or the screen, to which samples are written."""

    @property
    def name(self) -> str:
        """Its name in messages."""

    def write(self, sample: Sample, rates: Rates | None) -> None:
        """Show a sample."""

    def close(self) -> None:
        """Release its resources."""


def watch(
    source: Observer, outputs: Sequence[Output], every: float, count: int | None, wait: Wait
) -> list[str]:
    """Write samples to all outputs until `wait` returns True, `count` are written or no output is left.

    An output that fails is not written to again; the others continue.

    Returns
    -------
    list of str
        The name and the error of each output that failed.
    """
    working, failures = list(outputs), []
    number, due = 0, time.monotonic()
    ended = False
    while working:
        sample, rates = source.read(), source.rates()
        for output in list(working):
            try:
                output.write(sample, rates)
            except OSError as error:
                working.remove(output)
                failures.append(printable(f"{output.name}: {error.strerror or error}"))
                print(f"zerocopy monitor: cannot write to {failures[-1]}", file=sys.stderr)
        number += 1
        if ended or number == count:
            break
        due = max(due + every, time.monotonic())
        ended = wait(due - time.monotonic())  # the last sample is read after the end
    return failures


def until_process_ends(name: FileName | None) -> Wait:
    """Return a wait for the end of a process; for None, it only waits."""

    def wait(seconds: float) -> bool:
        end = time.monotonic() + seconds
        while True:
            if name is not None and (not name.is_alive or is_zombie(name.pid)):
                return True
            left = end - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(left, STEP))

    return wait


@contextlib.contextmanager
def terminated_as_exit() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block by `SystemExit`, so that the terminal and files are restored."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    numbers = [
        number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) == signal.SIG_DFL
    ]
    for number in numbers:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)
