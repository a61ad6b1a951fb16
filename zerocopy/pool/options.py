"""Values of ``install_pool``'s options and of ``allocate``'s arguments: parsed, or refused."""

from __future__ import annotations

import numbers
import operator
import os
import re
from collections.abc import Iterable
from typing import Any

from zerocopy.device import CUDA, LEGACY_DEFAULT_STREAM, Device, parse_stream
from zerocopy.errors import PoolOptionError
from zerocopy.pool import hooks, host
from zerocopy.pool.sizes import show_value, suggest
from zerocopy.protocols.exporter_errors import is_error

#: Each kind of pool, with a one-line description.
KINDS = {
    "auto": "the driver's pool if a framework in use can share only that, otherwise RMM's",
    "driver": "CUDA's device-default memory pool, which every framework can share; without a limit",
    "rmm": "RMM's pool over cudaMalloc; supports a hard limit",
    "rmm:pool": "the same",
    "rmm:arena": "RMM's arenas, for many threads",
    "rmm:binning": "RMM's bins of fixed sizes up to 4 MiB, and its pool for larger blocks",
    "rmm:async": "RMM's own pool of CUDA's asynchronous allocator",
    "managed": "RMM's pool over managed memory with prefetch: may exceed the memory of the GPU",
    "custom": "a custom allocator: allocator=",
}

TRUE, FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
NONE = "none"  # text form of an empty frameworks=
_DEVICE = re.compile(r"\s*(?:([0-9]{1,10})|cuda(?::([0-9]{1,10}))?)\s*")


def is_rmm_kind(kind: str) -> bool:
    """Whether a kind is built from RMM's resources."""
    return kind in ("managed", "custom") or kind.startswith("rmm")


def ipc_refusal(kind: str) -> tuple[str, str]:
    """Return why a kind has no ``ipc=``, and what to do."""
    remedy = "use kind='rmm:async'"
    if kind in ("rmm", "rmm:arena", "rmm:binning"):
        why = "zc.share has handles of its memory already, which is that of cudaMalloc"
        return why, "leave ipc= out, or " + remedy
    if kind == "driver":
        return "the driver does not export CUDA's default memory pool to other processes", remedy
    return "only a pool of kind 'rmm:async' is created for other processes", remedy


def read_nbytes(nbytes: Any) -> int:
    """Return a number of bytes."""
    if isinstance(nbytes, bool) or not hasattr(nbytes, "__index__"):
        raise PoolOptionError(f"nbytes={nbytes!r}", "it is not a number of bytes", "pass a whole number")
    number = int(nbytes)
    if not 0 <= number < 2**63:
        why = "a size is not negative" if number < 0 else "it exceeds the address space"
        raise PoolOptionError(f"nbytes={nbytes!r}", why, "pass a size that the device can have")
    return number


def read_stream(stream: Any) -> int:
    """Return a stream's driver handle: 1 for the legacy default stream, which 0 and None mean too."""
    if stream is None:
        return LEGACY_DEFAULT_STREAM
    if not hasattr(stream, "__index__"):
        return parse_stream(stream) or LEGACY_DEFAULT_STREAM
    number = int(stream)
    if not 0 <= number < 2**64:
        raise PoolOptionError(
            f"stream={stream!r}", "it is not a stream handle", "leave it out, or pass a handle"
        )
    return number or LEGACY_DEFAULT_STREAM


def read_kind(kind: Any) -> str:
    """Return a kind of :data:`KINDS`, under its shortest name."""
    name = kind.lower() if isinstance(kind, str) else None
    if name is None or name not in KINDS:
        hint = " (an allocator is passed as allocator=)" if hasattr(kind, "allocate") else ""
        kinds = [each for each in KINDS if each != "custom"]  # allocator= selects it
        remedy = suggest(kind, kinds) if name is not None else f"known: {', '.join(kinds)}"
        if name in host.MODES:
            remedy = f'pass the mode of host memory as host="{name}"'
        raise PoolOptionError(f"kind={show_value(kind)}", "no such kind of pool" + hint, remedy)
    return "rmm" if name == "rmm:pool" else name


