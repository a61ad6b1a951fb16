"""JAX's importer and exporter of capsules, and its producers of device memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from zerocopy._frameworks._private import Private
from zerocopy._native import core
from zerocopy.device import CUDA, LEGACY_DEFAULT_STREAM, NO_SYNC_STREAM, ROCM
from zerocopy.dtype import ALL, NATIVE_NAMES, SUBBYTE_NAMES, by_name
from zerocopy.protocols import dlpack
from zerocopy.protocols.array_interface import ALIGNMENT, aligned_empty

#: JAX's public from_dlpack; a trial confirms the private one.
_IMPORT = Private(
    "jaxlib", "0.7 to 0.12", "_jax.dlpack_managed_tensor_to_buffer", "1,000 floats: 13 / 130 us"
)


class _Import(NamedTuple):
    """An import of capsules: for Python, and for the core a function with its arguments after the capsule."""

    from_capsule: Callable[[Any], Any]
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


#: The function that the trial chose; None before the first use.
_import: _Import | None = None


def exporter(cls: Any) -> Any:
    """Return the compiled exporter of a class of arrays on the CPU; None without the compiled core."""
    if core is None:
        return None
    capsule = core.CapsuleExporter(cls.__dlpack__, readonly=True)
    # The buffer protocol is 20 % faster than a capsule, but does not support bfloat16 and float8 types.
    lacks = [(t.code, t.bits) for t in ALL if t.bits >= 8 and t.lanes == 1 and t.name not in NATIVE_NAMES]
    return core.FirstExporter(core.BufferExporter(), capsule, lacks=lacks)


def importer(config: Any, names: Iterable[str]) -> Any:
    """Return the compiled importer of arrays on the CPU; None without the compiled core.

    `names` are the dtypes; those of 64 bits depend on ``config.jax_enable_x64``.
    """
    if core is None:
        return None
    chosen = _chosen_import()
    types = [by_name(name) for name in names if name not in SUBBYTE_NAMES]
    return core.CapsuleImporter(
        chosen.function,
        arguments=chosen.arguments,
        dtypes=[(dtype.code, dtype.bits) for dtype in types],
        alignment=ALIGNMENT,
        layout="compact",
        wide=(config, "jax_enable_x64"),
    )


def from_capsule() -> Callable[[Any], Any]:
    """Return ``capsule -> jax.Array`` on the CPU."""
    return _chosen_import().from_capsule


def _chosen_import() -> _Import:
    """Return the private import if a trial confirms it, else the public one."""
    global _import
    import jax
    import numpy as np

    chosen = _import
    if chosen is not None:
        return chosen

    def public(capsule: Any) -> Any:
        return jax.dlpack.from_dlpack(dlpack.Handover(capsule))

    def private() -> _Import:
        bare, cpu = _bare_import(), jax.local_devices(backend="cpu")[0]
        return _Import(lambda capsule: bare(capsule, cpu, None), bare, (cpu, None))

    def agrees(chosen: _Import) -> bool:
        trial = aligned_empty((2,), np.dtype(np.float32))
        trial[:] = 1, 2
        return bool(chosen.from_capsule(trial.__dlpack__()).unsafe_buffer_pointer() == trial.ctypes.data)

    _import = chosen = _IMPORT.choose(private, agrees, _Import(public, public, ()))
    return chosen


class OnDevice:
    """A producer of one array's device memory that accepts stream -1.

    XLA passes -1, DLPack's "no synchronisation", to the driver as a stream's handle
    (``WaitUntilBufferReadyOnStream``), and None blocks the host. So the legacy default stream
    waits for the array.
    """

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self, *, stream: int | None = None, **options: Any) -> Any:
        if stream == NO_SYNC_STREAM:
            # On ROCm the default stream is 0 (DLPack, Python specification, "stream").
            stream = 0 if self.__dlpack_device__()[0] == ROCM else LEGACY_DEFAULT_STREAM
        try:
            return self._array.__dlpack__(stream=stream, **options)
        except RuntimeError as error:
            if not str(error).startswith("UNIMPLEMENTED"):
                raise
        # XLA's TFRT client orders no streams; without one, the host waits for the array.
        return self._array.__dlpack__(stream=None, **options)

    def __dlpack_device__(self) -> tuple[int, int]:
        pair: tuple[int, int] = self._array.__dlpack_device__()
        return pair


def as_cuda(producer: Any) -> dlpack.Producer:
    """Return a producer of managed memory for JAX, which does not accept ``kDLCUDAManaged``."""

    def export(**options: Any) -> Any:
        return dlpack.as_cuda(producer.__dlpack__(**options))

    return dlpack.Producer(export, (CUDA, int(producer.__dlpack_device__()[1])))


def device_exporter(jax: Any) -> Any:
    """Return the compiled exporter of arrays on CUDA devices; None without the compiled core."""
    if core is None:
        return None

    def device_of(array: Any) -> int:
        kind, index = array.__dlpack_device__()  # raises for a sharded array
        if kind != CUDA:
            raise BufferError("not on a device")
        return int(index)

    def export(array: Any, *, stream: int) -> Any:
        return OnDevice(array).__dlpack__(stream=stream)

    devices = jax.local_devices()
    return core.DeviceExporter(
        export, devices[0].local_hardware_id if len(devices) == 1 else device_of, readonly=True
    )


def device_importer(jax: Any, names: Iterable[str], alignment: int) -> Any:
    """Return the compiled importer of memory on CUDA devices; None without the compiled core."""
    if core is None:
        return None
    bare = _bare_import()
    devices: dict[int, Any] = {}
    unordered = set[int]()  # devices whose XLA client (TFRT) does not order streams

    def stream_on(index: int) -> int:
        if index not in devices:
            devices.update({each.local_hardware_id: each for each in jax.local_devices(backend="cuda")})
        try:
            stream: int = devices[index].get_stream_for_external_ready_events()
        except RuntimeError as error:
            if not str(error).startswith("UNIMPLEMENTED"):
                raise
            unordered.add(index)
            return LEGACY_DEFAULT_STREAM
        return stream

    def import_(capsule: Any, index: int, stream: int) -> Any:
        if bare is None:
            return jax.dlpack.from_dlpack(dlpack.Producer(lambda **_options: capsule, (CUDA, index)))
        return bare(capsule, devices[index], None if index in unordered else stream)

    return core.CapsuleImporter(
        import_,
        dtypes=[(t.code, t.bits) for t in map(by_name, names) if t.name not in SUBBYTE_NAMES],
        alignment=alignment,
        layout="compact",
        arguments=(),
        wide=(jax.config, "jax_enable_x64"),
        stream=stream_on,
        takes_stream=True,
    )


def _bare_import() -> Any:
    """Return the private import of a capsule, a device and a stream; None if this version has another one."""
    if not _IMPORT():
        return None
    from jaxlib import _jax  # type: ignore[attr-defined, unused-ignore]

    return getattr(_jax, "dlpack_managed_tensor_to_buffer", None)
