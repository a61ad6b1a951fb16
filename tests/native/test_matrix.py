"""The compiled matrix: columns written to rows, and the route of layout="matrix"."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from helpers.arrow_producers import TableProducer, declare_dtypes, numbers

from zerocopy import registry
from zerocopy._native import core
from zerocopy.protocols.array_interface import aligned_copy, aligned_empty

if not hasattr(core, "MatrixRoute"):
    pytest.skip("needs the compiled core", allow_module_level=True)


@pytest.fixture(autouse=True)
def _dtypes() -> None:
    declare_dtypes()


# -- columns written to a matrix -----------------------------------------------------------


def interleave(out: Any, columns: Any) -> None:
    """Write columns with items of one size to a row-major matrix."""
    size = out.itemsize
    pieces = [(k, k * size, size, 0) for k in range(len(columns))]
    core.write_rows(out, columns, np.array(pieces, np.int64).reshape(-1, 4))


SIZES = {"u1": 1, "i2": 2, "f4": 4, "f8": 8, "c16": 16, "V4": 4}


@pytest.mark.parametrize("kind", SIZES)
@pytest.mark.parametrize("rows", [0, 1, 63, 64, 65, 200])
@pytest.mark.parametrize("width", [1, 3, 4, 5, 9])
def test_every_value_is_written_and_nothing_else(kind: str, rows: int, width: int) -> None:
    size = SIZES[kind]
    random = np.random.default_rng(rows * width)
    columns = [
        np.frombuffer(random.bytes(rows * size), kind) if rows else np.empty(0, kind) for _ in range(width)
    ]
    block = np.full(rows * width * size + 128, 0xA5, np.uint8)
    out = block[64 : 64 + rows * width * size].view(kind).reshape(rows, width)
    interleave(out, columns)
    for k, column in enumerate(columns):
        assert out[:, k].tobytes() == column.tobytes()
    assert {*block[:64], *block[64 + rows * width * size :]} == {0xA5}


def _readonly() -> Any:
    out = np.empty((4, 2))
    out.flags.writeable = False
    return out


@pytest.mark.hazard("robustness#columns-of-a-matrix")
@pytest.mark.parametrize(
    ("out", "columns"),
    [
        (np.empty((4, 2)), []),
        (np.empty((4, 2)), [np.zeros(4), np.zeros(3)]),
        (np.empty((4, 2)), [np.zeros(4), np.zeros(5)]),
        (np.empty((4, 2)), [np.zeros(4), np.zeros(4, np.float32)]),
        (np.empty((4, 2)), [np.zeros(4), np.zeros(4, object)]),
        (np.empty((4, 2), object), [np.zeros(4, object)] * 2),
        (np.empty((2, 4)).T, [np.zeros(4)] * 2),
        (np.empty(4), [np.zeros(4)] * 2),
        (np.empty((4, 2)), [np.zeros(4)] * 3),
        (np.empty((3, 2)), [np.zeros(4)] * 2),
        (np.lib.stride_tricks.as_strided(np.empty(8), (4, 2), (8, 8)), [np.zeros(4)] * 2),
        (_readonly(), [np.zeros(4)] * 2),
    ],
)
def test_arrays_that_do_not_fit_are_refused(out: Any, columns: Any) -> None:
    with pytest.raises(ValueError, match=r"rows|column|pieces|read-only"):
        interleave(out, columns)


@pytest.mark.parametrize("kind", ["?", "i1", "u2", "i4", "f4", "f8", "c16"])
@pytest.mark.parametrize("rows", [0, 1, 100, 5000])
def test_stack_writes_a_new_aligned_matrix(kind: str, rows: int) -> None:
    columns = [np.random.default_rng(k).integers(0, 2, rows).astype(kind) for k in range(7)]
    result = core.stack(columns)
    expected = np.stack(columns, axis=1)
    np.testing.assert_array_equal(result, expected)
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    assert result.flags.c_contiguous
    assert result.flags.writeable
    assert result.ctypes.data % 64 == 0


@pytest.mark.parametrize(
    "columns",
    [
        [],
        [np.zeros(3), np.zeros(4)],
        [np.zeros(3), np.zeros(3, "f4")],
        [np.zeros(3), np.zeros((3, 1))],
        [np.zeros(6)[::2]],
        [np.zeros(3, ">f8")],
        [np.zeros(3, object)],
        [np.zeros(3, "M8[s]")],
        [np.zeros(3, "f2")],
        [np.ma.zeros(3)],
        [[0.0, 1.0]],
    ],
)
def test_stack_refuses_other_columns(columns: Any) -> None:
    with pytest.raises(ValueError, match="column"):
        core.stack(columns)


# -- the route ------------------------------------------------------------------------


def matrix_route(exporter: Any, to: str = "numpy", **options: Any) -> Any:
    target = registry.find(to)
    assert target is not None
    marks = {"mutable": target.mutable, "marks_readonly": to == "numpy"}
    return core.MatrixRoute(exporter, target.fast_importers()["native"], **marks, **options)


def by_stream(producer: Any, **options: Any) -> Any:
    return matrix_route(core.TableExporter(TableProducer.__arrow_c_stream__), **options)(producer)


def apart(columns: dict[str, Any]) -> dict[str, Any]:
    """Return equal arrays at different distances of more than a page, which no matrix can alias."""
    length = max(array.nbytes for array in columns.values()) + 8192
    block = np.empty((len(columns), length + 64 * len(columns)), np.uint8)
    placed = {}
    for k, (name, array) in enumerate(columns.items()):
        placed[name] = block[k, 64 * (k % 2) : 64 * (k % 2) + array.nbytes].view(array.dtype)
        placed[name][:] = array
    return placed


def equal_types(rows: int, width: int = 3) -> dict[str, Any]:
    return apart({f"c{k}": np.random.default_rng(k).random(rows) for k in range(width)})


@pytest.mark.parametrize("lengths", [[5], [5, 3, 70], [1] * 100])
def test_chunks_are_written_one_after_another_and_released(lengths: list[int]) -> None:
    producer = TableProducer(*map(equal_types, lengths))
    result = by_stream(producer)
    assert producer.released == producer.exported
    parts = [np.stack(list(chunk.values()), axis=1) for chunk in producer.chunks]
    np.testing.assert_array_equal(result, np.concatenate(parts))
    assert result.flags.c_contiguous
    assert result.flags.writeable
    assert result.ctypes.data % 64 == 0
    by_columns = by_stream(TableProducer(*map(equal_types, lengths)), by_columns=True)
    np.testing.assert_array_equal(by_columns, result)
    assert by_columns.flags.f_contiguous
    assert by_columns.ctypes.data % 64 == 0


def test_options_of_a_matrix() -> None:
    result = by_stream(TableProducer(equal_types(5)), columns=["c2", "c0"], writable=False)
    expected = equal_types(5)
    np.testing.assert_array_equal(result, np.stack([expected["c2"], expected["c0"]], axis=1))
    assert not result.flags.writeable
    assert by_stream(TableProducer(equal_types(5)), copy=True, dtype=(2, 64)).shape == (5, 3)
    assert by_stream(TableProducer(equal_types(5)), writable=True).flags.writeable


@pytest.mark.parametrize(
    ("chunks", "options"),
    [
        ([numbers()], {}),
        ([equal_types(5)], {"copy": False}),
        ([equal_types(5)], {"dtype": (2, 16)}),
        ([equal_types(5, 1)], {}),
        ([equal_types(1 << 19)], {}),
        ([equal_types(1 << 17), equal_types(1 << 17)], {}),
        ([equal_types(1)] * 300, {}),
        ([equal_types(5), equal_types(0)], {}),
    ],
)
def test_tables_for_the_slow_path_are_refused_and_released(chunks: Any, options: Any) -> None:
    producer = TableProducer(*chunks)
    with pytest.raises(BufferError):
        by_stream(producer, **options)
    assert producer.released == producer.exported


def test_the_framework_copies_wide_tables_after_the_first() -> None:
    wide, own = equal_types(5, 32), aligned_copy(np.zeros((5, 33)))
    misaligned = aligned_empty((5 * 33 + 1,), np.dtype("f8"))[1:].reshape(5, 33)
    answers = [own, None, misaligned, ValueError(), object(), own]

    def matrix(obj: Any) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    expected = np.stack([*wide.values()], 1)
    exporter = core.TableExporter(TableProducer.__arrow_c_stream__, matrix=matrix, matrix_width=32)
    route = matrix_route(exporter)
    assert route(TableProducer(equal_types(5))).shape == (5, 3)
    np.testing.assert_array_equal(route(TableProducer(wide)), expected)
    assert len(answers) == 6
    for answer in answers.copy():
        result = route(TableProducer(wide))
        if answer is own:
            assert result.ctypes.data == own.ctypes.data
        else:
            np.testing.assert_array_equal(result, expected)
    for options in ({"columns": [*wide]}, {"by_columns": True}):  # never asked: it would raise IndexError
        other = matrix_route(exporter, **options)
        for _ in range(2):
            np.testing.assert_array_equal(other(TableProducer(wide)), expected)


def test_error_in_the_middle_of_a_stream() -> None:
    producer = TableProducer(*[equal_types(5)] * 3)
    producer.error = 5
    with pytest.raises(BufferError):
        by_stream(producer)
    assert producer.released == producer.exported
    producer = TableProducer(*[equal_types(5)] * 3)
    producer.columns[2][1].null_count = 1
    with pytest.raises(BufferError):
        by_stream(producer)
    assert producer.released == producer.exported
    gc.collect()
