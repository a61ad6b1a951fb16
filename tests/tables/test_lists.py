"""``lists=``: columns of lists of numbers as tensors, against the rows that their framework reads."""

from __future__ import annotations

import gc
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.option_cases import outcome
from helpers.table_cases import TENSORS, pa
from helpers.tiers import sampled
from hypothesis import given, settings, strategies as st

import zerocopy as zc
from zerocopy._engine import routes
from zerocopy._native import core

pl = pytest.importorskip("polars")
duckdb = pytest.importorskip("duckdb")

ROWS = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]
VIEWS = pa.list_view(pa.float32())


def arrow(kind: Any = None, rows: Any = ROWS) -> Any:
    return pa.table({"e": pa.array(rows, kind or pa.list_(pa.float32()))})


#: Columns with the rows `ROWS`, and whether their elements lie in one piece of memory in this order.
SOURCES: dict[str, tuple[Any, bool]] = {
    "list": (arrow, True),
    "large list": (lambda: arrow(pa.large_list(pa.float32())), True),
    "list view": (lambda: arrow(VIEWS), True),
    "fixed-size list": (lambda: arrow(pa.list_(pa.float32(), 3)), True),
    "sliced": (lambda: arrow(rows=[[0.0], *ROWS, [1.0, 2.0]]).slice(1, 3), True),
    "chunked": (lambda: pa.concat_tables([arrow(rows=ROWS[:1]), arrow(rows=ROWS[1:])]), False),
    "empty chunks": (lambda: pa.concat_tables([arrow(rows=[]), arrow(), arrow(rows=[])]), True),
    "views in another order": (
        lambda: pa.table(
            {
                "e": pa.ListViewArray.from_arrays(
                    [6, 3, 0], [3, 3, 3], pa.array([7, 8, 9, 4, 5, 6, 1, 2, 3], pa.float32())
                )
            }
        ),
        False,
    ),
    "polars List": (lambda: pl.DataFrame({"e": pl.Series(ROWS, dtype=pl.List(pl.Float32))}), True),
    "polars Array": (lambda: pl.DataFrame({"e": pl.Series(ROWS, dtype=pl.Array(pl.Float32, 3))}), True),
    "duckdb": (lambda: duckdb.sql(f"SELECT unnest({ROWS}::FLOAT[][]) AS e"), False),
}


@pytest.mark.parametrize("to", TENSORS)
@pytest.mark.parametrize("source", SOURCES)
def test_lists_of_one_length_are_a_tensor(source: str, to: str) -> None:
    make, is_one_piece = SOURCES[source]
    table = make()
    made = zc.convert(table, to)["e"]
    assert zc.convert(made, "numpy").tolist() == ROWS
    matrix = zc.convert(make(), to, layout="matrix")
    assert zc.convert(matrix, "numpy").tolist() == ROWS
    if is_one_piece and to == "torch":
        assert zc.shares_memory(table, made)
        plan = zc.explain(table, to)
        assert (plan.zero_copy and "one length, 3" in str(plan)) or source in (
            "fixed-size list",
            "polars Array",
        )
        assert zc.convert(table, to, copy=False)["e"].data_ptr() == made.data_ptr()


def test_an_alias_keeps_the_elements_alive() -> None:
    table = arrow()
    made = zc.convert(table, "torch")["e"]
    del table
    gc.collect()
    assert made.tolist() == ROWS


def test_several_chunks_and_other_orders_need_a_copy() -> None:
    for source in ("chunked", "views in another order"):
        with pytest.raises(zc.CopyRequiredError):
            zc.convert(SOURCES[source][0](), "numpy", copy=False)


def test_a_column_becomes_one_tensor() -> None:
    column = arrow()["e"].chunk(0)
    assert zc.convert(column, "numpy").tolist() == ROWS
    assert zc.convert(column, "torch", lists="dense").tolist() == ROWS
    assert zc.convert(column, "torch").is_nested
    assert zc.convert(column, "torch", lists="ragged").is_nested
    assert zc.convert(pl.Series(ROWS), "torch").tolist() == ROWS


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("to", TENSORS)
def test_columns_convert_as_without_a_route(to: str) -> None:
    """A route aliases the elements of a column of one chunk; the plan decides about all others."""
    rows = [ROWS, [*ROWS, None], [[1.0], [2.0, None]], [[1.0], [2.0, 3.0]], [], [[], []]]
    for kind in (pa.list_(pa.float32()), pa.large_list(pa.float32()), pa.list_(pa.float32(), 3)):
        arrays = [pa.array(r, kind) for r in (rows[:2] if "[3]" in str(kind) else rows)]
        good = arrays[0]
        chunked = [pa.chunked_array(c, kind) for c in ([good], [good, good], [arrays[1]], [])]
        series = [pl.Series(array) for array in (*arrays, good.slice(1, 1), pa.array(["a"]), pa.array([1]))]
        groups = [[*arrays, good.slice(1, 1)], [*chunked, pa.chunked_array([[["a"]]])], series]
        calls = [{}, {"lists": "dense"}, {"lists": "dense", "copy": False}, {"lists": "pad"}]
        for group, options in sampled(2, groups, calls, first=TENSORS.index(to)):
            compare_columns(group, to, options)


