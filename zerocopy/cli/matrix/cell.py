"""One cell of the matrix: the outcome of converting one object to one framework."""

from __future__ import annotations

from dataclasses import dataclass, field

from zerocopy.errors import Reason


@dataclass(slots=True, kw_only=True)
class Cell:
    """The outcome of converting an object of the framework `source` to the framework `target`.

    `proof` has the evidence for `zero_copy`: ``"shares_memory"``; ``"address"``, both begin at the
    same address; ``"write"``, the result was read after a write to the source. It is empty for a
    query, whose memory cannot be inspected.
    """

    source: str
    target: str
    outcome: str = "broken"  # a key of cell_style.STYLES
    zero_copy: bool = False  # whether every block of the result is in the source's memory
    proof: list[str] = field(default_factory=list)
    protocol: str = ""
    copied_bytes: int = 0
    reasons: list[Reason] = field(default_factory=list)  # why it copies or is refused
    warnings: list[str] = field(default_factory=list)  # the plan's, and those that Python issued
    broken: list[str] = field(default_factory=list)  # the promises that do not hold, in words
