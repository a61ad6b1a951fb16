"""The tables of plans are freed on their own device, whichever device is current then."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from zerocopy.layout.cuda import transposition
from zerocopy.layout.cuda.transposition import DeviceTable


class Gpus:
    """Two devices; `current` is the one that this thread uses."""

    def __init__(self) -> None:
        self.current, self.log = 0, []

    @contextmanager
    def __getitem__(self, index: int) -> Any:
        before, self.current = self.current, index
        try:
            yield
        finally:
            self.current = before

    def event(self) -> Any:
        return SimpleNamespace(wait=lambda stream: self.log.append((self.current, stream)))


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Gpus:
    gpus = Gpus()
    monkeypatch.setattr(transposition, "cuda", SimpleNamespace(gpus=gpus))
    monkeypatch.setattr(transposition, "numba_stream", lambda handle, device: ("default", device))
    return gpus


def table(gpus: Gpus, device: int, kernels: int) -> DeviceTable:
    """Return a table that kernels on some streams have read."""
    made = DeviceTable.__new__(DeviceTable)
    made._device, made._last = device, {(10 + i, 0): gpus.event() for i in range(kernels)}
    return made


def test_a_collection_in_another_devices_context_waits_on_the_tables_device(gpus: Gpus) -> None:
    cycle: list[Any] = [table(gpus, 1, kernels=2)]
    cycle.append(cycle)
    del cycle
    gc.collect()  # in the context of device 0
    assert gpus.log == [(1, ("default", 1))] * 2
    assert gpus.current == 0


def test_a_table_that_no_kernel_has_read_needs_no_device(gpus: Gpus) -> None:
    made = table(gpus, 1, kernels=0)
    del made
    assert gpus.log == []
