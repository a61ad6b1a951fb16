"""The goals of the compiled core, as data, for the section ``core`` and for the page."""

from __future__ import annotations

from functools import partial

from benchmarks.goals import BY_HAND as FASTEST, Promise, fastest, ratio as ratio_to, time
from benchmarks.suite import Case, Entry

#: What a time is compared with. The last four are references: entries with this note.
BY_HAND, DOCUMENTED = "the fastest by hand", "the documented call"
PURE, PLAIN, FLOAT32 = "pure Python", "the plain call", "writable float32"

FRAMEWORKS = ("numpy", "torch", "jax", "tensorflow", "pyarrow")
PAIRS = tuple(f"{a} -> {b}" for a in FRAMEWORKS for b in FRAMEWORKS if a != b)


def _pairs(sources: str, targets: str) -> tuple[str, ...]:
    """Return the names of pairs; an asterisk stands for all other frameworks."""
    return tuple(
        f"{a} -> {b}"
        for b in targets.split()
        for a in (FRAMEWORKS if sources == "*" else sources.split())
        if a != b
    )


FRESH, READ_ONLY, DICT, TABLE = "fresh tensors", "read-only", "dict of 100", "table of 100 columns"
EXPLAIN = "explain"
DTYPES = ("bfloat16", "float8_e4m3fn")
SAME = tuple(f"{name} -> {name}" for name in FRAMEWORKS)
OPTIONS = ("copy=False", "writable=True", "writable=False", 'dtype="float32"', 'device="cpu"')
TABLE_OPTIONS = ("copy=False", "columns=names", "columns=some")
BATCH = "batch of 30"
LAYOUTS = ("matrix", "matrix:C", "matrix:F")  # in the names of cases: the layout and the order
MATRIX = '8192 x 28, layout="{}"'


def rival(case: Case, against: str) -> Entry | None:
    """Return the entry that a case is compared with."""
    if against in (BY_HAND, DOCUMENTED):
        return (FASTEST if against == BY_HAND else fastest("documented"))(case)
    return next((entry for entry in case.timed("reference") if entry.note == against), None)


def ratio(case: Case, against: str) -> float | None:
    """Return zerocopy's time over that of the rival; None if one of them has no time."""
    return ratio_to(partial(rival, against=against))(case)


def _bound(row: str, limit: float, against: str, cases: tuple[str, ...], mean: str = "") -> Promise:
    """Return one row of the table of goals: the conversions in words, and a ratio to `against`."""
    name = f"{row}: {limit:.2f}x of {against}"
    return Promise(name, partial(ratio, against=against), limit, cases=cases, mean=mean)


GOALS = (
    _bound("same type", 0.25, PURE, SAME),
    _bound("torch -> numpy, storage seen before", 0.30, BY_HAND, ("torch -> numpy",)),
    _bound("torch -> numpy, fresh tensors", 1.15, BY_HAND, (FRESH,)),
    _bound("numpy -> torch", 0.70, BY_HAND, ("numpy -> torch",)),
    _bound("tensorflow -> numpy", 0.50, BY_HAND, ("tensorflow -> numpy",)),
    _bound("jax -> numpy", 0.65, BY_HAND, ("jax -> numpy",)),
    _bound("pyarrow -> numpy", 1.0, BY_HAND, ("pyarrow -> numpy",)),
    _bound("numpy, torch -> tensorflow", 0.85, BY_HAND, _pairs("numpy torch", "tensorflow")),
    _bound("jax, pyarrow -> tensorflow", 0.45, BY_HAND, _pairs("jax pyarrow", "tensorflow")),
    _bound("tensorflow, jax, pyarrow -> torch", 0.85, BY_HAND, _pairs("tensorflow jax pyarrow", "torch")),
    _bound("anything -> pyarrow", 1.0, BY_HAND, _pairs("*", "pyarrow")),
    _bound("anything -> jax", 0.30, BY_HAND, _pairs("*", "jax")),
    _bound("all pairs, geometric mean", 0.50, BY_HAND, PAIRS, mean="pairs"),
    _bound("all pairs, geometric mean", 0.30, DOCUMENTED, PAIRS, mean="pairs"),
    _bound("each pair", 1.0, BY_HAND, PAIRS),
    _bound("bfloat16, float8, read-only", 1.1, FLOAT32, (*DTYPES, READ_ONLY)),
    _bound("dict of 100, torch -> numpy", 0.35, BY_HAND, (f"torch -> numpy, {DICT}",)),
    _bound("dict of 100, numpy -> torch", 0.80, BY_HAND, (f"numpy -> torch, {DICT}",)),
    _bound("dict of 100, jax -> numpy", 0.75, BY_HAND, (f"jax -> numpy, {DICT}",)),
    _bound("Arrow table of 100 columns -> numpy", 0.40, BY_HAND, (f"pyarrow -> numpy, {TABLE}",)),
    _bound("Arrow table of 100 columns -> torch", 0.50, BY_HAND, (f"pyarrow -> torch, {TABLE}",)),
    _bound(
        "an option on a type seen before", 1.5, PLAIN, (*OPTIONS, *(f"{BATCH}, {o}" for o in TABLE_OPTIONS))
    ),
    _bound('layout="matrix", 8192 x 28', 1.0, BY_HAND, tuple(MATRIX.format(name) for name in LAYOUTS)),
    Promise("explain: 15 us", time(), 15_000.0, "ns", (EXPLAIN,)),
)
