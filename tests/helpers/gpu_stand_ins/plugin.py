"""The pytest plugin: it installs the four stand-ins before tests are collected.

    PYTHONPATH=tests python -m pytest -p helpers.gpu_stand_ins.plugin --stand-in-devices=2 FILE ...

They remain installed until the process exits, so run nothing else in it.
"""

from __future__ import annotations

import gc
import importlib.machinery
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from helpers.gpu_stand_ins import cupy, jax, numba, torch
from helpers.gpu_stand_ins.memory import Devices
from helpers.queue_driver import QueueDriver
from zerocopy.protocols import cuda_driver


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--stand-in-devices", type=int, default=1, help="number of simulated GPUs")


@pytest.hookimpl(tryfirst=True)  # this hook loads the conftest files, which import frameworks
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    devices = Devices(early_config.known_args_namespace.stand_in_devices)
    _replace_driver_queries(devices)
    stand_ins = {
        "cupy": cupy.module(devices),
        "cupyx": cupy.pinned(),
        **cupy.sparse(),
        **numba.modules(devices),
    }
    for name, module in stand_ins.items():
        # The tests use find_spec to check whether a package is installed, and it reads __spec__.
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        module.__path__, module.__version__ = [], "0"
        sys.modules[name] = module

    import jax as jax_module
    import torch as torch_module

    torch.use(torch_module, devices)
    jax.use(jax_module, devices)


def pytest_collection_finish() -> None:
    # The tests collect garbage some hundred times; imported modules need not be scanned each time.
    gc.freeze()


def pytest_report_header(config: pytest.Config) -> str:
    return f"stand-ins over host memory for {config.option.stand_in_devices} GPUs: no test runs on a GPU"


def _replace_driver_queries(devices: Devices) -> None:
    # zerocopy calls libcuda with ctypes, so its own functions are replaced.
    cuda_driver.missing = lambda: None
    cuda_driver.is_started = lambda: True
    cuda_driver.count = lambda: devices.count
    cuda_driver.ordinal = devices.ordinal
    # The loader calls the driver itself. Work on the stand-ins' streams, the consumers', runs at once.
    driver = QueueDriver()
    driver.own_streams_alone = True

    @contextmanager
    def on_device(index: int) -> Iterator[QueueDriver]:
        with devices.on(index):
            yield driver

    cuda_driver.on_device, cuda_driver.hold = on_device, lambda device: None
    cuda_driver.driver = lambda: driver
