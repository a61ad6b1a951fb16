"""Records to columns and back with each implementation, bit for bit: types, lengths, alignments."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from helpers.arrays import bits
from helpers.kernel_cases import LENGTHS, RANDOM
from helpers.layout_cases import LAYOUTS, field, native_bits
from helpers.tiers import runs_all

from zerocopy import aos_to_soa, soa_to_aos
from zerocopy.layout import threads
from zerocopy.layout.aos_to_soa import nested
from zerocopy.layout.schema import leaves
from zerocopy.protocols.array_interface import aligned_empty

GUARD = 192

#: Record types for Numba in the quick tier: byte order, nested records, sub-arrays, text and padding.
COMPILED = ("big-endian", "nested, text", "sub-arrays of records", "three f4 and padding", "halves", "one u1")


def leaves_out(implementation: str, layout: str) -> bool:
    """Whether the quick tier leaves out a record type: Numba compiles a loop for each of its columns."""
    return implementation == "numba" and not runs_all() and layout not in COMPILED


def arranged(dtype: np.dtype, length: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yield random records at several alignments and strides."""
    size = dtype.itemsize
    for shift in (0, 1):
        yield f"offset {shift}", RANDOM[shift : shift + length * size].view(dtype)
    yield "every other", RANDOM[3 : 3 + 2 * length * size].view(dtype)[::2]
    around = np.dtype({"names": ["r"], "formats": [dtype], "offsets": [3], "itemsize": size + 7})
    if length * around.itemsize <= RANDOM.size:
        yield "in larger records", RANDOM[: length * around.itemsize].view(around)["r"]
    yield "reversed", RANDOM[: length * size].view(dtype)[::-1]
    yield "repeated", np.broadcast_to(RANDOM[5 : 5 + size].view(dtype)[0], (length,))


def guarded(shape: tuple[int, ...], dtype: np.dtype, shift: int) -> tuple[np.ndarray, Callable[[], bool]]:
    """Return an array to write to, and a function that checks that the bytes around it are unchanged."""
    nbytes = int(np.prod(shape)) * dtype.itemsize
    memory = aligned_empty((nbytes + 2 * GUARD,), np.dtype(np.uint8))
    memory[...] = 0xA5
    inner = memory[GUARD + shift : GUARD + shift + nbytes]

    def untouched() -> bool:
        return bool(
            (memory[: GUARD + shift] == 0xA5).all() and (memory[GUARD + shift + nbytes :] == 0xA5).all()
        )

    return (inner.view(dtype) if dtype.itemsize else np.empty(shape, dtype)).reshape(shape), untouched


# -- values ---------------------------------------------------------------------------


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_columns_are_written_to_out(layout: str, length: int, implementation: str) -> None:
    """At a cache line, where stores may bypass the caches, and one byte later."""
    if leaves_out(implementation, layout):
        return
    dtype = LAYOUTS[layout]
    kind = leaves(dtype)
    records = RANDOM[: length * dtype.itemsize].view(dtype)
    expected = [native_bits(field(records, leaf)) for leaf in kind]
    for shift in (0, 1):
        outputs = [guarded((length, *leaf.shape), leaf.dtype, shift) for leaf in kind]
        columns = nested(kind, [column for column, _ in outputs])
        result = aos_to_soa(records, out=columns)
        for leaf, wanted, (column, untouched) in zip(kind, expected, outputs, strict=True):
            assert field(result, leaf) is column
            assert column.tobytes() == wanted, (shift, leaf.name)
            assert untouched(), (shift, leaf.name)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_records_equal_those_of_numpy(layout: str, length: int, implementation: str) -> None:
    """The padding becomes zero, in memory that was not zero before."""
    if leaves_out(implementation, layout):
        return
    dtype = LAYOUTS[layout]
    kind = leaves(dtype)
    for where in ("offset 0", "offset 1", "every other", "repeated"):
        sources = []
        for number, leaf in enumerate(kind):
            step, shape = leaf.width, (length, *leaf.shape)
            start = 64 * number + (where == "offset 1")
            if where == "repeated" and number % 2:
                sources.append(
                    np.broadcast_to(RANDOM[start : start + step].view(leaf.dtype).reshape(leaf.shape), shape)
                )
            elif where == "every other" and number % 2:
                doubled = RANDOM[start : start + 2 * length * step].view(leaf.dtype)
                sources.append(doubled.reshape(2 * length, *leaf.shape)[::2])
            else:
                sources.append(RANDOM[start : start + length * step].view(leaf.dtype).reshape(shape))
        expected = np.zeros(length, dtype)
        for leaf, column in zip(kind, sources, strict=True):
            field(expected, leaf)[...] = column
        wanted, columns = expected.tobytes(), nested(kind, sources)
        records = soa_to_aos(columns, dtype, copy=True)
        assert records.dtype == dtype
        assert records.tobytes() == wanted, where
        assert records.ctypes.data % 64 == 0 or not length
        for shift in (0, 1):
            out, untouched = guarded((length,), dtype, shift)
            assert soa_to_aos(columns, dtype, out=out) is out
            assert out.tobytes() == wanted, (where, shift)
            assert untouched(), (where, shift)
        wide, untouched = guarded((2 * length,), dtype, 0)
        soa_to_aos(columns, dtype, out=wide[::2])
        raw = wide.view(np.uint8).reshape(2 * length, dtype.itemsize)
        assert raw[::2].tobytes() == wanted
        assert (raw[1::2] == 0xA5).all()
        assert untouched()


