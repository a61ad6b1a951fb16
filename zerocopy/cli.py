"""The command ``zerocopy``: ``matrix`` tries every pair of frameworks, ``doctor`` says what is here.

click and rich come with the extra ``cli``. They are imported inside functions, so
that the command can say so where they are missing.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import zerocopy

if TYPE_CHECKING:
    import click

    from zerocopy.datasets import Data
    from zerocopy.matrix import Matrix

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
    @click.option(
        "--repeat",
        type=click.IntRange(1, 1_000_000),
        metavar="N",
        help="Samples to time a cell with. Default: up to 50 in a tenth of a second.",
    )
    def matrix(path: str | None, as_json: bool, frameworks: str | None, repeat: int | None) -> None:
        """Convert real data between every pair of installed frameworks, and check each promise.

        Rows are sources, columns are targets. The exit code is 1 if a promise is
        broken: a wrong value, a copy that is called none, an exception from below.
        """
        _run_matrix(path, as_json, frameworks, repeat)

    @group.command()
    @click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
    @click.option(
        "--import", "importing", is_flag=True, help="Import each installed framework, to see its devices."
    )
    def doctor(as_json: bool, importing: bool) -> None:
        """Say what is installed, what is not, and what the machine has."""
        from zerocopy import doctor as examine

        _quieten()
        report = examine.report(importing)
        if as_json:
            _print_json(report)
            return
        from zerocopy.terminal import Output

        examine.show(report, Output())

    return group


def _run_matrix(path: str | None, as_json: bool, frameworks: str | None, repeat: int | None) -> None:
    from zerocopy import datasets, registry
    from zerocopy.errors import UnknownFrameworkError

    _quieten()
    names = None
    if frameworks is not None:
        names = [name.strip() for name in frameworks.split(",") if name.strip()]
        if not names:
            raise _wrong("--frameworks names none")
    try:
        for name in names or ():
            framework = registry.by_name(name)
            if not framework.installed():
                line = f"pip install {framework.distribution or framework.name}"
                raise _wrong(f"--frameworks: {name} is not installed: {line}")
        data = datasets.iris() if path is None else datasets.load(path)
        result = _measure(data, names, repeat)
    except datasets.DataError as error:
        raise _wrong(str(error)) from error
    except UnknownFrameworkError as error:
        raise _wrong(f"--frameworks: {error.asked[3:]}: {error.why}. {error.remedy}") from error
    except MemoryError as error:
        raise _wrong(f"not enough memory for a copy of the data in each framework: {error}") from error
    if as_json:
        _print_json(_document(result, data))
    else:
        from zerocopy import grid
        from zerocopy.terminal import Output

        grid.show(result, data, Output())
    if result.broken or not result.cells:
        sys.exit(1 if result.broken else 2)


def _measure(data: Data, names: list[str] | None, repeat: int | None) -> Matrix:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from zerocopy import matrix

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)

        def tell(what: str, done: int, total: int) -> None:
            bar.update(task, description=f"{what:<24}", completed=done, total=total or None)

        return matrix.measure(data.arrays, names, repeat, tell)


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

    from zerocopy.terminal import printable

    class WrongInput(click.ClickException):
        exit_code = 2

    return WrongInput(printable(message))


def _document(result: Matrix, data: Data) -> dict[str, Any]:
    from dataclasses import asdict

    from zerocopy import doctor

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
        "broken": len(result.broken),
        "cells": cells,
    }


def _print_json(document: dict[str, Any]) -> None:
    print(json.dumps(document, indent=2, allow_nan=False))
