"""Running tasks: libraries' output is captured, and results are kept if the run ends early."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

import psutil
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import interrupt
from benchmarks.results import Results
from benchmarks.schedule import Schedule, summary
from benchmarks.suite import Case
from benchmarks.timing import Raised

_COLUMNS = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())

# Lines of libraries' output that are shown if a task failed.
_TAIL = 5


def run(results: Results, schedule: Schedule, keep: Callable[[Results], Any]) -> str:
    """Run the tasks of a schedule. An interrupt ends it early, with the results so far.

    ``keep(results)`` is called after each task, so that earlier results survive if the program ends.
    Returns the last lines of the output of libraries, if a task failed.
    """
    complete, printed = False, ""
    keep(results)  # if the first task ends the program, there is a file that shows it
    try:
        with quiet() as (stderr, log), interruptible(), _progress(Console(file=stderr)) as progress:
            bar = progress.add_task("", total=len(schedule.work))
            for piece in schedule:
                progress.update(bar, description=f"{piece.key}: {piece.task.name}")
                # Drawn here, because a thread that draws would disturb the timing.
                progress.refresh()
                try:
                    cases = list(piece.task.run())
                    interrupt.check()  # the task may have caught a Ctrl-C
                    results.add(piece.suite.name, piece.section, cases)
                except (Exception, SystemExit) as error:  # noqa: BLE001 - other tasks keep their figures
                    interrupt.check()
                    failure = Raised.of(error).why.removeprefix("raises ")
                    results.add(piece.suite.name, piece.section, [Case(piece.task.name, failed=failure)])
                    printed = "\n".join(log().splitlines()[-_TAIL:])
                keep(results)
                progress.advance(bar)
        complete = True
    except KeyboardInterrupt:
        results.facts["interrupted"] = True
    results.facts["left_out"] = [f"{piece.key}: {piece.task.name}" for piece in schedule.left_out]
    results.facts["left_out_summary"] = summary(schedule.left_out, schedule.work)
    results.finish(schedule.sections(), complete)
    keep(results)
    return printed


def _progress(console: Console) -> Progress:
    return Progress(
        *_COLUMNS,
        console=console,
        transient=True,
        auto_refresh=False,
        # Only libraries print to them.
        redirect_stdout=False,
        redirect_stderr=False,
        disable=not console.is_terminal,
    )


@contextmanager
def quiet() -> Iterator[tuple[TextIO, Callable[[], str]]]:
    """Capture what libraries print; yield the terminal's stream and a function that returns the log.

    TensorFlow, JAX and Arrow print from compiled code, bypassing Python's `warnings` and `logging`.
    Therefore the file descriptors are redirected; children inherit them.
    """
    if not _is_stderr(sys.stderr):
        # Already replaced, for instance by a test.
        yield sys.stderr, lambda: ""
        return
    sys.stdout.flush()
    sys.stderr.flush()
    with (
        tempfile.TemporaryFile() as log,
        os.fdopen(os.dup(2), "w") as stderr,
        os.fdopen(os.dup(1), "w") as stdout,
    ):

        def printed() -> str:
            log.seek(0)
            return log.read().decode("utf-8", "replace")

        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        try:
            yield stderr, printed
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os.dup2(stdout.fileno(), 1)
            os.dup2(stderr.fileno(), 2)


def _is_stderr(stream: Any) -> bool:
    """Whether a stream is file descriptor 2."""
    try:
        return bool(stream.fileno() == 2)
    except (OSError, AttributeError, ValueError):
        return False


@contextmanager
def interruptible() -> Iterator[None]:
    """End the run at the first Ctrl-C or SIGTERM; at a later one, kill the children that it waits for."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    interrupt.reset()

    def first(number: int, frame: Any) -> None:
        interrupt.request()
        signal.signal(number, later)
        raise KeyboardInterrupt

    def later(number: int, frame: Any) -> None:
        # Not raised again: the first waits for children and saves the results.
        for child in psutil.Process().children(recursive=True):
            try:
                child.kill()
            except psutil.NoSuchProcess:
                continue

    # SIGTERM leaves no children running either.
    before = {number: signal.signal(number, first) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
