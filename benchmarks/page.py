"""Write the pages of docs/ from files of results: no figure there is typed by hand.

::

    python -m benchmarks.page --write                            # all pages and all pictures
    python -m benchmarks.page benchmarks/results/pool-....json   # one page, printed

``--write`` takes the newest full results of each suite in ``benchmarks/results/``. Results of
quick runs, of interrupted ones and of a part of a suite become no page. What was measured on a
machine with a GPU has pages of its own, ``docs/gpu-....md``, of the sections that need it.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from benchmarks import results as storage
from benchmarks.pages.words import goals, rivals
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

#: How sections end that are measured on a GPU.
ON_GPU = ("/gpu", "/device")

_INTRO = """\
# {title}

{about} The figures are
from one run, kept in [{file}](../{file}):
{cpu}, {cores} cores{virtual}, {memory:.0f} GiB, {system}, {python}; {versions}; {date}.
{gpu} This page is written by `python -m benchmarks.page`
from that file.

```sh
pip install -e '.[bench]'
python -m benchmarks {suite}
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
    wanted = {key for key in data["sections"] if key.startswith(f"{suite}/")}
    if on_gpu(data):
        data = _only(data, {key for key in wanted if key.endswith(ON_GPU)})
        parts = [goals(data), *(rivals(data, key, key) for key in data["sections"])]
        title, what = f"{about.TITLE}, on a GPU", "What was measured on a CUDA device."
    else:
        data = _only(data, wanted) if len(data["suites"]) > 1 else data
        parts, title, what = about.body(data), about.TITLE, about.ABOUT
    return "\n".join([_intro(path, data, suite, title, what, contenders), *parts]) + "\n"


def on_gpu(data: dict[str, Any]) -> bool:
    """Whether results have figures of a GPU."""
    measured = any(name.endswith(ON_GPU) and cases for name, cases in data["sections"].items())
    return measured and bool(data["machine"].get("gpus"))


def _only(data: dict[str, Any], sections: Collection[str]) -> dict[str, Any]:
    """Return what results say of some sections, and of the goals judged on them."""
    return data | {
        "sections": {k: v for k, v in data["sections"].items() if k in sections},
        "goals": [goal for goal in data["goals"] if goal.get("section") in sections],
    }


def _intro(path: Path, data: dict[str, Any], suite: str, title: str, about: str, contenders: str) -> str:
    machine = data["machine"]
    versions = ", ".join(f"{k} {v}" for k, v in data["versions"].items() if k != "zerocopy")
    return _INTRO.format(
        title=title,
        about=about,
        contenders=contenders,
        suite=suite,
        file=f"benchmarks/results/{path.name}",
        cpu=machine["cpu"],
        cores=machine["cores"],
        virtual=" of a virtual machine" if machine["virtual"] else "",
        memory=machine["memory_bytes"] / 2**30,
        system=machine["system"],
        python=machine["python"],
        versions=versions,
        date=data["started"][:10],
        gpu=_gpu(data),
        rounds=data["settings"]["pace"]["rounds"],
    )


def _gpu(data: dict[str, Any]) -> str:
    """Say what was measured on a GPU, and on which."""
    if not any(name.endswith(ON_GPU) and cases for name, cases in data["sections"].items()):
        return "Nothing here was measured on a GPU."
    machine = data["machine"]
    names = ", ".join(dict.fromkeys(card["name"] for card in machine.get("gpus", [])))
    known = {"driver": machine.get("nvidia_driver"), "CUDA runtime": machine.get("cuda_runtime")}
    told = "; ".join([names, *(f"{name} {value}" for name, value in known.items() if value)])
    return "Tables of a GPU say so" + (f" ({told})." if names else ".")


def refusal(found: storage.Results, suite: str) -> str:
    """Return why results become no page of a suite; nothing if they do."""
    facts = found.facts
    if found.quick:
        return "they are of a run with --quick"
    if not found.complete:
        return "they are not complete: interrupted, or a task failed"
    asked = facts.get("asked", facts["suites"])
    if suite not in asked and not _gpu_cases(found, suite):
        return f"they are of a part of {suite}"
    narrowed = [f"--{name}" for name in ("frameworks", "sizes") if facts["settings"].get(name)]
    return f"they are of a run with {' and '.join(narrowed)}" if narrowed else ""


def _gpu_cases(found: storage.Results, suite: str) -> bool:
    """Whether results have figures of a suite that were measured on a GPU."""
    mine = any(k.startswith(f"{suite}/") and k.endswith(ON_GPU) and v for k, v in found.cases.items())
    return mine and bool(found.facts["machine"].get("gpus"))


def newest(folder: Path, gpu: bool = False) -> dict[str, Path]:
    """Return the newest full results of each suite, by its name: of machines with a GPU, or without."""
    found: dict[str, tuple[str, Path]] = {}
    for path in sorted(folder.glob("*.json")):
        try:
            results = storage.read(path)
        except ValueError:
            continue  # figures of another kind are kept there too
        for suite in results.facts["suites"]:
            candidate = (results.facts["started"], path)
            if suite in PAGES and _gpu_cases(results, suite) == gpu and not refusal(results, suite):
                found[suite] = max(found.get(suite, candidate), candidate)
    return {suite: found[suite][1] for suite in SUITES if suite in found}


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
    return written


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
