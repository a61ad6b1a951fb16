"""``Recorder``: counts the conversions of this process, by call site and pair of types."""

from __future__ import annotations

import concurrent.futures.thread
import os
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import zerocopy
from zerocopy import forks
from zerocopy._engine import recording
from zerocopy._engine.explain import explain
from zerocopy._engine.routes import record_to
from zerocopy._native import core
from zerocopy.monitor.conversion import ConversionRow, sort

#: A call site and a pair: the `id` of the calling code, its instruction, and the names of the types.
_Key = tuple[int, int, tuple[str, str]]
_Counts = tuple[int, ...]
#: The codes are kept alive, so that no other code has their `id`.
_Totals = dict[_Key, tuple[CodeType | None, _Counts]]
#: Five kinds of calls, then sums.
_COUNTS = (
    *("aliased_calls", "copied_calls", "unchanged_calls", "refused_calls", "empty_calls"),
    *("aliased_bytes", "copied_bytes", "unmeasured_calls", "nanoseconds"),
)
_ALIASED, _COPIED, _UNCHANGED, _REFUSED, _EMPTY = range(5)
_ZERO: _Counts = (0,) * len(_COUNTS)

_PACKAGE = str(Path(zerocopy.__file__).parent) + os.sep
#: Files that call the functions of threads, and modules that the interpreter runs: no call sites.
_SKIPPED = (threading.__file__, concurrent.futures.thread.__file__, "<frozen ")


class Counters:
    """Counts in Python the conversions of the slow path, which are all of them without the compiled core.

    The core has functions of these names and results, and counts the calls of its routes too.
    """

    #: Further call sites are counted without the site.
    MAX_SITES = 4096

    def __init__(self) -> None:
        self._lock = forks.lock()
        self._local = threading.local()
        self._entries: dict[Any, tuple[CodeType | None, list[int]]] | None = None
        self._has_sites = False
        self._package = ""
        self._skipped: tuple[str, ...] = ()

    # A route that is composed while the first recorder starts is dropped, and counts nothing.

    def add_bytes(self, aliased: int, copied: int) -> None:
        """Do nothing."""

    def capsule_bytes(self, capsule: Any) -> int:
        """Return 0."""
        return 0

    def outcome(self) -> tuple[int, int, int, bool]:
        """Return the depth, aliased and copied bytes and unchanged leaves of this thread's conversion."""
        return getattr(self._local, "outcome", (0, 0, 0, False))

    def set_outcome(self, *outcome: Any) -> None:
        """Set what `outcome` returns."""
        self._local.outcome = outcome

    def start_recording(self, package: str, skipped: tuple[str, ...]) -> None:
        """Record conversions; files whose names begin with these texts are not call sites."""
        self._package, self._skipped = package, skipped
        self._entries = {}

    def stop_recording(self) -> None:
        """Record nothing, and drop what was recorded."""
        self._entries, self._has_sites = None, False

    def set_sites(self, flag: bool) -> None:
        """Set whether call sites and durations are recorded from now on."""
        self._has_sites = flag

    def reset_records(self) -> None:
        """Set all counts to zero, in a forked child."""
        if self._entries is not None:
            self._entries = {}

    def record_call(
        self, pair: tuple[str, str], same: bool, refused: bool, unmeasured: bool, nanoseconds: int
    ) -> tuple[CodeType | None, int, bool]:
        """Record the bytes of `outcome`; return the call site, and whether to sample the reason."""
        _, aliased, copied, unchanged = self.outcome()
        if refused or same:
            aliased = copied = 0
            kind = _REFUSED if refused else _UNCHANGED
        else:
            kind = _COPIED if copied else _ALIASED if aliased else _UNCHANGED if unchanged else _EMPTY
        code, instruction = self._site() if self._has_sites else (None, -1)
        with self._lock:
            entries = {} if self._entries is None else self._entries
            if len(entries) >= self.MAX_SITES and (id(code), instruction, pair) not in entries:
                code, instruction = None, -1
            _, counts = entries.setdefault((id(code), instruction, pair), (code, list(_ZERO)))
            counts[kind] += 1
            seconds = nanoseconds if self._has_sites else 0
            counts[5:] = [
                x + y for x, y in zip(counts[5:], (aliased, copied, unmeasured, seconds), strict=True)
            ]
            number = counts[kind] if kind in (_COPIED, _ALIASED) else 0
        return code, instruction, number > 0 and not number & (number - 1)

    def recorded(self) -> list[tuple[CodeType | None, int, tuple[str, str], tuple[int, ...]]]:
        """Return a list of (code, instruction, pair, counts)."""
        with self._lock:
            entries = (self._entries or {}).items()
            return [(code, key[1], key[2], tuple(counts)) for key, (code, counts) in entries]

    def _site(self) -> tuple[CodeType | None, int]:
        """Return the first frame outside of zerocopy, or the last one in it with the instruction -1."""
        frame: FrameType | None = sys._getframe(1)
        own = None
        while frame is not None:
            file = frame.f_code.co_filename
            if file.startswith(self._package):
                own = frame.f_code
            elif not file.startswith(self._skipped):
                return frame.f_code, frame.f_lasti
            frame = frame.f_back
        return own, -1


_lock = forks.lock()
_recorders: list[Recorder] = []
_counters: Any = core if core is not None else Counters()