def compare_columns(group: list[Any], to: str, options: dict[str, Any]) -> None:
    """Compare the conversions of columns before and after that of the first, which makes the route."""
    cold = []
    for x in group:
        routes.clear()
        cold.append(outcome(x, to, options))
    assert not issubclass(cold[0][0], Exception) or options.get("copy") is False, cold[0]
    outcome(group[0], to, options)
    for x, before in zip(group, cold, strict=True):
        assert outcome(x, to, options) == before, (x, to, options)
        assert zc.explain(x, to, **options).possible == (not issubclass(before[0], Exception))


@pytest.mark.skipif(core is None, reason="only the compiled core has these routes")
def test_columns_of_lists_have_routes() -> None:
    column = arrow()["e"].chunk(0)
    for x in (column, pa.chunked_array([column]), pl.Series(column), column.cast(pa.list_(pa.float32(), 3))):
        zc.convert(x, "torch", lists="dense")
        kept = routes.routes_of("torch", {"lists": "dense"}).get(type(x))
        assert kept(x).tolist() == ROWS
        with zc.monitor.record() as recording:
            made = [zc.convert(x, "torch", lists="dense") for _ in range(3)]
            totals = recording.totals
        assert (totals.aliased_bytes, totals.copied_bytes) == (3 * 9 * 4, 0)
        assert zc.shares_memory(x, made[-1])
    numbers = pl.Series([1.0, 2.0])
    with zc.monitor.record() as recording:
        for x in (numbers, pl.Series(ROWS), numbers):
            zc.convert(x, "torch")
        assert recording.totals.aliased_bytes == (2 + 9 + 2) * 8


@pytest.mark.parametrize("rows", [[[1], [2, 3]], [[], [1]], [[1, 2], None, [3]]])
def test_other_lengths_are_refused_and_the_fixes_work(rows: Any) -> None:
    x = pa.table({"e": rows})
    with pytest.raises(zc.UnsupportedConversionError, match="different lengths: row") as caught:
        zc.convert(x, "numpy", nulls=0)
    assert caught.value.code == "list-lengths"
    for call in caught.value.calls:
        eval(call, {"zc": zc, "x": x})


@settings(deadline=None)
@given(
    rows=st.lists(st.none() | st.lists(st.none() | st.integers(-9, 9), max_size=5), max_size=8),
    limit=st.none() | st.integers(0, 6),
    start=st.integers(0, 3),
)
def test_padding(rows: Any, limit: int | None, start: int) -> None:
    table = pa.table({"e": pa.array(rows, pa.list_(pa.int64()))}).slice(start)
    rows = rows[start:]
    values, mask = zc.convert(table, "numpy", lists="pad", pad_value=77, max_length=limit, nulls="mask")["e"]
    cut = [[] if row is None else row[:limit] for row in rows]
    longest = max(map(len, cut), default=0)
    assert values.shape == mask.shape == (len(rows), longest)
    for row, value, hidden in zip(cut, values.tolist(), mask.tolist(), strict=True):
        padded = [*row, *[None] * (longest - len(row))]
        assert hidden == [item is None for item in padded]
        assert [v for v, h in zip(value, hidden, strict=True) if not h] == [
            x for x in padded if x is not None
        ]
    filled = zc.convert(table, "numpy", lists="pad", pad_value=77, max_length=limit, nulls=88)["e"]
    for row, original, value in zip(cut, rows, filled.tolist(), strict=True):
        items = [88 if item is None else item for item in row]
        assert value == ([88] * longest if original is None else [*items, *[77] * (longest - len(row))])


