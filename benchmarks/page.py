"""Write the pages of docs/ from files of results, so that figures are not typed by hand.

::

    python -m benchmarks.page --write                            # all pages and all pictures
    python -m benchmarks.page benchmarks/results/pool-....json   # one page, printed

The prose of a page is in ``docs/NAME.in``, with parts such as ``{{goals}}`` or ``{{rivals tables/columns}}``,
which are functions in `benchmarks.pages`. ``--write`` uses the newest full results of each suite in
``benchmarks/results/``. Results of quick or interrupted runs, and of a part of a suite, do not become pages.
Sections that need a GPU have separate pages, ``docs/gpu-....md``; for these a part of the suite is enough.
``docs/measurements.md`` compares the rows of all pages. ``docs/compiled-core.md`` has the newest results
that were measured with the compiled core.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from benchmarks import results as storage
from benchmarks.pages import core, overview, shared
from benchmarks.results import Results, needs_gpu
from benchmarks.suite import SUITES

_ROOT = Path(__file__).parents[1]
_DOCS = _ROOT / "docs"
CORE = "compiled-core"

#: The page of each suite.
PAGES = {suite: f"{suite}-benchmarks" for suite in SUITES}
PAGES |= {"conversion": "benchmarks", "layout": "layouts-benchmarks"}

#: Modules of `benchmarks.pages` with the parts of suites that need more than the shared ones.
_PARTS = {name: name for name in ("conversion", "layout", "pool", "pipeline", "loader", "processes", "grid")}
_PARTS |= {"hosts": "processes", "channels": "processes"}

#: Descriptions of the GPU pages in ``docs/measurements.md``.
ON_GPU = {
    "conversion": "between frameworks of one GPU, and to and from NumPy across the bus",
    "layout": "records to columns and back, compared with a copy on the device",
    "pool": "allocations, streams and transfers, with and without a pool",
    "pipeline": "the same pipeline with its engines on a GPU",
}

_RUN = """\
{file}, by `python -m benchmarks {arguments}`: {machine}.
{gpu} {contenders}, {rounds} blocks each; the figures are medians
([method](measurements.md#method))."""


def page(path: Path, suite: str = "") -> str:
    """Return the page of a suite for a file of results.

    Raises ValueError if the file has several suites and `suite` is empty, or if it does not have `suite`.
    """
    results = storage.read(path)
    suites = results.facts["suites"]
    if suite not in suites:
        if suite or len(suites) != 1:
            raise ValueError(f"{path} has the suites {', '.join(suites)}. To fix: name one of them")
        (suite,) = suites
    gpu = on_gpu(results, suite)
    results = _of_suite(results, suite)
    # Goals of the GPU sections only; the CPU's cases stay for comparison.
    results.goals = [goal for goal in results.goals if not gpu or needs_gpu(goal.section)]
    template = f"gpu-{PAGES[suite]}" if gpu else PAGES[suite]
    return _fill(template, parts_of(suite), results, path, suite)


def parts_of(suite: str) -> list[ModuleType]:
    """Return the module with the parts that a suite has alone, if it has any."""
    return [import_module(f"benchmarks.pages.{_PARTS[suite]}")] if suite in _PARTS else []


def page_of_core(path: Path) -> str:
    """Return the page of the compiled core for a file of results."""
    return _fill(CORE, [core], storage.read(path), path, "conversion")


def _of_suite(results: Results, suite: str) -> Results:
    """Return results with the sections of a suite and their goals only."""
    if len(results.facts["suites"]) == 1:
        return results  # goals of older results have no section
    cases = {name: cases for name, cases in results.cases.items() if name.startswith(f"{suite}/")}
    return replace(results, cases=cases, goals=[goal for goal in results.goals if goal.section in cases])


def _fill(template: str, modules: list[ModuleType], results: Results, path: Path, suite: str) -> str:
    """Return a template of docs/ with its parts, which the modules have, or `shared`, or this function."""

    def run(contenders: str = "All contenders of a row run in one process", rounds: str = "") -> str:
        gpu = _gpu(results.facts["machine"]) if on_gpu(results, suite) else ""
        build = (
            f"It was measured {results.build}."
            if "core" in results.facts
            else "The instruction set and the date of the code were not recorded."
        )
        return _RUN.format(
            file=_link(path),
            machine=shared.machine(results),
            contenders=contenders,
            arguments=arguments(),
            gpu=f"{gpu} {build}".strip(),
            rounds=rounds or results.facts["settings"]["pace"]["rounds"],
        )

    def arguments() -> str:
        if not on_gpu(results, suite):
            return suite
        return " ".join(name for name in results.facts["asked"] if name.partition("/")[0] == suite)

    def part(match: re.Match[str]) -> str:
        name, _, rest = match[1].partition(" ")
        texts = [text.strip() for text in rest.split("|")] if rest else []
        if name in ("run", "file"):
            return run(*texts) if name == "run" else _link(path)
        make = next(getattr(module, name) for module in (*modules, shared, overview) if hasattr(module, name))
        return str(make(results, *texts))

    text = (_DOCS / f"{template}.in").read_text(encoding="utf-8")
    filled = re.sub(r"\{\{(.+?)\}\}", part, text, flags=re.DOTALL)
    return re.sub(r"\n{3,}", "\n\n", filled).rstrip("\n") + "\n"


def _link(path: Path) -> str:
    return f"[benchmarks/results/{path.name}](../benchmarks/results/{path.name})"


def on_gpu(results: Results, suite: str) -> bool:
    """Whether results have times of a suite that were measured on a GPU."""
    return bool(results.facts["machine"].get("gpus") and _gpu_sections(results, suite))


def _gpu_sections(results: Results, suite: str) -> list[str]:
    """Return the sections of a suite that need a GPU and have times."""
    return [
        name
        for name, cases in results.cases.items()
        if name.startswith(f"{suite}/") and needs_gpu(name) and any(case.timed() for case in cases)
    ]


def _gpu(machine: dict[str, Any]) -> str:
    """Describe the GPU, its driver and the CUDA versions."""
    gpus = machine["gpus"]
    names = [f"{len(gpus)} x {gpus[0]['name']}" if len(gpus) > 1 else str(gpus[0]["name"])]
    if memory := gpus[0].get("memory_bytes"):
        names.append(f"{memory / 2**30:.0f} GiB" + " each" * (len(gpus) > 1))
    if gpus[0].get("mig"):
        names.append("a MIG slice")
    if gpus[0].get("shared"):
        names.append("shared with other processes")
    keys = {"driver": "nvidia_driver", "CUDA of the driver": "cuda_driver", "CUDA runtime": "cuda_runtime"}
    known = [f"{name} {machine[key]}" for name, key in keys.items() if machine.get(key)]
    return f"The GPU: {', '.join([', '.join(names), *known])}."


def refusal(results: Results, suite: str) -> str:
    """Return why results cannot become a page of a suite, or nothing."""
    facts = results.facts
    if results.quick:
        return "they are from a run with --quick"
    if not results.complete:
        return "they are not complete: interrupted, or a task failed"
    if results.isa_narrowed:
        return f"they are from a run with ZEROCOPY_CORE_ISA={results.isa}"
    measured = facts.get("asked", facts["suites"])
    if suite not in measured and not on_gpu(results, suite):
        return f"they have only a part of {suite}"
    narrowed = [f"--{name}" for name in ("frameworks", "sizes") if facts["settings"].get(name)]
    return f"they are from a run with {' and '.join(narrowed)}" if narrowed else ""


def _kept(folder: Path) -> Iterator[tuple[Path, Results]]:
    for path in sorted(folder.glob("*.json")):
        try:
            yield path, storage.read(path)
        except ValueError:
            continue  # another kind of results


def newest(folder: Path, gpu: bool = False) -> dict[str, Path]:
    """Return the newest full results of each suite, by its name: on the CPU, or on a GPU.

    On a GPU, results with more of the suite's GPU sections come first.
    """
    candidates: dict[str, tuple[int, str, Path]] = {}
    for path, results in _kept(folder):
        for suite in results.facts["suites"]:
            if suite not in PAGES or refusal(results, suite) or on_gpu(results, suite) != gpu:
                continue
            candidate = (len(_gpu_sections(results, suite)), results.facts["started"], path)
            candidates[suite] = max(candidates.get(suite, candidate), candidate)
    return {suite: candidates[suite][-1] for suite in SUITES if suite in candidates}


def newest_of_core(folder: Path) -> Path:
    """Return the newest full results of the goals of the compiled core that were measured with it."""
    return max(
        (results.facts["started"], path)
        for path, results in _kept(folder)
        if results.complete and not results.quick and not results.facts["settings"].get("frameworks")
        if results.compiled
        and not results.isa_narrowed
        and any(case.timed() for case in results.cases.get(core.SECTION, ()))
    )[1]


def write(folder: Path) -> list[Path]:
    """Write all pages and pictures, and return the files."""
    from benchmarks.plots import PICTURES, draw

    texts, written = {}, []
    for suite, path in newest(folder).items():
        texts[PAGES[suite]] = page(path, suite)
        # Pictures of this suite only: another file may be newer for other suites.
        results = _of_suite(storage.read(path), suite)
        if any(picture.drawable(results) for picture in PICTURES):
            written += draw(results, _DOCS / "pictures")
    for suite, path in newest(folder, gpu=True).items():
        texts[f"gpu-{PAGES[suite]}"] = page(path, suite)
    # The results of the compiled core may be in another file than those of its suite.
    path = newest_of_core(folder)
    texts[CORE] = page_of_core(path)
    results = storage.read(path)
    written += draw(replace(results, cases={core.SECTION: results.cases[core.SECTION]}), _DOCS / "pictures")
    texts["measurements"] = overview_page(folder)
    for name, text in texts.items():
        written.append(_DOCS / f"{name}.md")
        written[-1].write_text(text, encoding="utf-8")
    return written


def overview_page(folder: Path) -> str:
    """Return docs/measurements.md: the comparisons of all pages, and the list of the pages."""
    on_gpu = newest(folder, gpu=True)
    pages = {PAGES[suite]: _of_suite(storage.read(path), suite) for suite, path in newest(folder).items()}
    pages |= {f"gpu-{PAGES[suite]}": _of_suite(storage.read(path), suite) for suite, path in on_gpu.items()}
    in_core = storage.read(newest_of_core(folder))
    pages[CORE] = replace(in_core, cases={core.SECTION: in_core.cases[core.SECTION]})
    del pages[PAGES["conversion"]].cases[core.SECTION]  # of another run than the page of the core
    text = (_DOCS / "measurements.in").read_text(encoding="utf-8")
    for part in (overview.comparisons, overview.losses, overview.costs):
        text = text.replace(f"{{{{{part.__name__}}}}}", part(pages))
    head, heading, index = text.partition("## Pages")
    return head + heading + with_gpu_pages(index, [suite for suite in ON_GPU if suite in on_gpu])


def with_gpu_pages(index: str, suites: Collection[str]) -> str:
    """Return the list of pages with a row for each GPU page, below the suite's CPU page."""
    lines = index.splitlines()
    for suite in suites:
        for i, line in enumerate(lines):
            row = re.match(rf"\| \[([^\]]+)\]\({re.escape(PAGES[suite])}\.md\) \|", line)
            if row:
                lines.insert(i + 1, f"| [{row[1]} on a GPU](gpu-{PAGES[suite]}.md) | {ON_GPU[suite]} |")
                break
    return "\n".join(lines) + "\n"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--suite", default="", help="The suite, if the file has several.")
@click.option("--write", "everything", is_flag=True, help="Write all pages and pictures of docs/.")
def main(file: Path | None, suite: str, everything: bool) -> None:
    """Print the page for a FILE of results, or write all pages of docs/."""
    if (file is None) != everything:
        raise click.UsageError("name a file of results, or use --write")
    try:
        if file is None:
            for path in write(_ROOT / "benchmarks" / "results"):
                click.echo(f"written to {path}", err=True)
            return
        results = storage.read(file)
        for name in [suite] if suite else results.facts["suites"]:
            if why := refusal(results, name):
                raise click.UsageError(f"{file} cannot become a page: {why}")
        click.echo(page(file, suite), nl=False)
    except (ValueError, ImportError) as error:
        raise click.UsageError(str(error)) from error


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.page")
