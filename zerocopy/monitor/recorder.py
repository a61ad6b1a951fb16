"""``Recorder``: counts the conversions of this process, by call site and pair of types."""

from __future__ import annotations

import concurrent.futures.thread
import os
import sys
import threading
from operator import add
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import zerocopy
from zerocopy import forks
from zerocopy._engine.explain import explain
from zerocopy._engine.fixes import resolve_fixes
from zerocopy._engine.recording import ALIASED, COPIED, KINDS, REFUSED
from zerocopy._engine.routes import record_to
from zerocopy.monitor.conversion import ConversionRow, sort

#: A call site and a pair: the `id` of the calling code, its instruction, and the names of the types.
_Key = tuple[int, int, tuple[str, str]]
_Counts = tuple[int, ...]
#: The codes are kept alive, so that no other code has their `id`.
_Totals = dict[_Key, tuple[CodeType | None, _Counts]]
#: The kinds of calls, in the order of `recording.KINDS`, then sums.
_COUNTS = (
    *("aliased_calls", "copied_calls", "unchanged_calls", "refused_calls", "empty_calls"),
    *("aliased_bytes", "copied_bytes", "unmeasured_calls", "nanoseconds"),
)
_ZERO: _Counts = (0,) * len(_COUNTS)
_ONE_CALL = tuple(tuple(int(kind == each) for each in KINDS) for kind in KINDS)

_PACKAGE = str(Path(zerocopy.__file__).parent) + os.sep
#: Files that call the functions of threads, and modules that the interpreter runs: no call sites.
_SKIPPED = (threading.__file__, concurrent.futures.thread.__file__, "<frozen ")


class Counters:
    """The counts of all recorders, from the start of the first one to the end of the last one."""

    #: Calls at further sites are counted without the site.
    MAX_SITES = 4096
    #: Calls with further pairs are counted as `OTHERS`: a program that creates types in a loop has many.
    MAX_PAIRS = 2048
    OTHERS = ("", "")

    def __init__(self) -> None:
        #: Whether call sites and durations are recorded from now on.
        self.has_sites = False
        #: The newest reason of a copy, a slow alias or a refusal: why, fix, code.
        self.reasons: dict[_Key, tuple[str, str, str]] = {}
        self._lock = forks.lock()
        self.start_again()

    def start_again(self) -> None:
        """Count from zero, in a forked child too."""
        self.reasons = {}
        self._totals: _Totals = {}
        self._pairs: set[tuple[str, str]] = set()

    def record_call(
        self, pair: tuple[str, str], kind: int, aliased: int, copied: int, unmeasured: bool, nanoseconds: int
    ) -> tuple[_Key, bool]:
        """Add a call; return its key in `reasons`, and whether to sample the reason."""
        code, instruction = site() if self.has_sites else (None, -1)
        call = *_ONE_CALL[kind], aliased, copied, int(unmeasured), nanoseconds * self.has_sites
        with self._lock:
            if pair not in self._pairs:
                if len(self._pairs) < self.MAX_PAIRS:
                    self._pairs.add(pair)
                else:
                    pair = self.OTHERS
            key = id(code), instruction, pair
            if key not in self._totals and len(self._totals) >= self.MAX_SITES:
                code, key = None, (id(None), -1, pair)
            _, before = self._totals.get(key, (None, _ZERO))
            counts = _sum(before, call)
            self._totals[key] = code, counts  # one store, so that an interrupted call is counted or not
        number = counts[kind] if kind in (COPIED, ALIASED) else 0
        return key, number > 0 and not number & (number - 1)

    def totals(self) -> _Totals:
        """Return the counts by call site and pair."""
        with self._lock:
            return self._totals.copy()


def site() -> tuple[CodeType | None, int]:
    """Return the first frame outside of zerocopy, or the last one in it with the instruction -1."""
    frame: FrameType | None = sys._getframe(1)
    own = None
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_PACKAGE):
            own = frame.f_code
        elif not file.startswith(_SKIPPED):
            return frame.f_code, frame.f_lasti
        frame = frame.f_back
    return own, -1


_lock = forks.lock()
_recorders: list[Recorder] = []
_counters = Counters()


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
            is_first, active = not _recorders, _counters
            self._start = active.totals()
            _recorders.append(self)
            _set_sites()
            if is_first:
                record_to(active, explain, resolve_fixes)

    def stop(self) -> None:
        """Stop counting; `rows` keeps its result. Does nothing if it is not started."""
        global _counters
        with _lock:
            if self not in _recorders:
                return
            self._rows = self._difference()
            self._start = {}
            _recorders.remove(self)
            _set_sites()
            if not _recorders:
                record_to(None)
                _counters = Counters()

    def rows(self) -> list[ConversionRow]:
        """Return the conversions since the start, those that copied the most bytes first."""
        with _lock:
            return self._difference() if self in _recorders else list(self._rows)

    def _difference(self) -> list[ConversionRow]:
        changed: list[tuple[CodeType | None, _Key, _Counts]] = []
        for key, (code, counts) in _counters.totals().items():
            _, before = self._start.get(key, (None, _ZERO))
            difference = tuple(now - then for now, then in zip(counts, before, strict=True))
            if any(difference):
                changed.append((code, key, difference))
        return _rows(changed, self.sites)


def _set_sites() -> None:
    _counters.has_sites = any(recorder.sites for recorder in _recorders)


def _sum(a: _Counts, b: _Counts) -> _Counts:
    return tuple(map(add, a, b))


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
        reason = _counters.reasons.get(key)
        if reason is None:
            continue
        is_alias = reason[2] == "strided-alias"
        if difference[ALIASED] if is_alias else difference[COPIED] or difference[REFUSED]:
            reasons[subject] = reason
    rows = [_row(*each, sites, *reasons.get(each[0], ("", "", ""))) for each in counts.items()]
    return sort(sorted(rows, key=lambda row: (row.file, row.line, row.target, row.source)))


def _row(subject: _Subject, counts: _Counts, sites: bool, why: str, fix: str, code: str) -> ConversionRow:
    values: dict[str, Any] = dict(zip(_COUNTS, counts, strict=True))
    nanoseconds = values.pop("nanoseconds")
    seconds = nanoseconds / 1e9 if sites else None
    calls = sum(counts[: len(KINDS)])
    return ConversionRow(*subject, calls, **values, seconds=seconds, why=why, fix=fix, code=code)


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
    _counters.start_again()
    for recorder in _recorders:
        recorder._start = {}


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_again)
