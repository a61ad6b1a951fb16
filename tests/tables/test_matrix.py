"""layout="matrix": a table as one tensor, aliased or copied."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pyarrow as pa
import pytest
from helpers.arrays import aligned
from helpers.cuda_producers import SpeaksDLPack
from helpers.frameworks import HOST
from helpers.layout_tables import POINTS, STRIDED, TABLES, TENSORS
from hypothesis import given, settings, strategies as st

import zerocopy as zc
from zerocopy import registry
from zerocopy.device import CUDA
from zerocopy.layout.aos_to_soa import aos_to_soa
from zerocopy.layout.rows import BLOCK_BYTES

NAMES = ["a", "b", "c"]


def address(x: object) -> int:
    return zc.view(x).ptr


def apart(rows: int = 5, dtype: str = "f8") -> dict[str, np.ndarray]:
    """Columns in separate memory, at different distances."""
    pads = [np.empty(3 * i + 1) for i in range(3)]
    columns = {n: (np.arange(rows) * 10 + i).astype(dtype) for i, n in enumerate(NAMES)}
    del pads
    whole = np.empty(4 * rows + 200, dtype)  # c before a: never at equal, positive distances
    for place, n in zip((rows + 80, 2 * rows + 180, 0), NAMES, strict=True):
        whole[place : place + rows] = columns[n]
        columns[n] = whole[place : place + rows]
    return columns


def one_array(rows: int = 5, gap: int = 0) -> tuple[np.ndarray, pa.Table]:
    """A table whose columns are the columns of one array in F order, and of one Arrow buffer."""
    whole = aligned(np.zeros((3, rows + gap)))
    matrix = whole[:, :rows].T
    matrix[...] = np.arange(rows * 3).reshape(rows, 3)
    buffer, kind = pa.py_buffer(whole), pa.float64()
    columns = [pa.Array.from_buffers(kind, rows, [None, buffer], offset=i * (rows + gap)) for i in range(3)]
    return matrix, pa.table(columns, names=NAMES)


def takes_columns(target: str) -> bool:
    """Whether a framework takes memory that is column-major."""
    return not registry.by_name(target).copy_reasons(zc.view(aligned(np.ones((4, 16))).T))


@pytest.mark.parametrize("target", TENSORS)
@pytest.mark.parametrize("order", [None, "F", "C"])
def test_columns_of_one_array_are_a_matrix(target: str, order: str | None) -> None:
    matrix, table = one_array(8)
    options = {"layout": "matrix", "order": order}
    plan, result = zc.explain(table, target, **options), zc.convert(table, target, **options)
    assert np.array_equal(zc.convert(result, "numpy"), matrix)
    assert plan.zero_copy == (address(result) == matrix.ctypes.data)
    assert plan.copied_bytes == (0 if plan.zero_copy else matrix.nbytes)
    if order == "C" or not takes_columns(target):
        assert not plan.zero_copy
        assert zc.view(result).c_contiguous
        with pytest.raises(zc.CopyRequiredError):
            zc.convert(table, target, layout="matrix", order=order, copy=False)
    else:
        assert plan.zero_copy
        assert zc.view(result).strides == (8, 64)
        assert address(zc.convert(table, target, **options, copy=False)) == matrix.ctypes.data
        fresh = zc.convert(table, target, layout="matrix", order=order, copy=True)
        assert not zc.shares_memory(fresh, matrix)
        if order == "F":
            assert zc.view(fresh).strides == (8, 64)


@pytest.mark.parametrize("rows", [1, 5, 8, 13])
def test_gaps_smaller_than_a_page_in_one_buffer_are_aliased(rows: int) -> None:
    for gap in (0, 1, 7, 8, 511):
        matrix, table = one_array(rows, gap)
        result = zc.convert(table, "torch", layout="matrix", copy=False)
        assert result.data_ptr() == matrix.ctypes.data
        assert np.array_equal(result.numpy(), matrix)
    for gap in (512, 600):
        _, table = one_array(rows, gap)
        with pytest.raises(zc.CopyRequiredError, match="separate memory"):
            zc.convert(table, "torch", layout="matrix", copy=False)


def test_padded_buffers_of_one_allocation_are_aliased() -> None:
    """The memory of Arrow IPC: one body with padded buffers."""
    table = pa.table({n: np.arange(5, dtype="i4") + i for i, n in enumerate(NAMES)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as out:
        out.write_table(table)
    read = pa.ipc.open_stream(sink.getvalue()).read_all()
    result = zc.convert(read, "numpy", layout="matrix", copy=False)
    assert result.strides == (4, 24)
    assert result.tolist() == [[i, i + 1, i + 2] for i in range(5)]
    assert address(result) == read["a"].chunk(0).buffers()[1].address
    assert not result.flags.writeable


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
        for order in (None, "C"):
            options = {"layout": "matrix", "order": order, "columns": columns}
            result = zc.convert(frame, "torch", copy=False, **options)
            assert result.data_ptr() == expected.ctypes.data
            assert np.array_equal(result.numpy(), expected)
    for columns in (list("edc"), list("abe"), ["a", "a"]):
        plan = zc.explain(frame, "torch", layout="matrix", columns=columns)
        assert not plan.zero_copy
        result = zc.convert(frame, "torch", layout="matrix", columns=columns)
        assert np.array_equal(result.numpy(), frame[columns].to_numpy())
    result = zc.convert(frame, "torch", layout="matrix", order="F")
    assert result.stride() == (1, 8)
    assert np.array_equal(result.numpy(), whole)


def test_polars_columns_in_one_array_are_a_matrix() -> None:
    pl = pytest.importorskip("polars")
    whole = np.asfortranarray(np.arange(30.0).reshape(10, 3))
    frame = pl.DataFrame({n: pl.Series(n, whole[:, i]) for i, n in enumerate(NAMES)})
    plan = zc.explain(frame, "torch", layout="matrix")
    result = zc.convert(frame, "torch", layout="matrix")
    assert np.array_equal(result.numpy(), whole)
    assert plan.zero_copy == (result.data_ptr() == frame["a"].to_numpy().ctypes.data)


def test_one_column_of_lists_is_column_major_on_each_call() -> None:
    table = pa.table({"x": pa.array([[1, 2], [3, 4]], pa.list_(pa.int32()))})
    for options in ({}, {"copy": True}, {"nulls": 0}):
        plan = zc.explain(table, "numpy", layout="matrix", order="F", **options)
        for _ in range(3):
            result = zc.convert(table, "numpy", layout="matrix", order="F", **options)
            assert result.tolist() == [[1, 2], [3, 4]]
            assert result.flags.f_contiguous
            assert zc.shares_memory(result, table) == plan.zero_copy
    for _ in range(3):
        with pytest.raises(zc.CopyRequiredError, match="row by row"):
            zc.convert(table, "numpy", layout="matrix", order="F", copy=False)


def test_one_column_is_a_matrix() -> None:
    for order in (None, "C", "F"):
        table = pa.table({"x": np.arange(4.0)})
        for target in ("torch", "jax", "numpy"):
            result = zc.convert(table, target, layout="matrix", order=order)
            assert result.shape == (4, 1)
            assert np.asarray(result)[:, 0].tolist() == [0, 1, 2, 3]
        plan = zc.explain(table, "numpy", layout="matrix", order=order)
        assert plan.zero_copy


@pytest.mark.parametrize("as_arrow", [False, True])
def test_alias_keeps_the_memory_alive(as_arrow: bool) -> None:
    memory = np.arange(12.0)
    address_, watched = memory.ctypes.data, weakref.ref(memory)
    if as_arrow:
        parts = [pa.py_buffer(memory).slice(32 * i, 32) for i in range(3)]
        columns = [pa.Array.from_buffers(pa.float64(), 4, [None, part]) for part in parts]
        table = pa.table(columns, names=NAMES)
        del parts, columns
    else:
        table = {n: memory[4 * i : 4 * i + 4] for i, n in enumerate(NAMES)}
    result = zc.convert(table, "numpy", layout="matrix", copy=False)
    del table, memory
    gc.collect()
    assert watched() is not None
    assert result.ctypes.data == address_
    assert result[:, 2].tolist() == [8, 9, 10, 11]
    del result
    gc.collect()
    assert watched() is None


@pytest.mark.parametrize("source", TABLES)
@pytest.mark.parametrize("target", TENSORS)
def test_separate_columns_are_copied_in_the_requested_order(source: str, target: str) -> None:
    columns = apart()
    table = zc.convert({n: pa.array(c) for n, c in columns.items()}, source)
    expected = np.stack(list(columns.values()), 1)
    for order in (None, "C", "F"):
        plan = zc.explain(table, target, layout="matrix", order=order)
        assert not plan.zero_copy
        assert plan.copied_bytes == expected.nbytes
        assert "separate memory" in plan.reasons[0].why
        result = zc.convert(table, target, layout="matrix", order=order)
        assert np.array_equal(np.asarray(zc.convert(result, "numpy")), expected)
        by_column = order == "F" and takes_columns(target)
        assert zc.view(result).strides == ((8, 40) if by_column else (24, 8))
        assert address(result) % 64 == 0
    with pytest.raises(zc.CopyRequiredError, match="separate memory"):
        zc.convert(table, target, layout="matrix", copy=False)


@pytest.mark.parametrize("rows", [0, 1, 7, BLOCK_BYTES // 24 - 1, BLOCK_BYTES // 24, BLOCK_BYTES // 6])
def test_blocks_cover_all_rows(rows: int) -> None:
    columns = apart(rows)
    for order in ("C", "F"):
        result = zc.convert(pa.table(columns), "numpy", layout="matrix", order=order)
        assert result.shape == (rows, 3)
        assert not rows or (result.flags.writeable and result.ctypes.data % 64 == 0)
        for i, n in enumerate(NAMES):
            assert np.array_equal(result[:, i], columns[n])


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
    result = zc.convert(table, "numpy", layout="matrix", order="F" if by_column else "C")
    assert result.dtype == "i4"
    assert np.array_equal(result, np.stack([c.to_numpy() for c in columns.values()], 1))


def test_chunks_are_a_copy_reason() -> None:
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
    result = zc.convert(floats, "numpy", layout="matrix", nulls="nan")
    assert np.array_equal(result, [[1, np.nan], [np.nan, 2]], equal_nan=True)
    assert zc.convert(floats, "numpy", layout="matrix", nulls={"x": 0, "y": 5}).tolist() == [[1, 5], [0, 2]]
    with pytest.raises(zc.UnsupportedConversionError, match="would have a mask") as caught:
        zc.convert(floats, "numpy", layout="matrix", nulls="mask")
    assert "nan" in caught.value.remedy


def test_dates_of_one_unit_are_a_datetime64_matrix() -> None:
    days = np.array(["2020-01-01", "2021-01-01"], "M8[us]")
    table = pa.table({"x": days, "y": days + np.timedelta64(1, "D")})
    result = zc.convert(table, "numpy", layout="matrix")
    assert result.dtype == "M8[us]"
    assert np.array_equal(result, np.stack([days, days + np.timedelta64(1, "D")], 1))
    with pytest.raises(zc.UnsupportedConversionError, match="'x' is timestamp"):
        zc.convert(table, "torch", layout="matrix")
    with pytest.raises(zc.UnsupportedConversionError, match="not plain numbers"):
        zc.convert(table, "torch", layout="matrix", encode=True)


def test_columns_that_require_grad_are_refused() -> None:
    torch = pytest.importorskip("torch")
    columns = {"a": torch.ones(3, requires_grad=True), "b": torch.ones(3)}
    error = zc.explain(columns, "numpy", layout="matrix").error
    assert error is not None
    assert {label: reason.code for label, reason in error.columns.items()} == {"a": "requires-grad"}


def test_columns_on_several_devices_are_refused() -> None:
    x = np.arange(3.0)
    for other in (SpeaksDLPack(x), SpeaksDLPack(x, (CUDA, 1))):
        for columns in ({"a": x, "b": other}, {"a": SpeaksDLPack(x, (CUDA, 2)), "b": other}):
            error = zc.explain(columns, "numpy", layout="matrix").error
            assert error is not None
            assert error.code == "other-device"


def test_columns_of_several_types_are_refused() -> None:
    table = pa.table(
        {"i": [1], "f": [1.5], "j": [2], "s": ["x"], "v": pa.array([[1, 2]], pa.list_(pa.int64(), 2))}
    )
    with pytest.raises(zc.UnsupportedConversionError, match="'s' is string"):
        zc.convert(table, "torch", layout="matrix")
    with pytest.raises(zc.UnsupportedConversionError, match=r"'v' is .* tensors of shape \(2,\)"):
        zc.convert(table, "torch", layout="matrix", columns=["i", "v"])
    with pytest.raises(zc.UnsupportedConversionError, match=r"int64 \('i', 'j'\), float64 \('f'\)") as caught:
        zc.convert(table, "torch", layout="matrix", columns=["i", "f", "j"])
    assert 'columns=["i", "j"]' in caught.value.remedy
    assert zc.convert(table, "torch", layout="matrix", columns=["j", "i"]).tolist() == [[2, 1]]


LAYOUTS = [{"layout": "columns"}, *({"layout": "matrix", "order": order} for order in (None, "C", "F"))]


@pytest.mark.parametrize("source", HOST)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_an_array_stays_itself_and_a_series_is_a_vector(source: str, layout: dict[str, str]) -> None:
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    arrays = [zc.convert(aligned(np.ones(shape, np.float32)), source) for shape in ((4,), (3, 4), (2, 3, 4))]
    series = [
        pd.Series([1.0, 2.0]),
        pl.Series([1.0, 2.0]),
        pa.array([1.0, 2.0]),
        pa.chunked_array([[1.0], [2.0]]),
    ]
    for x in [*arrays, *series]:
        for to in ("numpy", "torch"):
            for _ in range(2):  # by the plan, and by a route
                result, plain = zc.convert(x, to, **layout), zc.convert(x, to)
                assert type(result) is type(plain)
                assert zc.view(result).shape == zc.view(plain).shape
                assert zc.shares_memory(x, result) == zc.shares_memory(x, plain)
                assert zc.explain(x, to, **layout).zero_copy == zc.explain(x, to).zero_copy
                assert zc.convert(x, to, **layout, dtype="float64").tolist() == plain.tolist()


def test_records_are_made_of_tables_alone() -> None:
    for x in (pa.array([1.0]), np.ones(3)):
        with pytest.raises(zc.UnsupportedConversionError, match="applies to tables only"):
            zc.convert(x, "numpy", layout="records")
    # A structured array is a table, with a route for plain arrays of its type too.
    records = np.zeros(3, [("a", "f4"), ("b", "f4")])
    for to in ("numpy", "torch"):
        zc.convert(np.ones(3), to, layout="matrix")
        assert zc.view(zc.convert(records, to, layout="matrix")).shape == (3, 2)


@pytest.mark.parametrize("target", TENSORS)
def test_empty_table_becomes_an_empty_matrix(target: str) -> None:
    empty = pa.table({"x": pa.array([], pa.float32()), "y": pa.array([], pa.float32())})
    result = zc.convert(empty, target, layout="matrix", copy=False)
    assert zc.view(result).shape == (0, 2)
    assert zc.view(result).dtype.name == "float32"
    plan = zc.explain(empty, target, layout="matrix")
    assert (plan.zero_copy, plan.copied_bytes) == (False, 0)
    rows_only = pa.table({"x": [1, 2, 3]}).select([])
    result = zc.convert(rows_only, target, layout="matrix")
    assert zc.view(result).shape == (3, 0)
    assert zc.view(result).dtype.name == "float64"


def test_writable_copies_arrow_memory() -> None:
    matrix, table = one_array()
    result = zc.convert(table, "torch", layout="matrix", order="F", writable=True)
    assert result.stride() == (1, 5)
    result[0, 0] = 99
    assert matrix[0, 0] == 0
    assert not zc.convert(table, "numpy", layout="matrix").flags.writeable
    assert "immutable" in zc.explain(table, "torch", layout="matrix").warnings[0]


@pytest.mark.parametrize("target", TENSORS)
@pytest.mark.parametrize("dtype", [POINTS, [("x", "f4")], [("n", "i2"), ("m", "i2")], [("a", "i1"), *POINTS]])
def test_records_of_one_type_are_a_matrix(target: str, dtype: list[tuple[str, str]]) -> None:
    rows = aligned(np.zeros(20, dtype))
    rows.view(np.uint8)[...] = np.arange(rows.nbytes, dtype=np.uint8) % 60
    if len({kind for _, kind in dtype}) > 1:
        with pytest.raises(zc.UnsupportedConversionError, match="one type"):
            zc.convert(rows, target, layout="matrix")
        return
    expected = np.stack([rows[name] for name in rows.dtype.names], axis=1)
    for options in ({}, {"copy": True}):
        plan = zc.explain(rows, target, layout="matrix", **options)
        result = zc.convert(rows, target, layout="matrix", **options)
        assert plan.zero_copy == zc.shares_memory(rows, result)
        assert zc.convert(result, "numpy").tobytes() == expected.tobytes()
    assert zc.explain(rows, "numpy", layout="matrix", copy=False).zero_copy


@pytest.mark.parametrize("target", STRIDED)
def test_columns_of_records_are_a_matrix(target: str) -> None:
    columns = aos_to_soa(np.zeros(5000, POINTS))
    result = zc.convert(columns, target, layout="matrix", copy=False)
    assert zc.shares_memory(columns["w"], result)
    columns["z"][4321] = 3
    assert result[4321, 2] == 3


def test_columns_with_data_between_them_are_copied() -> None:
    """The columns have equal distances and other data between them, which an alias would span."""
    memory = np.zeros((4, 5000), "f4")
    far = {"a": memory[0, :1000], "b": memory[1, :1000]}
    assert not zc.explain(far, "numpy", layout="matrix").zero_copy


@pytest.mark.parametrize("order", ["C", "F"])
def test_matrix_keeps_bfloat16(order: str) -> None:
    """The kernel copies bytes: NumPy would cast bfloat16 to the integers that store it."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    rows = np.zeros(3, [("a", ml_dtypes.bfloat16), ("b", ml_dtypes.bfloat16)])
    rows["a"] = np.array([1, 2, 3], ml_dtypes.bfloat16)
    result = zc.convert(rows, "numpy", layout="matrix", order=order, copy=True)
    assert result[:, 0].astype("f4").tolist() == [1, 2, 3]
    assert result.dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize("width", [1, 3, 28])
@pytest.mark.parametrize("dtype", ["u1", "f2", "f4", "f8", "c16"])
@pytest.mark.parametrize("rows", [0, 1, 5, 8192])
def test_fill_writes_columns_into_a_row_major_matrix(width: int, dtype: str, rows: int) -> None:
    from zerocopy.tables.matrix import fill

    whole = (np.arange(rows * width) % 251).reshape(rows, width).astype(dtype)
    out = np.empty((rows, width), dtype)
    fill(out, [whole[:, k].copy() for k in range(width)])
    assert out.tobytes() == whole.tobytes()
    fill(out, list(whole.T))  # strided columns
    assert out.tobytes() == whole.tobytes()


@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_nan_among_integers_is_offered_with_floats_first(kind: str) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"n": pd.array([1, None], dtype="Int64"), "x": np.array([0.5, 1.5], kind)})
    error = zc.explain(frame, "numpy", layout="matrix", nulls="nan").error
    assert error is not None
    result = eval(error.calls[0], {"zc": zc, "x": frame})
    np.testing.assert_array_equal(result, [[1, 0.5], [np.nan, 1.5]])
