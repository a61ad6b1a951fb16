"""``LoadingHook``: functions of a framework that the loader calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zerocopy.loading.dataset import Dataset, Stream

if TYPE_CHECKING:
    import numpy as np


class LoadingHook:
    """Base class of the frameworks' classes `Loading`."""

    #: Whether `empty` and `current_stream` exist, so that the loader can copy batches in advance.
    can_allocate = False
    #: Whether it has `decoder`, for ``engine=``.
    can_decode = False
    #: Whether the framework has worker processes; remedies for states and for epochs that new workers repeat.
    has_workers = False
    state_fix = repeat_fix = ""
    #: The ends of the names of its files and folders; `open_path` opens those.
    suffixes: tuple[str, ...] = ()
    #: Why a copy of a loader cannot read an object without `location`; empty if its pickle can be read.
    only_here = ""

    def open(self, obj: Any, columns: Any) -> Dataset | Stream | None:
        """Return an object of the framework as rows; None if the loader converts it to Arrow or NumPy.

        `columns` are the labels of the columns to read, in this order; None for all.
        """
        return None

    def open_path(self, path: str) -> Any:
        """Return a file or folder with one of `suffixes` as a source: an object, or a dict of arrays."""
        raise NotImplementedError

    def location(self, obj: Any) -> tuple[Any, ...] | None:
        """Return the arguments of `open_again` for an object that cannot be pickled; None if it has none."""
        return None

    def open_again(self, *location: Any) -> Any:
        """Return the object of a location, in a copy of a loader."""
        raise NotImplementedError

    def chunk_rows(self, obj: Any) -> int:
        """Return the rows of a chunk of an array in a file, which is then read by ``obj[low:high]``.

        0: the array is converted at once.
        """
        return 0

    def decoder(self, files: Any, device: int) -> Dataset | None:
        """Return local `ParquetFiles` as rows that the framework decodes on a CUDA device."""
        return None

    def bases(self) -> tuple[type, ...]:
        """Return base classes that the framework requires of an iterable data set."""
        return ()

    def worker(self) -> tuple[int, int] | None:
        """Return the number of this worker process and the number of workers; None in other processes."""
        return None

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any], index: int) -> tuple[Any, int]:
        """Return an uninitialised row-major array of a CUDA device, and its address.

        Its memory belongs to the device's current stream: the framework uses it again, after the array is
        dropped, in the order of that stream.
        """
        raise NotImplementedError

    def current_stream(self, index: int) -> int:
        """Return the current stream of a CUDA device in this thread, as DLPack numbers streams."""
        raise NotImplementedError