@pytest.mark.parametrize("width", [255, 257, 281, 300, 512, 513, 1000, 1026, 4097, 20_000])
def test_wide_records_equal_those_of_numpy(width: int, implementation: str) -> None:
    """As wide as working memory and wider; the records of a tile may not fill whole lines."""
    if implementation == "numba" and not runs_all() and width not in (257, 513):
        return
    dtype = np.dtype([("a", ">u2"), ("v", f"V{width - 3}"), ("b", "u1")])
    records = RANDOM[: 300 * width].view(dtype)
    columns = aos_to_soa(records)
    for name in dtype.names:
        assert columns[name].tobytes() == native_bits(records[name])
    assert soa_to_aos(columns, dtype).tobytes() == records.tobytes()


@pytest.mark.parametrize("most", [1, 2, 4])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_parts_of_several_threads_cover_all_rows(
    layout: str, most: int, implementation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part starts with a whole cache line of every column, however few records it has."""
    if leaves_out(implementation, layout):
        return
    monkeypatch.setattr(threads, "MIN_PART_BYTES", 1)
    dtype = LAYOUTS[layout]
    kind = leaves(dtype)
    for length in (127, 1000, 4099):
        assert len(threads.split_rows(length, length * dtype.itemsize, most, 64)) == min(most, length // 64)
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


@pytest.mark.parametrize("layout", ["particle", "big-endian", "complex, text, bytes", "pairs"])
def test_selected_fields_equal_those_of_numpy(
    layout: str, implementation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One field, several, all in another order; each with several threads."""
    if leaves_out(implementation, layout):
        return
    monkeypatch.setattr(threads, "MIN_PART_BYTES", 1)
    dtype = LAYOUTS[layout]
    names = list(dtype.names)
    for where, records in arranged(dtype, 1000):
        for chosen in (*([name] for name in names), names[1:4], names[4:1:-1], names[::3], names[::-1]):
            columns = aos_to_soa(records, fields=chosen, threads=3)
            assert list(columns) == chosen
            for name in chosen:
                assert columns[name].dtype.isnative
                assert bits(columns[name]) == native_bits(records[name]), (where, name)


def test_swapped_numbers_of_16_bytes_equal_those_of_numpy(implementation: str) -> None:
    """Numba has no integers of 16 bytes: without the core, NumPy copies such records."""
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


def test_no_byte_outside_the_arrays_is_accessed(run_python) -> None:
    """Records and columns next to a page that is neither readable nor writable."""
    completed = run_python(
        """
        import ctypes, mmap, sys
        import numpy as np
        sys.path.insert(0, "tests")
        from helpers.kernel_cases import RANDOM
        from helpers.layout_cases import LAYOUTS, field, native_bits
        from zerocopy import aos_to_soa, soa_to_aos
        from zerocopy.layout import rows as module
        from zerocopy.layout.aos_to_soa import nested
        from zerocopy.layout.schema import leaves

        libc = ctypes.CDLL(None, use_errno=True)
        PAGE = mmap.PAGESIZE
        alive = []

        def walled(nbytes, at_end):
            inner = -(-max(nbytes, 1) // PAGE) * PAGE
            memory = mmap.mmap(-1, inner + 2 * PAGE)
            pages = np.frombuffer(memory, np.uint8)
            for wall in (0, PAGE + inner):
                address = ctypes.c_void_p(pages.ctypes.data + wall)
                assert libc.mprotect(address, ctypes.c_size_t(PAGE), 0) == 0, ctypes.get_errno()
            start = PAGE + inner - nbytes if at_end else PAGE
            alive.append(memory)
            return pages[start : start + nbytes]

        module.MIN_STREAMING_BYTES = 0
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
                    alive.clear()
        print("done")
        """
    )
    assert (completed.returncode, completed.stdout.strip()) == (0, "done"), completed.stderr[-2000:]
