"""Bugs and copies of polars' own calls, and the guards against them."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.polars_cases import Streamed, blocks, leaf, series

import zerocopy as zc
from zerocopy.errors import UnsupportedConversionError

pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")


@pytest.mark.hazard("pyarrow#casts-of-list-views")
def test_hazard_pyarrow_casts_list_views_incorrectly() -> None:
    # List views are refused because of this bug. If this test fails, pyarrow casts them correctly.
    views = pa.array([[1], [7, 8], [2, 3]], pa.list_view(pa.int64()))
    assert views.to_pylist() == [[1], [7, 8], [2, 3]] != views.cast(pa.large_list(pa.int64())).to_pylist()


@pytest.mark.hazard("polars#dictionaries-inside-lists")
def test_hazard_dictionaries_in_lists_lose_rows_and_panic() -> None:
    kind = pa.large_list(pa.dictionary(pa.int8(), pa.string()))
    column = pa.chunked_array([pa.array([], kind), pa.array([["a"], ["b", "a"]], kind)])
    assert len(pl.Series(Streamed(column))) == 0, "polars keeps the rows: the guard can be removed"
    assert zc.convert(column, "polars").to_list() == [["a"], ["b", "a"]]
    hollow = pa.chunked_array([pa.array([[None]], kind)])
    with pytest.raises(UnsupportedConversionError, match="without values"):
        zc.convert(pa.table({"x": hollow}), "polars")


@pytest.mark.hazard("polars#exports-of-whole-frames-rechunk-the-source")
def test_hazard_whole_frames_and_to_arrow_rechunk_in_place() -> None:
    def chunked() -> pl.DataFrame:
        return pl.DataFrame([pl.concat([series([1]), series([2])], rechunk=False)])

    upstream = chunked()
    pa.table(upstream)
    assert upstream.n_chunks() == 1
    upstream = chunked()["x"]
    upstream.to_arrow()
    assert upstream.n_chunks() == 1
    frame = chunked()
    one = frame["x"]
    before = blocks(one)
    for to in ("pyarrow", "torch", "numpy", "polars.Series"):
        zc.convert(frame, to)
        zc.convert(one, to)
        zc.explain(frame, to)
    assert frame.n_chunks() == one.n_chunks() == 2
    assert blocks(one) == blocks(frame["x"]) == before


@pytest.mark.hazard("polars#exports-of-whole-frames-rechunk-the-source")
def test_hazard_dataframe_rechunks_tables() -> None:
    column = pa.chunked_array([[1], [2]])
    assert pl.DataFrame(pa.table({"x": column}))["x"].n_chunks() == 1
    frame = zc.convert(pa.table({"x": column}), "polars", copy=False)
    assert frame.n_chunks() == 2
    assert blocks(frame["x"]) == blocks(column)


@pytest.mark.hazard("polars#copies-of-datetimes-and-row-major-matrices")
def test_hazard_datetimes_and_c_ordered_matrices_are_copied() -> None:
    stamps = np.array([1, 2, 3], "M8[us]")
    assert blocks(pl.Series(stamps)) != {stamps.ctypes.data}
    aliased = pl.Series(pa.array(stamps))
    assert blocks(aliased) == {stamps.ctypes.data}
    matrix = np.arange(6.0).reshape(3, 2)
    assert blocks(pl.DataFrame(matrix)["column_0"]) != {matrix.ctypes.data}
    plan = zc.explain(matrix, "polars")
    assert plan.copied_bytes == matrix.nbytes
    assert "requires contiguous memory" in str(leaf(plan, "column_0").reasons[0])
    turned = np.asfortranarray(matrix)
    frame = zc.convert(turned, "polars", copy=False)
    assert [blocks(c) for c in frame] == [{turned.ctypes.data}, {turned[:, 1].ctypes.data}]
    assert np.array_equal(frame.to_numpy(), matrix)
    # A matrix in C order is one Array column without a copy.
    assert blocks(zc.convert({"x": matrix}, "polars", copy=False)["x"]) == {matrix.ctypes.data}


@pytest.mark.hazard("polars#copies-of-datetimes-and-row-major-matrices")
def test_datetimes_are_aliased() -> None:
    stamps = np.array([1, 2, 3], "M8[us]")
    one = zc.convert(pa.array(stamps), "polars", copy=False)
    assert one.dtype == pl.Datetime("us")
    assert blocks(one) == {stamps.ctypes.data}


@pytest.mark.hazard("polars#small-decimals")
def test_hazard_small_decimals_in_a_struct_are_wrong_in_polars(run_python) -> None:
    completed = run_python("""
        import polars as pl, pyarrow as pa
        from decimal import Decimal
        import zerocopy as zc
        given = [{"a": Decimal("1.25")}] * 3
        table = pa.table({"x": pa.array(given, pa.struct([("a", pa.decimal64(10, 2))]))})
        assert zc.convert(table, "polars")["x"].to_list() == given
        print("right" if pl.from_arrow(table)["x"].to_list() == given else "wrong")
    """)
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.split() == ["wrong"], "polars reads them correctly: the cast can be removed"


SMALL = """
import os
os.environ["RUST_BACKTRACE"] = "0"  # each panic takes 0.2 s with one
from decimal import Decimal as D
import polars as pl, pyarrow as pa
import zerocopy as zc

