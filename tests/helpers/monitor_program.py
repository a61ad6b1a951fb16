"""Programs that the monitor runs in tests."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from helpers.paths import ROOT

#: Converts with and without a copy, once.
CONVERTING = """
import numpy as np, zerocopy as zc
aliased = zc.convert(np.arange(100.0), to="numpy")
copied = zc.convert(np.arange(1000.0), to="numpy", copy=True)
"""

#: Prints a line, then waits for a signal for at most a minute.
WAITING = """
import sys, time
print("ready", flush=True)
for _ in range(600): time.sleep(0.1)
"""


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Return an environment in which the run directory is in a folder."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("ZEROCOPY_MONITOR", "FORCE_COLOR", "COLUMNS", "TTY_COMPATIBLE")
    }
    path = os.pathsep.join(filter(None, [str(ROOT), kept.get("PYTHONPATH")]))
    return {**kept, "PYTHONPATH": path, "ZEROCOPY_MONITOR_DIR": str(folder / "run"), **more}


def monitor(folder: Path, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run ``zerocopy monitor`` with an end."""
    command = [sys.executable, "-m", "zerocopy", "monitor", *arguments]
    settings: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 120, "cwd": folder}
    return subprocess.run(command, env=environment(folder), **{"input": "", **settings, **options})


def start_monitor(folder: Path, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    """Start ``zerocopy monitor`` in a process group of its own."""
    command = [sys.executable, "-m", "zerocopy", "monitor", *arguments]
    settings: dict[str, Any] = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
    }
    return subprocess.Popen(
        command, env=environment(folder), cwd=folder, start_new_session=True, **{**settings, **options}
    )


def end(process: subprocess.Popen[str]) -> None:
    """Kill a monitor with its program, if they run."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)


def eventually(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Return the first true value of a condition."""
    limit = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < limit, "the condition did not become true"
        time.sleep(0.05)


#: Makes standard input the controlling terminal, whose Ctrl+C the monitor and its program receive.
_IN_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


class InTerminal:
    """A monitor in a terminal of 80x24."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        import fcntl
        import pty
        import struct
        import termios

        self._master, self._slave = pty.openpty()
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.output = b""
        self.process = subprocess.Popen(
            [sys.executable, "-c", _IN_TERMINAL, "-m", "zerocopy", "monitor", *arguments],
            env=environment(folder, TERM="xterm-256color"),
            cwd=folder,
            start_new_session=True,
            **dict.fromkeys(("stdin", "stdout", "stderr"), self._slave),
        )

    def read_until(self, text: bytes) -> None:
        """Read until the output contains a text."""
        eventually(lambda: self._read() or text in self.output)
        assert text in self.output

    def type(self, text: bytes) -> None:
        """Type into the terminal."""
        os.write(self._master, text)

    def finish(self) -> int:
        """Read until the monitor has ended, and return its exit code."""
        eventually(lambda: self._read() or self.process.poll() is not None)
        self._read()
        return self.process.returncode

    @property
    def echoes(self) -> bool:
        """Whether the terminal shows typed keys."""
        import termios

        return bool(termios.tcgetattr(self._slave)[3] & termios.ECHO)

    def close(self) -> None:
        """Kill the monitor if it runs, and close the terminal."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(timeout=60)
        os.close(self._master)
        os.close(self._slave)

    def _read(self) -> None:
        while select.select([self._master], [], [], 0)[0]:
            self.output += os.read(self._master, 65536)
