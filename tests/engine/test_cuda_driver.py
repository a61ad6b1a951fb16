"""The CUDA driver: the errors without one, and the queries of a fake one."""

from __future__ import annotations

import pytest
from helpers.arrays import sample
from helpers.cuda_producers import POINTER, SpeaksDLPack

import zerocopy as zc
from zerocopy.protocols import cuda_driver

NO_DRIVER = cuda_driver.missing() is not None


class FakeDriver:
    """The functions of libcuda that zerocopy calls."""

    def __init__(self, init=0, devices=2, owner=1):
        self.init, self.devices, self.owner = init, devices, owner

    def cuInit(self, flags):
        return self.init

    def cuDeviceGetCount(self, out):
        out._obj.value = self.devices
        return 0

    def cuGetErrorName(self, code, out):
        out._obj.value = b"CUDA_ERROR_NO_DEVICE"
        return 0

    def cuPointerGetAttribute(self, out, attribute, ptr):
        assert attribute == 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, cuda.h
        assert ptr.value == POINTER
        out._obj.value = self.owner
        return 0 if self.owner is not None else 1


@pytest.mark.parametrize(
    ("driver", "message"),
    [
        (None, "no NVIDIA driver is installed"),
        (FakeDriver(init=100), "CUDA_ERROR_NO_DEVICE"),
        (FakeDriver(devices=0), "shows no device"),
    ],
)
def test_missing_driver_is_explained(monkeypatch, driver, message: str) -> None:
    monkeypatch.setattr(cuda_driver, "driver", lambda: driver)
    assert message in cuda_driver.missing().why
    assert cuda_driver.missing().remedy
    assert cuda_driver.count() == 0
    assert driver is not None or cuda_driver.ordinal(POINTER) is None


def test_driver_counts_devices_and_finds_owners(monkeypatch) -> None:
    monkeypatch.setattr(cuda_driver, "driver", lambda: FakeDriver())
    assert cuda_driver.missing() is None
    assert cuda_driver.count() == 2
    assert cuda_driver.ordinal(POINTER) == 1
    assert cuda_driver.ordinal(0) is None


class CountingDriver(FakeDriver):
    """Counts its initialisations; device 0 has the current context."""

    def __init__(self) -> None:
        super().__init__()
        self.starts = 0

    def cuInit(self, flags):
        self.starts += 1
        return self.init

    def cuCtxGetDevice(self, device):
        device._obj.value = 0
        return 0


def test_an_allocation_does_not_initialise_the_driver_again(monkeypatch) -> None:
    driver = CountingDriver()
    monkeypatch.setattr(cuda_driver, "driver", lambda: driver)
    with cuda_driver.on_device(0):
        started = driver.starts
    for _ in range(3):
        with cuda_driver.on_device(0):
            assert driver.starts == started > 0


@pytest.mark.hazard("robustness#cuda-in-a-child")
def test_a_forked_child_asks_the_driver_again(monkeypatch) -> None:
    driver = CountingDriver()
    monkeypatch.setattr(cuda_driver, "driver", lambda: driver)
    cuda_driver.require("device='cuda'")
    driver.init = 3  # CUDA_ERROR_NOT_INITIALIZED
    cuda_driver.require("device='cuda'")
    monkeypatch.setattr(cuda_driver.os, "getpid", lambda: -1)
    for _ in range(2):
        with pytest.raises(zc.DeviceError, match="does not answer"):
            cuda_driver.require("device='cuda'")


@pytest.mark.skipif(not NO_DRIVER, reason="a driver is installed")
@pytest.mark.parametrize("target", ["cupy", "numba", "torch", "jax"])
def test_cuda_devices_are_refused_without_a_driver(target: str) -> None:
    if not zc.frameworks()[target].installed:
        pytest.skip(f"{target} is not installed")
    for x in (sample("f4"), SpeaksDLPack(sample("f4"))):
        plan = zc.explain(x, target, device="cuda")
        assert isinstance(plan.error, zc.DeviceError), plan
        assert plan.error.remedy
        with pytest.raises(zc.DeviceError, match=r"CUDA|driver|cuda"):
            zc.convert(x, to=target, device="cuda")


@pytest.mark.skipif(not NO_DRIVER, reason="a driver is installed")
@pytest.mark.parametrize("target", ["cupy", "numba"])
def test_gpu_frameworks_are_refused_without_a_driver(target: str) -> None:
    if not zc.frameworks()[target].installed:
        pytest.skip(f"{target} is not installed")
    with pytest.raises(zc.DeviceError, match=r"no NVIDIA driver|does not answer|no device"):
        zc.convert(sample("f4"), to=target)


@pytest.mark.parametrize(("target", "wheel"), [("cupy", "cupy-cuda12x"), ("numba", "numba-cuda")])
def test_error_for_a_missing_gpu_framework_names_its_wheels(run_python, target: str, wheel: str) -> None:
    process = run_python(
        f"""
        import sys
        sys.modules[{target!r}] = None
        import numpy as np, zerocopy as zc
        try: zc.convert(np.ones(3), to={target!r})
        except zc.FrameworkNotInstalledError as error: print(error)
        """
    )
    assert f"pip install {'cupy-cuda13x' if target == 'cupy' else ''}" in process.stdout, process.stderr
    assert wheel in process.stdout
