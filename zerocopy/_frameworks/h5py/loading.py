"""Datasets of h5py in chunks, for the loader."""

from __future__ import annotations

from typing import Any

from zerocopy.loading.hook import LoadingHook


class Loading(LoadingHook):
    """Datasets in chunks; the loader maps others, as `convert` does."""

    suffixes = ("h5", "hdf5", "he5", "hdf")
    only_here = "is a data set of an open file, which cannot be pickled"

    def open_path(self, path: str) -> Any:
        """Return the data sets of a file and of its groups, by their paths; they keep the file open."""
        import h5py

        data_sets: dict[str, Any] = {}
        h5py.File(path, "r").visititems(
            lambda name, item: data_sets.update({name: item} if isinstance(item, h5py.Dataset) else {})
        )
        return data_sets

    def chunk_rows(self, obj: Any) -> int:
        """Return the rows of a chunk; 0 for a data set that is not in chunks."""
        return int(obj.chunks[0]) if obj and obj.chunks else 0
