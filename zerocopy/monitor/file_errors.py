"""Errors of the files that readers write."""

from __future__ import annotations

from zerocopy.errors import ZeroCopyError


class MonitorFileError(ZeroCopyError, OSError):
    """A file of the monitor exists already, or cannot be written.

    Examples
    --------
    >>> raise MonitorFileError("--csv out.csv", "the disk is full", "free space")
    Traceback (most recent call last):
        ...
    zerocopy.monitor.file_errors.MonitorFileError: --csv out.csv: the disk is full.
      To fix: free space
    """

    code = "monitor-file"


class MonitorFieldError(ZeroCopyError, LookupError):
    """A name is not that of a field of the CSV file.

    Examples
    --------
    >>> from zerocopy.monitor.csv_fields import select
    >>> select("memory.usd")
    Traceback (most recent call last):
        ...
    zerocopy.monitor.file_errors.MonitorFieldError: --fields memory.usd: there is no field 'memory.usd'.
      To fix: did you mean 'memory.used'...
    """

    code = "unknown-field"
