"""The command ``zerocopy``: ``matrix`` tries every pair of frameworks, ``doctor`` says what is here.

click and rich come with the extra ``cli``. They are imported inside functions, so
that the command can say so where they are missing.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import zerocopy

if TYPE_CHECKING:
    import click

    from zerocopy.cli.datasets import Data
    from zerocopy.cli.matrix.arrays import Matrix
    from zerocopy.cli.matrix.columns import ColumnMatrix

_ROWS = 10_000  # of each column that is tried by type
_MISSING = "zerocopy: the command needs click and rich: pip install click rich"


def main() -> None:
    """Run the command line; the exit code is 0, 1 for a broken promise, 2 for wrong input."""
    try:
        import click  # noqa: F401
        import rich  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name not in ("click", "rich"):
            raise
        print(_MISSING, file=sys.stderr)
        sys.exit(1)
    command()(prog_name="zerocopy")


def command() -> click.Group:
    """Return the command line as click's object."""
    import click

    @click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
    @click.version_option(zerocopy.__version__, message="%(prog)s %(version)s")
    def group() -> None:
        """Hand arrays between Python frameworks without copying them."""

    @group.command()
    @click.option(
        "--input",
        "path",
        metavar="FILE",
        help="Data to convert: .npy, .npz, .csv, .parquet, .arrow or .feather. Default: Fisher's iris.",
    )
    @click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
    @click.option("--frameworks", metavar="A,B", help="These only. Default: all that are installed.")
    @click.option("--from", "sources", metavar="A,B", help="These sources only: rows, and blocks of columns.")
    @click.option(
        "--types",
        metavar="A,B",
        help="Columns of these types or names only, such as int64,string. Default: all.",
    )
    @click.option(
        "--only",
        type=click.Choice(["arrays", "columns"]),
        help="One of the two parts: the grid of arrays, or the columns by type.",
    )
    @click.option(
        "--repeat",
        type=click.IntRange(1, 1_000_000),
        metavar="N",
        help="Samples to time a cell with. Default: up to 50 in a tenth of a second.",
    )
    def matrix(as_json: bool, **asked: Any) -> None:
        """Convert real data between every pair of installed frameworks, and check each promise.

        First arrays: rows are sources, columns are targets. Then columns of a table, one
        block for each framework of tables, by type: strings, dates, nulls, lists. The exit
        code is 1 if a promise is broken: a wrong value, a copy that is called none, an
        exception from below.
        """
        _run_matrix(_Asked(**asked), as_json)

    @group.command()
    @click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
    @click.option(
        "--import", "importing", is_flag=True, help="Import each installed framework, to see its devices."
    )
    def doctor(as_json: bool, importing: bool) -> None:
        """Say what is installed, what is not, and what the machine has."""
        from zerocopy.cli import doctor as examine

        _quieten()
        report = examine.report(importing)
        if as_json:
            _print_json(report)
            return
        from zerocopy.cli.terminal import Output

        examine.show(report, Output())

    return group


@dataclass(frozen=True, slots=True)
class _Asked:
    """What ``zerocopy matrix`` was asked, as it was written."""

    path: str | None
    frameworks: str | None
    sources: str | None
    types: str | None
    only: str | None
    repeat: int | None

    def list(self, option: str, value: str | None) -> list[str] | None:
        """Return the names of an option; None where it was not said."""
        if value is None:
            return None
        names = [name.strip() for name in value.split(",") if name.strip()]
        if not names:
            raise _wrong(f"{option} names none")
        return names


def _run_matrix(asked: _Asked, as_json: bool) -> None:
    from zerocopy.cli import datasets

    _quieten()
    names = asked.list("--frameworks", asked.frameworks)
    sources = asked.list("--from", asked.sources)
    _check_installed("--frameworks", names)
    _check_installed("--from", sources)
    if names is not None and sources is not None:
        names = list(dict.fromkeys([*names, *sources]))
    try:
        data = datasets.iris() if asked.path is None else datasets.load(asked.path)
        columns, why = _columns(asked, data)
        result, by_type = _measure(asked, data, columns, names, sources)
    except datasets.DataError as error:
        raise _wrong(str(error)) from error
    except MemoryError as error:
        raise _wrong(f"not enough memory for a copy of the data in each framework: {error}") from error
    if as_json:
        _print_json(_document(result, by_type, data))
    else:
        from zerocopy.cli.matrix import print_arrays as grid
        from zerocopy.cli.terminal import Output

        grid.show(result, by_type, data, Output(), why)
    broken = bool(result.broken or (by_type is not None and by_type.broken))
    if broken or not (result.cells or (by_type is not None and by_type.cells)):
        sys.exit(1 if broken else 2)


