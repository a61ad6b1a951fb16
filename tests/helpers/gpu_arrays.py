"""Helpers of the GPU tests: each framework's functions to create, read and locate its arrays.

    python -m pytest tests/gpu

Arrays are created and read without zerocopy, so that it does not check itself. Tests of a framework
that is not installed or finds no GPU are skipped.
"""

from __future__ import annotations

import os

# Set before JAX is imported, which otherwise reserves three quarters of the GPU's memory.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import importlib
import importlib.util
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from zerocopy.dtype import ALL, NATIVE_NAMES, SUBBYTE_NAMES, by_name, to_numpy
from zerocopy.protocols import cuda_driver

MISSING = cuda_driver.missing()
if MISSING is not None:
    pytest.skip(f"no GPU: {MISSING.why}", allow_module_level=True)

#: Warnings of frameworks about themselves (small grids, deprecations) are not errors.
MARKS = [pytest.mark.filterwarnings("default")]

NAMES = ["cupy", "torch", "jax", "numba"]
PAIRS = [(source, target) for source in NAMES for target in NAMES if source != target]
DTYPES = [t.name for t in ALL if to_numpy(t) is not None and t.name not in SUBBYTE_NAMES]
#: Dtypes that every framework exports: refusing them is an error.
CORE = [n for n in sorted(NATIVE_NAMES) if n not in ("uint16", "uint32", "uint64")] + ["bfloat16"]
DEVICE = "cuda:0"


class Side:
    """One framework, with arrays created and read by its own functions only."""

    name = ""

    def missing(self) -> str | None:
        """Return why the framework cannot be tested on this machine, or None."""
        raise NotImplementedError

    def plain(self, array: np.ndarray) -> Any:
        """Return a new array on the GPU with one of NumPy's dtypes."""
        raise NotImplementedError

    def view_as(self, x: Any, dtype: Any) -> Any:
        return x.view(dtype)

    def make(self, array: np.ndarray) -> Any:
        """Return a new array on the GPU with these values, of any dtype."""
        name = array.dtype.name
        if name in NATIVE_NAMES:
            return self.plain(array)
        return self.view_as(self.plain(array.view(by_name(name).storage)), array.dtype)

    def lay(self, array: np.ndarray, change: Callable[[Any], Any]) -> Any:
        """Return a fresh array with these values after `change`, such as a transpose or a slice."""
        return change(self.make(array))

    def values(self, x: Any) -> np.ndarray:
        """Return an array's values after pending work; for dtypes that NumPy lacks, their bits."""
        raise NotImplementedError

    def pointer(self, x: Any) -> int:
        raise NotImplementedError

    def holds(self, dtype: str) -> bool:
        return True

    def fill(self, x: Any, value: float) -> None:
        """Write to all elements, on the current stream; not for JAX."""
        x[...] = value

    def broadcast(self, array: np.ndarray, shape: tuple[int, ...]) -> Any:
        raise NotImplementedError

    def is_array(self, x: Any) -> bool:
        raise NotImplementedError


class CuPySide(Side):
    name = "cupy"

    def missing(self):
        cupy = importlib.import_module("cupy")
        return None if cupy.is_available() else "CuPy finds no GPU"

    def plain(self, array):
        return importlib.import_module("cupy").array(array)

    def values(self, x):
        cupy = importlib.import_module("cupy")
        return cupy.asnumpy(_native(x, x.dtype.name, self))

    def pointer(self, x):
        return x.data.ptr

    def broadcast(self, array, shape):
        return importlib.import_module("cupy").broadcast_to(self.make(array), shape)

    def is_array(self, x):
        return isinstance(x, importlib.import_module("cupy").ndarray) and x.device.id == 0


class TorchSide(Side):
    name = "torch"

    def missing(self):
        torch = importlib.import_module("torch")
        return None if torch.cuda.is_available() else "torch finds no GPU"

    def plain(self, array):
        torch = importlib.import_module("torch")
        return torch.from_numpy(np.array(array, order="C")).to(DEVICE)

    def view_as(self, x, dtype):
        torch = importlib.import_module("torch")
        return x.view(getattr(torch, np.dtype(dtype).name))

    def values(self, x):
        torch = importlib.import_module("torch")
        name = str(x.dtype).removeprefix("torch.")
        if name not in NATIVE_NAMES:
            x = x.view(getattr(torch, by_name(name).storage.name))
        return x.detach().resolve_conj().resolve_neg().cpu().numpy()

    def pointer(self, x):
        return x.data_ptr()

    def holds(self, dtype):
        return hasattr(importlib.import_module("torch"), dtype)

    def fill(self, x, value):
        x.fill_(value)

    def broadcast(self, array, shape):
        return self.make(array).expand(shape)

    def is_array(self, x):
        torch = importlib.import_module("torch")
        return isinstance(x, torch.Tensor) and x.device == torch.device(DEVICE)


