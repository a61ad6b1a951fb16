"""``Program``: runs a program as if it ran alone, with the monitor in its environment.

It keeps its standard streams, working directory and process group. The kernel sends the signals of the
terminal, such as Ctrl+C, to the whole group, so the program has them already; those that another process
sends to the monitor are forwarded.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from types import FrameType
from typing import Any

from zerocopy.errors import ZeroCopyError

_FORWARDED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)


class ProgramError(ZeroCopyError, LookupError):
    """The program that the monitor should run does not exist.

    Examples
    --------
    >>> command_of(["no.py"])
    Traceback (most recent call last):
        ...
    zerocopy.cli.monitor.program.ProgramError: zerocopy monitor -- no.py: there is no such file or command.
      To fix: pass a Python script, -m module, -c code or a command
    """

    code = "unknown-program"


def command_of(arguments: Sequence[str]) -> list[str]:
    """Return the command line: Python's for a script, ``-m`` or ``-c``, otherwise a command."""
    first = arguments[0]
    if os.path.isdir(first) and not os.path.exists(os.path.join(first, "__main__.py")):
        raise ProgramError(
            f"zerocopy monitor -- {first}", "the directory has no __main__.py", "pass a Python script in it"
        )
    if first.startswith("-") or (os.path.exists(first) and not _is_binary(first)):
        return [sys.executable, *arguments]
    path = shutil.which(first)
    if path is None:
        asked = f"zerocopy monitor -- {first}"
        why, fix = "there is no such file or command", "pass a Python script, -m module, -c code or a command"
        raise ProgramError(asked, why, fix)
    return [path, *arguments[1:]]


def _is_binary(path: str) -> bool:
    """Return whether a file is a machine's program, such as a Python interpreter."""
    try:
        with open(path, "rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False  # a directory with __main__.py; or Python reports the error


def _is_for_group(received: Any) -> bool:
    """Whether the terminal sent a signal, and so the program has it too.

    A code above 0 means the kernel. It sends SIGHUP of a closed terminal to the leader of the session alone.
    """
    return bool(received.si_code > 0 and received.si_signo != signal.SIGHUP)


class Program:
    """A program that runs under the monitor.

    Parameters
    ----------
    arguments : sequence of str
        As after ``python``, or a command.
    directory : str
        The run directory to which it writes its figures.
    """

    def __init__(self, arguments: Sequence[str], directory: str) -> None:
        self._command = command_of(arguments)
        self._environment = {
            **os.environ,
            "ZEROCOPY_MONITOR": "1",
            "ZEROCOPY_MONITOR_DIR": directory,
        }
        # nohup and shells ignore signals for a program in the background; it inherits that.
        self._signals = [number for number in _FORWARDED if signal.getsignal(number) != signal.SIG_IGN]
        self._noted: list[int] = []
        #: Whether a signal asked this command to end, and not only the program.
        self.is_ending = False
        self._process: subprocess.Popen[bytes] | None = None
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> Program:
        """Block the signals, also in threads that start later."""
        self._handlers = {number: signal.signal(number, self._note) for number in self._signals}
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, self._waited)
        return self

    def __exit__(self, *error: object) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    @property
    def _waited(self) -> set[int]:
        return {*self._signals, signal.SIGCHLD}

    def start(self) -> None:
        """Start the program with the signal mask that this command had at its start."""
        sys.stdout.flush()
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        try:
            self._process = subprocess.Popen(self._command, env=self._environment)
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, self._waited)

    def wait(self, seconds: float) -> bool:
        """Wait at most some seconds, forward signals, and return whether the program has ended."""
        end = time.monotonic() + seconds
        while self.exit_code is None:
            for number in self._noted[:]:
                self._noted.remove(number)
                self._send(number)
            left = end - time.monotonic()
            if left <= 0:
                return False
            # A thread of a library may have taken the signal of the program's end: hence the limit.
            received = signal.sigtimedwait(self._waited, min(left, 0.5))
            if received is not None and received.si_signo != signal.SIGCHLD and not _is_for_group(received):
                self._send(received.si_signo)
        return True

    @property
    def exit_code(self) -> int | None:
        """The exit code, 128 plus the number of the signal that killed it; None while it runs."""
        code = self._process.poll() if self._process is not None else None
        return code if code is None or code >= 0 else 128 - code

    @property
    def signal_name(self) -> str:
        """The name of the signal that killed it; empty if none did."""
        code = self._process.returncode if self._process is not None else None
        return signal.Signals(-code).name if code is not None and code < 0 else ""

    def _send(self, number: int) -> None:
        self.is_ending = self.is_ending or number in (signal.SIGHUP, signal.SIGTERM)
        if self._process is not None:
            self._process.send_signal(number)

    def _note(self, number: int, frame: FrameType | None) -> None:
        """Keep a signal that arrives while signals are not blocked, as during the start of the program."""
        self._noted.append(number)
