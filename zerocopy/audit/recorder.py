"""``AuditRow`` and ``Recorder``: the calls of one audit, by place."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from types import FrameType
from typing import Any

from zerocopy import forks
from zerocopy._engine.recording import own_work
from zerocopy.audit.call_text import texts
from zerocopy.audit.check import AVOIDABLE, Verdict, check
from zerocopy.audit.hook import CopyCall
from zerocopy.protocols.exporter_errors import ignored_errors

#: The first calls of a place that are checked; after them, each call whose number is a multiple of it.
SAMPLED = 16


@dataclass(frozen=True, slots=True)
class AuditRow:
    """Calls of one framework's function at one place of the code.

    The first 16 calls of a place are checked, then each 16th. `bytes` and `seconds` are sums of the
    checked calls; they are not extrapolated.

    Attributes
    ----------
    file : str
        Path of the source file, or a name such as ``"<stdin>"``.
    line : int
        Line number of the call.
    function : str
        Qualified name of the calling function, ``"<module>"`` at the top level.
    call : str
        The source text of the call, such as ``"torch.tensor(features)"``; with ``x`` as argument if the
        text is unknown.
    kind : str
        ``"avoidable"``: it copied, and ``convert`` aliases. ``"needed"``: it copied, and ``convert`` would
        copy too, or return another type, dtype or shape. ``"alias"``: it shared memory.
    source, target : str
        Type of the argument, such as ``"numpy.ndarray"``, and framework of the result.
    calls, checked : int
        Number of calls at this place, of any kind, and number of checked calls.
    counted : int
        Number of checked calls of this kind, whose results have at least `min_bytes` bytes.
    bytes : int
        Bytes of the results of the counted calls.
    seconds : float
        Duration of the counted calls.
    fix : str
        The replacement: ``'zc.convert(features, to="torch")'``. Empty unless the copy is avoidable.
    why : str
        Why the copy is needed; empty for other kinds.

    Examples
    --------
    >>> AuditRow("train.py", 12, "main", "torch.tensor(x)", "avoidable", "numpy.ndarray", "torch", 1, 1,
    ...          1, 8, 0.1).place
    'train.py:12'
    """

    file: str
    line: int
    function: str
    call: str
    kind: str
    source: str
    target: str
    calls: int
    checked: int
    counted: int
    bytes: int
    seconds: float
    fix: str = ""
    why: str = ""

    @property
    def place(self) -> str:
        """The file and the line in the form ``file:line``."""
        return f"{self.file}:{self.line}"


@dataclass(slots=True)
class _Place:
    """One instruction that calls one function."""

    #: The code object, which is kept alive because its ``id`` is part of the key.
    code: Any = None
    calls: int = 0
    checked: int = 0
    #: Sums, by kind and type of the argument.
    rows: dict[tuple[str, str], AuditRow] = field(default_factory=dict)


@dataclass(frozen=True)
class FinishedCall:
    """A wrapped call, which has returned. Its verdict and its text are the same for all listeners."""

    #: The `id` of the calling code, its instruction, and the `id` of the wrapper.
    key: tuple[int, ...]
    call: CopyCall
    frame: FrameType
    source: Any
    result: Any
    options: dict[str, Any]
    seconds: float

    @cached_property
    def verdict(self) -> Verdict | None:
        """The verdict; None if the argument is not an array, or has no memory."""
        with ignored_errors(), own_work(hides_all=True):  # tracers and other objects without memory raise
            return check(self.call, self.source, self.result, self.options)
        return None

    def texts(self, options: str) -> tuple[str, str, str]:
        """Return the call, its argument, and the call of ``convert``, while the frame runs the call."""
        text, argument = texts(self.frame, self.call, self.source)
        return text, argument, f'zc.convert({argument}, to="{self.call.to}"{options})'


class Recorder:
    """Listener of the wrappers that adds up the copies of each line."""

    #: Whether `check` can raise an error; other listeners then have the call first.
    raises = False

    def __init__(self, min_bytes: int) -> None:
        self.min_bytes = min_bytes
        self._places: dict[tuple[int, ...], _Place] = {}
        self._lock = forks.lock()

    def wants(self, key: tuple[int, ...]) -> bool:
        """Count a call, and return whether to check it."""
        with self._lock:
            place = self._places.setdefault(key, _Place())
            place.calls += 1
            return place.calls <= SAMPLED or place.calls % SAMPLED == 0

    def check(self, finished: FinishedCall) -> None:
        """Add a call, with its verdict if its result has enough bytes and can be checked."""
        known = getattr(finished.result, "nbytes", None)
        is_small = isinstance(known, int) and known < self.min_bytes
        verdict = None if is_small else finished.verdict
        self.add(finished, verdict if verdict is not None and verdict.nbytes >= self.min_bytes else None)

    def add(self, finished: FinishedCall, verdict: Verdict | None) -> None:
        """Add a call to the rows of its place."""
        place, frame = self._places[finished.key], finished.frame
        with self._lock:
            place.code = frame.f_code
            place.checked += 1
        if verdict is None:
            return
        group = verdict.kind, verdict.source
        if (new := place.rows.get(group)) is None:
            (text, _, fix), code = finished.texts(verdict.options), frame.f_code
            line = code.co_filename, frame.f_lineno, code.co_qualname, text
            fix = fix if verdict.kind == AVOIDABLE else ""
            new = AuditRow(*line, *group, finished.call.to, 0, 0, 0, 0, 0.0, fix, verdict.why)
        with self._lock:
            row = place.rows.get(group, new)
            nbytes, seconds = row.bytes + verdict.nbytes, row.seconds + finished.seconds
            place.rows[group] = replace(row, counted=row.counted + 1, bytes=nbytes, seconds=seconds)

    def rows(self) -> list[AuditRow]:
        """Return the rows of all places, most bytes first."""
        with self._lock:
            rows = [
                replace(row, calls=place.calls, checked=place.checked)
                for place in self._places.values()
                for row in place.rows.values()
            ]
        return sorted(rows, key=lambda row: (-row.bytes, row.file, row.line))
