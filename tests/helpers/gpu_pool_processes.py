"""A process for each test of the pool, because pools and frameworks keep process-wide state."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from helpers.gpu_arrays import MARKS  # skips on machines without a GPU
from helpers.gpu_pool_programs import SKIPPED

__all__ = ["MARKS", "Run", "programs"]

Run = Callable[..., subprocess.CompletedProcess[str]]

#: Variables that are removed from the environment of programs.
_CLEAN = (
    "CUPY_GPU_MEMORY_LIMIT",
    "NUMBA_ENABLE_CUDASIM",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "TF_FORCE_GPU_ALLOW_GROWTH",
    "TF_GPU_ALLOCATOR",
    "XLA_PYTHON_CLIENT_ALLOCATOR",
    "XLA_PYTHON_CLIENT_PREALLOCATE",
    "ZEROCOPY_POOL",
)


#: One for all workers of pytest-xdist.
_LOCK = Path(tempfile.gettempdir()) / f"zerocopy-pool-programs-{os.getuid()}.lock"


@contextmanager
def _turn(code: str) -> Iterator[None]:
    """Run programs in parallel, except those that read or fill the free memory of the device."""
    alone = re.search(r"\bfree\(\)", code) is not None
    with _LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


def programs(run_python: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs a program and checks its exit status.

    Keywords are names that the program finds; those in capitals are its environment.
    """
    for name in _CLEAN:
        monkeypatch.delenv(name, raising=False)

    def check(code: str, **names: object) -> subprocess.CompletedProcess[str]:
        given = [f"{name} = {value!r}" for name, value in names.items() if not name.isupper()]
        environment = {name: str(value) for name, value in names.items() if name.isupper()}
        lines = ["from tests.helpers.gpu_pool_programs import *", *given, textwrap.dedent(code)]
        with _turn(code):
            completed = run_python("\n".join(lines), **environment)
        if completed.returncode == SKIPPED:
            pytest.skip(completed.stdout.strip().splitlines()[-1])
        assert completed.returncode == 0, f"{completed.stdout}\n{completed.stderr}"
        print(completed.stdout)  # shown by python -m pytest -rP
        return completed

    return check
