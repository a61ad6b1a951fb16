"""The report: what took effect, framework by framework, in words and in data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from zerocopy.pool.advice import listed
from zerocopy.pool.host import MODES
from zerocopy.pool.kinds import KINDS
from zerocopy.pool.outcome import Outcome
from zerocopy.pool.sizes import show_size

if TYPE_CHECKING:
    from zerocopy.pool.pool import Pool


@dataclass(frozen=True, repr=False)
class Report:
    """What an installed pool has come to: what `Pool.report` returns.

    It is read row by row, ``for row in report``, or by the framework's name, ``report["cupy"]``.

    Attributes
    ----------
    kind : str
        As `Pool.kind`.
    asked : str
        The options, as ``ZEROCOPY_POOL`` would have them.
    devices : list of str
        A line each: the card, its cap and where that comes from, what is in use.
    host : list of str
        A line for each mode of host memory.
    frameworks : list of Outcome
        A row for each that can take memory from a pool, in the order in which they are told.
    notes : list of str
        What is to be known beside: others on the card, what is not tracked.

    Examples
    --------
    >>> from zerocopy.pool.outcome import Status
    >>> report = Report("none", "auto", ["none: no driver"], [], [Outcome("mine", Status.ABSENT)])
    >>> print(report)
    pool: none
    device: none: no driver
    host: off
      mine  absent
    >>> report["mine"].served, report.as_dict()["frameworks"][0]["status"]
    (False, 'absent')
    """

    kind: str
    asked: str
    devices: list[str] = field(default_factory=list)
    host: list[str] = field(default_factory=list)
    frameworks: list[Outcome] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, pool: Pool, outcomes: Sequence[Outcome], host: Sequence[Any]) -> Report:
        """Read a pool."""
        reason = pool.no_device()
        devices = [_device(pool, index) for index in pool.devices]
        if reason is not None:
            devices = [f"none: {reason.why}"]
        notes = list(pool.notes)
        if not pool.closed:
            others = [each.sets_threshold for each in pool.attachments.hooks if each.sets_threshold]
            notes += [remark for device in pool.served for remark in pool.device_pool(device).remarks(others)]
        if pool.tracked and not pool.by_rmm and reason is None:
            asking = [each.shown for each in pool.attachments.hooks if each.asks]
            silent = [each.shown for each in pool.attachments.hooks if not each.asks]
            notes.append(f"tracked are {listed([*asking, 'allocate()'])}; {listed(silent)} do not ask us")
        if reason is not None and not host:
            about = MODES["aligned"].about
            notes.append(f'nothing is pooled; install_pool(host="aligned") works without a GPU: {about}')
        if pool.closed:
            notes.append("the pool was closed")
        return cls(
            pool.kind,
            str(pool.settings),
            devices,
            [mode.describe() if mode.installed else f"{mode.name}: {mode.about}" for mode in host],
            list(outcomes),
            notes,
        )

    def __getitem__(self, framework: str) -> Outcome:
        """Return one framework's row.

        Raises
        ------
        KeyError
            None of that name takes memory from a pool.
        """
        for outcome in self.frameworks:
            if outcome.framework == framework:
                return outcome
        raise KeyError(f"{framework!r}: there are {', '.join(o.framework for o in self.frameworks)}")

    def __iter__(self) -> Iterator[Outcome]:
        """Return the rows."""
        return iter(self.frameworks)

    def __repr__(self) -> str:
        """Return what ``print`` shows, for notebooks."""
        return str(self)

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as JSON has it."""
        return {
            "kind": self.kind,
            "asked": self.asked,
            "devices": self.devices,
            "host": self.host,
            "frameworks": [
                {"framework": o.framework, "status": str(o.status), "what": o.what, "remedy": o.remedy}
                for o in self.frameworks
            ],
            "notes": self.notes,
        }

    def __str__(self) -> str:
        lines = [f"pool: {self.kind}" + (f", {KINDS[self.kind]}" if self.kind in KINDS else "")]
        lines += [f"device: {line}" for line in self.devices]
        lines += [f"host: {line}" for line in self.host or ["off"]]
        wide = max((len(o.framework) for o in self.frameworks), default=0)
        broad = max((len(o.status) for o in self.frameworks), default=0)
        for o in self.frameworks:
            lines.append(f"  {o.framework:<{wide}}  {o.status:<{broad}}  {o.what}".rstrip())
            if o.remedy:
                lines.append(f"  {'':<{wide}}  {'':<{broad}}  fix: {o.remedy}")
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)


def _device(pool: Pool, index: int) -> str:
    card = pool.cards.get(index)
    text = f"{index}, {card.name}, {show_size(card.total)}" if card else f"{index}, an allocator of your own"
    cap = pool.limits.get(index)
    text += f"; limit {cap}" if cap is not None else "; no limit"
    if not pool.closed and index in pool.served:
        text += f"; {pool.stats(index)}"
    return text
