"""What the programs of the pool's tests use: each framework's own calls, and the driver's figures.

A program is a process of its own (`gpu_pool_processes`), and begins with all of this imported.
No framework is imported and the driver is not called before a program asks for it: what is
tested is what `install_pool` makes of a fresh process.
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
from zerocopy.pool import hook, install
from zerocopy.pool.driver_pool import KEEP_ALL
from zerocopy.protocols import cuda_driver, cuda_pool

MIB = 1 << 20
#: In the order in which they are used. cuDF has tests of its own.
ALL = ("cupy", "numba", "rmm", "torch", "jax", "tensorflow")
#: How a program says that it cannot be run here.
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
    """End the program: what it tests is not to be had here."""
    print(why, flush=True)
    raise SystemExit(SKIPPED)


def _lacks(name: str) -> str | None:
    if importlib.util.find_spec(name) is None:
        return f"{name} is not installed"
    reason = next(each for each in hook.hooks() if each.name == name).lacks_gpu()
    return None if reason is None else f"{name}: {reason.why}"


def present(*names: str) -> list[str]:
    """Return those (of all) that are installed for GPUs; none is imported."""
    return [name for name in names or ALL if _lacks(name) is None]


def need(*names: str) -> None:
    """Skip the program where one of them is not installed for GPUs."""
    for name in names:
        why = _lacks(name)
        if why is not None:
            skip(why)


# -- frameworks, by their own calls ---------------------------------------------------


class Side:
    """One framework; making it imports it."""

    name = ""

    def __init__(self) -> None:
        self.module: Any = importlib.import_module(self.name)

    def usable(self) -> bool:
        return True

    def take(self, nbytes: int, value: int = 1) -> Any:
        """Return fresh bytes on the first GPU, all of one value."""
        raise NotImplementedError

    def pointer(self, x: Any) -> int:
        raise NotImplementedError

    def values(self, x: Any) -> np.ndarray:
        raise NotImplementedError


class CuPySide(Side):
    name = "cupy"

    def take(self, nbytes, value=1):
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

    def take(self, nbytes, value=1):
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

    def take(self, nbytes, value=1):
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

    def take(self, nbytes, value=1):
        x = self.module.device_array(nbytes, np.uint8)
        x.copy_to_device(np.full(nbytes, value, np.uint8))
        return x

    def pointer(self, x):
        return x.__cuda_array_interface__["data"][0]

    def values(self, x):
        return x.copy_to_host()


class RMMSide(Side):
    name = "rmm"

    def take(self, nbytes, value=1):
        return self.module.DeviceBuffer.to_device(np.full(nbytes, value, np.uint8))

    def pointer(self, x):
        return x.ptr

    def values(self, x):
        return np.asarray(x.copy_to_host())


class TensorFlowSide(Side):
    name = "tensorflow"

    def usable(self):
        return bool(self.module.config.list_physical_devices("GPU"))

    def take(self, nbytes, value=1):
        with self.module.device("GPU:0"):
            return self.module.fill([nbytes], self.module.constant(value, self.module.uint8))

    def pointer(self, x):
        return 0  # nothing public tells

    def values(self, x):
        return x.numpy()


_KINDS = {kind.name: kind for kind in (CuPySide, TorchSide, JaxSide, NumbaSide, RMMSide, TensorFlowSide)}
_made: dict[str, Side] = {}


def side(name: str) -> Side:
    """Return a framework, imported; skip the program where it cannot be used."""
    need(name)
    found = _made.setdefault(name, _made.get(name) or _KINDS[name]())
    if not found.usable():
        skip(f"{name} sees no GPU")
    return found


def sides(*names: str) -> Iterator[Side]:
    """Import those (of all) that are here, and give the ones that see a GPU."""
    for name in present(*names):
        found = _made.setdefault(name, _made.get(name) or _KINDS[name]())
        if found.usable():
            yield found
        else:
            print(f"{name} sees no GPU")


# -- pools and figures ----------------------------------------------------------------


class DriverAllocator:
    """An allocator of one's own: the driver's plain calls, which know no streams."""

    def __init__(self) -> None:
        self.out: dict[int, int] = {}
        self._lock = threading.Lock()

    def allocate(self, nbytes: int, stream: int) -> int:
        ptr = ctypes.c_uint64()
        with cuda_driver.on_device(0) as library:
            cuda_driver.hold(0)  # where no framework has its context yet, memory would go with this one
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
    """Install a pool for all that is here, torch on RMM's kinds too; skip where it cannot be."""
    options.setdefault("frameworks", present())
    if kind != "driver":
        need("rmm")
    if kind == "rmm:arena":
        options.setdefault("initial", "1GiB")  # RMM's own choice is half of the card
    if kind == "custom":
        return zc.install_pool(allocator=DriverAllocator(), **options)
    try:
        return zc.install_pool(kind, **options)
    except zc.PoolUnavailableError as error:
        if "concurrent managed access" not in str(error):
            raise
        skip(str(error))


