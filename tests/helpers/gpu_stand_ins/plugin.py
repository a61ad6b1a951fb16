"""The pytest plugin: it installs the four stand-ins before tests are collected.

    PYTHONPATH=tests python -m pytest -p helpers.gpu_stand_ins.plugin --stand-in-devices=2 FILE ...

They remain installed until the process exits, so run nothing else in it.
"""

from __future__ import annotations

import gc
import importlib.machinery
import sys

import pytest

from helpers.gpu_stand_ins import cupy, jax, numba, torch
from helpers.gpu_stand_ins.memory import Devices
from zerocopy.protocols import cuda_driver


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--stand-in-devices", type=int, default=1, help="how many GPUs are pretended")


@pytest.hookimpl(tryfirst=True)  # the conftest's are loaded by this hook, and import frameworks
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    devices = Devices(early_config.known_args_namespace.stand_in_devices)
    _answer_for_the_driver(devices)
    stand_ins = {"cupy": cupy.module(devices), "cupyx": cupy.pinned(), **numba.modules(devices)}
    for name, module in stand_ins.items():
        # find_spec, by which the tests ask what is installed, reads it here.
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        module.__path__, module.__version__ = [], "0"
        sys.modules[name] = module

    import jax as true_jax
    import torch as true_torch

    torch.use(true_torch, devices)
    jax.use(true_jax, devices)


def pytest_collection_finish() -> None:
    # What is imported by now stays: the tests collect garbage some hundred times, of theirs alone.
    gc.freeze()


def pytest_report_header(config: pytest.Config) -> str:
    return f"stand-ins over host memory for {config.option.stand_in_devices} GPUs: nothing here runs on one"


def _answer_for_the_driver(devices: Devices) -> None:
    # Of zerocopy's own, since there is nothing below it to patch: it asks libcuda by ctypes.
    cuda_driver.missing = lambda: None
    cuda_driver.count = lambda: devices.count
    cuda_driver.ordinal = devices.ordinal
    cuda_driver.on_device = devices.on
