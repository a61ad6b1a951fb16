"""JAX for the CPU, with CPU devices that it treats as CUDA devices.

JAX's CPU devices except the first count as GPUs. Their arrays are arrays of XLA for the CPU; the
arrays that the tests export use memory that `Devices` has allocated. XLA's streams, its allocator and
its compiler for GPUs are not simulated.
"""

from __future__ import annotations

import functools
from types import ModuleType

import numpy as np

from helpers import cuda_stubs
from helpers.gpu_stand_ins.memory import Devices
from zerocopy.device import CPU, CUDA, NO_SYNC_STREAM
from zerocopy.protocols import dlpack

XLA_STREAM = 4242  # the handle that XLA passes to producers: one of its own streams
_PRIVATE = ("dlpack_managed_tensor_to_buffer", "buffer_to_dlpack_managed_tensor", "Device")


def missing() -> str | None:
    """Return why this version of JAX cannot be patched, or None."""
    import jax

    try:
        from jaxlib import _jax
    except ImportError:
        return f"jaxlib of JAX {jax.__version__} has no module _jax"
    lacking = [name for name in _PRIVATE if not hasattr(_jax, name)]
    if not hasattr(jax.config, "jax_num_cpu_devices"):
        lacking.append("jax_num_cpu_devices")
    return f"JAX {jax.__version__} has no {', '.join(lacking)}" if lacking else None


def use(jax: ModuleType, devices: Devices) -> None:
    """Patch JAX for the rest of the process, before it creates its backends."""
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 1 + devices.count)
    _list(jax, devices)
    import_on = _importer(jax)
    _results(jax, _keeping(devices, import_on))
    _capsules(jax, import_on)
    _alignment()


def _index(device) -> int | None:
    """Return the number of the CUDA device that a device represents, or None for the host."""
    return device.id - 1 if device.id else None


def _list(jax, devices):
    every, of_process = jax.devices, jax.local_devices
    kind = jax.Device

    def listing(plain):
        def candidates(backend=None):
            platform = "cpu" if backend == "cpu" else "gpu"  # JAX's default is the GPU
            return [device for device in plain() if device.platform == platform]

        return candidates

    def memory_stats(device):
        return {"bytes_in_use": devices.used}

    jax.devices, jax.local_devices = listing(every), listing(of_process)
    kind.platform = property(lambda device: "cpu" if _index(device) is None else "gpu")
    kind.local_hardware_id = property(lambda device: _index(device) or 0)
    kind.memory_stats = memory_stats


def _importer(jax):
    """Return a function that imports a capsule on one of JAX's devices."""
    from jaxlib import _jax

    def import_on(capsule, device):
        described, _ = dlpack._tensor(capsule)
        described.device_type, described.device_id = CPU, 0
        return _jax.dlpack_managed_tensor_to_buffer(capsule, device, None)

    return import_on


def _keeping(devices, import_on):
    """Return a wrapper of a JAX function whose result is in a device's memory."""

    def keeping(function):
        @functools.wraps(function)
        def call(*args, **options):
            result = function(*args, **options)
            (where,) = result.devices()
            index = _index(where)
            if index is None or result.size == 0:
                return result
            values = np.asarray(result)
            block = devices.allocate(values.nbytes, index)
            fresh = block.view(values.dtype).reshape(values.shape)
            fresh[...] = values
            return import_on(cuda_stubs.capsule_of(fresh, index, False), where)

        return call

    return keeping


def _results(jax, keeping):
    array = type(jax.numpy.zeros(()))
    jax.device_put = keeping(jax.device_put)
    jax.numpy.array = keeping(jax.numpy.array)
    jax.numpy.broadcast_to = keeping(jax.numpy.broadcast_to)
    array.__getitem__ = keeping(array.__getitem__)
    array.T = property(keeping(array.T.fget))


def _capsules(jax, import_on):
    from jaxlib import _jax

    array = type(jax.numpy.zeros(()))
    plain = array.__dlpack__

    def device_of(self):
        (where,) = self.devices()
        index = _index(where)
        return (CPU, 0) if index is None else (CUDA, index)

    def to_dlpack(self, *, stream=None, **options):
        kind, index = device_of(self)
        if kind == CPU:
            return plain(self, stream=stream, **options)
        assert stream != NO_SYNC_STREAM, "XLA would pass -1 to the driver as a stream handle"
        capsule = _jax.buffer_to_dlpack_managed_tensor(self)
        described, _ = dlpack._tensor(capsule)
        described.device_type, described.device_id = kind, index
        return capsule

    def from_dlpack(producer):
        kind, index = producer.__dlpack_device__()
        if kind != CUDA:
            raise TypeError(f"Array passed to from_dlpack is on unsupported device type {kind}")
        return import_on(producer.__dlpack__(stream=XLA_STREAM), jax.devices("cuda")[index])

    array.__dlpack__, array.__dlpack_device__ = to_dlpack, device_of
    jax.dlpack.from_dlpack = from_dlpack


def _alignment():
    # XLA's alignment is compiled in: 16 bytes on a GPU, 64 for these arrays on the CPU. So zerocopy's
    # constant is changed instead.
    import zerocopy._frameworks.jax as jax_framework

    jax_framework._DEVICE_ALIGNMENT = 64
