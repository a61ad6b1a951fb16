"""Write docs/conversions.md and docs/conversions/pairs.md: ``python docs/conversions.py``.

Each pair of frameworks is explained, converted and compared, in host memory. The prose is in files with the
same names and the suffix ``.in``. An argument names another folder to write to.
"""

from __future__ import annotations

import os
import platform
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any

# Set before any framework is imported: the page is about defaults and host memory.
os.environ.pop("JAX_ENABLE_X64", None)
os.environ |= {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}

import compound_table
import ml_dtypes
import numpy as np

import zerocopy
from zerocopy import registry
from zerocopy.errors import ZeroCopyError
from zerocopy.pairs import columns as column_matrix, samples as columns
from zerocopy.pairs.attempt import plan_reasons, sharing
from zerocopy.pairs.columns import ColumnCell, ColumnMatrix
from zerocopy.protocols.array_interface import aligned_copy

DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *(
        "float16",
        "float32",
        "float64",
        "complex64",
        "complex128",
        "bfloat16",
        "float8_e4m3fn",
        "float8_e5m2",
        "int4",
    ),
)


FOLDER = Path(__file__).parent
#: The frameworks that come first: a phone shows four columns.
MOST_USED = ("numpy", "torch", "pandas", "polars", "pyarrow", "jax", "tensorflow", "duckdb")
PAGES = ("conversions", "conversions/pairs")


@dataclass(frozen=True)
class Layout:
    """A memory layout to try."""

    short: str  # name in a cell
    long: str  # description
    ndim: int = 1
    sliced: Callable[[Any], Any] | None = None


DENSE = Layout("1-D", "one dimension without gaps (1-D in the tables below)")
# NumPy allocates most arrays at a multiple of 16 bytes, not 64.
OFF_64 = Layout("at 16 bytes", "the same, 16 bytes after a multiple of 64: `x[4:]`", 1, lambda x: x[4:])
LAYOUTS = (
    DENSE,
    OFF_64,
    Layout("every second", "every second element: `x[::2]`", 1, lambda x: x[::2]),
    Layout("reversed", "reversed: `x[::-1]`", 1, lambda x: x[::-1]),
    Layout("2-D", "two dimensions without gaps, row-major", 2),
    Layout("column-major", "two dimensions, column-major: `x.T`", 2, lambda x: x.T),
)


@dataclass(slots=True)
class Pair:
    """Results for one pair of frameworks: the inputs that alias, and those that do not, by reason."""

    aliases: list[str] = field(default_factory=list)
    copies: dict[str, list[str]] = field(default_factory=dict)
    refuses: dict[str, list[str]] = field(default_factory=dict)
    routes: list[str] = field(default_factory=list)

    @property
    def word(self) -> str:
        """The pair's word in the grid."""
        if DENSE.short not in self.aliases:
            return "copy" if self.copies else "refused"
        copied = {name for names in self.copies.values() for name in names}
        if OFF_64.short in copied:
            return "aligned"
        return "1-D" if copied & {layout.short for layout in LAYOUTS} else "alias"


@dataclass(slots=True)
class Results:
    """All pairs, the dtypes and layouts that each source lacks, and the plans' warnings."""

    names: list[str]
    pairs: dict[tuple[str, str], Pair] = field(default_factory=dict)
    lacks: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    unsliced: dict[str, list[str]] = field(default_factory=dict)
    warnings: dict[str, dict[str, list[str]]] = field(default_factory=dict)


