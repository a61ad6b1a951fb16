"""Limits: how much of a GPU a pool may take, the least of the options, of ``set_limit()`` and of MPS."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from zerocopy.errors import OptionError
from zerocopy.formatting import format_bytes
from zerocopy.pool.attachments import other_limits
from zerocopy.pool.gpus import GPU
from zerocopy.pool.settings import Settings
from zerocopy.pool.sizes import parse_size

#: Read by the MPS server for its clients (NVIDIA MPS guide, "Environment Variables").
MPS = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
_CHANGED = "set_limit()"  # the source of a changed limit
_PERCENT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*%\s*")
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit of one device: an entry of `Pool.limits`.

    Attributes
    ----------
    nbytes : int
        Maximum size of the pool, in bytes.
    source : str
        The option or environment variable that set it.

    Examples
    --------
    >>> print(Limit(8 << 30, "limit="))
    8 GiB (from limit=)
    """

    nbytes: int
    source: str

    def __str__(self) -> str:
        return f"{format_bytes(self.nbytes)} (from {self.source})"


def device_limit(
    settings: Settings, gpu: GPU | None, environ: Mapping[str, str] = os.environ
) -> Limit | None:
    """Return the limit for one GPU; None if there is none."""
    total = None if gpu is None else gpu.total
    limits = [] if settings.limit is None else [Limit(settings.limit, "limit=")]
    if gpu is not None and total is not None:
        _check_total(settings, gpu, total)
        if settings.fraction is not None:
            limits.append(Limit(int(settings.fraction * total), f"fraction={settings.fraction}"))
        if settings.reserve is not None:
            limits.append(Limit(total - settings.reserve, f"reserve={format_bytes(settings.reserve)}"))
    elif settings.fraction is not None or settings.reserve is not None:
        why = "it depends on the GPU's memory, and the machine has no GPU"
        if gpu is not None:
            why = f"NVML does not report the memory of {gpu.name} (device {gpu.index}), on which it depends"
        raise OptionError(", ".join(settings.limit_options()), why, "pass limit= in bytes")
    if gpu is not None:
        parts = map(_read_mps, environ.get(MPS, "").split(","))
        limits += [Limit(part[1], MPS) for part in parts if part is not None and part[0] == gpu.index]
    least = min(limits, key=lambda limit: limit.nbytes, default=None)
    if least is not None and settings.initial is not None and settings.initial > least.nbytes:
        why = f"it exceeds the limit of the pool: {least}"
        raise OptionError(f"initial={settings.initial}", why, "pass a smaller one, or raise the limit")
    return least


def _check_total(settings: Settings, gpu: GPU, total: int) -> None:
    """Raise if a size exceeds a GPU's total memory; managed memory may exceed it."""
    for name in ("reserve",) if settings.kind == "managed" else ("limit", "initial", "reserve"):
        size = getattr(settings, name)
        if size is not None and size > total:
            raise OptionError(
                f"{name}={size}",
                f"{gpu.name} (device {gpu.index}) has {format_bytes(total)}",
                "pass a smaller size, or kind='managed', which can exceed the GPU's memory",
            )
    if settings.reserve == total:
        why = f"it leaves no memory of {gpu.name} (device {gpu.index})"
        raise OptionError(f"reserve={settings.reserve}", why, "pass a smaller size")


def _read_mps(part: str) -> tuple[int, int] | None:
    """Return device and limit of ``"0=1G"``, a part of the variable; None for any other form."""
    match = re.fullmatch(r"\s*(\d+)\s*=\s*(\d+)\s*([KMG])B?\s*", part, re.IGNORECASE)
    return (int(match[1]), int(match[2]) * _UNITS[match[3].upper()]) if match is not None else None


def unread_mps_note(environ: Mapping[str, str] = os.environ) -> str:
    """Return a note about an MPS limit that is set and cannot be parsed; empty if all can."""
    text = environ.get(MPS, "")
    parts = [part.strip() for part in text.split(",") if part.strip() and _read_mps(part) is None]
    if not parts:
        return ""
    return (
        f"{MPS} has {' and '.join(map(repr, parts))}, which zerocopy cannot parse: the driver may enforce a "
        'limit that the pool does not know; write it as "0=10G,1=512M", with device numbers'
    )


def sharing_note(gpu: GPU, limit: Limit | None, environ: Mapping[str, str] = os.environ) -> tuple[str, bool]:
    """Return a note about a GPU that other processes may use, and whether they do now.

    Empty if a limit is set, or on a MIG slice, which has memory of its own.
    """
    if limit is not None or gpu.mig:
        return "", False
    if gpu.others:
        where = f"device {gpu.index} ({gpu.name})"
        if gpu.includes_own:
            where += ", with this process's own memory, which NVML does not show apart in a PID namespace"
        return (
            f"other processes use {format_bytes(gpu.others)} of {where}, and the "
            "pool has no limit: limit each process; " + other_limits("by kind='rmm' and limit= for"),
            True,
        )
    if "KUBERNETES_SERVICE_HOST" in environ and "CUDA_MPS_PIPE_DIRECTORY" not in environ:
        # The device plugin's time-slicing shows each pod the whole GPU, and isolates no memory
        # (NVIDIA k8s-device-plugin, "Shared Access to GPUs").
        return (
            "this is Kubernetes, where a GPU that is shared by time-slicing looks like an unshared one: "
            "if it may be shared, see docs/gpu-server.md, Several processes on one GPU",
            False,
        )
    return "", False


def read_limit(limit: Any, asked: str) -> tuple[float | None, int | None]:
    """Return a limit of `Pool.set_limit` as a fraction or as bytes; both are None for no limit."""
    if limit is None:
        return None, None
    match = _PERCENT.fullmatch(limit) if isinstance(limit, str) else None
    if match is None:
        return None, parse_size(limit, "limit")
    percent = float(match[1])
    if not 0 < percent <= 100:
        raise OptionError(asked, "it is not between 0 and 100 %", 'write it as "50%"')
    return percent / 100, None


def changed_limit(
    settings: Settings, kind: str, gpu: GPU | None, fraction: float | None, nbytes: int | None, asked: str
) -> Limit | None:
    """Return the least of the new limit of a device and that of MPS; None if there is none."""
    options = replace(settings, kind=kind, limit=nbytes, fraction=fraction, reserve=None)
    if kind == "rmm:arena" and nbytes is None and fraction is None and options.initial is None:
        raise OptionError(asked, "arenas allocate all their memory at once", "pass a size")
    try:
        least = device_limit(options, gpu)
    except OptionError as error:
        raise OptionError(asked, error.why, error.remedy) from error
    return Limit(least.nbytes, _CHANGED) if least is not None and least.source != MPS else least
