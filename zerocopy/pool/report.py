"""The report: what took effect, framework by framework, in words and in data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from zerocopy.pool.outcome import Outcome
from zerocopy.pool.settings import KINDS
from zerocopy.pool.sizes import show_size

if TYPE_CHECKING:
    from zerocopy.pool.pool import Pool


@dataclass(frozen=True, repr=False)
class Report:
    """What an installed pool has come to.

    Attributes
    ----------
    kind : str
    asked : str
        The options, as ``ZEROCOPY_POOL`` would have them.
    devices : list of str
        A line each: the card, its cap and where that comes from, what is in use.
    host : list of str
        A line for each mode of host memory.
    frameworks : list of Outcome
    notes : list of str
        What is to be known beside: others on the card, what is not tracked.
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
            notes += [remark for device in pool.served for remark in pool.device_pool(device).remarks()]
        if pool.tracked and not pool.by_rmm and reason is None:
            notes.append("tracked are CuPy, Numba and allocate(); torch, JAX and TensorFlow do not ask us")
        if reason is not None and not host:
            notes.append(
                'nothing is pooled; install_pool(host="aligned") works without a GPU: NumPy\'s arrays go to '
                "JAX and Arrow without a copy, and large blocks are used again"
            )
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
        """Return one framework's row."""
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