def read_flag(value: Any, name: str) -> bool:
    """Return a boolean, from 0, 1 and words too."""
    if isinstance(value, str) and value.lower() in TRUE + FALSE:
        return value.lower() in TRUE
    try:
        valid = value in (True, False)  # 0 and 1 too, and NumPy's
    except (TypeError, ValueError, RuntimeError) as error:  # an array
        if not is_error(error):
            raise
        valid = False
    if not valid:
        raise PoolOptionError(
            f"{name}={show_value(value)}", "it is not a bool", f"write {name}=True or {name}=False"
        )
    return bool(value)


def read_fraction(value: Any) -> float | None:
    """Return a fraction of a GPU's total memory."""
    if value is None:
        return None
    number: Any = value
    if isinstance(value, str):
        try:
            number = float(value)
        except ValueError as error:
            raise PoolOptionError(f"fraction={value!r}", "it is not a number", "write it as 0.5") from error
    # numbers.Real covers NumPy's scalars, which are not all floats, and fractions.
    real = isinstance(number, numbers.Real) and not isinstance(number, bool)
    if not real or not 0 < number <= 1:
        raise PoolOptionError(
            f"fraction={show_value(value)}",
            "it is a fraction of the GPU's total memory, more than 0 and at most 1",
            "write it as 0.5",
        )
    return float(number)


def device_number(value: Any) -> int | None:
    """Return the number of a device in any usual form; None if the value names no device."""
    if isinstance(value, Device):
        value = value.id if value.type in (CUDA, "cuda") else None
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        # Text, and objects with such a text: torch.device("cuda:0").
        match = _DEVICE.fullmatch(str(value)) if not isinstance(value, bytes) else None
        number = int(match[1] or match[2] or 0) if match is not None else None
    # CUDA takes a device as a C int.
    return number if number is not None and 0 <= number < 2**31 else None


def _elements(value: Any) -> list[Any]:
    """Return the elements of a list or of a text with + or commas."""
    if isinstance(value, str):
        return re.split("[+,]", value)
    several = isinstance(value, Iterable) and not isinstance(value, (bytes, bytearray, Device))
    return list(value) if several else [value]


def read_devices(value: Any) -> tuple[int, ...] | None:
    """Return the numbers of one device or of several, in their order."""
    if value is None:
        return None
    single = device_number(value)
    if single is not None:
        return (single,)
    parsed = [device_number(each) for each in _elements(value)]
    devices = tuple(each for each in parsed if each is not None)
    if len(devices) < len(parsed):
        raise PoolOptionError(
            f"devices={show_value(value)}",
            "a device is a number, from 0 on, as CUDA counts them",
            "write 0, [0, 1] or 'cuda:0'",
        )
    if not devices or len(set(devices)) < len(devices):
        raise PoolOptionError(
            f"devices={show_value(value)}", "none, or one twice", "write 0 or [0, 1]; leave it out for all"
        )
    return devices


def read_frameworks(value: Any) -> tuple[str, ...] | None:
    """Return the names of frameworks that can use a pool, in order of attachment."""
    if value is None:
        return None
    known = hooks.names()
    elements = [] if isinstance(value, str) and value == NONE else _elements(value)
    names = [each.strip() if isinstance(each, str) else each for each in elements]
    for name in names:
        if not isinstance(name, str) or name not in known:
            raise PoolOptionError(
                f"frameworks={show_value(value)}",
                f"{show_value(name)} cannot use a pool",
                suggest(show_value(name), known),
            )
    return tuple(name for name in known if name in names)


def read_log(value: Any) -> str | None:
    """Return a path as text."""
    if value is None:
        return None
    try:
        path = os.fsdecode(value)
    except TypeError:
        path = ""
    if not path or "\0" in path:
        raise PoolOptionError(f"log={show_value(value)}", "it is not a file path", 'write log="pool.csv"')
    return path


def read_host(value: Any) -> str:
    """Return the names of modes of host memory, in their order, joined by ``+``; ``"off"`` for none."""
    text = "off" if value is None or value is False else value
    if isinstance(text, (list, tuple)) and all(isinstance(name, str) for name in text):
        text = "+".join(text)
    if not isinstance(text, str):
        raise PoolOptionError(
            f"host={show_value(value)}", "it is not the name of a mode", 'write host="aligned"'
        )
    return "+".join(mode.name for mode in host.parse(text)) or "off"
