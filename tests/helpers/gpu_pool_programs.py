"""Functions for the programs of the pool's tests: calls of each framework, and driver figures.

Each program is a separate process (`gpu_pool_processes`) that imports all names of this module.
The module imports no framework and does not call the driver, so that a program begins in the
state in which `install_pool` is usually called.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import importlib.util
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np

import zerocopy as zc
from zerocopy.pool import install
from zerocopy.pool.attachments import all_hooks
from zerocopy.pool.driver_pool import KEEP_ALL
from zerocopy.protocols import cuda_driver, cuda_pool

MIB = 1 << 20
#: In order of use. cuDF has separate tests.
ALL = ("cupy", "numba", "rmm", "torch", "jax", "tensorflow")
#: Printed by a program that cannot run on this machine.
SKIPPED = 77
__all__ = [
    "ALL",
    "DriverAllocator",
    "KEEP_ALL",
    "MIB",
    "begin",
    "ctypes",
    "cuda_driver",
    "cuda_pool",
    "free",
    "gc",
    "handle",
    "importlib",
    "in_use",
    "install",
    "keep_context",
    "moves",
    "need",
    "np",
    "os",
    "pages_managed_memory",
    "pointer_attribute",
    "present",
    "refused",
    "reserved",
    "settle",
    "side",
    "sides",
    "skip",
    "sys",
    "threading",
    "threshold",
    "time",
    "until",
    "used",
    "zc",
]


def skip(why: str) -> NoReturn:
    """End the program, because this machine lacks a requirement."""
    print(why, flush=True)
    raise SystemExit(SKIPPED)


def _lacks(name: str) -> str | None:
    if importlib.util.find_spec(name) is None:
        return f"{name} is not installed"
    reason = next(each for each in all_hooks() if each.name == name).lacks_gpu()
    return None if reason is None else f"{name}: {reason.why}"


def present(*names: str) -> list[str]:
    """Return the frameworks that are installed for GPUs; none is imported."""
    return [name for name in names or ALL if _lacks(name) is None]


def need(*names: str) -> None:
    """Skip the program unless all are installed for GPUs."""
    for name in names:
        why = _lacks(name)
        if why is not None:
            skip(why)


# -- frameworks, through their own calls ---------------------------------------------------


class Side:
    """One framework, imported by the constructor."""

    name = ""

    def __init__(self) -> None:
        self.module: Any = importlib.import_module(self.name)

    def usable(self) -> bool:
        return True

    def allocate(self, nbytes: int, value: int = 1) -> Any:
        """Return a new array of bytes on the first GPU, all of one value."""
        raise NotImplementedError

    def pointer(self, x: Any) -> int:
        raise NotImplementedError

    def values(self, x: Any) -> np.ndarray:
        raise NotImplementedError


class CuPySide(Side):
    name = "cupy"

    def allocate(self, nbytes, value=1):
        x = self.module.empty(nbytes, np.uint8)
        x.fill(value)
        return x

    def pointer(self, x):
        return x.data.ptr

    def values(self, x):
        return self.module.asnumpy(x)


class TorchSide(Side):
    name = "torch"

    def usable(self):
        return self.module.cuda.is_available()

    def allocate(self, nbytes, value=1):
        return self.module.full((nbytes,), value, dtype=self.module.uint8, device="cuda:0")

    def pointer(self, x):
        return x.data_ptr()

    def values(self, x):
        return x.cpu().numpy()


class JaxSide(Side):
    name = "jax"

    def usable(self):
        try:
            return bool(self.module.devices("cuda"))
        except RuntimeError:
            return False

    def allocate(self, nbytes, value=1):
        host = np.full(nbytes, value, np.uint8)
        return self.module.device_put(host, self.module.devices("cuda")[0]).block_until_ready()

    def pointer(self, x):
        return x.unsafe_buffer_pointer()

    def values(self, x):
        return np.asarray(x)


class NumbaSide(Side):
    name = "numba"

    def __init__(self):
        self.module = importlib.import_module("numba.cuda")

    def usable(self):
        return self.module.is_available()

    def allocate(self, nbytes, value=1):
        x = self.module.device_array(nbytes, np.uint8)
        x.copy_to_device(np.full(nbytes, value, np.uint8))
        return x

    def pointer(self, x):
        return x.__cuda_array_interface__["data"][0]

    def values(self, x):
        return x.copy_to_host()


class RMMSide(Side):
    name = "rmm"

    def allocate(self, nbytes, value=1):
        return self.module.DeviceBuffer.to_device(np.full(nbytes, value, np.uint8))

    def pointer(self, x):
        return x.ptr

    def values(self, x):
        return np.asarray(x.copy_to_host())


class TensorFlowSide(Side):
    name = "tensorflow"

    def usable(self):
        return bool(self.module.config.list_physical_devices("GPU"))

    def allocate(self, nbytes, value=1):
        with self.module.device("GPU:0"):
            return self.module.fill([nbytes], self.module.constant(value, self.module.uint8))

    def pointer(self, x):
        return 0  # no public call reports it

    def values(self, x):
        return x.numpy()


_KINDS = {kind.name: kind for kind in (CuPySide, TorchSide, JaxSide, NumbaSide, RMMSide, TensorFlowSide)}
_made: dict[str, Side] = {}


def side(name: str) -> Side:
    """Import a framework; skip the program if it cannot be used."""
    need(name)
    result = _made.setdefault(name, _made.get(name) or _KINDS[name]())
    if not result.usable():
        skip(f"{name} finds no GPU")
    return result


def sides(*names: str) -> Iterator[Side]:
    """Import the installed frameworks, and yield those that find a GPU."""
    for name in present(*names):
        result = _made.setdefault(name, _made.get(name) or _KINDS[name]())
        if result.usable():
            yield result
        else:
            print(f"{name} finds no GPU")


# -- pools and figures ----------------------------------------------------------------


class DriverAllocator:
    """A custom allocator over the driver's synchronous calls."""

    def __init__(self) -> None:
        self.out: dict[int, int] = {}
        self._lock = threading.Lock()

    def allocate(self, nbytes: int, stream: int) -> int:
        ptr = ctypes.c_uint64()
        with cuda_driver.on_device(0) as library:
            cuda_driver.hold(0)  # otherwise the memory ends with this context
            if library.cuMemAlloc_v2(ctypes.byref(ptr), ctypes.c_size_t(nbytes)):
                raise MemoryError(f"cuMemAlloc of {nbytes} bytes")
        with self._lock:
            self.out[ptr.value] = nbytes
        return ptr.value

    def deallocate(self, ptr: int, nbytes: int, stream: int) -> None:
        with self._lock:
            assert self.out.pop(ptr) == nbytes
        with cuda_driver.on_device(0) as library:
            cuda_driver.call(library.cuMemFree_v2, ctypes.c_uint64(ptr))


