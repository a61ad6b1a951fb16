"""The GPUs that are visible to CUDA, read through NVML, which does not initialise CUDA."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from zerocopy.errors import Reason
from zerocopy.protocols import cuda_driver, cuda_pool, nvml
from zerocopy.protocols.nvml import Nvml

#: The PID namespace of the machine itself (PROC_PID_INIT_INO, linux/proc_ns.h).
_FIRST_NAMESPACE = "pid:[4026531836]"


@dataclass(frozen=True, slots=True)
class GPU:
    """One device as CUDA numbers them in this process."""

    index: int
    name: str
    total: int | None  # bytes; of the slice if it is a MIG slice; None if NVML does not report them
    mig: bool = False  # whether it is a MIG slice
    others: int = 0  # bytes that other processes use, as far as NVML reports them
    includes_own: bool = False  # whether `others` may include memory of this process


def visible_gpus(environ: Mapping[str, str] = os.environ) -> tuple[list[GPU], Reason | None]:
    """Return the devices that are visible to CUDA, and the reason if there are none."""
    library = nvml.started()
    if library is None:
        # Tegra, WSL without NVML, or a machine without a driver: use the CUDA library.
        reason = cuda_driver.missing()
        devices = range(cuda_driver.count()) if reason is None else ()
        return [GPU(index, *cuda_driver.name_and_memory(index)) for index in devices], reason
    handles = _visible(library, environ.get("CUDA_VISIBLE_DEVICES"))
    if not handles:
        return [], Reason(
            "the NVIDIA driver shows no device",
            "check nvidia-smi, and that CUDA_VISIBLE_DEVICES names a device",
            code="no-device",
        )
    return [_gpu(library, index, handle) for index, handle in enumerate(handles)], None


def count() -> int | None:
    """Return the number of devices that are visible to CUDA, without starting it; None without NVML."""
    library = nvml.started()
    return None if library is None else len(_visible(library, os.environ.get("CUDA_VISIBLE_DEVICES")))


def _visible(library: Nvml, text: str | None) -> list[Any]:
    """Return NVML's handles of the devices in ``CUDA_VISIBLE_DEVICES``, in its order.

    Numbers follow NVML's order, that of the bus. CUDA's default order puts the fastest GPU first,
    which differs only in machines with different GPUs (``CUDA_DEVICE_ORDER``).
    """
    count = library.number("nvmlDeviceGetCount_v2") or 0
    by_index = [library.handle(index) for index in range(count)]
    if text is None:
        # In MIG mode CUDA shows one slice: the first slice of the first GPU.
        parts = [(handle, library.parts(handle)[1]) for handle in by_index if handle is not None]
        shown = [(slices or [handle])[0] for handle, slices in parts]
        return shown[:1] if any(slices for _, slices in parts) else shown
    handles = []
    for part in (piece.strip() for piece in text.split(",")):
        if re.fullmatch(r"\d+", part):
            handle = by_index[int(part)] if int(part) < len(by_index) else None
            handle = handle and (library.parts(handle)[1] or [handle])[0]
        else:
            handle = _by_uuid(library, part, by_index)
        if handle is None:
            break  # entries after an invalid one are not visible (CUDA C++ Programming Guide)
        handles.append(handle)
    return handles


def _by_uuid(library: Nvml, part: str, by_index: list[Any]) -> Any:
    """Return the device of a UUID, or of its first characters if no other has them."""
    whole = library.handle_of(part)
    if whole is not None or not part.startswith("GPU-"):
        return whole
    gpus = [handle for handle in by_index if handle is not None]
    matches = [handle for handle in gpus if library.text("nvmlDeviceGetUUID", handle).startswith(part)]
    return matches[0] if len(matches) == 1 else None


def _gpu(library: Nvml, index: int, handle: Any) -> GPU:
    name = library.text("nvmlDeviceGetName", handle) or "GPU"
    is_slice = bool(library.number("nvmlDeviceIsMigDeviceHandle", handle))
    memory = library.memory(handle)
    others = _others(library, handle, index, 0 if memory is None else memory.used)
    # As cuDeviceTotalMem: without the driver's own memory.
    return GPU(index, name, None if memory is None else memory.total - memory.reserved, is_slice, *others)


def _others(library: Nvml, handle: Any, index: int, used: int) -> tuple[int, bool]:
    """Return the bytes of other processes, and whether they may include this process's own.

    In containers NVML hides other containers' processes, but not the memory that they use: without a
    process, only bytes beyond 64 MiB are others'. In a PID namespace NVML's PIDs are not those of this
    process, whose memory is then among the used bytes.
    """
    processes = library.processes(handle, "Compute") or []
    own = [size for pid, size in processes if pid == os.getpid()]
    foreign = len(processes) > len(own)
    others = max(0, used - sum(size or 0 for size in own))
    if not (foreign or others > 64 * 2**20):
        return 0, False
    return others, not own and _in_namespace() and cuda_pool.has_context(index)


def _in_namespace() -> bool:
    try:
        return os.readlink("/proc/self/ns/pid") != _FIRST_NAMESPACE
    except OSError:
        return False  # not Linux
