"""MXNet for its tests, which are skipped in environments without it."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from zerocopy import registry

HAS_MXNET = registry.by_name("mxnet").installed()
REASON = "MXNet is not installed: it needs a separate environment (tests/mxnet/requirements.txt)"


def mxnet_or_skip() -> ModuleType:
    """Return MXNet, or skip the calling module."""
    # Not pytest.importorskip: Python would import the folder tests/mxnet as a namespace package.
    if not HAS_MXNET:
        pytest.skip(REASON, allow_module_level=True)
    return importlib.import_module("mxnet")


def address(obj: Any) -> int:
    """Return the address of an NDArray or an ndarray, without zerocopy."""
    if isinstance(obj, np.ndarray):
        return obj.__array_interface__["data"][0]
    import ctypes

    import mxnet as mx

    pointer = ctypes.c_void_p()
    mx.base.check_call(mx.base._LIB.MXNDArrayGetData(obj.handle, ctypes.byref(pointer)))
    return pointer.value or 0


def in_onednn_layout() -> Any:
    """Return an array that MXNet stores in oneDNN's layout."""
    import mxnet as mx

    data = mx.nd.arange(2 * 3 * 8 * 8).reshape((2, 3, 8, 8))
    result = mx.nd.Convolution(data, mx.nd.ones((16, 3, 3, 3)), no_bias=True, kernel=(3, 3), num_filter=16)
    result.wait_to_read()
    return result
