"""Hugging Face datasets: aliases of the Arrow table, the order of indices, features, types that it lacks."""

from __future__ import annotations

import gc
import json
import re
import weakref

import numpy as np
import pytest
from helpers.pasting import pasted
from helpers.paths import ROOT

import zerocopy as zc

datasets = pytest.importorskip("datasets")
pa = pytest.importorskip("pyarrow")


@pytest.fixture(autouse=True)
def without_progress_bars():
    datasets.disable_progress_bars()


def numbers():
    return datasets.Dataset.from_dict({"x": [1.0, 2.0, 3.0, 4.0], "n": [1, 2, 3, 4]})


def shuffled():
    x = numbers().select([2, 0, 1, 3])
    assert x._indices is not None
    return x


# -- lists and arrays --


def arrays(*rows, shape=(2, 3), dtype="float32"):
    feature = getattr(datasets, f"Array{len(shape)}D")(shape, dtype)
    return datasets.Dataset.from_dict({"a": list(rows)}, features=datasets.Features({"a": feature}))


def test_lists_of_one_length_are_a_tensor() -> None:
    x = datasets.Dataset.from_dict({"e": [[1.0, 2.0], [3.0, 4.0]]})
    for result in (zc.convert(x, "torch", copy=False)["e"], zc.convert(x, "torch", layout="matrix")):
        assert result.tolist() == [[1, 2], [3, 4]]
        assert zc.shares_memory(x, result)
    assert zc.convert(x.select([1, 0]), "torch")["e"].tolist() == [[3, 4], [1, 2]]


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 2), (1, 2, 3, 2), (1, 1, 2, 3, 2)])
def test_arrays_are_tensors(shape: tuple[int, ...]) -> None:
    values = np.arange(2 * np.prod(shape), dtype="f4").reshape(2, *shape)
    x = arrays(*values.tolist(), shape=shape)
    result = zc.convert(x, "torch", copy=False)["a"]
    assert np.array_equal(result.numpy(), values)
    assert zc.explain(x, "torch").zero_copy
    assert np.array_equal(zc.convert(x["a"], "numpy"), values)
    assert zc.convert(x, "numpy", dtype="float64")["a"].dtype == np.float64
    assert zc.convert(x, "pyarrow").schema.field("a").type.extension_name.startswith("datasets")
    (batch,) = zc.loader(x, "numpy", batch_size=2)
    assert np.array_equal(batch["a"], values)


def test_arrays_with_nulls_and_of_different_lengths() -> None:
    rows = np.ones((2, 3)).tolist(), None
    assert zc.convert(arrays(*rows), "numpy", nulls=7)["a"].tolist() == [rows[0], [[7] * 3] * 2]
    x = arrays(np.ones((2, 3)).tolist(), np.ones((1, 3)).tolist(), shape=(None, 3))
    with pytest.raises(zc.UnsupportedConversionError, match="row 1 has 1, and row 0 has 2") as caught:
        zc.convert(x, "numpy")
    assert pasted(caught.value.calls[0], {"x": x, "zc": zc})["a"].shape == (2, 2, 3)


def test_the_example_of_the_page_runs() -> None:
    """The other examples run where all frameworks but datasets are installed."""
    page = (ROOT / "docs" / "embeddings.md").read_text(encoding="utf-8")
    (block,) = re.findall(
        r"^```python no-run\n# not run[^\n]*\n(import datasets.*?)^```$", page, re.MULTILINE | re.DOTALL
    )
    exec(compile(block, "embeddings.md", "exec"), {})


# -- as a source ------------------------------------------------------------------


@pytest.mark.parametrize("to", ["numpy", "torch", "pyarrow", "polars", "pandas"])
def test_the_columns_of_a_dataset_are_aliased(to: str) -> None:
    pytest.importorskip(to)
    x = numbers()
    result = zc.convert(x, to=to, copy=False)
    assert zc.shares_memory(x, result)
    assert zc.explain(x, to).zero_copy
    assert zc.convert(result["x"], to="numpy").tolist() == [1, 2, 3, 4]
    assert not zc.shares_memory(x, zc.convert(x, to=to, copy=True))


def test_memory_outlives_the_dataset() -> None:
    x = numbers()
    table = weakref.ref(x.data)
    result = zc.convert(x, to="numpy", copy=False)
    del x
    gc.collect()
    assert table() is None
    assert result["x"].tolist() == [1, 2, 3, 4]


