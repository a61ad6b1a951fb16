"""Run code in this process as ``python -c`` would, and report how a program ends as Python does."""

from __future__ import annotations

import linecache
import sys
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from zerocopy.interpreter.program import execute

#: Exit code of a program that Ctrl-C ends, as in shells.
_INTERRUPTED = 130
_CODE_NAME = "<string>"


def run_code(text: str, args: Sequence[str]) -> None:
    """Run code, as ``python -c text args`` would."""
    sys.argv[:] = ["-c", *args]
    sys.path[0] = ""
    # Tracebacks and reports read the lines from here.
    linecache.cache[_CODE_NAME] = (len(text), None, text.splitlines(keepends=True), _CODE_NAME)
    execute(compile(text, _CODE_NAME, "exec", dont_inherit=True))


def exit_code(error: BaseException | None) -> Any:
    """Report the exception that ended a program as Python does; return the argument for ``sys.exit``."""
    if error is None:
        return 0
    if isinstance(error, SystemExit):
        return error.code
    for each in _chain(error):
        each.__traceback__ = _own_frames(each.__traceback__)
    sys.excepthook(type(error), error, error.__traceback__)
    return _INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1


def _chain(error: BaseException) -> list[BaseException]:
    """Return an exception with its causes and contexts."""
    errors: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is not None and not any(each is known for known in errors):
            errors.append(each)
            waiting += [each.__cause__, each.__context__]
    return errors


def _own_frames(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames that run the program, and those of the audit's wrappers."""
    if trace is None:
        return None
    rest = _own_frames(trace.tb_next)
    name = str(trace.tb_frame.f_globals.get("__name__"))
    own = ("zerocopy.cli.", "zerocopy.audit.", "zerocopy.interpreter.")
    if name == "runpy" or name.startswith(own):
        return rest
    return TracebackType(rest, trace.tb_frame, trace.tb_lasti, trace.tb_lineno)


def wait_for_threads() -> None:
    """Wait for the threads that Python waits for before it exits."""
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.current_thread():
            thread.join()
