"""JAX arrays: immutable, aligned to 64 bytes on the host, and 32-bit unless x64 mode is on."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from zerocopy import registry
from zerocopy._frameworks import _obstacles as obstacles
from zerocopy._frameworks.jax import capsules
from zerocopy._frameworks.jax.capsules import OnDevice, from_capsule
from zerocopy.casting.values import fits
from zerocopy.device import CPU, CUDA, CUDA_MANAGED, HOST, NO_SYNC_STREAM, ROCM, Device
from zerocopy.dtype import COMPLEX, NATIVE_NAMES, SUBBYTE_NAMES, DType, from_numpy, native_numbers, to_numpy
from zerocopy.errors import DeviceError, Fix, LossyConversionError, Reason
from zerocopy.framework import Framework, refuse_dtype
from zerocopy.protocols import cuda_driver, dlpack
from zerocopy.protocols.array_interface import ALIGNMENT, writable_alias
from zerocopy.protocols.exporter_errors import ignored_errors
from zerocopy.source import Array, Source
from zerocopy.strided_view import MAX_NDIM, StridedView, contiguous_strides

#: Bytes up to which JAX gets a copy of an array, so that the call need not wait for the device.
_SMALL = 1 << 16
_DEVICE_ALIGNMENT = 16  # kEntryParameterAlignBytes, xla/service/gpu
_FOREIGN = (
    "bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz",
    "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn", "int2", "int4", "uint2", "uint4",
)  # fmt: skip
_CUDA_PLUGINS = ("jax_cuda12_plugin", "jax_cuda13_plugin")
_X64 = Fix(before="jax.config.update('jax_enable_x64', True)", effect="keeps 64 bits")
_NARROW = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}


class Jax(Framework):
    """``jax.Array`` on one device; sharded arrays are gathered."""

    name = "jax"
    aliases = ("jnp",)
    types = ("Array", "ArrayImpl", "numpy")
    kinds: Mapping[str, Any] = {"JAXSparse": "sparse"}
    root_modules = ("jax", "jaxlib")
    distribution = "jax"
    max_ndim = MAX_NDIM  # NumPy's, which passes host memory on
    device_kinds = ("cpu", "cuda")
    slow_reads = "not row-major"  # XLA's CPU backend copies other layouts in each call
    mutable = False
    can_copy_to_device = True
    can_cast = True
    actions: Mapping[str, Fix] = {
        "cast": Fix("{x}.astype('{type}')"),
        "canonical": Fix("{x}.sum_duplicates()"),
        "canonical-coo": Fix("{x}.sum_duplicates()"),
        "to-csr": Fix("jax.experimental.sparse.BCSR.from_bcoo({x})"),
        "to-coo": Fix("{x}.to_bcoo()"),
        "add-dimension": Fix("{x}[None].update_layout(n_batch=0)"),
    }

    def _import(self) -> ModuleType:
        from zerocopy.tables.result import Encoded, Masked

        jax = super()._import()
        # So that ``jax.tree`` and ``jax.jit`` take masked and encoded columns.
        with ignored_errors():  # JAX was imported again, or the program has registered them
            jax.tree_util.register_dataclass(Masked, data_fields=["values", "mask"], meta_fields=[])
            jax.tree_util.register_dataclass(
                Encoded,
                data_fields=["values", "offsets", "sizes", "categories", "mask"],
                meta_fields=["type", "unit", "timezone", "scale", "ordered"],
            )
        return jax

    def owns(self, cls: type) -> bool:
        jax = self.module()
        return issubclass(cls, (jax.Array, jax.core.Tracer)) or is_sparse_type(cls)

    # -- source ---------------------------------------------------------------

    def source(self, obj: Any) -> Source:
        import numpy as np

        jax = self.module()
        name = f"jax.{type(obj).__name__}"
        obstacles.check_source(name, _refusal(jax, obj))
        dtype = from_numpy(obj.dtype)
        if dtype is None:
            raise obstacles.refuse_source_dtype(name, obj.dtype, "cast it first: x.astype('float32')")
        devices = obj.sharding.device_set
        reason = _reason_to_gather(len(devices), dtype)
        if reason is not None:
            unknown = StridedView(
                0, obj.shape, contiguous_strides(obj.shape, dtype.itemsize), dtype, HOST, True, obj
            )
            # np.array, not asarray: JAX caches the result of asarray and returns it again.
            return Source(name, unknown, lambda: np.array(obj).view(dtype.storage), "buffer", [reason])
        # A capsule, not numpy.asarray, which copies an array that is not row-major (a transposed
        # import).
        if next(iter(devices)).platform == "cpu":
            view = dlpack.read(dlpack.request(obj, max_version=None), obj, HOST, readonly=True)
            return Source(name, view, dlpack.HostImport(view.owner[0], view), "dlpack")
        producer = OnDevice(obj)
        capsule = dlpack.request(producer, stream=NO_SYNC_STREAM, max_version=None)
        view = dlpack.read(capsule, obj, readonly=True)
        return Source(
            name,
            view,
            lambda: np.asarray(obj).view(dtype.storage),
            "dlpack",
            # np.array waits for the array. It copies, because JAX caches the result of asarray, and
            # torch could write to it.
            to_host=lambda stream: np.array(obj).view(dtype.storage),
            producer=producer,
            contiguous=lambda: jax.numpy.array(obj, copy=True),
        )

    def fast_exporters(self, cls: type) -> dict[str, Callable[[Any], Any]]:
        import numpy as np

        jax = self.module()
        # Compare the name, because creating an array to get its type would allocate device memory.
        if cls.__name__ != "ArrayImpl":
            return {}  # a tracer or a PRNG key
        # The devices cannot change once an array exists.
        platform = jax.local_devices()[0].platform
        if platform == "gpu":
            return {"native": capsules.device_exporter(jax), "host_copy": self.host_copier()}
        if platform != "cpu" or jax.device_count() != 1:
            return {}  # __dlpack__ exports only the first shard of a sharded array
        packed = _packed_numbers()

        def ndarray(array: Any) -> Any:
            view = np.asarray(array)
            # JAX 0.11.2 and later unpack sub-byte values into an array that they keep, with a capsule as its
            # base; before, the base of a copy was None.
            if view.base is None or view.dtype.num in packed:
                raise BufferError("packed or not row-major: asarray copied it")
            return view

        return {"ndarray": ndarray, "native": capsules.exporter(cls)}

    def host_copier(self) -> Callable[[Any], Array | None]:
        """Return a function that copies an array from a device to a new ndarray."""
        import numpy as np

        numbers = native_numbers()

        def copy_to_host(array: Any) -> Array:
            if array.dtype.num not in numbers or any(each.platform == "cpu" for each in array.devices()):
                raise BufferError("on the host, or a dtype that NumPy lacks")
            return np.array(array)  # as to_host in source()

        return copy_to_host

    # -- target ---------------------------------------------------------------

    def copy_reasons(self, view: StridedView) -> list[Reason]:
        # XLA on CPU: "Can't create a view of buffer with unaligned data". With copy=None,
        # jax.dlpack.from_dlpack copies silently.
        packed = [_packed(view.dtype)] if view.dtype.name in SUBBYTE_NAMES else []
        return packed + self._layout_reasons(view, ALIGNMENT)

    def device_copy_reasons(self, view: StridedView) -> list[Reason]:
        # XLA imports misaligned device memory, and refuses it when a computation reads it
        # (xla/service/gpu/gpu_executable.cc, CheckAlignment).
        return self._layout_reasons(view, _DEVICE_ALIGNMENT)

    def _layout_reasons(self, view: StridedView, alignment: int) -> list[Reason]:
        self._refuse(view)
        reasons = [] if view.is_aligned(alignment) else [obstacles.misaligned("JAX", view, alignment)]
        if not view.compact or view.has_negative_strides:
            reasons.append(obstacles.layout("JAX", "memory without gaps, repeats or reversals"))
        return reasons

    def _refuse(self, view: StridedView) -> None:
        jax = self.module()
        self.check_view(view)
        name = view.dtype.name
        if name not in NATIVE_NAMES and not (name in _FOREIGN and hasattr(jax.numpy, name)):
            raise refuse_dtype("jax", view.dtype)
        self.refuse_wide(name)

    def refuse_wide(self, name: str) -> None:
        if name in _NARROW and not self.module().config.jax_enable_x64:
            # jax.dlpack.from_dlpack and jnp.asarray truncate: 2**40 + 5 becomes 5.
            raise LossyConversionError(
                "to='jax'",
                f"JAX's x64 mode is off, so JAX would truncate {name} to half its size",
                fixes=[_X64, Fix(options={"dtype": _NARROW[name]}, effect="casts it")],
            )

    def from_host(self, array: Array, dtype: DType, device: Device, stream: int | None) -> Any:
        if device.is_host:
            return self.of_ndarray(array, dtype)
        # Wait for the transfer: JAX would still read the source after this returns, when its owner
        # may change it.
        jax = self.module()
        extended: Any = to_numpy(dtype)
        return jax.device_put(array.view(extended), _jax_device(jax, device)).block_until_ready()

    def of_ndarray(self, array: Array, dtype: DType) -> Any:
        if dtype.name in SUBBYTE_NAMES:
            jax = self.module()
            extended: Any = to_numpy(dtype)
            return jax.device_put(array.view(extended), _jax_device(jax, HOST))
        # JAX takes neither read-only NumPy arrays nor versioned capsules. A writable alias is safe:
        # JAX never writes, and XLA does not reuse donated imported buffers (test_jax).
        return from_capsule()(dlpack.export(writable_alias(array), dtype))

    def from_device(self, source: Source, stream: int | None) -> Any:
        jax = self.module()
        self.check_device(source.view.device)
        producer = registry.dlpack_producer(source)
        if producer.__dlpack_device__()[0] == CUDA_MANAGED:
            producer = capsules.as_cuda(producer)
        if source.view.device.type == ROCM:
            return jax.dlpack.from_dlpack(producer)
        # torch exports from the current device only, and JAX does not set the current device.
        with cuda_driver.on_device(source.view.device.id):
            return jax.dlpack.from_dlpack(producer)

    def copy_to_device(self, obj: Any, device: Device, stream: int | None) -> Any:
        jax = self.module()
        there = _jax_device(jax, device)
        if set(obj.devices()) == {there}:
            # device_put and from_dlpack(copy=True) return an alias (docs/hazards/jax.md).
            return jax.numpy.array(obj, copy=True)
        return jax.device_put(obj, there)

    def cast(self, obj: Any, dtype: DType) -> tuple[Any, bool]:
        jnp = self.module().numpy
        self.refuse_wide(dtype.name)
        old = from_numpy(obj.dtype)
        assert old is not None
        plain = obj.real if old.code == COMPLEX and dtype.code != COMPLEX else obj
        result = plain.astype(to_numpy(dtype))
        return result, fits(jnp, obj, result, old, dtype)

    def fast_importers(self) -> dict[str, Callable[[Any], Any]]:
        jax = self.module()
        names = [*NATIVE_NAMES, *(name for name in _FOREIGN if hasattr(jax.numpy, name))]
        return {
            "ndarray": self._import_ndarray,
            "native": capsules.importer(jax.config, names),
            "device_copy": self.device_copier,
            "native_device": capsules.device_importer(jax, names, _DEVICE_ALIGNMENT),
        }

    def device_copier(self, device: Device | None) -> Callable[[Array], Any] | None:
        if device is None or device.type != CUDA:
            return None
        import numpy as np

        jax, numbers = self.module(), native_numbers()
        there = _jax_device(jax, device)
        wide = frozenset(np.dtype(name).num for name in (*_NARROW, "q", "Q"))

        def copy_ndarray(array: Array) -> Any:
            number = array.dtype.num
            if number not in numbers or not array.dtype.isnative:
                raise BufferError("JAX lacks its dtype, or its bytes are swapped")
            if number in wide and not jax.config.jax_enable_x64:
                raise BufferError("JAX's x64 mode is off")
            # JAX may read its argument after the call returns. Therefore JAX gets a copy of a small array,
            # and the call waits until a large one has been read.
            if array.nbytes <= _SMALL:
                return jax.device_put(array.copy(), there)
            return jax.device_put(array, there).block_until_ready()

        return copy_ndarray

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
        # Read from the configuration: listing devices starts JAX's backends, and the CUDA backend
        # takes three quarters of a GPU's memory.
        platforms = jax.config.jax_platforms
        if platforms and "cpu" not in platforms.split(","):
            raise DeviceError(
                f"to='jax', device={str(device)!r}",
                f"JAX is configured to use only {platforms} (JAX_PLATFORMS), and has no arrays on the host",
                f"set JAX_PLATFORMS={platforms},cpu before JAX is imported, or pass device='cuda'",
                code="other-device",
            )

    def is_out_of_memory(self, error: Exception) -> bool:
        # XLA raises one class for all errors; the message starts with the name of absl's status.
        return isinstance(error, RuntimeError) and str(error).startswith("RESOURCE_EXHAUSTED")

    def devices(self) -> list[str]:
        jax = self.module()
        if _has_backends():
            return [str(self.parse_device(d)) for d in jax.local_devices() if d.platform in ("cpu", "gpu")]
        # Listing them starts the backends, and CUDA's takes three quarters of a GPU's memory.
        asked = (jax.config.jax_platforms or "cpu,cuda").replace("gpu", "cuda").split(",")
        built = any(importlib.util.find_spec(name) for name in _CUDA_PLUGINS)
        gpus = obstacles.cuda_devices(cuda_driver.count) if "cuda" in asked and built else []
        return [*(["cpu"] if "cpu" in asked else []), *gpus]


def _has_backends() -> bool:
    from jax._src import xla_bridge

    # Private; without it, the devices are listed as before the first array.
    started = getattr(xla_bridge, "backends_are_initialized", None)
    return started is not None and bool(started())


_DENSE = Fix("{x}.todense()", "makes it dense")
#: The attributes of JAX's sparse arrays that are arrays.
_PARTS = ("data", "row", "col", "indices", "indptr")


def is_sparse_type(cls: type) -> bool:
    """Whether a type is one of JAX's sparse arrays; compared by name, to import nothing."""
    return cls.__module__.startswith("jax.experimental.sparse") and hasattr(cls, "todense")


