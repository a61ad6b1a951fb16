"""Datasets of h5py in chunks, for the loader."""

from __future__ import annotations

from typing import Any

from zerocopy.loading.hook import LoadingHook


class Loading(LoadingHook):
    """Datasets in chunks; the loader maps others, as `convert` does."""

    only_here = "is a data set of an open file, which cannot be pickled"

    def chunk_rows(self, obj: Any) -> int:
        """Return the rows of a chunk; 0 for a data set that is not in chunks."""
        return int(obj.chunks[0]) if obj and obj.chunks else 0
