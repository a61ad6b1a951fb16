"""One cell of the matrix: the outcome of converting one object to one framework."""

from __future__ import annotations

from dataclasses import dataclass, field

from zerocopy.errors import Reason


@dataclass(slots=True, kw_only=True)
class Cell:
    """The outcome of converting an object of one framework to another.

    Attributes
    ----------
    source, target : str
        The frameworks.
    outcome : str
        A key of :data:`zerocopy.cli.matrix.cell_style.STYLES`: ``"zero-copy"``, ``"copy"``,
        ``"empty"`` (a zero-size array, which shares and copies nothing), ``"encoded"`` or
        ``"masked"`` (refused by default, converted with options), ``"refused"``,
        ``"no source"`` (the source's framework cannot hold the data) or ``"broken"``.
    zero_copy : bool
        Whether every block of the result is in the source's memory.
    proof : list of str
        The evidence for `zero_copy`: ``"shares_memory"``; ``"address"``, both begin at the same
        address; ``"write"``, a value written to the source did (for a copy: did not) change the
        result. Empty for a query, whose memory cannot be inspected.
    protocol, copied_bytes : str, int
        From the plan.
    reasons : list of Reason
        Why it copies or is refused.
    warnings : list of str
        The plan's warnings and those that Python issued.
    broken : list of str
        The promises that do not hold, in words.
    """

    source: str
    target: str
    outcome: str = "broken"
    zero_copy: bool = False
    proof: list[str] = field(default_factory=list)
    protocol: str = ""
    copied_bytes: int = 0
    reasons: list[Reason] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
