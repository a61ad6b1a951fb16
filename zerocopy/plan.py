"""``Plan``: how one conversion will run, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from zerocopy.errors import Reason, ZeroCopyError


@dataclass(slots=True, eq=False)
class Plan:
    """How one conversion will run, and why.

    Attributes
    ----------
    source, target : str
        Short texts for the object and the target.
    possible : bool
        Whether :func:`zerocopy.convert` would succeed; if not, `reasons` has the reason.
    zero_copy : bool
        Whether the result will share memory with the source. False for a
        zero-size array, which has no memory to share or copy.
    copied_bytes : int
        Number of bytes to copy, transfers between devices included.
    new_bytes : int
        Number of bytes of new memory that hold no values of the source, such as a mask for a
        column without nulls.
    protocol : str
        The protocol that exports the memory: ``"dlpack"``, ``"buffer"``, ...
    steps : tuple of str
        The steps of the conversion, in order.
    reasons : tuple of Reason
        Why the conversion copies or is refused, each with its remedy.
    warnings : tuple of str
        Side effects of using the result, such as writes that change the source.
    error : ZeroCopyError or None
        The error that ``convert`` would raise.
    leaves : dict of str to Plan
        For a container: the plan of each leaf by its path.
    unread : bool
        Whether the object is a stream or a query. The number of copied bytes is then known only
        after reading.
    kept : bool
        Whether the object is returned unchanged because it is not an array, under ``leaves="keep"``;
        for a container, whether all of its leaves are.
    run : callable or None
        Runs the plan; keeps the source alive. None for refusals, containers and plans
        that were pickled.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> plan = zc.explain(np.zeros(4, dtype=">f4"), "numpy", copy=True)
    >>> plan.zero_copy, plan.copied_bytes
    (False, 16)
    """

    source: str
    target: str
    possible: bool = True
    zero_copy: bool = False
    copied_bytes: int = 0
    new_bytes: int = 0
    protocol: str = ""
    steps: tuple[str, ...] = ()
    reasons: tuple[Reason, ...] = ()
    warnings: tuple[str, ...] = ()
    error: ZeroCopyError | None = None
    leaves: dict[str, Plan] = field(default_factory=dict)
    unread: bool = False
    kept: bool = False
    run: Callable[[], Any] | None = field(default=None, repr=False)

    def __str__(self) -> str:
        lines = [f"{self.source} -> {self.target}: {self._verdict()}"]
        if len(self.steps) > 1 or not (self.zero_copy or self.kept):
            lines += [f"  {i}. {step}" for i, step in enumerate(self.steps, 1)]
        for reason in self.reasons:
            lines.append(f"  why: {reason.why}")
            if reason.remedy:
                lines.append(f"  fix: {reason.remedy}")
        lines += [f"  warning: {warning}" for warning in self.warnings]
        for path, leaf in self.leaves.items():
            lines += [
                f"  {path}: {line}" if i == 0 else f"  {line}"
                for i, line in enumerate(str(leaf).splitlines())
            ]
        return "\n".join(lines)

    def __reduce__(self) -> Any:
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return _unpickled, ({**values, "run": None},)

    def _verdict(self) -> str:
        if not self.possible:
            return "refused"
        if self.zero_copy:
            return f"zero-copy ({self.protocol})" if self.protocol else "zero-copy"
        if self.copied_bytes:
            return f"copies {self.copied_bytes:,} byte{'s' if self.copied_bytes > 1 else ''}"
        if self.kept:
            return "kept unchanged"
        if self.new_bytes:
            return f"new memory of {self.new_bytes:,} byte{'s' if self.new_bytes > 1 else ''}"
        if self.unread:
            return "known after it has been read"
        return "nothing to copy (zero-size)"


def _unpickled(values: dict[str, Any]) -> Plan:
    return Plan(**values)
