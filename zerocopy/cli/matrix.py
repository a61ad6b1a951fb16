"""The command ``zerocopy matrix``: convert data between every pair of frameworks and check each promise."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, replace
from statistics import median
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

import zerocopy
from zerocopy import registry
from zerocopy.cli import datasets, doctor
from zerocopy.cli.terminal import Output, print_json, quiet_imports
from zerocopy.errors import Reason, UnknownFrameworkError
from zerocopy.formatting import format_seconds, printable
from zerocopy.formatting.lines import Line, grid, labelled, paragraph, shorten
from zerocopy.pairs import samples
from zerocopy.pairs.arrays import ArrayCell, ArrayMatrix
from zerocopy.pairs.cells import HEADINGS, OUTCOMES, TYPE, Cell, Footnotes, join_names
from zerocopy.pairs.check import Matrix, measure
from zerocopy.pairs.columns import LABEL, ColumnCell, ColumnMatrix
from zerocopy.pairs.summary import corner_text, format_shape, reason_lines

_HINT = "--full prints the times, all reasons, the warnings and the types of columns."
_MAX_HEAD = 18  # columns of each part of a row's head: longer ones are cut


class InputError(click.ClickException):
    """Wrong input: one line on standard error, and exit code 2."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


@click.command(short_help="Convert between every pair of frameworks and check each promise.")
@click.option(
    "--input",
    "path",
    metavar="FILE",
    help="Data to convert: .npy, .npz, .csv, .parquet, .arrow or .feather. Default: Fisher's iris.",
)
@click.option(
    "--max-bytes",
    type=click.IntRange(1),
    metavar="N",
    default=datasets.MAX_BYTES,
    help="Refuse a file with more bytes, or with more after decompression. Default: 1 GiB.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--frameworks", metavar="A,B", help="Only these frameworks. Default: all that are installed.")
@click.option("--from", "sources", metavar="A,B", help="Only these frameworks as sources.")
@click.option(
    "--types",
    metavar="A,B",
    help="Only columns with these types or names, such as int64,string. Default: all.",
)
@click.option(
    "--only",
    type=click.Choice(["arrays", "columns"]),
    help="Only one of the two parts: the grid of arrays, or the columns by type.",
)
@click.option(
    "--repeat",
    type=click.IntRange(1, 1_000_000),
    metavar="N",
    help="Times to measure per cell. Default: up to 50 within a tenth of a second.",
)
@click.option("--full", is_flag=True, help="Print everything: times, all reasons, warnings, columns by type.")
def matrix(
    path: str | None,
    max_bytes: int,
    as_json: bool,
    frameworks: str | None,
    sources: str | None,
    types: str | None,
    only: str | None,
    repeat: int | None,
    full: bool,
) -> None:
    """Convert real data between every pair of installed frameworks, and check each promise.

    First arrays: rows are sources, columns are targets. Then columns of a table by type
    (strings, dates, nulls, lists): one grid for each framework of tables. The output is a
    summary of one screen, unless --full or --repeat is passed. The exit code is 1
    if a promise is broken: a wrong value, a copy reported as zero-copy, or an exception that
    is not a ZeroCopyError.
    """
    quiet_imports()
    full = full or repeat is not None
    # The summary has no times.
    times = repeat if full or as_json else 0
    origins = _installed("--from", sources)
    targets = _installed("--frameworks", frameworks)
    if targets is not None:
        targets = list(dict.fromkeys([*targets, *(origins or ())]))
    try:
        data = samples.iris() if path is None else datasets.load(path, max_bytes)
        chosen, why = _choose(data, _names("--types", types), only)
        result = replace(_measure(chosen, targets, origins, times, why), data=data)
    except datasets.DataError as error:
        raise InputError(str(error)) from error
    except MemoryError as error:
        raise InputError(f"not enough memory for a copy of the data in each framework: {error}") from error
    if as_json:
        print_json(_document(result))
    else:
        out = Output()
        out.show_lines(_full(result, out) if full else result.summary().lines(out.width, out.unicode, _HINT))
    if result.exit_code:
        sys.exit(result.exit_code)


# -- options ------------------------------------------------------------------------


def _names(option: str, value: str | None) -> list[str] | None:
    """Return the names in the value of an option; None if it is absent."""
    if value is None:
        return None
    names = [name.strip() for name in value.split(",") if name.strip()]
    if not names:
        raise InputError(f"{option} names none")
    return names


def _installed(option: str, value: str | None) -> list[str] | None:
    """Return the names of frameworks in the value of an option; all must be installed."""
    names = _names(option, value)
    for name in names or ():
        try:
            framework = registry.by_name(name)
        except UnknownFrameworkError as error:
            raise InputError(f"{option}: {name!r}: {error.why}. {error.remedy}") from error
        if not framework.installed():
            install = f"pip install {framework.distribution or framework.name}"
            raise InputError(f"{option}: {name} is not installed: {install}")
    return names


