"""``zerocopy.pickling``: equal objects, buffers out of band, and nothing else in the process changes."""

from __future__ import annotations

import copyreg
import io
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from helpers.arrays import sample
from helpers.frameworks import HOST

import zerocopy as zc
from zerocopy import pickling

#: Frameworks whose arrays are sent as frames.
ARRAYS = [name for name in HOST if name in ("numpy", "torch", "jax", "tensorflow")]
ROWS = 200_000


def out_of_band(obj: Any) -> tuple[bytes, list[pickle.PickleBuffer]]:
    buffers: list[pickle.PickleBuffer] = []
    return pickling.dumps(obj, buffer_callback=buffers.append), buffers


def round_trip(obj: Any) -> Any:
    data, buffers = out_of_band(obj)
    return pickling.loads(data, buffers=buffers)


def size(buffers: list[pickle.PickleBuffer]) -> int:
    return sum(buffer.raw().nbytes for buffer in buffers)


def large_objects() -> dict[str, Any]:
    """Return an array of 8 MB in each framework, and tables of as many bytes."""
    objects = {name: zc.convert(sample("f4", (2048, 1024)), to=name) for name in ARRAYS}
    columns = {f"column_{i}": np.arange(100_000.0) + i for i in range(10)}
    for name in ("pyarrow", "polars", "pandas"):
        pytest.importorskip(name)
        objects[name] = zc.convert(columns, to=name)
    return objects


# -- size and aliasing -------------------------------------------------------------------


def test_large_objects_leave_less_than_2_kb_in_band_and_alias_their_buffers() -> None:
    for name, obj in large_objects().items():
        data, buffers = out_of_band(obj)
        result = pickling.loads(data, buffers=buffers)
        assert len(data) < 2000, name
        assert size(buffers) >= 8_000_000, name
        assert type(result) is type(obj)
        assert zc.shares_memory(result, obj), name


def test_loaded_objects_alias_the_given_buffers() -> None:
    """Over copies of the buffers, aligned to 64 bytes: the result has their addresses."""
    from zerocopy.protocols.array_interface import aligned_copy

    for name in ARRAYS:
        data, buffers = out_of_band(zc.convert(sample("f4"), to=name))
        (received,) = [aligned_copy(np.frombuffer(buffer, np.uint8)) for buffer in buffers]
        result = pickling.loads(data, buffers=[received])
        assert zc.view(result).ptr == received.ctypes.data, name


def test_without_a_callback_the_pickle_has_the_bytes() -> None:
    for name, obj in large_objects().items():
        data = pickling.dumps(obj)
        assert len(data) > 8_000_000, name
        for load in (pickling.loads, pickle.loads):
            result = load(data)
            assert type(result) is type(obj)
            assert not zc.shares_memory(result, obj)


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "complex128", "bfloat16"])
def test_arrays_come_back(name: str, dtype: str) -> None:
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    for shape in ((), (0, 2), (4, 3)):
        obj = zc.convert(sample(dtype, shape), to=name)
        result = round_trip(obj)
        assert type(result) is type(obj)
        assert (str(result.dtype), tuple(result.shape)) == (str(obj.dtype), shape)
        assert np.array_equal(zc.convert(result, "numpy"), zc.convert(obj, "numpy"))


def test_a_batch_of_all_frameworks_comes_back() -> None:
    torch = pytest.importorskip("torch")
    pa = pytest.importorskip("pyarrow")
    batch = {"x": torch.arange(3.0), "y": [np.arange(3), pa.array([1, None])], "name": "b", "n": None}
    batch["again"] = batch["x"]
    result = round_trip(batch)
    assert result["again"] is result["x"]
    assert torch.equal(result["x"], batch["x"])
    assert result["y"][1].equals(batch["y"][1])
    assert (result["name"], result["n"]) == ("b", None)


# -- slices -------------------------------------------------------------------------------


def slices_of_five() -> dict[str, Any]:
    torch = pytest.importorskip("torch")
    pa = pytest.importorskip("pyarrow")
    pl = pytest.importorskip("polars")
    pd = pytest.importorskip("pandas")
    numbers = np.arange(float(ROWS))
    return {
        "numpy": numbers[7:12],
        "torch": torch.from_numpy(numbers)[7:12],
        "torch, strided": torch.from_numpy(numbers)[:50:10],
        "pyarrow": pa.table({"x": numbers}).slice(7, 5),
        "pyarrow column": pa.array(numbers).slice(7, 5),
        "polars": pl.DataFrame({"x": numbers})[7:12],
        "pandas": pd.DataFrame({"x": numbers}).iloc[7:12],
        "pandas, Arrow": pd.DataFrame({"x": pd.array(numbers, "float64[pyarrow]")}).iloc[7:12],
        "pandas, text": pd.DataFrame({"x": ["a"] * ROWS}).iloc[7:12],
    }