def begin(kind: str, **options: Any) -> zc.Pool:
    """Install a pool for all frameworks, torch on RMM's kinds too; skip if it is unavailable."""
    options.setdefault("frameworks", present())
    if kind != "driver":
        need("rmm")
    if kind == "rmm:arena":
        options.setdefault("initial", "1GiB")  # by default RMM takes half of the GPU
    if kind == "custom":
        return zc.install_pool(allocator=DriverAllocator(), **options)
    try:
        return zc.install_pool(kind, **options)
    except zc.errors.PoolUnavailableError as error:
        if "concurrent managed access" not in str(error):
            raise
        skip(str(error))


def pages_managed_memory() -> bool:
    """Whether host and device may access managed memory at once; initialises the driver."""
    return cuda_driver.missing() is None and cuda_pool.pages_managed_memory(0)


def keep_context() -> None:
    """Keep the device's context, as frameworks do, because creating one takes memory and time."""
    cuda_driver.missing()
    context = ctypes.c_void_p()
    cuda_driver.call(cuda_driver.driver().cuDevicePrimaryCtxRetain, ctypes.byref(context), 0)


def settle() -> None:
    """Collect garbage, and synchronise the device."""
    gc.collect()
    with cuda_driver.on_device(0) as library:
        cuda_driver.call(library.cuCtxSynchronize)


def until(true: Callable[[], bool], seconds: float = 10) -> bool:
    """Wait for a condition: JAX frees in a separate thread."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        settle()
        if true():
            return True
        time.sleep(0.01)
    return False


def handle() -> int:
    """Return the handle of the device's default pool."""
    return cuda_pool.default_pool(0)


def used() -> int:
    """Return the used bytes of the default pool."""
    return cuda_pool.get_attribute(0, handle(), cuda_pool.USED_CURRENT)


def reserved() -> int:
    """Return the reserved bytes of the default pool."""
    return cuda_pool.get_attribute(0, handle(), cuda_pool.RESERVED_CURRENT)


def threshold() -> int:
    """Return the release threshold of the default pool."""
    return cuda_pool.get_attribute(0, handle(), cuda_pool.RELEASE_THRESHOLD)


def free() -> int:
    """Return the free bytes of the device (``cuMemGetInfo``)."""
    return cuda_driver.memory_info(0)[0]


def in_use(pool: zc.Pool) -> int:
    """Return the used bytes of a pool, from the driver or from RMM."""
    return used() if pool.kind == "driver" else pool.stats(0).current_bytes


def pointer_attribute(ptr: int, number: int) -> int:
    """Return a ``CUpointer_attribute`` of four bytes; -1 for an unknown address."""
    value = ctypes.c_uint()
    with cuda_driver.on_device(0) as library:
        code = library.cuPointerGetAttribute(ctypes.byref(value), number, ctypes.c_uint64(ptr))
    return value.value if code == 0 else -1


def moves(framework: Side, pool: zc.Pool, nbytes: int = 8 * MIB) -> None:
    """Check that an array uses memory of the pool until it dies, and has the right values."""
    name = framework.name
    framework.values(framework.allocate(MIB))  # created once: kernels, handles
    settle()
    before = in_use(pool)
    x = framework.allocate(nbytes, 7)
    settle()
    more = in_use(pool) - before
    assert more >= nbytes, f"{name}: {nbytes} bytes were allocated, the pool provided {more}"
    assert (framework.values(x) == 7).all(), name
    del x
    assert until(lambda: in_use(pool) < before + MIB), f"{name}: {in_use(pool) - before} bytes stay in use"
    print(f"{name}: {more} bytes of {nbytes} from the pool, and back")


def refused(kind: type[BaseException], call: Callable[[], Any]) -> Any:
    """Check that a call raises, and return the error."""
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")
