"""Write the pages of docs/ from files of results, so that figures are not typed by hand.

::

    python -m benchmarks.page --write                            # all pages and all pictures
    python -m benchmarks.page benchmarks/results/pool-....json   # one page, printed

``--write`` uses the newest full results of each suite in ``benchmarks/results/``. Results of
quick or interrupted runs, and of a part of a suite, do not become pages. Sections that need a GPU
have separate pages, ``docs/gpu-....md``; for these a part of the suite is enough. Each page gets a
row in ``docs/measurements.md``. ``docs/compiled-core.md`` has its prose from ``docs/compiled-core.in`` and
its tables from the newest results that were measured with the compiled core.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from benchmarks import results as storage
from benchmarks.pages import compiled_core
from benchmarks.results import needs_gpu
from benchmarks.suite import SUITES

_ROOT = Path(__file__).parents[1]

#: The page of each suite.
PAGES = {
    "conversion": "benchmarks.md",
    "tables": "tables-benchmarks.md",
    "layout": "layouts-benchmarks.md",
    "pool": "pool-benchmarks.md",
    "pipeline": "pipeline-benchmarks.md",
    "processes": "processes-benchmarks.md",
    "loader": "loader-benchmarks.md",
    "monitor": "monitor-benchmarks.md",
    "bridge": "bridge-benchmarks.md",
    "functions": "functions-benchmarks.md",
    "sparse": "sparse-benchmarks.md",
    "weights": "weights-benchmarks.md",
    "grid": "grid-benchmarks.md",
    "vectors": "vectors-benchmarks.md",
    "hosts": "hosts-benchmarks.md",
}

#: Descriptions of the GPU pages in ``docs/measurements.md``.
ON_GPU = {
    "conversion": "between frameworks of one GPU, and to and from NumPy across the bus",
    "layout": "records to columns and back, compared with a copy on the device",
    "pool": "allocations, streams and transfers, with and without a pool",
    "pipeline": "the same pipeline with its engines on a GPU",
}

_INTRO = """\
# {title}

{about} The figures are
from one run, stored in [{file}](../{file}):
{cpu}, {cores} cores{virtual}, {memory:.0f} GiB, {system}, {python}; {versions}; {date}.
{gpu} This page is written by `python -m benchmarks.page`
from that file.

```sh
pip install -e '.[bench]'
python -m benchmarks {arguments}
```

