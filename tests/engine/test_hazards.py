"""Hazards that are live in today's frameworks: first that each is there, then that it is guarded.

Where a framework no longer has a hazard the first half of a test fails, and the
guard can go. What could kill the process runs in one of its own.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.arrays import aligned, sample

import zerocopy as zc

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")
tf = pytest.importorskip("tensorflow")
pa = pytest.importorskip("pyarrow")


# 1. torch aborts on negative strides ------------------------------------------------


def test_torch_dies_of_negative_strides(run_python) -> None:
    died = run_python("import numpy as np, torch; torch.from_dlpack(np.arange(4.)[::-1])")
    assert died.returncode != 0


@pytest.mark.parametrize("twice", [False, True])
def test_negative_strides_reach_torch_as_a_copy(run_python, twice: bool) -> None:
    done = run_python(
        f"""
        import numpy as np, zerocopy as zc
        if {twice}: zc.convert(np.arange(4.), to="torch")  # the fast way is known now
        x = np.arange(6.)[::-1]
        class Only:
            def __dlpack__(self, **k): return x.__dlpack__(**k)
            def __dlpack_device__(self): return (1, 0)
        for source in (x, Only(), x.reshape(2, 3)[:, ::-1]):
            plan = zc.explain(source, "torch")
            assert not plan.zero_copy and "negative" in plan.reasons[0].why, plan
            assert zc.convert(source, to="torch").numpy().tolist() == np.asarray(zc.view(source)).tolist()
            try: zc.convert(source, to="torch", copy=False)
            except zc.CopyRequiredError: pass
            else: raise AssertionError
        """
    )
    assert done.returncode == 0, done.stderr


# 2. torch's lazy bits and gradients -------------------------------------------------


def test_torch_exports_sign_flipped_negative_views() -> None:
    x = torch.tensor([1 + 2j, 3 - 4j]).conj().imag
    assert x.is_neg()
    exported = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x))
    assert exported.tolist() == [-v for v in x.tolist()]


@pytest.mark.parametrize("target", ["numpy", "jax", "tensorflow", "pyarrow"])
@pytest.mark.parametrize("lazy", [lambda z: z.conj(), lambda z: z.conj().imag])
def test_lazy_bits_are_resolved(target: str, lazy) -> None:
    x = lazy(torch.tensor([1 + 2j, 3 - 4j]))
    plan = zc.explain(x, target)
    if not plan.possible:
        assert "complex" in plan.reasons[0].why
        return
    assert not plan.zero_copy
    assert "lazily" in plan.reasons[0].why
    assert zc.convert(zc.convert(x, to=target), to="numpy").tolist() == x.tolist()
    with pytest.raises(zc.CopyRequiredError, match="lazily"):
        zc.convert(x, to=target, copy=False)
    assert not zc.shares_memory(x, zc.convert(x, to=target))


@pytest.mark.parametrize(
    "make", [lambda: torch.ones(3, requires_grad=True), lambda: torch.nn.Parameter(torch.ones(3))]
)
def test_gradients_are_refused_and_detach_is_the_remedy(make) -> None:
    x = make()
    zc.convert(x.detach(), to="numpy")
    for copy in (None, True, False):
        with pytest.raises(zc.UnsupportedConversionError, match=r"detach\(\)"):
            zc.convert(x, to="numpy", copy=copy)
    assert zc.shares_memory(x.detach(), zc.convert(x.detach(), to="numpy"))
    assert zc.convert(x, to="torch") is x
    assert zc.convert(x, to="torch", copy=True).requires_grad


# 3. TensorFlow: strings and misaligned memory ----------------------------------------


def test_tensorflow_dies_of_exporting_strings(run_python) -> None:
    died = run_python("import tensorflow as tf; tf.experimental.dlpack.to_dlpack(tf.constant(['a']))")
    assert died.returncode != 0


def test_tensorflow_dies_of_misaligned_memory(run_python) -> None:
    died = run_python(
        """
        import numpy as np, tensorflow as tf
        raw = np.zeros(4 * 1001 + 64, np.uint8)
        start = -raw.ctypes.data % 64 + 4
        x = raw[start:start + 4000].view(np.float32)
        t = tf.experimental.dlpack.from_dlpack(x.__dlpack__())
        print(tf.reduce_sum(tf.reshape(t, (10, 100)), axis=0)[0].numpy(), (t + 1)[0].numpy())
        print(tf.linalg.matmul(tf.reshape(t, (10, 100)), tf.reshape(t, (100, 10)))[0, 0].numpy())
        """
    )
    assert died.returncode != 0


def test_tensorflow_hazards_are_guarded(run_python) -> None:
    done = run_python(
        """
        import numpy as np, tensorflow as tf, zerocopy as zc
        from zerocopy.protocols.array_interface import aligned_empty
        for _ in range(2):
            for target in ("numpy", "torch", "jax", "pyarrow"):
                try: zc.convert(tf.constant(["a", "b"]), to=target)
                except zc.UnsupportedConversionError as error: assert "string" in str(error)
                else: raise AssertionError(target)
                zc.convert(tf.constant([1.0]), to=target)  # the fast way is known now
        base = aligned_empty((1001,), np.dtype(np.float32)); base[:] = 1
        import torch
        for _ in range(2):
            for x in (base[1:], torch.from_numpy(base)[1:]):
                assert not zc.explain(x, "tensorflow").zero_copy
                t = zc.convert(x, to="tensorflow")
                product = tf.linalg.matmul(tf.reshape(t, (10, 100)), tf.reshape(t, (100, 10)))
                assert float(tf.reduce_sum(product)) == 10000
                try: zc.convert(x, to="tensorflow", copy=False)
                except zc.CopyRequiredError as error: assert "64" in str(error)
                else: raise AssertionError
            zc.convert(base, to="tensorflow"); zc.convert(torch.from_numpy(base), to="tensorflow")
        """
    )
    assert done.returncode == 0, done.stderr


def test_tensorflow_hands_out_immutable_memory_as_writable() -> None:
    assert tf.constant([1.0]).__array__().flags.writeable
    assert tf.constant([1.0], tf.bfloat16).__array__().flags.writeable
    for dtype in (tf.float32, tf.bfloat16):
        x = tf.constant([1.0, 2.0], dtype)
        for _ in range(2):
            assert not zc.convert(x, to="numpy").flags.writeable
        assert zc.explain(x, "numpy").zero_copy


@pytest.mark.parametrize(
    "make",
    [
        lambda: tf.ragged.constant([[1], [2, 3]]),
        lambda: tf.sparse.from_dense([[0, 1]]),
        lambda: tf.constant(["a"]),
        lambda: tf.io.parse_tensor(tf.io.serialize_tensor(tf.constant(["b"])), tf.string),
    ],
)
def test_tensorflow_objects_that_are_no_dense_numbers(make) -> None:
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.convert(make(), to="numpy")
    assert caught.value.remedy


def test_tensorflow_symbolic_tensors() -> None:
    @tf.function
    def traced(x):
        with pytest.raises(zc.UnsupportedConversionError, match="symbolic"):
            zc.convert(x, to="numpy")
        return x

    traced(tf.constant([1.0]))


def test_tensorflow_variables_give_their_value() -> None:
    x = tf.Variable([1.0, 2.0])
    assert zc.convert(x, to="numpy").tolist() == [1, 2]
    assert zc.explain(x, "numpy").zero_copy == zc.shares_memory(x, zc.convert(x, to="numpy"))


# 4-6. JAX: copies that alias, silent copies, silent truncation -----------------------


def test_jax_copy_true_aliases() -> None:
    x = sample("f4", (64,))
    assert jax.device_put(x, may_alias=False).unsafe_buffer_pointer() == x.ctypes.data
    assert jax.dlpack.from_dlpack(x, copy=True).unsafe_buffer_pointer() == x.ctypes.data
    copy = zc.convert(x, to="jax", copy=True)
    assert not zc.shares_memory(x, copy)
    x[0] = 77
    assert float(copy[0]) != 77


def test_jax_wants_64_bytes_and_says_so() -> None:
    x = sample("f4", (65,))[1:]
    plan = zc.explain(x, "jax")
    assert not plan.zero_copy
    assert "64 bytes" in plan.reasons[0].why
    for _ in range(2):
        assert not zc.shares_memory(x, zc.convert(x, to="jax"))
    with pytest.raises(zc.CopyRequiredError, match="64"):
        zc.convert(x, to="jax", copy=False)


def _refilled(to_jax: Callable[[np.ndarray], Any]) -> int:
    """Count the arrays that are wrong when their buffer is filled anew at once, as data loaders do."""
    buffer, wrong = aligned(np.zeros(2**24 + 1, "f4"))[1:], 0
    for step in range(10):
        buffer[:] = step
        made = to_jax(buffer)
        buffer[:] = -1
        wrong += bool((np.asarray(made) != step).any())
    return wrong


def test_jax_copies_in_the_background() -> None:
    if not _refilled(lambda buffer: jax.numpy.array(buffer)):
        pytest.skip("each copy was through in time: the hazard is one of timing")


def test_a_copy_to_jax_is_finished() -> None:
    assert _refilled(lambda buffer: zc.convert(buffer, to="jax")) == 0
    assert _refilled(lambda buffer: zc.convert([buffer], to="jax")[0]) == 0
    assert _refilled(lambda buffer: zc.convert(memoryview(buffer), to="jax")) == 0
    assert _refilled(lambda buffer: zc.convert(torch.from_numpy(buffer), to="jax")) == 0


def test_jax_takes_read_only_memory_without_copying() -> None:
    x = sample("f4", (64,))
    x.flags.writeable = False
    with pytest.raises(BufferError):
        jax.dlpack.from_dlpack(x)
    for _ in range(2):
        assert zc.shares_memory(x, zc.convert(x, to="jax", copy=False))
    assert zc.shares_memory(x, zc.convert(x, to="tensorflow", copy=False))
    assert not x.flags.writeable


def test_donation_does_not_write_into_the_source() -> None:
    memory = sample("f4", (1024,))
    memory.flags.writeable = False
    before = memory.copy()
    add = jax.jit(lambda a: a + 1, donate_argnums=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        add(zc.convert(memory, to="jax")).block_until_ready()
    assert (memory == before).all()


def test_jax_gaps_are_copied() -> None:
    x = sample("f4", (64,))[::2]
    with pytest.raises(jax.errors.JaxRuntimeError):
        jax.dlpack.from_dlpack(x)
    assert zc.convert(x, to="jax").tolist() == x.tolist()
    assert "gaps" in zc.explain(x, "jax").reasons[0].why


def test_jax_transposed_memory_is_aliased_both_ways() -> None:
    x = sample("f4", (8, 16)).T
    y = zc.convert(x, to="jax", copy=False)
    assert zc.shares_memory(x, y)
    for _ in range(2):
        back = zc.convert(y, to="numpy", copy=None)
        assert zc.shares_memory(x, back)
        assert (back == x).all()
        assert not back.flags.writeable


@pytest.mark.parametrize("dtype", ["int64", "uint64", "float64", "complex128"])
def test_jax_without_x64_refuses_64_bits(dtype: str) -> None:
    x = aligned([2**40 + 5, 1], dtype)
    with jax.enable_x64(False):
        assert jax.dlpack.from_dlpack(x).dtype.itemsize == x.dtype.itemsize // 2
        for source in (x, torch.from_numpy(x), memoryview(x)):
            for copy in (None, True, False):
                with pytest.raises(zc.LossyConversionError, match="jax_enable_x64"):
                    zc.convert(source, to="jax", copy=copy)
        assert not zc.explain(x, "jax").possible
        zc.convert(sample("f4"), to="jax")
        with pytest.raises(zc.LossyConversionError):  # the fast way is known now
            zc.convert(x, to="jax")
    assert zc.convert(zc.convert(x, to="jax"), to="numpy").tolist() == x.tolist()


# 7. torch writes through immutable memory --------------------------------------------


@pytest.mark.parametrize("framework", ["numpy", "jax", "tensorflow", "pyarrow"])
def test_torch_would_write_through_immutable_memory(framework: str) -> None:
    memory = sample("f4", (64,))
    x = zc.convert(memory, to=framework)
    if framework == "numpy":
        memory.flags.writeable = False
    plan = zc.explain(x, "torch")
    assert plan.zero_copy
    assert "would change the source" in plan.warnings[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch's own warning is not shown to whoever comes first
        zc.convert(x, to="torch")
    safe = zc.convert(x, to="torch", writable=True)
    safe[0] = 99
    assert memory[0] != 99


# 8. NumPy: masks, dates, strings, byte order, packed fields, scalars -----------------


def test_masks_are_not_lost() -> None:
    x = np.ma.masked_array([1.0, 2.0, 3.0], mask=[False, True, False])
    for target in ("torch", "jax", "tensorflow", "pyarrow"):
        with pytest.raises(zc.LossyConversionError, match="1 of 3 elements are masked"):
            zc.convert(x, to=target)
    assert zc.convert(x, to="numpy") is x
    unmasked = np.ma.masked_array([1.0, 2.0])
    assert zc.shares_memory(unmasked, zc.convert(unmasked, to="torch", copy=False))


@pytest.mark.parametrize(
    ("x", "hint"),
    [
        (np.array([["2020-01-01"]], "M8[D]"), "int64"),
        (np.array([[1]], "m8[s]"), "int64"),
        (np.array(["text"]), "uint32"),
        (np.array([b"text"]), "uint8"),
        (np.array([{}, 1], object), "astype"),
        (np.zeros((2, 2), [("a", "f4"), ("b", "i4")]), "field"),
        (np.zeros(2, np.longdouble), "float64"),
    ],
)
def test_types_without_counterpart_are_refused_by_name(x: np.ndarray, hint: str) -> None:
    for _ in range(2):
        zc.convert(np.arange(3.0), to="torch")
        with pytest.raises(zc.UnsupportedConversionError) as caught:
            zc.convert(x, to="torch")
        assert str(x.dtype) in str(caught.value)
        assert hint in caught.value.remedy


def test_dates_are_refused_and_encoded() -> None:
    x = np.array(["2020-01-01", "NaT"], "M8[us]")
    with pytest.raises(zc.UnsupportedConversionError, match=r"timestamp\[us\]") as caught:
        zc.convert(x, to="torch")
    assert "encode=True" in caught.value.remedy
    values = zc.convert(x[:1], to="torch", encode=True).values
    assert values.tolist() == [1577836800000000]
    assert zc.shares_memory(x.view("i8"), values)


def test_scalars_are_copied() -> None:
    x = np.float32(3)
    assert zc.convert(x, to="torch").item() == 3
    assert isinstance(zc.convert(x, to="numpy"), np.ndarray)
    with pytest.raises(zc.CopyRequiredError, match="scalar"):
        zc.convert(x, to="torch", copy=False)


# 9. JAX and torch arrays that are no plain memory ------------------------------------


def test_sharded_arrays_are_gathered(run_python) -> None:
    done = run_python(
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
    assert done.returncode == 0, done.stderr


def test_deleted_and_donated_arrays() -> None:
    x = jax.numpy.ones(4)
    zc.convert(x, to="numpy")
    x.delete()
    for target in ("numpy", "torch", "tensorflow"):
        with pytest.raises(zc.UnsupportedConversionError, match="deleted"):
            zc.convert(x, to=target)


def test_tracers() -> None:
    @jax.jit
    def traced(x):
        for target in ("numpy", "torch"):
            with pytest.raises(zc.UnsupportedConversionError, match="traced"):
                zc.convert(x, to=target)
        return zc.convert(x, to="jax")

    traced(jax.numpy.ones(3))


def test_random_keys() -> None:
    with pytest.raises(zc.UnsupportedConversionError, match="key_data"):
        zc.convert(jax.random.key(0), to="numpy")


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: torch.ones(3).to_sparse(), "sparse"),
        (lambda: torch.empty(3, device="meta"), "meta"),
        (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "nested"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_torch_tensors_without_plain_memory(make, why: str) -> None:
    zc.convert(torch.ones(3), to="numpy")
    for target in ("numpy", "jax"):
        with pytest.raises(zc.UnsupportedConversionError, match=why):
            zc.convert(make(), to=target)


@pytest.mark.filterwarnings("ignore")
def test_quantized_tensors() -> None:
    x = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
    with pytest.raises(zc.UnsupportedConversionError, match="dequantize"):
        zc.convert(x, to="numpy")


def test_torch_subclasses() -> None:
    class Named(torch.Tensor):
        pass

    x = torch.arange(4.0).as_subclass(Named)
    assert zc.shares_memory(x, zc.convert(x, to="numpy"))

    class Wrapper(torch.Tensor):
        @staticmethod
        def __new__(cls, inner):
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            raise NotImplementedError

    with pytest.raises(zc.UnsupportedConversionError, match="overrides"):
        zc.convert(Wrapper(torch.ones(3)), to="numpy")


def test_tensors_inside_vmap() -> None:
    def traced(x):
        with pytest.raises(zc.UnsupportedConversionError):
            zc.convert(x, to="numpy")
        return x

    torch.func.vmap(traced)(torch.ones(2, 3))


# 10. pyarrow -------------------------------------------------------------------------


def test_arrow_nulls_are_refused() -> None:
    for x in (pa.array([1, None]), pa.chunked_array([[1], [None]]), pa.array([True, None])):
        for target in ("numpy", "torch"):
            with pytest.raises(zc.LossyConversionError, match=r"it has 1 null in [123] rows"):
                zc.convert(x, to=target)


def test_arrow_bits_become_bytes() -> None:
    x = pa.array([True, False, True, True] * 5).slice(3, 9)
    for target in ("numpy", "torch", "jax", "tensorflow"):
        assert zc.convert(zc.convert(x, to=target), to="numpy").tolist() == x.to_pylist()
        assert "bits" in zc.explain(x, target).reasons[0].why
    with pytest.raises(zc.CopyRequiredError, match="bits"):
        zc.convert(x, to="numpy", copy=False)


def test_bool8_is_zero_copy_both_ways() -> None:
    x = aligned([True, False, True])
    column = zc.convert(x, to="pyarrow", copy=False)
    assert column.type == pa.bool8()
    assert zc.shares_memory(x, zc.convert(column, to="torch", copy=False))
    assert zc.convert(column.slice(1), to="numpy").tolist() == [False, True]


def test_arrow_slices_and_chunks() -> None:
    x = pa.array(np.arange(10, dtype=np.int32)).slice(3, 4)
    for target in ("numpy", "torch"):
        for _ in range(2):
            y = zc.convert(x, to=target, copy=False)
            assert zc.shares_memory(x, y)
            assert zc.convert(y, to="numpy").tolist() == [3, 4, 5, 6]
    chunks = pa.chunked_array([[1, 2], [3]])
    assert "2 chunks" in zc.explain(chunks, "numpy").reasons[0].why
    assert zc.convert(chunks, to="torch").tolist() == [1, 2, 3]
    with pytest.raises(zc.CopyRequiredError, match="chunks"):
        zc.convert(chunks, to="torch", copy=False)
    one = pa.chunked_array([[1, 2]])
    assert zc.shares_memory(one.chunk(0), zc.convert(one, to="numpy", copy=False))
    assert zc.convert(pa.chunked_array([], pa.float32()), to="numpy").shape == (0,)


def test_jax_to_arrow_without_copying() -> None:
    x = jax.numpy.arange(8, dtype="int32")
    if hasattr(pa.Array, "from_dlpack"):
        with pytest.raises(ValueError, match="PyCapsule"):
            pa.Array.from_dlpack(x)
    y = zc.convert(x, to="pyarrow", copy=False)
    assert y.buffers()[1].address == x.unsafe_buffer_pointer()


@pytest.mark.parametrize(
    ("x", "hint"),
    [
        (lambda: pa.array(["a"]), "encode=True gives its bytes"),
        (lambda: pa.array([1], pa.timestamp("us")), "encode=True gives integers"),
        (lambda: pa.array([1], pa.date32()), "encode=True gives integers"),
        (lambda: pa.array(["a"]).dictionary_encode(), "encode=True gives its codes"),
        (lambda: pa.array([[1]]), "encode=True gives its elements"),
        (lambda: pa.array([1]).cast(pa.decimal128(20)), "float64"),
        (lambda: pa.scalar(1), "as_py"),
    ],
)
def test_arrow_types_without_counterpart(x, hint: str) -> None:
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.convert(x(), to="torch")
    assert hint in caught.value.remedy


def test_arrow_tensors_keep_their_strides() -> None:
    x = sample("f4", (4, 6))[:, ::2]
    y = zc.convert(x, to="pyarrow", copy=False)
    assert isinstance(y, pa.Tensor)
    assert y.strides == x.strides
    assert zc.shares_memory(x, zc.convert(y, to="torch", copy=False))


def test_arrow_forms() -> None:
    x = sample("f4", (4, 3))
    column = zc.convert(x, to="pyarrow.FixedShapeTensorArray", copy=False)
    assert isinstance(column, pa.FixedShapeTensorArray)
    assert zc.shares_memory(x, column)
    assert zc.shares_memory(x, zc.convert(column, to="torch", copy=False))
    assert isinstance(zc.convert(x[0], to="pyarrow.Tensor"), pa.Tensor)
    with pytest.raises(zc.UnsupportedConversionError, match="dimensions"):
        zc.convert(x, to="pyarrow.Array")
    with pytest.raises(zc.UnknownFrameworkError):
        zc.convert(x, to="pyarrow.Nonsense")


def test_arrow_makes_bytes_of_booleans_where_we_refuse() -> None:
    x = aligned([[True, False]])
    assert str(pa.Tensor.from_numpy(x).type) == "uint8"
    with pytest.raises(zc.UnsupportedConversionError, match="bool"):
        zc.convert(x, to="pyarrow")


def test_jax_that_is_told_to_use_no_host(run_python) -> None:
    """JAX_PLATFORMS=cuda: it has no arrays on the host, and ends in an assertion without a text."""
    pytest.importorskip("jax")
    done = run_python(
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
    assert "JAX is configured to use only cuda (JAX_PLATFORMS), and has no arrays on the host" in done.stdout
    assert "JAX_PLATFORMS=cuda,cpu" in done.stdout