@pytest.mark.hazard("training#slices-in-pickles")
def test_a_slice_of_five_rows_sends_five_rows() -> None:
    pa = pytest.importorskip("pyarrow")
    assert len(pickle.dumps(pa.array(np.arange(float(ROWS))).slice(7, 5), 5)) > 8 * ROWS  # pyarrow's own
    for name, part in slices_of_five().items():
        data, buffers = out_of_band(part)
        assert len(data) + size(buffers) < 2000, name
        result = pickling.loads(data, buffers=buffers)
        assert type(result) is type(part)
        assert len(result) == 5


# -- objects that their framework pickles itself ---------------------------------------------


def test_properties_of_tensors_stay() -> None:
    torch = pytest.importorskip("torch")
    parameter = torch.nn.Parameter(torch.ones(3))
    assert type(round_trip(parameter)) is torch.nn.Parameter
    assert round_trip(torch.ones(3, requires_grad=True)).requires_grad
    conjugated = torch.tensor([1 + 2j]).conj()
    assert round_trip(conjugated).tolist() == conjugated.tolist()
    assert round_trip(conjugated.imag).tolist() == [-2.0]
    assert round_trip(torch.eye(3).to_sparse()).is_sparse
    assert round_trip(torch.ones(3, device="meta")).device.type == "meta"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch 2.13 deprecates quantized tensors
        quantized = torch.quantize_per_tensor(torch.ones(3), 0.5, 0, torch.qint8)
        assert round_trip(quantized).is_quantized
    named = torch.ones(3)
    named.label = "mine"
    assert round_trip(named).label == "mine"


def test_tensor_subclasses_stay() -> None:
    torch = pytest.importorskip("torch")
    masked = round_trip(Marked(torch.ones(3)))
    assert type(masked) is Marked
    module = torch.nn.Linear(2, 2)
    result = round_trip(module)
    assert torch.equal(result.weight, module.weight)
    assert result.weight.requires_grad


def test_an_expanded_tensor_sends_its_memory() -> None:
    torch = pytest.importorskip("torch")
    expanded = torch.ones(1).expand(1_000_000)
    assert len(pickling.dumps(expanded)) < 2000
    assert round_trip(expanded).shape == (1_000_000,)


def test_weak_types_of_jax_stay() -> None:
    jnp = pytest.importorskip("jax.numpy")
    weak = jnp.asarray(3.0)
    assert weak.weak_type
    assert round_trip(weak).weak_type
    assert not round_trip(jnp.ones(3)).weak_type


def test_ragged_tensors_and_variables_of_tensorflow_are_pickled_as_by_pickle() -> None:
    tf = pytest.importorskip("tensorflow")
    for obj in (tf.ragged.constant([[1], [2, 3]]), tf.Variable([1.0]), tf.constant(["text"])):
        try:
            expected = pickle.loads(pickle.dumps(obj))
        except Exception as error:  # noqa: BLE001 - the same error is expected of both
            with pytest.raises(type(error)):
                pickling.dumps(obj)
        else:
            assert type(round_trip(obj)) is type(expected)


def test_a_data_frame_of_polars_without_columns() -> None:
    pl = pytest.importorskip("polars")
    for empty in (pl.DataFrame(), pl.DataFrame({"x": []}), pl.Series("s", [])):
        assert round_trip(empty).equals(empty)
        (nested,) = pickling.loads(pickling.dumps([empty]))
        assert type(nested) is type(empty)


def test_flags_and_categories_of_polars_stay() -> None:
    pl = pytest.importorskip("polars")
    series = pl.Series("x", [1, 2, 3]).set_sorted()
    assert round_trip(series).flags["SORTED_ASC"]
    frame = pl.DataFrame({"a": [3, 1], "b": [2, 1]}).with_columns(pl.col("b").set_sorted(descending=True))
    result = round_trip(frame)
    assert result.equals(frame)
    assert [column.flags["SORTED_DESC"] for column in result.get_columns()] == [False, True]
    categories = pl.Series("c", ["b", "a"], pl.Categorical)
    assert round_trip(categories).dtype == categories.dtype
    assert round_trip(pl.LazyFrame({"x": [1]})).collect().equals(pl.DataFrame({"x": [1]}))


def test_types_of_torch_without_a_counterpart_stay_or_raise() -> None:
    torch = pytest.importorskip("torch")
    numbers = torch.arange(16, dtype=torch.uint8)
    for name in ("uint4", "int4", "uint1", "int7"):
        if hasattr(torch, name):
            tensor = numbers.view(getattr(torch, name))
            try:
                expected = pickle.loads(pickle.dumps(tensor))
            except KeyError:  # torch 2.13 does not load these types
                with pytest.raises(KeyError):
                    round_trip(tensor)
            else:
                assert round_trip(tensor).dtype == expected.dtype == tensor.dtype


