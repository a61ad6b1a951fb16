"""The error of a file that the loader reads."""

from __future__ import annotations

from zerocopy.errors import ZeroCopyError


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

    Examples
    --------
    >>> import zerocopy as zc
    >>> zc.loader("missing.parquet", to="numpy", batch=2)
    Traceback (most recent call last):
        ...
    zerocopy.loading.read_error.ReadError: loader('missing.parquet'): the file does not exist.
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
