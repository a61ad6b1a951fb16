"""Columns written as rows of bytes, and rows read into columns: compiled and with NumPy."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from helpers.tiers import sample_size
from hypothesis import given, settings, strategies as st

from zerocopy._native import core
from zerocopy.layout import rows as module
from zerocopy.layout.rows import read_rows, write_rows

LENGTHS = [0, 1, 3, 63, 64, 65, 1000]
KINDS = ["u1", "i2", "f4", "f8", "c16", "M8[us]", ">i4", "S3", "V5", "?", "f2"]


@pytest.fixture(params=["compiled", "plain"], autouse=True)
def way(request: Any, monkeypatch: Any) -> str:
    """Run each test with the core, and without it."""
    if request.param == "plain":
        monkeypatch.setattr(module, "core", None)
    elif core is None:
        pytest.skip("needs the compiled core")
    return str(request.param)


def column_of(dtype: str, shape: tuple[int, ...], seed: int = 0) -> Any:
    """Return random bytes as an array."""
    block = np.random.default_rng(seed).integers(
        0, 2 if dtype == "?" else 256, int(np.prod(shape)) * np.dtype(dtype).itemsize, np.uint8
    )
    return np.ndarray(shape, dtype, block.tobytes()).copy()


def size_of(column: Any) -> int:
    """Return the bytes of an item of axis 0."""
    return int(column.itemsize * np.prod(column.shape[1:], dtype=int))


def packed(columns: Any, gaps: Any = ()) -> tuple[list[int], int]:
    """Return the offsets of columns with gaps of padding before each and after the last, and the pitch."""
    gaps = [*gaps, *[0] * (len(columns) + 1 - len(gaps))]
    sizes = [size_of(column) for column in columns]
    ends = list(accumulate(gap + size for gap, size in zip(gaps[:-1], sizes, strict=True)))
    return [end - size for end, size in zip(ends, sizes, strict=True)], ends[-1] + gaps[-1]


def expected(out: Any, columns: Any, offsets: Any, positions: Any) -> Any:
    """Return the rows that `write_rows` should write, one item at a time."""
    result = out.copy()
    for i in range(len(columns[0])):
        row = result[i if positions is None else positions[i]]
        row[:] = 0
        for column, offset in zip(columns, offsets, strict=True):
            row[offset : offset + size_of(column)] = np.frombuffer(column[i : i + 1].tobytes(), np.uint8)
    return result


def check(columns: Any, gaps: Any = (), extra: int = 0, threads: int | None = 1) -> None:
    """Write columns in order and scattered, compare, and read them again."""
    offsets, pitch = packed(columns, gaps)
    count = len(columns[0])
    positions = np.random.default_rng(count).permutation(count + extra)[:count].astype(np.int64)
    for places in (None, positions):
        block = np.full((count + extra + 2, pitch), 0xA5, np.uint8)
        out = block[1:-1]
        before = block.copy()
        write_rows(out, columns, offsets, places, threads)
        before[1:-1] = expected(before[1:-1], columns, offsets, places)
        np.testing.assert_array_equal(block, before)
        if places is None:
            again = [np.empty(column.shape, column.dtype) for column in columns]
            read_rows(out, again, offsets, threads)
            for column, copy in zip(columns, again, strict=True):
                assert copy.tobytes() == column.tobytes()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [1, 3, 4, 5, 9])
def test_columns_of_one_type(kind: str, width: int) -> None:
    for count in LENGTHS:
        check([column_of(kind, (count,), k) for k in range(width)], extra=5)


@pytest.mark.parametrize("count", LENGTHS)
def test_columns_of_mixed_types(count: int) -> None:
    kinds = ["i4", "f8", "u1", "f4", "f4", "f4", "f4", "f4", "i2", *["u1"] * 7, *["f8"] * 5, "S3", "c16"]
    check([column_of(kind, (count,), k) for k, kind in enumerate(kinds)])
    check([column_of(kind, (count,), k) for k, kind in enumerate(kinds)], [1, 0, 7, 3], extra=9)


@pytest.mark.parametrize("count", [0, 1, 63, 130])
def test_items_with_dimensions(count: int) -> None:
    shapes: list[tuple[str, tuple[int, ...]]] = [
        ("f4", (3,)), ("f4", (2, 2)), ("u1", (5, 1)), ("f8", (0,)), ("f4", ()), ("f4", (700,)), ("S0", ())
    ]  # fmt: skip
    check([column_of(kind, (count, *shape), 1) for kind, shape in shapes], [0, 3, 0, 0, 2, 600, 0, 1000])


@pytest.mark.parametrize("count", [1, 65])
def test_wide_rows(count: int) -> None:
    check([column_of("f4", (count,), 1)] * (5000 if count == 1 else sample_size(5000, 500)), extra=2)
    check(
        [column_of("u1", (count, 20_000)), column_of("f8", (count,)), column_of("V20000", (count,))], [5, 1]
    )


@pytest.mark.parametrize(
    "count", [120, 150, 513, *(pytest.param(n, marks=pytest.mark.full) for n in (140, 500))]
)
def test_rows_about_as_wide_as_a_stage(count: int) -> None:
    check([column_of("f4", (100,), k) for k in range(count)])


@pytest.mark.parametrize("step", [2, -1, -3, 0])
def test_columns_of_any_stride(step: int) -> None:
    base = np.arange(1000.0)
    strided = np.lib.stride_tricks.as_strided(base[500:], (130,), (8 * step,))
    columns = [base[:130], strided, *[base[1:131]] * 5, strided, strided]
    offsets, pitch = packed(columns)
    positions = np.random.default_rng(1).permutation(130)
    out = np.empty((130, pitch), np.uint8)
    write_rows(out, columns, offsets, positions)
    np.testing.assert_array_equal(out.view("f8")[positions], np.stack(columns, axis=1))


def test_rows_of_a_matrix_are_columns() -> None:
    matrix = np.arange(700.0, dtype=np.float32).reshape(100, 7)[:, 1:4]
    out = np.empty((100, 12), np.uint8)
    write_rows(out, [matrix], [0])
    np.testing.assert_array_equal(out.view(np.float32), matrix)


def test_memory_that_is_not_aligned() -> None:
    column = np.frombuffer(b"\0" + np.arange(100.0).tobytes(), np.uint8)[1:].view("f8")
    assert not column.flags.aligned
    out = np.empty(3201, np.uint8)[1:].reshape(100, 32)
    write_rows(out, [column] * 4, [0, 8, 16, 24])
    np.testing.assert_array_equal(out.copy().view("f8"), np.stack([column] * 4, axis=1))


@pytest.mark.parametrize("threads", [2, 3, None])
def test_threads_write_and_read_parts(threads: int | None) -> None:
    count = 40_000
    columns = [column_of(kind, (count,), k) for k, kind in enumerate(["f4"] * 29 + ["u1", "f8"])]
    offsets, pitch = packed(columns)
    record = np.dtype({
        "names": [f"f{k}" for k in range(len(columns))],
        "formats": [column.dtype for column in columns],
        "offsets": offsets,
        "itemsize": pitch,
    })  # fmt: skip
    order = np.random.default_rng(2).permutation(count)
    for positions in (None, order):
        out = np.zeros((count, pitch), np.uint8)
        write_rows(out, columns, offsets, positions, threads)
        rows = out.view(record)[:, 0][slice(None) if positions is None else positions]
        for k, column in enumerate(columns):
            assert rows[f"f{k}"].tobytes() == column.tobytes()
    again = [np.empty_like(column) for column in columns]
    write_rows(out, columns, offsets)
    read_rows(out, again, offsets, threads)
    assert [copy.tobytes() for copy in again] == [column.tobytes() for column in columns]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_columns(data: st.DataObject) -> None:
    count = data.draw(st.sampled_from([*LENGTHS[:-1], 130]))
    kinds = data.draw(st.lists(st.sampled_from([*KINDS, "f4", "f4", "u1"]), min_size=1, max_size=30))
    gaps = data.draw(st.lists(st.sampled_from([0, 0, 0, 1, 2, 8]), max_size=len(kinds) + 1))
    columns = []
    for k, kind in enumerate(kinds):
        step = data.draw(st.sampled_from([1, 1, 1, 2, -1]))
        columns.append(column_of(kind, (count * abs(step),), k)[::step])
    check(columns, gaps, extra=data.draw(st.integers(0, 3)))


@pytest.mark.parametrize("count", [10, 200_000])
@pytest.mark.parametrize("wrong", [-1, 200_000, 2**62, -(2**63)])
def test_positions_out_of_range_write_nothing(count: int, wrong: int) -> None:
    column = np.ones(count)
    positions = np.arange(count)
    positions[-1] = wrong
    out = np.zeros((count, 16), np.uint8)
    with pytest.raises(IndexError, match="position"):
        write_rows(out, [column, column], [0, 8], positions)
    assert not out.any()


A, OUT = np.zeros(4), np.zeros((4, 16), np.uint8)


def readonly(array: Any) -> Any:
    """Return a read-only copy."""
    array = array.copy()
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("out", "columns", "offsets", "positions"),
    [
        (OUT[:, :8], [A], [0], None),
        (OUT[0], [A], [0], None),
        (OUT.view(np.int8), [A], [0], None),
        (OUT.view("f8"), [A], [0], None),
        (readonly(OUT), [A], [0], None),
        (OUT, [], [], None),
        (OUT, [A], [], None),
        (OUT, [A], [0, 8], None),
        (OUT, [A, A], [0, 4], None),
        (OUT, [A, A], [8, 0], None),
        (OUT, [A], [-1], None),
        (OUT, [A], [9], None),
        (OUT, [A], [2**70], None),
        (OUT, [A], [0.0], None),
        (OUT, [A, A[:3]], [0, 8], None),
        (OUT, [np.float64(0)[()] * np.array(1.0)[...][None][0:0].reshape(0, 1), A], [0, 8], None),
        (OUT, [np.array(1.0)], [0], None),
        (OUT, [A.astype(object)], [0], None),
        (OUT, [np.zeros((4, 2, 2), "f4").transpose(0, 2, 1)], [0], None),
        (OUT, [np.zeros(5)], [0], None),
        (OUT, [A], [0], np.arange(4, dtype=np.int32)),
        (OUT, [A], [0], np.arange(4, dtype=">i8")),
        (OUT, [A], [0], np.arange(4, dtype=np.uint64)),
        (OUT, [A], [0], np.arange(3)),
        (OUT, [A], [0], np.arange(4)[:, None]),
        (OUT, [A], [0], np.arange(8)[::2]),
        (OUT, [A], [0], [0, 1, 2, 3]),
    ],
)
def test_arguments_that_do_not_fit_are_refused(out: Any, columns: Any, offsets: Any, positions: Any) -> None:
    with pytest.raises(ValueError, match=r"rows|columns|offset|position|read-only"):
        write_rows(out, columns, offsets, positions)
    assert not OUT.any()


@pytest.mark.parametrize(
    ("columns", "offsets"),
    [
        ([readonly(A)], [0]),
        ([np.zeros(5)], [0]),
        ([A.astype(object)], [0]),
        ([A], [9]),
        ([], []),
    ],
)
def test_columns_that_cannot_be_filled_are_refused(columns: Any, offsets: Any) -> None:
    with pytest.raises(ValueError, match=r"rows|column|offset|read-only"):
        read_rows(OUT, columns, offsets)


def test_objects_that_are_not_arrays_are_refused() -> None:
    for columns in ([[0.0] * 4], [A, None]):
        with pytest.raises(TypeError):
            write_rows(OUT, columns, [0, 8][: len(columns)])  # type: ignore[arg-type]
    with pytest.raises((TypeError, AttributeError)):
        write_rows([[0] * 16], [A], [0])  # type: ignore[arg-type]


def test_strided_columns_are_filled() -> None:
    whole = np.zeros(8)
    read_rows(np.arange(32, dtype=np.uint8).reshape(4, 8), [whole[::-2]], [0])
    assert whole[::-2].tobytes() == bytes(range(32))
    assert not whole[::2].any()


def test_part_of_the_rows_is_read() -> None:
    column = np.zeros(3)
    read_rows(np.arange(32, dtype=np.uint8).reshape(4, 8), [column], [0])
    assert column.tobytes() == bytes(range(24))


def test_threads_refuse_columns_longer_than_the_rows() -> None:
    out, column = np.zeros((399_999, 16), np.uint8), np.ones((400_000, 2))
    with pytest.raises(ValueError, match="more items"):
        write_rows(out, [column], [0])
    with pytest.raises(ValueError, match="more items"):
        read_rows(out, [column], [0])
    assert not out.any()
