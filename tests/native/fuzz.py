"""Fuzz the compiled core: ``python -m tests.native.fuzz --count 1000000 --seed 0``.

Each case, a capsule, a buffer or a table, is made from a few random bytes. A failed case prints them, and
``--replay HEX`` runs them again; the seed of a crash is in the range that was printed last. The core must
refuse exactly what the oracle in ``helpers.native_cases`` calls invalid, and show the arena's bytes for the
rest. Run it in a build with
AddressSanitizer, where the arena comes from the sanitizer's allocator (CONTRIBUTING.md).
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1])]

import numpy as np  # noqa: E402 - after the path is set
from helpers.native_cases import DTYPES, SIZE, Case, Reader, Struct, decode  # noqa: E402
from helpers.native_core import ALL_PAIRS, core, declare, memory_route  # noqa: E402
from helpers.native_table_cases import Tables  # noqa: E402

from zerocopy.dtype import by_dlpack  # noqa: E402
from zerocopy.protocols import dlpack  # noqa: E402
from zerocopy.strided_view import MAX_NDIM  # noqa: E402

CORPUS = Path(__file__).parent / "corpus"
_FLAGS = (None, False, True)
_FORMATS = (
    *"bBhHiIlLqQefd?cgnNPspxuw",
    "Zf",
    "Zd",
    "Zg",
    "Zi",
    "Z",
    "",
    "@f",
    "=d",
    "<i",
    ">i",
    "!i",
    "ff",
    "2f",
)
_FORMATS += ("T{f:x:}", "&f", "O", "@", "^f", "Zfd")
_LETTERS = {"e": "f2", "f": "f4", "d": "f8", "?": "?", "Zf": "c8", "Zd": "c16"}


class ArrowArray(ctypes.Structure):
    """``struct ArrowArray``."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("length", "null_count", "offset", "n_buffers", "n_children")),
        ("buffers", ctypes.POINTER(ctypes.c_void_p)),
        *((name, ctypes.c_void_p) for name in ("children", "dictionary", "release", "private_data")),
    )


