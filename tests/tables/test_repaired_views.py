"""Views of text that pyarrow would read out of bounds convert, whole and inside other types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.table_cases import TABLES

import zerocopy as zc
from zerocopy import registry

pa = pytest.importorskip("pyarrow")


@pytest.mark.hazard("pyarrow#short-views-of-a-cast")
@pytest.mark.parametrize("kind", ["string_view", "binary_view"])
def test_views_of_a_cast(kind: str) -> None:
    wide = pa.large_string() if kind == "string_view" else pa.large_binary()
    values = ["a", None, "b"] if kind == "string_view" else [b"a", None, b"b"]
    column = pa.array(values, wide).cast(getattr(pa, kind)())
    flat = pa.table({"a": pa.chunked_array([column, column.slice(1)])})
    assert zc.convert(flat, "polars")["a"].to_list() == values + values[1:]
    table = pa.table({"a": column})
    assert zc.explain(table, "polars", copy=True).possible
    assert zc.convert(table, "polars")["a"].to_list() == values
    assert zc.convert(zc.share(table), "pyarrow")["a"].to_pylist() == values


@pytest.mark.hazard("pyarrow#short-views-of-a-cast")
def test_views_inside_other_types(run_python) -> None:
    """Each form, whole, sliced and in chunks, to each table framework: pyarrow 24 would end the process."""
    process = run_python(
        """
        import warnings
        import numpy as np, pyarrow as pa, zerocopy as zc
        from zerocopy import registry

        warnings.simplefilter("ignore")

        class Named(pa.ExtensionType):
            def __init__(self, storage):
                super().__init__(storage, "tests.named")
            def __arrow_ext_serialize__(self):
                return b""
            @classmethod
            def __arrow_ext_deserialize__(cls, storage, serialized):
                return cls(storage)

        text = pa.array(["a", None, "b", "", "c", "dd"], pa.large_string()).cast(pa.string_view())
        hidden = pa.array([False, False, True, False, False, False])
        numbers = pa.array(np.arange(6))
        structs = pa.StructArray.from_arrays([numbers, text], ["n", "t"], mask=hidden)
        codes = pa.array([0, 1, None, 0, 1, 0], pa.int8())
        offsets = pa.array([0, 1, 3, None, 4, 6], pa.int32())
        forms = {
            "list": pa.ListArray.from_arrays(offsets, text),
            "large list": pa.LargeListArray.from_arrays(offsets.cast(pa.int64()), text),
            "fixed list": pa.FixedSizeListArray.from_arrays(text, 2),
            "sliced fixed list": pa.FixedSizeListArray.from_arrays(text.slice(2), 2),
            "list view": pa.ListViewArray.from_arrays(
                pa.array([0, 2, 4], pa.int32()), pa.array([2, 2, 2], pa.int32()), text),
            "struct": structs,
            "struct of a slice": pa.StructArray.from_arrays([numbers.slice(1), text.slice(1)], ["n", "t"]),
            "list of structs": pa.ListArray.from_arrays(offsets, structs),
            "struct of lists": pa.StructArray.from_arrays([pa.ListArray.from_arrays(offsets, text)], ["l"]),
            "dictionary": pa.DictionaryArray.from_arrays(codes, text.slice(3, 2)),
            "map": pa.MapArray.from_arrays(pa.array([0, 1, 3, 6], pa.int32()), numbers, text),
            "extension": pa.ExtensionArray.from_storage(Named(pa.string_view()), text),
            "extension of structs": pa.ExtensionArray.from_storage(Named(structs.type), structs),
            "runs": pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 3, 4, 5, 6], pa.int32()), text),
            "sparse union": pa.UnionArray.from_sparse(
                pa.array([0, 1, 1, 0, 1, 1], pa.int8()), [numbers, text]),
            "dense union": pa.UnionArray.from_dense(
                pa.array([0, 1, 1], pa.int8()), pa.array([0, 0, 1], pa.int32()), [numbers, text]),
        }
        targets = [n for n, i in registry.frameworks().items() if i.installed and registry.by_name(n).tables]
        reached = set()
        for name, array in forms.items():
            shapes = [array, array.slice(1), array.slice(1, 1), array.slice(2, 0)]
            if name != "runs":  # pyarrow cannot join chunks of runs
                shapes.append(pa.chunked_array([array.slice(1), array]))
            for shape in shapes:
                table = pa.table({"x": shape})
                rows = shape.to_pylist()
                for x in (shape, table):
                    for options in ({}, {"copy": True}, {"copy": False}):
                        for to in targets:
                            assert zc.explain(x, to, **options).target
                            try:
                                result = zc.convert(x, to, **options)
                            except zc.ZeroCopyError:
                                continue
                            reached.add((name, to))
                            if to == "polars" and x is table:
                                got = result["x"].to_list()
                                assert len(got) == len(rows)
                                if name in ("list", "large list", "struct", "list of structs", "dictionary"):
                                    assert got == rows, (name, got, rows)
                            if to == "pyarrow":
                                got = result["x"] if x is table else result
                                if name != "sparse union":  # pyarrow 24 lists slices of them wrongly
                                    assert got.to_pylist() == rows, (name, got, rows)
                try:
                    shared = zc.convert(zc.share(table), "pyarrow")["x"]
                except zc.ZeroCopyError:
                    continue
                assert name == "sparse union" or shared.to_pylist() == rows, (name, shared, rows)
        assert {(name, "pyarrow") for name in forms} <= reached
        print(len(reached))
        """
    )
    assert process.returncode == 0, process.stderr[-2000:]


@pytest.mark.hazard("pyarrow#short-views-of-a-cast")
def test_a_concatenation_has_the_text_of_each_part() -> None:
    short = pa.array(["a", None]).cast(pa.string_view())
    long = pa.array(["more than twelve bytes"]).cast(pa.string_view())
    for parts, expected in (
        ([short, short], ["a", None, "a", None]),
        ([short, long, short], ["a", None, "more than twelve bytes", "a", None]),
    ):
        table = pa.table({"a": pa.concat_arrays(parts)})
        assert zc.convert(table, "numpy", encode=True, nulls=-1)["a"].to_pylist() == expected
        assert zc.convert(table, "polars")["a"].to_list() == expected


def with_lengths_at_nulls(kind: str, length: int) -> Any:
    """Return views, in which those of nulls have a length."""
    texts = [None if i % 7 == 3 else f"row {i}, longer than a view" for i in range(40)]
    plain = pa.array(
        texts if kind == "string_view" else [t and t.encode() for t in texts], getattr(pa, kind)()
    )
    bitmap, views, *blocks = plain.buffers()
    own = np.frombuffer(views, np.int32).reshape(-1, 4).copy()
    own[3::7, 0] = length
    return pa.Array.from_buffers(
        plain.type, len(plain), [bitmap, pa.py_buffer(own), *blocks], plain.null_count
    )


def test_views_and_runs_without_rows() -> None:
    na = pytest.importorskip("nanoarrow")
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([1, 2], pa.int32()), pa.array([1, 2]))
    views = pa.array(["a", "b"], pa.string_view())
    table = pa.table({"x": pa.StructArray.from_arrays([views[:0], runs[:0]], ["v", "r"])})
    assert isinstance(zc.convert(table, "nanoarrow"), na.Array)
    # pyarrow's cast of list views of runs is invalid, so only the views of text are cast.
    lists = pa.ListViewArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array([1, 1], pa.int32()), runs)
    table = pa.table({"x": pa.StructArray.from_arrays([views, lists], ["v", "l"])})
    assert zc.explain(table, "nanoarrow").possible
    rows = pa.chunked_array(zc.convert(table, "nanoarrow"))
    rows.validate(full=True)
    struct = rows.chunk(0).field("x")
    assert struct.field("v").to_pylist() == ["a", "b"]
    assert struct.field("l").values.values.to_pylist() == [1, 2]


def test_casts_without_rows_are_those_of_pyarrow() -> None:
    cast = registry.by_name("pyarrow").cast_views
    for kind in (pa.string(), pa.string_view()):
        for empty in (pa.array([], kind), pa.chunked_array([], kind), pa.chunked_array([[]], kind)):
            assert cast(empty, pa.large_string()).equals(empty.cast(pa.large_string()))
            with pytest.raises(pa.ArrowNotImplementedError):
                cast(empty, pa.struct({"a": pa.int64()}))


def test_dictionaries_of_nested_views_reach_polars() -> None:
    pytest.importorskip("polars")
    lists = pa.array([["a", None], ["a text that is longer than a view"]], pa.list_(pa.string_view()))
    table = pa.table({"x": pa.DictionaryArray.from_arrays(pa.array([1, 0, None, 1]), lists)})
    assert zc.convert(table, "polars")["x"].to_list() == table["x"].to_pylist()


@pytest.mark.hazard("pyarrow#casts-of-views-with-nulls")
@pytest.mark.parametrize("length", [-20, -(2**31)])
def test_the_loader_and_codes_ignore_lengths_of_null_views(length: int) -> None:
    views = with_lengths_at_nulls("string_view", length)
    expected, table = views.to_pylist(), pa.table({"x": views})
    plain, given = pa.table({"x": pa.array(expected, pa.string_view())}), sorted({*expected} - {None})
    made = [zc.convert(each, "numpy", encode={"x": given}, nulls=-1)["x"] for each in (table, plain)]
    assert made[0].values.tolist() == made[1].values.tolist()
    schema = pa.schema([("x", pa.large_string())])
    (made_batch,), (plain_batch,) = (
        list(zc.loader(x, "pyarrow", batch_size=100, schema=schema)) for x in (table, plain)
    )
    assert made_batch.equals(plain_batch)
    for encode in (True, {"x": given}):
        (made_batch,), (plain_batch,) = (
            list(zc.loader(x, "numpy", batch_size=100, encode=encode, nulls=-1)) for x in (table, plain)
        )
        assert made_batch["x"].values.tolist() == plain_batch["x"].values.tolist()


@pytest.mark.hazard("pyarrow#casts-of-views-with-nulls")
@pytest.mark.parametrize("target", [name for name in TABLES if name not in ("cudf", "pylibcudf")])
@pytest.mark.parametrize("kind", ["string_view", "binary_view"])
def test_lengths_of_null_views_are_ignored(kind: str, target: str) -> None:
    """A cast adds them up, and writes beyond its memory if the sum is too small."""
    for length in (-20, -(2**31), 2**31 - 1):
        views = with_lengths_at_nulls(kind, length)
        expected = views.to_pylist()
        pair = pa.StructArray.from_arrays([views, views], ["a", "b"])
        forms = {
            "whole": (views, expected),
            "slice": (views.slice(3, 20), expected[3:23]),
            "chunks": (pa.chunked_array([views, views.slice(5)]), expected + expected[5:]),
            "lists": (pa.ListArray.from_arrays([0, 10, 40], views), [expected[:10], expected[10:]]),
            "slice of structs": (pair.slice(2, 9), [{"a": t, "b": t} for t in expected[2:11]]),
            "words": (
                pa.DictionaryArray.from_arrays(pa.array([3, 0, 39]), views),
                [expected[3], expected[0], expected[39]],
            ),
        }
        for name, (form, values) in forms.items():
            for copy in (None, True):
                result = zc.convert(pa.table({"x": form}), target, copy=copy)
                back = zc.convert(result, "pyarrow.Table", copy=None)["x"].to_pylist()
                assert back == values, (name, copy)
