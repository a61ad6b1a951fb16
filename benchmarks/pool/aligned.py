"""``host="aligned"``: how many NumPy arrays JAX aliases, and the time of a conversion."""

from __future__ import annotations

from functools import partial

from benchmarks.contest import installed
from benchmarks.goals import Promise, fastest, judge, ratio
from benchmarks.pool.sides import WITHOUT, contest, label, sides, turns
from benchmarks.suite import Case, Section, Settings, Task

#: Goal: speed-up of a large array to JAX.
GAIN = 500

_LARGE = 64 << 20
_MODE = "aligned"


def tasks(settings: Settings) -> list[Task]:
    """Return two tasks if JAX is installed."""
    if not installed("jax") or not settings.wants("jax"):
        return []
    return [Task("arrays", _arrays, seconds=5), Task("64 MB to JAX", partial(_large, settings), seconds=5)]


def _arrays() -> list[Case]:
    case = Case("NumPy arrays of 1 KB to 256 MB that JAX aliases")
    with sides(WITHOUT, _MODE) as contenders:
        for side in contenders:
            aliased = side.ask("reach_jax")
            case.figures["arrays"] = len(aliased)
            case.figures[side.label] = sum(aliased.values())
            if side.label != label(WITHOUT):
                case.remarks += [f"{name} is copied" for name, alias in aliased.items() if not alias]
                case.remarks += side.ask("describe")
    return [case]


def _large(settings: Settings) -> list[Case]:
    with sides(WITHOUT, _MODE) as contenders:
        for side in contenders:
            side.ask("open_jax", _LARGE)
        # Waits, because otherwise the copy would continue in the turn of the other contender.
        code = 'zc.convert(x, to="jax").block_until_ready()'
        return [contest("64 MB of NumPy to JAX", [turns(code, contenders, settings.pace)])]


def _copied(case: Case) -> float | None:
    return case.figures["arrays"] - case.figures[label(_MODE)] if case.figures else None


PROMISES = (
    Promise("aligned: arrays that JAX copies", _copied, 0, ""),
    Promise(
        f"aligned: 64 MB to JAX at least {GAIN}x as fast (limit: ratio of times)",
        ratio(fastest("idiom")),
        1 / GAIN,
    ),
)

SECTIONS = (
    Section(
        "aligned",
        "NumPy arrays to JAX, with and without the pool",
        tasks,
        "figures",
        partial(judge, PROMISES),
    ),
)
