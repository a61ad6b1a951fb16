"""layout="records": a table as one structured array."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from helpers.layout_tables import TABLES, TENSORS

import zerocopy as zc


def rows_of_everything(count: int = 6) -> np.ndarray:
    rng = np.random.default_rng(1)
    inner = np.dtype([("x", "i2"), ("y", "f8"), ("z", [("q", "S2")])])
    dtype = np.dtype(
        [
            ("f", "f4"), ("b", "?"), ("s", "S5"), ("v", "V3"), ("d", "M8[D]"), ("t", "M8[us]"),
            ("p", "m8[ms]"), ("m", "f4", (2, 3)), ("n", inner), ("r", [("x", "f4")], (3,)),
            ("w", "M8[s]", (2,)), ("g", "S3", (2,)), ("k", "?", (2,)), ("u1", "u1"),
        ]
    )  # fmt: skip
    rows = np.zeros(count, dtype)
    rows["f"], rows["b"], rows["s"], rows["v"] = rng.random(count), rng.integers(0, 2, count), b"ab", b"xyz"
    rows["d"], rows["t"], rows["p"] = "2020-02-29", np.arange(count).astype("M8[us]"), np.arange(count)
    rows["m"], rows["r"]["x"], rows["w"] = rng.random((count, 2, 3)), rng.random((count, 3)), "1999-01-01"
    rows["n"]["x"], rows["n"]["y"], rows["n"]["z"]["q"] = range(count), rng.random(count), b"hi"
    rows["g"], rows["k"], rows["u1"] = b"abc", rng.integers(0, 2, (count, 2)), 7
    return rows


def test_records_survive_arrow() -> None:
    rows = rows_of_everything()
    table = zc.convert(rows, "pyarrow")
    table.validate(full=True)
    assert table.column_names == list(rows.dtype.names)
    assert table["m"].type == pa.list_(pa.list_(pa.float32(), 3), 2)
    assert table["n"].type.field("z").type.field("q").type == pa.binary()
    assert table["d"].type == pa.date32()
    assert table["b"].type == pa.bool_()
    assert table["m"].to_pylist() == rows["m"].tolist()
    back = zc.convert(table, "numpy", layout="records")
    assert back.dtype == rows.dtype
    assert back.tobytes() == rows.tobytes()


@pytest.mark.parametrize("source", TABLES)
def test_tables_become_records(source: str) -> None:
    day = pa.array([1, 2], pa.int32()).view(pa.date32())
    table = pa.table(
        {
            "i": [1, 2],
            "f": [0.5, 1.5],
            "b": [True, False],
            "t": pa.array([3, 4], pa.timestamp("us")),
            "d": day,
        }
    )
    records = zc.convert(zc.convert(table, source), "numpy", layout="records")
    assert records.dtype.names == ("i", "f", "b", "t", "d")
    assert [records.dtype[n].str for n in "ifbt"] == ["<i8", "<f8", "|b1", "<M8[us]"]
    assert records["d"].dtype == "M8[D]"
    assert records.tolist() == [tuple(row.values()) for row in table.to_pylist()]
    plan = zc.explain(table, "numpy", layout="records")
    assert not plan.zero_copy
    assert plan.copied_bytes == records.nbytes
    with pytest.raises(zc.CopyRequiredError, match="written into rows"):
        zc.convert(table, "numpy", layout="records", copy=False)
    assert not zc.convert(table, "numpy", layout="records", writable=False).flags.writeable


def test_a_fix_that_leaves_columns_out_adds_no_complaint_about_fields() -> None:
    table = pa.table({"a": [1, None, 3], "b": [1.0, 2.0, 3.0]})
    dtype = np.dtype([("a", "i8"), ("b", "f8")])
    with pytest.raises(zc.LossyConversionError) as caught:
        zc.soa_to_aos(table, dtype)
    assert caught.value.why == "column 'a' has 1 null in 3 rows"
    for call in caught.value.calls:
        assert eval(call, {"zc": zc, "x": table, "dtype": dtype})["b"].sum() == 6
    words = pa.table({"a": ["x", "y", "z"], "b": [1.0, 2.0, 3.0]})
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.convert(words, "numpy", layout="records", dtype=[("a", "i8"), ("b", "f8")])
    assert "fields" not in caught.value.why
    calls = [call for call in caught.value.calls if "columns=" in call and "dtype" not in call]
    assert [eval(call, {"zc": zc, "x": words}).tolist() for call in calls] == [[(1.0,), (2.0,), (3.0,)]]


def test_nulls_are_refused_or_filled_in_records() -> None:
    table = pa.table({"f": [1.0, None], "t": pa.array([None, 1], pa.timestamp("s"))})
    with pytest.raises(zc.LossyConversionError, match=r"'f' has 1 null.*'t' has 1 null"):
        zc.convert(table, "numpy", layout="records")
    filled = zc.convert(table, "numpy", layout="records", nulls="nan")
    assert np.isnan(filled["f"][1])
    assert np.isnat(filled["t"][0])
    with pytest.raises(zc.LossyConversionError, match="would have a mask"):
        zc.convert(table, "numpy", layout="records", nulls="mask")
    struct = pa.table({"s": pa.array([{"x": 1}, None])})
    with pytest.raises(zc.LossyConversionError, match="'s' has 1 null"):
        zc.convert(struct, "numpy", layout="records")


def test_types_that_records_lack_are_named() -> None:
    table = pa.table(
        {
            "ok": [1], "s": ["x"], "l": [[1]], "z": pa.array([1], pa.timestamp("s", "UTC")),
            "c": pa.array(["x"]).dictionary_encode(),
        }
    )  # fmt: skip
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.convert(table, "numpy", layout="records")
    for message in ("'s' is string", "'l' is list", "no time zone", "'c' is dictionary"):
        assert message in caught.value.why
    assert "'ok'" not in caught.value.why
    assert 'columns=["ok"]' in caught.value.remedy
    assert zc.convert(table, "numpy", layout="records", columns=["ok"]).tolist() == [(1,)]
    for target in TENSORS:
        if target != "numpy":
            with pytest.raises(zc.UnsupportedConversionError, match="no structured arrays"):
                zc.convert(table, target, layout="records")
    with pytest.raises(zc.UnsupportedConversionError, match="several columns are called 'x'"):
        zc.convert(pa.table([[1], [2]], names=["x", "x"]), "numpy", layout="records")
    with pytest.raises(zc.UnsupportedConversionError, match="encode=True"):
        zc.convert(table, "numpy", layout="records", encode=True)


def test_tables_without_columns_or_rows_become_records() -> None:
    empty = zc.convert(pa.table({"x": pa.array([], pa.int32())}), "numpy", layout="records", copy=False)
    assert (empty.shape, empty.dtype) == ((0,), np.dtype([("x", "i4")]))
    rows_only = pa.table({"x": [1, 2, 3]}).select([])
    assert zc.convert(rows_only, "numpy", layout="records").shape == (3,)
    assert zc.convert(np.zeros(3, np.dtype([])), "pyarrow").num_rows in (0, 3)  # Arrow keeps no rows


def test_numpy_arrays_are_returned_unchanged() -> None:
    rows = rows_of_everything()
    objects = np.array([(1, {})], [("x", "i4"), ("o", object)])
    others = [
        np.array(["2020", "NaT"], "M8[h]"),
        np.array(["text"]),
        np.array([b"x"]),
        np.array([{}], object),
    ]
    for x in (rows, rows[::2], rows.view(np.recarray), objects, *others):
        assert zc.convert(x, "numpy") is x
        assert zc.convert(x, "numpy", copy=False) is x
        fresh = zc.convert(x, "numpy", copy=True)
        assert not np.shares_memory(fresh, x)
        assert (type(fresh), fresh.dtype) == (type(x), x.dtype)
        assert str(fresh) == str(x)
        assert zc.explain(x, "numpy", copy=True).copied_bytes == x.nbytes
        marked = zc.convert(x, "numpy", writable=False)
        assert not marked.flags.writeable
        assert np.shares_memory(marked, x)
    assert zc.convert(rows, "numpy", layout="records") is rows
    one = zc.convert(rows, "numpy", layout="records", columns=["u1", "f"])
    assert one.dtype == np.dtype([("u1", "u1"), ("f", "f4")])
