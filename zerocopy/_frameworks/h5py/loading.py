"""Datasets of h5py in chunks, for the loader."""

from __future__ import annotations

import os
from typing import Any

from zerocopy.loading.hook import LoadingHook


class Loading(LoadingHook):
    """Datasets in chunks; the loader maps others, as `convert` does."""

    suffixes = ("h5", "hdf5", "he5", "hdf")
    only_here = "is a dataset of a file that is open for writing or is not on disk, which cannot be pickled"

    def open_path(self, path: str) -> Any:
        """Return the data sets of a file and of its groups, by their paths; they keep the file open."""
        import h5py

        data_sets: dict[str, Any] = {}
        h5py.File(path, "r").visititems(
            lambda name, item: data_sets.update({name: item} if isinstance(item, h5py.Dataset) else {})
        )
        return data_sets

    def location(self, obj: Any) -> tuple[str, str] | None:
        """Return the path and the name of a dataset, if its file is on disk and open for reading."""
        is_file = obj and obj.file.mode == "r" and obj.file.driver in ("sec2", "stdio")
        return (os.path.abspath(obj.file.filename), obj.name) if is_file else None

    def open_again(self, path: str, name: str) -> Any:
        import h5py

        return h5py.File(path, "r")[name]

    def chunk_rows(self, obj: Any) -> int:
        """Return the rows of a chunk; 0 for a data set that is not in chunks."""
        return int(obj.chunks[0]) if obj and obj.chunks else 0