class _Tagged:
    pass


class _OtherPickler(pickle.Pickler):
    """Has a reducer of its own, as cloudpickle's pickler has for functions."""

    def reducer_override(self, obj: Any) -> Any:
        return (str, ("tagged",)) if isinstance(obj, _Tagged) else NotImplemented


class _BothPicklers(pickling.Pickler, _OtherPickler):
    pass


def test_a_pickler_before_another_one_asks_it() -> None:
    out, buffers = io.BytesIO(), []
    objects = [_Tagged(), np.arange(12.0)[::2], {"x": _Tagged()}]
    _BothPicklers(out, buffer_callback=buffers.append).dump(objects)
    tagged, array, mapping = pickling.loads(out.getvalue(), buffers=buffers)
    assert tagged == mapping["x"] == "tagged"
    assert len(buffers) == 1
    np.testing.assert_array_equal(array, np.arange(0.0, 12.0, 2.0))
    below = io.BytesIO()
    _BothPicklers(below, 4).dump(objects)
    assert pickle.loads(below.getvalue())[0] == "tagged"


def test_types_of_pandas_stay() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {
            "text": pd.array(["a", None], "string"),
            "category": pd.Categorical(["x", "y"], ["y", "x", "z"]),
            "sparse": pd.arrays.SparseArray([0, 1]),
            "object": [1, "two"],
            "Int64": pd.array([1, None], "Int64"),
        },
        index=pd.Index(["p", "q"], name="row"),
    )
    frame.attrs["unit"] = "m"
    pd.testing.assert_frame_equal(round_trip(frame), frame)
    assert round_trip(frame).attrs == {"unit": "m"}


def test_records_objects_and_subclasses_of_numpy_stay() -> None:
    permuted = np.arange(24.0).reshape(2, 3, 4).transpose(2, 0, 1)
    assert np.array_equal(round_trip(permuted), permuted)
    records = np.zeros(4, np.dtype([("a", "i1"), ("b", "f8")], align=True))
    assert round_trip(records[::2]).dtype.isalignedstruct
    assert round_trip(np.array([1, "x"], object)[::-1]).tolist() == ["x", 1]
    assert type(round_trip(records.view(np.recarray))) is np.recarray
    masked = np.ma.array([1, 2], mask=[True, False])
    assert round_trip(masked).mask.tolist() == [True, False]
    unit = np.arange(6, dtype=np.dtype("i4", metadata={"unit": "m"}))[::2]
    assert np.array_equal(round_trip(unit), unit)


def test_extension_types_of_others_stay() -> None:
    pa = pytest.importorskip("pyarrow")
    pd = pytest.importorskip("pandas")
    assert round_trip(pa.array(pd.period_range("2020", periods=2, freq="D"))).type.freq == "D"
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(6.0).reshape(2, 3))
    assert round_trip(tensors).equals(tensors)


# -- nothing else changes ----------------------------------------------------------------------

IN_COPYREG = """
import copy, copyreg, io, pickle
import numpy as np, torch
def reduce(tensor):
    return from_buffer, (pickle.PickleBuffer(tensor.numpy()),)
def from_buffer(buffer):
    return torch.from_numpy(np.frombuffer(buffer, np.int64))
copyreg.pickle(torch.Tensor, reduce)
x = torch.arange(3)
for save in (lambda: pickle.dumps(x, 4), lambda: torch.save(x, io.BytesIO())):
    try: save()
    except pickle.PicklingError: pass
    else: raise AssertionError("it pickles")
copy.copy(x)[0] = 9
assert x.tolist() == [9, 1, 2]
"""


@pytest.mark.hazard("training#reducers-in-copyreg")
def test_a_reducer_in_copyreg_changes_other_modules(run_warm) -> None:
    """The reason for a pickler of its own; see docs/hazards/training.md."""
    pytest.importorskip("torch")
    process = run_warm(IN_COPYREG)
    assert process.returncode == 0, process.stderr


IMPORTED = """
import copy, copyreg, io, pickle
import numpy as np, torch, polars, pyarrow, jax
def saved(x):
    out = io.BytesIO(); torch.save(x, out); return len(out.getvalue())
table = dict(copyreg.dispatch_table)
objects = [np.arange(3), torch.arange(3), pyarrow.array([1]), polars.Series([1]), jax.numpy.ones(3)]
before = [[pickle.dumps(x, p) for p in (2, 4, 5)] for x in objects], saved(objects[1])
import zerocopy.pickling
zerocopy.pickling.dumps(objects); zerocopy.pickling.reducers()
assert copyreg.dispatch_table == table
assert ([[pickle.dumps(x, p) for p in (2, 4, 5)] for x in objects], saved(objects[1])) == before
x = objects[1]
y = copy.copy(x); z = copy.deepcopy(x); z[0] = 9
assert x.tolist() == [0, 1, 2]
"""


