"""JAX's private functions against its public ones, and the guards of the compiled exporter and importer."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.jax_x64 import enable_x64
from helpers.native_core import (
    REFUSED,
    aligned_copy,
    aligned_empty,
    core,
    exported,
    keep_capsule,
    memory_route,
    require_core,
)

from zerocopy.dtype import by_name
from zerocopy.protocols import dlpack

require_core()
jax = pytest.importorskip("jax")
jnp = jax.numpy

from zerocopy import registry  # noqa: E402 - after the check for jax
from zerocopy._frameworks.jax import capsules  # noqa: E402

JAX = registry.by_name("jax")
EXPORTER, IMPORTER = capsules.exporter(type(jnp.zeros(1))), JAX.fast_importers()["native"]
FOREIGN = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
NAMES = (
    "bool",
    "int8",
    "uint16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
)
NAMES += FOREIGN


@pytest.fixture(autouse=True, scope="module")
def _declared():
    import ml_dtypes

    for name in FOREIGN:
        core.set_dtype(np.dtype(getattr(ml_dtypes, name)), by_name(name).code, by_name(name).bits)


@pytest.fixture
def _x32():
    with enable_x64(False):
        yield


def aligned(values, dtype):
    return aligned_copy(np.asarray(values).astype(dtype))


@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (1, 3, 1)])
@pytest.mark.parametrize("name", NAMES)
def test_the_private_importer_makes_what_the_public_one_does(name, shape):
    array = jnp.ones(shape, name)
    a = capsules.from_capsule()(array.__dlpack__())
    b = jax.dlpack.from_dlpack(dlpack.Handover(array.__dlpack__()))
    assert (a.dtype, a.shape, a.unsafe_buffer_pointer()) == (b.dtype, b.shape, b.unsafe_buffer_pointer())
    assert a.sharding == b.sharding
    assert a.aval == b.aval
    assert a.committed == b.committed or not hasattr(b, "committed")
    np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    assert a.unsafe_buffer_pointer() == array.unsafe_buffer_pointer()


@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (1, 3, 1), (1,) * 9])
@pytest.mark.parametrize("name", NAMES)
def test_every_dtype_and_0_d_in_both_directions(name, shape):
    array = jnp.ones(shape, name)
    host = memory_route(EXPORTER, core.NDArrayImporter())(array)
    assert host.dtype == array.dtype
    assert host.shape == shape
    assert not host.flags.writeable
    assert host.ctypes.data == array.unsafe_buffer_pointer()
    source = aligned(np.ones(shape), array.dtype)
    result = memory_route(core.NDArrayExporter(), IMPORTER)(source)
    assert result.dtype == array.dtype
    assert result.unsafe_buffer_pointer() == source.ctypes.data
    np.testing.assert_array_equal(np.asarray(result), source)


@pytest.mark.parametrize("name", ["int64", "uint64", "float64", "complex128"])
@pytest.mark.parametrize("how", ["config", "context manager"])
def test_64_bits_pass_only_in_64_bit_mode(name, how):
    source = aligned(np.arange(4), name)
    route = memory_route(core.NDArrayExporter(), IMPORTER)

    def check():
        with pytest.raises(BufferError, match=REFUSED):
            route(source)
        assert route(aligned(np.arange(4), "complex64")).dtype == "complex64"

    assert route(source).dtype == name
    if how == "config":
        jax.config.update("jax_enable_x64", False)
        try:
            check()
        finally:
            jax.config.update("jax_enable_x64", True)
    else:
        with enable_x64(False):
            check()
            with enable_x64(True):
                assert route(source).dtype == name
            check()
    assert route(source).dtype == name


def test_the_context_manager_of_one_thread_does_not_change_another():
    import threading

    source, got = aligned(np.arange(4), "float64"), []
    route = memory_route(core.NDArrayExporter(), IMPORTER, fallback=lambda x: None)
    with enable_x64(False):
        thread = threading.Thread(target=lambda: got.append(route(source)))
        thread.start()
        thread.join()
        assert route(source) is None
    assert got[0].dtype == "float64"


def test_deleted_and_donated_arrays_are_left_to_the_slow_path():
    deleted, donated = jnp.arange(4.0), jnp.arange(8.0)
    deleted.delete()
    jax.jit(lambda x: x + 1, donate_argnums=0)(donated)
    for array in (deleted, donated):
        if not array.is_deleted():
            continue  # this backend ignores donation
        for importer in (core.NDArrayImporter(), keep_capsule([])):
            assert memory_route(EXPORTER, importer, fallback=lambda x: None)(array) is None


@pytest.mark.parametrize("to", ["ndarray", "capsule"])
def test_a_result_survives_the_arrays_deletion_and_donation(to):
    for kill in (lambda x: x.delete(), lambda x: jax.jit(lambda y: y * 2, donate_argnums=0)(x)):
        array, got = jnp.arange(10_000.0), []
        result = memory_route(EXPORTER, core.NDArrayImporter() if to == "ndarray" else keep_capsule(got))(
            array
        )
        try:
            killed = kill(array)
        except (RuntimeError, ValueError):
            killed = None  # JAX refuses while another object holds the buffer
        others = [jnp.full(10_000, 7.0) for _ in range(4)]
        host = result if to == "ndarray" else np.from_dlpack(dlpack.Handover(got[0]))
        np.testing.assert_array_equal(host, np.arange(10_000.0))
        del others, killed


def test_sharded_arrays_have_no_compiled_route(run_warm):
    completed = run_warm(
        """
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
import zerocopy
from zerocopy import registry
single = jax.numpy.ones(3, "f4")
# The bare functions export only the first shard.
assert "native" not in registry.by_name("jax").fast_exporters(type(single))
mesh = Mesh(np.array(jax.devices()), ("x",))
for spec in (PartitionSpec("x"), PartitionSpec()):
    array = jax.device_put(np.arange(8, dtype="f4"), NamedSharding(mesh, spec))
    for _ in range(2):
        assert zerocopy.convert(single, "numpy").shape == (3,)
        assert zerocopy.convert(array, "numpy").tolist() == list(range(8))
