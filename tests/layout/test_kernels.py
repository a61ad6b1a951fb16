"""The kernels of rows and columns, bit for bit against NumPy: layouts, lengths, places, ways to store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from helpers.arrays import bits
from helpers.layout_cases import LAYOUTS, field, native_bits
from hypothesis import given, settings, strategies as st

from zerocopy import aos_to_soa, soa_to_aos
from zerocopy.layout import threads, transposition
from zerocopy.layout.groups import GROUPS
from zerocopy.layout.plan import KIND
from zerocopy.layout.rows import record_type
from zerocopy.layout.schema import Leaf, leaves
from zerocopy.protocols.array_interface import aligned_empty

pytest.importorskip("numba")


LENGTHS = (0, 1, 63, 64, 65, 127, 1000, 100_003)
#: More than any of the tests reads: records at twice their step.
RANDOM = np.random.default_rng(4).integers(0, 256, 2 * LENGTHS[-1] * 256 + 4096, np.uint8)
GUARD = 192


@pytest.fixture(params=["streaming", "ordinary"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The kernels, whatever the size, and one kind of store."""
    use(monkeypatch, request.param)
    return request.param


def use(monkeypatch: pytest.MonkeyPatch, stores: str) -> None:
    monkeypatch.setattr(transposition, "SMALL", 0)
    monkeypatch.setattr(transposition, "STREAM", 0 if stores == "streaming" else 1 << 60)


def arranged(dtype: np.dtype, length: int) -> Iterator[tuple[str, np.ndarray]]:
    """Random records at all sorts of places and steps."""
    size = dtype.itemsize
    for shift in (0, 1):
        yield f"at {shift}", RANDOM[shift : shift + length * size].view(dtype)
    yield "each second", RANDOM[3 : 3 + 2 * length * size].view(dtype)[::2]
    around = np.dtype({"names": ["r"], "formats": [dtype], "offsets": [3], "itemsize": size + 7})
    if length * around.itemsize <= RANDOM.size:
        yield "in larger ones", RANDOM[: length * around.itemsize].view(around)["r"]
    yield "reversed", RANDOM[: length * size].view(dtype)[::-1]
    yield "repeated", np.broadcast_to(RANDOM[5 : 5 + size].view(dtype)[0], (length,))


def guarded(shape: tuple[int, ...], dtype: np.dtype, shift: int) -> tuple[np.ndarray, Callable[[], bool]]:
    """Garbage to write to, and whether the bytes around it are what they were."""
    nbytes = int(np.prod(shape)) * dtype.itemsize
    memory = aligned_empty((nbytes + 2 * GUARD,), np.dtype(np.uint8))
    memory[...] = 0xA5
    inner = memory[GUARD + shift : GUARD + shift + nbytes]

    def untouched() -> bool:
        return bool(
            (memory[: GUARD + shift] == 0xA5).all() and (memory[GUARD + shift + nbytes :] == 0xA5).all()
        )

    return (inner.view(dtype) if dtype.itemsize else np.empty(shape, dtype)).reshape(shape), untouched


def nested(kind: list[Leaf], made: list[Any]) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for leaf, column in zip(kind, made, strict=True):
        inner = columns
        for name in leaf.path[:-1]:
            inner = inner.setdefault(name, {})
        inner[leaf.path[-1]] = column
    return columns