def pages_managed_memory() -> bool:
    """Whether host and device may use managed memory at once; the driver is initialised to find out."""
    return cuda_driver.missing() is None and cuda_pool.pages_managed_memory(0)


def keep_context() -> None:
    """Hold the device's context for good, as frameworks do: making one takes memory, and time."""
    cuda_driver.missing()
    context = ctypes.c_void_p()
    cuda_driver.call(cuda_driver.driver().cuDevicePrimaryCtxRetain, ctypes.byref(context), 0)


def settle() -> None:
    """Have garbage collected, and the device finish."""
    gc.collect()
    with cuda_driver.on_device(0) as library:
        cuda_driver.call(library.cuCtxSynchronize)


def until(true: Callable[[], bool], seconds: float = 10) -> bool:
    """Wait for something: JAX frees by a thread of its own."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        settle()
        if true():
            return True
        time.sleep(0.01)
    return False


def handle() -> int:
    """Return the device's default pool, asked of the driver."""
    return cuda_pool.default_pool(0)


def used() -> int:
    """Return what of it is in use, whoever uses it."""
    return cuda_pool.get(0, handle(), cuda_pool.USED_CURRENT)


def reserved() -> int:
    """Return what it has taken from the device."""
    return cuda_pool.get(0, handle(), cuda_pool.RESERVED_CURRENT)


def threshold() -> int:
    """Return how much of it the driver keeps when it is not used."""
    return cuda_pool.get(0, handle(), cuda_pool.RELEASE_THRESHOLD)


def free() -> int:
    """Return the free bytes of the device (``cuMemGetInfo``)."""
    return cuda_driver.memory_info(0)[0]


def in_use(pool: zc.Pool) -> int:
    """Return what is in use: of the driver's kind by the driver's word, of RMM's by RMM's."""
    return used() if pool.kind == "driver" else pool.stats(0).current_bytes


def pointer_attribute(ptr: int, number: int) -> int:
    """Return a ``CUpointer_attribute`` of four bytes; -1 where the driver does not know the address."""
    value = ctypes.c_uint()
    with cuda_driver.on_device(0) as library:
        code = library.cuPointerGetAttribute(ctypes.byref(value), number, ctypes.c_uint64(ptr))
    return value.value if code == 0 else -1


def moves(framework: Side, pool: zc.Pool, nbytes: int = 8 * MIB) -> None:
    """Check that an array is memory of the pool for as long as it lives, and that it is right."""
    name = framework.name
    framework.values(framework.take(MIB))  # what is made once for all: kernels, handles
    settle()
    before = in_use(pool)
    x = framework.take(nbytes, 7)
    settle()
    more = in_use(pool) - before
    assert more >= nbytes, f"{name}: {nbytes} bytes were taken, the pool gave {more}"
    assert (framework.values(x) == 7).all(), name
    del x
    assert until(lambda: in_use(pool) < before + MIB), f"{name}: {in_use(pool) - before} bytes stay in use"
    print(f"{name}: {more} bytes of {nbytes} from the pool, and back")


def refused(kind: type[BaseException], call: Callable[[], Any]) -> Any:
    """Check that a call raises, and return what."""
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")
