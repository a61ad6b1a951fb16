"""Running tasks: what libraries print kept away, what was measured kept, whatever ends the run."""

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
from benchmarks.schedule import Schedule, told
from benchmarks.suite import Case
from benchmarks.timing import Raised

_COLUMNS = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())

# Lines of what libraries printed that are shown where a task failed.
_TAIL = 5


def run(found: Results, schedule: Schedule, keep: Callable[[Results], Any]) -> str:
    """Run the tasks of a schedule; an interrupt ends it early, with what there is.

    Parameters
    ----------
    found : Results
        What is added to.
    schedule : Schedule
    keep : callable
        ``keep(found)`` is called after each task, so that whatever ends the program leaves
        what was measured before.

    Returns
    -------
    str
        What was printed meanwhile, if a task failed: its last lines.
    """
    complete, printed = False, ""
    keep(found)  # whatever ends the first task, there is a file that says so
    try:
        with (
            quiet() as (stderr, log),
            interruptible(),
            _progress(Console(file=stderr)) as progress,
        ):
            bar = progress.add_task("", total=len(schedule.work))
            for piece in schedule:
                progress.update(bar, description=f"{piece.key}: {piece.task.name}")
                # Drawn here and not by a clock: a thread that draws would be timed too.
                progress.refresh()
                try:
                    cases = list(piece.task.run())
                    interrupt.check()  # what it caught of a Ctrl-C is no result
                    found.add(piece.suite.name, piece.section, cases)
                except (Exception, SystemExit) as error:  # noqa: BLE001 - the figures of the others are not lost
                    interrupt.check()
                    failure = Raised.of(error).why.removeprefix("raises ")
                    found.add(piece.suite.name, piece.section, [Case(piece.task.name, failed=failure)])
                    printed = "\n".join(log().splitlines()[-_TAIL:])
                keep(found)
                progress.advance(bar)
        complete = True
    except KeyboardInterrupt:
        found.facts["interrupted"] = True
    found.facts["left_out"] = [f"{piece.key}: {piece.task.name}" for piece in schedule.left_out]
    found.facts["left_out_told"] = told(schedule.left_out, schedule.work)
    found.finish(schedule.sections(), complete)
    keep(found)
    return printed


def _progress(console: Console) -> Progress:
    return Progress(
        *_COLUMNS,
        console=console,
        transient=True,
        auto_refresh=False,
        # What is printed to them is libraries'.
        redirect_stdout=False,
        redirect_stderr=False,
        disable=not console.is_terminal,
    )


@contextmanager
def quiet() -> Iterator[tuple[TextIO, Callable[[], str]]]:
    """Keep what libraries print away from the terminal, and yield where we write, and the log.

    TensorFlow greets an import, JAX a card that it has no plugin for, Arrow a time zone: from
    compiled code, which Python's `warnings` and `logging` know nothing of. So it is the file
    descriptors that lead elsewhere; children inherit them.
    """
    if not _is_the_process(sys.stderr):
        # Somebody has put something else in its place already: a test.
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


def _is_the_process(stream: Any) -> bool:
    """Whether a stream is the process's standard error."""
    try:
        return bool(stream.fileno() == 2)
    except (OSError, AttributeError, ValueError):
        return False


@contextmanager
def interruptible() -> Iterator[None]:
    """Have the first Ctrl-C (or SIGTERM) end the run; a later one ends the children that it waits for."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    interrupt.forget()

    def first(number: int, frame: Any) -> None:
        interrupt.ask()
        signal.signal(number, later)
        raise KeyboardInterrupt

    def later(number: int, frame: Any) -> None:
        # Not raised again: it would cut off the end of the first, which waits for children and
        # keeps the results.
        for child in psutil.Process().children(recursive=True):
            try:
                child.kill()
            except psutil.NoSuchProcess:
                continue

    # A polite end from elsewhere leaves no children behind either.
    before = {number: signal.signal(number, first) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
