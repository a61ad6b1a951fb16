"""Layouts: a table as one matrix, as records, and records as a table."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pyarrow as pa
import pytest
from helpers.arrays import aligned
from helpers.frameworks import HOST
from hypothesis import given, settings, strategies as st

import zerocopy as zc
from zerocopy import registry
from zerocopy.layout.aos_to_soa import aos_to_soa
from zerocopy.layout.soa_to_aos import soa_to_aos
from zerocopy.layout.transposition import BLOCK_BYTES

TABLES = [name for name in ("pyarrow", "pandas", "polars") if registry.frameworks()[name].installed]
TENSORS = [name for name in HOST if name != "pyarrow"]
NAMES = ["a", "b", "c"]


def address(x: object) -> int:
    return zc.view(x).ptr


def apart(rows: int = 5, dtype: str = "f8") -> dict[str, np.ndarray]:
    """Columns in memory of their own, at distances that differ."""
    pads = [np.empty(3 * i + 1) for i in range(3)]
    made = {n: (np.arange(rows) * 10 + i).astype(dtype) for i, n in enumerate(NAMES)}
    del pads
    whole = np.empty(4 * rows + 200, dtype)  # c before a: never at equal, positive distances
    for place, n in zip((rows + 80, 2 * rows + 180, 0), NAMES, strict=True):
        whole[place : place + rows] = made[n]
        made[n] = whole[place : place + rows]
    return made


def one_array(rows: int = 5, gap: int = 0) -> tuple[np.ndarray, pa.Table]:
    """A table whose columns are those of one array, column by column."""
    whole = aligned(np.zeros((3, rows + gap)))
    matrix = whole[:, :rows].T
    matrix[...] = np.arange(rows * 3).reshape(rows, 3)
    return matrix, pa.table({n: matrix[:, i] for i, n in enumerate(NAMES)})


def takes_columns(target: str) -> bool:
    """Whether a framework takes memory that is column-major."""
    return not registry.by_name(target).copy_reasons(zc.view(aligned(np.ones((4, 16))).T))


# -- a matrix: aliases ----------------------------------------------------------------


@pytest.mark.parametrize("target", TENSORS)
@pytest.mark.parametrize("layout", ["matrix", "matrix:F", "matrix:C"])
def test_columns_of_one_array_are_a_matrix(target: str, layout: str) -> None:
    matrix, table = one_array(8)
    plan = zc.explain(table, target, layout=layout)
    made = zc.convert(table, target, layout=layout)
    assert np.array_equal(zc.convert(made, "numpy"), matrix)
    assert plan.zero_copy == (address(made) == matrix.ctypes.data)
    assert plan.copied_bytes == (0 if plan.zero_copy else matrix.nbytes)
    if layout == "matrix:C" or not takes_columns(target):
        assert not plan.zero_copy
        assert zc.view(made).c_contiguous
        with pytest.raises(zc.CopyRequiredError):
            zc.convert(table, target, layout=layout, copy=False)
    else:
        assert plan.zero_copy
        assert zc.view(made).strides == (8, 64)
        assert address(zc.convert(table, target, layout=layout, copy=False)) == matrix.ctypes.data
        fresh = zc.convert(table, target, layout=layout, copy=True)
        assert not zc.shares_memory(fresh, matrix)
        if layout == "matrix:F":
            assert zc.view(fresh).strides == (8, 64)


@pytest.mark.parametrize("rows", [1, 5, 8, 13])
def test_gaps_of_less_than_a_buffers_padding_are_walked_over(rows: int) -> None:
    for gap in (0, 1, 7):
        matrix, table = one_array(rows, gap)
        made = zc.convert(table, "torch", layout="matrix", copy=False)
        assert made.data_ptr() == matrix.ctypes.data
        assert np.array_equal(made.numpy(), matrix)
    for gap in (8, 100):
        _, table = one_array(rows, gap)
        with pytest.raises(zc.CopyRequiredError, match="separate memory"):
            zc.convert(table, "torch", layout="matrix", copy=False)


def test_padded_buffers_of_one_allocation_alias() -> None:
    """As Arrow IPC writes them: one body, each buffer padded."""
    table = pa.table({n: np.arange(5, dtype="i4") + i for i, n in enumerate(NAMES)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as out:
        out.write_table(table)
    read = pa.ipc.open_stream(sink.getvalue()).read_all()
    made = zc.convert(read, "numpy", layout="matrix", copy=False)
    assert made.strides == (4, 24)
    assert made.tolist() == [[i, i + 1, i + 2] for i in range(5)]
    assert address(made) == read["a"].chunk(0).buffers()[1].address
    assert not made.flags.writeable


def test_rows_of_one_array_are_a_matrix() -> None:
    pd = pytest.importorskip("pandas")
    whole = np.arange(40.0).reshape(8, 5)
    frame = pd.DataFrame(whole, columns=list("abcde"), copy=False)
    for columns, expected in [
        (list("abcde"), whole),
        (list("bcd"), whole[:, 1:4]),
        (list("ace"), whole[:, ::2]),
        (["d"], whole[:, 3:4]),
    ]:
        for layout in ("matrix", "matrix:C"):
            made = zc.convert(frame, "torch", layout=layout, columns=columns, copy=False)
            assert made.data_ptr() == expected.ctypes.data
            assert np.array_equal(made.numpy(), expected)
    for columns in (list("edc"), list("abe"), ["a", "a"]):
        plan = zc.explain(frame, "torch", layout="matrix", columns=columns)
        assert not plan.zero_copy
        made = zc.convert(frame, "torch", layout="matrix", columns=columns)
        assert np.array_equal(made.numpy(), frame[columns].to_numpy())
    made = zc.convert(frame, "torch", layout="matrix:F")
    assert made.stride() == (1, 8)
    assert np.array_equal(made.numpy(), whole)


def test_a_matrix_of_polars_in_one_array() -> None:
    pl = pytest.importorskip("polars")
    whole = np.asfortranarray(np.arange(30.0).reshape(10, 3))
    frame = pl.DataFrame({n: pl.Series(n, whole[:, i]) for i, n in enumerate(NAMES)})
    plan = zc.explain(frame, "torch", layout="matrix")
    made = zc.convert(frame, "torch", layout="matrix")
    assert np.array_equal(made.numpy(), whole)
    assert plan.zero_copy == (made.data_ptr() == frame["a"].to_numpy().ctypes.data)


def test_one_column_is_a_matrix() -> None:
    for layout in ("matrix", "matrix:C", "matrix:F"):
        table = pa.table({"x": np.arange(4.0)})
        for target in ("torch", "jax", "numpy"):
            made = zc.convert(table, target, layout=layout)
            assert made.shape == (4, 1)
            assert np.asarray(made)[:, 0].tolist() == [0, 1, 2, 3]
        plan = zc.explain(table, "numpy", layout=layout)
        assert plan.zero_copy


def test_an_alias_keeps_each_column_alive() -> None:
    class Kept(np.ndarray):
        """Weakly referenced."""

    matrix = np.asfortranarray(np.arange(12.0).reshape(4, 3))
    kept = [matrix[:, i].view(Kept) for i in range(3)]
    address_ = matrix.ctypes.data
    watched = [weakref.ref(one) for one in kept]
    table = pa.table(
        {
            n: pa.Array.from_buffers(pa.float64(), 4, [None, pa.py_buffer(k)])
            for n, k in zip(NAMES, kept, strict=True)
        }
    )
    made = zc.convert(table, "numpy", layout="matrix", copy=False)
    del table, kept, matrix
    gc.collect()
    assert all(one() is not None for one in watched)
    assert made.ctypes.data == address_
    assert made[:, 2].tolist() == [2, 5, 8, 11]
    del made
    gc.collect()
    assert all(one() is None for one in watched)


# -- a matrix: copies -----------------------------------------------------------------


@pytest.mark.parametrize("source", TABLES)
@pytest.mark.parametrize("target", TENSORS)
def test_columns_apart_are_copied_in_the_order_asked(source: str, target: str) -> None:
    columns = apart()
    table = zc.convert({n: pa.array(c) for n, c in columns.items()}, source)
    expected = np.stack(list(columns.values()), 1)
    for layout in ("matrix", "matrix:C", "matrix:F"):
        plan = zc.explain(table, target, layout=layout)
        assert not plan.zero_copy
        assert plan.copied_bytes == expected.nbytes
        assert "separate memory" in plan.reasons[0].why
        made = zc.convert(table, target, layout=layout)
        assert np.array_equal(np.asarray(zc.convert(made, "numpy")), expected)
        by_column = layout == "matrix:F" and takes_columns(target)
        assert zc.view(made).strides == ((8, 40) if by_column else (24, 8))
        assert address(made) % 64 == 0
    with pytest.raises(zc.CopyRequiredError, match="separate memory"):
        zc.convert(table, target, layout="matrix", copy=False)


@pytest.mark.parametrize("rows", [0, 1, 7, BLOCK_BYTES // 24 - 1, BLOCK_BYTES // 24, BLOCK_BYTES // 6])
def test_blocks_cover_all_rows(rows: int) -> None:
    columns = apart(rows)
    for layout in ("matrix:C", "matrix:F"):
        made = zc.convert(pa.table(columns), "numpy", layout=layout)
        assert made.shape == (rows, 3)
        assert not rows or (made.flags.writeable and made.ctypes.data % 64 == 0)
        for i, n in enumerate(NAMES):
            assert np.array_equal(made[:, i], columns[n])


@given(st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=4), min_size=2, max_size=3), st.booleans())
@settings(max_examples=40, deadline=None)
def test_chunks_are_written_one_by_one(sizes: list[list[int]], by_column: bool) -> None:
    rows = min(map(sum, sizes))
    columns = {}
    for k, parts in enumerate(sizes):
        flat = np.arange(sum(parts), dtype="i4") + 100 * k
        pieces = np.split(flat, np.cumsum(parts)[:-1])
        columns[f"c{k}"] = pa.chunked_array([pa.array(p) for p in pieces], pa.int32()).slice(0, rows)
    table = pa.table(columns)
    made = zc.convert(table, "numpy", layout="matrix:F" if by_column else "matrix:C")
    assert made.dtype == "i4"
    assert np.array_equal(made, np.stack([c.to_numpy() for c in columns.values()], 1))


def test_chunks_are_a_reason() -> None:
    table = pa.table({"x": pa.chunked_array([[1], [2, 3]]), "y": pa.array([4, 5, 6])})
    plan = zc.explain(table, "torch", layout="matrix")
    assert "chunks" in plan.reasons[0].why
    assert zc.convert(table, "torch", layout="matrix").tolist() == [[1, 4], [2, 5], [3, 6]]


def test_bits_are_unpacked_and_nulls_filled() -> None:
    flags = pa.table({"x": [True, False], "y": [False, None]})
    with pytest.raises(zc.LossyConversionError, match="'y' has 1 null"):
        zc.convert(flags, "torch", layout="matrix")
    assert zc.convert(flags, "torch", layout="matrix", nulls=True).tolist() == [[True, False], [False, True]]
    floats = pa.table({"x": [1.0, None], "y": [None, 2.0]})
    made = zc.convert(floats, "numpy", layout="matrix", nulls="nan")
    assert np.array_equal(made, [[1, np.nan], [np.nan, 2]], equal_nan=True)
    assert zc.convert(floats, "numpy", layout="matrix", nulls={"x": 0, "y": 5}).tolist() == [[1, 5], [0, 2]]
    with pytest.raises(zc.UnsupportedConversionError, match="mask beside it") as caught:
        zc.convert(floats, "numpy", layout="matrix", nulls="mask")
    assert "nan" in caught.value.remedy


def test_dates_of_one_unit_are_a_matrix_of_numpys() -> None:
    days = np.array(["2020-01-01", "2021-01-01"], "M8[us]")
    table = pa.table({"x": days, "y": days + np.timedelta64(1, "D")})
    made = zc.convert(table, "numpy", layout="matrix")
    assert made.dtype == "M8[us]"
    assert np.array_equal(made, np.stack([days, days + np.timedelta64(1, "D")], 1))
    with pytest.raises(zc.UnsupportedConversionError, match="'x' is timestamp"):
        zc.convert(table, "torch", layout="matrix")
    with pytest.raises(zc.UnsupportedConversionError, match="no plain numbers"):
        zc.convert(table, "torch", layout="matrix", encode=True)


def test_types_must_be_one() -> None:
    table = pa.table(
        {"i": [1], "f": [1.5], "j": [2], "s": ["x"], "v": pa.array([[1, 2]], pa.list_(pa.int64(), 2))}
    )
    with pytest.raises(zc.UnsupportedConversionError, match="'s' is string"):
        zc.convert(table, "torch", layout="matrix")
    with pytest.raises(zc.UnsupportedConversionError, match=r"'v' is a column of tensors of shape \(2,\)"):
        zc.convert(table, "torch", layout="matrix", columns=["i", "v"])
    with pytest.raises(zc.UnsupportedConversionError, match=r"int64 \('i', 'j'\), float64 \('f'\)") as caught:
        zc.convert(table, "torch", layout="matrix", columns=["i", "f", "j"])
    assert "columns=['i', 'j']" in caught.value.remedy
    assert zc.convert(table, "torch", layout="matrix", columns=["j", "i"]).tolist() == [[2, 1]]
    with pytest.raises(zc.UnsupportedConversionError, match="one column"):
        zc.convert(table["i"], "torch", layout="matrix")


@pytest.mark.parametrize("target", TENSORS)
def test_nothing_to_copy(target: str) -> None:
    empty = pa.table({"x": pa.array([], pa.float32()), "y": pa.array([], pa.float32())})
    made = zc.convert(empty, target, layout="matrix", copy=False)
    assert tuple(made.shape) == (0, 2)
    assert zc.view(made).dtype.name == "float32"
    plan = zc.explain(empty, target, layout="matrix")
    assert (plan.zero_copy, plan.copied_bytes) == (False, 0)
    rows_only = pa.table({"x": [1, 2, 3]}).select([])
    made = zc.convert(rows_only, target, layout="matrix")
    assert tuple(made.shape) == (3, 0)
    assert zc.view(made).dtype.name == "float64"


def test_writable_copies_what_arrow_calls_immutable() -> None:
    matrix, table = one_array()
    made = zc.convert(table, "torch", layout="matrix:F", writable=True)
    assert made.stride() == (1, 5)
    made[0, 0] = 99
    assert matrix[0, 0] == 0
    assert not zc.convert(table, "numpy", layout="matrix").flags.writeable
    assert "immutable" in zc.explain(table, "torch", layout="matrix").warnings[0]


# -- records ----------------------------------------------------------------------------


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
    assert table["n"].type.field("z").type.field("q").type == pa.binary(2)
    assert table["d"].type == pa.date32()
    assert table["b"].type == pa.bool8()
    assert table["m"].to_pylist() == rows["m"].tolist()
    back = zc.convert(table, "numpy", layout="records")
    assert back.dtype == rows.dtype
    assert back.tobytes() == rows.tobytes()


@pytest.mark.parametrize("source", TABLES)
def test_records_of_tables(source: str) -> None:
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


def test_nulls_in_records() -> None:
    table = pa.table({"f": [1.0, None], "t": pa.array([None, 1], pa.timestamp("s"))})
    with pytest.raises(zc.LossyConversionError, match=r"'f' has 1 null.*'t' has 1 null"):
        zc.convert(table, "numpy", layout="records")
    filled = zc.convert(table, "numpy", layout="records", nulls="nan")
    assert np.isnan(filled["f"][1])
    assert np.isnat(filled["t"][0])
    with pytest.raises(zc.LossyConversionError, match="mask beside it"):
        zc.convert(table, "numpy", layout="records", nulls="mask")
    struct = pa.table({"s": pa.array([{"x": 1}, None])})
    with pytest.raises(zc.LossyConversionError, match="'s' has 1 null"):
        zc.convert(struct, "numpy", layout="records")


def test_what_records_lack_is_named() -> None:
    table = pa.table(
        {
            "ok": [1], "s": ["x"], "l": [[1]], "z": pa.array([1], pa.timestamp("s", "UTC")),
            "c": pa.array(["x"]).dictionary_encode(),
        }
    )  # fmt: skip
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.convert(table, "numpy", layout="records")
    for said in ("'s' is string", "'l' is list", "no time zone", "'c' is dictionary"):
        assert said in caught.value.why
    assert "'ok'" not in caught.value.why
    assert "columns=[...]" in caught.value.remedy
    assert zc.convert(table, "numpy", layout="records", columns=["ok"]).tolist() == [(1,)]
    for target in TENSORS:
        if target != "numpy":
            with pytest.raises(zc.UnsupportedConversionError, match="no structured arrays"):
                zc.convert(table, target, layout="records")
    with pytest.raises(zc.UnsupportedConversionError, match="several columns are called 'x'"):
        zc.convert(pa.table([[1], [2]], names=["x", "x"]), "numpy", layout="records")
    with pytest.raises(zc.UnsupportedConversionError, match="encode=True"):
        zc.convert(table, "numpy", layout="records", encode=True)


def test_records_without_columns_or_rows() -> None:
    empty = zc.convert(pa.table({"x": pa.array([], pa.int32())}), "numpy", layout="records", copy=False)
    assert (empty.shape, empty.dtype) == ((0,), np.dtype([("x", "i4")]))
    rows_only = pa.table({"x": [1, 2, 3]}).select([])
    assert zc.convert(rows_only, "numpy", layout="records").shape == (3,)
    assert zc.convert(np.zeros(3, np.dtype([])), "pyarrow").num_rows in (0, 3)  # Arrow keeps no rows


def test_numpys_own_stay_as_they_are() -> None:
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


# -- structured arrays as tables --------------------------------------------------------


def test_records_to_tensors() -> None:
    rows = np.zeros(
        9, [("y", "i8"), ("m", "f8", (2, 3)), ("c", "c8"), ("x", ">f4"), ("k", "?", (4,)), ("h", "M8[h]")]
    )
    rows["x"], rows["y"], rows["m"] = np.arange(9), np.arange(9) - 4, np.arange(54).reshape(9, 2, 3)
    made = zc.convert(rows, "torch", columns=["x", "y", "m", "c", "k"])
    for n, tensor in made.items():
        assert tuple(tensor.shape) == rows[n].shape
        assert np.array_equal(tensor.numpy(), rows[n])
        assert tensor.data_ptr() % 64 == 0
    with pytest.raises(zc.UnsupportedConversionError, match=r"column 'h' is timestamp"):
        zc.convert(rows, "torch")
    with pytest.raises(zc.CopyRequiredError, match="interleaved") as caught:
        zc.convert(rows[["x", "y"]], "torch", copy=False)
    assert "aos_to_soa(x)" in caught.value.remedy
    plan = zc.explain(rows[["x", "y"]], "torch")
    assert not plan.zero_copy
    assert plan.copied_bytes == 9 * 12
    alias = zc.convert(rows["m"], "torch", copy=False)
    assert alias.data_ptr() == rows["m"].ctypes.data
    matrix = zc.convert(rows[["x", "y"]].astype([("x", "f4"), ("y", "f4")]), "torch", layout="matrix")
    assert np.array_equal(matrix.numpy()[:, 1], rows["y"])


def test_records_to_tensors_import_no_pyarrow(run_python) -> None:
    done = run_python(
        """
        import sys, numpy as np, torch, zerocopy as zc
        rows = np.zeros(3, [("x", "f4"), ("m", "f4", (2,)), ("n", [("y", "i4")])])
        zc.convert(rows, "torch", columns=["x", "m"])
        zc.convert(rows, "torch", encode=True)
        print("pyarrow" in sys.modules)
        """
    )
    assert done.stdout.strip() == "False", done.stderr


def test_records_of_other_shapes_and_masks_are_refused() -> None:
    rows = np.zeros((2, 3), [("x", "f4")])
    for x in (rows, np.zeros((), [("x", "f4")]), rows[0, 0]):
        with pytest.raises(zc.UnsupportedConversionError, match="no counterpart"):
            zc.convert(x, "torch")
        assert not zc.explain({"t": x}, "torch").possible
    masked = np.ma.masked_array(rows[0], mask=[(1,), (0,), (0,)])
    with pytest.raises(zc.LossyConversionError, match="1 of 3 elements are masked"):
        zc.convert(masked, "pyarrow")
    assert zc.convert(np.ma.masked_array(rows[0]), "pyarrow").num_rows == 3


def test_fields_that_arrow_lacks_are_named() -> None:
    rows = np.zeros(
        2,
        [("a", "i4"), ("c", "c8"), ("g", "g"), ("n", [("c", "c16")]), ("h", "m8[Y]"), ("o", [("p", object)])],
    )
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.convert(rows, "pyarrow")
    for said in (
        "column 'c'",
        "complex64",
        "column 'g'",
        "longdouble",
        "field 'c'",
        "column 'h'",
        "column 'o'",
    ):
        assert said in caught.value.why.replace("float128", "longdouble")
    assert "column 'a'" not in caught.value.why
    assert zc.convert(rows, "pyarrow", columns=["a"]).column_names == ["a"]


@pytest.mark.parametrize("target", TABLES)
def test_records_to_tables(target: str) -> None:
    rows = np.zeros(
        4,
        [
            ("x", ">i4"),
            ("s", "S3"),
            ("u", ">U4"),
            ("t", "M8[us]"),
            ("h", "M8[h]"),
            ("o", object),
            ("n", [("y", "f4")]),
        ],
    )
    rows["x"], rows["s"], rows["u"], rows["o"] = range(4), b"ab", "häß", ["a", None, "b", "c"]
    rows["t"], rows["h"], rows["n"]["y"] = np.array([1, "NaT", 3, 4], "M8[us]"), "2020-01-01T05", 0.5
    plan = zc.explain(rows, target)
    assert not plan.zero_copy
    assert all(leaf.copied_bytes for leaf in plan.leaves.values())
    table = zc.convert(zc.convert(rows, target), "pyarrow")
    assert table["x"].to_pylist() == [0, 1, 2, 3]
    assert table["s"].to_pylist() == [b"ab\0"] * 4
    assert table["u"].to_pylist() == ["häß"] * 4
    assert table["o"].to_pylist() == ["a", None, "b", "c"]
    assert table["t"].null_count == 1
    assert table["h"].to_pylist() == np.array(rows["h"], "M8[us]").tolist()
    assert table["n"].to_pylist() == [{"y": 0.5}] * 4


def test_columns_that_are_not_asked_for_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    from zerocopy.tables import record_column

    calls = []

    def counted(records: np.ndarray, fields: list[str], copy: bool) -> dict[str, object]:
        calls.append(tuple(fields))
        return aos_to_soa(records, fields=fields, copy=copy)

    monkeypatch.setattr(record_column, "aos_to_soa", counted)
    rows = np.zeros(3, [("x", "f4"), ("y", "f4"), ("z", "f4")])
    zc.convert(rows, "pyarrow", columns=["z", "x"])
    zc.convert(rows, "numpy", layout="columns")
    zc.explain(rows, "torch")
    assert calls == [("z", "x"), ("x", "y", "z")]


# -- single columns of NumPy's -----------------------------------------------------------


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("kind", ["M", "m"])
def test_dates_and_durations_alias(unit: str, kind: str) -> None:
    x = np.array([5, -3, 0, 9], f"{kind}8[{unit}]")
    x[2] = "NaT"
    expected = pa.timestamp(unit) if kind == "M" else pa.duration(unit)
    made = zc.convert(x, "pyarrow", copy=False)
    assert made.type == expected
    assert made.buffers()[1].address == x.ctypes.data
    assert made.to_numpy(zero_copy_only=False).tobytes() == x.tobytes()
    assert made.null_count == 1
    assert zc.explain(x, "pyarrow").zero_copy
    for target in TABLES:
        table = zc.convert({"t": x, "n": np.arange(4)}, target)
        back = zc.convert(table, "pyarrow")["t"]
        assert back.null_count == 1
        assert back.drop_null().cast("int64").to_pylist() == [5, -3, 9] or unit == "s"
    encoded, mask = zc.convert(x, "torch", encode=True, nulls="mask")
    assert encoded.values.data_ptr() == x.ctypes.data
    assert mask.tolist() == [False, False, True, False]


@pytest.mark.parametrize("dtype", [">M8[us]", "M8[D]", "M8[h]", "M8[M]", "M8[10us]", "m8[D]", ">m8[s]"])
def test_other_units_are_copied(dtype: str) -> None:
    x = (
        np.array([1, 20, 300], "i8")
        .astype(np.dtype(dtype).newbyteorder("=").str.replace(">", "<"))
        .astype(dtype)
    )
    with pytest.raises(zc.CopyRequiredError):
        zc.convert(x, "pyarrow", copy=False)
    made = zc.convert(x, "pyarrow")
    assert np.array_equal(made.to_numpy(zero_copy_only=False).astype(x.dtype.newbyteorder("=")), x)
    assert made.type == pa.date32() if dtype == "M8[D]" else made.type != pa.date32()


def test_dates_out_of_reach_are_refused() -> None:
    for x in (np.array([2**40], "M8[D]"), np.array([2**60], "M8[h]")):
        with pytest.raises(zc.UnsupportedConversionError, match="fit in"):
            zc.convert(x, "pyarrow")
    for x in (np.array([1], "M8[ps]"), np.array([1], "m8[M]")):
        with pytest.raises(zc.UnsupportedConversionError, match="no unit for"):
            zc.convert(x, "pyarrow")


def test_bytes_and_text() -> None:
    x = np.array([b"ab", b"c"], "S4")
    made = zc.convert(x, "pyarrow", copy=False)
    assert made.to_pylist() == [b"ab\0\0", b"c\0\0\0"]
    assert made.buffers()[1].address == x.ctypes.data
    strided = np.array([b"ab", b"c", b"d"], "S4")[::2]
    assert zc.convert(strided, "pyarrow").to_pylist() == [b"ab\0\0", b"d\0\0\0"]
    raw = zc.convert(strided, "torch", encode=True, copy=False).values
    assert raw.data_ptr() == strided.ctypes.data
    assert bytes(raw[1].tolist()) == b"d\0\0\0"
    texts = [np.array(["häß", ""]), np.array(["häß", ""], ">U3"), np.array(["häß", ""], object)]
    for text in [*texts, np.array(["häß", ""], np.dtypes.StringDType())]:
        assert zc.convert(text, "pyarrow").to_pylist() == ["häß", ""]
        assert zc.convert({"x": text}, "pyarrow")["x"].to_pylist() == ["häß", ""]


# -- records where they lie --------------------------------------------------------------

POINTS = [("x", "f4"), ("y", "f4"), ("z", "f4"), ("w", "f4")]
#: Tensor frameworks that take a field at its stride.
STRIDED = [name for name in ("numpy", "torch") if name in HOST]


@pytest.mark.parametrize("target", STRIDED)
def test_one_field_lies_where_it_is(target: str) -> None:
    # Torch's strides are whole items: a field of a record of 17 bytes has no such stride.
    odd = np.zeros(50, [("a", "i1"), *POINTS])
    assert zc.explain(odd, target, columns=["y"]).zero_copy == (target == "numpy")
    assert zc.explain(odd, target, columns=["a"]).zero_copy
    rows = np.zeros(50, POINTS)
    seen = zc.convert(rows, target, columns=["y"])["y"]
    rows["y"][7] = 5
    assert seen[7] == 5
    assert zc.shares_memory(rows, seen)
    assert not zc.shares_memory(rows, zc.convert(rows, target, columns=["y"], copy=True))


@pytest.mark.parametrize("target", STRIDED)
def test_all_fields_without_a_copy(target: str) -> None:
    rows = np.zeros(50, POINTS)
    made = zc.convert(rows, target, copy=False, layout="columns")
    assert list(made) == ["x", "y", "z", "w"]
    assert all(zc.shares_memory(rows, column) for column in made.values())
    assert zc.explain(rows, target, copy=False, layout="columns").zero_copy
    # By default they are columns: one pass over the records, and not one a field.
    assert not zc.explain(rows, target, layout="columns").zero_copy


def test_fields_without_a_copy_where_that_cannot_be() -> None:
    with pytest.raises(zc.CopyRequiredError, match="interleaved"):
        zc.convert(np.zeros(5, POINTS), "pyarrow", copy=False)
    with pytest.raises(zc.CopyRequiredError, match="interleaved"):
        zc.convert(np.zeros(5, [("a", ">i4"), ("b", "i4")]), "torch", copy=False)
    with pytest.raises(zc.CopyRequiredError):
        zc.convert(np.zeros(5, POINTS), "jax", copy=False)


@pytest.mark.parametrize("target", TENSORS)
@pytest.mark.parametrize("dtype", [POINTS, [("x", "f4")], [("n", "i2"), ("m", "i2")], [("a", "i1"), *POINTS]])
def test_records_as_a_matrix(target: str, dtype: list[tuple[str, str]]) -> None:
    rows = aligned(np.zeros(20, dtype))
    rows.view(np.uint8)[...] = np.arange(rows.nbytes, dtype=np.uint8) % 60
    if len({kind for _, kind in dtype}) > 1:
        with pytest.raises(zc.UnsupportedConversionError, match="one type"):
            zc.convert(rows, target, layout="matrix")
        return
    expected = np.stack([rows[name] for name in rows.dtype.names], axis=1)
    for options in ({}, {"copy": True}):
        plan = zc.explain(rows, target, layout="matrix", **options)
        made = zc.convert(rows, target, layout="matrix", **options)
        assert plan.zero_copy == zc.shares_memory(rows, made)
        assert np.asarray(made).tobytes() == expected.tobytes()
    assert zc.explain(rows, "numpy", layout="matrix", copy=False).zero_copy


@pytest.mark.parametrize("target", STRIDED)
def test_columns_of_records_are_a_matrix(target: str) -> None:
    columns = aos_to_soa(np.zeros(5000, POINTS))
    made = zc.convert(columns, target, layout="matrix", copy=False)
    assert zc.shares_memory(columns["w"], made)
    columns["z"][4321] = 3
    assert made[4321, 2] == 3


def test_columns_far_apart_are_no_matrix() -> None:
    """At equal distances, and with other data between them: an alias would span that too."""
    memory = np.zeros((4, 5000), "f4")
    far = {"a": memory[0, :1000], "b": memory[1, :1000]}
    assert not zc.explain(far, "numpy", layout="matrix").zero_copy


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_matrix_of_types_that_numpy_lacks(order: str) -> None:
    """As bytes: NumPy would cast bfloat16 to the integers that hold it."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    rows = np.zeros(3, [("a", ml_dtypes.bfloat16), ("b", ml_dtypes.bfloat16)])
    rows["a"] = np.array([1, 2, 3], ml_dtypes.bfloat16)
    made = zc.convert(rows, "numpy", layout=f"matrix:{order}", copy=True)
    assert made[:, 0].astype("f4").tolist() == [1, 2, 3]
    assert made.dtype == ml_dtypes.bfloat16


def test_wide_records_take_no_memory_of_their_own() -> None:
    wide = np.zeros(2, [("image", "u1", (20_000_000,)), ("id", ">i4")])
    wide["id"] = [1, 2]
    wide["image"][1, -1] = 7
    columns = aos_to_soa(wide)
    assert columns["image"][1, -1] == 7
    assert columns["id"].tolist() == [1, 2]
    assert np.array_equal(soa_to_aos(columns, wide.dtype)["id"], [1, 2])