x = [D("1.25"), None, D("-3.50"), D("4.00")]
def shapes(kind):
    values = pa.array(x, kind)
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3, 4], pa.int32()), values)
    struct = pa.StructArray.from_arrays([values], ["a"])
    return [
        lists, struct, pa.FixedSizeListArray.from_arrays(values, 1),
        pa.StructArray.from_arrays([lists], ["b"]),
        pa.LargeListArray.from_arrays(pa.array([0, 1, 2, 3, 4], pa.int64()), struct),
    ]
wide = [pl.from_arrow(a) for a in shapes(pa.decimal128(7, 2))]
for kind in (pa.decimal32(7, 2), pa.decimal64(7, 2)):
    for array, good in zip(shapes(kind), wide):
        assert zc.convert(good, "pyarrow").to_pylist() == good.to_list()
        bad = pl.from_arrow(array)
        for series in (bad.slice(0, 0), pl.concat([good, bad], rechunk=False)):
            frame = pl.DataFrame({"i": pl.Series(range(len(series)), dtype=pl.Int64), "x": series})
            for obj in (series, frame):
                for to in TARGETS:
                    plan = zc.explain(obj, to)
                    assert not plan.possible, (to, plan)
                    for _ in range(2):
                        try:
                            zc.convert(obj, to)
                            raise AssertionError((to, obj))
                        except zc.ZeroCopyError:
                            pass
                try:
                    zc.share(obj)
                    raise AssertionError(obj)
                except zc.ZeroCopyError:
                    pass
            assert zc.convert(frame, "pyarrow", columns=["i"]).num_columns == 1
            assert zc.convert(frame, "polars") is frame
"""


@pytest.mark.hazard("polars#small-decimals")
@pytest.mark.parametrize("targets", [["pyarrow", "numpy"], ["pandas", "duckdb", "nanoarrow"]], ids=str)
def test_small_decimals_that_polars_read_itself_are_refused(targets, run_warm) -> None:
    done = run_warm(SMALL.replace("TARGETS", repr(targets)))
    assert done.returncode == 0, done.stderr[-2000:]


NUL = """
import numpy as np, polars as pl
import zerocopy as zc

struct = pl.Series("s", [{"x\\0y": 1}, {"x\\0y": 2}])
lists = pl.Series("l", [[{"x\\0y": 1}], [{"x\\0y": 2}]])
named = pl.Series("l\\0", [[1.0], [2.0]])
frames = [
    pl.DataFrame({"a": [1.0, 2.0], "s": struct}),
    pl.DataFrame({"l": lists}),
    pl.DataFrame({"a\\0b": [1.0, 2.0], "c": [1.0, 2.0]}),
    pl.DataFrame({"a\\0b": np.arange(100_000.0), "c": np.arange(100_000.0)}),
]
for x in [struct, lists, named, *frames]:
    for options in ({}, {"layout": "matrix"}) if x in frames else ({},):
        try:
            zc.convert(x, TO, **options)
            expected = True
        except zc.ZeroCopyError:
            expected = False
        assert zc.explain(x, TO, **options).possible is expected
"""


@pytest.mark.hazard("polars#nul-in-names")
@pytest.mark.parametrize("to", ["numpy", "pyarrow"])
def test_names_with_a_nul_do_not_end_the_process(to, run_warm) -> None:
    pytest.importorskip(to)
    code = NUL.replace("TO", repr(to)).replace("x in frames", "isinstance(x, pl.DataFrame)")
    done = run_warm(code)
    assert done.returncode == 0, done.stderr[-2000:]
