"""What the tests share: the frameworks that run here, and arrays in all their shapes."""

from __future__ import annotations

import os

# Before TensorFlow is imported, which logs at import and takes all memory of a GPU.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")

import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from zerocopy import registry
from zerocopy.protocols.array_interface import aligned_empty

ROOT = Path(__file__).parents[1]


def host_frameworks() -> list[str]:
    """Every framework that the registry knows, that is installed and lives on the host."""
    return [
        name
        for name, info in registry.frameworks().items()
        if info.installed and info.kind != "table" and "cpu" in registry.by_name(name).device_kinds
    ]


HOST = host_frameworks()
PAIRS = [(source, target) for source in HOST for target in HOST]


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


def aligned(values: object, dtype: object = None) -> np.ndarray:
    """Return a writable, row-major array at a multiple of 64 bytes with those values."""
    given = np.asarray(values, dtype)
    array = aligned_empty(given.shape, given.dtype)
    array[...] = given
    return array


def sample(dtype: object, shape: tuple[int, ...] = (4, 3)) -> np.ndarray:
    """Return distinct small values of a dtype, negative and complex ones where it has them."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape, dtype=int))
    numbers = np.arange(count) % 7 - (0 if dtype.kind in "ub" else 3)
    if dtype.kind == "b":
        numbers = numbers % 2
    values = numbers.astype(dtype)
    if dtype.kind == "c":
        values = (values + 1j * (numbers + 1)).astype(dtype)
    return aligned(values.reshape(shape))


def bits(array: np.ndarray) -> bytes:
    """Return the bytes of an array's values: equal for NaN and -0.0 too."""
    return np.ascontiguousarray(array).tobytes()


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
