"""Hazards of JAX in current versions: each test shows the hazard, or that zerocopy guards against it.

If JAX fixes a hazard, the test that shows it fails, and the guard can be removed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from helpers.arrays import aligned, sample
from helpers.jax_x64 import enable_x64

import zerocopy as zc
from zerocopy import registry
from zerocopy.framework import version_numbers

jax = pytest.importorskip("jax")
torch = pytest.importorskip("torch")


@pytest.mark.hazard("jax#copies-that-alias")
def test_jax_aliases_with_copy_true() -> None:
    x = sample("f4", (64,))
    assert jax.device_put(x, may_alias=False).unsafe_buffer_pointer() == x.ctypes.data
    if version_numbers(jax.__version__) >= (0, 10):  # 0.6 copies
        assert jax.dlpack.from_dlpack(x, copy=True).unsafe_buffer_pointer() == x.ctypes.data
    copy = zc.convert(x, to="jax", copy=True)
    assert not zc.shares_memory(x, copy)
    x[0] = 77
    assert float(copy[0]) != 77


@pytest.mark.hazard("jax#silent-copies")
def test_memory_without_64_byte_alignment_is_copied_for_jax() -> None:
    x = sample("f4", (65,))[1:]
    plan = zc.explain(x, "jax")
    assert not plan.zero_copy
    assert "64 bytes" in plan.reasons[0].why
    for _ in range(2):
        assert not zc.shares_memory(x, zc.convert(x, to="jax"))
    with pytest.raises(zc.CopyRequiredError, match="64"):
        zc.convert(x, to="jax", copy=False)


def _refilled(to_jax: Callable[[np.ndarray], Any]) -> int:
    """Count results that are wrong if their buffer is refilled at once, as data loaders do."""
    buffer, wrong = aligned(np.zeros(2**24 + 1, "f4"))[1:], 0
    for step in range(10):
        buffer[:] = step
        result = to_jax(buffer)
        buffer[:] = -1
        wrong += bool((np.asarray(result) != step).any())
    return wrong


@pytest.mark.hazard("jax#asynchronous-copies")
def test_jax_copies_in_the_background() -> None:
    if not _refilled(lambda buffer: jax.numpy.array(buffer)):
        pytest.skip("each copy finished in time: the hazard depends on timing")


@pytest.mark.hazard("jax#asynchronous-copies")
def test_copy_to_jax_is_finished_when_convert_returns() -> None:
    assert _refilled(lambda buffer: zc.convert(buffer, to="jax")) == 0
    assert _refilled(lambda buffer: zc.convert([buffer], to="jax")[0]) == 0
    assert _refilled(lambda buffer: zc.convert(memoryview(buffer), to="jax")) == 0
    assert _refilled(lambda buffer: zc.convert(torch.from_numpy(buffer), to="jax")) == 0


@pytest.mark.hazard("jax#read-only-memory")
def test_read_only_memory_is_aliased_by_jax() -> None:
    x = sample("f4", (64,))
    x.flags.writeable = False
    with pytest.raises(BufferError) if jax.__version_info__ < (0, 12) else nullcontext():
        jax.dlpack.from_dlpack(x)
    for _ in range(2):
        assert zc.shares_memory(x, zc.convert(x, to="jax", copy=False))
    assert zc.shares_memory(x, zc.convert(x, to="tensorflow", copy=False))
    assert not x.flags.writeable


@pytest.mark.hazard("jax#donation")
def test_donation_does_not_write_into_the_source() -> None:
    memory = sample("f4", (1024,))
    memory.flags.writeable = False
    before = memory.copy()
    add = jax.jit(lambda a: a + 1, donate_argnums=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        add(zc.convert(memory, to="jax")).block_until_ready()
    assert (memory == before).all()


@pytest.mark.hazard("jax#layouts")
def test_memory_with_gaps_is_copied_for_jax() -> None:
    x = sample("f4", (64,))[::2]
    with pytest.raises(jax.errors.JaxRuntimeError):
        jax.dlpack.from_dlpack(x)
    assert zc.convert(x, to="jax").tolist() == x.tolist()
    assert "gaps" in zc.explain(x, "jax").reasons[0].why


@pytest.mark.hazard("jax#layouts")
def test_transposed_memory_is_aliased_to_and_from_jax() -> None:
    x = sample("f4", (8, 16)).T
    y = zc.convert(x, to="jax", copy=False)
    assert zc.shares_memory(x, y)
    for _ in range(2):
        back = zc.convert(y, to="numpy", copy=None)
        assert zc.shares_memory(x, back)
        assert (back == x).all()
        assert not back.flags.writeable


@pytest.mark.hazard("jax#silent-truncation")
@pytest.mark.parametrize("dtype", ["int64", "uint64", "float64", "complex128"])
def test_the_public_import_does_not_truncate_either(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions of JAX whose private import is not known, such as 0.6, import capsules by the public one."""
    from zerocopy._frameworks.jax import capsules

    monkeypatch.setattr(capsules._IMPORT, "known", False)
    monkeypatch.setattr(capsules, "_import", None)
    import_ = registry.by_name("jax").fast_importers()["ndarray"]
    x = aligned([2**40 + 5, 1], dtype)
    with enable_x64(False), pytest.raises(zc.LossyConversionError, match="x64 mode is off"):
        import_(x)
    assert import_(x).dtype == dtype


