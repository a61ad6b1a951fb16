"""Run a program in this process as ``python`` would: a script, a module or code."""

from __future__ import annotations

import builtins
import io
import linecache
import os
import runpy
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

#: Exit code of a program that Ctrl-C ends, as in shells.
_INTERRUPTED = 130
_CODE_NAME = "<string>"


def run_script(path: str, args: Sequence[str]) -> None:
    """Run a script, a folder or an archive with ``__main__.py``, as ``python path args`` would."""
    sys.argv[:] = [path, *args]
    if not Path(path).is_file() or Path(path).suffix in (".pyc", ".zip", ".pyz"):
        runpy.run_path(path, run_name="__main__")
        return
    sys.path[0] = str(Path(path).resolve().parent)
    absolute = os.path.abspath(path)  # as in Python: valid after the program changes the folder
    with io.open_code(absolute) as file:
        code = compile(file.read(), absolute, "exec")
    _execute(code, absolute)


def run_module(name: str, args: Sequence[str]) -> None:
    """Run a module, as ``python -m name args`` would."""
    sys.argv[:] = [name, *args]
    sys.path[0] = os.getcwd()
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def run_code(text: str, args: Sequence[str]) -> None:
    """Run code, as ``python -c text args`` would."""
    sys.argv[:] = ["-c", *args]
    sys.path[0] = ""
    # Tracebacks and reports read the lines from here.
    linecache.cache[_CODE_NAME] = (len(text), None, text.splitlines(keepends=True), _CODE_NAME)
    _execute(compile(text, _CODE_NAME, "exec"), None)


def _execute(code: Any, path: str | None) -> None:
    """Run code in a new ``__main__``, which stays for functions that run at exit."""
    main = ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    if path is not None:
        main.__dict__["__file__"] = path
    sys.modules["__main__"] = main
    exec(code, main.__dict__)


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
    """Return a traceback without the frames of this file, runpy and the audit's wrappers."""
    if trace is None:
        return None
    rest = _own_frames(trace.tb_next)
    name = str(trace.tb_frame.f_globals.get("__name__"))
    if name in (__name__, "runpy") or name.startswith(("zerocopy.cli.", "zerocopy.audit.")):
        return rest
    return TracebackType(rest, trace.tb_frame, trace.tb_lasti, trace.tb_lineno)


def wait_for_threads() -> None:
    """Wait for the threads that Python waits for before it exits."""
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.current_thread():
            thread.join()
