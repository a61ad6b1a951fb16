"""Errors of files that the loader reads."""

from __future__ import annotations

from zerocopy.errors import ZeroCopyError


class ReadError(ZeroCopyError, OSError):
    """A file or row group cannot be read, has changed since the loader was created, or has other columns.

    Attributes
    ----------
    file : str
        Path or URL of the file.
    row_group : int or None
        Number of the row group in the file; None for the whole file.

    Examples
    --------
    >>> import zerocopy as zc
    >>> zc.loader("missing.parquet", to="numpy", batch=2)
    Traceback (most recent call last):
        ...
    zerocopy.loading.errors.ReadError: loader('missing.parquet'): the file does not exist.
      To fix: pass an existing path, a glob such as "data/*.parquet", or a URL
    """

    code = "unreadable-file"

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
        self.file, self.row_group = file, row_group


class LoaderIterationError(ZeroCopyError, RuntimeError):
    """An iterator of a loader cannot go on, or a loader cannot be iterated again."""

    code = "loader-iteration"


class UnknownLengthError(ZeroCopyError, TypeError):
    """The number of batches of a stream is not known before it is read.

    It is a TypeError, so ``list(loader)`` and ``tqdm(loader)`` work without a length.
    """

    code = "unknown-length"


class LoaderPickleError(ZeroCopyError, TypeError):
    """A loader whose source can be read once cannot be copied to another process."""

    code = "unpicklable-loader"