@pytest.mark.hazard("training#reducers-in-copyreg")
def test_importing_it_changes_no_other_pickle(run_warm) -> None:
    for name in ("torch", "polars", "pyarrow", "jax"):
        pytest.importorskip(name)
    process = run_warm(IMPORTED)
    assert process.returncode == 0, process.stderr


def test_importing_it_loads_no_framework(run_python) -> None:
    process = run_python(
        "import sys, zerocopy.pickling; zerocopy.pickling.dumps([1]); "
        "print(*{'torch', 'jax', 'polars', 'pyarrow', 'pandas', 'tensorflow'} & set(sys.modules))"
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.strip() == ""


def test_a_framework_that_is_imported_later_is_known(run_python) -> None:
    pytest.importorskip("torch")
    process = run_python(
        """
        import zerocopy.pickling as pickling
        pickling.dumps([1, print, object()])
        import torch
        pickling.dumps(torch.float32)
        buffers = []
        data = pickling.dumps(torch.zeros(1000), buffer_callback=buffers.append)
        assert len(data) < 200 and len(buffers) == 1, len(data)
        """
    )
    assert process.returncode == 0, process.stderr


# -- picklers ------------------------------------------------------------------------------------


class Marked(pytest.importorskip("torch").Tensor):
    """A tensor's subclass."""


class Own(pickling.Pickler):
    """A pickler with a reducer of its own."""

    def reducer_override(self, obj: Any) -> Any:
        return (str, ("own",)) if isinstance(obj, Marker) else super().reducer_override(obj)


class Marker:
    """An object that `Own` reduces."""


def test_subclasses_of_the_pickler_compose() -> None:
    torch = pytest.importorskip("torch")
    out, buffers = io.BytesIO(), []
    Own(out, buffer_callback=buffers.append).dump([Marker(), torch.ones(1000)])
    result = pickling.loads(out.getvalue(), buffers=buffers)
    assert result[0] == "own"
    assert torch.equal(result[1], torch.ones(1000))
    assert len(out.getvalue()) < 300


def test_reducers_serve_other_picklers() -> None:
    torch = pytest.importorskip("torch")
    out, buffers = io.BytesIO(), []
    pickler = pickle.Pickler(out, 5, buffer_callback=buffers.append)
    pickler.dispatch_table = {**copyreg.dispatch_table, **pickling.reducers()}
    objects = [torch.ones(1000), torch.ones(2, requires_grad=True), Marked(torch.ones(2))]
    pickler.dump(objects)
    result = pickle.loads(out.getvalue(), buffers=buffers)
    assert torch.equal(result[0], objects[0])
    assert result[1].requires_grad
    assert type(result[2]) is Marked
    assert any(buffer.raw().nbytes == 4000 for buffer in buffers)


@pytest.mark.parametrize("protocol", [0, 2, 4, -1])
def test_older_protocols_work_as_in_pickle(protocol: int) -> None:
    torch = pytest.importorskip("torch")
    data = pickling.dumps(torch.arange(3), protocol)
    assert torch.equal(pickle.loads(data), torch.arange(3))
    assert (b"zerocopy" in data) == (protocol == -1)


def test_two_tensors_of_one_memory_become_two() -> None:
    """As with ``pickle.dumps``."""
    torch = pytest.importorskip("torch")
    base = torch.zeros(4)
    one, two = pickling.loads(pickling.dumps([base, base[:2]]))
    one[0] = 1
    assert two[0] == 0


def test_readonly_buffers_stay_readonly() -> None:
    data, buffers = out_of_band(np.arange(6.0).reshape(1, 2, 3).transpose(2, 0, 1))
    received = [bytes(buffer) for buffer in buffers]
    assert not pickling.loads(data, buffers=received).flags.writeable
    assert pickling.loads(data, buffers=[bytearray(part) for part in received]).flags.writeable
    assert pickling.loads(pickling.dumps(np.arange(3.0))).flags.writeable


def test_missing_buffers_and_changed_headers_are_errors() -> None:
    torch = pytest.importorskip("torch")
    data, _ = out_of_band(torch.arange(3.0))
    with pytest.raises(zc.ZeroCopyError):
        pickling.loads(data, buffers=[b"short"])
    with pytest.raises(pickle.UnpicklingError):
        pickling.loads(data, buffers=[])
