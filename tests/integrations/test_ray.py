"""Objects through the store of a real local Ray cluster, with the serializers of zerocopy."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.ray_cluster import STORE, local_ray, serializers
from helpers.tiers import runs_all

import zerocopy as zc
import zerocopy.integrations.ray
from zerocopy.integrations.ray.serializers import Unchanged

pytest.importorskip("ray")

MIB = 1 << 20
LARGE = 16 * MIB // 4  # float32 values


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    zerocopy.integrations.ray.install()
    with local_ray(runtime_env=zerocopy.integrations.ray.runtime_env()) as module:
        yield module
    zerocopy.integrations.ray.uninstall()


def _torch(values: Any) -> Any:
    return pytest.importorskip("torch").from_numpy(values.copy())


def _jax(values: Any) -> Any:
    return pytest.importorskip("jax").numpy.array(values)


def _tensorflow(values: Any) -> Any:
    return pytest.importorskip("tensorflow").constant(values)


def _polars(values: Any) -> Any:
    return pytest.importorskip("polars").DataFrame({"a": values, "b": values})


def _pyarrow(values: Any) -> Any:
    pa = pytest.importorskip("pyarrow")
    return pa.record_batch({"a": pa.array(values)})


MAKERS = {"torch": _torch, "jax": _jax, "tensorflow": _tensorflow, "polars": _polars, "pyarrow": _pyarrow}
EVERY = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
#: Frameworks that workers import in the quick tier: JAX and TensorFlow take 6 s in each.
IN_WORKERS = list(MAKERS) if runs_all() else ["torch", "polars", "pyarrow"]


def equal(a: Any, b: Any) -> bool:
    """Whether two objects have the same type, dtype and values."""
    if type(a) is not type(b):
        return False
    if hasattr(a, "equals"):
        same = a.schema == b.schema if hasattr(a, "schema") else True
        return bool(same and a.equals(b))
    return a.dtype == b.dtype and tuple(a.shape) == tuple(b.shape) and bool((a == b).__array__().all())


def of_store(address: int) -> str:
    """Return the flags of the store's mapping that holds an address in this process, or an empty text."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, end = (int(text, 16) for text in line.split()[0].split("-"))
        if start <= address < end and "plasma" in line:
            return line.split()[1]
    return ""


def addresses(obj: Any) -> list[int]:
    """Return the addresses of an object's frames."""
    from zerocopy.frames import to_frames

    return [frame.__array_interface__["data"][0] for frame in to_frames(obj).frames]


# -- values -----------------------------------------------------------------------------


@EVERY
@pytest.mark.parametrize("count", [0, 1, 1000, LARGE])
def test_an_object_comes_back_as_it_was(ray, make: Callable[[Any], Any], count: int) -> None:
    obj = make(np.arange(count, dtype="f4"))
    assert equal(ray.get(ray.put(obj)), obj)


@EVERY
def test_a_large_object_aliases_the_store(ray, make: Callable[[Any], Any]) -> None:
    """The mapping is private for torch, which can write."""
    result = ray.get(ray.put(make(np.arange(LARGE, dtype="f4"))))
    flags = {of_store(address) for address in addresses(result)}
    assert flags == ({"rw-p"} if make is _torch else {"rw-s"})


@pytest.fixture(scope="module")
def reader(ray) -> Any:
    """An actor that has imported the frameworks and reports the growth of its private memory."""
    pytest.importorskip("psutil")
    frameworks = IN_WORKERS

    @ray.remote
    class Reader:
        def __init__(self) -> None:
            import importlib

            for name in frameworks:
                importlib.import_module(name)

        def used(self) -> int:
            import gc

            import psutil

            gc.collect()
            return psutil.Process().memory_full_info().uss

        def read(self, held: list[Any]) -> int:
            import ray

            self.kept = None
            before = self.used()
            self.kept = ray.get(held[0])
            return self.used() - before

        def give(self) -> Any:
            return self.kept

    return Reader.remote()


@pytest.mark.parametrize("make", [MAKERS[name] for name in IN_WORKERS], ids=IN_WORKERS)
def test_a_worker_reads_and_returns_without_private_memory(ray, reader, make: Callable[[Any], Any]) -> None:
    obj = make(np.arange(LARGE, dtype="f4"))
    references = [ray.put(obj) for _ in range(3)]
    # The least growth, because the frameworks start threads and fill caches.
    assert min(ray.get(reader.read.remote([reference])) for reference in references) < 4 * MIB
    assert equal(ray.get(reader.give.remote()), obj)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "bool", "complex64", "uint16", "float8_e4m3fn"])
