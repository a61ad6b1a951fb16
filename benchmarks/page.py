"""Write a page of docs/ from a file of results: no figure there is typed by hand.

::

    python -m benchmarks.page benchmarks/results/conversion-....json > docs/benchmarks.md
    python -m benchmarks.page benchmarks/results/tables-....json > docs/tables-benchmarks.md
    python -m benchmarks.page benchmarks/results/layout-....json > docs/layouts-benchmarks.md
    python -m benchmarks.page benchmarks/results/pool-....json > docs/pool-benchmarks.md
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

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
figures are medians. Ratios carry over to other machines better than times do. How it
measures: [benchmarks/README.md](../benchmarks/README.md).
"""


def page(path: Path) -> str:
    """Return the page for a file of results, with its tables in the order people ask for them."""
    data: dict[str, Any] = json.loads(path.read_text())
    (suite,) = data["suites"]
    about = import_module(f"benchmarks.pages.{suite}")
    contenders = getattr(about, "CONTENDERS", "All contenders of a row run in one process")
    head = _intro(path, data, suite, about.TITLE, about.ABOUT, contenders)
    return "\n".join([head, *about.body(data)]) + "\n"


def _intro(path: Path, data: dict[str, Any], suite: str, title: str, about: str, contenders: str) -> str:
    machine = data["machine"]
    versions = ", ".join(f"{k} {v}" for k, v in data["versions"].items() if k != "zerocopy")
    on_gpu = any(name.endswith(("/gpu", "/device")) for name in data["sections"])
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
        gpu="One table is of a GPU, and says so." if on_gpu else "Nothing here was measured on a GPU.",
        rounds=data["settings"]["pace"]["rounds"],
    )


if __name__ == "__main__":
    sys.stdout.write(page(Path(sys.argv[1])))