@pytest.mark.hazard("other-frameworks#indices-of-a-dataset")
@pytest.mark.parametrize("to", ["numpy", "torch", "pyarrow", "polars"])
def test_rows_in_the_order_of_indices_are_gathered(to: str) -> None:
    """The hazard: the table of the dataset has all rows, in their first order."""
    pytest.importorskip(to)
    x = shuffled()
    assert x.data.table["n"].to_pylist() != x["n"][:]
    plan = zc.explain(x, to=to)
    assert not plan.zero_copy
    assert "indices" in plan.reasons[0].why
    result = zc.convert(x, to=to)
    assert zc.convert(result["n"], to="numpy").tolist() == [3, 1, 2, 4]
    assert not zc.shares_memory(x.data.table, result)


def test_indices_are_refused_without_a_copy() -> None:
    x = shuffled()
    with pytest.raises(zc.CopyRequiredError, match="flatten_indices"):
        zc.convert(x, to="numpy", copy=False)
    with pytest.raises(zc.CopyRequiredError) as caught:
        zc.convert(x["n"], to="numpy", copy=False)
    result = pasted(caught.value.calls[0], {"zc": zc, "x": x["n"]})
    assert result.tolist() == [3, 1, 2, 4]
    flat = x.flatten_indices()
    assert zc.shares_memory(flat, zc.convert(flat, to="numpy", copy=False))


@pytest.mark.hazard("other-frameworks#text-as-views-in-a-dataset")
def test_text_as_views_is_gathered_too() -> None:
    """pyarrow cannot gather views: datasets' own reader does."""
    table = pa.table({"x": pa.array(["a", "b", "a text longer than a view"], pa.string_view())})
    with pytest.raises(pa.ArrowNotImplementedError):
        table.take([2, 0])
    x = zc.convert(table, to="datasets").select([2, 0])
    assert zc.convert(x, to="pyarrow")["x"].to_pylist() == ["a text longer than a view", "a"]


def test_a_range_of_rows_is_aliased() -> None:
    x = numbers().select(range(1, 3))
    result = zc.convert(x, to="numpy", copy=False)
    assert result["n"].tolist() == [2, 3]
    assert zc.shares_memory(x, result)


def test_concatenated_datasets_have_chunks() -> None:
    x = datasets.concatenate_datasets([numbers(), numbers()])
    assert zc.explain(x, "polars").zero_copy
    plan = zc.explain(x, "torch")
    assert plan.leaves["['x']"].reasons[0].code == "chunks"
    assert zc.convert(x, "torch")["n"].tolist() == [1, 2, 3, 4] * 2


def test_a_column_is_one_array() -> None:
    x = numbers()
    result = zc.convert(x["x"], to="numpy", copy=False)
    assert zc.shares_memory(x, result)
    assert result.tolist() == [1, 2, 3, 4]
    assert zc.convert(shuffled()["n"], to="numpy").tolist() == [3, 1, 2, 4]
    assert zc.view(x["x"]).shape == (4,)
    nested = datasets.Dataset.from_dict({"s": [{"a": 1}, {"a": 2}]})["s"]["a"]
    with pytest.raises(zc.UnsupportedConversionError, match="inside a column"):
        zc.convert(nested, to="numpy")


def test_the_wrapped_table_is_a_table() -> None:
    x = numbers()
    assert zc.shares_memory(x, zc.convert(x.data, to="pyarrow", copy=False))


@pytest.mark.hazard("other-frameworks#mapped-files-of-a-dataset")
def test_files_in_memory_maps(tmp_path) -> None:
    numbers().save_to_disk(tmp_path)
    x = datasets.load_from_disk(tmp_path)
    result = zc.convert(x, to="numpy", copy=False)
    assert zc.shares_memory(x, result)
    assert not result["x"].flags.writeable
    # Writing to such pages crashes the process; torch cannot mark them as read-only.
    torch = pytest.importorskip("torch")
    assert any("immutable" in w for w in zc.explain(x, torch).leaves["['x']"].warnings)
    copied = zc.convert(x, to="torch", writable=True)
    copied["x"][0] = 5
    assert x[0]["x"] == 1


