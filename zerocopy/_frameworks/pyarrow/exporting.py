"""Fast exporters of pyarrow's arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def without_nulls(from_dlpack: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return an exporter to NumPy that refuses nulls before NumPy asks for the memory.

    pyarrow's ``__dlpack__`` raises TypeError for nulls, upon which NumPy calls it without
    ``max_version``: pyarrow warns that such capsules are deprecated.
    """

    def export(array: Any) -> Any:
        if array.null_count:
            raise ValueError("it has nulls: the slow path refuses them")
        return from_dlpack(array)

    return export
