"""Write the pages of docs/ from files of results: no figure there is typed by hand.

::

    python -m benchmarks.page --write                            # all pages and all pictures
    python -m benchmarks.page benchmarks/results/pool-....json   # one page, printed

``--write`` takes the newest full results of each suite in ``benchmarks/results/``. Results of
quick runs, of interrupted ones and of a part of a suite become no page. What was measured on a
GPU has pages of its own, ``docs/gpu-....md``, of the sections that need one: these need not be all of
them, and the rest of the suite need not have run. The map in ``docs/index.md`` gets a row for each.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from benchmarks import results as storage
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
}

#: What the map says of their pages of a GPU.
ON_GPU = {
    "conversion": "between frameworks of one GPU, and to and from NumPy across the bus",
    "layout": "records to columns and back, beside a copy on the device",
    "pool": "allocations, streams and transfers, with a pool and without",
    "pipeline": "the same pipeline with its engines on a GPU",
}

_INTRO = """\
# {title}

{about} The figures are
from one run, kept in [{file}](../{file}):
{cpu}, {cores} cores{virtual}, {memory:.0f} GiB, {system}, {python}; {versions}; {date}.
{gpu} This page is written by `python -m benchmarks.page`
from that file.

```sh
pip install -e '.[bench]'
python -m benchmarks {asked}
```

