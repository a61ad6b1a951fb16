"""The loop of a reader: samples at equal intervals until a limit, an end or Ctrl+C; and the live view."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType, SimpleNamespace
from typing import Any

from zerocopy.formatting import printable
from zerocopy.monitor.observer import Observer
from zerocopy.monitor.process_record import is_zombie
from zerocopy.monitor.run_directory import FileName
from zerocopy.monitor.sample import Sample

#: Seconds between two checks for the end of a process.
STEP = 0.2
#: Seconds after the end of a process in which its last sample is written.
_GRACE = 10.0

#: Waits at most some seconds, and returns whether there is nothing more to watch.
Wait = Callable[[float], bool]


def watch(
    source: Observer,
    outputs: Sequence[Any],
    every: float,
    count: int | None,
    wait: Wait,
    *,
    is_served: bool = False,
) -> list[str]:
    """Write samples to all outputs until `wait` returns True, `count` are written or no output is left.

    Outputs are files or the screen, with a `name` and the method `write`. One that fails is not written to
    again; the others continue. If a page shows the samples, only `wait` ends them. Returns the name and the
    error of each output that failed.
    """
    working, failures = list(outputs), []
    number, due = 0, time.monotonic()
    ended = False
    while working or is_served:
        sample = source.read()
        for output in list(working):
            try:
                output.write(sample)
            except OSError as error:
                working.remove(output)
                failures.append(printable(f"{output.name}: {error.strerror or error}"))
                print(f"zerocopy monitor: cannot write to {failures[-1]}", file=sys.stderr)
        number += 1
        if number == count:
            working = []
        if ended or not (working or is_served):
            break
        due = max(due + every, time.monotonic())
        ended = wait(due - time.monotonic())  # the last sample is read after the end
    return failures


@contextlib.contextmanager
def ending_after(name: FileName | None) -> Iterator[None]:
    """End this process if the block lasts 10 s longer than another one: a file or a driver may not answer."""
    is_running = True

    def watch() -> None:
        left = _GRACE
        while is_running and left > 0:
            time.sleep(STEP)
            left -= STEP if _has_ended(name) else 0
        if is_running:
            os._exit(1)

    if name is not None:
        threading.Thread(target=watch, name="zerocopy-monitor-end", daemon=True).start()
    try:
        yield
    finally:
        is_running = False


def until_process_ends(name: FileName | None) -> Wait:
    """Return a wait for the end of a process; for None, it only waits."""

    def has_ended(seconds: float) -> bool:
        time.sleep(seconds)
        return _has_ended(name)

    return _in_steps(has_ended)


def _has_ended(name: FileName | None) -> bool:
    return name is not None and (not name.is_alive or is_zombie(name.pid))


def _in_steps(has_ended: Wait) -> Wait:
    """Return a wait that calls `has_ended` at least every `STEP` seconds."""

    def wait(seconds: float) -> bool:
        end = time.monotonic() + seconds
        if has_ended(0.0):
            return True
        while (left := end - time.monotonic()) > 0:
            if has_ended(min(left, STEP)):
                return True
        return False

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


# -- files and the page ----------------------------------------------------------------


@contextlib.contextmanager
def open_outputs(options: SimpleNamespace) -> Iterator[list[Any]]:
    """Open the files that samples are written to."""
    outputs: list[Any] = []
    try:
        if options.csv_path is not None:
            from zerocopy.monitor.csv_file import CsvFile, select

            outputs.append(CsvFile(options.csv_path, select(options.fields), options.append))
        if options.prometheus not in (None, "-"):
            from zerocopy.monitor.prometheus import PrometheusFile

            outputs.append(PrometheusFile(options.prometheus))
        yield outputs
    finally:
        for output in outputs:
            output.close()


@contextlib.contextmanager
def served(observer: Observer, options: SimpleNamespace) -> Iterator[None]:
    """Serve the page, and print its address; does nothing without ``--serve``."""
    if options.serve is None:
        yield
        return
    from zerocopy.monitor.web.server import serve

    place: Any = {"port": options.serve, "address": options.address}
    with serve(observer, every=options.every, samples=False, **place) as server:
        print(f"zerocopy monitor: {server.url}", file=sys.stderr, flush=True)
        yield


# -- the live view: the alternate screen, redrawn at each sample; q or Ctrl+C ends it --------


def show(observer: Observer, options: SimpleNamespace, wait: Wait) -> None:
    """Show samples in the terminal until q is typed."""
    from rich.console import Console
    from rich.live import Live

    process = f" process {options.pid}" if options.pid is not None else ""
    title = f"zerocopy monitor{process}   every {options.every:g} s   q ends"
    console = Console(highlight=False)
    live = Live(
        console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
    )
    with _keys() as is_typed, live, contextlib.suppress(KeyboardInterrupt):
        wait_for_keys = _in_steps(lambda seconds: is_typed(seconds) or wait(0.0))
        watch(observer, [Screen(console, live, title)], options.every, options.count, wait_for_keys)


class Screen:
    """Draws samples on the alternate screen of a terminal."""

    name = "the terminal"

    def __init__(self, console: Any, live: Any, title: str) -> None:
        self._console, self._live, self._title = console, live, title

    def write(self, sample: Sample) -> None:
        """Draw a sample."""
        from rich.console import Group

        from zerocopy.cli.monitor.view import screen
        from zerocopy.cli.terminal import Printable

        width, height = self._console.size
        clock = time.strftime("%H:%M:%S", time.localtime(sample["time"]))
        lines = screen(sample, width, height, f"{self._title}   {clock}")
        self._live.update(Printable(Group(*lines)), refresh=True)


@contextlib.contextmanager
def _keys() -> Iterator[Wait]:
    """Yield a function that waits, and returns whether q was typed; keys are not echoed."""
    if not sys.stdin.isatty():
        yield lambda seconds: bool(time.sleep(seconds))  # type: ignore[func-returns-value]
        return
    import termios
    import tty

    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)

    def is_typed(seconds: float) -> bool:
        readable, _, _ = select.select([keyboard], [], [], seconds)
        typed = os.read(keyboard, 64) if readable else None
        return typed is not None and (not typed or bool(set(typed) & set(b"qQ\x04")))

    try:
        tty.setcbreak(keyboard)
        yield is_typed
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