class PyBuffer(ctypes.Structure):
    """``Py_buffer``."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        *((name, ctypes.c_void_p) for name in ("shape", "strides", "suboffsets", "internal")),
    )


_release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_set_name = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_SetName", ctypes.pythonapi)
)
_view = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.POINTER(PyBuffer))(
    ("PyMemoryView_FromBuffer", ctypes.pythonapi)
)
_USED = b"used_dltensor"


class Fuzzer:
    """Runs cases over one arena; `outcomes` counts their results by kind."""

    def __init__(self) -> None:
        declare()
        libc = ctypes.CDLL(None)
        libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        self.arena: int = libc.malloc(SIZE + 64)
        if self.arena is None:
            raise MemoryError
        if self.arena % 64:  # moves the start, so that few bytes of the block follow the arena
            self.arena += 64 - self.arena % 64
        self.content = bytes((7 * i + 3) % 256 for i in range(SIZE))
        ctypes.memmove(self.arena, self.content, SIZE)
        self.struct, self.outcomes = Struct(), Counter()
        self.calls: list[Any] = []
        self.tables = Tables(self.arena)
        exporter, self.importer = core.CapsuleExporter(lambda capsule: capsule), core.NDArrayImporter()
        self.exporter = exporter
        self.to_array = {
            (copy, writable): memory_route(exporter, self.importer, copy=copy, writable=writable)
            for copy in _FLAGS
            for writable in _FLAGS
        }
        self.to_capsule = {
            (alignment, layout, copy): memory_route(
                exporter,
                core.CapsuleImporter(
                    self._take, dtypes=ALL_PAIRS, alignment=alignment, layout=layout, arguments=()
                ),
                copy=copy,
            )
            for alignment in (1, 16, 64)
            for layout in ("row-major", "compact")
            for copy in (None, False)
        }
        self.to_column = memory_route(exporter, core.ArrowImporter(self._column, {p: p for p in ALL_PAIRS}))
        self.from_buffer = memory_route(core.BufferExporter(), self.importer)
        self.from_array = memory_route(core.NDArrayExporter(), self.importer)

    # -- importers ------------------------------------------------------------

    def _take(self, capsule: Any) -> Any:
        """Keep a capsule; consume it, or raise, if the case says so."""
        managed = dlpack.DLManagedTensor.from_address(_get_pointer(capsule, dlpack.LEGACY))
        if self.action == 1:
            raise BufferError
        if self.action == 2:
            _set_name(capsule, _USED)
        return capsule, managed

    def _column(self, address: int, kind: Any) -> Any:
        """Read an ArrowArray; move it, or raise, if the case says so."""
        array = ArrowArray.from_address(address)
        assert array.null_count == array.offset == array.n_children == 0
        assert (array.n_buffers, array.buffers[0], array.dictionary) == (2, None, None)
        self.calls.append((array.length, array.buffers[1], kind))
        if self.action == 1:
            raise BufferError
        if self.action == 2:
            moved = ArrowArray.from_buffer_copy(array)
            array.release = None
            return moved
        return None

    # -- cases ----------------------------------------------------------------

    def run(self, data: bytes, way: int | None = None) -> None:
        """Run one case, in one of 9 ways; raises AssertionError with its description for a finding."""
        case, read = decode(data, self.arena)
        if case.dtype[:2] not in DTYPES and by_dlpack(*case.dtype[:2], 1) is not None:
            return  # a type of ml_dtypes, which the core knows if the process has used it before
        chosen = read.below(9)
        way = chosen if way is None else way
        self.action = read.below(3)
        if MAX_NDIM < case.ndim <= 64:  # NumPy 1 has no such arrays, and so no expected values
            assert self._call(self.to_array[None, None], self.struct.capsule(case)) is None
            return
        try:
            if way < 3:
                self._array(case, read)
            elif way < 5:
                self._capsule(case, read)
            elif way < 6:
                self._arrow(case)
            elif way < 7:
                self._buffer(case, read)
            elif way < 8:
                self._ndarray(case, read)
            else:
                self.outcomes["table", self.tables.run(read)] += 1
            assert ctypes.string_at(self.arena, SIZE) == self.content, "the arena was written"
        except AssertionError as error:
            raise AssertionError(f"{error}\nway {way}, action {self.action}, {case}") from error

    def _call(self, route: Any, obj: Any) -> Any:
        try:
            return route(obj)
        except BufferError:
            return None

    def _array(self, case: Case, read: Reader) -> None:
        valid = case.is_valid() and case.dtype[:2] in DTYPES
        inside = valid and case.is_inside()
        copy, writable = read.pick(_FLAGS), read.pick(_FLAGS)
        if valid and not inside:
            copy, writable = False, None  # a copy would read the memory
        readonly = case.name == b"dltensor_versioned" and bool(case.flags & 1)
        copies = copy is True or (writable is True and readonly)
        capsule = self.struct.capsule(case)
        result = self._call(self.to_array[copy, writable], capsule)
        taken = valid and not (copies and copy is False)
        assert (result is not None) is taken, "taken" if result is not None else "refused"
        self.outcomes["array", taken] += 1
        if taken:
            assert list(result.shape) == case.extents
            assert result.dtype == DTYPES[case.dtype[:2]]
            assert result.flags.writeable is (writable is not False and (copies or not readonly))
            start = case.data + case.byte_offset
            assert (result.ctypes.data == start) is not copies
            if not copies:
                pairs = zip(result.strides, case.steps, result.shape, strict=True)
                assert all(mine == step * case.itemsize for mine, step, extent in pairs if extent > 1)
                assert self.struct.deleted == 0
            if inside:
                self._same(result, case.expected())
            del result
        del capsule
        # A valid capsule is consumed, also if no importer takes it.
        assert self.struct.deleted == int(case.deleter and case.is_valid()), (
            f"{self.struct.deleted} deletions"
        )

    def _capsule(self, case: Case, read: Reader) -> None:
        valid = case.is_valid() and case.dtype[:2] in DTYPES
        inside = valid and case.is_inside()
        alignment, layout, copy = (
            read.pick((1, 16, 64)),
            read.pick(("row-major", "compact")),
            read.pick((None, False)),
        )
        copy = copy if not valid or inside else False
        fits = valid and self._fits(case, layout) and (case.data + case.byte_offset) % alignment == 0
        taken = valid and (fits or copy is None) and self.action != 1
        capsule = self.struct.capsule(case)
        result = self._call(self.to_capsule[alignment, layout, copy], capsule)
        assert (result is not None) is taken, "taken" if result is not None else "refused"
        self.outcomes["capsule", taken] += 1
        if taken:
            made, managed = result
            tensor = managed.dl_tensor
            assert tensor.shape[: case.ndim] == case.extents
            assert (tensor.code, tensor.bits, tensor.lanes) == case.dtype
            assert (tensor.device_type, tensor.byte_offset, tensor.ndim) == (1, 0, case.ndim)
            assert (tensor.data == case.data + case.byte_offset) is fits
            assert tensor.data % alignment == 0
            if inside:
                block = (ctypes.c_char * _span(tensor)).from_address(tensor.data)
                pairs = zip(tensor.strides[: case.ndim], case.extents, strict=True)
                steps = [case.itemsize * (step if extent > 1 else 1) for step, extent in pairs]
                self._same(np.ndarray(case.extents, DTYPES[case.dtype[:2]], block, 0, steps), case.expected())
            assert self.struct.deleted == int(case.deleter and not fits)
            del result
            if self.action == 2:
                del made
                _release(managed.deleter)(ctypes.addressof(managed))
            else:
                made = None
        assert self.struct.deleted == int(case.deleter and case.is_valid()), (
            f"{self.struct.deleted} deletions"
        )

    @staticmethod
    def _fits(case: Case, layout: str) -> bool:
        """Whether the elements are row-major, or row-major in some order of the dimensions."""
        pairs = [(step, extent) for step, extent in zip(case.steps, case.extents, strict=True) if extent > 1]
        ordered = sorted(pairs) if layout == "compact" else pairs[::-1]
        expected = 1
        for step, extent in ordered:
            if step != expected:
                return False
            expected *= extent
        return True

    def _arrow(self, case: Case) -> None:
        valid = case.is_valid() and case.dtype[:2] in DTYPES
        start = case.data + case.byte_offset
        seen = valid and case.ndim == 1 and self._fits(case, "row-major") and start % case.itemsize == 0
        self.calls.clear()
        capsule = self.struct.capsule(case)
        try:
            result = self.to_column(capsule)
        except (BufferError, SystemError):
            result = None
        self.outcomes["column", seen] += 1
        assert self.calls == ([(case.extents[0], start, case.dtype[:2])] if seen else [])
        if seen and self.action == 2:
            assert self.struct.deleted == 0
            _release(result.release)(ctypes.addressof(result))
        assert self.struct.deleted == int(case.deleter and case.is_valid()), (
            f"{self.struct.deleted} deletions"
        )

    def _buffer(self, case: Case, read: Reader) -> None:
        """A memoryview whose Py_buffer has the case's fields, and a format and an item size of its own."""
        form, itemsize = read.pick(_FORMATS), read.pick((case.itemsize, 1, 2, 4, 8, 16, 0, 3, 32))
        letter = form[1:] if form[:1] in "@=<" and form else form
        if letter in _LETTERS and not read.rarely():
            itemsize = np.dtype(_LETTERS[letter]).itemsize
        if not (0 <= case.ndim <= 64 and case.shape is not None and case.data) or itemsize < 0:
            return
        steps = [step * itemsize + (1 if read.rarely() else 0) for step in case.steps]
        if any(not -(2**63) <= number < 2**63 for number in [*steps, *case.extents]):
            return
        shape, strides = (ctypes.c_ssize_t * 64)(*case.extents), (ctypes.c_ssize_t * 64)(*steps)
        start = (case.data + case.byte_offset) % 2**64
        size = prod_or_0(case.extents) * itemsize
        given = PyBuffer(start, None, size % 2**63, itemsize, read.below(2), case.ndim, form.encode() or None)
        given.shape, given.strides = ctypes.addressof(shape), ctypes.addressof(strides)
        try:
            view = _view(ctypes.byref(given))
        except (ValueError, BufferError):
            return
        result = self._call(self.from_buffer, view)
        kind = _kind(letter if given.format else "B", itemsize)
        pairs = [(step, extent) for step, extent in zip(steps, case.extents, strict=True) if extent > 1]
        taken = (
            kind is not None
            and all(extent > 0 for extent in case.extents)
            and size < 2**63
            and start % itemsize == 0
            and start != 0
            and all(step >= 0 and step % itemsize == 0 for step, _ in pairs)
        )
        self.outcomes["buffer", taken] += 1
        assert (result is not None) is taken, f"{form!r} {itemsize} {steps}"
        if taken:
            assert result.ctypes.data == start
            assert list(result.shape) == case.extents
            assert result.dtype == kind
            assert result.flags.writeable is not bool(given.readonly)

    def _ndarray(self, case: Case, read: Reader) -> None:
        """An ndarray over the arena with the case's layout, moved by a few bytes."""
        if not (case.is_valid() and case.dtype[:2] in DTYPES and case.is_inside()):
            return
        array = case.expected()
        if read.rarely() and array.ndim:
            array = array[(slice(None, 0),)]
        if read.rarely():
            array = array.view(array.dtype.newbyteorder())
        array.flags.writeable = not read.rarely()
        usual = all(step >= 0 for step, extent in zip(array.strides, array.shape, strict=True) if extent > 1)
        taken = usual and array.size > 0 and array.flags.aligned and array.dtype.isnative
        for route, by_itemsize in ((self.from_array, False), (self.from_buffer, True)):
            result = self._call(route, array)
            aligned = not by_itemsize or array.ctypes.data % array.itemsize == 0
            assert (result is not None) is (taken and aligned)
            self.outcomes["ndarray", taken] += 1
            if result is not None:
                assert result.ctypes.data == array.ctypes.data
                assert result.flags.writeable is array.flags.writeable
                self._same(result, array)

    def _same(self, result: Any, expected: Any) -> None:
        assert result.shape == expected.shape
        assert result.tobytes() == expected.tobytes(), "other bytes"