{contenders}, interleaved, {rounds} blocks each; the
figures are medians. Ratios carry over to other machines better than times do. Compare figures within
a table only: a shared machine may change its speed between tables. For the method, see
[benchmarks/README.md](../benchmarks/README.md).
"""


def page(path: Path, suite: str = "") -> str:
    """Return the page of a suite for a file of results.

    Parameters
    ----------
    path : Path
    suite : str, optional
        The suite, if the file has several.

    Raises
    ------
    ValueError
        The file has several suites and `suite` is empty, or does not have `suite`.
    """
    data = storage.read_plain(path)
    if suite not in data["suites"]:
        if suite or len(data["suites"]) != 1:
            raise ValueError(f"{path} has the suites {', '.join(data['suites'])}. To fix: name one of them")
        (suite,) = data["suites"]
    module = import_module(f"benchmarks.pages.{suite}")
    contenders = getattr(module, "CONTENDERS", "All contenders of a row run in one process")
    rounds = getattr(module, "ROUNDS", str(data["settings"]["pace"]["rounds"]))
    suite_sections = {key for key in data["sections"] if key.startswith(f"{suite}/")}
    if on_gpu(storage.read(path), suite):
        # Goals of the GPU sections only; the CPU's cases stay for comparison.
        chosen = {key for key in suite_sections if needs_gpu(key) and data["sections"][key]}
        data = _only(data, suite_sections) | {"goals": _only(data, chosen)["goals"]}
        parts = module.on_gpu(data)
        title, about = f"{module.TITLE} on a GPU", module.ON_GPU
        arguments = " ".join(name for name in data["asked"] if name.partition("/")[0] == suite)
        gpu = _gpu(data["machine"])
    else:
        data = _only(data, suite_sections) if len(data["suites"]) > 1 else data
        parts, title, about, arguments = module.body(data), module.TITLE, module.ABOUT, suite
        gpu = "Nothing here was measured on a GPU."
    if "core" in data:
        gpu = f"{gpu} It was measured {storage.read(path).build}."
    return "\n".join([_intro(path, data, arguments, title, about, contenders, rounds, gpu), *parts]) + "\n"


def on_gpu(results: storage.Results, suite: str) -> bool:
    """Whether results have times of a suite that were measured on a GPU."""
    return bool(results.facts["machine"].get("gpus") and _gpu_sections(results, suite))


def _gpu_sections(results: storage.Results, suite: str) -> list[str]:
    """Return the sections of a suite that need a GPU and have times."""
    return [
        name
        for name, cases in results.cases.items()
        if name.startswith(f"{suite}/") and needs_gpu(name) and any(case.timed() for case in cases)
    ]


def _only(data: dict[str, Any], sections: Collection[str]) -> dict[str, Any]:
    """Return results with some sections and their goals only."""
    return data | {
        "sections": {k: v for k, v in data["sections"].items() if k in sections},
        "goals": [goal for goal in data["goals"] if goal.get("section") in sections],
    }


def _intro(
    path: Path,
    data: dict[str, Any],
    arguments: str,
    title: str,
    about: str,
    contenders: str,
    rounds: str,
    gpu: str,
) -> str:
    machine = data["machine"]
    versions = ", ".join(f"{k} {v}" for k, v in data["versions"].items() if k != "zerocopy")
    return _INTRO.format(
        title=title,
        about=about,
        contenders=contenders,
        arguments=arguments,
        file=f"benchmarks/results/{path.name}",
        cpu=machine["cpu"],
        cores=machine["cores"],
        virtual=" of a virtual machine" if machine["virtual"] else "",
        memory=machine["memory_bytes"] / 2**30,
        system=machine["system"],
        python=machine["python"],
        versions=versions,
        date=data["started"][:10],
        gpu=gpu,
        rounds=rounds,
    )


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


def refusal(results: storage.Results, suite: str) -> str:
    """Return why results cannot become a page of a suite, or nothing."""
    facts = results.facts
    if results.quick:
        return "they are from a run with --quick"
    if not results.complete:
        return "they are not complete: interrupted, or a task failed"
    measured = facts.get("asked", facts["suites"])
    if suite not in measured and not on_gpu(results, suite):
        return f"they have only a part of {suite}"
    narrowed = [f"--{name}" for name in ("frameworks", "sizes") if facts["settings"].get(name)]
    return f"they are from a run with {' and '.join(narrowed)}" if narrowed else ""


def newest(folder: Path, gpu: bool = False) -> dict[str, Path]:
    """Return the newest full results of each suite, by its name: on the CPU, or on a GPU.

    On a GPU, results with more of the suite's GPU sections come first.
    """
    candidates: dict[str, tuple[int, str, Path]] = {}
    for path in sorted(folder.glob("*.json")):
        try:
            results = storage.read(path)
        except ValueError:
            continue  # another kind of results
        for suite in results.facts["suites"]:
            if suite not in PAGES or refusal(results, suite):
                continue
            if on_gpu(results, suite) != gpu:
                continue
            candidate = (len(_gpu_sections(results, suite)), results.facts["started"], path)
            candidates[suite] = max(candidates.get(suite, candidate), candidate)
    return {suite: candidates[suite][-1] for suite in SUITES if suite in candidates}


def write(folder: Path, docs: Path) -> list[Path]:
    """Write all pages and pictures, and return the files."""
    from benchmarks.plots import PICTURES, draw

    written = []
    for suite, path in newest(folder).items():
        target = docs / PAGES[suite]
        target.write_text(page(path, suite), encoding="utf-8")
        written.append(target)
        results = storage.read(path)
        # Pictures of this suite only: another file may be newer for other suites.
        results.cases = {name: cases for name, cases in results.cases.items() if name.startswith(f"{suite}/")}
        if any(picture.drawable(results) for picture in PICTURES):
            written += draw(results, docs / "pictures")
    for suite, path in newest(folder, gpu=True).items():
        target = docs / f"gpu-{PAGES[suite]}"
        target.write_text(page(path, suite), encoding="utf-8")
        written.append(target)
    template = docs / f"{compiled_core.NAME}.in"
    if template.exists():
        target = template.with_suffix(".md")
        path = compiled_core.newest(folder)
        target.write_text(compiled_core.page(template, path), encoding="utf-8")
        written += [target, *(_picture_of_core(path, docs) if path else [])]
    index = docs / "measurements.md"
    if index.exists():
        existing = [suite for suite in ON_GPU if (docs / f"gpu-{PAGES[suite]}").exists()]
        index.write_text(with_gpu_pages(index.read_text(encoding="utf-8"), existing), encoding="utf-8")
    return written


def _picture_of_core(path: Path, docs: Path) -> list[Path]:
    """Draw the picture of the compiled core, whose results may be in another file than those of its suite."""
    from benchmarks.plots import draw

    results = storage.read(path)
    results.cases = {compiled_core.SECTION: results.cases[compiled_core.SECTION]}
    return draw(results, docs / "pictures")


def with_gpu_pages(index: str, suites: Collection[str]) -> str:
    """Return docs/measurements.md with a row for each GPU page, below the suite's CPU page."""
    lines = [
        line for line in index.splitlines() if not re.search(r"^\|.*\]\(gpu-[\w-]*benchmarks\.md\)", line)
    ]
    for suite in suites:
        for i, line in enumerate(lines):
            row = re.match(rf"\| \[([^\]]+)\]\({re.escape(PAGES[suite])}\) \|", line)
            if row:
                lines.insert(i + 1, f"| [{row[1]} on a GPU](gpu-{PAGES[suite]}) | {ON_GPU[suite]} |")
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
            for path in write(_ROOT / "benchmarks" / "results", _ROOT / "docs"):
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