@settings(deadline=None)
@given(data=st.data(), size=st.integers(0, 3))
def test_nulls_in_lists_of_one_length(data: Any, size: int) -> None:
    item = st.none() | st.floats(-9, 9, width=32)
    row = st.none() | st.lists(item, min_size=size, max_size=size)
    rows = data.draw(st.lists(row, min_size=1, max_size=6))
    kind = data.draw(st.sampled_from([pa.list_(pa.float32()), pa.list_(pa.float32(), size), VIEWS]))
    table = pa.table({"e": pa.array(rows, kind)})
    filled = zc.convert(table, "numpy", nulls=-1)["e"]
    # The length of lists that are all null is known only from the type.
    width = filled.shape[1]
    assert width == size or not any(rows)
    expected = [[-1] * width if row is None else [-1 if x is None else x for x in row] for row in rows]
    assert filled.tolist() == expected
    values, mask = zc.convert(table, "numpy", nulls="mask")["e"]
    assert values.shape == filled.shape
    hidden = [[True] * width if row is None else [x is None for x in row] for row in rows]
    if mask.ndim == 1:
        assert mask.tolist() == [row is None for row in rows]
        assert not any(x is None for row in rows if row is not None for x in row)
    else:
        assert mask.tolist() == hidden


def follow(call: str, names: dict[str, Any]) -> Any:
    """Return the value of a call; of a refused one, that of the first fix, and so on."""
    for _ in range(4):
        *statements, code = call.split("; ")
        exec("; ".join(statements), names)
        try:
            return eval(code, names)
        except zc.ZeroCopyError as error:
            call = error.calls[0]
    raise AssertionError(call)


