"""``zerocopy monitor -- PROGRAM``: the program runs as if it ran alone, and a report follows.

It keeps its standard streams, working directory and process group. The kernel sends the signals of the
terminal, such as Ctrl+C, to the whole group, so the program has them already; those that another process
sends to the monitor are forwarded.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from types import FrameType, SimpleNamespace
from typing import Any

from rich.text import Text

from zerocopy.cli.monitor.view import final_report
from zerocopy.cli.monitor.watching import open_outputs, served, until_process_ends, watch
from zerocopy.errors import MonitorFileError, OptionError
from zerocopy.formatting import format_count, format_seconds
from zerocopy.monitor.csv_file import discard_rest
from zerocopy.monitor.observer import Observer
from zerocopy.monitor.run_directory import VARIABLE, FileName, default_directory, opened
from zerocopy.monitor.sample import Sample

_FORWARDED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
#: Seconds for which ended processes are in the samples: files are kept for an hour.
_SHOWN = 3600.0
#: Prefix of the run directories of programs, in that of the user.
_PREFIX = "run-"


def run_program(options: SimpleNamespace) -> int:
    """Run the program with the files and the page, print the report, and return the program's exit code."""
    folder = contextlib.nullcontext(options.directory) if options.directory else private_directory()
    with folder as directory:
        program = Program(options.program, str(directory), options.writes)
        observer = Observer(directory, shown=_SHOWN, order=options.order)
        is_served = options.serve is not None
        with open_outputs(options) as outputs, contextlib.ExitStack() as stack:
            with program:
                stack.enter_context(served(observer, options))
                began = time.time()
                program.start()
                watch(observer, outputs, options.every, options.count, program.wait, is_served=is_served)
                while not program.wait(options.every):
                    pass
            sample: Sample = {**observer.read(), "rates": None}  # the program has ended
            sample["processes"] = [record for record in sample["processes"] if record["time"] >= began]
            _print_report(sample, _headline(program, options, time.time() - began, len(sample["processes"])))
            stays = sys.stdin.isatty() if options.keep is None else options.keep
            if is_served and stays and not program.is_ending:
                print("zerocopy monitor: the page stays until Ctrl+C", file=sys.stderr, flush=True)
                with contextlib.suppress(KeyboardInterrupt):
                    watch(observer, [], options.every, None, until_process_ends(None), is_served=True)
    return program.exit_code or 0


def _headline(program: Program, options: SimpleNamespace, seconds: float, count: int) -> str:
    name = " ".join(options.program[: 2 if options.program[0] == "-m" else 1])
    end = f"ended with exit code {program.exit_code}"
    end = f"was killed by {program.signal_name}" if program.signal_name else end
    recorded = f"; {format_count(count, 'process', 'processes')}" if count > 1 else ""
    return f"zerocopy monitor: {name} {end} after {format_seconds(seconds)}{recorded}"


def _print_report(sample: Sample, headline: str) -> None:
    """Print the report to standard error: standard output is the program's."""
    from zerocopy.cli.terminal import PLAIN_WIDTH, Output

    is_terminal = sys.stderr.isatty()
    out = Output(sys.stderr)
    if is_terminal:
        from rich.console import Console

        out.console = Console(stderr=True, highlight=False)
        out.plain, out.width = False, out.console.width
    width = out.width if is_terminal else PLAIN_WIDTH
    try:
        out.show(Text(""), *final_report(sample, width, headline))
        sys.stderr.flush()
    except OSError:  # a closed pipe: the exit code is the program's
        discard_rest(sys.stderr)


@contextlib.contextmanager
def private_directory() -> Iterator[str]:
    """Create a run directory for one program, and remove it at the end, with those of killed monitors."""
    parent = default_directory()
    path = os.path.join(parent, f"{_PREFIX}{FileName.of_this_process()}".removesuffix(".json"))
    try:
        with opened(parent, create=True) as folder:
            for name in os.listdir(folder):
                owner = FileName.read(f"{name.removeprefix(_PREFIX)}.json")
                if name.startswith(_PREFIX) and owner is not None and not owner.is_alive:
                    shutil.rmtree(os.path.join(parent, name), ignore_errors=True)
        with opened(path, create=True):
            pass
    except MonitorFileError:
        raise
    except OSError as error:
        why = f"it cannot be created: {error.strerror or error}"
        fix = f"set {VARIABLE}, or --directory, to a directory where you may write"
        raise MonitorFileError(f"the run directory {parent}", why, fix) from error
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def command_of(arguments: Sequence[str]) -> list[str]:
    """Return the command line: Python's for a script, ``-m`` or ``-c``, otherwise a command."""
    first = arguments[0]
    if os.path.isdir(first) and not os.path.exists(os.path.join(first, "__main__.py")):
        raise OptionError(
            f"zerocopy monitor -- {first}",
            "the directory has no __main__.py",
            "pass a Python script in it",
            code="unknown-program",
        )
    if first.startswith("-") or (os.path.exists(first) and not _is_binary(first)):
        return [sys.executable, *arguments]
    path = shutil.which(first)
    if path is None:
        asked = f"zerocopy monitor -- {first}"
        why, fix = "there is no such file or command", "pass a Python script, -m module, -c code or a command"
        raise OptionError(asked, why, fix, code="unknown-program")
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
    """A program that runs under the monitor: arguments as after ``python``, or a command."""

    def __init__(self, arguments: Sequence[str], directory: str, writes: bool = False) -> None:
        self._command = command_of(arguments)
        more = {"ZEROCOPY_MONITOR_WRITES": "1"} if writes else {}
        self._environment = {**os.environ, "ZEROCOPY_MONITOR": "1", VARIABLE: directory, **more}
        # nohup and shells ignore signals for a program in the background; it inherits that.
        self._signals = [number for number in _FORWARDED if signal.getsignal(number) != signal.SIG_IGN]
        self._noted: list[int] = []
        #: Whether a signal asked this command to end, and not only the program.
        self.is_ending: bool = False
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
