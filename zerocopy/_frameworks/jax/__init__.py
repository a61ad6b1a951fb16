"""JAX arrays: immutable, aligned to 64 bytes on the host, and 32-bit unless told otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from zerocopy import registry
from zerocopy._frameworks.jax.capsules import AsCuda, OnDevice, from_capsule, on_device, to_capsule
from zerocopy.device import CPU, CUDA, CUDA_MANAGED, HOST, NO_SYNC_STREAM, ROCM, Device
from zerocopy.dtype import NATIVE_NAMES, SUBBYTE_NAMES, DType, from_numpy, to_numpy
from zerocopy.errors import DeviceError, LossyConversionError, Reason, UnsupportedConversionError
from zerocopy.framework import Array, Framework, Source, refuse_dtype, refuse_ndim
from zerocopy.protocols import cuda_driver, dlpack
from zerocopy.protocols.array_interface import ALIGNMENT, misalignment, writable_alias
from zerocopy.strided_view import StridedView, contiguous_strides

_MAX_NDIM = 64
_DEVICE_ALIGNMENT = 16  # kEntryParameterAlignBytes, xla/service/gpu
_WIDE = ("int64", "uint64", "float64", "complex128")
_FOREIGN = (
    "bfloat16",
    "float8_e3m4",
    "float8_e4m3",
    "float8_e4m3b11fnuz",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float4_e2m1fn",
    "int2",
    "int4",
    "uint2",
    "uint4",
)
_X64 = "jax.config.update('jax_enable_x64', True), or cast to 32 bits in the source"


class Jax(Framework):
    """``jax.Array`` on one device; sharded arrays are gathered."""

    name = "jax"
    pool_hook = "zerocopy._frameworks.jax.pool:JAXHook"
    root_modules = ("jax", "jaxlib")
    distribution = "jax"
    device_kinds = ("cpu", "cuda")
    mutable = False
    can_copy_to_device = True

    def owns(self, cls: type) -> bool:
        jax = self.module()
        return issubclass(cls, (jax.Array, jax.core.Tracer))

    # -- source ---------------------------------------------------------------

    def source(self, obj: Any) -> Source:
        import numpy as np

        jax = self.module()
        name = f"jax.{type(obj).__name__}"
        refusal = _refusal(jax, obj)
        if refusal is not None:
            raise UnsupportedConversionError(f"convert({name})", refusal.why, refusal.remedy)
        dtype = from_numpy(obj.dtype)
        if dtype is None:
            raise UnsupportedConversionError(
                f"convert({name})",
                f"{obj.dtype} has no counterpart elsewhere",
                "cast it first: x.astype('float32')",
            )
        reason = _no_one_block(obj, dtype)
        if reason is not None:
            unknown = StridedView(
                0, obj.shape, contiguous_strides(obj.shape, dtype.itemsize), dtype, HOST, True, obj
            )
            # array and not asarray: JAX keeps what asarray has made, and hands it out again.
            return Source(name, unknown, lambda: np.array(obj).view(dtype.storage), "buffer", [reason])
        # The capsule and not numpy.asarray: of an array in another layout than
        # row-major (a transposed import) asarray copies, and the capsule aliases.
        if obj.__dlpack_device__()[0] == CPU:
            capsule = dlpack.request(obj, max_version=None)
            view = replace(dlpack.read(capsule, obj), readonly=True)

            def host() -> Array:
                array = dlpack.as_ndarray(capsule, view)
                array.flags.writeable = False
                return array

            return Source(name, view, host, "dlpack")
        producer = OnDevice(obj)
        capsule = dlpack.request(producer, stream=NO_SYNC_STREAM, max_version=None)
        view = replace(dlpack.read(capsule, obj), readonly=True)
        return Source(
            name,
            view,
            lambda: np.asarray(obj).view(dtype.storage),
            "dlpack",
            # It waits for the array. A copy, since asarray hands out a value that JAX
            # keeps: written through torch, which marks nothing read-only, it would change.
            to_host=lambda stream: np.array(obj).view(dtype.storage),
            producer=producer,
            contiguous=lambda: jax.numpy.array(obj, copy=True),
        )

    def fast_exporters(self, cls: type) -> dict[str, Callable[[Any], Any]]:
        import numpy as np

        jax = self.module()
        # By name: to make an array and look at its type takes memory of a device.
        if cls.__name__ != "ArrayImpl":
            return {}  # a tracer, a PRNG key
        if jax.device_count() != 1 or jax.local_devices()[0].platform != "cpu":
            # Of an array over several devices to_capsule exports the first shard, and of
            # one on a GPU it exports memory without its stream: where there can be such
            # arrays, each one is looked at. Devices never change once there are arrays.
            return {"cuda": on_device}
        asarray, export = np.asarray, to_capsule()

        def ndarray(array: Any) -> Any:
            view = asarray(array)
            if view.base is None:
                raise BufferError("packed, or in another layout: asarray has copied it")
            return view

        return {"ndarray": ndarray, "readonly": ndarray, "capsule": export, "aligned": export}

    # -- target ---------------------------------------------------------------

    def copy_reasons(self, view: StridedView) -> list[Reason]:
        self._refuse(view)
        reasons = []
        if view.dtype.name in SUBBYTE_NAMES:
            reasons.append(Reason(f"JAX packs {view.dtype} and NumPy does not", ""))
        if not view.is_aligned(ALIGNMENT):
            # XLA on CPU: "Can't create a view of buffer with unaligned data"; with
            # copy=None jax.dlpack.from_dlpack copies without a word.
            reasons.append(
                Reason(
                    f"JAX takes host memory at multiples of 64 bytes only, and this is at {view.ptr % 64}",
                    "allocate it so where the data are made (torch and Arrow do), or let it be copied",
                )
            )
        if not view.compact or view.has_negative_strides:
            reasons.append(
                Reason(
                    "JAX takes memory without gaps, repeats or reversals only",
                    "make it contiguous where the data are made: numpy.ascontiguousarray(x)",
                )
            )
        return reasons

    def device_copy_reasons(self, view: StridedView) -> list[Reason]:
        self._refuse(view)
        reasons = []
        if not view.is_aligned(_DEVICE_ALIGNMENT):
            # XLA refuses it, not when it is imported but when a computation reads it
            # (xla/service/gpu/gpu_executable.cc, CheckAlignment).
            reasons.append(
                Reason(f"JAX takes device memory at multiples of {_DEVICE_ALIGNMENT} bytes only", "")
            )
        if not view.compact or view.has_negative_strides:
            reasons.append(
                Reason("JAX takes memory without gaps, repeats or reversals only", "copy it at its source")
            )
        return reasons

    def _refuse(self, view: StridedView) -> None:
        jax = self.module()
        if view.ndim > _MAX_NDIM:
            raise refuse_ndim("jax", view, _MAX_NDIM)
        name = view.dtype.name
        if name not in NATIVE_NAMES and not (name in _FOREIGN and hasattr(jax.numpy, name)):
            raise refuse_dtype("jax", view.dtype)
        if name in _WIDE and not jax.config.jax_enable_x64:
            # jax.dlpack.from_dlpack and jnp.asarray truncate: 2**40 + 5 becomes 5.
            raise LossyConversionError(
                "to='jax'", f"JAX's x64 mode is off, and it would make {name} a 32-bit type", _X64
            )

    def from_host(self, array: Array, dtype: DType, device: Device, stream: int | None) -> Any:
        jax = self.module()
        extended = to_numpy(dtype)
        assert extended is not None  # JAX depends on ml_dtypes
        if not device.is_host:
            # Wait for the transfer: until it is done JAX reads the source's memory,
            # which its owner may change as soon as this returns.
            return jax.device_put(array.view(extended), _jax_device(jax, device)).block_until_ready()
        if dtype.name in SUBBYTE_NAMES:
            return jax.device_put(array.view(extended), _jax_device(jax, device))
        # JAX takes no read-only NumPy array and no versioned capsule; it never writes,
        # so a writable alias is safe. Donation does not break that: XLA does not
        # reuse the memory of imported buffers (test_jax).
        return from_capsule()(dlpack.export(writable_alias(array), dtype))

    def from_device(self, source: Source, stream: int | None) -> Any:
        jax = self.module()
        self.check_device(source.view.device)
        producer = source.producer
        if not hasattr(type(producer), "__dlpack__"):
            # The CUDA Array Interface alone: JAX imports DLPack only, so a framework
            # that exports CUDA memory lends its exporter (law 7).
            lender = registry.relay(source.view, dlpack=True)
            producer = lender.source(lender.from_device(source, None)).producer
        if producer.__dlpack_device__()[0] == CUDA_MANAGED:
            producer = AsCuda(producer)
        if source.view.device.type == ROCM:
            return jax.dlpack.from_dlpack(producer)
        # torch exports from the current device alone, and JAX makes none current.
        with cuda_driver.on_device(source.view.device.id):
            return jax.dlpack.from_dlpack(producer)

    def copy_to_device(self, obj: Any, device: Device, stream: int | None) -> Any:
        jax = self.module()
        there = _jax_device(jax, device)
        if set(obj.devices()) == {there}:
            # device_put and from_dlpack(copy=True) alias all the same (hazard 4).
            return jax.numpy.array(obj, copy=True)
        return jax.device_put(obj, there)

    def fast_importers(self) -> dict[str, Callable[[Any], Any]]:
        import numpy as np

        config = self.module().config
        import_ = from_capsule()
        # By number, since hashing a dtype takes 90 ns more; "q" and "Q" are 64-bit integers
        # with numbers of their own.
        wide = frozenset(np.dtype(name).num for name in (*_WIDE, "q", "Q"))

        def capsule(given: Any) -> Any:
            array = import_(given)
            if array.dtype.num in wide and not config.jax_enable_x64:
                raise BufferError("JAX's x64 mode is off")
            return array

        def ndarray(array: Any) -> Any:
            if array.dtype.num in wide and not config.jax_enable_x64:
                raise BufferError("JAX's x64 mode is off")
            # JAX copies misaligned memory itself, and returns before it has: what the source's
            # owner writes meanwhile is in the copy (docs/hazards.md, "A copy that is still going
            # on"). So it is copied here, and finished.
            if misalignment(array):
                raise BufferError("misaligned: the careful way copies it")
            return import_(array.__dlpack__())  # gaps and reversals it refuses

        def readonly(array: Any) -> Any:
            return ndarray(writable_alias(array))

        return {"aligned": capsule, "readonly": readonly, "ndarray": ndarray}

    # -- devices --------------------------------------------------------------

    def parse_device(self, spec: Any) -> Device:
        devices = getattr(spec, "device_set", None)  # a sharding
        if devices is not None and len(devices) == 1:
            (spec,) = devices
        if isinstance(spec, self.module().Device):
            kind = {"cpu": CPU, "gpu": CUDA, "cuda": CUDA, "rocm": ROCM}.get(spec.platform)
            if kind is not None:
                return Device(kind, 0 if kind == CPU else int(spec.local_hardware_id or 0))
        return super().parse_device(spec)

    def check_device(self, device: Device) -> None:
        super().check_device(device)
        jax = self.module()
        if not device.is_host:
            _jax_device(jax, device)
            return
        # Read and not tried: to ask for devices starts JAX's backends, one of which takes
        # three quarters of a GPU's memory.
        told = jax.config.jax_platforms
        if told and "cpu" not in told.split(","):
            raise DeviceError(
                f"to='jax', device={str(device)!r}",
                f"JAX is told to use {told} alone (JAX_PLATFORMS), and has no arrays on the host",
                f"JAX_PLATFORMS={told},cpu before JAX is imported, or ask for its device: device='cuda'",
            )

    def is_out_of_memory(self, error: Exception) -> bool:
        # XLA's errors are one class, with absl's name of the status before the text.
        return isinstance(error, RuntimeError) and str(error).startswith("RESOURCE_EXHAUSTED")

    def devices(self) -> list[str]:
        jax = self.module()
        return [str(self.parse_device(d)) for d in jax.local_devices() if d.platform in ("cpu", "gpu")]


def _refusal(jax: Any, obj: Any) -> Reason | None:
    """Return why an array has no values to hand out, if so."""
    if isinstance(obj, jax.core.Tracer):
        return Reason(
            "it is traced and has no values yet",
            "convert outside of jit, grad and vmap, or call back with jax.pure_callback",
        )
    if jax.dtypes.issubdtype(obj.dtype, jax.dtypes.extended):
        return Reason("it holds random keys", "jax.random.key_data(x) gives their integers")
    if obj.is_deleted():
        return Reason(
            "it is deleted, or was donated to a jitted function", "keep an array that you still need"
        )
    if not obj.is_fully_addressable:
        return Reason(
            "other processes hold parts of it",
            "gather it: jax.experimental.multihost_utils.process_allgather(x)",
        )
    return None


def _no_one_block(obj: Any, dtype: DType) -> Reason | None:
    """Return why an array is no one block of memory with its values in NumPy's form, if so."""
    count = len(obj.sharding.device_set)
    if count > 1:
        return Reason(
            f"it is sharded over {count} devices",
            "convert the parts: [s.data for s in x.addressable_shards]",
        )
    if dtype.name in SUBBYTE_NAMES:
        return Reason(f"JAX packs {dtype} and NumPy does not", "")
    return None


def _jax_device(jax: Any, device: Device) -> Any:
    platform = "cpu" if device.is_host else "cuda"
    try:
        devices = jax.local_devices(backend=platform)
    except RuntimeError as error:
        raise DeviceError(
            f"to='jax', device={str(device)!r}",
            f"JAX has no {platform} devices: {error}",
            "install a CUDA build: pip install 'jax[cuda13]', and check the driver with nvidia-smi",
        ) from error
    if device.is_host:
        return devices[0]
    for found in devices:
        if found.local_hardware_id == device.id:
            return found
    raise DeviceError(
        f"to='jax', device={str(device)!r}", f"JAX sees {len(devices)} CUDA devices", "name one of them"
    )


FRAMEWORK = Jax()