class Recorder:
    """Counts the conversions of this process while it is started.

    Several recorders can be started at once: each has the conversions since its own start. While none is
    started, conversions run no recording code. The child of a fork starts from zero.

    Parameters
    ----------
    sites : bool, optional
        Whether to record the calling line of code and the duration. False takes less time, and gives
        one row per pair of types.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> recorder = Recorder()
    >>> recorder.start()
    >>> _ = zc.convert(memoryview(bytes(8)), "numpy")
    >>> _ = zc.convert(memoryview(bytes(8)), "numpy", copy=True)
    >>> recorder.stop()
    >>> for row in recorder.rows():
    ...     print(row.source, row.target, row.aliased_bytes, row.copied_bytes, row.why)
    memoryview numpy 0 8 copy=True was passed
    memoryview numpy 8 0
    """

    def __init__(self, sites: bool = True) -> None:
        self.sites = sites
        self._start: _Totals = {}
        self._rows: list[ConversionRow] = []

    def start(self) -> None:
        """Start counting from zero; does nothing if it is started already."""
        with _lock:
            if self in _recorders:
                return
            is_first = not _recorders
            if is_first:
                _counters.start_recording(_PACKAGE, _SKIPPED)
            self._start = _totals()
            _recorders.append(self)
            _set_sites()
            if is_first:
                record_to(_counters, explain)

    def stop(self) -> None:
        """Stop counting; `rows` keeps its result. Does nothing if it is not started."""
        with _lock:
            if self not in _recorders:
                return
            self._rows = self._difference()
            self._start = {}
            _recorders.remove(self)
            _set_sites()
            if not _recorders:
                record_to(None, None)
                _counters.stop_recording()

    def rows(self) -> list[ConversionRow]:
        """Return the conversions since the start, those that copied the most bytes first."""
        with _lock:
            return self._difference() if self in _recorders else list(self._rows)

    def _difference(self) -> list[ConversionRow]:
        changed: list[tuple[CodeType | None, _Key, _Counts]] = []
        for key, (code, counts) in _totals().items():
            _, before = self._start.get(key, (None, _ZERO))
            difference = tuple(now - then for now, then in zip(counts, before, strict=True))
            if any(difference):
                changed.append((code, key, difference))
        return _rows(changed, self.sites)


def _set_sites() -> None:
    _counters.set_sites(any(recorder.sites for recorder in _recorders))


def _totals() -> _Totals:
    totals: _Totals = {}
    for code, instruction, pair, counts in _counters.recorded():
        key = id(code), instruction, pair
        # A route from an earlier recording can hold an equal pair at another address.
        _, others = totals.get(key, (None, _ZERO))
        totals[key] = code, _sum(others, counts)
    return totals


def _sum(a: _Counts, b: Iterable[int]) -> _Counts:
    return tuple(x + y for x, y in zip(a, b, strict=True))


# -- rows ----------------------------------------------------------------------------


#: The key of a row: file, line, function, source, target.
_Subject = tuple[str, int, str, str, str]


def _rows(changed: list[tuple[CodeType | None, _Key, _Counts]], sites: bool) -> list[ConversionRow]:
    """Return one row for each line and pair; several instructions of one line are one row."""
    counts: dict[_Subject, _Counts] = {}
    reasons: dict[_Subject, tuple[str, str, str]] = {}
    for code, key, difference in changed:
        _, instruction, pair = key
        file, line, function = place_of(code, instruction) if sites else ("", 0, "")
        subject = file, line, function, *pair
        counts[subject] = _sum(counts.get(subject, _ZERO), difference)
        reason = recording.reasons.get(key)
        if reason is None:
            continue
        is_alias = reason[2] == "strided-alias"
        if difference[_ALIASED] if is_alias else difference[_COPIED] or difference[_REFUSED]:
            reasons[subject] = reason
    rows = [_row(*each, sites, *reasons.get(each[0], ("", "", ""))) for each in counts.items()]
    return sort(sorted(rows, key=lambda row: (row.file, row.line, row.target, row.source)))


def _row(subject: _Subject, counts: _Counts, sites: bool, why: str, fix: str, code: str) -> ConversionRow:
    values: dict[str, Any] = dict(zip(_COUNTS, counts, strict=True))
    nanoseconds = values.pop("nanoseconds")
    seconds = nanoseconds / 1e9 if sites else None
    return ConversionRow(*subject, sum(counts[:5]), **values, seconds=seconds, why=why, fix=fix, code=code)


def place_of(code: CodeType | None, instruction: int) -> tuple[str, int, str]:
    """Return the file, the line and the function of an instruction.

    A thread of zerocopy has no caller: the file is empty, and the function names the part of zerocopy.
    """
    if code is None:
        return "", 0, ""
    if code.co_filename.startswith(_PACKAGE):
        part = code.co_filename[len(_PACKAGE) :].partition(os.sep)[0]
        return "", 0, "zerocopy.loader" if part == "loading" else f"zerocopy.{part.removesuffix('.py')}"
    for first, end, line in code.co_lines():
        if first <= instruction < end and line is not None:
            return code.co_filename, line, code.co_qualname
    return code.co_filename, code.co_firstlineno, code.co_qualname


# -- forks ---------------------------------------------------------------------------


def _start_again() -> None:
    """Count from zero in a forked child."""
    _counters.reset_records()
    for recorder in _recorders:
        recorder._start = {}
    recording.reasons = {}


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_again)