@pytest.mark.parametrize("to", TENSORS)
def test_the_errors_lead_from_a_file_of_pandas_to_its_matrix(to: str, tmp_path: Path) -> None:
    pd, pq = pytest.importorskip("pandas"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "items.parquet"
    pd.DataFrame({"id": range(3), "emb": list(np.array(ROWS, "f4"))}).to_parquet(path)
    readers = [pd.read_parquet, pl.read_parquet, pl.scan_parquet, pq.read_table, pq.ParquetFile, str]
    for x in (path, *(read(path) for read in readers), duckdb.read_parquet(str(path))):
        made = follow(f'zc.convert(x, "{to}", layout="matrix")', {"zc": zc, "x": x})
        assert zc.convert(made, "numpy").tolist() == ROWS, x


def test_lists_of_lists() -> None:
    rows = [[[1, 2], [3, 4], [5, 6]], [[7, 8], [9, 10], [11, 12]]]
    for kind in (None, pa.list_(pa.list_(pa.int64(), 2)), pa.list_(pa.large_list(pa.int64()), 3)):
        table = pa.table({"e": pa.array(rows, kind)})
        made = zc.convert(table, "torch", copy=False)["e"]
        assert made.tolist() == rows
    ragged = pa.table({"e": [[[1, 2]], [[3], [4]]]})
    with pytest.raises(zc.UnsupportedConversionError, match="inner list 1 has 1"):
        zc.convert(ragged, "numpy", lists="pad")
    padded = zc.convert(pa.table({"e": [[[1, 2]], [[3, 4], [5, 6]]]}), "numpy", lists="pad")["e"]
    assert padded.tolist() == [[[1, 2], [0, 0]], [[3, 4], [5, 6]]]


def test_dtype_casts_lists() -> None:
    made = zc.convert(arrow(), "numpy", dtype="float64")["e"]
    assert (made.dtype, made.tolist()) == (np.dtype("f8"), ROWS)
    with pytest.raises(zc.LossyConversionError):
        zc.convert(arrow(rows=[[0.5]]), "numpy", dtype="int64")


def test_booleans_and_empty_tables() -> None:
    made = zc.convert(pa.table({"b": [[True, False], [False, True]]}), "numpy")["b"]
    assert made.tolist() == [[True, False], [False, True]]
    assert zc.convert(arrow(rows=[]), "numpy")["e"].shape == (0, 0)
    assert zc.convert(arrow(rows=[[], []]), "numpy")["e"].shape == (2, 0)


def test_lists_of_text_are_refused_as_before() -> None:
    with pytest.raises(zc.UnsupportedConversionError, match="list<string>, which tensors do not have"):
        zc.convert(pa.table({"e": [["a"], ["b"]]}), "numpy")


def test_encode_keeps_elements_and_offsets() -> None:
    encoded = zc.convert(arrow(), "numpy", encode=True)["e"]
    assert encoded.to_pylist() == ROWS
    assert zc.convert(arrow(), "numpy", encode=True, lists="dense")["e"].tolist() == ROWS
    assert zc.convert(arrow(), "numpy", lists="ragged")["e"].offsets.tolist() == [0, 3, 6, 9]


@pytest.mark.parametrize("to", ["pyarrow", "polars", "duckdb", "pandas"])
def test_a_matrix_becomes_lists_with_offsets(to: str) -> None:
    matrix = np.array(ROWS, "f4")
    table = zc.convert({"e": matrix}, to, lists="variable")
    back = zc.convert(table, "pyarrow")
    assert pa.types.is_list(back.schema.field("e").type) or pa.types.is_large_list(
        back.schema.field("e").type
    )
    assert back["e"].to_pylist() == ROWS
    if to == "pyarrow":
        assert zc.shares_memory(matrix, table)
    cube = zc.convert({"e": np.arange(12).reshape(2, 3, 2)}, "pyarrow", lists="variable")
    assert cube["e"].to_pylist() == np.arange(12).reshape(2, 3, 2).tolist()


@pytest.mark.parametrize("to", ["polars", "pandas", "pyarrow.Table"])
def test_explain_of_a_wide_matrix_names_the_column_of_vectors(to: str) -> None:
    x = np.zeros((3, 65), "f4")
    plan = zc.explain(x, to)
    assert "65 columns" not in str(zc.explain(x[:, :64], to).warnings)
    (call,) = re.findall(r"65 columns; (.*\)) makes", " ".join(plan.warnings))
    made = eval(call, {"zc": zc, "x": x})
    assert zc.convert(made, "numpy", layout="matrix").shape == x.shape
    if to == "polars":
        assert "['column_0'] and 64 more: ['column_0'] float32 -> polars: copies 12 bytes" in str(plan)
        assert len(str(plan).splitlines()) < 10


@pytest.mark.parametrize(
    "options",
    [
        {"lists": "dens"},
        {"pad_value": 1},
        {"max_length": 2},
        {"lists": "pad", "max_length": -1},
        {"lists": "pad", "pad_value": "x"},
    ],
)
def test_invalid_options(options: Any) -> None:
    with pytest.raises(ValueError, match=r"lists|pad_value|max_length"):
        zc.convert(arrow(), "numpy", **options)


def test_a_value_that_the_elements_cannot_hold_is_refused() -> None:
    with pytest.raises(zc.LossyConversionError, match=r"cannot hold pad_value=1\.5"):
        zc.convert(pa.table({"e": [[1], [2, 3]]}), "numpy", lists="pad", pad_value=1.5)


def test_offsets_that_go_down_are_refused() -> None:
    kind, elements = pa.list_(pa.int64()), [pa.array(range(6))]
    # The differences of the last two overflow: all are 2**30, or 2**30 and 2**31 - 1.
    wrapped = [0, 2**30, -(2**31), -(2**30), 0], [0, 2**30, -(2**30) - 1, 3]
    for offsets in ([0, 4, 2, 6], [0, 2, 0, 2], *wrapped):
        buffers = [None, pa.py_buffer(np.array(offsets, "i4"))]
        column = pa.ListArray.from_buffers(kind, len(offsets) - 1, buffers, children=elements)
        for lists in ("dense", "pad"):
            for x in (column, pa.table({"e": column})):
                for to in ("numpy", "torch"):
                    with pytest.raises(zc.UnsupportedConversionError, match="offsets go down"):
                        zc.convert(x, to, lists=lists)


def test_views_outside_the_elements_are_refused() -> None:
    kind, elements = pa.list_view(pa.int64()), [pa.array(range(6))]
    for offsets, sizes in (([0, 5], [2, 2]), ([-1, 0], [2, 2]), ([0, 2**31 - 1], [2, 2**31 - 1])):
        buffers = [None, *(pa.py_buffer(np.array(part, "i4")) for part in (offsets, sizes))]
        table = pa.table({"e": pa.ListViewArray.from_buffers(kind, 2, buffers, children=elements)})
        for lists in ("dense", "pad"):
            with pytest.raises(zc.UnsupportedConversionError, match="it has 6 elements"):
                zc.convert(table, "numpy", lists=lists)


def test_a_refused_table_counts_no_bytes() -> None:
    """A route delivers columns one after the other; the second of this table is refused."""
    numbers = np.arange(3.0)
    good, bad = (pa.table({"id": numbers, "e": [*ROWS[:2], last]}) for last in (ROWS[2], [1.0]))
    with zc.monitor.record() as recording:
        for _ in range(2):
            zc.convert(good, "numpy")
        counted = recording.totals.aliased_bytes
        for _ in range(2):
            with pytest.raises(zc.UnsupportedConversionError):
                zc.convert(bad, "numpy")
        totals = recording.totals
    assert counted == 2 * (3 + 9) * 8  # without the offsets
    assert (totals.aliased_bytes, totals.refused_calls) == (counted, 2)


def test_explain_of_lists_with_offsets_reads_no_values() -> None:
    """Rows with gaps need a copy in Arrow, which a plan must not make."""
    gaps = np.zeros((4, 3, 4))[:, :, ::2]
    reads = []
    view = zc.view(gaps)
    source = zc.Source("mine.Array", view, host=lambda: reads.append(1) or gaps, obj=view)
    from zerocopy.tables.tensor_column import TensorColumn
    from zerocopy.tables.to_tables import _variable

    column = _variable(TensorColumn(source))
    assert (str(column.field), reads) == ("list<list<double>>", [])
    assert column.arrow().to_pylist() == gaps.tolist()
    assert zc.explain({"e": gaps}, "polars", lists="variable").copied_bytes


def nested(levels: str) -> Any:
    """Return a type of numbers in lists: "v" for variable and "f" for fixed length, the outermost first."""
    kind = pa.int64()
    for level in reversed(levels):
        kind = pa.list_(kind, 2) if level == "f" else pa.list_(kind)
    return kind


EMPTY = {
    "no rows": ("vv", [], (0, 0, 0)),
    "no rows, three levels": ("vvv", [], (0, 0, 0, 0)),
    "no rows, pairs": ("vf", [], (0, 0, 2)),
    "empty rows": ("vv", [[], []], (2, 0, 0)),
    "empty inner lists": ("vv", [[[], []], [[]]], (2, 2, 0)),
    "lists of lists of empty lists": ("vvv", [[[[]]], [[[]], [[]]]], (2, 2, 1, 0)),
    "pairs of empty lists": ("vfv", [[[[], []]], []], (2, 1, 2, 0)),
}


@pytest.mark.parametrize("to", TENSORS)
@pytest.mark.parametrize("case", EMPTY)
def test_padding_of_lists_without_elements(case: str, to: str) -> None:
    levels, rows, shape = EMPTY[case]
    table = pa.table({"e": pa.array(rows, nested(levels))})
    assert zc.explain(table, to, lists="pad").possible
    assert zc.convert(zc.convert(table, to, lists="pad")["e"], "numpy").shape == shape
    assert zc.convert(table, "numpy", lists="pad", nulls="mask")["e"].mask.shape == shape
    assert zc.convert(table, "numpy", lists="pad", max_length=0)["e"].shape == (shape[0], 0, *shape[2:])


def test_null_rows_of_empty_lists_are_dense() -> None:
    table = pa.table({"e": pa.array([[[], []], None], nested("vv"))})
    assert zc.convert(table, "numpy", nulls=0)["e"].shape == (2, 2, 0)


REFUSED = {
    "lists of lists": pa.array([[[1], [2, 3]], [[4]]], nested("vv")),
    "pairs of lists": pa.array([[[1], [2, 3]]], nested("fv")),
    "lists of pairs of lists": pa.array([[[[1], [2, 3]]]], nested("vfv")),
    "text": pa.array([["a"]]),
    "structs": pa.array([[{"a": 1}]]),
    "times": pa.array([[1]], pa.list_(pa.time32("s"))),
    "lists of text": pa.array([[["a"]]]),
}


@pytest.mark.parametrize("encode", [None, True])
@pytest.mark.parametrize(
    "lists",
    [{"lists": m} for m in ("dense", "ragged", "pad")] + [{"lists": "pad", "pad_value": 1, "max_length": 2}],
)
@pytest.mark.parametrize("case", REFUSED)
def test_fixes_of_refused_lists_do_not_repeat_the_call(case: str, lists: Any, encode: Any) -> None:
    x = pa.table({"e": REFUSED[case], "n": pa.array([1] * len(REFUSED[case]))})
    options = {**lists, "encode": encode}
    if zc.explain(x, "numpy", **options).possible:
        zc.convert(x, "numpy", **options)
        return
    with pytest.raises(zc.ZeroCopyError) as caught:
        zc.convert(x, "numpy", **options)
    assert caught.value.calls
    for call in caught.value.calls:
        eval(call, {"zc": zc, "x": x})


def test_an_extension_of_lists_is_not_refused_with_its_own_call() -> None:
    class Extension(pa.ExtensionType):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(pa.large_list(pa.string()), "test.lists")

        def __arrow_ext_serialize__(self) -> bytes:
            return b""

        @classmethod
        def __arrow_ext_deserialize__(cls, storage: Any, content: bytes) -> Any:
            return cls()

    storage = pa.array([["a"], []], pa.large_list(pa.string()))
    x = pa.table({"e": pa.ExtensionArray.from_storage(Extension(), storage)})
    for encode in (None, True):
        with pytest.raises(zc.UnsupportedConversionError) as caught:
            zc.convert(x, "numpy", lists="pad", encode=encode)
        assert caught.value.calls == ('zc.convert(x, "numpy", encode=True)',)
        eval(caught.value.calls[0], {"zc": zc, "x": x})