@pytest.mark.hazard("jax#silent-truncation")
@pytest.mark.parametrize("dtype", ["int64", "uint64", "float64", "complex128"])
def test_64_bit_values_are_refused_by_jax_without_x64(dtype: str) -> None:
    x = aligned([2**40 + 5, 1], dtype)
    with enable_x64(False):
        assert jax.dlpack.from_dlpack(x).dtype.itemsize == x.dtype.itemsize // 2
        for source in (x, torch.from_numpy(x), memoryview(x)):
            for copy in (None, True, False):
                with pytest.raises(zc.LossyConversionError, match="jax_enable_x64"):
                    zc.convert(source, to="jax", copy=copy)
        assert not zc.explain(x, "jax").possible
        zc.convert(sample("f4"), to="jax")
        with pytest.raises(zc.LossyConversionError):  # the fast path exists now
            zc.convert(x, to="jax")
    assert zc.convert(zc.convert(x, to="jax"), to="numpy").tolist() == x.tolist()


@pytest.mark.hazard("jax#arrays-without-one-block-of-values")
def test_sharded_arrays_are_gathered(run_warm) -> None:
    process = run_warm(
        """
        import numpy as np, jax, zerocopy as zc
        from jax.sharding import Mesh, NamedSharding, PartitionSpec
        mesh = Mesh(np.array(jax.devices()), ("x",))
        x = jax.device_put(np.arange(8, dtype=np.float32), NamedSharding(mesh, PartitionSpec("x")))
        assert len(x.sharding.device_set) == 2
        for _ in range(2):
            for target in ("numpy", "torch"):
                plan = zc.explain(x, target)
                assert not plan.zero_copy and "sharded over 2" in plan.reasons[0].why
                assert zc.convert(zc.convert(x, to=target), to="numpy").tolist() == list(range(8))
                try: zc.convert(x, to=target, copy=False)
                except zc.CopyRequiredError: pass
                else: raise AssertionError
                zc.convert(jax.numpy.ones(3), to=target)
        """,
        XLA_FLAGS="--xla_force_host_platform_device_count=2",
    )
    assert process.returncode == 0, process.stderr


@pytest.mark.hazard("jax#arrays-without-one-block-of-values")
def test_deleted_jax_arrays_are_refused() -> None:
    x = jax.numpy.ones(4)
    zc.convert(x, to="numpy")
    x.delete()
    for target in ("numpy", "torch", "tensorflow"):
        with pytest.raises(zc.UnsupportedConversionError, match="deleted"):
            zc.convert(x, to=target)


@pytest.mark.hazard("jax#arrays-without-one-block-of-values")
def test_jax_tracers_are_refused() -> None:
    @jax.jit
    def traced(x):
        for target in ("numpy", "torch"):
            with pytest.raises(zc.UnsupportedConversionError, match="traced") as caught:
                zc.convert(x, to=target)
            assert caught.value.code == "traced"
        return zc.convert(x, to="jax")

    traced(jax.numpy.ones(3))


@pytest.mark.hazard("jax#arrays-without-one-block-of-values")
def test_jax_random_keys_are_refused() -> None:
    with pytest.raises(zc.UnsupportedConversionError, match="key_data"):
        zc.convert(jax.random.key(0), to="numpy")


@pytest.mark.hazard("jax#jax-without-a-cpu-backend")
def test_jax_without_a_host_platform_is_refused(run_python) -> None:
    """With JAX_PLATFORMS=cuda JAX has no host arrays; its own error is an assertion without a message."""
    pytest.importorskip("jax")
    process = run_python(
        """
        import numpy as np, zerocopy as zc
        x = np.arange(32, dtype="f4")
        assert not zc.explain(x, "jax").possible
        try:
            zc.convert(x, "jax")
        except zc.DeviceError as error:
            print(error)
        """,
        JAX_PLATFORMS="cuda",
    )
    message = "JAX is configured to use only cuda (JAX_PLATFORMS), and has no arrays on the host"
    assert message in process.stdout
    assert "JAX_PLATFORMS=cuda,cpu" in process.stdout


@pytest.mark.hazard("pandas#unpacked-values-of-jax")
def test_an_unpacked_array_that_jax_keeps_is_not_an_alias() -> None:
    """JAX 0.11.2 and later keep one array for all calls; its base is not None."""
    import ml_dtypes

    export = registry.by_name("jax").fast_exporters(type(jax.numpy.ones(1)))["ndarray"]
    kept = np.ones(4, ml_dtypes.int4)[:]
    assert kept.base is not None
    with pytest.raises(BufferError, match="packed"):
        export(kept)
