"""``host="aligned"``: how many NumPy arrays JAX aliases, and the time of a conversion."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from functools import partial

from benchmarks.pool.sides import WITHOUT, contest, sides, turns
from benchmarks.suite import Case, Goal, Section, Settings, Task, median

#: Goal: speed-up of a large array to JAX.
GAIN = 500

_LARGE = 64 << 20
_MODE = "aligned"


def tasks(settings: Settings) -> list[Task]:
    """Return two tasks if JAX is installed."""
    if importlib.util.find_spec("jax") is None or not settings.wants("jax"):
        return []
    return [Task("arrays", _arrays, seconds=5), Task("64 MB to JAX", partial(_large, settings), seconds=5)]


def _arrays() -> list[Case]:
    case = Case("NumPy arrays of 1 KB to 256 MB that JAX aliases")
    with sides(WITHOUT, _MODE) as contenders:
        for side in contenders:
            aliased = side.ask("reach_jax")
            case.figures["arrays"] = len(aliased)
            case.figures[side.label] = sum(aliased.values())
            if side.mode != WITHOUT:
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


def goals(cases: Sequence[Case]) -> list[Goal]:
    """Judge that JAX aliases all arrays, and the speed-up of a large one."""
    judged = []
    for case in cases:
        if case.figures:
            copied = case.figures["arrays"] - case.figures[f"host={_MODE!r}"]
            judged.append(Goal("aligned: arrays that JAX copies", case.name, copied, 0))
            continue
        ours, other = case.fastest("ours"), case.fastest("idiom")
        if ours and other:
            name = f"aligned: 64 MB to JAX at least {GAIN}x as fast (limit: ratio of times)"
            judged.append(Goal(name, case.name, median(ours) / median(other), 1 / GAIN, "x"))
    return judged


SECTIONS = (Section("aligned", "NumPy arrays to JAX, with and without the pool", tasks, "figures", goals),)