print("end")
""",
        XLA_FLAGS="--xla_force_host_platform_device_count=4",
        JAX_PLATFORMS="cpu",
    )
    assert completed.stdout == "end\n", completed.stderr


def test_traced_arrays_are_left_to_the_slow_path():
    def function(x):
        assert memory_route(EXPORTER, core.NDArrayImporter(), fallback=lambda x: None)(x) is None
        return x

    jax.jit(function)(jnp.arange(3.0))
    jax.grad(lambda x: function(x).sum())(jnp.arange(3.0))
    jax.vmap(function)(jnp.ones((2, 3)))


@pytest.mark.parametrize("offset", [1, 4, 8, 32, 63, 64])
def test_misaligned_memory_is_copied(offset):
    block = aligned_empty((256,), np.dtype("u1"))
    block[:] = range(256)
    source = block[offset : offset + 64]
    result = memory_route(core.NDArrayExporter(), IMPORTER)(source)
    np.testing.assert_array_equal(np.asarray(result), source)
    assert (result.unsafe_buffer_pointer() == source.ctypes.data) is (offset % 64 == 0)


@pytest.mark.parametrize(
    ("make", "aliases"),
    [
        (lambda x: x, True),
        (lambda x: x.transpose(2, 0, 1), True),
        (lambda x: x.T, True),
        (lambda x: x[:, ::2], False),
        (lambda x: x[:, :, :2], False),
        (lambda x: np.broadcast_to(x[:1], (4, 3, 4)), False),
        (lambda x: x[:1], True),
    ],
)
def test_layouts(make, aliases):
    source = make(aligned(np.arange(24.0).reshape(2, 3, 4), "float32"))
    result = memory_route(core.NDArrayExporter(), IMPORTER)(source)
    np.testing.assert_array_equal(np.asarray(result), source)
    assert (result.unsafe_buffer_pointer() == source.ctypes.data) is aliases


def test_reversed_capsules_and_wild_strides_of_size_1():
    memory = aligned(np.arange(64), "float32")
    exporter = core.CapsuleExporter(lambda x: x)
    for fields in (
        {"shape": (5,), "strides": (-1,), "data": memory[9:].ctypes.data},
        {"shape": (1, 5, 1), "strides": (2**62, 1, -7)},
        {"shape": (1, 1), "strides": (-3, 2**50)},
    ):
        source = exported(memory, **fields)
        expected = memory_route(exporter, core.NDArrayImporter())(source.capsule()).copy()
        result = memory_route(exporter, IMPORTER, fallback=lambda x: None)(source.capsule())
        assert result is None or np.array_equal(np.asarray(result), expected)


def test_the_source_lives_as_long_as_jaxs_array():
    source = exported(aligned(np.arange(64), "float32"))
    result = memory_route(core.CapsuleExporter(lambda x: x), IMPORTER)(source.capsule())
    assert source.deleted == 0
    result.delete()
    del result
    assert source.deleted == 1
