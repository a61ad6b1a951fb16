"""Errors of a loader that cannot be iterated, counted or pickled."""

from __future__ import annotations

from zerocopy.errors import ZeroCopyError


class LoaderIterationError(ZeroCopyError, RuntimeError):
    """An iterator of a loader cannot go on, or a loader cannot be iterated again.

    Examples
    --------
    >>> import pyarrow as pa, zerocopy as zc
    >>> table = pa.table({"x": [1, 2]})
    >>> loader = zc.loader(table.to_reader(), to="numpy", batch=2)
    >>> list(loader)
    [{'x': array([1, 2])}]
    >>> list(loader)
    Traceback (most recent call last):
        ...
    zerocopy.loading.errors.LoaderIterationError: iter(loader): ... can be read only once, and was...
      To fix: pass a source that can be read again, such as a path or a table
    """

    code = "loader-iteration"


class UnknownLengthError(ZeroCopyError, TypeError):
    """The number of batches of a stream is not known before it is read.

    It is a TypeError, so ``list(loader)`` and ``tqdm(loader)`` work without a length.

    Examples
    --------
    >>> import pyarrow as pa, zerocopy as zc
    >>> len(zc.loader(pa.table({"x": [1, 2]}).to_reader(), to="numpy"))
    Traceback (most recent call last):
        ...
    zerocopy.loading.errors.UnknownLengthError: len(loader): the number of rows of ... is not known...
      To fix: count the batches while iterating, or pass a source in files or in memory
    """

    code = "unknown-length"


class LoaderPickleError(ZeroCopyError, TypeError):
    """A loader cannot be copied or pickled if its source can be read only once, or only here.

    Examples
    --------
    >>> import pickle, pyarrow as pa, zerocopy as zc
    >>> pickle.dumps(zc.loader(pa.table({"x": [1, 2]}).to_reader(), to="numpy"))
    Traceback (most recent call last):
        ...
    zerocopy.loading.errors.LoaderPickleError: copying or pickling a loader: ... can be read only once...
      To fix: create another loader, where it is read; or pass a source that can be read again
    """

    code = "unpicklable-loader"