def main() -> dict[str, str]:
    """Return the texts of both pages, by their names."""
    known = registry.frameworks()
    arrays = [name for name in known if known[name].kind != "compound"]
    ordered = sorted(arrays, key=lambda name: MOST_USED.index(name) if name in MOST_USED else len(MOST_USED))
    names = [n for n in ordered if known[n].installed and "cpu" in known[n].devices]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # frameworks warn at import
        # Without it, small arrays of NumPy lie at a multiple of 64 bytes by chance.
        zerocopy.install_pool(host="aligned")
        results = _arrays(names)
        tables = [name for name in names if registry.by_name(name).tables]
        by_type = column_matrix.measure(columns.samples(), names, tables)
    tensors = [name for name in names if name not in tables]
    if by_type.broken:
        raise AssertionError(f"promises are broken: {by_type.broken}")
    absent = [name for name in ordered if name not in names]
    parts = {
        "grid": _grid(results),
        "layouts": _bullets(layout.long for layout in LAYOUTS),
        "dtypes": _listed([f"`{name}`" for name in DTYPES]),
        "sources": _source_table(results),
        "targets": _target_table(results),
        "warnings": _warnings(results),
        "tensors": _listed(tensors),
        "columns": "\n\n".join(_column_tables(by_type)),
        "copies": _reasons(by_type, tensors, lambda cell: [] if cell.zero_copy else cell.reasons),
        "refusals": _reasons(by_type, tensors, lambda cell: cell.refusals),
        "compounds": compound_table.table([n for n in known if known[n].installed], _table),
        "absent": _absent(absent),
        "versions": _versions(
            names + [n for n in known if known[n].installed and known[n].kind == "compound"]
        ),
    }
    templates = {name: (FOLDER / f"{name}.in").read_text(encoding="utf-8") for name in PAGES}
    return {f"{name}.md": Template(text).substitute(parts) for name, text in templates.items()}


# -- converting ---------------------------------------------------------------------------


def _arrays(names: list[str]) -> Results:
    results = Results(names, {(a, b): Pair() for a in names for b in names})
    for origin in names:
        for item, data, source in _sources(results, origin):
            for target in names:
                _try(results, origin, target, item, data, source)
    return results


