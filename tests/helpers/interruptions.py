"""Exceptions that arrive from outside: a trace function raises them at a chosen place of zerocopy's code."""

from __future__ import annotations

import ctypes
import gc
import linecache
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import zerocopy
from zerocopy.forks import LOADING

_PACKAGE = str(Path(zerocopy.__file__).parent)


def _is_own(frame: FrameType | None) -> bool:
    return frame is not None and frame.f_code.co_filename.startswith(_PACKAGE)


def _is_end_of_with(frame: FrameType, event: str) -> bool:
    """Whether a line may end a ``with`` block: a tracer can raise before the exit, and a signal cannot."""
    text = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    return event == "line" and text.lstrip().startswith("with ")


class Interruption:
    """A trace function that raises `error` at place number `at`: a line of zerocopy, or a call from there.

    Frameworks may swallow exceptions in their own code, so there are no places inside of it.
    """

    def __init__(self, error: BaseException | None = None, at: int = 0) -> None:
        self.error, self.at, self.places = error, at, 0

    def _reach(self) -> None:
        self.places += 1
        if self.places == self.at and self.error is not None:
            raise self.error

    def trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if (event == "line" or _is_own(frame) or _is_own(frame.f_back)) and not _is_end_of_with(frame, event):
            self._reach()
        return self.trace if _is_own(frame) else None

    def run(self, function: Callable[[], Any]) -> BaseException | None:
        """Call the function, and return the exception that it raises.

        No garbage is collected meanwhile: a collection calls JAX's callback at any place, which would be
        interrupted instead. A trace function that raises there is freed while CPython 3.11 calls it.
        """
        trace, collects = self.trace, gc.isenabled()
        gc.disable()
        sys.settrace(trace)
        try:
            function()
        except BaseException as error:  # noqa: BLE001
            return error
        finally:
            sys.settrace(None)
            if collects:
                gc.enable()
            assert not LOADING.acquire.__self__._is_owned(), "a fork in another thread would wait forever"
        return None


def places(function: Callable[[], Any]) -> int:
    """Return the number of places of a call."""
    interruption = Interruption()
    interruption.run(function)
    return interruption.places


def raise_by_signal(error: BaseException) -> None:
    """Raise an exception in the handler of a signal that arrives now."""

    def handler(number: int, frame: FrameType | None) -> None:
        raise error

    old = signal.signal(signal.SIGUSR1, handler)
    try:
        signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, old)


def raise_as_another_thread(cls: type[BaseException]) -> None:
    """Raise an exception of a class as other threads do, after one of the next instructions."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(threading.get_ident()), ctypes.py_object(cls))
    for _ in range(10):
        pass