def test_formats_and_transforms_are_ignored_with_a_warning() -> None:
    x = numbers()
    hidden = x.with_format("numpy", columns=["x"])
    assert any("it hides 'n'" in warning for warning in zc.explain(hidden, "pyarrow").warnings)
    assert zc.convert(hidden, "pyarrow").column_names == ["x", "n"]
    transformed = x.with_transform(lambda batch: {"x": [0] * len(batch["x"])})
    assert any("transform" in warning for warning in zc.explain(transformed, "pyarrow").warnings)
    assert not any("ignored" in warning for warning in zc.explain(x, "pyarrow").warnings)


def test_loader_refuses_a_transform_with_calls_that_work() -> None:
    x = numbers().with_transform(lambda batch: {"n": [-number for number in batch["n"]]})
    with pytest.raises(zc.UnsupportedConversionError, match="transform") as caught:
        zc.loader(x, to="numpy", batch_size=8)
    with_transform, without = caught.value.calls
    (batch,) = pasted(with_transform, {"zc": zc, "source": x})
    assert {name: array.tolist() for name, array in batch.items()} == {"n": [-1, -2, -3, -4]}
    (batch,) = pasted(without, {"zc": zc, "source": x})
    assert batch["n"].tolist() == [1, 2, 3, 4]


def test_loader_refuses_a_format_that_casts() -> None:
    x = numbers().with_format("numpy", dtype="float32")
    with pytest.raises(zc.UnsupportedConversionError, match="casts the values") as caught:
        zc.loader(x, to="numpy", batch_size=8)
    (batch,) = pasted(caught.value.calls[0], {"zc": zc, "source": x})
    assert batch["n"].tolist() == [1, 2, 3, 4]
    (batch,) = zc.loader(numbers().with_format("numpy"), to="numpy", batch_size=8)
    assert batch["n"].tolist() == [1, 2, 3, 4]


def test_streams_are_refused_with_a_call_that_works() -> None:
    x = numbers().to_iterable_dataset()
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.convert(x, to="numpy")
    assert caught.value.code == "unread"
    result = pasted(caught.value.calls[0], {"zc": zc, "x": x, "datasets": datasets})
    assert result["n"].tolist() == [1, 2, 3, 4]
    splits = datasets.IterableDatasetDict(train=x)
    with pytest.raises(zc.UnsupportedConversionError, match="train"):
        zc.convert(splits, to="numpy")


def test_splits_are_a_container() -> None:
    splits = datasets.DatasetDict(train=numbers(), test=shuffled())
    result = zc.convert(splits, to="pyarrow")
    assert result["test"]["n"].to_pylist() == [3, 1, 2, 4]
    assert zc.shares_memory(splits["train"], result["train"])
    assert zc.convert(splits, to="datasets")["train"] is splits["train"]
    assert type(splits["train"]) is datasets.Dataset
    tables = {"train": pa.table({"x": [1]}), "test": pa.table({"x": [2]})}
    made = datasets.DatasetDict(zc.convert(tables, to="datasets"))
    assert made["test"][0] == {"x": 2}


# -- as a target ------------------------------------------------------------------


def test_tables_are_aliased() -> None:
    table = pa.table({"x": [1.0, 2.0], "t": ["a", None], "l": [[1], [2, 3]]})
    x = zc.convert(table, to="datasets", copy=False)
    assert type(x) is datasets.Dataset
    assert zc.shares_memory(table, x)
    assert x[1] == {"x": 2.0, "t": None, "l": [2, 3]}


def test_arrays_are_aliased() -> None:
    arrays = {"x": np.arange(3.0), "image": np.zeros((3, 2, 2), "f4")}
    x = zc.convert(arrays, to="datasets", copy=False)
    arrays["x"][1] = 7
    arrays["image"][2, 1, 0] = 5
    assert x[1]["x"] == 7
    assert x[2]["image"] == [[0, 0], [5, 0]]
    assert x.features["image"] == datasets.List(datasets.List(datasets.Value("float32"), length=2), length=2)
    del arrays
    gc.collect()
    assert x["x"][:] == [0, 7, 2]


