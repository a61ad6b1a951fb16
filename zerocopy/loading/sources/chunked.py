"""Arrays in files that are read by chunks: those of zarr, and datasets of h5py that are in chunks."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from zerocopy import registry
from zerocopy._engine.convert import convert
from zerocopy.errors import ReadError
from zerocopy.framework import hook_of
from zerocopy.loading.dataset import Dataset, Group, derived
from zerocopy.loading.hook import LoadingHook
from zerocopy.loading.sources.files import digest
from zerocopy.protocols.exporter_errors import as_read_errors
from zerocopy.source import Array, type_name

#: The most rows and bytes of a group, unless one chunk has more.
_ROWS, _BYTES = 1 << 17, 1 << 26


def chunk_rows(obj: Any) -> int:
    """Return the number of rows that a chunk of an array in a file has; 0 for other objects."""
    return _hook(obj).chunk_rows(obj)


def _hook(obj: Any) -> LoadingHook:
    return hook_of(registry.by_type(type(obj)), LoadingHook)


class ChunkedArrays(Dataset):
    """A dict of arrays, some of which are read by chunks. A group has whole chunks of the longest ones."""

    #: For arrays in memory: see `ArrayDataset`.
    missing: Sequence[Hashable] = ()

    def __init__(self, arrays: Mapping[Hashable, Any], name: str) -> None:
        self.name = name
        self._arrays = dict(arrays)
        self.is_new: bool = all(map(chunk_rows, self._arrays.values()))
        hooks = [(_hook(array), array) for array in self._arrays.values()]
        obstacles = [hook.only_here for hook, array in hooks if hook.only_here and not hook.location(array)]
        self.only_here: str = next(iter(obstacles), "")
        self._rows = int(next(iter(self._arrays.values())).shape[0])
        nbytes = sum(array.dtype.itemsize * int(np.prod(array.shape[1:])) for array in self._arrays.values())
        chunk = max(map(chunk_rows, self._arrays.values()))
        self._step: int = max(min(_ROWS, _BYTES // max(nbytes, 1)) // chunk, 1) * chunk
        starts = range(0, self._rows, self._step)
        self.groups: list[Group] = [
            Group(min(self._step, self._rows - start), number=number) for number, start in enumerate(starts)
        ]

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a copy, which opens its files again."""
        places = {
            label: (_hook(array), _hook(array).location(array)) for label, array in self._arrays.items()
        }
        placed = {label: (hook, place) for label, (hook, place) in places.items() if place is not None}
        rest = {label: array for label, array in self._arrays.items() if label not in placed}
        return self.__dict__ | {"_arrays": rest, "_placed": placed, "_order": list(self._arrays)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        placed, order = state.pop("_placed"), state.pop("_order")
        arrays = state["_arrays"] | {
            label: hook.open_again(*place) for label, (hook, place) in placed.items()
        }
        self.__dict__ = state | {"_arrays": {label: arrays[label] for label in order}}

    def read(self, index: int) -> dict[Hashable, Array]:
        """Return the rows of a group; arrays in memory are aliased."""
        start = index * self._step
        return {
            label: self._part(label, start, start + self.groups[index].rows, index) for label in self._arrays
        }

    def _part(self, label: Hashable, low: int, high: int, index: int) -> Array:
        array = self._arrays[label]

        def failure(error: BaseException) -> ReadError:
            why = f"{type_name(array)} {label!r} raised {type(error).__name__}: {error}"
            fix = 'restore the chunk; or on_error="skip" leaves these rows out'
            return ReadError(f"reading {self.name}, row group {index}", why, fix, row_group=index)

        with as_read_errors(failure):
            return np.asarray(array[low:high])

    def empty(self) -> dict[Hashable, Array]:
        """Return arrays without rows; reads none."""
        return {label: np.empty((0, *array.shape[1:]), array.dtype) for label, array in self._arrays.items()}

    def fingerprint(self) -> str:
        """Return a digest of the types and the number of rows: a sample would read whole chunks."""
        types = [(label, str(array.dtype), array.shape[1:]) for label, array in self._arrays.items()]
        return digest(self.name, self._rows, types)

    def as_tables(self) -> Dataset:
        """Return a dataset whose groups are Arrow tables, each converted when it is read."""
        return derived(self, _as_table(self.empty()).schema, _as_table)  # type: ignore[return-value]


def _as_table(rows: Mapping[Hashable, Array], place: str = "") -> Any:
    # Arrow's columns of tensors need a row.
    parts = {
        str(label): array if len(array) else np.zeros((1, *array.shape[1:]), array.dtype)
        for label, array in rows.items()
    }
    table = convert(parts, "pyarrow")
    return table.slice(0, max(map(len, rows.values())))
