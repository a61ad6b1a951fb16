"""The pictures: drawn from results, one file a picture, the same file from the same results.

A picture needs results of one of its sections; another picture is one more module, and one
row in :data:`PICTURES`. It is the only part of the benchmarks that needs matplotlib.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.plots import grid, layouts, pipeline, pool, sizes
from benchmarks.plots.style import ours, save
from benchmarks.results import Results


@dataclass(frozen=True)
class Picture:
    """One picture.

    Attributes
    ----------
    name : str
        The files' name, without what says their kind.
    sections : tuple of str
        Those that it can be drawn from: one of them is enough.
    draw : callable
        ``draw(results) -> matplotlib.figure.Figure``.
    """

    name: str
    sections: tuple[str, ...]
    draw: Callable[[Results], Any]

    def drawable(self, found: Results) -> bool:
        """Whether one of its sections has a time."""
        return any(case.timed() for section in self.sections for case in found.cases.get(section, ()))


PICTURES = (
    Picture("conversion-grid", ("conversion/grid", "conversion/pairs"), grid.draw),
    Picture("conversion-sizes", ("conversion/sizes",), sizes.draw),
    Picture("layouts", ("layout/to-columns", "layout/to-rows"), layouts.draw),
    Picture("pool", ("pool/recycle", "pool/aligned"), pool.draw),
    Picture("pipeline", ("pipeline/stages",), pipeline.draw),
)


def require() -> None:
    """Make sure that pictures can be drawn.

    Raises
    ------
    ImportError
        There is no matplotlib; it says how to get it.
    """
    # Looked for, not imported: what is timed next has no part of matplotlib in its process.
    if importlib.util.find_spec("matplotlib") is None:
        raise ImportError(
            "cannot draw pictures: matplotlib is not installed. "
            "Install it with: pip install matplotlib (the 'bench' extra has it too)",
            name="matplotlib",
        )


def draw(found: Results, folder: Path) -> list[Path]:
    """Draw all pictures whose sections are in the results, and return the files.

    Parameters
    ----------
    found : Results
    folder : Path
        Is made if it is not there.

    Returns
    -------
    list of Path
        An SVG and a PNG a picture.

    Raises
    ------
    ValueError
        There is nothing to draw: the results have no time of any section that has a picture.
    ImportError
        There is no matplotlib.
    """
    wanted = [picture for picture in PICTURES if picture.drawable(found)]
    if not wanted:
        sections = ", ".join(section for picture in PICTURES for section in picture.sections)
        raise ValueError(f"nothing to draw: the results have times of none of {sections}")
    require()
    with ours():
        return [path for picture in wanted for path in save(picture.draw(found), folder, picture.name)]