def test_types_of_torch(ray, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.arange(12).reshape(3, 4).to(getattr(torch, dtype))
    for each in (tensor, tensor[0, 0], tensor.t(), tensor[:, ::2], tensor[:0]):
        result = ray.get(ray.put(each))
        assert result.dtype == each.dtype
        assert torch.equal(result.to(torch.complex64), each.to(torch.complex64))


def test_channels_last_is_kept(ray) -> None:
    torch = pytest.importorskip("torch")
    images = torch.rand(2, 3, 64, 64).contiguous(memory_format=torch.channels_last)
    assert ray.get(ray.put(images)).stride() == images.stride()


def test_tables_keep_names_order_and_types(ray) -> None:
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame(
        {
            "text": ["b", None, "a"],
            "list": [[1], [], None],
            "bool": [True, None, False],
            "enum": pl.Series(["x", "y", "x"], dtype=pl.Enum(["x", "y"])),
            "time": pl.Series([1, 2, None]).cast(pl.Datetime("us", "Europe/Paris")),
            "decimal": pl.Series([1, 2, 3]).cast(pl.Decimal(10, 2)),
            "sorted": pl.Series([3, 2, 1]).sort(descending=True),
        }
    )
    categories = pl.Series("c", ["x", "y", "x"], dtype=pl.Categorical)  # polars' own pickle
    for obj in (
        frame,
        frame[:1],
        *frame,
        categories,
        categories.to_frame(),
        frame["sorted"].sort(),
        pl.Series("n", [1.0]),
        pl.Series([1.0]),
    ):
        result = ray.get(ray.put(obj))
        assert result.equals(obj, null_equal=True)
        assert type(result) is type(obj)
        if isinstance(obj, pl.DataFrame):
            assert result.schema == obj.schema
            assert [column.flags for column in result] == [column.flags for column in obj]
        else:
            assert (result.name, result.dtype, result.flags) == (obj.name, obj.dtype, obj.flags)


def test_containers_keep_the_identity_of_their_values(ray) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.arange(4.0)
    result = ray.get(ray.put({"a": [tensor, tensor], "b": (tensor[:2], "text"), "jax": _jax(np.ones(3))}))
    assert result["a"][0] is result["a"][1]
    assert torch.equal(result["b"][0], tensor[:2])
    assert equal(result["jax"], _jax(np.ones(3)))


def test_many_tensors_in_one_object(ray) -> None:
    torch = pytest.importorskip("torch")
    tensors = [torch.full((MIB // 4,), float(i)) for i in range(50)]
    results = ray.get(ray.put(tensors))
    assert all(torch.equal(a, b) for a, b in zip(results, tensors, strict=True))
    results[0][:] = -1
    assert all(torch.equal(a, b) for a, b in zip(results[1:], tensors[1:], strict=True))


# -- slices -----------------------------------------------------------------------------


def _size(obj: Any) -> int:
    import ray.cloudpickle

    buffers: list[pickle.PickleBuffer] = []
    inband = ray.cloudpickle.dumps(obj, protocol=5, buffer_callback=buffers.append)
    return len(inband) + sum(buffer.raw().nbytes for buffer in buffers)


def test_a_slice_sends_its_rows(ray) -> None:
    """ray#29814, ray#22310: pyarrow sends the whole memory."""
    pa = pytest.importorskip("pyarrow")
    values = pa.array(np.arange(MIB))
    pd = pytest.importorskip("pandas")
    texts = pd.Series([str(i) for i in range(100_000)], dtype="str")
    batch = pa.record_batch({"a": values})
    for obj in (values[5:10], pa.chunked_array([values])[5:10], batch[5:10], texts[5:10]):
        assert _size(obj) < 3000, type(obj)
        assert ray.get(ray.put(obj)).equals(obj)


# -- objects that frames do not hold -----------------------------------------------------


def _unchanged_of_torch() -> dict[str, Any]:
    torch = pytest.importorskip("torch")

    class Sub(torch.Tensor):
        pass

    marked = torch.ones(3)
    marked.note = "kept"
    return {
        "requires_grad": torch.ones(3, requires_grad=True),
        "parameter": torch.nn.Parameter(torch.ones(3)),
        "sparse": torch.eye(3).to_sparse(),
        "conjugate": torch.ones(3, dtype=torch.complex64).conj(),
        "attribute": marked,
        "expanded": torch.ones(1).expand(1 << 40),
        "meta": torch.ones(3, device="meta"),
        "subclass": torch.ones(3).as_subclass(Sub),
    }


@pytest.mark.hazard("robustness#properties-in-ray")
@pytest.mark.parametrize(
    "case",
    ["requires_grad", "parameter", "sparse", "conjugate", "attribute", "expanded", "meta", "subclass"],
)
def test_other_tensors_are_serialized_by_ray(ray, case: str) -> None:
    torch = pytest.importorskip("torch")
    tensor = _unchanged_of_torch()[case]
    if case == "subclass":
        assert type(tensor) not in serializers()
        return
    result = ray.get(ray.put(tensor))
    assert type(result) is type(tensor)
    assert (result.dtype, result.shape, result.layout) == (tensor.dtype, tensor.shape, tensor.layout)
    assert (result.requires_grad, result.is_conj()) == (tensor.requires_grad, tensor.is_conj())
    assert result.device == tensor.device
    assert result.__dict__ == tensor.__dict__
    if case == "expanded":
        assert result.stride() == tensor.stride()
    elif case != "meta":
        assert torch.equal(result.to_dense(), tensor.to_dense())


@pytest.mark.hazard("robustness#properties-in-ray")
def test_a_weakly_typed_array_of_jax_stays_so(ray) -> None:
    jnp = pytest.importorskip("jax").numpy
    assert ray.get(ray.put(jnp.asarray(1.0))).weak_type
    assert not ray.get(ray.put(jnp.ones(3))).weak_type


class _Positional:
    def __new__(cls, value: int) -> Any:
        made = super().__new__(cls)
        made.value = value
        return made

    def __getnewargs__(self) -> Any:
        return (self.value,)


class _Keyword(_Positional):
    def __new__(cls, *, value: int) -> Any:
        return super().__new__(cls, value)

    def __getnewargs_ex__(self) -> Any:
        return (), {"value": self.value}


@pytest.mark.parametrize("obj", [_Positional(3), _Keyword(value=4), complex(1, 2), Path("a")])
def test_every_kind_of_reduction_is_kept(obj: Any) -> None:
    result = pickle.loads(pickle.dumps(Unchanged(obj), 5))
    assert type(result) is type(obj)
    assert vars(result) == vars(obj) if hasattr(obj, "value") else result == obj


def test_sharded_arrays_of_jax_are_serialized_by_ray(run_python) -> None:
    process = run_python(
        """
        import jax, jax.numpy as jnp, pickle
        from jax.sharding import Mesh, NamedSharding, PartitionSpec
        from zerocopy.integrations.ray.serializers import Serializer

        x = jax.device_put(jnp.arange(8.0), NamedSharding(Mesh(jax.devices(), "a"), PartitionSpec("a")))
        packed = Serializer("jax")(x)
        print(type(packed).__name__, (pickle.loads(pickle.dumps(packed, 5)) == x).all())
        """,
        XLA_FLAGS="--xla_force_host_platform_device_count=2",
    )
    assert process.stdout == "Unchanged True\n", process.stderr


def test_texts_and_objects_are_serialized_by_ray(ray) -> None:
    tf, pl = pytest.importorskip("tensorflow"), pytest.importorskip("polars")
    assert ray.get(ray.put(tf.constant(["a", "b"]))).numpy().tolist() == [b"a", b"b"]
    # polars refuses to pickle objects, with or without zerocopy.
    frame = pl.DataFrame({"o": [object()]}, schema={"o": pl.Object})
    with pytest.raises(BaseException, match=r"(?i)object|not supported"):
        ray.put(frame)


@pytest.mark.hazard("robustness#serializers-of-the-program")
def test_serializers_of_the_program_are_kept(ray) -> None:
    torch = pytest.importorskip("torch")
    zerocopy.integrations.ray.uninstall()
    assert torch.Tensor not in serializers()
    ray.util.register_serializer(torch.Tensor, serializer=lambda t: t.tolist(), deserializer=torch.tensor)
    own = serializers()[torch.Tensor]
    try:
        zerocopy.integrations.ray.install()
        assert serializers()[torch.Tensor] is own
        zerocopy.integrations.ray.uninstall()
        assert serializers()[torch.Tensor] is own
    finally:
        ray.util.deregister_serializer(torch.Tensor)
        zerocopy.integrations.ray.install()
    assert torch.Tensor in serializers()


# -- writes and lifetimes ------------------------------------------------------------------


@pytest.mark.hazard("training#writes-to-the-store-of-ray", "training#small-objects-in-ray")
@pytest.mark.parametrize("count", [10, LARGE], ids=["inline", "in the store"])
def test_a_write_changes_no_other_copy(ray, count: int) -> None:
    """Ray's own RAY_ENABLE_ZERO_COPY_TORCH_TENSORS=1 shows a worker's write to all processes."""
    torch = pytest.importorskip("torch")

    @ray.remote
    class Reader:
        def read(self, held: list[Any]) -> None:
            import ray

            self.tensor = ray.get(held[0])

        def write(self, value: float) -> None:
            self.tensor[:] = value

        def values(self) -> tuple[float, float]:
            return float(self.tensor.min()), float(self.tensor.max())

    reference = ray.put(torch.zeros(count))
    readers = [Reader.remote(), Reader.remote()]
    ray.get([reader.read.remote([reference]) for reader in readers])
    mine, again = ray.get(reference), ray.get(reference)
    ray.get(readers[0].write.remote(5.0))
    mine[0] = 3
    assert ray.get(readers[0].values.remote()) == (5.0, 5.0)
    assert ray.get(readers[1].values.remote()) == (0.0, 0.0)
    assert (mine[0], mine.sum(), again.sum()) == (3, 3, 0)
    assert ray.get(reference).sum() == 0


@pytest.mark.hazard("training#conversions-of-the-store-of-ray")
def test_a_tensor_of_an_array_in_the_store_aliases_it(ray) -> None:
    """A plan warns about it, and ``writable=True`` copies."""
    pytest.importorskip("torch")
    reference = ray.put(np.zeros(LARGE, "float32"))
    assert any("read-only" in warning for warning in zc.explain(ray.get(reference), "torch").warnings)
    zc.convert(ray.get(reference), "torch", writable=True)[0] = 7
    assert ray.get(reference)[0] == 0
    zc.convert(ray.get(reference), "torch")[0] = 7
    assert ray.get(reference)[0] == 7


@pytest.mark.hazard("robustness#store-memory-in-use")
@EVERY
def test_a_result_keeps_its_object_in_the_store(ray, make: Callable[[Any], Any]) -> None:
    """Other objects fill the store twice after all references to this one are gone."""
    obj = make(np.full(LARGE // 2, 7, "f4"))
    result = ray.get(ray.put(obj))
    for i in range(2 * STORE // (16 * MIB)):
        filler = ray.get(ray.put(np.full(LARGE, i, "f4")))
        assert filler[0] == i
        del filler
    assert equal(result, obj)


def test_a_view_of_a_tensor_keeps_its_object_in_the_store(ray) -> None:
    torch = pytest.importorskip("torch")
    view = ray.get(ray.put(torch.full((LARGE,), 7.0)))[100:].reshape(-1, 4)
    for i in range(2 * STORE // (16 * MIB)):
        filler = ray.get(ray.put(torch.full((LARGE,), float(i))))
        assert filler[0] == i
        del filler
    assert view.min() == view.max() == 7


def test_dropped_tensors_release_the_store(ray) -> None:
    torch = pytest.importorskip("torch")

    def private() -> int:
        lines = Path("/proc/self/maps").read_text().splitlines()
        return sum("plasma" in line and "rw-p" in line for line in lines)

    before = private()
    for i in range(3 * STORE // (16 * MIB)):  # the store would be full
        tensor = ray.get(ray.put(torch.full((LARGE,), float(i))))
        assert private() == before + 1
        del tensor
    assert private() == before


# -- elsewhere ---------------------------------------------------------------------------


@EVERY
def test_objects_in_functions_are_pickled_in_band(ray, make: Callable[[Any], Any]) -> None:
    obj = make(np.arange(10, dtype="f4"))

    @ray.remote
    def captured() -> Any:
        return obj

    assert equal(ray.get(captured.remote()), obj)


def test_workers_install_at_their_start(ray) -> None:
    @ray.remote
    def registered() -> bool:
        import ray.cloudpickle
        import torch

        return torch.Tensor in ray.cloudpickle.CloudPickler.dispatch

    assert ray.get(registered.remote())
