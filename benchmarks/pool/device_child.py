"""The process of one contender for device memory: a framework with or without a pool.

    python -m benchmarks.pool.device_child '{"framework": "cupy", "kind": "driver"}'

Frameworks are imported after the pool is installed, as in a program that installs it first.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.children import serve
from benchmarks.pool.child import Child
from benchmarks.pool.device import LINES
from zerocopy.protocols import cuda_driver


class DeviceChild(Child):
    """The calls that the process supports; `kind` is that of the pool, empty for none.

    `host` is ``"pinned"`` for page-locked memory.
    """

    def __init__(self, framework: str, kind: str = "", host: str = "off") -> None:
        super().__init__([])
        self.framework = framework
        self.pool: Any = None
        if kind:
            import zerocopy as zc

            # Named explicitly, because torch uses RMM only then.
            names = ["cupy", "torch", "jax", "rmm"] if framework == "all" else [framework, "rmm"]
            self.pool = zc.install_pool(kind, host=host, frameworks=names)
        else:
            # Otherwise JAX allocates three quarters of the device in advance.
            os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

    def open(self, workload: str, n: int) -> None:  # type: ignore[override]
        """Create the values that a workload of `n` bytes uses."""
        names = _names(self.framework, workload, n, self.pool)
        self.names = {"work": eval(f"lambda: {LINES[workload][self.framework]}", names)}

    def block(self, code: str, calls: int) -> int:
        """Run a workload `calls` times, and return the nanoseconds; then wait for the device."""
        spent = super().block(code, calls)
        _settle()
        return spent

    def peak(self, n: int) -> int:
        """Return the peak of device memory of a pipeline run, minus that before."""
        gc.collect()
        _settle()
        before = cuda_driver.memory_info(0)[0]
        least = [before]

        def look() -> None:
            _settle()
            least.append(cuda_driver.memory_info(0)[0])

        pipeline = _pipeline(look)
        for _ in range(3):
            pipeline(n)
        return before - min(least)

    def describe(self) -> list[str]:
        """Return the rows of the pool's report."""
        if self.pool is None:
            return []
        return [str(row) for row in self.pool.report().frameworks if row.status != "absent"]


def _settle() -> None:
    with cuda_driver.on_device(0) as library:
        cuda_driver.call(library.cuCtxSynchronize)


def _names(framework: str, workload: str, n: int, pool: Any) -> dict[str, Any]:
    names: dict[str, Any] = {"n": n}
    if framework == "cuda":
        return names | _plain()
    if framework == "all":
        return names | {"pipeline": _pipeline(lambda: None)}
    if framework == "numba":
        names["cuda"] = import_module("numba.cuda")
    else:
        names[framework] = import_module(framework)
    if workload == "streams":
        names["cross"] = _cross(names["torch"])
    elif workload.startswith("to "):
        x = np.empty(n, np.uint8) if pool is None else pool.pinned(n, np.uint8)
        x.fill(1)
        cupy = framework == "cupy"
        names["x"] = x if cupy else names["torch"].from_numpy(x)
        names["d"] = names["cupy"].empty(n, "u1") if cupy else names["x"].to("cuda")
    return names


def _plain() -> dict[str, Callable[[int], Any]]:
    """Return the plain calls of the driver by ctypes, which adds some hundred nanoseconds."""
    cuda_driver.missing()  # initialises the driver
    library = cuda_driver.driver()
    context = ctypes.c_void_p()
    cuda_driver.call(library.cuDevicePrimaryCtxRetain, ctypes.byref(context), 0)
    cuda_driver.call(library.cuCtxPushCurrent_v2, context)
    ptr = ctypes.c_uint64()
    by_reference = ctypes.byref(ptr)

    def allocate(nbytes: int) -> ctypes.c_uint64:
        code = library.cuMemAlloc_v2(by_reference, ctypes.c_size_t(nbytes))
        if code:
            raise MemoryError(f"cuMemAlloc() of {nbytes} bytes: {code}")
        return ptr

    def free(held: ctypes.c_uint64) -> None:
        cuda_driver.check("cuMemFree", library.cuMemFree_v2(held))

    return {"cuMemAlloc": allocate, "cuMemFree": free}


def _cross(torch: Any) -> Callable[[int], None]:
    """Return a use of a tensor on another stream as in the torch documentation: wait, use, record."""
    other, main = torch.cuda.Stream(), torch.cuda.current_stream()

    def cross(n: int) -> None:
        x = torch.empty(n, dtype=torch.uint8, device="cuda")
        other.wait_stream(main)
        with torch.cuda.stream(other):
            x.zero_()
        x.record_stream(other)

    return cross


def _pipeline(look: Callable[[], None]) -> Callable[[int], None]:
    """Return a pipeline through CuPy, torch and JAX that calls `look` in each."""
    import cupy
    import jax
    import torch

    import zerocopy as zc

    def pipeline(n: int) -> None:
        x = cupy.arange(n // 4, dtype="f4")
        y = x * 2 + 1
        look()
        del x
        t = zc.convert(y, to="torch")
        del y
        u = torch.sqrt(t + 1) * 3
        look()
        del t
        j = zc.convert(u, to="jax")
        del u
        k = (jax.numpy.tanh(j) + 1).block_until_ready()
        look()
        del j, k

    pipeline(1 << 20)  # excludes contexts, kernels and handles
    return pipeline


def main() -> None:
    """Install the pool, and serve."""
    warnings.simplefilter("ignore")
    serve(lambda: DeviceChild(**json.loads(sys.argv[1])))


if __name__ == "__main__":
    main()
