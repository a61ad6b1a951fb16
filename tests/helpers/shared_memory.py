"""Processes for tests of shared memory, and figures of this one."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Sequence

from helpers.paths import ROOT

#: Opens the handle of the first argument; prints the array's sum, or the error's class.
READER = """
    import sys, zerocopy as zc
    for text in sys.argv[1:]:
        try:
            print(int(zc.convert(zc.Shared.from_bytes(bytes.fromhex(text)), to="numpy").sum()), flush=True)
        except zc.ZeroCopyError as error:
            print(type(error).__name__, error, flush=True)
"""


def run_reader(
    *handles: object, code: str = READER, before: Sequence[str] = (), **env: str
) -> subprocess.CompletedProcess[str]:
    """Run code in another process, with handles as its arguments, behind the words `before`."""
    return subprocess.run(
        [*before, sys.executable, "-c", textwrap.dedent(code), *(bytes(handle).hex() for handle in handles)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
        env={**os.environ, **env},
    )


def open_memfds() -> int:
    """Return how many descriptors of segments this process has open."""
    count = 0
    for fd in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{fd}") == "/memfd:zerocopy (deleted)"
        except OSError:  # the descriptor of the listing itself
            continue
    return count


def memfd_bytes() -> int:
    """Return the bytes that the kernel has allocated for the segments that this process has open."""
    allocated = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{fd}") == "/memfd:zerocopy (deleted)":
                status = os.fstat(int(fd))
                allocated[status.st_ino] = 512 * status.st_blocks
        except OSError:  # the descriptor of the listing itself
            continue
    return sum(allocated.values())


def in_child(function) -> int:
    """Run a function in a forked child, and return its exit status; 1 if it raises."""
    import signal

    child = os.fork()
    if not child:
        status = 1
        try:
            signal.alarm(60)
            function()
            status = 0
        except BaseException:  # noqa: BLE001  # the child must end here
            import traceback

            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
