"""``Framework.devices()`` starts nothing: neither CUDA, after which no child can use it, nor a backend."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import zerocopy as zc
from zerocopy import registry
from zerocopy._frameworks._obstacles import cuda_devices
from zerocopy.pool import gpus
from zerocopy.protocols import cuda_driver

RunPython = Callable[..., subprocess.CompletedProcess[str]]


def never(*arguments: Any) -> Any:
    raise AssertionError("it would start CUDA, or a backend")


@pytest.fixture
def two_gpus(monkeypatch) -> None:
    """A machine with two GPUs, in a process that has not started CUDA."""
    monkeypatch.setattr(cuda_driver, "driver", lambda: SimpleNamespace(cuCtxGetCurrent=lambda context: 3))
    monkeypatch.setattr(gpus, "count", lambda: 2)
    for name in ("count", "missing", "require"):
        monkeypatch.setattr(cuda_driver, name, never)


def test_nvml_counts_the_gpus_until_cuda_has_started(two_gpus, monkeypatch) -> None:
    assert cuda_devices(never) == ["cuda:0", "cuda:1"]
    monkeypatch.setattr(cuda_driver, "driver", lambda: SimpleNamespace(cuCtxGetCurrent=lambda context: 0))
    assert cuda_devices(lambda: 1) == ["cuda:0"]


def test_the_number_is_unknown_without_nvml(two_gpus, monkeypatch) -> None:
    monkeypatch.setattr(gpus, "count", lambda: None)
    assert cuda_devices(never) == ["cuda"]


def test_there_are_no_gpus_without_a_driver(monkeypatch) -> None:
    monkeypatch.setattr(cuda_driver, "driver", lambda: None)
    assert cuda_devices(never) == []


def test_torch_lists_devices_without_starting_cuda(two_gpus, monkeypatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    for name in ("is_available", "device_count", "init", "current_device"):
        monkeypatch.setattr(torch.cuda, name, never)
    assert registry.by_name("torch").devices() == ["cpu", "cuda:0", "cuda:1"]


def test_tensorflow_lists_devices_without_starting_cuda(two_gpus, monkeypatch) -> None:
    tf = pytest.importorskip("tensorflow")
    monkeypatch.setattr(tf.test, "is_built_with_cuda", lambda: True)
    for name in ("list_physical_devices", "list_logical_devices"):
        monkeypatch.setattr(tf.config, name, never)
    assert registry.by_name("tensorflow").devices() == ["cpu", "cuda:0", "cuda:1"]


@pytest.mark.parametrize(
    ("platforms", "listed"),
    [
        ("", ["cpu", "cuda:0", "cuda:1"]),
        ("cpu", ["cpu"]),
        ("cuda", ["cuda:0", "cuda:1"]),
        ("tpu,cpu", ["cpu"]),
    ],
)
def test_jax_lists_devices_without_starting_a_backend(run_warm: RunPython, platforms: str, listed) -> None:
    pytest.importorskip("jax")
    program = f"""
import importlib.util
import jax
from jax._src import xla_bridge
import zerocopy as zc
from zerocopy.pool import gpus
from zerocopy.protocols import cuda_driver

plain = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: name.startswith("jax_cuda13") or plain(name, *rest)
jax.config.update("jax_platforms", {platforms!r} or None)
cuda_driver.is_started, cuda_driver.driver, gpus.count = lambda: False, object, lambda: 2
print([*zc.frameworks()["jax"].devices], xla_bridge.backends_are_initialized())
"""
    completed = run_warm(program)
    assert completed.stdout == f"{listed} False\n", completed.stderr


def test_jax_lists_the_devices_of_backends_that_have_started() -> None:
    jax = pytest.importorskip("jax")
    jax.numpy.zeros(1)
    assert registry.by_name("jax").devices()[0] == "cpu"


def test_frameworks_starts_no_backend(run_warm: RunPython) -> None:
    """A process that has imported JAX and TensorFlow lists them, and forks."""
    for name in ("jax", "tensorflow", "torch"):
        pytest.importorskip(name)
    program = """
import jax, tensorflow, torch
import zerocopy as zc
rows = zc.frameworks()
from jax._src import xla_bridge
from tensorflow.python.eager import context
print(xla_bridge.backends_are_initialized(), context.context_safe() is None, torch.cuda.is_initialized())
"""
    completed = run_warm(program, JAX_PLATFORMS="")
    assert completed.stdout == "False True False\n", completed.stderr


def test_every_framework_lists_its_devices() -> None:
    for name, row in zc.frameworks().items():
        assert row.devices, name
