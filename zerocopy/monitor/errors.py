"""Errors of the monitor's functions and files. A monitored program gets warnings instead."""

from __future__ import annotations

from zerocopy.errors import ZeroCopyError


class MonitorRunningError(ZeroCopyError, RuntimeError):
    """This process has a session already.

    Examples
    --------
    >>> import zerocopy as zc
    >>> with zc.monitor.start():
    ...     zc.monitor.start()
    Traceback (most recent call last):
        ...
    zerocopy.monitor.errors.MonitorRunningError: monitor.start(): the monitor of this process is running.
      To fix: call zerocopy.monitor.snapshot() for its figures, or zerocopy.monitor.stop() first
    """

    code = "monitor-running"


class MonitorNotStartedError(ZeroCopyError, RuntimeError):
    """This process has no session, or the block of a recording has not begun.

    Examples
    --------
    >>> import zerocopy as zc
    >>> zc.monitor.snapshot()
    Traceback (most recent call last):
        ...
    zerocopy.monitor.errors.MonitorNotStartedError: monitor.snapshot(): the monitor was not started.
      To fix: call zerocopy.monitor.start() first
    """

    code = "monitor-not-started"


class MonitorOptionError(ZeroCopyError, ValueError):
    """An option of the monitor has an invalid value.

    Examples
    --------
    >>> import zerocopy as zc
    >>> zc.monitor.start(every=0)
    Traceback (most recent call last):
        ...
    zerocopy.monitor.errors.MonitorOptionError: monitor.start(every=0): it is not between 0.01 and 3600.
      To fix: pass seconds, such as every=0.2
    """

    code = "monitor-option"


class RunDirectoryError(ZeroCopyError, PermissionError):
    """The run directory is not safe: other users could read it, or replace its files.

    Examples
    --------
    >>> issubclass(RunDirectoryError, PermissionError)
    True
    """

    code = "run-directory"


class MonitorFileError(ZeroCopyError, OSError):
    """A file of the monitor exists already, or cannot be written.

    Examples
    --------
    >>> raise MonitorFileError("--csv out.csv", "the disk is full", "free space")
    Traceback (most recent call last):
        ...
    zerocopy.monitor.errors.MonitorFileError: --csv out.csv: the disk is full.
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
    zerocopy.monitor.errors.MonitorFieldError: --fields memory.usd: there is no field 'memory.usd'.
      To fix: did you mean 'memory.used'...
    """

    code = "unknown-field"
