"""Run ``zerocopy matrix``: choose the data and the frameworks, measure, and build the JSON document."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, dataclass, replace
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

import zerocopy
from zerocopy import registry
from zerocopy.cli import datasets, doctor
from zerocopy.cli.datasets import MAX_BYTES, Data
from zerocopy.cli.matrix import samples as column_samples
from zerocopy.cli.matrix.result import Matrix, measure
from zerocopy.errors import UnknownFrameworkError
from zerocopy.formatting.printable import printable

_ROWS = 10_000  # of each column: the outcome does not depend on the number of rows


class InputError(click.ClickException):
    """Wrong input: one line on standard error, and exit code 2."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command as the user wrote them; None if absent."""

    path: str | None
    frameworks: str | None
    sources: str | None
    types: str | None
    only: str | None
    samples: int | None
    max_bytes: int = MAX_BYTES
    timed: bool = True  # whether the output has times


def run_matrix(options: Options) -> Matrix:
    """Convert the data between the frameworks; raise InputError if an option or the file is invalid."""
    frameworks = _installed("--frameworks", options.frameworks)
    sources = _installed("--from", options.sources)
    if frameworks is not None and sources is not None:
        frameworks = list(dict.fromkeys([*frameworks, *sources]))
    try:
        data = datasets.iris() if options.path is None else datasets.load(options.path, options.max_bytes)
        chosen, why = _columns(options, data)
        return _measure(options, data, chosen, why, frameworks, sources)
    except datasets.DataError as error:
        raise InputError(str(error)) from error
    except MemoryError as error:
        raise InputError(f"not enough memory for a copy of the data in each framework: {error}") from error


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


def _columns(options: Options, data: Data) -> tuple[dict[str, Any], str]:
    """Return the columns to convert, and why there are none if the output should explain it."""
    types = _names("--types", options.types)
    if options.only == "arrays":
        return {}, ""
    missing = column_samples.missing()
    if missing is not None or (options.path is not None and data.columns is None):
        why = missing or f"{data.name} has no columns of a table"
        if types is not None or options.only == "columns" or not data.arrays:
            raise InputError(why)
        return {}, missing or ""
    known = column_samples.samples() if data.columns is None else data.columns
    try:
        chosen = known if types is None else column_samples.pick(known, types)
    except LookupError as error:
        raise InputError(f"--types: {error.args[0]}") from error
    return {name: column.slice(0, _ROWS) for name, column in chosen.items()}, ""


def _measure(
    options: Options,
    data: Data,
    chosen: dict[str, Any],
    why: str,
    frameworks: list[str] | None,
    sources: list[str] | None,
) -> Matrix:
    """Fill the cells, with a progress bar if standard error is a terminal."""
    console = Console(stderr=True)
    parts = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    shown = console.is_terminal and is_real_terminal()
    with Progress(*parts, console=console, transient=True, disable=not shown) as bar:
        task = bar.add_task("", total=None)

        def show_progress(step: str, done: int, total: int) -> None:
            bar.update(task, description=f"{step:<24}", completed=done, total=total or None)

        named = {} if options.only == "columns" else data.arrays
        # The summary has no times.
        samples = options.samples if options.samples or options.timed else 0
        chosen_data = replace(data, arrays=named)
        result = measure(chosen_data, chosen, frameworks, sources, samples, show_progress, why)
        return replace(result, data=data)


def is_real_terminal() -> bool:
    """Whether standard error is a terminal; a notebook runs commands in one, and saves its frames."""
    # Jupyter's kernels set the first variable (jupyter_client), and ipykernel newer ones the second.
    in_notebook = "JPY_PARENT_PID" in os.environ or "JPY_SESSION_NAME" in os.environ
    return sys.stderr.isatty() and not in_notebook and os.environ.get("TERM") != "dumb"


def document(result: Matrix) -> dict[str, Any]:
    """Return the document that ``--json`` prints."""
    data, of_arrays, of_columns = result.data, result.arrays, result.columns
    return {
        "zerocopy": zerocopy.__version__,
        "machine": doctor.machine() | {"nvidia": doctor.nvidia_driver()},
        "versions": of_arrays.frameworks,
        "not_usable": {name: asdict(reason) for name, reason in of_arrays.not_usable.items()},
        "not_installed": of_arrays.not_installed,
        "input": {
            "name": data.name,
            "note": data.note,
            "arrays": {
                name: {"dtype": array.dtype.name, "shape": list(array.shape), "bytes": array.nbytes}
                for name, array in data.arrays.items()
            },
            "left_out": data.left_out,
        },
        "broken": len(of_arrays.broken) + len(of_columns.broken),
        "cells": [asdict(cell) | {"shape": list(cell.shape)} for cell in of_arrays.cells],
        "columns": {
            name: {"type": kind, "rows": of_columns.rows[name]} for name, kind in of_columns.types.items()
        },
        "column_cells": [asdict(cell) for cell in of_columns.cells],
    }
