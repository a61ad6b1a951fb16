"""The errors of ``loader``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from errno import ENOENT
from typing import Any

from zerocopy.errors import ZeroCopyError
from zerocopy.protocols.exporter_errors import is_error


class ReadError(ZeroCopyError, OSError):
    """A file or row group cannot be read, has changed since the loader was created, or has other columns.

    Parameters
    ----------
    asked, why, remedy : str
        As for `ZeroCopyError`.
    code : str
        Stable name of the cause.
    file : str
        Path or URL of the file.
    row_group : int or None
        Number of the row group in the file; None for the whole file.

    Notes
    -----
    A file that does not exist raises `MissingFileError`, which is also a `FileNotFoundError`.

    Examples
    --------
    >>> import zerocopy as zc
    >>> zc.loader("missing.parquet", to="numpy", batch_size=2)
    Traceback (most recent call last):
        ...
    zerocopy.loading.errors.MissingFileError: loader('missing.parquet'): the file does not exist.
      To fix: pass an existing path, a glob such as "data/*.parquet", or a URL
    """

    code = "unreadable-file"
    # Attributes of Python: a pickle of the error lacks those of OSError.
    errno: int | None = None
    strerror: str | None = None
    filename: Any = None

    def __init__(
        self,
        asked: str,
        why: str,
        remedy: str = "",
        *,
        code: str = "",
        file: str = "",
        row_group: int | None = None,
    ) -> None:
        super().__init__(asked, why, remedy, code=code)
        self.filename = file or None
        self.file = file
        self.row_group = row_group


class MissingFileError(ReadError, FileNotFoundError):
    """A file does not exist, or no file matches a pattern.

    Examples
    --------
    >>> import zerocopy as zc
    >>> try:
    ...     zc.open_weights("missing.safetensors")
    ... except FileNotFoundError as error:
    ...     print(error.filename)
    missing.safetensors
    """

    code = "missing-file"
    errno: int | None = ENOENT


@contextmanager
def as_read_errors(read_error: Callable[[BaseException], ReadError]) -> Iterator[None]:
    """Raise ``read_error(error)`` for an error of a library: not for those of zerocopy or lack of memory."""
    try:
        yield
    except (ZeroCopyError, MemoryError):
        raise
    except BaseException as error:
        if not is_error(error):
            raise
        raise read_error(error) from error


class LoaderStateError(ZeroCopyError, ValueError):
    """A state does not belong to this loader: it has another source, seed or batch size, or is damaged.

    Also raised by ``loader.state_dict()`` while worker processes iterate over copies of the loader.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> loader = zc.loader({"x": np.arange(9)}, to="numpy", batch_size=2)
    >>> loader.load_state_dict(zc.loader({"x": np.arange(9)}, to="numpy", batch_size=3).state_dict())
    Traceback (most recent call last):
        ...
    zerocopy.loading.errors.LoaderStateError: load_state_dict(state): the state has batch_size=3, and this...
      To fix: create the loader with the source and the options of the one that made the state
    """

    code = "loader-state"


class LoaderUseError(ZeroCopyError, RuntimeError, TypeError):
    """A loader cannot be iterated again, counted, copied or pickled; `code` tells these apart.

    It is a TypeError, so that ``list(loader)`` and ``tqdm(loader)`` work without a length.

    Examples
    --------
    >>> import pyarrow as pa, zerocopy as zc
    >>> table = pa.table({"x": [1, 2]})
    >>> loader = zc.loader(table.to_reader(), to="numpy", batch_size=2)
    >>> list(loader)
    [{'x': array([1, 2])}]
    >>> list(loader)
    Traceback (most recent call last):
        ...
    zerocopy.loading.errors.LoaderUseError: iter(loader): ... can be read only once, and was...
      To fix: pass a source that can be read again, such as a path or a table
    """

    code = "loader-iteration"
