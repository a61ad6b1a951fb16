"""Programs that the monitor runs in tests."""

from __future__ import annotations

import contextlib
import os
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
