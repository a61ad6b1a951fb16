"""The page of the vectors suite."""

from __future__ import annotations

from typing import Any

from benchmarks.pages.words import goals, rivals
from benchmarks.vectors.images import HEIGHT, WIDTH
from benchmarks.vectors.lists import ROWS, WIDTH as LENGTH

TITLE = "Benchmarks of vectors and images"
ABOUT = "Columns of lists of one length, images and frames of video to one tensor."


def body(data: dict[str, Any]) -> list[str]:
    """Return the page after its head."""
    return [
        goals(data),
        rivals(data, "vectors/lists", f"Columns of vectors: {ROWS:,} lists of {LENGTH} float32"),
        rivals(data, "vectors/images", f"Images and frames of {WIDTH} x {HEIGHT}"),
    ]