def _kind(letter: str, itemsize: int) -> Any:
    """Return the dtype of a format and an item size, or None."""
    letters = {"f": "edf", "i": "bhilq", "u": "BHILQ", "b": "?"}
    code = next((code for code, group in letters.items() if letter in group and len(letter) == 1), "")
    code = "c" if letter in ("Zf", "Zd") else code
    name = {"b": "?"}.get(code, f"{code}{itemsize}")
    try:
        dtype = np.dtype(name) if code else None
    except TypeError:
        return None
    return dtype if dtype is not None and dtype.itemsize == itemsize and dtype in DTYPES.values() else None


def _span(tensor: Any) -> int:
    """Return the number of bytes from the first element of a compact tensor to its end."""
    return prod_or_0(tensor.shape[: tensor.ndim]) * tensor.bits // 8


def prod_or_0(extents: list[int]) -> int:
    """Return the product of extents, 0 if one is negative."""
    result = 1
    for extent in extents:
        result *= max(extent, 0)
    return result


def random_bytes(seed: int) -> bytes:
    """Return the input of a seed."""
    return Random(seed).randbytes(120)


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.native.fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=100_000, help="number of cases")
    parser.add_argument("--seed", type=int, default=0, help="the first seed; the others follow it")
    parser.add_argument("--replay", default="", help="run the input with these bytes in hexadecimal")
    options = parser.parse_args()
    if core is None:
        parser.error("the compiled core is missing: python hatch_build.py")
    fuzzer, findings, begin = Fuzzer(), 0, time.monotonic()
    inputs = [bytes.fromhex(options.replay)] if options.replay else None
    for i in range(options.seed, options.seed + (1 if inputs else options.count)):
        if i % 20_000 == 0:
            gc.collect()
            print(f"seeds from {i}: {time.monotonic() - begin:.0f} s", flush=True)
        data = inputs[0] if inputs else random_bytes(i)
        try:
            fuzzer.run(data)
        except AssertionError as error:
            findings += 1
            print(f"seed {i}, --replay {data.hex()}: {error}", flush=True)
            if findings == 20:
                break
    print(f"{findings} findings; {dict(fuzzer.outcomes)}")
    return 1 if findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
