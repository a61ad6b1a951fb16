"""The CUDA driver, asked through ctypes: is there one, and on which device is a pointer.

Nothing here makes a context or allocates: a machine without a driver, a pointer
that is not CUDA's, are answers and not errors.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any

from zerocopy.errors import Reason

# CUpointer_attribute, cuda.h.
_DEVICE_ORDINAL = 9


@functools.cache
def _library() -> Any:
    """Return the driver's library, or None where it is not installed."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None


def _error_name(library: Any, code: int) -> str:
    name = ctypes.c_char_p()
    known = library.cuGetErrorName(code, ctypes.byref(name)) == 0 and name.value
    return name.value.decode() if known and name.value else f"CUDA error {code}"


def missing() -> Reason | None:
    """Return why no CUDA device can be used on this machine; None if one can.

    Returns
    -------
    Reason or None
        No driver, a driver that does not answer, or no device that it shows.
    """
    library = _library()
    if library is None:
        return Reason(
            "no NVIDIA driver is installed (libcuda is not found)",
            "install the driver, or run where nvidia-smi lists a GPU",
        )
    code = library.cuInit(0)
    if code:
        return Reason(
            f"the NVIDIA driver does not answer ({_error_name(library, code)})",
            "check nvidia-smi, and that CUDA_VISIBLE_DEVICES names a device",
        )
    if count() == 0:
        return Reason(
            "the NVIDIA driver shows no device",
            "check nvidia-smi, and that CUDA_VISIBLE_DEVICES names a device",
        )
    return None


def count() -> int:
    """Return how many devices the driver shows; 0 without a driver."""
    library = _library()
    number = ctypes.c_int(0)
    if library is None or library.cuInit(0) or library.cuDeviceGetCount(ctypes.byref(number)):
        return 0
    return number.value


def ordinal(ptr: int) -> int | None:
    """Return the index of the device whose memory an address is in; None if the driver cannot tell.

    The CUDA Array Interface names no device; its specification leaves what else there
    is to know of a pointer to ``cuPointerGetAttribute``.

    Parameters
    ----------
    ptr : int
        Never read; 0, which zero-size arrays have, is on no device.
    """
    library = _library()
    number = ctypes.c_int(0)
    if library is None or ptr == 0 or library.cuInit(0):
        return None
    code = library.cuPointerGetAttribute(ctypes.byref(number), _DEVICE_ORDINAL, ctypes.c_uint64(ptr))
    return number.value if code == 0 else None
