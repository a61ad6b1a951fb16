"""Writes to immutable memory: aliases of it are compared with checksums that were made at the conversion.

A `Watcher` replaces the ndarray from which a target makes such an alias by one over the same memory that
keeps a `_Watched`. The alias and all of its views keep it too, so it is dropped, and compares, just before
the memory is. Pages of shared memory are made read-only instead, so that a write raises SIGSEGV.
"""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import mmap
import os
import sys
import threading
import zlib
from array import array as integers
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from zerocopy import handover
from zerocopy._engine.containers import format_path, map_leaves
from zerocopy._engine.memory import view
from zerocopy._engine.recording import write_fix
from zerocopy.formatting import printable
from zerocopy.monitor.conversion import short_path
from zerocopy.monitor.recorder import place_of, site
from zerocopy.protocols.array_interface import WritableInterface, address, span
from zerocopy.protocols.exporter_errors import ignored_errors
from zerocopy.source import Array, Source
from zerocopy.tables.result import result_leaves

#: Bytes of a checksum: small arrays have exact ranges, and large ones short lists of checksums.
_LEAST, _MOST, _BLOCKS = 64, 1 << 16, 4096
_readonly_mappings: WeakValueDictionary[int, Any] = WeakValueDictionary()


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes of immutable memory that changed while the result of a conversion aliased them.

    Attributes
    ----------
    file, line, function : str, int, str
        The line of code of the conversion, as in `ConversionRow`.
    source : str
        Type, dtype and shape of the memory's owner, such as ``"pandas.Series float64 (3,)"``.
    target : str
        Framework of the result.
    nbytes : int
        Bytes of the alias.
    path : str
        Index expression of the alias in the result, such as ``"['km']"``; ``""`` for the whole.
    ranges, rows : tuple of (int, int)
        First byte, and byte after the last, of each part that changed, and the same in rows. A part consists
        of blocks of 64 bytes, or of 1/4096 of the alias if that is more, up to 64 KiB.
    fix : str
        What to change in the program.

    Examples
    --------
    >>> print(Write("train.py", 3, "main", "bytes uint8 (80,)", "torch", 80, "", ((64, 80),), ((64, 80),)))
    train.py:3 main: bytes uint8 (80,) is immutable, but torch aliases it
      changed: bytes 64 to 79 of 80 (rows 64 to 79)
      fix: ...
    """

    file: str
    line: int
    function: str
    source: str
    target: str
    nbytes: int
    path: str = ""
    ranges: tuple[tuple[int, int], ...] = ()
    rows: tuple[tuple[int, int], ...] = ()
    fix: str = "pass writable=True to this conversion, or write to a copy of its result"

    def __str__(self) -> str:
        place = f"{short_path(self.file)}:{self.line} " * bool(self.file)
        at = f" at {self.path}" if self.path else ""
        rows = f" (rows {_text(self.rows)})" if self.rows else ""
        return printable(
            f"{place}{self.function}: {self.source}{at} is immutable, but {self.target} aliases it\n"
            f"  changed: bytes {_text(self.ranges)} of {self.nbytes:,}{rows}\n"
            f"  fix: {self.fix}",
            "\n",
        )


def _text(ranges: tuple[tuple[int, int], ...]) -> str:
    first, *others = [f"{first:,} to {stop - 1:,}" for first, stop in ranges]
    return f"{first} and {len(others):,} more range{'s' * (len(others) > 1)}" if others else first


class Watcher:
    """Finds the writes to aliases that conversions make from now on until `stop`."""

    def __init__(self) -> None:
        self.watched: WeakValueDictionary[int, _Watched] = WeakValueDictionary()
        self.changes: list[Write] = []
        self._new = threading.local()
        self._pid = os.getpid()
        if not faulthandler.is_enabled():
            with ignored_errors():  # standard error is closed, or has no descriptor
                faulthandler.enable(sys.__stderr__ or 2)
        atexit.register(self.report)
        handover.watchers.append(self)

    def alias(self, array: Array, source: Source, target: str) -> Array:
        """Return an ndarray of the same memory that is watched until it and its views are dropped."""
        fix = write_fix.get()
        if fix is None or array.dtype.hasobject or not array.nbytes or _protects(array) or _is_file(array):
            return array
        write = Write(*place_of(*site()), source.summary, target, array.nbytes)
        watched = _Watched(self, array, replace(write, fix=fix or write.fix))
        self.watched[id(watched)] = watched
        self._new.__dict__.setdefault("keys", []).append(id(watched))
        result = np.asarray(watched).view(array.dtype)
        result.flags.writeable = array.flags.writeable
        return result

    def name(self, result: object) -> None:
        """Set the paths of the aliases that a conversion on this thread has made, from its result."""
        keys = self._new.__dict__.pop("keys", ())
        new = {address(each.array): each for each in map(self.watched.get, keys) if each is not None}

        def visit(leaf: object, path: Any) -> None:
            for place, each in result_leaves(leaf, format_path(path)):
                with ignored_errors():  # a leaf without memory
                    if new and place and (watched := new.get(view(each).ptr)) is not None:
                        watched.write = replace(watched.write, path=place)

        with ignored_errors():  # a result that is not a container
            map_leaves(result, visit, lambda container, keys, values: None)

    def writes(self) -> list[Write]:
        """Compare all aliases in use, and return all writes until now."""
        for watched in _alive(self.watched):
            watched.compare()
        return [*self.changes]

    def stop(self) -> None:
        """Compare all aliases in use; those that are dropped later are not compared."""
        handover.watchers.remove(self)
        if not handover.watchers:
            for mapping in _alive(_readonly_mappings):
                _protect(mapping, mmap.PROT_READ | mmap.PROT_WRITE)
        atexit.unregister(self.report)
        self.writes()
        self.watched.clear()

    def report(self) -> None:
        """Stop, and print the writes to standard error; a forked child leaves that to its parent."""
        self.stop()
        if self._pid == os.getpid():
            for each in self.changes or ("no writes to immutable memory through aliases that zerocopy made",):
                print(f"zerocopy monitor: {each}", file=sys.stderr)


def _alive(objects: WeakValueDictionary[int, Any]) -> list[Any]:
    return [each for each in (reference() for reference in objects.valuerefs()) if each is not None]


def _protects(array: Array) -> bool:
    """Whether the memory is a private mapping of a shared object, whose pages are read-only from now on."""
    reading = sys.modules.get("zerocopy.shared.reading")
    mapping = None if reading is None else reading.addresses.find(*span(array))
    if reading is None or not isinstance(mapping, reading.Mapping):
        return False
    _readonly_mappings[id(mapping)] = mapping
    done = _protect(mapping, mmap.PROT_READ)
    if done and not handover.watchers:  # the last one has stopped on another thread
        _protect(mapping, mmap.PROT_READ | mmap.PROT_WRITE)
    return done


def _is_file(array: Array) -> bool:
    """Whether the memory is mapped from a file: a comparison after the file was truncated raises SIGBUS."""
    first, _ = span(array)
    with suppress(OSError), open("/proc/self/maps", "rb") as maps:
        for line in maps:
            addresses, _, _, _, inode, *name = line.split(maxsplit=5)
            start, stop = (int(text, 16) for text in addresses.split(b"-"))
            if start <= first < stop:
                return inode != b"0" and not name[0].startswith(b"/memfd:")  # which are sealed
    return False


def _protect(mapping: Any, access: int) -> bool:
    mprotect = ctypes.CDLL(None).mprotect
    return not mprotect(ctypes.c_void_p(mapping.address), ctypes.c_size_t(mapping.length), access)


class _Watched(WritableInterface):
    """An alias with checksums of its values: of `_block` bytes each, which are `_step` values or rows."""

    def __init__(self, watcher: Watcher, array: Array, write: Write) -> None:
        super().__init__(array)  # writable: a program that sets the flag of an alias can still do so
        self._watcher, self.write, self.base = watcher, write, array
        # Without repetitions. The index () would copy the element of an array without dimensions.
        parts = tuple(slice(None if step else 1) for step in array.strides)
        values = array[parts] if parts else array.reshape(1)
        self._row = values.nbytes // len(values) if array.ndim else 0
        self._values = values.reshape(-1) if values.flags.c_contiguous else values
        self._nbytes, width = values.nbytes, values.nbytes // len(self._values)
        self._step = max(1, min(max(values.nbytes // _BLOCKS, _LEAST), _MOST) // width)
        self._block = self._step * width
        self._sums = self._checksums()

    def _checksums(self) -> integers[int]:
        parts = (self._values[i : i + self._step] for i in range(0, len(self._values), self._step))
        return integers("L", (zlib.crc32(part.tobytes()) for part in parts))

    def compare(self) -> None:
        """Add the bytes that changed since the last comparison to the writes of the watcher."""
        before, self._sums = self._sums, self._checksums()
        known, ranges = self._watcher.changes, list[tuple[int, int]]()
        for i, (old, new) in enumerate(zip(before, self._sums, strict=True)):
            if old != new:
                start = ranges.pop()[0] if ranges and ranges[-1][1] == i * self._block else i * self._block
                ranges.append((start, min((i + 1) * self._block, self._nbytes)))
        if ranges:
            rows = tuple((first // self._row, -(-stop // self._row)) for first, stop in ranges if self._row)
            changed = replace(self.write, ranges=tuple(ranges), rows=rows)
            if len(known) < _BLOCKS and changed not in known:
                known.append(changed)

    def __del__(self) -> None:
        with ignored_errors():  # at the end of the interpreter, modules are gone
            if id(self) in self._watcher.watched:
                self.compare()
