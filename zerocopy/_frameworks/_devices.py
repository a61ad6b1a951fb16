"""The CUDA devices of a framework, listed without starting CUDA."""

from __future__ import annotations

from collections.abc import Callable

from zerocopy.pool import gpus
from zerocopy.protocols import cuda_driver


def cuda_devices(count: Callable[[], int]) -> list[str]:
    """Return the names of the devices; `count` asks the framework, which starts CUDA.

    After a call of ``cuInit``, forked children of the process cannot use CUDA (CUDA C++ Programming Guide,
    "Initialization"). So the framework is asked only if CUDA has started, and otherwise NVML. Without NVML
    the number is not known: the list is then ``["cuda"]``.
    """
    if cuda_driver.is_started():
        number: int | None = count()
    else:
        number = 0 if cuda_driver.driver() is None else gpus.count()
    return ["cuda"] if number is None else [f"cuda:{i}" for i in range(number)]
