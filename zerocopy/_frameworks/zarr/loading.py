"""Arrays of zarr in chunks, for the loader."""

from __future__ import annotations

from typing import Any

from zerocopy.loading.hook import LoadingHook


class Loading(LoadingHook):
    """Arrays in chunks, or in shards of chunks."""

    def chunk_rows(self, obj: Any) -> int:
        """Return the rows of a shard or chunk."""
        return int((getattr(obj, "shards", None) or obj.chunks)[0]) if obj.ndim else 0
