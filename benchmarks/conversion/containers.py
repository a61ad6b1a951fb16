"""A dict of arrays, from 1 leaf to 1,000: one call, comprehensions and tree maps."""

from __future__ import annotations

from functools import partial
from typing import Any

import zerocopy as zc
from benchmarks.contest import Contest, refusal
from benchmarks.conversion.contenders import DOCUMENTED, Contender, Pair, differs, namespace, pairs
from benchmarks.conversion.subjects import SUBJECTS, Array, aligned_values
from benchmarks.suite import Case, Section, Settings, Task, median
from benchmarks.timing import Statement

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


def contenders(pair: Pair) -> list[Contender]:
    """Return the contenders that convert a dict ``x``, zerocopy first, without missing libraries."""
    _, target = pair
    call = MAPPED[pair]
    each = "{{k: {} for k, v in x.items()}}".format
    documented = DOCUMENTED[target].format(array="{}", capsule="").format  # none of these takes a capsule
    rows = [
        Contender(f'zc.convert(x, "{target}")', "ours"),
        Contender(each(f"{call}(v)"), "idiom"),
        Contender(each(documented("v")), "documented"),
        Contender(each(f'zc.convert(v, "{target}")'), "reference"),
        Contender(each(documented("tvm_ffi.from_dlpack(v)")), "library", needs=("tvm_ffi",)),
        Contender(f"optree.tree_map({call}, x)", "library", needs=("optree",)),
    ]
    if "jax" in pair:
        rows.append(Contender(f"jax.tree.map({call}, x)", "idiom"))
    if "torch" in pair:
        rows.append(Contender(f"pytree.tree_map({call}, x)", "library", needs=("pytree",)))
    if "jax" not in pair:  # array-api-compat does not support JAX, and move_to requires strides
        xp = f"xp_{target}"
        rows.append(Contender(each(f"{xp}.asarray(v)"), "library", needs=(xp,)))
        # It takes all arrays at once, and does not return a list for a single array.
        moved = f'sklearn_array_api.move_to(*x.values(), None, xp={xp}, device="cpu")'
        rows.append(Contender(f"dict(zip(x, {moved}))", "library", needs=(xp, "sklearn_array_api")))
    return [contender for contender in rows if contender.installed()]


def leaves(source: str, count: int) -> tuple[dict[str, Any], Array]:
    """Return a dict of arrays, and the values that each of them has."""
    values = aligned_values(COUNT)
    make = SUBJECTS[source].make
    return {f"layer{i}": make(aligned_values(COUNT)) for i in range(count)}, values


def statement(contender: Contender, pair: Pair, x: dict[str, Any]) -> Statement:
    """Return the statement to time."""
    return Statement(contender.code, namespace(pair, contender.needs) | {"x": x})


def check(contender: Contender, pair: Pair, x: dict[str, Any], values: Array) -> str:
    """Return why a contender does not give a dict of arrays that alias, or nothing.

    The order of keys does not matter: tree maps sort them.
    """
    result = statement(contender, pair, x).value()
    if type(result) is not dict or result.keys() != x.keys():
        return "gives another container"
    for key, leaf in result.items():
        wrong = differs(pair, leaf, values) or ("" if zc.shares_memory(x[key], leaf) else "copies")
        if wrong:
            return wrong
    return ""


def tasks(settings: Settings) -> list[Task]:
    """Return a task for each pair and number of leaves."""
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
    case = contest.case(f"{' -> '.join(pair)}, dict of {count:,}")
    for each in contenders(pair):
        refused = refusal(partial(check, each, pair, x, values))
        contest.add(case, each.code, each.role, partial(statement, each, pair, x), refused, each.note)
    contest.time(settings.pace)
    ours = case.fastest("ours")
    if ours is not None:
        case.figures = {"ns a leaf": median(ours) / count}
    return [case]


SECTION = Section(
    "containers",
    f"a dict of arrays of {COUNT:,} float32 in one call, compared with comprehensions and tree maps",
    tasks,
)
