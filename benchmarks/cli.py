"""The command line: what to run, where to write it, what to compare it with."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import results as storage
from benchmarks.report import show, show_changes
from benchmarks.suite import SUITES, Case, Section, Settings, Suite, load
from benchmarks.timing import FULL, QUICK

_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}


class Size(click.ParamType):
    """Sizes in bytes, with commas: ``4,4KiB,1MiB,1GiB``."""

    name = "SIZES"

    def convert(self, value: Any, param: Any, ctx: Any) -> list[int]:
        """Return the sizes in bytes."""
        sizes = []
        for part in str(value).split(","):
            match = re.fullmatch(r"(\d+)\s*([kmg]?)(?:i?b)?", part.strip().lower())
            if match is None or not int(match[1]):
                self.fail(f"{part!r} is no size: write it as 4096, 4KiB, 1MiB or 1GiB", param, ctx)
            sizes.append(int(match[1]) * _UNITS[match[2]])
        return sizes


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("suites", nargs=-1, metavar="[SUITE|SUITE/SECTION]...")
@click.option("--suite", "more", multiple=True, metavar="SUITE", help="The same as the argument.")
@click.option("--frameworks", default="", metavar="A,B", help="Measure between these only.")
@click.option("--sizes", type=Size(), default=None, help="Sizes in bytes, such as 4,4KiB,1GiB.")
@click.option("--quick", is_flag=True, help="Fewer and shorter blocks, fewer sizes: under a minute.")
@click.option(
    "--json",
    "target",
    type=click.Path(path_type=Path),
    help="Write the results there; a folder gets a name made up.",
)
@click.option(
    "--plot",
    "pictures",
    type=click.Path(file_okay=False, path_type=Path),
    help="Draw the throughput of layouts into that folder.",
)
@click.option(
    "--compare", "old", type=click.Path(exists=True, path_type=Path), help="Compare with earlier results."
)
@click.option(
    "--threshold",
    type=click.FloatRange(min=1),
    default=1.25,
    show_default=True,
    help="Slower than that fails.",
)
@click.option("--list", "listing", is_flag=True, help="List suites and sections, and run nothing.")
def main(
    suites: tuple[str, ...],
    more: tuple[str, ...],
    frameworks: str,
    sizes: list[int] | None,
    quick: bool,
    target: Path | None,
    pictures: Path | None,
    old: Path | None,
    threshold: float,
    listing: bool,
) -> None:
    """Measure what zerocopy costs, beside what people write by hand.

    Without a SUITE all of them run. Ctrl-C stops, and keeps what was measured.
    The exit status is 1 if a task failed or, with --compare, anything got slower.
    """
    # Said before anything imports TensorFlow, which greets each import with a page of logs.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # Wide enough for the tables where the output is no terminal.
    console = Console() if Console().is_terminal else Console(width=160)
    if listing:
        _list(console)
        return
    before = _read(old) if old else None
    chosen = _choose(suites + more)
    settings = Settings(
        frameworks=_frameworks(frameworks, [suite for suite, _ in chosen]),
        sizes=tuple(sizes or ()),
        quick=quick,
        pace=QUICK if quick else FULL,
    )
    found = _run(chosen, settings)
    shown = [(suite.name, section) for suite, sections in chosen for section in sections]
    show(console, found, shown)
    if target is not None:
        target = target / found.file_name() if target.is_dir() else target
        found.save(target)
        click.echo(f"written to {target}", err=True)
    if pictures is not None:
        _draw(found, pictures)
    slower = False
    if before is not None:
        changes = storage.compare(before, found)
        show_changes(console, changes, threshold, before)
        slower = any(change.slower(threshold) for change in changes)
    for case in found.failures:
        click.echo(f"failed: {case.name}: {case.failed}", err=True)
    # 130: what shells say of a program that Ctrl-C ended.
    raise SystemExit(1 if slower or found.failures else 0 if found.complete else 130)


Chosen = list[tuple[Suite, list[Section]]]


def _run(chosen: Chosen, settings: Settings) -> storage.Results:
    """Run what was chosen; an interrupt ends it early, with what there is."""
    found = storage.Results.begin([suite for suite, _ in chosen], settings)
    work = [
        (suite, section, task)
        for suite, sections in chosen
        for section in sections
        for task in section.tasks(settings)
    ]
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    complete = False
    try:
        with Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False) as progress:
            bar = progress.add_task("", total=len(work))
            for suite, section, task in work:
                progress.update(bar, description=f"{suite.name}/{section.name}: {task.name}")
                # Drawn here and not by a clock: a thread that draws would be timed too.
                progress.refresh()
                try:
                    found.add(suite.name, section, task.run())
                except Exception as error:  # noqa: BLE001 - the figures of the others are not lost for it
                    failure = f"{type(error).__name__}: {error}"
                    found.add(suite.name, section, [Case(task.name, failed=failure)])
                progress.advance(bar)
        complete = True
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
    found.finish([(suite.name, section) for suite, sections in chosen for section in sections], complete)
    return found


def _choose(names: tuple[str, ...]) -> Chosen:
    chosen: dict[str, list[str]] = {}
    for name in names or tuple(SUITES):
        suite, _, section = name.partition("/")
        if suite not in SUITES:
            raise click.UsageError(f"no suite {suite!r}; there are: {', '.join(SUITES)}")
        chosen.setdefault(suite, []).append(section)
    return [_sections(load(suite), wanted) for suite, wanted in chosen.items()]


def _sections(suite: Suite, wanted: list[str]) -> tuple[Suite, list[Section]]:
    by_name = {section.name: section for section in suite.sections}
    for name in wanted:
        if name and name not in by_name:
            raise click.UsageError(f"{suite.name} has no section {name!r}; it has: {', '.join(by_name)}")
    return suite, [s for s in suite.sections if "" in wanted or s.name in wanted]


def _frameworks(text: str, suites: list[Suite]) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    known = list(dict.fromkeys(name for suite in suites for name in suite.frameworks))
    for name in names:
        if name not in known:
            raise click.UsageError(f"no framework {name!r} in these suites; there are: {', '.join(known)}")
    return names


def _draw(found: storage.Results, folder: Path) -> None:
    # Here, so that the command needs matplotlib for this alone.
    from benchmarks.plot import draw

    try:
        for path in draw(found, folder):
            click.echo(f"written to {path}", err=True)
    except ValueError as error:
        raise click.ClickException(str(error)) from error


def _read(path: Path) -> storage.Results:
    try:
        return storage.read(path)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _list(console: Console) -> None:
    for name in SUITES:
        suite = load(name)
        console.print(f"[bold]{name}[/bold]: {suite.about}")
        for section in suite.sections:
            console.print(f"  {name}/{section.name}: {section.about}", highlight=False)
