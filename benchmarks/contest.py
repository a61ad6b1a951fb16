"""A contest: contenders are checked, and those that pass take turns."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.suite import Case, Entry
from benchmarks.timing import Pace, Raised, Statement, measure

Clock = Callable[[Mapping[str, Statement], Pace], Mapping[str, Any]]


def refusal(check: Callable[[], str]) -> str:
    """Return why a contender is left out: the text or the exception of its check; empty if it passes."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about read-only memory and legacy capsules
            return check()
    except Exception as error:  # noqa: BLE001 - any error is the result of the check
        return Raised.of(error).why


class Contest:
    """Cases whose contenders take turns with each other.

    Attributes
    ----------
    cases : list of Case
    """

    def __init__(self) -> None:
        self.cases: list[Case] = []
        self._able: dict[str, Statement] = {}
        self._entries: dict[str, Entry] = {}

    def case(self, name: str, figures: Mapping[str, float] | None = None) -> Case:
        """Add a case, and return it."""
        self.cases.append(Case(name, figures=dict(figures or {})))
        return self.cases[-1]

    def add(
        self,
        case: Case,
        label: str,
        role: str,
        statement: Statement | Callable[[], Statement],
        refused: str = "",
        note: str = "",
    ) -> None:
        """Add a contender to a case; one that is refused is not timed, and if it is zerocopy, a failure.

        A callable makes the statement: names of a contender that is refused may not exist.
        """
        entry = Entry(label, role, note=note, left_out=refused)
        case.entries.append(entry)
        if not refused:
            key = f"{case.name}: {label}"
            self._able[key] = statement() if callable(statement) else statement
            self._entries[key] = entry
        elif role == "ours":
            case.failed = case.failed or f"{label} {refused}"

    def time(self, pace: Pace, clock: Clock = measure) -> list[Case]:
        """Time the contenders in turns, and return the cases."""
        for key, timing in clock(self._able, pace).items():
            self._entries[key].timing = timing
        return self.cases
