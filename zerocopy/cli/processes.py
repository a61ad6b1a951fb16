"""The part of ``zerocopy doctor`` about processes: what ``share`` needs, tried here, and the engines."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from zerocopy.errors import ZeroCopyError
from zerocopy.forks import installed_version
from zerocopy.framework import version_numbers
from zerocopy.integrations import ENGINES, install_line

#: File descriptors that should be free: a large object needs one, and a result of it two.
_FEW_DESCRIPTORS = 256
#: The inode of the first PID namespace (<linux/proc_ns.h>, PROC_PID_INIT_INO).
_FIRST_NAMESPACE = 0xEFFF_FFFC
_ELEMENTS = 1 << 16  # of 4 bytes: more than a small block holds, so that the child maps it

#: Opens a handle, writes to the memory, and prints its findings.
_CHILD = """
import json, sys
import zerocopy as zc
from zerocopy.shared.reading import mapping, was_written

shared = zc.Shared.from_bytes(bytes.fromhex(sys.argv[1]))
array = zc.convert(shared, to="numpy")
mapped = mapping(shared.handle.location)
place = mapped.address + shared.handle.first
right = int(array.sum()) == array.size
before = was_written(place, 1)
mapped[shared.handle.first] = 7
print(json.dumps({"right": right, "pagemap": was_written(place, 1) and not before}))
"""


def processes() -> dict[str, Any]:
    """Return what sharing memory between processes needs, whether it works here, and the engines."""
    return {"checks": checks(), "engines": engines()}


# -- what share() needs -----------------------------------------------------------------


def checks() -> list[dict[str, Any]]:
    """Return a row for each requirement: its name, whether it is satisfied, and the details."""
    if not hasattr(os, "memfd_create"):
        return [_row("shared memory", False, "share() needs Linux, whose memfd has no name to clean up")]
    return [*_try_sharing(), _room(), _descriptors(), _namespace(), _dev_shm()]


def _row(name: str, works: bool, detail: str) -> dict[str, Any]:
    return {"name": name, "works": works, "detail": detail}


def _try_sharing() -> list[dict[str, Any]]:
    """Share an array, open it in a child process, and write to it there."""
    import numpy as np

    from zerocopy._engine.convert import convert
    from zerocopy.shared.share import share

    array = np.ones(_ELEMENTS, "i4")
    try:
        shared = share(array)
    except ZeroCopyError as error:
        return [_row("memfd", False, error.why)]
    rows = [_row("memfd", True, "a sealed segment was allocated")]
    with shared:
        answer, why = _open_in_child(bytes(shared))
        if answer is None:
            return [*rows, _row("opening", False, f"a child process could not open it: {why}")]
        rows.append(_row("opening", answer["right"], "a child process opened it through /proc"))
        unchanged = bool(convert(shared, "numpy").all())
    rows.append(_row("private maps", unchanged, "a write in the child changed no other process"))
    detail = "an unchanged result is shared again without a copy"
    if not answer["pagemap"]:
        detail = "the kernel hides /proc/self/pagemap: a result that is shared again is copied"
    return [*rows, _row("pagemap", answer["pagemap"], detail)]


def _open_in_child(handle: bytes) -> tuple[dict[str, Any] | None, str]:
    """Return the child's findings, or None and its error."""
    path = os.pathsep.join([os.getcwd(), *filter(None, sys.path)])
    environment = {k: v for k, v in os.environ.items() if k != "ZEROCOPY_POOL"} | {"PYTHONPATH": path}
    try:
        done = subprocess.run(
            [sys.executable, "-c", _CHILD, handle.hex()],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            env=environment,
        )
        answer: dict[str, Any] = json.loads(done.stdout)
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines() or [f"exit code {error.returncode}"]
        return None, next((line for line in lines if line.startswith("zerocopy.")), lines[-1])
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return None, str(error)
    return answer, ""


def _room() -> dict[str, Any]:
    from zerocopy.shared import room

    free, limit = room.available()
    of = "the machine's memory" if limit == "memory" else limit
    return _row("room", free > 0, f"{free / (1 << 30):.1f} GiB, limited by {of}")


def _descriptors() -> dict[str, Any]:
    import resource

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return _row("file descriptors", True, "no limit")
    free = limit - len(os.listdir("/proc/self/fd"))
    detail = f"{free:,} of {limit:,} are free; a large object needs one"
    enough = free >= _FEW_DESCRIPTORS
    return _row("file descriptors", enough, detail if enough else f"{detail} (raise it with ulimit -n)")


def _namespace() -> dict[str, Any]:
    from zerocopy.shared.handle import pid_namespace
    from zerocopy.shared.segment_file import VARIABLE

    place = "the machine's own" if pid_namespace() == _FIRST_NAMESPACE else "a container's"
    if os.environ.get(VARIABLE, "0") in ("", "0"):
        return _row("PID namespace", True, f"{place}; {VARIABLE}=1 lets other containers open handles")
    return _row("PID namespace", True, f"{place}; a broker lets other containers open handles")


def _dev_shm() -> dict[str, Any]:
    try:
        total = shutil.disk_usage("/dev/shm").total
    except OSError as error:
        return _row("/dev/shm", True, f"not available ({error.strerror}), and not needed by zerocopy")
    return _row("/dev/shm", True, f"{total / (1 << 30):.1f} GiB, which zerocopy does not use")


# -- engines ----------------------------------------------------------------------------


def engines(version_of: Callable[[str, str], str | None] = installed_version) -> list[dict[str, Any]]:
    """Return a row for each engine that zerocopy integrates; imports none of them."""
    rows = [_engine(*engine, version_of(engine[1], engine[2].partition("[")[0])) for engine in ENGINES]
    standard = {"name": "multiprocessing", "wanted": "", "version": "standard library", "works": True}
    return [*rows, {**standard, "install": ""}]


def _engine(name: str, module: str, distribution: str, oldest: str, version: str | None) -> dict[str, Any]:
    wanted = f"{distribution}>={oldest}" if oldest else distribution
    works = version is not None and version_numbers(version) >= version_numbers(oldest)
    return {
        "name": name,
        "wanted": wanted,
        "version": version,
        "works": works,
        "install": install_line(name),
    }