def _choose(data: samples.Data, types: list[str] | None, only: str | None) -> tuple[samples.Data, str]:
    """Return the data to convert, and why they have no columns if the output should explain it."""
    if only == "arrays":
        return replace(data, columns={}), ""
    missing = samples.missing()
    if not data.columns:
        if types is not None or only == "columns" or not data.arrays:
            raise InputError(missing or f"{data.name} has no columns of a table")
        return data, missing or ""
    try:
        columns = data.columns if types is None else samples.pick(data.columns, types)
    except LookupError as error:
        raise InputError(f"--types: {error.args[0]}") from error
    return replace(data, columns=columns) if only is None else replace(
        data, columns=columns, arrays={}, subbyte={}
    ), ""


def _measure(
    data: samples.Data, targets: list[str] | None, origins: list[str] | None, times: int | None, why: str
) -> Matrix:
    """Fill the cells, with a progress bar if standard error is a terminal."""
    console = Console(stderr=True)
    parts = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    shown = console.is_terminal and _is_real_terminal()
    with Progress(*parts, console=console, transient=True, disable=not shown) as bar:
        task = bar.add_task("", total=None)

        def show_progress(step: str, done: int, total: int) -> None:
            bar.update(task, description=f"{step:<24}", completed=done, total=total or None)

        return measure(data, targets, origins, times, show_progress, why)


def _is_real_terminal() -> bool:
    """Whether standard error is a terminal; a notebook runs commands in one, and saves its frames."""
    # Jupyter's kernels set the first variable (jupyter_client), and ipykernel newer ones the second.
    in_notebook = "JPY_PARENT_PID" in os.environ or "JPY_SESSION_NAME" in os.environ
    return sys.stderr.isatty() and not in_notebook and os.environ.get("TERM") != "dumb"


# -- the JSON document ----------------------------------------------------------------


def _document(result: Matrix) -> dict[str, Any]:
    data, arrays, columns = result.data, result.arrays, result.columns
    return {
        "zerocopy": zerocopy.__version__,
        "machine": doctor.machine() | {"nvidia": doctor.nvidia()},
        "versions": arrays.frameworks,
        "not_usable": {name: _reason(reason) for name, reason in arrays.not_usable.items()},
        "not_installed": arrays.not_installed,
        "input": {
            "name": data.name,
            "note": data.note,
            "arrays": {
                name: {"dtype": array.dtype.name, "shape": list(array.shape), "bytes": array.nbytes}
                for name, array in (data.arrays | data.subbyte).items()
            },
            "left_out": data.left_out,
        },
        "broken": len(result.broken),
        "cells": [_cell(cell) | {"shape": list(cell.shape)} for cell in arrays.cells],
        "columns": {name: {"type": kind, "rows": columns.rows[name]} for name, kind in columns.types.items()},
        "column_cells": [
            _cell(cell) | {"refusals": list(map(_reason, cell.refusals))} for cell in columns.cells
        ],
    }


def _cell(cell: Cell) -> dict[str, Any]:
    return asdict(cell) | {"reasons": list(map(_reason, cell.reasons))}


def _reason(reason: Reason) -> dict[str, Any]:
    fixes = [asdict(fix) for fix in reason.fixes]
    return {"why": reason.why, "remedy": reason.remedy, "code": reason.code, "fixes": fixes}


# -- the whole matrix: title, arrays, columns, missing frameworks, and verdict ------------


def _full(result: Matrix, out: Output) -> list[Line]:
    """Return the lines of ``--full``; the verdict comes first and last."""
    arrays, columns, data = result.arrays, result.columns, result.data
    verdict = result.summary().verdict_lines(out.width, out.unicode)
    size = sum(array.nbytes for array in data.arrays.values())
    title = f"  {printable(data.name)}, {size:,} bytes"
    note = f" ({data.note})" if data.note else ""
    lines = [*verdict, [(f"zerocopy {zerocopy.__version__}", "bold"), (title, ""), (note, "dim")]]
    part, following = _draw_arrays(arrays, out)
    lines += part
    if columns.cells:
        lines += _draw_columns(columns, following, out)
    if result.why:
        lines += [[], *paragraph(printable(result.why), "", out.width)]
    by_reason: dict[Reason, list[str]] = {}
    for name, reason in arrays.not_usable.items():
        by_reason.setdefault(reason, []).append(name)
    unusable = [(join_names(names), reason_lines(r.why, r.remedy)) for r, names in by_reason.items()]
    lines += _list("Installed, and not usable here", unusable, out)
    absent = [(printable(name), reason_lines(line, "")) for name, line in arrays.not_installed.items()]
    lines += _list("Known, and not installed", absent, out)
    left_out = {name: reason for name, reason in data.left_out.items() if name not in columns.types}
    rows = [(printable(name), reason_lines(reason, "")) for name, reason in left_out.items()]
    lines += _list(f"Left out of {printable(data.name)}", rows, out)
    return [*lines, [], *verdict]


