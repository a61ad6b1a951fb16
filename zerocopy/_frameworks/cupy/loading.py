"""The loading hook of CuPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from zerocopy import registry
from zerocopy.device import LEGACY_DEFAULT_STREAM
from zerocopy.dtype import from_numpy
from zerocopy.loading.hook import LoadingHook


class Loading(LoadingHook):
    """Arrays of CuPy's memory pool, and CuPy's current stream."""

    can_allocate = True

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any], index: int) -> tuple[Any, int]:
        cupy = registry.by_name("cupy").module()
        known = from_numpy(dtype)
        assert known is not None  # the plan of a batch has refused other types
        with cupy.cuda.Device(index):
            array = cupy.empty(shape, known.storage)
        return array if known.in_numpy else array.view(dtype), array.data.ptr

    def current_stream(self, index: int) -> int:
        cupy = registry.by_name("cupy").module()
        with cupy.cuda.Device(index):
            return cupy.cuda.get_current_stream().ptr or LEGACY_DEFAULT_STREAM
