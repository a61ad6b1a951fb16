"""The command line."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from benchmarks import results as storage
from benchmarks.report import compare, show, show_changes
from benchmarks.run import run
from benchmarks.schedule import BUDGET, PICTURES, Piece, Schedule, pieces
from benchmarks.suite import SUITES, Section, Settings, Suite, load
from benchmarks.timing import FULL, QUICK

_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}


class Size(click.ParamType):
    """Sizes in bytes, with commas: ``4,4KiB,1MiB,1GiB``."""

    name = "SIZES"

    def convert(self, value: Any, param: Any, ctx: Any) -> list[int]:
        """Return sizes in bytes."""
        if isinstance(value, list):
            return value
        sizes = []
        for part in str(value).split(","):
            match = re.fullmatch(r"(\d+)\s*([kmg]?)(?:i?b)?", part.strip().lower())
            if match is None or not int(match[1]):
                self.fail(
                    f"{part!r} is not a size: write 4096, 4KiB, 1MiB or 1GiB, separated by commas", param, ctx
                )
            sizes.append(int(match[1]) * _UNITS[match[2]])
        return sizes


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("suites", nargs=-1, metavar="[SUITE|SUITE/SECTION]...")
@click.option("--suite", "more", multiple=True, metavar="SUITE", help="The same as the argument.")
@click.option("--frameworks", default="", metavar="A,B", help="Measure these frameworks only.")
@click.option("--sizes", type=Size(), default=None, help="Sizes in bytes, such as 4,4KiB,1GiB.")
@click.option("--quick", is_flag=True, help="Fewer and shorter blocks, fewer cases: under a minute.")
@click.option(
    "--json",
    "target",
    metavar="FILE",
    help="Write the results to FILE after each task. In a folder the file name is generated.",
)
@click.option(
    "--plot",
    "pictures",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Draw the pictures into DIR, each as SVG and PNG.",
)
@click.option(
    "--compare",
    "old",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Compare with earlier results.",
)
@click.option(
    "--threshold",
    type=click.FloatRange(min=1),
    default=1.25,
    show_default=True,
    help="With --compare: fail if a contender is slower by more than this factor.",
)
@click.option("--list", "listing", is_flag=True, help="List suites and sections without running them.")
def main(
    suites: tuple[str, ...],
    more: tuple[str, ...],
    frameworks: str,
    sizes: list[int] | None,
    quick: bool,
    target: str | None,
    pictures: Path | None,
    old: Path | None,
    threshold: float,
    listing: bool,
) -> None:
    """Measure the cost of zerocopy and compare it with calls written by hand.

    Without a SUITE all of them run. Ctrl-C stops the run and keeps its results.
    The exit status is 1 if a task failed or, with --compare, anything got slower.
    """
    # Set before TensorFlow is imported, which otherwise prints a page of logs.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # Wide enough for the tables if the output is not a terminal.
    console = Console() if Console().is_terminal else Console(width=160)
    if listing:
        _list(console)
        return
    # Invalid options are reported before anything is measured.
    before = _read(old) if old else None
    chosen = _choose(suites + more)
    settings = Settings(
        frameworks=_frameworks(frameworks, [suite for suite, _ in chosen]),
        sizes=tuple(sizes or ()),
        quick=quick,
        pace=QUICK if quick else FULL,
    )
    results = storage.Results.begin([suite for suite, _ in chosen], settings, suites + more)
    file = _file(target, results) if target else None
    draw = _drawing(pictures) if pictures else None
    seconds = BUDGET - (PICTURES if pictures else 0) if quick else None
    schedule = Schedule(_pieces(chosen, settings), seconds)
    if not schedule.work:
        raise click.UsageError(
            "there is nothing to measure: the packages are not installed, or --frameworks excludes them"
        )
    printed = run(results, schedule, partial(_keep, file=file))
    show(console, results, schedule.sections())
    if file is not None:
        _keep(results, file, last=True)
    if draw is not None and pictures is not None:
        _draw(draw, results, pictures)
    slower = False
    if before is not None:
        changes = compare(before, results)
        show_changes(console, changes, threshold, before, results)
        slower = any(change.slower(threshold) for change in changes)
    raise SystemExit(_status(results, printed) or int(slower))


def _status(results: storage.Results, printed: str) -> int:
    """Report failures and an interrupt, and return the exit status."""
    for case in results.failures:
        click.echo(f"failed: {case.name}: {case.failed}", err=True)
    if printed:
        click.echo(f"output of libraries:\n{printed}", err=True)
    if results.facts.get("interrupted"):
        click.echo("interrupted: the results so far are above", err=True)
        return 130  # the shell's status for Ctrl-C
    return int(bool(results.failures))


Chosen = list[tuple[Suite, list[Section]]]


def _choose(names: tuple[str, ...]) -> Chosen:
    chosen: dict[str, list[str]] = {}
    for name in names or tuple(SUITES):
        suite, _, section = name.partition("/")
        if suite not in SUITES:
            raise click.UsageError(_unknown("suite", suite, SUITES))
        chosen.setdefault(suite, []).append(section)
    return [_sections(_load(suite), wanted) for suite, wanted in chosen.items()]


def _pieces(chosen: Chosen, settings: Settings) -> list[Piece]:
    try:
        return pieces(chosen, settings)
    except ValueError as error:  # a setting that the tasks do not support
        raise click.UsageError(str(error)) from error


def _load(name: str) -> Suite:
    try:
        return load(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("benchmarks", "zerocopy"):
            raise
        raise click.ClickException(
            f"suite {name} needs {error.name}, which is not installed. "
            "To fix: pip install -U pip && pip install -e . --group bench"
        ) from error


def _sections(suite: Suite, wanted: list[str]) -> tuple[Suite, list[Section]]:
    by_name = {section.name: section for section in suite.sections}
    for name in wanted:
        if name and name not in by_name:
            raise click.UsageError(_unknown(f"section of {suite.name}", name, by_name))
    return suite, [s for s in suite.sections if "" in wanted or s.name in wanted]


def _frameworks(text: str, suites: list[Suite]) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    known = dict.fromkeys(name for suite in suites for name in suite.frameworks)
    for name in names:
        if name not in known:
            raise click.UsageError(_unknown("framework", name, known))
    return names


def _unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """Return an error text with close matches and the known names."""
    near = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    return f"unknown {kind} {name!r}. {hint}Known: {', '.join(known)}"


def _file(target: str, results: storage.Results) -> Path:
    """Return the file to write, and create its folder."""
    try:
        # Resolved: writing replaces the file that a link points to, not the link.
        path = Path(target).resolve()
        if path.is_dir() or target.endswith(("/", os.sep)):
            path /= results.file_name()
        if path.exists() and not path.is_file():
            raise click.ClickException(f"cannot write {path}: it is not a regular file")
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.part")
        draft.touch()
        draft.unlink()
    except OSError as error:
        raise click.ClickException(f"cannot write {target}: {error.strerror or error}") from error
    return path


def _keep(results: storage.Results, file: Path | None, last: bool = False) -> None:
    if file is None:
        return
    try:
        results.save(file)
    except OSError as error:
        # A full disk does not end the run: its tables are printed at the end.
        if last:
            raise click.ClickException(f"cannot write {file}: {error.strerror or error}") from error
    else:
        if last:
            click.echo(f"written to {file}", err=True)


def _drawing(folder: Path) -> Any:
    """Return the function that draws pictures, and create their folder."""
    # Imported here: only pictures need matplotlib.
    from benchmarks import plots

    try:
        plots.require()
        folder.mkdir(parents=True, exist_ok=True)
    except ImportError as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"cannot write into {folder}: {error.strerror or error}") from error
    return plots.draw


def _draw(draw: Any, results: storage.Results, folder: Path) -> None:
    try:
        for path in draw(results, folder):
            click.echo(f"written to {path}", err=True)
    except ValueError as error:
        if results.facts.get("interrupted"):
            click.echo("no pictures: the run was interrupted before anything could be drawn", err=True)
            return
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(str(error)) from error


def _read(path: Path) -> storage.Results:
    try:
        return storage.read(path)
    except (ValueError, OSError) as error:
        raise click.UsageError(str(error)) from error


def _list(console: Console) -> None:
    for name in SUITES:
        suite = _load(name)
        console.print(f"[bold]{name}[/bold]: {suite.about}")
        for section in suite.sections:
            console.print(f"  {name}/{section.name}: {section.about}", highlight=False, markup=False)