def _refusal(jax: Any, obj: Any) -> Reason | None:
    """Return why an array has no values to export; None if it has."""
    if is_sparse_type(type(obj)):
        parts = ", ".join(f"{{x}}.{name}" for name in _PARTS if hasattr(obj, name))
        return Reason("it is sparse", code="sparse", fixes=[_DENSE, Fix(f"[{parts}]", "converts its parts")])
    if isinstance(obj, jax.core.Tracer):
        return Reason(
            "it is traced and has no values yet",
            "convert it outside jit, grad and vmap, or call the function of the other framework through "
            "zc.bridge(function, to='jax')",
            code="traced",
        )
    if jax.dtypes.issubdtype(obj.dtype, jax.dtypes.extended):
        return Reason(
            "it holds random keys",
            code="missing-dtype",
            fixes=[Fix("jax.random.key_data({x})", "gives their integers")],
        )
    if obj.is_deleted():
        return Reason(
            "it is deleted, or was donated to a jitted function",
            "do not donate an array that you still need",
            code="no-memory",
        )
    if not obj.is_fully_addressable:
        return Reason(
            "some of its shards are in other processes",
            "gather it: jax.experimental.multihost_utils.process_allgather(x)",
            code="sharded",
        )
    return None


def _reason_to_gather(count: int, dtype: DType) -> Reason | None:
    """Return why no single block of memory holds the values as NumPy stores them; None if one does."""
    if count > 1:
        return Reason(
            f"it is sharded over {count} devices",
            code="sharded",
            fixes=[Fix("[s.data for s in {x}.addressable_shards]", "converts its shards")],
        )
    return _packed(dtype) if dtype.name in SUBBYTE_NAMES else None


def _packed_numbers() -> frozenset[int]:
    """Return the numbers of the NumPy dtypes whose values JAX packs."""
    import ml_dtypes
    import numpy as np

    return frozenset(np.dtype(getattr(ml_dtypes, n)).num for n in SUBBYTE_NAMES if hasattr(ml_dtypes, n))


def _packed(dtype: DType) -> Reason:
    return Reason(f"JAX packs {dtype} and NumPy does not", code="packed-bits")


def _jax_device(jax: Any, device: Device) -> Any:
    platform = "cpu" if device.is_host else "cuda"
    try:
        devices = jax.local_devices(backend=platform)
    except RuntimeError as error:
        raise DeviceError(
            f"to='jax', device={str(device)!r}",
            f"JAX has no {platform} devices: {error}",
            "install a CUDA build: pip install 'jax[cuda13]', and check the driver with nvidia-smi",
            code="other-device",
            fixes=[obstacles.ON_HOST],
        ) from error
    if device.is_host:
        return devices[0]
    for candidate in devices:
        if candidate.local_hardware_id == device.id:
            return candidate
    raise obstacles.refuse_index("jax", device, len(devices))


FRAMEWORK = Jax()
