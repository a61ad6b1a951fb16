"""`as_read_errors`: errors of libraries that read files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from zerocopy.errors import ReadError, ZeroCopyError
from zerocopy.protocols.exporter_errors import is_error


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