@pytest.mark.hazard("other-frameworks#fingerprint-of-other-rows")
def test_the_fingerprint_is_not_that_of_other_rows() -> None:
    """The hazard: metadata keeps the fingerprint of the rows before a filter, and map() caches by it."""
    text = json.dumps({"info": {"features": {"x": {"dtype": "int64", "_type": "Value"}}}, "fingerprint": "f"})
    table = pa.table({"x": [1, 2]}).replace_schema_metadata({"huggingface": text})
    assert datasets.Dataset(table)._fingerprint == datasets.Dataset(table.slice(1))._fingerprint == "f"
    one, two = zc.convert(table, to="datasets"), zc.convert(table.slice(1), to="datasets")
    assert len({one._fingerprint, two._fingerprint, "f"}) == 3


def test_features_survive_a_round_trip() -> None:
    features = datasets.Features(
        {"label": datasets.ClassLabel(names=["no", "yes"]), "x": datasets.Value("int8")}
    )
    x = datasets.Dataset.from_dict({"label": [0, 1], "x": [1, 2]}, features=features)
    back = zc.convert(zc.convert(x, to="pyarrow"), to="datasets", copy=False)
    assert back.features == features
    assert zc.convert(x, to="datasets", columns=["label"]).features == {"label": features["label"]}
    other = zc.convert(x, to="pyarrow").cast(pa.schema({"label": pa.int32(), "x": pa.int8()}))
    other = other.replace_schema_metadata(x.data.table.schema.metadata)
    assert zc.convert(other, to="datasets").features["label"] == datasets.Value("int32")


@pytest.mark.hazard("other-frameworks#invalid-metadata-of-a-dataset")
@pytest.mark.parametrize(
    "text", [b"junk", b"\xff", b"[]", b'{"info": 3}', b'{"info": {"features": {"x": 1}}}']
)
def test_invalid_metadata_is_lost_with_a_warning(text: bytes) -> None:
    table = pa.table({"x": [1, 2]}).replace_schema_metadata({"huggingface": text, "other": "1"})
    assert any("huggingface" in warning for warning in zc.explain(table, "datasets").warnings)
    assert zc.convert(table, to="datasets").features == {"x": datasets.Value("int64")}


@pytest.mark.hazard("other-frameworks#lost-metadata-of-a-dataset")
def test_metadata_of_others_is_lost_with_a_warning() -> None:
    table = pa.table({"x": [1]}).replace_schema_metadata({"k": "v"})
    assert "k" not in str(datasets.Dataset(table).data.schema.metadata)
    assert any("'k'" in warning for warning in zc.explain(table, "datasets").warnings)


@pytest.mark.parametrize(
    ("array", "code"),
    [
        (lambda: pa.array(["a", "b", "a"]).dictionary_encode(), "dictionary-encoding"),
        (lambda: pa.array([True, False]).cast(pa.bool8()), "packed-bits"),
        (lambda: pa.array([1, 2], pa.int8()).cast(pa.decimal32(9, 0)), "other-type"),
        (lambda: np.array([True, False]), "packed-bits"),
    ],
)
def test_types_that_it_stores_otherwise_are_copied(array, code: str) -> None:
    x = {"x": array()}
    plan = zc.explain(x, to="datasets")
    assert plan.leaves["['x']"].reasons[0].code == code
    with pytest.raises(zc.CopyRequiredError):
        zc.convert(x, to="datasets", copy=False)
    result = zc.convert(x, to="datasets")
    assert result["x"][:] == x["x"].tolist()
    assert not zc.shares_memory(x["x"], result)


NOT_NULL = {
    "struct": pa.struct([pa.field("a", pa.int32(), nullable=False)]),
    "list": pa.list_(pa.field("item", pa.int32(), nullable=False)),
    "sizes": pa.list_(pa.field("item", pa.int32(), nullable=False), 1),
}


@pytest.mark.hazard("other-frameworks#fields-that-forbid-nulls")
@pytest.mark.parametrize("kind", NOT_NULL.values(), ids=NOT_NULL)
def test_nested_fields_that_forbid_nulls_are_copied(kind) -> None:
    """The hazard: a cast of datasets copies some of them and aliases others."""
    row = {"a": 1} if pa.types.is_struct(kind) else [1]
    table = pa.table({"x": pa.array([row, row, row], kind).slice(1)})
    plan = zc.explain(table, to="datasets")
    result = zc.convert(table, to="datasets")
    assert plan.zero_copy == zc.shares_memory(table, result) is False
    assert result["x"][:] == [row, row]


