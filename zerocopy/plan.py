"""``Plan``: a conversion explained, and ready to run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from zerocopy.errors import Reason, ZeroCopyError


@dataclass(slots=True, eq=False)
class Plan:
    """A conversion explained.

    Attributes
    ----------
    source, target : str
        What goes where, in words.
    possible : bool
        Whether :func:`zerocopy.convert` would succeed; `reasons` says why not.
    zero_copy : bool
        Whether the result will share memory with the source. False for a
        zero-size array, which shares nothing and copies nothing.
    copied_bytes : int
        Bytes that will be copied, transfers between devices included.
    protocol : str
        What carries the memory: ``"dlpack"``, ``"buffer"``, ...
    steps : tuple of str
        What happens, in order.
    reasons : tuple of Reason
        Why it copies or refuses, each with its remedy.
    warnings : tuple of str
        What to beware of with the result.
    error : ZeroCopyError or None
        What ``convert`` would raise.
    leaves : dict of str to Plan
        For a container: the plan of each leaf by its path.
    unread : bool
        Whether it has to be read first, a stream or a query: what will alias and how much
        is copied is known when it has been.
    run : callable or None
        Carries the plan out, and so keeps the source alive; None for refusals and
        containers. It does not travel: a plan that was pickled has none.

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
    protocol: str = ""
    steps: tuple[str, ...] = ()
    reasons: tuple[Reason, ...] = ()
    warnings: tuple[str, ...] = ()
    error: ZeroCopyError | None = None
    leaves: dict[str, Plan] = field(default_factory=dict)
    unread: bool = False
    run: Callable[[], Any] | None = field(default=None, repr=False)

    def __str__(self) -> str:
        lines = [f"{self.source} -> {self.target}: {self._verdict()}"]
        if len(self.steps) > 1 or not self.zero_copy:
            lines += [f"  {i}. {step}" for i, step in enumerate(self.steps, 1)]
        for reason in self.reasons:
            lines.append(f"  why: {reason.why}")
            if reason.remedy:
                lines.append(f"  fix: {reason.remedy}")
        lines += [f"  beware: {warning}" for warning in self.warnings]
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
        if self.unread:
            return "known when it has been read"
        return "nothing to copy (zero-size)"


def _unpickled(values: dict[str, Any]) -> Plan:
    return Plan(**values)
