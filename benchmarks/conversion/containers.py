"""A dict of arrays, from 1 leaf to 1,000: one call, comprehensions and tree maps."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from benchmarks.contest import Contest, Method
from benchmarks.conversion.contenders import DOCUMENTED, Pair, aliases, contender, pairs
from benchmarks.conversion.question import Question, methods
from benchmarks.conversion.subjects import SUBJECTS, Array, aligned_values
from benchmarks.suite import Case, Section, Settings, Task, median

LEAVES = (1, 10, 100, 1000)
QUICK_LEAVES = (1, 100)
COUNT = 1000  # elements of each leaf

#: The measured pairs, with the fastest public function for a leaf.
MAPPED = {
    ("numpy", "torch"): "torch.from_numpy",
    ("torch", "numpy"): "torch.Tensor.numpy",
    ("jax", "numpy"): "np.asarray",
    ("numpy", "jax"): "jnp.from_dlpack",
}


def contenders(pair: Pair) -> list[Method]:
    """Return the contenders that convert a dict ``x``, zerocopy first, without missing libraries."""
    _, target = pair
    call = MAPPED[pair]
    each = "{{k: {} for k, v in x.items()}}".format
    documented = DOCUMENTED[target].format(array="{}", capsule="").format  # none of these takes a capsule
    rows = [
        contender(f'zc.convert(x, "{target}")', "ours"),
        contender(each(f"{call}(v)"), "idiom"),
        contender(each(documented("v")), "documented"),
        contender(each(f'zc.convert(v, "{target}")'), "reference"),
        contender(each(documented("tvm_ffi.from_dlpack(v)")), "library"),
        contender(f"optree.tree_map({call}, x)", "library"),
    ]
    if "jax" in pair:
        rows.append(contender(f"jax.tree.map({call}, x)", "idiom"))
    if "torch" in pair:
        rows.append(contender(f"pytree.tree_map({call}, x)", "library"))
    if "jax" not in pair:  # array-api-compat does not support JAX, and move_to requires strides
        xp = f"xp_{target}"
        rows.append(contender(each(f"{xp}.asarray(v)"), "library"))
        # It takes all arrays at once, and does not return a list for a single array.
        moved = f'sklearn_array_api.move_to(*x.values(), None, xp={xp}, device="cpu")'
        rows.append(contender(f"dict(zip(x, {moved}))", "library"))
    return [row for row in rows if not row.missing()]


def leaves(source: str, count: int) -> tuple[dict[str, Any], Array]:
    """Return a dict of arrays, and the values that each of them has."""
    values = aligned_values(COUNT)
    make = SUBJECTS[source].make
    return {f"layer{i}": make(aligned_values(COUNT)) for i in range(count)}, values


def leaves_differ(pair: Pair, sources: Mapping[str, Any], values: Mapping[str, Array], result: Any) -> str:
    """Return how a result differs from a dict of aliases, or nothing.

    The order of keys does not matter: tree maps sort them.
    """
    if type(result) is not dict or result.keys() != values.keys():
        return "gives another container"
    wrong = ((key, aliases(pair, sources[key], values[key], leaf)) for key, leaf in result.items())
    return next((f"{why}: {key}" for key, why in wrong if why), "")


def tasks(settings: Settings) -> list[Task]:
    counts = QUICK_LEAVES if settings.quick else LEAVES
    return [
        Task(f"{' -> '.join(pair)}, {count}", partial(run, pair, count, settings))
        for pair in MAPPED
        if pair in pairs(settings.wants)
        for count in counts
    ]


def run(pair: Pair, count: int, settings: Settings) -> list[Case]:
    """Check the contenders of a pair, then time those that pass."""
    x, values = leaves(pair[0], count)
    contest = Contest()
    wrong = partial(leaves_differ, pair, x, dict.fromkeys(x, values))
    name = f"{' -> '.join(pair)}, dict of {count:,}"
    Question(name, methods(contenders(pair), {"x": x}), wrong).add_to(contest)
    (case,) = contest.time(settings.pace)
    ours = case.fastest("ours")
    if ours is not None:
        case.figures = {"ns a leaf": median(ours) / count}
    return [case]


SECTION = Section(
    "containers",
    f"a dict of arrays of {COUNT:,} float32 in one call, compared with comprehensions and tree maps",
    tasks,
)
