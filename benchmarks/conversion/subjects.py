"""The measured frameworks: how each creates an array, and returns its values.

To add a framework, add a row to :data:`SUBJECTS`, and its contenders to
:mod:`benchmarks.conversion.contenders`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.contest import installed
from zerocopy.dtype import NATIVE_NAMES, by_name

Array = np.ndarray[Any, Any]
ALIGNMENT = 64  # bytes; JAX and TensorFlow copy host memory with a smaller alignment


@dataclass(frozen=True)
class Subject:
    """One framework on one device, by its own calls; `name` is what ``to=`` takes.

    ``make(values)`` returns an array, on the host 64-byte-aligned. ``values(array)`` returns an ndarray,
    copied if necessary, and on a device after pending work. ``usable()`` is whether it can use the device.
    """

    name: str
    make: Callable[[Array], Any]
    values: Callable[[Any], Array]
    usable: Callable[[], bool] = lambda: True

    def installed(self) -> bool:
        """Whether it is installed, and can use the device."""
        return installed(self.name) and self.usable()


def aligned_values(count: int, dtype: Any = "float32") -> Array:
    """Return values, not all equal, in new 64-byte-aligned memory."""
    native = numpy_dtype(dtype)
    raw = np.empty(count * native.itemsize + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    values: Array = raw[start : start + count * native.itemsize].view(native)
    values[...] = 1
    # Small numbers, which every dtype can represent; the rest of a large array stays 1.
    head = values[:1000]
    head[...] = (np.arange(len(head)) % 100).astype(native)
    return values


def numpy_dtype(name: Any) -> np.dtype[Any]:
    """Return the NumPy dtype of a standard name, from ``ml_dtypes`` if NumPy does not have it."""
    try:
        return np.dtype(name)
    except TypeError:
        return np.dtype(getattr(import_module("ml_dtypes"), name))


def _torch(values: Array) -> Any:
    import torch

    name = values.dtype.name
    if name in NATIVE_NAMES:
        return torch.tensor(values)
    # ml_dtypes are passed as bits, which torch then views as the dtype.
    return torch.tensor(values.view(by_name(name).storage)).view(getattr(torch, name))


def _torch_values(tensor: Any) -> Array:
    import torch

    name = str(tensor.dtype).removeprefix("torch.")
    if name not in NATIVE_NAMES:
        bits = tensor.view(getattr(torch, by_name(name).storage.name))
        return np.asarray(bits.numpy()).view(numpy_dtype(name))
    values: Array = tensor.numpy()
    return values


def _jax(values: Array) -> Any:
    import jax

    if jax.dtypes.canonicalize_dtype(values.dtype) != values.dtype:
        raise TypeError(f"jax has no {values.dtype.name} while jax_enable_x64 is off")
    with jax.default_device(jax.devices("cpu")[0]):
        return jax.numpy.array(values, copy=True).block_until_ready()


def _tensorflow(values: Array) -> Any:
    import tensorflow as tf

    with tf.device("CPU:0"):
        return tf.constant(values)


SUBJECTS = {
    subject.name: subject
    for subject in (
        Subject("numpy", lambda values: values, lambda array: array),
        Subject("torch", _torch, _torch_values),
        Subject("jax", _jax, np.asarray),
        Subject("tensorflow", _tensorflow, lambda tensor: np.array(tensor.numpy())),
        Subject(
            "pyarrow",
            lambda values: import_module("pyarrow").array(values),
            lambda array: np.asarray(array.to_numpy(zero_copy_only=False)),
        ),
    )
}
