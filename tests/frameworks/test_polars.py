"""polars as a source: aliased columns, and series that are refused."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.polars_cases import ALIASED, blocks, leaf, series

import zerocopy as zc
from zerocopy.errors import CopyRequiredError, LossyConversionError, UnsupportedConversionError
from zerocopy.protocols import arrow_c

pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")


@pytest.mark.parametrize("name", ALIASED)
def test_columns_to_arrow_are_aliased_chunk_by_chunk(name: str) -> None:
    one = ALIASED[name]
    frame = pl.DataFrame([pl.concat([one, one], rechunk=False), pl.Series("y", range(6))])
    before = frame.n_chunks("all")
    plan = zc.explain(frame, "pyarrow", copy=False)
    table = zc.convert(frame, "pyarrow", copy=False)
    assert leaf(plan).zero_copy
    assert plan.copied_bytes == 0
    assert blocks(table["x"]) == blocks(frame["x"]) != set()
    assert [c.num_chunks for c in table.columns] == [2, 1] == before == frame.n_chunks("all")
    assert table["x"].to_pylist() == pl.concat([one, one], rechunk=False).to_list()
    back = zc.convert(table, "polars")
    assert back.schema == frame.schema
    assert back.equals(frame)
    assert back.n_chunks("all") == before


@pytest.mark.parametrize("name", ALIASED)
@pytest.mark.parametrize("rows", [slice(1, 3), slice(0, 0), slice(2, 3)])
def test_slices_and_empty_columns_are_aliased(name: str, rows: slice) -> None:
    part = ALIASED[name][rows]
    array = zc.convert(part, "pyarrow", copy=False)
    assert array.to_pylist() == part.to_list()
    back = zc.convert(pa.table({"x": array}), "polars")
    assert back["x"].to_list() == part.to_list()
    if name != "enum":  # an array has no metadata, which would hold the categories
        assert back["x"].dtype == part.dtype


@pytest.mark.parametrize("dtype", [pl.Categorical, pl.List(pl.Categorical)])
def test_categorical_is_copied(dtype: object) -> None:
    frame = pl.DataFrame({"x": series([["a"], ["b"]] if dtype == pl.List else ["a", "b"], dtype)})
    plan = zc.explain(frame, "pyarrow")
    assert not leaf(plan).zero_copy
    assert leaf(plan).copied_bytes
    assert "for each export" in str(leaf(plan).reasons[0])
    with pytest.raises(CopyRequiredError, match="Categorical"):
        zc.convert(frame, "pyarrow", copy=False)
    table = zc.convert(frame, "pyarrow")
    assert table["x"].to_pylist() == frame["x"].to_list()
    assert zc.convert(table, "polars").equals(frame)


def test_format_table_agrees_with_the_stream() -> None:
    from zerocopy._frameworks.polars import FRAMEWORK

    for one in (*ALIASED.values(), series([None, None])):
        message = FRAMEWORK.table(one).columns[0].field
        assert (message.format, message.name) == (arrow_c.read_stream(one)[0].format, one.name)


@pytest.mark.parametrize("to", ["numpy", "torch", "jax"])
def test_numbers_to_tensors_are_aliased(to: str) -> None:
    frame = pl.DataFrame(
        {"a": [1.0, 2.0, 3.0], "b": [1, 2, 3], "c": [[1, 2]] * 3},
        schema_overrides={"c": pl.Array(pl.Int32, 2)},
    )
    for source in (frame, frame[1:]):
        # The second call uses the fast path, if there is one.
        for _ in range(2):
            converted = zc.convert(source, to)
            for name, column in converted.items():
                assert np.array_equal(np.asarray(column), source[name].to_numpy())
        if to != "jax":  # it aliases memory at multiples of 64 bytes only
            assert zc.explain(source, to, copy=False).zero_copy
            for name, column in converted.items():
                assert zc.view(column).ptr == source[name].to_numpy().ctypes.data
                assert zc.shares_memory(source[name], column)


def test_plain_series_is_a_tensor() -> None:
    one = series([1, 2, 3])
    array = zc.convert(one, "numpy", copy=False)
    assert array.ctypes.data == one.to_numpy().ctypes.data
    assert not array.flags.writeable
    again = zc.convert(one, "numpy")
    assert again.ctypes.data == array.ctypes.data
    assert not again.flags.writeable
    for _ in range(2):  # polars' own export is writable
        assert not zc.convert(one.clear(), "numpy").flags.writeable
    with pytest.raises(LossyConversionError, match="1 null"):
        zc.convert(series([1, None]), "numpy")
    masked = zc.convert(series([1, None]), "numpy", nulls="mask")
    assert masked.mask.tolist() == [False, True]
    chunks = pl.concat([one, one], rechunk=False)
    with pytest.raises(CopyRequiredError, match=r"2 chunks.*(\n.*)*rechunk"):
        zc.convert(chunks, "numpy", copy=False)
    assert zc.convert(chunks, "numpy").tolist() == [1, 2, 3] * 2
    assert chunks.n_chunks() == 2
    with pytest.raises(UnsupportedConversionError, match="pick a column"):
        zc.view(one.to_frame())


def test_fast_path_keeps_time_zones() -> None:
    zc.convert(series([1]), "numpy")
    for _ in range(2):
        with pytest.raises(UnsupportedConversionError, match="no time zone"):
            zc.convert(ALIASED["zone"].drop_nulls().to_frame(), "numpy")


def test_tensors_need_no_pyarrow(run_python) -> None:
    completed = run_python("""
        import sys, numpy as np, polars as pl, torch, zerocopy as zc
        frame = pl.DataFrame({"a": [1, 2], "b": [1.5, 2.5], "s": ["x", "y"], "e": [True, None]})
        zc.convert(frame, "torch", columns=["a", "b"])
        zc.convert(frame, "numpy", encode="bytes", nulls="mask")
        zc.convert(frame["a"], "torch")
        made = zc.convert({"a": np.arange(3), "b": torch.ones(3, 2), "c": np.zeros(3, bool)}, "polars")
        assert made.schema == {"a": pl.Int64, "b": pl.Array(pl.Float32, 2), "c": pl.Boolean}, made
        zc.convert(np.arange(3), "polars.Series")
        zc.convert(made["a"], "polars.DataFrame")
        assert "pyarrow" not in sys.modules
    """)
    assert completed.returncode == 0, completed.stderr


def test_lazy_frame_is_refused() -> None:
    lazy = pl.LazyFrame({"a": [1]})
    for to in ("polars", "numpy", "torch", "pyarrow", "polars.DataFrame"):
        assert not zc.explain(lazy, to).possible
        with pytest.raises(UnsupportedConversionError, match=r"has not run(.|\n)*x\.collect\(\)"):
            zc.convert(lazy, to)


@pytest.mark.hazard("polars#export-of-objects")
@pytest.mark.parametrize(
    ("one", "why"),
    [
        (series([1, 2], pl.Int128), "Int128"),
        (series([[1], [2]], pl.List(pl.Int128)), "Int128"),
        (series([object(), object()], pl.Object), "Object"),
    ],
)
@pytest.mark.parametrize("to", ["pyarrow", "torch"])
def test_types_that_arrow_lacks_are_refused_by_name(one: pl.Series, why: str, to: str) -> None:
    frame = pl.DataFrame([pl.Series("fine", [1, 2]), one])
    assert not zc.explain(frame, to).possible
    with pytest.raises(
        UnsupportedConversionError, match=rf"column 'x' is .*({why}|_pli128)(.|\n)*(cast|convert)"
    ) as caught:
        zc.convert(frame, to, **({} if to == "pyarrow" else {"encode": True}))
    assert "'fine'" not in caught.value.why
    assert zc.convert(frame, "polars") is frame
    assert zc.convert(one, "polars.DataFrame")["x"].dtype == one.dtype
    assert zc.convert(frame, to, columns=["fine"]) is not None


def test_refusal_does_not_change_the_source() -> None:
    frame = pl.DataFrame([pl.concat([series(["a"]), series(["b"])], rechunk=False), pl.Series("y", [1, 2])])
    before = (frame.clone(), frame.n_chunks("all"), blocks(frame["x"]))
    for to, options in (("torch", {}), ("numpy", {"layout": "matrix"}), ("jax", {"columns": ["z"]})):
        with pytest.raises(UnsupportedConversionError):
            zc.convert(frame, to, **options)
    assert frame.equals(before[0])
    assert (frame.n_chunks("all"), blocks(frame["x"])) == before[1:]