def _list(title: str, rows: list[tuple[str, list[Line]]], out: Output) -> Iterator[Line]:
    if rows:
        yield from ([], [(title, "bold")])
        yield from labelled([(name, "", text) for name, text in rows], out.width)


def _draw_footnotes(footnotes: Footnotes, total: int, out: Output) -> Iterator[Line]:
    """Yield the lines of footnotes; `total` is the number of arrays or columns."""
    kind = ""
    for note in footnotes.listed:
        if note.kind != kind:
            kind = note.kind
            yield from ([], [(HEADINGS[kind], "bold red" if kind == "broken" else "bold")])
        text = reason_lines(note.why, note.remedy)
        if place := note.place(total):
            text.append([(place, "dim")])
        label = f"[{note.number}]" if note.number else out.signs.no
        yield from labelled([(label, "bold", text)], out.width)


def _draw_legend(
    used: set[str], remarks: dict[str, str], terms: list[tuple[str, str]], out: Output
) -> Iterator[Line]:
    """Yield the meaning of some outcomes, with remarks on some, and of more terms."""
    rows = [
        (f"{each.signs[out.unicode]} {each.word}", each.colour, each.meaning + remarks.get(name, ""))
        for name, each in OUTCOMES.items()
        if name in used
    ]
    rows += [(f"  {term}", "dim", meaning) for term, meaning in terms]
    if rows:
        yield []
        yield from labelled([(*row[:2], [[(row[2], "dim")]]) for row in rows], out.width, indent="")


# -- arrays: rows are sources, columns are targets -------------------------------------------


def _draw_arrays(arrays: ArrayMatrix, out: Output) -> tuple[list[Line], int]:
    """Return the grids, the legend and the footnotes, and the number of the next footnote."""
    footnotes = Footnotes(arrays.cells)
    by_array: dict[str, list[ArrayCell]] = {}
    for cell in arrays.cells:
        by_array.setdefault(cell.array, []).append(cell)
    groups: dict[tuple[str, ...], list[ArrayCell]] = {}  # arrays with the same outcome for every pair
    for cells in by_array.values():
        groups.setdefault(tuple(cell.outcome for cell in cells), []).extend(cells)
    lines: list[Line] = []
    for cells in groups.values():
        lines += [[], *paragraph(_caption(cells), "", out.width)]
        by_pair: dict[tuple[str, str], list[ArrayCell]] = {}
        for cell in cells:
            by_pair.setdefault((cell.source, cell.target), []).append(cell)
        texts = {pair: _draw_array_cell(some, footnotes, out) for pair, some in by_pair.items()}
        sources = {source for source, _ in by_pair}
        heads: dict[str, list[Line]] = {
            name: [[(printable(name), "bold")], [(printable(version or ""), "dim")]]
            for name, version in arrays.frameworks.items()
            if name in sources
        }
        corner: Line = [(corner_text(out.unicode), "dim")]
        targets, rule = list(arrays.frameworks), out.signs.rule
        lines += grid(corner, heads, targets, texts, out.width, rule=rule, blank=True)
    aliases = [cell for cell in arrays.cells if cell.outcome == "zero-copy"]
    written = sum("write" in cell.proof for cell in aliases)
    checked = f"; {written:,} of {len(aliases):,} also checked by writing to the source" if written else ""
    middle = "; the median array, if there are several" if len(by_array) > 1 else ""
    time = ("time", f"the median of one convert() call with default options{middle}")
    timed = any(cell.median_ns is not None for cell in arrays.cells)
    remarks = {"zero-copy": f", at the same address{checked}"}
    used = {cell.outcome for cell in arrays.cells}
    lines += _draw_legend(used, remarks, [time] if timed else [], out)
    return [*lines, *_draw_footnotes(footnotes, len(by_array), out)], footnotes.next


def _caption(cells: list[ArrayCell]) -> str:
    arrays = {cell.array: cell for cell in cells}
    if len(arrays) == 1:
        ((name, cell),) = arrays.items()
        return f"{printable(name)}: {format_shape(cell.shape)}, {cell.dtype}"
    dtypes = Counter(cell.dtype for cell in arrays.values())
    shapes = {cell.shape for cell in arrays.values()}
    each = f", each {format_shape(shapes.pop())}" if len(shapes) == 1 else ""
    counts = ", ".join(f"{count} {dtype}" for dtype, count in dtypes.items())
    return f"{len(arrays)} arrays ({counts}){each}: {join_names(list(arrays))}"