@pytest.mark.hazard("other-frameworks#fields-that-forbid-nulls")
def test_a_column_that_forbids_nulls_is_aliased_with_a_warning() -> None:
    schema = pa.schema([pa.field("x", pa.int64(), nullable=False), pa.field("s", pa.string())])
    table = pa.table([pa.array([1, 2]), pa.array(["a", "b"])], schema=schema)
    assert any("forbid nulls" in warning for warning in zc.explain(table, "datasets").warnings)
    assert zc.shares_memory(table, zc.convert(table, to="datasets", copy=False))


LACKING = {
    "map": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8())),
    "list view": pa.array([[1]], pa.list_view(pa.int8())),
    "interval": pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
    "runs": pa.compute.run_end_encode(pa.array([1, 1])) if hasattr(pa, "compute") else None,
    "twice": pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]),
    "zone": pa.array([1], pa.timestamp("s", "a zone]")),
    "inner dictionary": pa.array([{"a": "b"}], pa.struct([("a", pa.dictionary(pa.int8(), pa.string()))])),
    "inner decimal": pa.array([[None]], pa.list_(pa.decimal64(12, 2))),
}


@pytest.mark.parametrize("array", [a for a in LACKING.values() if a is not None])
def test_types_that_it_lacks_are_refused(array) -> None:
    table = pa.table({"x": array, "y": pa.nulls(len(array), pa.int8())})
    plan = zc.explain(table, to="datasets")
    assert plan.error is not None
    assert plan.error.code == "missing-dtype"
    with pytest.raises(zc.UnsupportedConversionError, match="column 'x'"):
        zc.convert(table, to="datasets")
    assert zc.convert(table, to="datasets", columns=["y"]).num_rows == len(array)


@pytest.mark.hazard("other-frameworks#dataset-without-columns")
def test_names_and_rows_that_it_cannot_keep_are_refused() -> None:
    twice = pa.table([pa.array([1]), pa.array([2])], names=["x", "x"])
    with pytest.raises(zc.UnsupportedConversionError, match="unique names"):
        zc.convert(twice, to="datasets")
    named = {"a\0b": np.zeros(3)}
    assert zc.explain(named, to="datasets").error.code == "nul-in-name"
    with pytest.raises(zc.UnsupportedConversionError, match="NUL"):
        zc.convert(named, to="datasets")
    rows = pa.table({"x": [1, 2]}).select([])
    assert datasets.Dataset(rows).num_rows == 0  # the hazard: it had two
    with pytest.raises(zc.UnsupportedConversionError, match="no columns"):
        zc.convert(rows, to="datasets")
    assert zc.convert(pa.table({}), to="datasets").num_rows == 0


def test_scalars_are_refused_with_a_call_that_works() -> None:
    x = np.float32(3)
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.convert(x, to="datasets")
    assert pasted(caught.value.calls[0], {"zc": zc, "x": x, "numpy": np}).num_rows == 1


def test_misaligned_and_strided_arrays_are_copied() -> None:
    misaligned = np.zeros(41, np.uint8)[1:].view("f4")
    for array in (misaligned, np.arange(6.0)[::2], np.arange(6.0)[::-1]):
        plan = zc.explain({"x": array}, to="datasets")
        result = zc.convert({"x": array}, to="datasets")
        assert not plan.zero_copy
        assert result["x"][:] == array.tolist()


def test_functions_take_and_return_datasets() -> None:
    @zc.accepts("pyarrow")
    def double(table):
        return pa.table({"x": pa.compute.multiply(table["x"], 2)})

    import pyarrow.compute  # noqa: F401

    result = double(numbers())
    assert type(result) is datasets.Dataset
    assert result["x"][:] == [2, 4, 6, 8]


def test_a_dataset_is_shared_with_its_features() -> None:
    x = datasets.Dataset.from_dict(
        {"label": [0, 1]}, features=datasets.Features({"label": datasets.ClassLabel(names=["no", "yes"])})
    )
    with zc.share(x) as shared:
        back = zc.convert(shared, to="datasets")
        assert back.features == x.features
        assert back["label"][:] == [0, 1]
        del back
        gc.collect()
    with pytest.raises(zc.UnsupportedConversionError, match=r"x\.flatten_indices\(\)"):
        zc.share(shuffled())
