"""Devices and streams as DLPack numbers them (``DLDeviceType``, dlpack.h 1.2)."""

from __future__ import annotations

from numbers import Integral
from typing import Any, NamedTuple

from zerocopy.errors import DeviceOptionError

CPU, CUDA, CUDA_HOST, ROCM, ROCM_HOST, CUDA_MANAGED = 1, 2, 3, 10, 11, 13

_NAMES = {
    1: "cpu",
    2: "cuda",
    3: "cuda_host",
    4: "opencl",
    7: "vulkan",
    8: "metal",
    9: "vpi",
    10: "rocm",
    11: "rocm_host",
    12: "ext_dev",
    13: "cuda_managed",
    14: "oneapi",
    15: "webgpu",
    16: "hexagon",
    17: "maia",
    18: "trn",
}
_TYPES = {name: number for number, name in _NAMES.items()} | {"gpu": CUDA}
_HOST_TYPES = frozenset((CPU, CUDA_HOST, ROCM_HOST))
_KINDS = {**_NAMES, **dict.fromkeys(_HOST_TYPES, "cpu"), CUDA_MANAGED: "cuda"}

#: CUDA's stream numbers in DLPack and the CUDA Array Interface v3.
LEGACY_DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM, NO_SYNC_STREAM = 1, 2, -1


class Device(NamedTuple):
    """A device: DLPack's type number and its index.

    Attributes
    ----------
    type : int
        ``DLDeviceType`` of the DLPack standard (dlpack.h 1.2): 1 is the CPU, 2 CUDA, 3 page-locked
        host memory, 13 CUDA managed memory.
    id : int
        Index among the devices of that type, from 0.

    Examples
    --------
    >>> str(parse_device("cuda:1"))
    'cuda:1'
    >>> parse_device((1, 0)).is_host
    True
    """

    type: int
    id: int = 0

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's device type and device index (array-api#972)."""
        return self.type, self.id

    @property
    def is_host(self) -> bool:
        """Whether the CPU can read this memory through plain pointers; page-locked memory included."""
        return self.type in _HOST_TYPES

    @property
    def kind(self) -> str:
        """``"cpu"`` for all host memory, otherwise the type's name: ``"cuda"``, ``"rocm"``, ..."""
        return _KINDS.get(self.type) or f"dlpack{self.type}"

    def __str__(self) -> str:
        name = _NAMES.get(self.type, f"dlpack{self.type}")
        return name if self.is_host else f"{name}:{self.id}"


HOST = Device(CPU, 0)


def same_memory_space(a: Device, b: Device) -> bool:
    """Whether memory on one device can be used on another without a transfer.

    All host memory is one memory space, page-locked or not. Managed memory belongs to the
    memory space of its device.

    Parameters
    ----------
    a, b : Device
        In any order.

    Returns
    -------
    bool
        True if no transfer is needed.

    Examples
    --------
    >>> same_memory_space(Device(CUDA_HOST, 1), HOST), same_memory_space(Device(CUDA, 0), Device(CUDA, 1))
    (True, False)
    """
    return a is b or (a.kind == b.kind and (a.is_host or a.id == b.id))


def parse_device(spec: Any) -> Device | None:
    """Return the device of a string, a DLPack pair or a :class:`Device`; None for other objects.

    Parameters
    ----------
    spec : str, tuple of two ints, Device
        ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ``(2, 0)``.

    Returns
    -------
    Device or None
        None for other objects, which can be a framework's own device.

    Raises
    ------
    DeviceOptionError
        The string does not name a device.

    Examples
    --------
    >>> parse_device("cuda:1"), parse_device(object())
    (Device(type=2, id=1), None)
    """
    if isinstance(spec, Device):
        return spec
    if isinstance(spec, str):
        name, _, index = spec.strip().lower().partition(":")
        if name not in _TYPES or not (index.isdecimal() or index == ""):
            from zerocopy.errors.invalid_option import nearest

            if name == "mps":
                remedy = f"convert it without device=, and move the result: torch has result.to({spec!r})"
                raise DeviceOptionError(f"device={spec!r}", "Apple's GPU is not a device of convert", remedy)
            near = nearest(name, ("cpu", "cuda", "rocm", "metal"))
            hint = f'did you mean device="{near}"? Otherwise ' if near and near != name else ""
            raise DeviceOptionError(
                f"device={spec!r}",
                "it does not name a device",
                f'{hint}pass "cpu", "cuda", "cuda:1" or a DLPack pair such as (2, 0)',
            )
        return Device(_TYPES[name], int(index or 0))
    if isinstance(spec, tuple) and len(spec) == 2:
        try:
            return Device(int(spec[0]), int(spec[1]))
        except (TypeError, ValueError):
            return None
    return None


def parse_stream(stream: Any) -> int | None:
    """Return a stream as the integer that DLPack and the CUDA Array Interface pass.

    Parameters
    ----------
    stream : None, int, or an object with ``__cuda_stream__``, ``cuda_stream``, ``ptr`` or ``handle``
        The consumer's stream. ``None`` stays None: the consumer's current stream.

    Returns
    -------
    int or None
        The stream's handle, or one of the numbers that the protocols reserve.

    Raises
    ------
    DeviceOptionError
        The stream is ``0``, which both protocols refuse as ambiguous (legacy or per-thread
        default), is negative and not -1, or is not a stream.

    Notes
    -----
    DLPack (Python specification, ``__dlpack__``, CUDA): 1 is the legacy default
    stream, 2 the per-thread default stream, -1 requests no synchronisation. A stream
    object with handle 0 is the legacy default stream. The CUDA Array Interface, version 3
    (section "Synchronization"), uses the same numbers.

    Examples
    --------
    >>> parse_stream(2), parse_stream(None)
    (2, None)
    """
    if stream is None:
        return None
    call = f"stream={stream!r}"
    # NumPy's integers too.
    if isinstance(stream, Integral) and not isinstance(stream, bool):  # type: ignore[unreachable]
        if stream == 0:
            raise DeviceOptionError(
                call,
                "DLPack refuses 0 as ambiguous",
                "pass 1 for the legacy default stream or 2 for the per-thread one",
            )
        if stream < -1:
            raise DeviceOptionError(call, "it is not a stream", "pass a stream's handle, 1, 2 or -1")
        return int(stream)
    if hasattr(type(stream), "__cuda_stream__"):
        # CUDA Python's stream protocol: a method; a property in early versions.
        pair = stream.__cuda_stream__
        version, handle = pair() if callable(pair) else pair
        if version != 0:
            raise DeviceOptionError(
                call, f"its __cuda_stream__ has version {version}", "pass the stream's handle as an int"
            )
    else:
        handle = _handle(stream)
        if handle is None:
            remedy = "pass an int, or an object with __cuda_stream__"
            raise DeviceOptionError(call, "it is not a stream", remedy)
    return int(handle) or LEGACY_DEFAULT_STREAM


def _handle(stream: Any) -> int | None:
    """Return the handle of a stream object of torch, CuPy or Numba; None for other objects."""
    for name in ("cuda_stream", "ptr", "handle"):
        handle = getattr(stream, name, None)
        if handle is None:
            continue
        # Numba's handle is a ctypes pointer, whose value is None for the default stream, or
        # CUDA Python's CUstream, which int() accepts.
        handle = (handle.value or 0) if hasattr(handle, "value") else handle
        if isinstance(handle, int) or hasattr(type(handle), "__int__"):
            return int(handle)
    return None
