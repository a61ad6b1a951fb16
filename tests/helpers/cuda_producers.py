"""Producers that report host memory as GPU memory, and a framework with two fake GPUs.

The memory is NumPy's; the device pointers are never read.
"""

from __future__ import annotations

import sys
import types

import numpy as np

import zerocopy as zc
from helpers.versions import numpy_capsule
from zerocopy.device import CUDA
from zerocopy.framework import Framework, Source
from zerocopy.protocols import cuda_array_interface, dlpack
from zerocopy.strided_view import StridedView

POINTER = 0x7F00_0000_0000

# -- producers ----------------------------------------------------------------


def capsule_on(array, device=(CUDA, 0), dtype=None, versioned=True):
    """Return NumPy's capsule of host memory, marked as on a device."""
    capsule = numpy_capsule(array, max_version=(1, 0)) if versioned else array.__dlpack__()
    if dtype is not None and not dtype.in_numpy:
        dlpack.retype(capsule, dtype)
    tensor, _ = dlpack._tensor(capsule)
    tensor.device_type, tensor.device_id = device
    return capsule


class SpeaksDLPack:
    """Has DLPack's two methods, and records the requested streams."""

    def __init__(self, array, device=(CUDA, 0), dtype=None, versioned=True, says=None):
        self.array, self.device_, self.dtype_, self.versioned = array, device, dtype, versioned
        self.says = says or device
        self.streams: list[int | None] = []

    def __dlpack__(self, *, stream=None, max_version=None):
        self.streams.append(stream)
        return capsule_on(self.array, self.device_, self.dtype_, self.versioned and max_version is not None)

    def __dlpack_device__(self):
        return self.says


class OldDLPack(SpeaksDLPack):
    """Older than DLPack 1.0: it does not take ``max_version``."""

    def __dlpack__(self, stream=None):
        self.streams.append(stream)
        return capsule_on(self.array, self.device_, self.dtype_, versioned=False)


class SpeaksCAI:
    """Has the CUDA Array Interface alone."""

    def __init__(self, array=None, **entries):
        self.array = array
        self.entries = {
            "shape": () if array is None else array.shape,
            "typestr": "<f4" if array is None else array.dtype.str,
            "data": (POINTER if array is None else array.ctypes.data, False),
            "strides": None if array is None or array.flags.c_contiguous else array.strides,
            "version": 3,
            "stream": None,
        } | entries

    @property
    def __cuda_array_interface__(self):
        return dict(self.entries)


# -- a framework with fake GPUs --------------------------------------


class FakeArray:
    """The fake framework's array: a view, and the object that keeps its memory alive."""

    def __init__(self, view, keeps=None):
        self.view, self.keeps = view, keeps


FakeArray.__module__ = "fakegpu"


class FakeGPU(Framework):
    """A framework with two devices, current stream 7, and no negative strides, which logs its calls."""

    name = "fakegpu"
    root_modules = ("fakegpu",)
    device_kinds = ("cuda",)
    can_copy_to_device = True
    can_export_dlpack = True

    def __init__(self):
        self.log: list[tuple] = []
        sys.modules.setdefault("fakegpu", self.module())  # a relay imports nothing without a CUDA driver

    def module(self):
        return types.ModuleType("fakegpu")

    def installed(self):
        return True

    def owns(self, cls):
        return issubclass(cls, FakeArray)

    def source(self, obj):
        def to_host(stream):
            self.log.append(("to_host", stream))
            return np.arange(obj.view.size, dtype=obj.view.dtype.storage).reshape(obj.view.shape)

        def contiguous():
            self.log.append(("contiguous", str(obj.view.device)))
            return self._fresh(obj.view, obj.view.device)

        def no_host():
            raise AssertionError("zerocopy requested device memory as host memory")

        return Source(
            "fakegpu.Array",
            obj.view,
            no_host,
            "dlpack",
            to_host=to_host,
            producer=obj,
            contiguous=contiguous,
        )

    def _fresh(self, view, device):
        array = np.empty(view.shape, view.dtype.storage)
        return FakeArray(
            StridedView(array.ctypes.data, array.shape, array.strides, view.dtype, device, False, array),
            array,
        )

    def copy_reasons(self, view):
        return [zc.Reason("no negative strides here", "flip it")] if view.has_negative_strides else []

    def can_relay(self, view):
        return True

    def from_host(self, array, dtype, device, stream):
        self.log.append(("from_host", str(device), stream, array.flags.c_contiguous))
        view = StridedView(0, array.shape, array.strides, dtype, device, False, array)
        return self._fresh(view, device)

    def from_device(self, source, stream):
        consumer = 7 if stream is None else stream
        producer = source.producer
        if hasattr(type(producer), "__dlpack__"):
            keeps = dlpack.request(producer, stream=consumer)
            ready = "ordered by the producer"
        else:
            _, ready = cuda_array_interface.read(producer)
            keeps = producer
        self.log.append(("from_device", consumer, ready))
        return FakeArray(source.view, keeps)

    def copy_to_device(self, obj, device, stream):
        self.log.append(("move", str(obj.view.device), str(device), stream))
        return self._fresh(obj.view, device)

    def check_device(self, device):
        super().check_device(device)
        if device.id > 1:
            raise zc.DeviceError("", "there are 2 devices", "name one of them")
