"""Views of short text that a cast has made have a NULL text buffer, which pyarrow 24 reads."""

from __future__ import annotations

import pytest

import zerocopy as zc

pa = pytest.importorskip("pyarrow")


@pytest.mark.hazard("pyarrow#short-views-of-a-cast")
@pytest.mark.parametrize("kind", ["string_view", "binary_view"])
def test_short_views_of_a_cast(kind: str) -> None:
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
def test_short_views_inside_other_types(run_python) -> None:
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
