"""Style of all pictures: colours, sizes, footers, files.

An SVG has no background, and two sets of colours: no grey has a contrast of 4.5:1 with both white and dark
pages. A browser takes the set of the page that shows the picture. A PNG is light.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from textwrap import wrap
from typing import Any

from benchmarks.results import Results

BACKGROUND = "#ffffff"
#: Text, with a contrast of 7.9:1 on the background.
TEXT = "#4a525a"
#: zerocopy, and what it is compared with. They differ in lightness, for colour-blind readers too.
OURS, OTHER = "#c2410c", "#1f6fb5"

#: Categories without an order, after Okabe and Ito (2008), each at least 4.5:1 on the background:
#: labels have the colours of their lines.
SERIES = ("#1f6fb5", "#b84a00", "#00734f", "#b3478b", "#7048b6", "#8a6500", "#0b7285", "#5c636a")

#: Bars that belong to no category.
NEUTRAL = "#8a939b"

#: Background of dark pages, and the colours that replace those above on it. Others are legible on both.
DARK_BACKGROUND = "#14181e"
DARK = {
    TEXT: "#c9d1d9",
    OURS: "#f0883e",
    **dict(
        zip(
            SERIES,
            ("#6cb6ff", "#f59e4c", "#3fb98b", "#e58bcb", "#b39df3", "#d4a72c", "#3bb8cc", "#aab2ba"),
            strict=True,
        )
    ),
}

#: Width in inches: 525 points, which a browser shows as 700 pixels, the width of a README.
WIDTH = 525 / 72
_DOTS_PER_INCH = 192  # the PNG has two dots for each of those pixels

_FOOTER_LETTERS = 112  # in a line

_RC = {
    "font.family": "DejaVu Sans",  # distributed with matplotlib
    "font.size": 8.5,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": TEXT,
    "axes.facecolor": "none",
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
    # Letters are outlines, because an image in a page cannot load a font. matplotlib keeps each
    # text as a comment next to its outlines.
    "svg.fonttype": "path",
    "svg.hashsalt": "zerocopy",  # the same figures give the same file
}


@contextmanager
def style_context() -> Iterator[None]:
    """Draw and save in the style of this module, independent of the user's matplotlibrc."""
    from matplotlib import style

    with style.context(["default", _RC]):
        yield


def new_figure(height: float, *, placed: bool = False) -> Any:
    """Return an empty figure of that many inches; the layout engine places its axes unless `placed`."""
    from matplotlib.figure import Figure

    # pyplot would choose a backend for the whole process.
    return Figure(figsize=(WIDTH, height), layout=None if placed else "constrained")


def head(figure: Any, title: str, subtitle: str) -> None:
    """Write the title, and below it how to read the picture."""
    height = figure.get_figheight()
    figure.text(0.01, 1 - 0.08 / height, title, va="top", fontsize=11, fontweight="bold")
    figure.text(0.01, 1 - 0.32 / height, subtitle, va="top", linespacing=1.35)


def reserve(figure: Any, above: float, below: float) -> None:
    """Keep that many inches free for the head and the footer; a footer needs 0.35."""
    height = figure.get_figheight()
    figure.get_layout_engine().set(rect=(0, below / height, 1, 1 - (above + below) / height), h_pad=0.06)


def footer(figure: Any, results: Results, *distributions: str) -> None:
    """Write the machine, the date and the versions below everything else."""
    height = figure.get_figheight()
    figure.text(0.01, 0.05 / height, "\n".join(measured_on(results, *distributions)), va="bottom", fontsize=7)


