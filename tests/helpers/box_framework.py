"""A framework for tests. It keeps every promise; a test's subclass breaks one."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import zerocopy as zc
from zerocopy.device import HOST as CPU_DEVICE, Device
from zerocopy.dtype import to_numpy
from zerocopy.errors import Reason
from zerocopy.framework import Framework, Source
from zerocopy.strided_view import StridedView


class Box:
    """An array of `Boxes`."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array


class Boxes(Framework):
    """A framework that keeps every promise; tests override methods to break one."""

    name = "boxes"
    root_modules = (__name__.partition(".")[0],)
    distribution = "boxes-for-arrays"

    def module(self) -> Any:
        return sys.modules[__name__]

    def installed(self) -> bool:
        return True

    def owns(self, cls: type) -> bool:
        return issubclass(cls, Box)

    def source(self, obj: Any) -> Source:
        array = obj.array
        dtype = zc.view(array).dtype
        view = StridedView(
            array.ctypes.data, array.shape, array.strides, dtype, CPU_DEVICE, not array.flags.writeable, array
        )
        return Source("boxes.Box", view, lambda: array)

    def copy_reasons(self, view: StridedView) -> list[Reason]:
        return []

    def from_host(self, array: np.ndarray, dtype: Any, device: Device, stream: int | None) -> Any:
        return Box(array.view(to_numpy(dtype)))