def _sources(results: Results, origin: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield (name of the input, expected values, array) for each layout and dtype of a framework."""
    for layout in LAYOUTS:
        data = aligned_copy(np.arange(256, dtype=np.float32).reshape((-1, 4)[: layout.ndim]))
        source = zerocopy.convert(data, to=origin)
        if layout.sliced is not None:
            data = layout.sliced(data)
            source = _sliced(layout.sliced, data, source, origin)
        if source is None:
            results.unsliced.setdefault(origin, []).append(layout.short)
        else:
            yield layout.short, data, source
    for name in DTYPES:
        data = aligned_copy((np.arange(96) % 2).astype(getattr(ml_dtypes, name, name)))
        try:
            yield name, data, zerocopy.convert(data, to=origin)
        except ZeroCopyError as error:
            _note(results.lacks.setdefault(origin, {}), _general(error.why, name), name)


def _sliced(how: Callable[[Any], Any], data: Any, source: Any, origin: str) -> Any:
    """Return a slice made in the source's framework, else an alias of NumPy's slice, else None."""
    try:
        sliced = how(source)
        right = _same(data, sliced)
    except Exception:  # noqa: BLE001 - frameworks raise various exceptions for such slices
        right = False
    if right:
        return sliced
    return zerocopy.convert(data, to=origin) if zerocopy.explain(data, origin).zero_copy else None


def _try(results: Results, origin: str, target: str, item: str, data: Any, source: Any) -> None:
    pair, plan = results.pairs[origin, target], zerocopy.explain(source, target)
    try:
        result = zerocopy.convert(source, target)
    except ZeroCopyError as error:
        _check(not plan.possible, origin, target, item)
        _note(pair.refuses, _general(error.why, item), item)
        return
    shares = sharing(source, result)  # None for a query, whose memory is unknown
    _check(plan.possible and (shares is None or shares.whole == plan.zero_copy), origin, target, item)
    _check(_same(data, result), origin, target, item)
    if plan.zero_copy:
        pair.aliases.append(item)
        if plan.protocol not in pair.routes:
            pair.routes.append(plan.protocol)
    else:
        for reason in plan_reasons(plan):
            _note(pair.copies, _general(reason.why, item), item)
    for warning in plan.warnings:
        text = re.sub(rf"^{target} ", "*the target* ", warning).removeprefix("column '': ")
        _note(results.warnings.setdefault(text.removeprefix("it: "), {}), origin, target)


def _same(data: Any, obj: Any) -> bool:
    """Whether an object has the values, bit by bit; columns are those of a matrix."""
    back = zerocopy.convert(obj, to="numpy")
    if isinstance(back, dict):
        back = np.column_stack(list(back.values())).reshape(data.shape)
    same: bool = back.shape == data.shape and back.dtype == data.dtype and back.tobytes() == data.tobytes()
    return same


def _check(right: bool, *item: str) -> None:
    if not right:
        raise AssertionError(f"a promise is broken: {' '.join(item)}; zerocopy matrix has details")


def _note(where: dict[str, list[str]], key: str, item: str) -> None:
    seen = where.setdefault(key, [])
    if item not in seen:
        seen.append(item)


def _general(why: str, item: str) -> str:
    """Return a reason without dtype and address, so that equal reasons are grouped."""
    why = re.sub(r",? (?:and this is at \d+|but the address is \d+ bytes off)|^column 'column_0': ", "", why)
    return re.sub(rf"\b{re.escape(item)}\b", "*T*", why)


# -- writing --------------------------------------------------------------------------


def _grid(results: Results) -> str:
    rows = [[a, *(results.pairs[a, b].word for b in results.names)] for a in results.names]
    return _table(["from \\ to", *results.names], rows)


def _source_table(results: Results) -> str:
    rows = []
    for origin in results.names:
        targets: dict[str, list[str]] = {}
        for target in results.names:
            routes = [f"`{route}`" for route in results.pairs[origin, target].routes if route]
            if routes and target != origin:
                targets.setdefault(" or ".join(routes), []).append(target)
        most, *others = sorted(targets, key=lambda route: -len(targets[route])) or ["none"]
        lacks = [f"{_listed(types)}: {why}" for why, types in results.lacks.get(origin, {}).items()]
        rows.append(
            [
                origin,
                "; ".join([most, *(f"{route} to {_listed(targets[route])}" for route in others)]),
                _listed(results.unsliced.get(origin, [])),
                "<br>".join(lacks),
            ]
        )
    return _table(["from", "route", "has no layout", "cannot hold"], rows)


def _target_table(results: Results) -> str:
    """Return a row for each reason and its inputs, with the targets."""
    copied: dict[str, list[str]] = {}  # sources without an alias, by the only reason
    for a in results.names:
        pairs = [results.pairs[a, b] for b in results.names if b != a]
        reasons = [*dict.fromkeys(why for pair in pairs for why in pair.copies)]
        if len(reasons) == 1 and not any(pair.aliases for pair in pairs):
            copied.setdefault(reasons[0], []).append(a)
    targets: dict[tuple[str, ...], list[str]] = {}
    for why, names in copied.items():
        targets["copies", f"all from {_listed(names)}", why] = ["all others"]
    for target in results.names:
        for word in ("copies", "refuses"):
            inputs: dict[str, dict[str, list[str]]] = {}
            for origin in results.names:
                for why, items in getattr(results.pairs[origin, target], word).items():
                    if origin not in copied.get(why, []):
                        inputs.setdefault(why, {})[origin] = items
            for why, by_source in inputs.items():
                targets.setdefault((word, _inputs(results, by_source), why), []).append(target)
    return _table(
        ["to", "outcome", "inputs", "reason"], [[_listed(names), *row] for row, names in targets.items()]
    )


def _inputs(results: Results, by_source: dict[str, list[str]]) -> str:
    """Return the inputs by source; without the sources if those that differ do not have the input."""
    every = [*(layout.short for layout in LAYOUTS), *DTYPES]
    union = [item for item in every if any(item in items for items in by_source.values())]
    groups: dict[str, list[str]] = {}
    alike = True
    for origin in results.names:
        items = by_source.get(origin, [])
        lacks = {*results.unsliced.get(origin, [])}.union(*results.lacks.get(origin, {}).values())
        alike = alike and items == [item for item in union if item not in lacks]
        if items:
            groups.setdefault(_listed(items), []).append(origin)
    if alike:
        return _listed(union)
    return "; ".join(f"{items} from {_listed(sources)}" for items, sources in groups.items())


def _warnings(results: Results) -> str:
    lines = []
    for text, by_source in results.warnings.items():
        # Sources with the same targets are grouped.
        groups: dict[tuple[str, ...], list[str]] = {}
        for source, targets in by_source.items():
            groups.setdefault(tuple(targets), []).append(source)
        pairs = "; ".join(f"{_listed(a)} to {_listed(list(b))}" for b, a in groups.items())
        lines.append(f"{text}: *{pairs}*")
    return _bullets(lines)


def _column_tables(matrix: ColumnMatrix) -> Iterator[str]:
    """Yield a table for most sources, and one of the differences for each other group."""
    marks: dict[str, dict[tuple[str, str], str]] = {source: {} for source in matrix.sources}
    for cell in matrix.cells:
        marks[cell.source][cell.column, cell.target] = _mark(cell)
    groups: dict[tuple[str, ...], list[str]] = {}
    for source, by_cell in marks.items():
        groups.setdefault(tuple(by_cell.values()), []).append(source)
    usual, *others = sorted(groups.values(), key=len, reverse=True)
    expected = marks[usual[0]]
    yield f"From {_listed(usual, ' and ')}:\n\n{_column_table(matrix, expected, list(matrix.types))}"
    for sources in others:
        outcomes, wanted, rule = marks[sources[0]], expected, ""
        if not any("alias" in mark for (_, target), mark in outcomes.items() if target not in sources):
            wanted = {
                key: mark if key[1] in sources else mark.replace("alias", "copy")
                for key, mark in expected.items()
            }
            rule = f"each alias above is a copy, except to {_listed(sources)}; "
        different = {column for (column, target), mark in outcomes.items() if mark != wanted[column, target]}
        shown = [column for column in matrix.types if column in different]
        title = f"From {_listed(sources, ' and ')}, {rule}these types differ:"
        yield f"{title}\n\n{_column_table(matrix, outcomes, shown)}"


def _column_table(matrix: ColumnMatrix, marks: dict[tuple[str, str], str], columns: list[str]) -> str:
    types: dict[tuple[str, ...], list[str]] = {}
    for column in columns:
        types.setdefault(tuple(marks[column, target] for target in matrix.targets), []).append(column)
    rows = [[", ".join(some), *row] for row, some in types.items()]
    return _table(["type", *matrix.targets], rows)


def _mark(cell: ColumnCell) -> str:
    if cell.outcome == "refused":
        return "refused"
    letters = "".join(a for a, name in (("e", "encode"), ("m", "nulls")) if name in cell.options)
    return f"{letters} {'alias' if cell.zero_copy else 'copy'}".strip()


def _reasons(matrix: ColumnMatrix, tensors: list[str], of: Callable[[ColumnCell], Iterable[Any]]) -> str:
    """Return a list of reasons, each with its types, targets and, unless they are all alike, sources."""
    outcomes: dict[str, dict[str, tuple[list[str], list[str]]]] = {}
    for cell in matrix.cells:
        for reason in of(cell):
            why = reason.why.replace(f"is {cell.type}", "is *T*").replace(f"a {cell.type}", "a *T*")
            why = re.sub(r"would (make|truncate) \w+ (a|to)", r"would \1 *T* \2", why)
            why = re.sub(r"has \d+ nulls in \d+ rows", "has nulls", why)
            types, targets = outcomes.setdefault(why, {}).setdefault(cell.source, ([], []))
            types += [cell.column] if cell.column not in types else []
            targets += [cell.target] if cell.target not in targets else []
    lines = []
    for why, by_source in outcomes.items():
        alike: dict[str, list[str]] = {}
        for source, (types, targets) in by_source.items():
            item = "every type" if len(types) == len(matrix.types) else _listed(types)
            absent = [name for name in tensors if name not in targets]
            if len(absent) < 2:
                shown = f"tensors except {absent[0]}" if absent else "tensors"
                targets = [shown, *(name for name in targets if name not in tensors)]
            alike.setdefault(f"{item} to {_listed(targets)}", []).append(source)
        same = len(alike) == 1 and len(by_source) == len(matrix.sources)
        items = [text if same else f"{text} (from {_listed(names)})" for text, names in alike.items()]
        lines.append(f"{why}: *{'; '.join(items)}*")
    return _bullets(lines)


def _absent(names: list[str]) -> str:
    rows = []
    for name in names:
        framework = registry.by_name(name)
        why = "a separate environment" if "cpu" in framework.device_kinds else "a GPU"
        kind = "tables" if framework.kind == "table" else "tensors"
        install = f"`pip install {framework.distribution or name}`"
        rows.append([name, kind, _listed(list(framework.device_kinds), " and "), why, install])
    return _table(["framework", "objects", "memory on", "needs", "install"], rows)


def _versions(names: list[str]) -> str:
    known = registry.frameworks()
    tested = [f"Python {platform.python_version()}", f"zerocopy {zerocopy.__version__}"]
    tested += [f"{name} {known[name].version}" for name in names]
    return f"{_listed(tested)}. {platform.system()}, {platform.machine()}."


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _listed(names: list[str], last: str = ", ") -> str:
    return last.join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    for page, text in main().items():
        (folder / page).parent.mkdir(exist_ok=True)
        (folder / page).write_text(text, encoding="utf-8")