def measured_on(results: Results, *distributions: str) -> list[str]:
    """Return lines with the machine, the date and the versions of zerocopy, NumPy and those distributions."""
    computer, versions = results.facts.get("machine", {}), results.facts.get("versions", {})
    # Without the suffix of a build, such as "+cpu" or a commit.
    known = {name: version.partition("+")[0] for name, version in versions.items()}
    python = computer.get("python", "").replace("CPython", "Python")
    cores = computer.get("cores")
    machine = [
        computer.get("cpu", ""),
        f"{cores} core{'s' * (cores != 1)}{' of a virtual machine' * bool(computer.get('virtual'))}"
        if cores
        else "",
        results.facts.get("started", "")[:10],
        "quick run" if results.facts.get("settings", {}).get("quick") else "",
        "" if results.complete else "incomplete run",
    ]
    named = [
        f"{name} {version}"
        for name in ("zerocopy", "numpy", *distributions)
        if (version := known.get(name, known.get(f"{name}-cpu")))
    ]
    lines = [", ".join(filter(None, machine)), ", ".join(filter(None, [python, *named]))]
    # A version is not separated from its name by a line break.
    tied = [line.replace(" ", "\0").replace(",\0", ", ") for line in lines]
    return [part.replace("\0", " ") for line in tied for part in wrap(line, _FOOTER_LETTERS)]