# -- the grid ---------------------------------------------------------------------------


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_to_columns(layout: str, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    dtype = LAYOUTS[layout]
    kind = leaves(dtype)
    for where, records in arranged(dtype, length):
        expected = [native_bits(field(records, leaf)) for leaf in kind]
        for stores in ("streaming", "ordinary"):
            use(monkeypatch, stores)
            columns = aos_to_soa(records, copy=True)
            for leaf, wanted in zip(kind, expected, strict=True):
                column = field(columns, leaf)
                assert column.tobytes() == wanted, (where, stores, leaf.name)
                assert column.shape == (length, *leaf.shape)
                assert column.dtype == leaf.dtype
                assert column.dtype.isnative
                assert column.flags.c_contiguous
                assert column.ctypes.data % 64 == 0 or not column.nbytes


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_to_memory_of_the_callers(layout: str, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a line's start, where stores may stream, and a byte later: no byte around it is written."""
    dtype = LAYOUTS[layout]
    kind = leaves(dtype)
    records = RANDOM[: length * dtype.itemsize].view(dtype)
    expected = [native_bits(field(records, leaf)) for leaf in kind]
    for shift in (0, 1):
        for stores in ("streaming", "ordinary"):
            use(monkeypatch, stores)
            made = [guarded((length, *leaf.shape), leaf.dtype, shift) for leaf in kind]
            columns = nested(kind, [column for column, _ in made])
            given = aos_to_soa(records, out=columns)
            for leaf, wanted, (column, untouched) in zip(kind, expected, made, strict=True):
                assert field(given, leaf) is column
                assert column.tobytes() == wanted, (shift, stores, leaf.name)
                assert untouched(), (shift, stores, leaf.name)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_columns_to_rows(layout: str, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With padding that is zero, in memory that is full of something else."""
    dtype = LAYOUTS[layout]
    kind = leaves(dtype)
    for where in ("at 0", "at 1", "each second", "repeated"):
        made = []
        for number, leaf in enumerate(kind):
            step, shape = leaf.width, (length, *leaf.shape)
            start = 64 * number + (where == "at 1")
            if where == "repeated" and number % 2:
                made.append(
                    np.broadcast_to(RANDOM[start : start + step].view(leaf.dtype).reshape(leaf.shape), shape)
                )
            elif where == "each second" and number % 2:
                whole = RANDOM[start : start + 2 * length * step].view(leaf.dtype)
                made.append(whole.reshape(2 * length, *leaf.shape)[::2])
            else:
                made.append(RANDOM[start : start + length * step].view(leaf.dtype).reshape(shape))
        expected = np.zeros(length, dtype)
        for leaf, column in zip(kind, made, strict=True):
            field(expected, leaf)[...] = column
        wanted, columns = expected.tobytes(), nested(kind, made)
        for stores in ("streaming", "ordinary"):
            use(monkeypatch, stores)
            records = soa_to_aos(columns, dtype, copy=True)
            assert records.dtype == dtype
            assert records.tobytes() == wanted, (where, stores)
            assert records.ctypes.data % 64 == 0 or not length
            for shift in (0, 1):
                out, untouched = guarded((length,), dtype, shift)
                assert soa_to_aos(columns, dtype, out=out) is out
                assert out.tobytes() == wanted, (where, stores, shift)
                assert untouched(), (where, stores, shift)
        wide, untouched = guarded((2 * length,), dtype, 0)
        soa_to_aos(columns, dtype, out=wide[::2])
        raw = wide.view(np.uint8).reshape(2 * length, dtype.itemsize)
        assert raw[::2].tobytes() == wanted
        assert (raw[1::2] == 0xA5).all()
        assert untouched()


@pytest.mark.parametrize("most", [1, 2, 4])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_parts_of_many_threads_meet(
    layout: str, most: int, kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However few records a part has: each begins with a line of every column."""
    monkeypatch.setattr(threads, "WORTH", 1)
    dtype = LAYOUTS[layout]
    kind = leaves(dtype)
    for length in (127, 1000, 4099):
        assert len(threads.cuts(length, length * dtype.itemsize, most, 64)) == min(most, length // 64)
        for records in (
            RANDOM[: length * dtype.itemsize].view(dtype),
            RANDOM[: length * dtype.itemsize].view(dtype)[::-1],
        ):
            columns = aos_to_soa(records, threads=most)
            for leaf in kind:
                assert bits(field(columns, leaf)) == native_bits(field(records, leaf)), leaf.name
            expected = np.zeros(length, dtype)
            for leaf in kind:
                field(expected, leaf)[...] = field(columns, leaf)
            out, untouched = guarded((length,), dtype, 0)
            soa_to_aos(columns, dtype, out=out, threads=most)
            assert out.tobytes() == expected.tobytes()
            assert untouched()


# -- what runs --------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
def test_kernels_move_every_field(layout: str, kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pairs: object, records: object) -> None:
        raise AssertionError("a field was left to NumPy")

    monkeypatch.setattr(transposition, "_by_numpy", refuse)
    records = RANDOM[: 1000 * LAYOUTS[layout].itemsize].view(LAYOUTS[layout])
    columns = aos_to_soa(records)
    soa_to_aos(columns, records.dtype)


def test_every_group_is_among_the_layouts() -> None:
    for to_rows in (False, True):
        used = set()
        for dtype in LAYOUTS.values():
            kind = record_type(dtype)
            used |= set(kind.plan(kind.movable, to_rows=to_rows)._parts[0][:, KIND].tolist())
        assert used == set(range(len(GROUPS)))


@pytest.mark.parametrize("layout", ["particle", "big-endian", "complex, text, bytes", "pairs"])
def test_some_fields_are_picked(layout: str, kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One, a few, all of them in another order: each in parts of several threads."""
    monkeypatch.setattr(threads, "WORTH", 1)
    dtype = LAYOUTS[layout]
    names = list(dtype.names)
    for where, records in arranged(dtype, 1000):
        for chosen in (*([name] for name in names), names[1:4], names[4:1:-1], names[::3], names[::-1]):
            columns = aos_to_soa(records, fields=chosen, threads=3)
            assert list(columns) == chosen
            for name in chosen:
                assert columns[name].dtype.isnative
                assert bits(columns[name]) == native_bits(records[name]), (where, name)


def test_what_the_kernels_cannot_move_is_numpys(kernels: str) -> None:
    """Numbers of 16 bytes in the other order; the fields beside them go the kernels' way."""
    dtype = np.dtype([("a", "f4"), ("g", ">g"), ("k", ">G"), ("b", ">f4"), ("h", "g"), ("s", "S0")])
    values = np.zeros(1000, dtype)
    for name in ("a", "g", "k", "b", "h"):
        values[name] = np.arange(1000) / 7
    columns = aos_to_soa(values)
    for name in dtype.names:
        assert columns[name].dtype.isnative
        assert np.array_equal(columns[name], values[name])
    back = soa_to_aos(columns, dtype)
    for name in dtype.names:
        assert np.array_equal(back[name], values[name])


def test_no_byte_outside_is_touched(run_python) -> None:
    """Records and columns that end, or begin, where the next page may be neither read nor written."""
    done = run_python(
        """
        import ctypes, mmap, sys
        import numpy as np
        sys.path[:0] = ["tests", "tests/layout"]
        from helpers.layout_cases import LAYOUTS, field, native_bits
        from test_kernels import RANDOM, leaves, nested
        from zerocopy import aos_to_soa, soa_to_aos
        from zerocopy.layout import transposition

        libc = ctypes.CDLL(None, use_errno=True)
        PAGE = mmap.PAGESIZE
        kept = []

        def walled(nbytes, at_end):
            inner = -(-max(nbytes, 1) // PAGE) * PAGE
            memory = mmap.mmap(-1, inner + 2 * PAGE)
            whole = np.frombuffer(memory, np.uint8)
            for wall in (0, PAGE + inner):
                address = ctypes.c_void_p(whole.ctypes.data + wall)
                assert libc.mprotect(address, ctypes.c_size_t(PAGE), 0) == 0, ctypes.get_errno()
            start = PAGE + inner - nbytes if at_end else PAGE
            kept.append(memory)
            return whole[start : start + nbytes]

        transposition.SMALL = transposition.STREAM = 0
        for layout, dtype in LAYOUTS.items():
            kind = leaves(dtype)
            for length in (1, 64, 65, 200, 1000):
                for at_end in (True, False):
                    records = walled(length * dtype.itemsize, at_end).view(dtype)
                    records.view(np.uint8)[...] = RANDOM[: records.nbytes]
                    for rows in (records, records[::-1], records[::2]):
                        out = [
                            walled(leaf.width * len(rows), at_end).view(leaf.dtype).reshape(-1, *leaf.shape)
                            for leaf in kind
                        ]
                        columns = aos_to_soa(rows, out=nested(kind, out))
                        for leaf, column in zip(kind, out):
                            assert column.tobytes() == native_bits(field(rows, leaf)), (layout, leaf.name)
                    columns = nested(kind, out)
                    back = walled(len(rows) * dtype.itemsize, at_end).view(dtype)
                    soa_to_aos(columns, dtype, out=back)
                    for leaf in kind:
                        assert native_bits(field(back, leaf)) == native_bits(field(rows, leaf)), layout
                    kept.clear()
        print("whole")
        """
    )
    assert (done.returncode, done.stdout.strip()) == (0, "whole"), done.stderr[-2000:]


# -- records that hypothesis makes up -----------------------------------------------------

SCALARS = st.sampled_from(
    [
        "u1", "?", "i2", ">u2", "f2", "f4", "f4", "f4", ">f4", ">f4", "i8", ">f8", "c8", ">c8", "c16", ">c16",
        "M8[ns]", ">m8[s]", "S1", "S3", "S10", "U1", ">U2", "V5", "V100", "S0", "V0", "U0",
    ]
).map(np.dtype)  # fmt: skip
SHAPES = st.sampled_from([(1,), (2,), (3,), (2, 2), (0,), (2, 0)])


@st.composite
def structures(draw: st.DrawFn, inner: st.SearchStrategy[np.dtype], overlap: bool) -> np.dtype:
    """Records: packed, aligned, or with offsets of their own; with titles; with none at all."""
    formats: list[Any] = draw(st.lists(inner, max_size=6))
    shapes = [draw(st.one_of(st.just(()), st.just(()), SHAPES)) for _ in formats]
    formats = [
        # Of types without bytes NumPy makes no sub-arrays.
        np.dtype((kind, shape)) if shape and kind.itemsize else kind
        for kind, shape in zip(formats, shapes, strict=True)
    ]
    names = [f"f{i}" for i in range(len(formats))]
    how = draw(st.sampled_from(["packed", "aligned", "apart", *(["overlapping"] if overlap else [])]))
    if how == "aligned":
        return np.dtype({"names": names, "formats": formats}, align=True)
    offsets, end = [], 0
    for kind in formats:
        if how == "apart":
            end += draw(st.integers(0, 5))
        elif how == "overlapping":
            end = draw(st.integers(0, 12))
        offsets.append(end)
        end += kind.itemsize
    size = max((start + kind.itemsize for start, kind in zip(offsets, formats, strict=True)), default=0)
    made: dict[str, Any] = {"names": names, "formats": formats, "offsets": offsets}
    made["itemsize"] = size + (draw(st.integers(0, 9)) if how == "apart" else 0)
    if draw(st.booleans()):
        made["titles"] = [f"title {name}" if draw(st.booleans()) else None for name in names]
    return np.dtype(made)


def records_of(overlap: bool) -> st.SearchStrategy[np.dtype]:
    inner = st.recursive(SCALARS, lambda inner: structures(inner, overlap), max_leaves=5)
    return structures(inner, overlap)


@settings(max_examples=300, deadline=None)
@given(
    dtype=st.one_of(records_of(False), records_of(True)),
    length=st.sampled_from([0, 1, 5, 64, 130, 700]),
    step=st.sampled_from([1, 1, -1, 2]),
    shift=st.integers(0, 3),
    stores=st.sampled_from(["streaming", "ordinary"]),
    strided=st.integers(0, 3),
)
def test_made_up_records(
    dtype: np.dtype, length: int, step: int, shift: int, stores: str, strided: int
) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        use(monkeypatch, stores)
        if dtype.itemsize:
            rows = RANDOM[shift : shift + abs(step) * length * dtype.itemsize].view(dtype)[::step]
        else:
            rows = np.zeros(length, dtype)
        kind = leaves(dtype)
        columns = aos_to_soa(rows)
        for leaf in kind:
            column = field(columns, leaf)
            assert (column.shape, column.dtype) == ((length, *leaf.shape), leaf.dtype)
            assert column.tobytes() == native_bits(field(rows, leaf)), leaf.name
        given = {}
        for number, leaf in enumerate(kind):
            column = field(columns, leaf)
            if strided and number % 3 == strided - 1:  # those are NumPy's, the others the kernels'
                column = np.repeat(column, 2, axis=0)[::2]
            given[leaf.path] = column
        columns = nested(kind, list(given.values()))
        # Fields that overlap are written one after the other, in the order of their names.
        expected = np.zeros(length, dtype)
        for leaf in kind:
            field(expected, leaf)[...] = given[leaf.path]
        if not kind:
            return  # nobody knows how many rows columns have of which there are none
        back = soa_to_aos(columns, dtype, copy=True)
        assert (back.dtype, back.shape) == (dtype, (length,))
        assert back.tobytes() == expected.tobytes()
        if record_type(dtype).apart:
            for leaf in kind:
                assert native_bits(field(back, leaf)) == native_bits(field(rows, leaf)), leaf.name
        if any(leaf.shape and not leaf.dtype.itemsize for leaf in kind):
            return  # of types without bytes NumPy makes no sub-arrays
        plain = soa_to_aos(columns)
        assert plain.dtype.names == tuple(columns)
        for leaf in kind:
            assert native_bits(field(plain, leaf)) == native_bits(given[leaf.path]), leaf.name


#: Type and number of fields side by side; V is padding.
RUNS = [("f4", 3), (">f4", 3), ("f4", 7), (">f4", 7), ("f4", 1), ("f4", 2), ("u1", 1), ("u1", 3), ("u2", 1),
        (">u2", 4), ("f8", 1), ("S3", 1), ("V", 1), ("V", 3), ("V", 4)]  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(
    runs=st.lists(st.sampled_from(RUNS), min_size=1, max_size=6), length=st.sampled_from([1, 64, 130, 400])
)
def test_made_up_runs(runs: list[tuple[str, int]], length: int) -> None:
    """Groups of three are moved as four, beside each other, at the end, and before padding."""
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
        use(monkeypatch, "streaming")
        columns = aos_to_soa(rows)
        for name in names:
            assert columns[name].tobytes() == native_bits(rows[name]), name
        if not names:
            return
        expected = np.zeros(length, dtype)
        for name in names:
            expected[name] = columns[name]
        assert soa_to_aos(columns, dtype, copy=True).tobytes() == expected.tobytes()
