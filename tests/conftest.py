"""Fixtures that all tests share."""

from __future__ import annotations

import os
import signal

# A shell without job control ignores SIGINT in background processes, nohup ignores SIGHUP, and programs
# inherit that. Tests of signals need them in the programs that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # not on Windows
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Set before TensorFlow is imported: it logs at import and allocates all memory of a GPU.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")

# Idle threads of OpenMP wait without using a processor, which other tests need.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# Hundreds of tests start processes. Without bytecode each would compile the package, 0.1 s of CPU time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import gc
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers import cuda_stubs
from helpers.cuda_stubs import Machine
from helpers.frameworks import HOST, registry_restored
from helpers.paths import ROOT
from helpers.tiers import (
    pytest_addoption as pytest_addoption,
    pytest_collection_finish as pytest_collection_finish,
    pytest_collection_modifyitems as pytest_collection_modifyitems,
    pytest_configure as pytest_configure,
    runs_all,
)
from helpers.versions import has
from helpers.warm import WarmProcess

sys.dont_write_bytecode = False  # pytest's assertions in the tests too

_MANY_MODULES = 50
_getpid = os.getpid  # some tests replace it
_PID = os.getpid()
_file_when_frozen: Path | None = None
_modules_when_frozen = 0


def pytest_runtest_makereport() -> None:
    """End a forked child whose test has raised: it would run the other tests, as another user in some."""
    if _getpid() != _PID:
        os._exit(1)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Keep what exists before the tests of a file, and imported modules, from garbage collections.

    Many tests force some. With all frameworks one takes 0.3 to 1 s of CPU time; 0.04 ms if they are frozen.
    """
    global _file_when_frozen, _modules_when_frozen
    if item.path != _file_when_frozen or len(sys.modules) > _modules_when_frozen + _MANY_MODULES:
        gc.collect()
        gc.freeze()
        _file_when_frozen, _modules_when_frozen = item.path, len(sys.modules)


@pytest.fixture(autouse=True)
def _x64() -> None:
    """Enable 64-bit types in JAX, also after a test that ran with JAX's default."""
    if "jax" in HOST:
        import jax

        if not jax.config.jax_enable_x64:
            jax.config.update("jax_enable_x64", True)


@pytest.fixture(autouse=True)
def _restored_registry() -> Iterator[None]:
    """Remove the frameworks that a test registers."""
    with registry_restored():
        yield


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """Replace CuPy and ``numba.cuda`` by stand-ins over host memory that simulates two GPUs."""
    yield cuda_stubs.install(monkeypatch)
    cuda_stubs.forget()


@pytest.fixture
def run_python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs code in a subprocess: code that can crash, or that checks imports."""

    def run(code: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            capture_output=True,
            text=True,
            timeout=300,
            cwd=ROOT,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **env},
        )

    return run


@pytest.fixture(scope="session")
def warm_process() -> Iterator[WarmProcess]:
    """A process that has imported the frameworks; it starts with the first test that needs it."""
    process = WarmProcess()
    yield process
    process.close()


@pytest.fixture
def run_warm(warm_process: WarmProcess) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs code in a child of a process that has imported the frameworks only.

    The child starts at once and imports zerocopy itself. Use it for code that can crash, unless it is about
    the import of a framework; `run_finalized` is for code that is about the end of the interpreter.
    """
    return warm_process.run


@pytest.fixture
def run_finalized(run_python: Any, run_warm: Any) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs code in a process that ends as any interpreter does.

    It is a child as in `run_warm`, unless every test runs whole. There, the frameworks' own objects are never
    freed. With polars 2.0.0 and TensorFlow, the end of such a child crashes, also without zerocopy.
    """
    fresh = runs_all() or not has("polars", "2.0.1")
    return run_python if fresh else partial(run_warm, finalized=True)
