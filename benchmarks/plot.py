"""Draw the throughput of layouts from a file of results.

::

    python -m benchmarks.plot benchmarks/results/layout-....json --out docs

writes ``layouts-benchmarks.svg`` and ``.png``. They are drawn on nothing and in middle tones,
so that they can be read on a light page and on a dark one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks.layout.moves import TO_COLUMNS, TO_ROWS
from benchmarks.results import Results, read
from benchmarks.suite import Case, median

#: The files' name, without what says their kind: the page shows one of them.
NAME = "layouts-benchmarks"

_PANELS = (
    ("layout/to-columns", "Records to columns (AoS to SoA)", TO_COLUMNS),
    ("layout/to-rows", "Columns to records (SoA to AoS)", TO_ROWS),
)

_TEXT = "#808080"

#: By the names of ways. Tones differ in lightness too, for those who do not see all colours.
COLORS = {
    "zerocopy": "#e8590c",
    "zerocopy, fresh memory": "#ffb27d",
    "ordinary copy": "#868e96",
    "non-temporal copy": "#b4bbc2",
    **dict.fromkeys(("np.copyto per field", "assignment per field"), "#1f77b4"),
    **dict.fromkeys(("np.ascontiguousarray per field", "np.rec.fromarrays"), "#74add6"),
    **dict.fromkeys(("structured_to_unstructured, np.copyto", "unstructured_to_structured"), "#2f9e44"),
    "structured_to_unstructured": "#8ce99a",
    "Numba loop": "#7048b0",
    "Numba loop, parallel": "#c5a3e0",
    **dict.fromkeys(("pandas.DataFrame", "pandas.DataFrame.to_records"), "#b8860b"),
    **dict.fromkeys(("polars.from_numpy", "polars.DataFrame.to_numpy"), "#e3c565"),
    "pyarrow per field": "#17a2b8",
}


def draw(found: Results, folder: Path) -> list[Path]:
    """Draw both directions, and return the files.

    Raises
    ------
    ValueError
        There are no results of layouts.
    """
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    panels = [(found.cases[key], title, ways) for key, title, ways in _PANELS if found.cases.get(key)]
    if not panels:
        raise ValueError(f"the results have none of {', '.join(key for key, *_ in _PANELS)}")
    style = {
        "font.size": 10,
        "svg.hashsalt": NAME,  # so that the same figures give the same file
        **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), _TEXT),
        "axes.edgecolor": _TEXT,
    }
    with plt.rc_context(style):
        figure, axes = plt.subplots(
            len(panels), 1, figsize=(13, 5.4 * len(panels)), squeeze=False, sharey=True
        )
        for axis, (cases, title, ways) in zip(axes[:, 0], panels, strict=True):
            _panel(axis, cases, title, [(way.code, way.name) for way in ways])
        figure.tight_layout(h_pad=2.5)
        folder.mkdir(parents=True, exist_ok=True)
        files = [folder / f"{NAME}.{kind}" for kind in ("svg", "png")]
        figure.savefig(files[0], transparent=True, metadata={"Date": None})
        figure.savefig(files[1], transparent=True, dpi=110)
        plt.close(figure)
    return files


def _panel(axis: Any, cases: Sequence[Case], title: str, ways: Sequence[tuple[str, str]]) -> None:
    """Draw a group of bars a type of records; a way that was left out leaves its place empty."""
    width = 0.9 / len(ways)
    for i, (label, name) in enumerate(ways):
        places, rates = [], []
        for group, case in enumerate(cases):
            entry = next((entry for entry in case.timed() if entry.label == label), None)
            if entry is not None:
                places.append(group - 0.45 + (i + 0.5) * width)
                rates.append(case.figures["bytes a record"] * case.figures["records"] / median(entry))
        axis.bar(places, rates, width * 0.92, label=name, color=COLORS[name])
        if not i:
            for place, rate in zip(places, rates, strict=True):
                # To the left, where the bars of the group before are low.
                at = (place + width / 2, rate)
                axis.annotate(f"{rate:.1f}", at, ha="right", va="bottom", fontsize=8, color=COLORS[name])
    axis.set_title(title, loc="left", fontweight="bold")
    axis.set_ylabel("GB/s, records counted once")
    axis.set_xticks(range(len(cases)), [_broken(case.name) for case in cases])
    axis.set_xlim(-0.7, len(cases) - 0.45)
    axis.tick_params(axis="x", length=0)
    axis.grid(axis="y", color=_TEXT, alpha=0.25, lw=0.6)
    axis.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    axis.legend(ncols=5, loc="upper center", bbox_to_anchor=(0.5, -0.17), frameon=False, fontsize=9)


def _broken(name: str) -> str:
    """Break the name of a type of records before its size, and before how it lies."""
    return (
        name.replace(" (", "\n(").replace(", aligned", ",\naligned").replace(", big-endian", ",\nbig-endian")
    )


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=".", help="The folder.")
def main(file: Path, out: Path) -> None:
    """Draw the throughput by layout from a FILE of results."""
    try:
        written = draw(read(file), out)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    for path in written:
        click.echo(f"written to {path}", err=True)


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.plot")
