"""Write the pages of docs/ from files of results, so that figures are not typed by hand.

::

    python -m benchmarks.page --write    # all pages and all pictures

The prose of a page is in ``docs/NAME.in``, with parts such as ``{{against}}`` or
``{{conversion.pairs}}``, which are functions of `benchmarks.pages.shared`, `overview` or the module that is
named. A page has the newest full results of its suites in ``benchmarks/results/``. Results of quick or
interrupted runs, and of a part of a suite, do not become pages; for sections that need a GPU a part of the
suite is enough. The goals of the compiled core may be of another run than the rest of their suite.
``docs/measurements.md`` compares the rows of all pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from benchmarks import results as storage
from benchmarks.pages import overview, shared
from benchmarks.results import Results, needs_gpu
from benchmarks.suite import SUITES

_ROOT = Path(__file__).parents[1]
_DOCS = _ROOT / "docs"
RESULTS = _ROOT / "benchmarks" / "results"
CORE = "conversion/core"
GPU = "gpu-benchmarks"

#: The page of each suite.
PAGES = {suite: f"{suite}-benchmarks" for suite in SUITES}
PAGES |= {"conversion": "benchmarks", "layout": "layouts-benchmarks", "hosts": "processes-benchmarks"}
PAGES |= dict.fromkeys(
    ("weights", "vectors", "rows", "sparse", "bridge", "functions", "monitor"), "features-benchmarks"
)


@dataclass(frozen=True)
class Run:
    """The results of a suite, or of the core, and their file."""

    suite: str
    path: Path
    results: Results

    @property
    def measured(self) -> str:
        """The suite, or its sections that were measured on a GPU."""
        if self.suite == CORE or not on_gpu(self.results, self.suite):
            return self.suite
        return " ".join(name for name in self.results.facts["asked"] if name.startswith(f"{self.suite}/"))

    def text(self) -> str:
        """Return the command, the file, the build and the machine."""
        facts = self.results.facts
        file = f"[results](../benchmarks/results/{self.path.name})"
        texts = [f"`python -m benchmarks {self.measured}`, {file}: {shared.machine(self.results)}."]
        if on_gpu(self.results, self.suite):
            texts.append(_gpu(facts["machine"]))
        if "core" in facts:
            texts.append(f"Measured {self.results.build}.")
        else:
            texts.append("The instruction set and the date of the code were not recorded.")
        return " ".join(texts)


def runs_of(folder: Path) -> dict[str, list[Run]]:
    """Return the newest runs of each page, by its name."""
    pages: dict[str, list[Run]] = {}
    for gpu in (False, True):
        for suite, path in newest(folder, gpu).items():
            run = Run(suite, path, _of_suite(storage.read(path), suite))
            pages.setdefault(GPU if gpu else PAGES[suite], []).append(run)
    for run in pages.get(PAGES["conversion"], ()):
        run.results.cases.pop(CORE, None)
    if path_of_core := newest_of_core(folder):
        results = storage.read(path_of_core)
        results = replace(results, cases={CORE: results.cases[CORE]})
        pages.setdefault(PAGES["conversion"], []).append(Run(CORE, path_of_core, results))
    return pages


def page(name: str, runs: list[Run]) -> str:
    """Return a page with the results of its runs.

    Sections of its template whose ``{{only SECTION}}`` names a section without results are left out.
    """
    results = together(runs)

    def part(match: re.Match[str]) -> str:
        name, _, rest = match[1].partition(" ")
        texts = [text.strip() for text in rest.split("|")] if rest else []
        if name in ("runs", "busy", "only"):
            return {"runs": "\n\n".join(run.text() for run in runs), "busy": busy(runs)}.get(name, "")
        module, dot, function = name.rpartition(".")
        modules = [import_module(f"benchmarks.pages.{module}")] if dot else [shared, overview]
        make = next(getattr(module, function) for module in modules if hasattr(module, function))
        return str(make(results, *texts))

    text = (_DOCS / f"{name}.in").read_text(encoding="utf-8")
    sections = re.split(r"(?m)^(?=## )", text)
    kept = [
        s for s in sections if all(only in results.cases for only in re.findall(r"\{\{only (.+?)\}\}", s))
    ]
    filled = re.sub(r"\{\{(.+?)\}\}", part, "".join(kept), flags=re.DOTALL)
    return re.sub(r"\n{3,}", "\n\n", filled).rstrip("\n") + "\n"


def together(runs: list[Run]) -> Results:
    """Return the cases of all runs; the facts are those of the first."""
    cases = {name: cases for run in runs for name, cases in run.results.cases.items()}
    return replace(runs[0].results, cases=cases)


def busy(runs: list[Run]) -> str:
    """Return the runs during which other programs used the processors."""
    loads = {run.measured: shared.load(run.results) for run in runs}
    named = [f"`{suite}` ({load})" for suite, load in loads.items() if load]
    return f"Other programs ran during {', '.join(named)}: times are too long." if named else ""


def _of_suite(results: Results, suite: str) -> Results:
    """Return results with the sections of a suite only."""
    cases = {name: cases for name, cases in results.cases.items() if name.startswith(f"{suite}/")}
    return replace(results, cases=cases)


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


def newest_of_core(folder: Path) -> Path | None:
    """Return the newest full results of the goals of the compiled core that were measured with it."""
    core_runs = [
        (results.facts["started"], path)
        for path, results in _kept(folder)
        if results.complete and not results.quick and not results.facts["settings"].get("frameworks")
        if results.compiled
        and not results.isa_narrowed
        and any(case.timed() for case in results.cases.get(CORE, ()))
    ]
    return max(core_runs)[1] if core_runs else None


def write(folder: Path) -> list[Path]:
    """Write all pages and pictures, and return the files."""
    from benchmarks.plots import PICTURES, draw

    pages, written = runs_of(folder), []
    for name, runs in pages.items():
        for run in runs if name != GPU else ():
            # Pictures of this suite only: another file may be newer for other suites.
            if any(picture.drawable(run.results) for picture in PICTURES):
                written += draw(run.results, _DOCS / "pictures")
    texts = {name: page(name, runs) for name, runs in pages.items()}
    for name, text in (texts | {"measurements": overview_page(pages)}).items():
        written.append(_DOCS / f"{name}.md")
        written[-1].write_text(text, encoding="utf-8")
    return written


def overview_page(pages: Mapping[str, list[Run]]) -> str:
    """Return docs/measurements.md: the comparisons of all pages, and the list of the pages."""
    text = (_DOCS / "measurements.in").read_text(encoding="utf-8")
    results = {name: together(runs) for name, runs in pages.items()}
    for part in (overview.comparisons, overview.losses, overview.costs):
        text = text.replace(f"{{{{{part.__name__}}}}}", part(results))
    return text.replace("{{busy}}", busy([run for runs in pages.values() for run in runs]))


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--write", "everything", is_flag=True, help="Write all pages and pictures of docs/.")
def main(everything: bool) -> None:
    """Write all pages of docs/ from the newest results."""
    if not everything:
        raise click.UsageError("use --write")
    try:
        for path in write(RESULTS):
            click.echo(f"written to {path}", err=True)
    except (ValueError, ImportError) as error:
        raise click.UsageError(str(error)) from error


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.page")
