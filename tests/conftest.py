"""Fixtures that all tests share."""

from __future__ import annotations

import os

# Before TensorFlow is imported, which logs at import and takes all memory of a GPU.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")

import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator

import pytest
from helpers.frameworks import HOST
from helpers.paths import ROOT

from zerocopy import registry


@pytest.fixture(autouse=True, scope="session")
def _x64() -> None:
    """JAX with 64 bits: the x64-off cases turn it off for themselves."""
    if "jax" in HOST:
        import jax

        jax.config.update("jax_enable_x64", True)


@pytest.fixture(autouse=True)
def _registry_as_it_was() -> Iterator[None]:
    """Frameworks that a test registers go with it."""
    known, roots = dict(registry._known), {k: list(v) for k, v in registry._by_root.items()}
    yield
    if registry._known != known:
        registry._known.clear()
        registry._known.update(known)
        registry._by_root.clear()
        registry._by_root.update(roots)
        registry._by_type.clear()
        for forget in registry._listeners:
            forget()


@pytest.fixture
def run_python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run code in a process of its own: for what could kill it, and for imports."""

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
