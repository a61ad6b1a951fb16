"""Arrays of zarr in chunks, for the loader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zerocopy.loading.hook import LoadingHook


class Loading(LoadingHook):
    """Arrays in chunks, or in shards of chunks."""

    suffixes = ("zarr",)

    def open_path(self, path: str) -> Any:
        """Return an array, or the arrays of a group and of those inside it, by their paths."""
        import zarr

        opened = zarr.open(path, mode="r")
        return opened if isinstance(opened, zarr.Array) else dict(_arrays(opened))

    def chunk_rows(self, obj: Any) -> int:
        """Return the rows of a shard or chunk."""
        return int((getattr(obj, "shards", None) or obj.chunks)[0]) if obj.ndim else 0


def _arrays(group: Any, start: str = "") -> Iterator[tuple[str, Any]]:
    for name, array in sorted(group.arrays()):
        yield start + name, array
    for name, inner in sorted(group.groups()):
        yield from _arrays(inner, f"{start}{name}/")
