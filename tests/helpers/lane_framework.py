"""A GPU framework over `QueueDriver`, whose allocator reuses memory at once in the order of a stream."""

from __future__ import annotations

import sys
from collections import defaultdict
from typing import Any

import numpy as np

import zerocopy as zc
from zerocopy.device import HOST, Device
from zerocopy.framework import Framework, Source
from zerocopy.loading.hook import LoadingHook
from zerocopy.strided_view import StridedView

#: The current stream, and unused memory by the stream that it belongs to and its size.
current = [1]
unused: dict[tuple[int, int], list[np.ndarray]] = defaultdict(list)


class Lane:
    """An array on a device; `values` may be read only by work on a stream."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values


class Pooled(Lane):
    """A `Lane` whose memory is used again as soon as it is dropped."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        nbytes = int(np.prod(shape)) * dtype.itemsize
        self._free = unused[current[0], nbytes]
        self._memory = self._free.pop() if self._free else np.full(nbytes, 0xEE, np.uint8)
        super().__init__(self._memory.view(dtype).reshape(shape))

    def __del__(self) -> None:
        self._free.append(self._memory)


class Lanes(Framework):
    """A framework with arrays on CUDA devices alone."""

    name = "lanes"
    root_modules = (__name__,)
    distribution = "lanes"
    device_kinds = ("cuda",)

    def module(self) -> Any:
        return sys.modules[__name__]

    def installed(self) -> bool:
        return True

    def owns(self, cls: type) -> bool:
        return issubclass(cls, Lane)

    def source(self, obj: Any) -> Source:
        array = obj.values
        dtype = zc.view(array).dtype
        view = StridedView(array.ctypes.data, array.shape, array.strides, dtype, HOST, False, array)
        return Source("lanes.Lane", view, lambda: array)

    def copy_reasons(self, view: StridedView) -> list[Any]:
        return []

    def from_host(self, array: np.ndarray, dtype: Any, device: Device, stream: int | None) -> Any:
        return Lane(array.copy())

    def is_out_of_memory(self, error: Exception) -> bool:
        return "out of lanes" in str(error)


class Loading(LoadingHook):
    """The loader's hook."""

    can_allocate = True

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any], index: int) -> tuple[Any, int]:
        array = Pooled(shape, dtype)
        return array, array.values.ctypes.data

    def current_stream(self, index: int) -> int:
        return current[0]