def save(figure: Any, folder: Path, name: str) -> list[Path]:
    """Write the SVG and the PNG, and return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{name}.{kind}" for kind in ("svg", "png")]
    figure.savefig(files[0], facecolor="none", metadata={"Date": None})
    drawn = files[0].read_text(encoding="utf-8")
    files[0].write_text(drawn.replace("</style>", f"{dark_rules()}</style>", 1), encoding="utf-8")
    figure.savefig(files[1], facecolor=BACKGROUND, dpi=_DOTS_PER_INCH)
    return files


def dark_rules() -> str:
    """Return the CSS that replaces the colours on dark pages; matplotlib writes colours as inline styles."""
    rules = [
        f'[style*="{part}: {light}"] {{{part}: {dark} !important}}'
        for part in ("fill", "stroke")
        for light, dark in DARK.items()
    ]
    rules.append(f'[style*="stroke: {BACKGROUND}"] {{stroke: {DARK_BACKGROUND} !important}}')
    # In a tab of its own, too, the picture has the background that its colours are for.
    scheme = ":root {color-scheme: light dark}\n"
    return "\n".join([f"\n{scheme}@media (prefers-color-scheme: dark) {{", *rules, "}\n"])


def plain(axis: Any, grid: str) -> None:
    """Leave the grid of an axis, without ticks and without the line on the left."""
    axis.minorticks_off()
    axis.tick_params(length=0)
    axis.grid(axis=grid)
    axis.spines["left"].set_visible(False)


def multiples(axis: Any, ticks: Sequence[float], most: float = float("inf")) -> None:
    """Label those of the ticks that are in the range of the x-axis, as multiples."""
    least, end = axis.get_xlim()
    shown = [tick for tick in ticks if least <= tick <= min(end, most)]
    axis.set_xticks(shown, [f"{tick:g}x" for tick in shown])


def strip(figure: Any, bottom: float, height: float) -> Any:
    """Return an axis over the width of a figure, whose units are inches, from the top."""
    width, whole = figure.get_size_inches()
    axis = figure.add_axes((0, bottom / whole, 1, height / whole))
    axis.set(xlim=(0, width), ylim=(height, 0))
    axis.set_axis_off()
    return axis


def table(sources: Sequence[str], targets: Sequence[str], above: float, below: float, size: float) -> Any:
    """Return a figure, and in it an axis with a cell of one by one for each source and target."""
    cell, letter = 0.36, 0.078
    names = 0.13 + letter * max(map(len, sources))
    slanted = (WIDTH - names) / len(targets) < letter * size / 9 * max(map(len, targets))
    right = 0.04 + slanted * max(0.0, 0.85 * letter * len(targets[-1]) - 0.3)
    figure = new_figure(above + 0.22 * slanted + cell * len(sources) + below, placed=True)
    width, height = figure.get_size_inches()
    axis = figure.add_axes(
        (names / width, below / height, 1 - (names + right) / width, cell * len(sources) / height)
    )
    axis.set(xlim=(0, len(targets)), ylim=(len(sources), 0), frame_on=False)
    axis.set_xticks([i + 0.5 for i in range(len(targets))], targets)
    axis.set_yticks([i + 0.5 for i in range(len(sources))], sources)
    axis.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False, labelsize=size)
    if slanted:
        for label in axis.get_xticklabels():
            label.set(rotation=30, ha="left", rotation_mode="anchor", fontsize=8.5)
    return figure, axis


def spread(positions: Sequence[float], gap: float) -> list[float]:
    """Return the positions moved apart, in their order, so that their distance is at least ``gap``.

    Examples
    --------
    >>> spread([0.0, 0.1, 5.0], 1.0)
    [-0.45, 0.55, 5.0]
    """
    moved = list(positions)
    order = sorted(range(len(moved)), key=lambda i: moved[i])
    for _ in range(200):  # each pass moves neighbours that are too close apart by the same amount
        for low, high in pairwise(order):
            if (missing := gap - (moved[high] - moved[low])) > 0:
                moved[low], moved[high] = moved[low] - missing / 2, moved[high] + missing / 2
    return [round(position, 9) for position in moved]


def box(
    axis: Any, corner: tuple[float, float], size: tuple[float, float], color: Any, hatch: str = ""
) -> None:
    """Draw a rectangle of one colour, without an edge, and with hatching of another colour."""
    from matplotlib.colors import to_rgba
    from matplotlib.patches import Rectangle

    axis.add_patch(Rectangle(corner, *size, facecolor=color, linewidth=0))
    if hatch:
        edge = to_rgba(hatch, 0.4)
        axis.add_patch(Rectangle(corner, *size, fill=False, edgecolor=edge, hatch="////", linewidth=0))


def cell(axis: Any, x: int, y: int, color: Any, lines: Sequence[tuple[str, float]], hatched: bool) -> None:
    """Draw a cell of a :func:`table` with one or two lines of text, each with its size."""
    behind = {"facecolor": color, "linewidth": 0, "pad": 1.3}  # text has no hatching behind it
    box(axis, (x + 0.02, y + 0.04), (0.96, 0.92), color, ink(color) if hatched else "")
    for (text, size), at in zip(lines, (0.5,) if len(lines) == 1 else (0.31, 0.68), strict=True):
        look = {"ha": "center", "va": "center_baseline", "color": ink(color), "fontsize": size}
        axis.text(x + 0.5, y + at, text, bbox=behind if hatched else None, zorder=3, **look)


def scale(axis: Any, start: float, width: float, colors: Sequence[Any]) -> float:
    """Draw a scale of colours on a :func:`strip`; return its end."""
    for i, color in enumerate(colors):
        box(axis, (start + width * i, 0.08), (width + 0.001, 0.14), color)
    return start + width * len(colors)


def rows(axis: Any, names: Sequence[str], grid: str = "x", **look: Any) -> None:
    """Give an axis a row for each name, the first on top, and a log scale of multiples."""
    axis.set(xscale="log", ylim=(len(names) - 0.4, -0.6))
    axis.set_yticks(range(len(names)), names, **look)
    plain(axis, grid)


def ink(color: Any) -> str:
    """Return black or white, whichever has more contrast with a colour that matplotlib accepts."""
    from matplotlib.colors import to_rgb

    # Luminance and contrast as WCAG 2.1 defines them.
    parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(color)]
    light = sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), parts, strict=True))
    return "#000000" if (light + 0.05) / 0.05 > 1.05 / (light + 0.05) else "#ffffff"


def time(nanoseconds: float) -> str:
    """Return a time with two digits, or three from a hundred on.

    Examples
    --------
    >>> time(505.3), time(2614.6), time(12.3e6), time(9.96e3)
    ('505 ns', '2.6 µs', '12 ms', '10 µs')
    """
    return _short(nanoseconds, {"s": 1e9, "ms": 1e6, "µs": 1e3, "ns": 1.0}, 0.9995)


def size(nbytes: float) -> str:
    """Return a size with two digits, or three from a hundred on.

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