class JaxSide(Side):
    name = "jax"

    def missing(self):
        jax = importlib.import_module("jax")
        try:
            jax.devices("cuda")
        except RuntimeError as error:
            return f"JAX finds no GPU: {error}"
        jax.config.update("jax_enable_x64", True)
        return None

    def make(self, array):
        jax = importlib.import_module("jax")
        # From a separate copy: JAX may keep the host memory.
        return jax.device_put(np.array(array), jax.devices("cuda")[0]).block_until_ready()

    def values(self, x):
        array = np.array(x)
        return array if array.dtype.name in NATIVE_NAMES else array.view(by_name(array.dtype.name).storage)

    def pointer(self, x):
        return x.block_until_ready().unsafe_buffer_pointer()

    def holds(self, dtype):
        return hasattr(importlib.import_module("jax").numpy, dtype if dtype != "bool" else "bool_")

    def broadcast(self, array, shape):
        jax = importlib.import_module("jax")
        return jax.numpy.broadcast_to(self.make(array), shape)

    def is_array(self, x):
        jax = importlib.import_module("jax")
        return isinstance(x, jax.Array) and set(x.devices()) == {jax.devices("cuda")[0]}


class NumbaSide(Side):
    name = "numba"

    def missing(self):
        cuda = importlib.import_module("numba.cuda")
        return None if cuda.is_available() else "Numba finds no GPU, or lacks NVVM: see numba -s"

    def plain(self, array):
        return importlib.import_module("numba.cuda").to_device(np.array(array, order="C"))

    def lay(self, array, change):
        laid = change(array)
        if laid.flags.f_contiguous and not laid.flags.c_contiguous:
            # Numba's .T is not a view: a kernel, compiled in each call, writes a row-major copy.
            return importlib.import_module("numba.cuda").to_device(laid)
        return super().lay(array, change)

    def values(self, x):
        cuda = importlib.import_module("numba.cuda")
        cuda.synchronize()
        plain = _native(x, x.dtype.name, self)
        if any(s < 0 for s in plain.strides):  # copy_to_host refuses them
            fresh = cuda.device_array(plain.shape, plain.dtype)
            fresh[:] = plain
            plain = fresh
        array = plain.copy_to_host()
        cuda.synchronize()  # the copy of an array with a stream is asynchronous
        return array

    def pointer(self, x):
        return x.__cuda_array_interface__["data"][0]

    def fill(self, x, value):
        x.copy_to_device(np.full(x.shape, value, x.dtype))

    def broadcast(self, array, shape):
        return importlib.import_module("numba.cuda").to_device(np.broadcast_to(array, shape))

    def is_array(self, x):
        return importlib.import_module("numba.cuda.cudadrv.devicearray").is_cuda_ndarray(x)


def _native(x: Any, dtype: str, side: Side) -> Any:
    return x if dtype in NATIVE_NAMES else side.view_as(x, by_name(dtype).storage)


SIDES = {side.name: side for side in (CuPySide(), TorchSide(), JaxSide(), NumbaSide())}


@cache
def _missing(name: str) -> str | None:
    if importlib.util.find_spec(name) is None:
        return f"{name} is not installed"
    return SIDES[name].missing()


def side(name: str) -> Side:
    """Return a framework's `Side`, or skip the test if it is not available."""
    reason = _missing(name)
    if reason is not None:
        pytest.skip(reason)
    return SIDES[name]


def have(*names: str) -> bool:
    """Whether all these frameworks can be tested here."""
    return all(_missing(name) is None for name in names)


def sample(dtype: str = "float32", shape: tuple[int, ...] = (6, 4)) -> np.ndarray:
    """Return distinct small values of a dtype, including negative and complex ones if it has them."""
    numpy_type = to_numpy(by_name(dtype))
    numbers = np.arange(int(np.prod(shape, dtype=int))) % 7
    if dtype == "bool":
        numbers = numbers % 2
    elif dtype == "float8_e8m0fnu":  # only powers of two
        numbers = 2.0 ** (numbers % 4)
    elif not dtype.startswith("uint"):
        numbers = numbers - 3
    values = numbers.astype(numpy_type)
    if dtype.startswith("complex"):
        values = (numbers + 1j * (numbers + 1)).astype(numpy_type)
    return values.reshape(shape)


def bits(array: np.ndarray) -> np.ndarray:
    """Return values in comparable form: dtypes that NumPy lacks as their bits."""
    name = array.dtype.name
    return array if name in NATIVE_NAMES else array.view(by_name(name).storage)


def same(side: Side, x: Any, expected: np.ndarray) -> None:
    """Check an array's shape, dtype and values with the framework's own functions."""
    values, expected = side.values(x), bits(expected)
    assert values.dtype == expected.dtype
    assert values.shape == expected.shape
    assert np.array_equal(values, expected), f"{values!r} is not {expected!r}"


class DLPackAlone:
    """A producer with DLPack's two methods alone."""

    def __init__(self, x: Any):
        self._x = x

    def __dlpack__(self, **options: Any) -> Any:
        if type(self._x).__module__.startswith("jax") and options.get("stream") == -1:
            options["stream"] = 1  # XLA uses -1 as a stream handle
        return self._x.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._x.__dlpack_device__()


class InterfaceAlone:
    """A producer with the CUDA Array Interface alone."""

    def __init__(self, x: Any, **entries: Any):
        self._x, self._entries = x, entries

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return dict(self._x.__cuda_array_interface__) | self._entries


def free_bytes() -> int:
    """Return the driver's figure of free memory on the device (``cudaMemGetInfo``)."""
    if have("torch"):
        return importlib.import_module("torch").cuda.mem_get_info(0)[0]
    if have("cupy"):
        return importlib.import_module("cupy").cuda.runtime.memGetInfo()[0]
    return importlib.import_module("numba.cuda").current_context().get_memory_info().free