{contenders}, interleaved, {rounds} blocks each; the
figures are medians. Ratios carry over to other machines better than times do, and figures compare
within a table: between tables a shared machine may have changed its speed. How it measures:
[benchmarks/README.md](../benchmarks/README.md).
"""


def page(path: Path, suite: str = "") -> str:
    """Return the page for a file of results, with its tables in the order people ask for them.

    Parameters
    ----------
    path : Path
    suite : str, optional
        Which one, where the file has several.

    Raises
    ------
    ValueError
        The file has several suites and none is named, or not the one that is.
    """
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if suite not in data["suites"]:
        if suite or len(data["suites"]) != 1:
            raise ValueError(f"{path} is of {', '.join(data['suites'])}: name one of them")
        (suite,) = data["suites"]
    about = import_module(f"benchmarks.pages.{suite}")
    contenders = getattr(about, "CONTENDERS", "All contenders of a row run in one process")
    mine = {key for key in data["sections"] if key.startswith(f"{suite}/")}
    if on_gpu(storage.read(path), suite):
        # Its goals are of what the GPU did; the CPU's cases stay, for who compares with them.
        chosen = {key for key in mine if needs_gpu(key) and data["sections"][key]}
        data = _only(data, mine) | {"goals": _only(data, chosen)["goals"]}
        parts = about.on_gpu(data)
        title, what = f"{about.TITLE}, on a GPU", about.ON_GPU
        asked = " ".join(name for name in data["asked"] if name.partition("/")[0] == suite)
        card = _card(data["machine"])
    else:
        data = _only(data, mine) if len(data["suites"]) > 1 else data
        parts, title, what, asked = about.body(data), about.TITLE, about.ABOUT, suite
        card = "Nothing here was measured on a GPU."
    return "\n".join([_intro(path, data, asked, title, what, contenders, card), *parts]) + "\n"


def on_gpu(found: storage.Results, suite: str) -> bool:
    """Whether results have times of a suite that were measured on a GPU."""
    return bool(found.facts["machine"].get("gpus") and _sections_of_gpu(found, suite))


def _sections_of_gpu(found: storage.Results, suite: str) -> list[str]:
    """Return the sections of a suite that need a GPU and have times."""
    return [
        name
        for name, cases in found.cases.items()
        if name.startswith(f"{suite}/") and needs_gpu(name) and any(case.timed() for case in cases)
    ]


def _only(data: dict[str, Any], sections: Collection[str]) -> dict[str, Any]:
    """Return what results say of some sections, and of the goals judged on them."""
    return data | {
        "sections": {k: v for k, v in data["sections"].items() if k in sections},
        "goals": [goal for goal in data["goals"] if goal.get("section") in sections],
    }


def _intro(
    path: Path, data: dict[str, Any], asked: str, title: str, about: str, contenders: str, card: str
) -> str:
    machine = data["machine"]
    versions = ", ".join(f"{k} {v}" for k, v in data["versions"].items() if k != "zerocopy")
    return _INTRO.format(
        title=title,
        about=about,
        contenders=contenders,
        asked=asked,
        file=f"benchmarks/results/{path.name}",
        cpu=machine["cpu"],
        cores=machine["cores"],
        virtual=" of a virtual machine" if machine["virtual"] else "",
        memory=machine["memory_bytes"] / 2**30,
        system=machine["system"],
        python=machine["python"],
        versions=versions,
        date=data["started"][:10],
        gpu=card,
        rounds=data["settings"]["pace"]["rounds"],
    )


def _card(machine: dict[str, Any]) -> str:
    """Say which card it was, and what stands between it and the frameworks."""
    cards = machine["gpus"]
    names = [f"{len(cards)} x {cards[0]['name']}" if len(cards) > 1 else str(cards[0]["name"])]
    if memory := cards[0].get("memory_bytes"):
        names.append(f"{memory / 2**30:.0f} GiB" + " each" * (len(cards) > 1))
    if cards[0].get("mig"):
        names.append("a MIG slice")
    if cards[0].get("shared"):
        names.append("with other processes on it")
    told = {"driver": "nvidia_driver", "CUDA of the driver": "cuda_driver", "CUDA runtime": "cuda_runtime"}
    known = [f"{name} {machine[key]}" for name, key in told.items() if machine.get(key)]
    return f"The GPU: {', '.join([', '.join(names), *known])}."


def refusal(found: storage.Results, suite: str) -> str:
    """Return why results become no page of a suite; nothing if they do."""
    facts = found.facts
    if found.quick:
        return "they are of a run with --quick"
    if not found.complete:
        return "they are not complete: interrupted, or a task failed"
    asked = facts.get("asked", facts["suites"])
    if suite not in asked and not on_gpu(found, suite):
        return f"they are of a part of {suite}"
    narrowed = [f"--{name}" for name in ("frameworks", "sizes") if facts["settings"].get(name)]
    return f"they are of a run with {' and '.join(narrowed)}" if narrowed else ""


def newest(folder: Path, gpu: bool = False) -> dict[str, Path]:
    """Return the newest full results of each suite, by its name: what a GPU did, or the CPU.

    Of a GPU, those with the most of the suite's sections that need one, and of these the newest.
    """
    found: dict[str, tuple[int, str, Path]] = {}
    for path in sorted(folder.glob("*.json")):
        try:
            results = storage.read(path)
        except ValueError:
            continue  # figures of another kind are kept there too
        for suite in results.facts["suites"]:
            if suite not in PAGES or refusal(results, suite):
                continue
            if on_gpu(results, suite) != gpu:
                continue
            candidate = (len(_sections_of_gpu(results, suite)), results.facts["started"], path)
            found[suite] = max(found.get(suite, candidate), candidate)
    return {suite: found[suite][-1] for suite in SUITES if suite in found}


def write(folder: Path, docs: Path) -> list[Path]:
    """Write all pages and all pictures anew, and return the files."""
    from benchmarks.plots import PICTURES, draw

    written = []
    for suite, path in newest(folder).items():
        target = docs / PAGES[suite]
        target.write_text(page(path, suite), encoding="utf-8")
        written.append(target)
        found = storage.read(path)
        # Of this suite alone, with the machine and the date that the picture tells.
        found.cases = {name: cases for name, cases in found.cases.items() if name.startswith(f"{suite}/")}
        if any(picture.drawable(found) for picture in PICTURES):
            written += draw(found, docs / "pictures")
    for suite, path in newest(folder, gpu=True).items():
        target = docs / f"gpu-{PAGES[suite]}"
        target.write_text(page(path, suite), encoding="utf-8")
        written.append(target)
    index = docs / "index.md"
    if index.exists():
        there = [suite for suite in ON_GPU if (docs / f"gpu-{PAGES[suite]}").exists()]
        index.write_text(mapped(index.read_text(encoding="utf-8"), there), encoding="utf-8")
    return written


def mapped(index: str, suites: Collection[str]) -> str:
    """Return the map of the pages with a row for each page of a GPU, below the suite's other page."""
    lines = [
        line for line in index.splitlines() if not re.search(r"^\|.*\]\(gpu-[\w-]*benchmarks\.md\)", line)
    ]
    for suite in suites:
        for i, line in enumerate(lines):
            row = re.match(rf"\| \[([^\]]+)\]\({re.escape(PAGES[suite])}\) \|", line)
            if row:
                lines.insert(i + 1, f"| [{row[1]}, on a GPU](gpu-{PAGES[suite]}) | {ON_GPU[suite]} |")
                break
    return "\n".join(lines) + "\n"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--suite", default="", help="Which one, where the file has several.")
@click.option("--write", "everything", is_flag=True, help="Write all pages and pictures of docs/.")
def main(file: Path | None, suite: str, everything: bool) -> None:
    """Print the page of docs/ for a FILE of results, or write all of them."""
    if (file is None) != everything:
        raise click.UsageError("name a file of results, or say --write")
    try:
        if file is None:
            for path in write(_ROOT / "benchmarks" / "results", _ROOT / "docs"):
                click.echo(f"written to {path}", err=True)
            return
        found = storage.read(file)
        for name in [suite] if suite else found.facts["suites"]:
            if why := refusal(found, name):
                raise click.UsageError(f"{file} becomes no page: {why}")
        click.echo(page(file, suite), nl=False)
    except (ValueError, ImportError) as error:
        raise click.UsageError(str(error)) from error


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.page")
