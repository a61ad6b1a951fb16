"""How all pictures look: colours, sizes, footers, files.

A picture is drawn on nothing, since the page below it may be light or dark. So no text is black or
white unless it stands on a colour of the picture's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import wrap
from typing import Any

from benchmarks.results import Results

#: For text. A grey this bright has the same contrast with white and with GitHub's dark
#: ``#0d1117``, 4.3 and 4.4, and 4.1 with the ``#14181e`` of the PyData theme: no other has more on all.
TEXT = "#7a7a7a"
#: For what is ours, and for what it is compared with: they differ in lightness and for all eyes.
OURS, OTHER = "#e8590c", "#2f81c7"

#: For things side by side that have no order: after Okabe and Ito (2008), without those of their
#: colours that vanish on white or on black.
SERIES = ("#2f81c7", "#d55e00", "#009e73", "#cc79a7", "#8a63c9", "#b8860b", "#17a2b8", "#868e96")

#: For bars that all mean the same, and for every other part of such a bar.
SINGLE, LIGHTER = "#7d858c", "#99a1a8"

#: Inches across: 525 points, which a browser shows as 700 pixels. So wide is a README.
WIDTH = 525 / 72
_DOTS_PER_INCH = 192  # the PNG has two dots for each of those pixels

_FOOTER_LETTERS = 112  # in a line

_RC = {
    "font.family": "DejaVu Sans",  # it comes with matplotlib
    "font.size": 8.5,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": TEXT,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), TEXT),
    "grid.color": TEXT,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.8,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "text.parse_math": False,  # labels are code: a dollar is a dollar
    # Letters as outlines: the SVG looks the same where there is no DejaVu Sans, and an image in a
    # page may load no font. Each text stands beside its outlines as a comment.
    "svg.fonttype": "path",
    "svg.hashsalt": "zerocopy",  # so that the same figures give the same file
}


@contextmanager
def ours() -> Iterator[None]:
    """Draw and save in our style, whatever a user has set."""
    from matplotlib import style

    with style.context(["default", _RC]):
        yield


def sheet(height: float, *, placed: bool = False) -> Any:
    """Return an empty figure of so many inches; its axes find their places unless they are placed."""
    from matplotlib.figure import Figure

    # Not by pyplot: that would choose a backend for the whole process.
    return Figure(figsize=(WIDTH, height), layout=None if placed else "constrained")


def head(figure: Any, title: str, told: str) -> None:
    """Write what is shown, and below it how to read it, above everything else."""
    height = figure.get_figheight()
    figure.text(0.01, 1 - 0.08 / height, title, va="top", fontsize=11, fontweight="bold")
    figure.text(0.01, 1 - 0.32 / height, told, va="top")


def place(figure: Any, above: float, below: float) -> None:
    """Keep so many inches free for the head and the footer; a footer has 0.35."""
    height = figure.get_figheight()
    figure.get_layout_engine().set(rect=(0, below / height, 1, 1 - (above + below) / height), h_pad=0.06)


def footer(figure: Any, found: Results, *distributions: str) -> None:
    """Write below everything else on what, when and with which versions it was measured."""
    height = figure.get_figheight()
    figure.text(0.01, 0.05 / height, "\n".join(said(found, *distributions)), va="bottom", fontsize=7)


def said(found: Results, *distributions: str) -> list[str]:
    """Return lines: the machine, and the versions of those distributions that it names.

    Parameters
    ----------
    found : Results
    *distributions : str
        Which versions matter to the picture; zerocopy's and NumPy's do to each.
    """
    computer, versions = found.facts.get("machine", {}), found.facts.get("versions", {})
    # A build's suffix says nothing here: "+cpu", a commit.
    known = {name: version.partition("+")[0] for name, version in versions.items()}
    python = computer.get("python", "").replace("CPython", "Python")
    cores = computer.get("cores")
    machine = [
        computer.get("cpu", ""),
        f"{cores} core{'s' * (cores != 1)}{' of a virtual machine' * bool(computer.get('virtual'))}"
        if cores
        else "",
        found.facts.get("started", "")[:10],
        "quick run" if found.facts.get("settings", {}).get("quick") else "",
        "" if found.complete else "incomplete run",
    ]
    named = [
        f"{name} {version}"
        for name in ("zerocopy", "numpy", *distributions)
        if (version := known.get(name, known.get(f"{name}-cpu")))
    ]
    lines = [", ".join(filter(None, machine)), ", ".join(filter(None, [python, *named]))]
    # A version stays on the line of its name.
    tied = [line.replace(" ", "\0").replace(",\0", ", ") for line in lines]
    return [part.replace("\0", " ") for line in tied for part in wrap(line, _FOOTER_LETTERS)]


def save(figure: Any, folder: Path, name: str) -> list[Path]:
    """Write the SVG and the PNG, and return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{name}.{kind}" for kind in ("svg", "png")]
    figure.savefig(files[0], transparent=True, metadata={"Date": None})
    figure.savefig(files[1], transparent=True, dpi=_DOTS_PER_INCH)
    return files


