"""Records to columns and back against NumPy, with record types that hypothesis generates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.kernel_cases import NARROWER, RANDOM, use
from helpers.layout_cases import field, native_bits
from helpers.tiers import sample_size
from hypothesis import given, settings, strategies as st

from zerocopy import aos_to_soa, soa_to_aos
from zerocopy.layout.aos_to_soa import nested
from zerocopy.layout.schema import leaves, record_type

SCALARS = st.sampled_from(
    [
        "u1", "?", "i2", ">u2", "f2", "f4", "f4", "f4", ">f4", ">f4", "i8", ">f8", "c8", ">c8", "c16", ">c16",
        "M8[ns]", ">m8[s]", "S1", "S3", "S10", "U1", ">U2", "V5", "V100", "S0", "V0", "U0",
    ]
).map(np.dtype)  # fmt: skip
SHAPES = st.sampled_from([(1,), (2,), (3,), (2, 2), (0,), (2, 0)])


@st.composite
def structures(draw: st.DrawFn, inner: st.SearchStrategy[np.dtype], overlap: bool) -> np.dtype:
    """Record types: packed, aligned, or with explicit offsets; with titles; without fields."""
    formats: list[Any] = draw(st.lists(inner, max_size=6))
    shapes = [draw(st.one_of(st.just(()), st.just(()), SHAPES)) for _ in formats]
    formats = [
        # NumPy has no sub-arrays of types without bytes.
        np.dtype((kind, shape)) if shape and kind.itemsize else kind
        for kind, shape in zip(formats, shapes, strict=True)
    ]
    names = [f"f{i}" for i in range(len(formats))]
    how = draw(st.sampled_from(["packed", "aligned", "gaps", *(["overlapping"] if overlap else [])]))
    if how == "aligned":
        return np.dtype({"names": names, "formats": formats}, align=True)
    offsets, end = [], 0
    for kind in formats:
        if how == "gaps":
            end += draw(st.integers(0, 5))
        elif how == "overlapping":
            end = draw(st.integers(0, 12))
        offsets.append(end)
        end += kind.itemsize
    size = max((start + kind.itemsize for start, kind in zip(offsets, formats, strict=True)), default=0)
    spec: dict[str, Any] = {"names": names, "formats": formats, "offsets": offsets}
    spec["itemsize"] = size + (draw(st.integers(0, 9)) if how == "gaps" else 0)
    if draw(st.booleans()):
        spec["titles"] = [f"title {name}" if draw(st.booleans()) else None for name in names]
    return np.dtype(spec)


def records_of(overlap: bool) -> st.SearchStrategy[np.dtype]:
    inner = st.recursive(SCALARS, lambda inner: structures(inner, overlap), max_leaves=5)
    return structures(inner, overlap)


#: Numba compiles a loop for each record type, so that it has few examples.
IMPLEMENTATIONS = [
    ("streaming", sample_size(150, 60)),
    *((narrower, sample_size(50, 25)) for narrower in NARROWER),
    ("ordinary", sample_size(150, 60)),
    ("numpy", sample_size(50, 25)),
    ("numba", sample_size(8, 3)),
]


@pytest.mark.parametrize(("implementation", "examples"), IMPLEMENTATIONS)
def test_generated_records_equal_those_of_numpy(implementation: str, examples: int) -> None:
    generated = given(
        dtype=st.one_of(records_of(False), records_of(True)),
        length=st.sampled_from([0, 1, 5, 64, 130, 700]),
        step=st.sampled_from([1, 1, -1, 2, 0]),
        shift=st.integers(0, 3),
        strided=st.integers(0, 3),
    )

    def check(**drawn: Any) -> None:
        check_records(implementation, **drawn)

    settings(max_examples=examples, deadline=None)(generated(check))()


def check_records(
    implementation: str, dtype: np.dtype, length: int, step: int, shift: int, strided: int
) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        use(monkeypatch, implementation)
        if dtype.itemsize and not step:
            rows = np.broadcast_to(RANDOM[shift : shift + dtype.itemsize].view(dtype)[0], (length,))
        elif dtype.itemsize:
            rows = RANDOM[shift : shift + abs(step) * length * dtype.itemsize].view(dtype)[::step]
        else:
            rows = np.zeros(length, dtype)
        kind = leaves(dtype)
        columns = aos_to_soa(rows)
        for leaf in kind:
            column = field(columns, leaf)
            assert (column.shape, column.dtype) == ((length, *leaf.shape), leaf.dtype)
            assert column.flags.c_contiguous
            assert column.ctypes.data % 64 == 0 or not column.nbytes
            assert column.tobytes() == native_bits(field(rows, leaf)), leaf.name
        sources = {}
        for number, leaf in enumerate(kind):
            column = field(columns, leaf)
            # Strided columns; `repeat` makes `S1` with arbitrary bytes of `S0`.
            if strided and number % 3 == strided - 1 and column.dtype.itemsize:
                column = np.repeat(column, 2, axis=0)[::2]
            sources[leaf.path] = column
        columns = nested(kind, list(sources.values()))
        # Overlapping fields are written in the order of their names.
        expected = np.zeros(length, dtype)
        for leaf in kind:
            field(expected, leaf)[...] = sources[leaf.path]
        if not kind:
            return  # without columns the number of rows is unknown
        back = soa_to_aos(columns, dtype, copy=True)
        assert (back.dtype, back.shape) == (dtype, (length,))
        assert back.tobytes() == expected.tobytes()
        if record_type(dtype).disjoint:
            for leaf in kind:
                assert native_bits(field(back, leaf)) == native_bits(field(rows, leaf)), leaf.name
        if any(leaf.shape and not leaf.dtype.itemsize for leaf in kind):
            return  # NumPy has no sub-arrays of types without bytes
        plain = soa_to_aos(columns)
        assert plain.dtype.names == tuple(columns)
        for leaf in kind:
            assert native_bits(field(plain, leaf)) == native_bits(sources[leaf.path]), leaf.name


#: Type and number of adjacent fields; V is padding.
RUNS = [("f4", 3), (">f4", 3), ("f4", 7), (">f4", 7), ("f4", 1), ("f4", 2), ("u1", 1), ("u1", 3), ("u2", 1),
        (">u2", 4), ("f8", 1), ("S3", 1), ("V", 1), ("V", 3), ("V", 4)]  # fmt: skip


@pytest.mark.parametrize(("implementation", "examples"), IMPLEMENTATIONS)
def test_generated_runs_of_fields_equal_those_of_numpy(implementation: str, examples: int) -> None:
    """Groups of three are copied as parts of four: adjacent to each other, at the end, and before padding."""
    generated = given(
        runs=st.lists(st.sampled_from(RUNS), min_size=1, max_size=6),
        length=st.sampled_from([1, 64, 130, 400]),
    )

    def check(**drawn: Any) -> None:
        check_runs(implementation, **drawn)

    settings(max_examples=examples, deadline=None)(generated(check))()


def check_runs(implementation: str, runs: list[tuple[str, int]], length: int) -> None:
    formats, offsets, end = [], [], 0
    for kind, count in runs:
        for _ in range(count):
            if kind != "V":
                formats.append(np.dtype(kind))
                offsets.append(end)
            end += 1 if kind == "V" else formats[-1].itemsize
    names = [f"f{i}" for i in range(len(formats))]
    dtype = np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": end})
    rows = RANDOM[: length * end].view(dtype)
    with pytest.MonkeyPatch.context() as monkeypatch:
        use(monkeypatch, implementation)
        columns = aos_to_soa(rows)
        for name in names:
            assert columns[name].tobytes() == native_bits(rows[name]), name
        if not names:
            return
        expected = np.zeros(length, dtype)
        for name in names:
            expected[name] = columns[name]
        assert soa_to_aos(columns, dtype, copy=True).tobytes() == expected.tobytes()