def _check_installed(option: str, names: list[str] | None) -> None:
    from zerocopy import registry
    from zerocopy.errors import UnknownFrameworkError

    try:
        for name in names or ():
            framework = registry.by_name(name)
            if not framework.installed():
                line = f"pip install {framework.distribution or framework.name}"
                raise _wrong(f"{option}: {name} is not installed: {line}")
    except UnknownFrameworkError as error:
        raise _wrong(f"{option}: {error.asked[3:]}: {error.why}. {error.remedy}") from error


def _columns(asked: _Asked, data: Data) -> tuple[dict[str, Any], str]:
    """Return the columns to try, and why there are none where that wants a word."""
    from zerocopy.cli.matrix import samples as columns

    types = asked.list("--types", asked.types)
    if asked.only == "arrays":
        return {}, ""
    missing = columns.missing()
    if missing is None and (asked.path is None or data.columns is not None):
        found = columns.samples() if data.columns is None else data.columns
        try:
            # What comes of a type does not hang on how many rows there are.
            return {
                name: column.slice(0, _ROWS)
                for name, column in (found if types is None else columns.pick(found, types)).items()
            }, ""
        except LookupError as error:
            raise _wrong(f"--types: {error.args[0]}") from error
    why = f"Columns by type need pyarrow: {missing}" if missing else f"{data.name} has no columns of a table"
    if types is not None or asked.only == "columns" or not data.arrays:
        raise _wrong(why)
    return {}, why if missing else ""


def _measure(
    asked: _Asked, data: Data, columns: dict[str, Any], names: list[str] | None, sources: list[str] | None
) -> tuple[Matrix, ColumnMatrix | None]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from zerocopy import registry
    from zerocopy.cli.matrix import arrays as matrix, columns as column_matrix

    console = Console(stderr=True)
    parts = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*parts, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)

        def tell(what: str, done: int, total: int) -> None:
            bar.update(task, description=f"{what:<24}", completed=done, total=total or None)

        arrays = {} if asked.only == "columns" else data.arrays
        found = matrix.measure(arrays, names, asked.repeat, tell, sources)
        usable = list(found.frameworks)
        if sources is None:
            origins = [name for name in usable if registry.by_name(name).tables]
        else:
            origins = [name for name in sources if name in usable]
        if not columns or not origins:
            return found, None
        by_type = column_matrix.measure(columns, usable, origins, tell)
        by_type.named = data.columns is None
        return found, by_type


def _quieten() -> None:
    """Keep TensorFlow's two kinds of start-up notes off the screen; never for the library's users.

    Both are read once, when it is imported, and both are left alone if set. The
    level hides information, not warnings. The note on oneDNN is written before the
    level is read; the switch is for kernels, and a conversion runs none.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")


def _wrong(message: str) -> click.ClickException:
    """Return the error for wrong input: one line, exit code 2."""
    import click

    from zerocopy.cli.terminal import printable

    class WrongInput(click.ClickException):
        exit_code = 2

    return WrongInput(printable(message))


def _document(result: Matrix, columns: ColumnMatrix | None, data: Data) -> dict[str, Any]:
    from dataclasses import asdict

    from zerocopy.cli import doctor

    cells = [asdict(cell) | {"shape": list(cell.shape)} for cell in result.cells]
    return {
        "zerocopy": zerocopy.__version__,
        "machine": doctor.machine() | {"nvidia": doctor.by_driver()},
        "versions": result.frameworks,
        "not_usable": {name: asdict(reason) for name, reason in result.not_usable.items()},
        "not_installed": result.not_installed,
        "input": {
            "name": data.name,
            "note": data.note,
            "arrays": {
                name: {"dtype": array.dtype.name, "shape": list(array.shape), "bytes": array.nbytes}
                for name, array in data.arrays.items()
            },
            "left_out": data.left_out,
        },
        "broken": len(result.broken) + (0 if columns is None else len(columns.broken)),
        "cells": cells,
        "columns": {}
        if columns is None
        else {name: {"type": kind, "rows": columns.rows[name]} for name, kind in columns.types.items()},
        "column_cells": [] if columns is None else [asdict(cell) for cell in columns.cells],
    }


def _print_json(document: dict[str, Any]) -> None:
    print(json.dumps(document, indent=2, allow_nan=False))