def spread(places: Sequence[float], gap: float) -> list[float]:
    """Return the places moved apart by as little as keeps them in order and ``gap`` from each other.

    Examples
    --------
    >>> spread([0.0, 0.1, 5.0], 1.0)
    [-0.45, 0.55, 5.0]
    """
    order = sorted(range(len(places)), key=lambda i: places[i])
    # Groups that touch are put around their middle, and may then touch the group before.
    groups: list[list[int]] = []
    for i in order:
        groups.append([i])
        while len(groups) > 1 and _start(groups[-1], places, gap) < _end(groups[-2], places, gap) + gap:
            last = groups.pop()
            groups[-1] += last
    moved = list(places)
    for group in groups:
        for step, i in enumerate(group):
            moved[i] = round(_start(group, places, gap) + step * gap, 9)
    return moved


def _start(group: Sequence[int], places: Sequence[float], gap: float) -> float:
    return sum(places[i] for i in group) / len(group) - gap * (len(group) - 1) / 2


def _end(group: Sequence[int], places: Sequence[float], gap: float) -> float:
    return _start(group, places, gap) + gap * (len(group) - 1)


def ink(color: Any) -> str:
    """Return black or white, whichever is read more easily on a colour.

    Parameters
    ----------
    color : str or tuple
        As matplotlib takes it.
    """
    from matplotlib.colors import to_rgb

    # Luminance and contrast as WCAG 2.1 defines them.
    parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(color)]
    light = sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), parts, strict=True))
    return "#000000" if (light + 0.05) / 0.05 > 1.05 / (light + 0.05) else "#ffffff"


def time(nanoseconds: float) -> str:
    """Write a time with two digits, three from a hundred on.

    Examples
    --------
    >>> time(505.3), time(2614.6), time(12.3e6), time(9.96e3)
    ('505 ns', '2.6 µs', '12 ms', '10 µs')
    """
    return _short(nanoseconds, {"s": 1e9, "ms": 1e6, "µs": 1e3, "ns": 1.0}, 0.9995)


def size(nbytes: float) -> str:
    """Write a size with two digits, three from a hundred on.

    Examples
    --------
    >>> size(0), size(1536), size(300 << 20), size(1020 << 10)
    ('0', '1.5 KiB', '300 MiB', '1.0 MiB')
    """
    return (
        _short(nbytes, {"GiB": 2.0**30, "MiB": 2.0**20, "KiB": 2.0**10, "B": 1.0}, 1000 / 1024)
        if nbytes
        else "0"
    )


def _short(value: float, units: dict[str, float], from_: float) -> str:
    unit = next((unit for unit, one in units.items() if value >= one * from_), [*units][-1])
    scaled = value / units[unit]
    return f"{scaled:.{1 if scaled < 9.95 else 0}f} {unit}"
