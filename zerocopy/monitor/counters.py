"""``Counters``: the counts of recorded conversions in Python, for installations without the compiled core."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from zerocopy import forks
from zerocopy._engine.recording import capsule_bytes

Route = Callable[[Any], Any]
Pair = tuple[str, str]
#: The code object of the caller, or None, and the offset of its instruction.
Site = tuple[CodeType | None, int]

#: Further call sites are counted without the site, as in the core.
MAX_SITES = 4096
MAX_ENTRIES = 7168

#: The counts of a pair at a site: five kinds of calls, then sums.
COUNTS = (
    *("aliased_calls", "copied_calls", "unchanged_calls", "refused_calls", "empty_calls"),
    *("aliased_bytes", "copied_bytes", "unmeasured_calls", "nanoseconds"),
)
CALL_KINDS = 5
#: Their positions.
ALIASED, COPIED, UNCHANGED, REFUSED, EMPTY, ALIASED_BYTES, COPIED_BYTES, UNMEASURED, NANOSECONDS = range(9)


class _Outcome(threading.local):
    """The bytes of the outermost conversion on a thread, so far: depth, aliased, copied, unchanged."""

    value: tuple[int, int, int, bool] = (0, 0, 0, False)


class Counters:
    """The functions of the compiled core that record conversions, with the same results."""

    def __init__(self) -> None:
        self._lock = forks.lock()
        self._outcome = _Outcome()
        self._entries: dict[tuple[int, int, Pair], tuple[Site, list[int]]] | None = None
        self._has_sites = False
        self._package: str = ""
        self._skipped: tuple[str, ...] = ()

    # -- the running conversion ---------------------------------------------------

    def outcome(self) -> tuple[int, int, int, bool]:
        """Return (depth, aliased, copied, unchanged) of this thread."""
        return self._outcome.value

    def set_outcome(self, depth: int, aliased: int, copied: int, unchanged: bool) -> None:
        """Set what `outcome` returns."""
        self._outcome.value = depth, aliased, copied, unchanged

    def add_bytes(self, aliased: int, copied: int) -> None:
        """Add bytes to the running conversion."""
        depth, before, copied_before, unchanged = self._outcome.value
        self._outcome.value = depth, before + aliased, copied_before + copied, unchanged

    def capsule_bytes(self, capsule: Any) -> int:
        """Return the bytes of an unconsumed DLPack capsule's elements."""
        return capsule_bytes(capsule)

    # -- routes ---------------------------------------------------------------------

    def RecordedRoute(self, route: Route, pair: Pair, sample: Callable[..., None]) -> Route:
        """Return a function that runs a route and records its outermost calls."""
        local = self._outcome

        def recorded(obj: Any) -> Any:
            before = local.value
            depth, aliased, copied, unchanged = before if before[0] else (0, 0, 0, False)
            local.value = depth + 1, aliased, copied, unchanged
            start = time.perf_counter_ns()
            try:
                result = route(obj)
                if result is obj:
                    local.value = depth + 1, aliased, copied, True
                if not depth:
                    elapsed = time.perf_counter_ns() - start
                    *site, takes_sample = self.record_call(pair, result is obj, False, False, elapsed)
                    if takes_sample:
                        sample(obj, *site)
            except BaseException:
                local.value = before  # a failed conversion adds no bytes
                raise
            local.value = (depth, *local.value[1:]) if depth else (0, 0, 0, False)
            return result

        return recorded

    # -- records --------------------------------------------------------------------

    def start_recording(self, package: str, skipped: tuple[str, ...]) -> None:
        """Record conversions, or continue; files whose names begin with these texts have no call sites."""
        with self._lock:
            self._package, self._skipped = package, skipped
            self._entries = {} if self._entries is None else self._entries

    def stop_recording(self) -> None:
        """Record nothing, and drop what was recorded."""
        with self._lock:
            self._entries, self._has_sites = None, False

    def set_sites(self, flag: bool) -> None:
        """Set whether call sites and durations are recorded from now on."""
        self._has_sites = flag

    def reset_records(self) -> None:
        """Set all counts to zero, in a forked child."""
        for _, counts in (self._entries or {}).values():
            counts[:] = [0] * len(counts)

    def record_call(
        self, pair: Pair, same: bool, refused: bool, unmeasured: bool, nanoseconds: int
    ) -> tuple[CodeType | None, int, bool]:
        """Record the bytes of `outcome`; return the call site, and whether to sample the reason."""
        _, aliased, copied, unchanged = self._outcome.value
        if refused or same:
            aliased = copied = 0
            kind = REFUSED if refused else UNCHANGED
        else:
            kind = COPIED if copied else ALIASED if aliased else UNCHANGED if unchanged else EMPTY
        code, instruction = self._site() if self._has_sites else (None, -1)
        with self._lock:
            site, counts = self._entry(code, instruction, pair)
            counts[kind] += 1
            counts[ALIASED_BYTES] += aliased
            counts[COPIED_BYTES] += copied
            counts[UNMEASURED] += unmeasured
            counts[NANOSECONDS] += nanoseconds if self._has_sites else 0
            number = counts[COPIED] if kind == COPIED else 0
        return *site, number > 0 and not number & (number - 1)

    def recorded(self) -> list[tuple[CodeType | None, int, Pair, tuple[int, ...]]]:
        """Return a list of (code, instruction, pair, counts)."""
        with self._lock:
            entries = list((self._entries or {}).items())
            return [(*site, key[2], tuple(counts)) for key, (site, counts) in entries]

    def _entry(self, code: CodeType | None, instruction: int, pair: Pair) -> tuple[Site, list[int]]:
        """Return the entry of a key, created if there is room. The caller holds the lock."""
        entries = self._entries
        unkept: tuple[Site, list[int]] = (None, -1), [0] * 9
        if entries is None:
            return unkept
        entry = entries.get((id(code), instruction, pair))  # by id: comparing code objects takes long
        if entry is None:
            if code is not None and len(entries) >= MAX_SITES:
                return self._entry(None, -1, pair)
            if len(entries) >= MAX_ENTRIES:
                return unkept
            entry = entries[id(code), instruction, pair] = ((code, instruction), [0] * 9)
        return entry

    def _site(self) -> Site:
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
