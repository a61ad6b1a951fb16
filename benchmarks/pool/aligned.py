"""``host="aligned"``: how many of NumPy's arrays reach JAX without a copy, and how long one takes."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from functools import partial

from benchmarks.pool.sides import WITHOUT, contest, sides, turns
from benchmarks.suite import Case, Goal, Section, Settings, Task, median

#: How many times as fast as without it a large array is to reach JAX.
GAIN = 500

_LARGE = 64 << 20
_MODE = "aligned"


def tasks(settings: Settings) -> list[Task]:
    """Two tasks, where there is JAX."""
    if importlib.util.find_spec("jax") is None or not settings.wants("jax"):
        return []
    return [Task("arrays", _arrays, seconds=5), Task("64 MB to JAX", partial(_large, settings), seconds=5)]


def _arrays() -> list[Case]:
    case = Case("NumPy arrays of 1 KB to 256 MB that JAX takes without a copy")
    with sides(WITHOUT, _MODE) as contenders:
        for side in contenders:
            found = side.ask("reach_jax")
            case.figures["arrays"] = len(found)
            case.figures[side.label] = sum(found.values())
            if side.mode != WITHOUT:
                case.remarks += [
                    f"{name} is not taken without a copy" for name, taken in found.items() if not taken
                ]
                case.remarks += side.ask("describe")
    return [case]


def _large(settings: Settings) -> list[Case]:
    with sides(WITHOUT, _MODE) as contenders:
        for side in contenders:
            side.ask("open_jax", _LARGE)
        # Without waiting the copy would go on in the turn of the other.
        code = 'zc.convert(x, to="jax").block_until_ready()'
        return [contest("64 MB of NumPy to JAX", [turns(code, contenders, settings.pace)])]


def goals(cases: Sequence[Case]) -> list[Goal]:
    """Judge that all arrays are taken, and the gain for a large one."""
    found = []
    for case in cases:
        if case.figures:
            copied = case.figures["arrays"] - case.figures[f"host={_MODE!r}"]
            found.append(Goal("aligned: arrays that JAX copies", case.name, copied, 0))
            continue
        ours, other = case.fastest("ours"), case.fastest("idiom")
        if ours and other:
            name = f"aligned: 64 MB reach JAX at least {GAIN}x as fast: time with it over time without"
            found.append(Goal(name, case.name, median(ours) / median(other), 1 / GAIN, "x"))
    return found


SECTIONS = (
    Section("aligned", "NumPy's arrays on their way to JAX, with and without it", tasks, "figures", goals),
)