def _draw_array_cell(cells: list[ArrayCell], footnotes: Footnotes, out: Output) -> list[Line]:
    """Return two lines: the outcome of a pair; its time and footnotes."""
    outcome = OUTCOMES[cells[0].outcome]
    times = [cell.median_ns for cell in cells if cell.median_ns is not None]
    details = [format_seconds(median(times) / 1e9)] if times else []
    if numbers := footnotes.numbers(cells):
        details.append(f"[{','.join(map(str, numbers))}]")
    style = "dim" if cells[0].outcome == "zero-copy" else ""
    return [[(f"{outcome.signs[out.unicode]} {outcome.word}", outcome.colour)], [(" ".join(details), style)]]


# -- columns: a grid for each source; rows are types, columns are targets ----------------------


def _draw_columns(columns: ColumnMatrix, first: int, out: Output) -> list[Line]:
    """Return the grids, the legend and the footnotes, whose first number is `first`."""
    counts = " or ".join(f"{n:,}" for n in sorted(set(columns.rows.values())))
    each = f", each as the column {LABEL!r} of a table"
    lines: list[Line] = [[], [("Columns by type", "bold"), (f", {counts} rows", ""), (each, "dim")]]
    footnotes = Footnotes(columns.cells, general=True, first=first, unnumbered={"warning"})
    for source in columns.sources:
        lines += _draw_source(columns, source, footnotes, out)
    options = {name for cell in columns.cells for name in cell.options}
    aliases = [cell for cell in columns.cells if cell.zero_copy and cell.outcome != "broken"]
    used = {cell.outcome for cell in columns.cells} - {"encoded", "masked"}
    used |= {name for name, option in _LETTERS if option in options}
    used |= {"zero-copy"} if aliases else set()
    used |= {"copy"} if any(cell.copied_bytes for cell in columns.cells) else set()
    queries = sum(not cell.proof for cell in aliases)
    unchecked = f"; {queries:,} of {len(aliases):,} are queries, whose memory cannot be checked"
    remarks = {"zero-copy": f", all of it{unchecked if queries else ''}", "copy": ", at least in part"}
    has_type = any(TYPE in note.why for note in footnotes.listed)
    terms = [(TYPE, "in a footnote: the type of the row")] if has_type else []
    lines += _draw_legend(used, remarks, terms, out)
    return [*lines, *_draw_footnotes(footnotes, len(columns.types), out)]


#: The outcomes that need an option, with the option.
_LETTERS = (("encoded", "encode"), ("masked", "nulls"))


def _draw_source(columns: ColumnMatrix, source: str, footnotes: Footnotes, out: Output) -> list[Line]:
    texts: dict[tuple[str, str], list[Line]] = {}
    by_column: dict[str, list[ColumnCell]] = {}
    for cell in columns.cells:
        if cell.source == source:
            by_column.setdefault(cell.column, []).append(cell)
            texts[cell.column, cell.target] = [_draw_column_cell(cell, footnotes, out)]
    # A file's columns of one type with the same cells are one row.
    alike: dict[Any, list[str]] = {}
    for name, cells in by_column.items():
        drawn = [texts[name, cell.target][0] for cell in cells]
        alike.setdefault(name if columns.by_type else (columns.types[name], str(drawn)), []).append(name)
    heads = {names[0]: [_head(names, columns, out)] for names in alike.values()}
    corner: Line = [("from ", ""), (printable(source), "bold")]
    return grid(corner, heads, columns.targets, texts, out.width, rule=out.signs.rule)


def _head(names: list[str], columns: ColumnMatrix, out: Output) -> Line:
    """Return the names of columns with their type, unless they are called after it."""
    if columns.by_type:
        return [(names[0], "")]
    name, kind = join_names(names, 2), printable(columns.types[names[0]])
    return [
        (f"{shorten(name, _MAX_HEAD, out.signs.ellipsis)} ", ""),
        (shorten(kind, _MAX_HEAD, out.signs.ellipsis), "dim"),
    ]


def _draw_column_cell(cell: ColumnCell, footnotes: Footnotes, out: Output) -> Line:
    """Return a cell's sign, after a letter for each option that the conversion needs, and its footnotes."""
    shared = "zero-copy" if cell.zero_copy else "copy"
    outcome = OUTCOMES[shared if cell.options else cell.outcome]
    letters = "".join(OUTCOMES[name].signs[0] for name, option in _LETTERS if option in cell.options)
    numbers = ",".join(map(str, footnotes.numbers([cell])))
    return [(letters + outcome.signs[out.unicode], outcome.colour), (f" {numbers}" if numbers else "", "")]
