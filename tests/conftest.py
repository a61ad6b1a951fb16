"""Fixtures that all tests share."""

from __future__ import annotations

import os
import signal

# A shell without job control ignores SIGINT in background processes, nohup ignores SIGHUP, and programs
# inherit that. Tests of signals need them in the programs that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Set before TensorFlow is imported: it logs at import and allocates all memory of a GPU.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")

import gc
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator

import pytest
from helpers import cuda_stubs
from helpers.cuda_stubs import Machine
from helpers.frameworks import HOST, registry_restored
from helpers.paths import ROOT
from helpers.tiers import (
    pytest_addoption as pytest_addoption,
    pytest_collection_modifyitems as pytest_collection_modifyitems,
    pytest_configure as pytest_configure,
)

_FEW_MODULES = 50
_modules_when_frozen = 0


def pytest_runtest_setup() -> None:
    """Keep the objects of imported frameworks from garbage collections, which many tests force.

    Once all frameworks are imported, a collection takes 0.3 s of CPU time, and 0.04 ms if they are frozen.
    """
    global _modules_when_frozen
    if len(sys.modules) > _modules_when_frozen + _FEW_MODULES:
        gc.collect()
        gc.freeze()
        _modules_when_frozen = len(sys.modules)


@pytest.fixture(autouse=True, scope="session")
def _x64() -> None:
    """Enable 64-bit types in JAX; tests of 32-bit JAX disable them locally."""
    if "jax" in HOST:
        import jax

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
