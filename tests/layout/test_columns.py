"""Columns from records: memory layout, shapes, unusual record types, and round trips."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from helpers.arrays import aligned, bits
from helpers.records import POINT, TREE, agree, by_path, filled
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as npst

import zerocopy as zc
from zerocopy import aos_to_soa, soa_to_aos


@pytest.mark.parametrize("rows", [1, 5, 1000, 20_000])
def test_columns_share_one_aligned_allocation(rows: int) -> None:
    for dtype in (POINT, TREE):
        columns = [column for _, column in by_path(aos_to_soa(filled(dtype, rows)))]
        for column in columns:
            assert column.flags.c_contiguous
            assert column.flags.writeable
            assert column.dtype.isnative
            assert column.ctypes.data % 64 == 0
            assert column.base is columns[0].base
        ends = sorted((column.ctypes.data, column.ctypes.data + column.nbytes) for column in columns)
        assert all(end <= start for (_, end), (start, _) in pairwise(ends))


@pytest.mark.parametrize("rows", [1, 5, 16, 1000, 1024, 20_000])
@pytest.mark.parametrize("fields", [["x", "y", "z"], ["z", "x"]])
def test_columns_of_one_type_are_the_rows_of_a_matrix(rows: int, fields: list[str]) -> None:
    records = filled(POINT, rows)
    columns = aos_to_soa(records, fields=fields)
    starts = [column.ctypes.data for column in columns.values()]
    assert len(set(np.diff(starts))) == 1
    for target in ("numpy", "torch"):
        matrix = zc.convert(columns, target, layout="matrix", copy=False)
        assert zc.shares_memory(matrix, columns[fields[0]])
        assert tuple(matrix.shape) == (rows, len(fields))
    for number, name in enumerate(fields):
        assert bits(zc.convert(columns, "numpy", layout="matrix")[:, number]) == bits(records[name])


def test_titles_overlaps_padding_and_dotted_names_are_supported() -> None:
    titled = np.array([(1, 2)], [(("Title", "a"), "i4"), ("b", "i2")])
    assert list(aos_to_soa(titled)) == ["a", "b"]
    overlap = np.dtype({"names": ["whole", "low"], "formats": ["<u4", "<u2"], "offsets": [0, 0]})
    both = aos_to_soa(np.array([0x10002], "<u4").view(overlap))
    assert (both["whole"].tolist(), both["low"].tolist()) == ([0x10002], [2])
    assert soa_to_aos(both, overlap)["whole"].tolist() == [0x10002]
    padded = np.zeros(3, np.dtype([("a", "i1"), ("b", "f8")], align=True))
    assert soa_to_aos(aos_to_soa(padded), padded.dtype).tobytes() == padded.tobytes()
    dotted = np.array([(1, (2,))], [("a.b", "i4"), ("a", [("b", "i4")])])
    columns = aos_to_soa(dotted)
    assert (columns["a.b"].tolist(), columns["a"]["b"].tolist()) == ([1], [2])
    assert soa_to_aos(columns).tolist() == dotted.tolist()


def test_fields_without_bytes_and_records_without_fields_are_converted() -> None:
    records = np.zeros(4, [("s", "S0"), ("v", "V0"), ("u", "U0"), ("n", "f4", (0,)), ("e", []), ("i", "i4")])
    columns = aos_to_soa(records)
    assert list(columns) == ["s", "v", "u", "n", "i"]  # a record without fields has no column
    assert [columns[name].dtype for name in "svu"] == [np.dtype("S0"), np.dtype("V0"), np.dtype("U0")]
    assert columns["n"].shape == (4, 0)
    assert soa_to_aos(columns, records.dtype).tobytes() == records.tobytes()
    assert soa_to_aos(columns).dtype.names == tuple(columns)
    assert aos_to_soa(records.reshape(2, 2))["n"].shape == (2, 2, 0)
    for dtype in (np.dtype([]), np.dtype({"names": [], "formats": [], "itemsize": 8})):
        assert aos_to_soa(np.zeros(4, dtype)) == {}
        assert soa_to_aos({}, dtype).shape == (0,)
    assert soa_to_aos({}).dtype == np.dtype([])
    assert soa_to_aos({"a": np.zeros(3, "S0")}).shape == (3,)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(), (3, 4), (2, 3, 4), (0, 3), (3, 0, 2)])
def test_records_of_any_shape_are_converted(shape: tuple[int, ...], order: str) -> None:
    records = np.asarray(filled(TREE, shape), order=order)
    for source in (
        records,
        records[::-1] if shape else records,
        records[..., ::2] if shape else records,
        records.T,
    ):
        columns = aos_to_soa(source)
        assert agree(source, columns)
        assert columns["v"].shape == (*source.shape, 2)
        assert all(column.flags.c_contiguous for _, column in by_path(columns))
        out = {"id": aligned(np.zeros(source.shape, "i8"))}
        assert aos_to_soa(source, fields=["id"], out=out)["id"] is out["id"]
        assert bits(out["id"]) == bits(source["id"])
        views = aos_to_soa(source, copy=False)
        assert agree(source, views)
        assert all(np.shares_memory(view, records) for _, view in by_path(views) if view.size)


def test_record_scalar_gives_zero_dimensional_columns() -> None:
    records = filled(TREE)
    columns = aos_to_soa(records[2])
    assert columns["id"].shape == ()
    assert columns["id"] == records["id"][2]
    assert np.shares_memory(aos_to_soa(records[2], copy=False)["v"], records)


SCALARS = st.one_of(
    npst.integer_dtypes(), npst.floating_dtypes(sizes=(32, 64)), npst.boolean_dtypes(),
    npst.complex_number_dtypes(), npst.datetime64_dtypes(min_period="ns", max_period="s"),
    npst.byte_string_dtypes(max_len=5), npst.unicode_string_dtypes(max_len=3),
)  # fmt: skip
FIELDS = st.recursive(SCALARS, lambda inner: npst.array_dtypes(inner, min_size=1, max_size=3), max_leaves=4)
RECORDS = FIELDS.filter(lambda dtype: dtype.names is not None)


@given(RECORDS.flatmap(lambda d: npst.arrays(d, st.integers(0, 9), fill=st.nothing())))
@settings(max_examples=60, deadline=None)
def test_round_trip_keeps_generated_records(records: np.ndarray) -> None:
    """NumPy converts so few records, without the kernels."""
    columns = aos_to_soa(records)
    back = soa_to_aos(columns, records.dtype, copy=True)
    assert back.dtype == records.dtype
    assert back.tobytes() == records.tobytes()
    assert agree(records, columns)
    native = soa_to_aos(columns)
    assert native.dtype.names == records.dtype.names
    assert aos_to_soa(native).keys() == columns.keys()


def test_records_have_exactly_the_requested_dtype() -> None:
    """Dtypes that are equal but not the same: numpy.record's, and those with metadata."""
    columns = aos_to_soa(filled(POINT))
    for dtype in (np.dtype((np.record, POINT)), POINT, np.dtype(POINT, metadata={"a": 1})):
        result = soa_to_aos(columns, dtype).dtype
        assert (result, result.type, result.metadata) == (
            dtype,
            dtype.type,
            dtype.metadata,
        )
    swapped = soa_to_aos({"a": np.arange(3, dtype=">i2"), "b": [1.5, 2.5, 3.5]})
    assert swapped.dtype == np.dtype([("a", ">i2"), ("b", "f8")])
    assert swapped.tolist() == [(0, 1.5), (1, 2.5), (2, 3.5)]
    assert (
        soa_to_aos(columns, [("z", "f4"), ("x", "f4"), ("y", ">f8")])["y"].tolist() == columns["y"].tolist()
    )
