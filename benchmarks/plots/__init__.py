"""Pictures of results. The same results give the same files.

Each picture has a module and a row in :data:`PICTURES`. Only this package needs matplotlib.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.plots import grid, layouts, lines, pipeline, rows
from benchmarks.plots.style import save, style_context
from benchmarks.results import Results


@dataclass(frozen=True)
class Picture:
    """One picture; `name` is that of its files, without the suffix.

    It can be drawn from one of its sections. ``complete(results)`` is whether results with a time have the
    other figures that it needs.
    """

    name: str
    sections: tuple[str, ...]
    draw: Callable[[Results], Any]
    complete: Callable[[Results], bool] = lambda results: True

    def drawable(self, results: Results) -> bool:
        """Whether one of its sections has a time."""
        cases = [case for section in self.sections for case in results.cases.get(section, ())]
        return any(case.timed() for case in cases) and self.complete(results)


PICTURES = (
    Picture("conversion-grid", ("conversion/grid", "conversion/pairs"), grid.draw),
    Picture("conversion-core", ("conversion/core",), rows.draw_core),
    Picture("conversion-sizes", ("conversion/sizes",), lines.draw),
    Picture("tables-grid", ("grid/cells",), grid.draw_tables),
    Picture("layouts", ("layout/to-columns", "layout/to-rows"), layouts.draw),
    Picture("pool", ("pool/recycle", "pool/aligned"), rows.draw_pool),
    Picture("pipeline", ("pipeline/stages",), pipeline.draw),
    Picture("pipeline-copies", ("pipeline/stages",), pipeline.draw_copies, pipeline.has_copies),
    Picture("loader", ("loader/order", "loader/shuffle"), rows.draw_loader),
    Picture("processes", ("processes/share",), rows.draw_processes),
    Picture(
        "processes-scale", ("processes/readers", "processes/segments", "processes/workers"), lines.draw_scale
    ),
)


def require() -> None:
    """Raise ImportError if matplotlib is not installed."""
    # Not imported: what is timed next should not have matplotlib in its process.
    if importlib.util.find_spec("matplotlib") is None:
        raise ImportError(
            "cannot draw pictures: matplotlib is not installed. "
            "To fix: pip install matplotlib (the dependency group 'bench' has it too)",
            name="matplotlib",
        )


def draw(results: Results, folder: Path) -> list[Path]:
    """Draw all pictures whose sections are in the results, as SVG and PNG, and return the files.

    Raises ValueError if the results have no time in a section that has a picture.
    """
    wanted = [picture for picture in PICTURES if picture.drawable(results)]
    if not wanted:
        sections = ", ".join(section for picture in PICTURES for section in picture.sections)
        raise ValueError(f"nothing to draw: the results have no times in any of {sections}")
    require()
    with style_context():
        return [path for picture in wanted for path in save(picture.draw(results), folder, picture.name)]
