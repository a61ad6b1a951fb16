"""Errors of the monitor's functions and files. A monitored program gets warnings instead."""

from __future__ import annotations

import importlib
from typing import Any

from zerocopy.errors import ZeroCopyError

#: The distributions whose names differ from those of their modules.
_DISTRIBUTIONS = {"prometheus_client": "prometheus-client"}


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
      To fix: call zc.monitor.snapshot() for its figures, or zc.monitor.stop() first
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
      To fix: call zc.monitor.start() first
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
    >>> import zerocopy as zc
    >>> error = zc.RunDirectoryError("the run directory runs", "it is a symbolic link")
    >>> isinstance(error, PermissionError), error.code
    (True, 'run-directory')
    """

    code = "run-directory"


class MonitorFileError(ZeroCopyError, OSError):
    """A file of the monitor exists already, or cannot be written.

    Examples
    --------
    >>> import zerocopy as zc
    >>> error = zc.MonitorFileError("--csv a.csv", "the file exists")
    >>> isinstance(error, OSError), error.code
    (True, 'monitor-file')
    """

    code = "monitor-file"


class MonitorFieldError(ZeroCopyError, LookupError):
    """A name is not that of a field of the CSV file.

    Examples
    --------
    >>> from zerocopy.monitor.csv_file import select
    >>> select("nothing")
    Traceback (most recent call last):
        ...
    zerocopy.monitor.errors.MonitorFieldError: --fields nothing: there is no field 'nothing'.
      To fix: --list-fields lists all names
    """

    code = "unknown-field"


class ServeError(ZeroCopyError, OSError):
    """The page's server cannot listen at the address.

    Examples
    --------
    >>> import zerocopy as zc
    >>> error = zc.ServeError("serve(port=80)", "port 80 is in use")
    >>> isinstance(error, OSError), error.code
    (True, 'cannot-serve')
    """

    code = "cannot-serve"


class MonitorPackageError(ZeroCopyError, ImportError):
    """A package that the monitor needs to read or display figures is not installed.

    Examples
    --------
    >>> require("absent_package", "the page")
    Traceback (most recent call last):
        ...
    zerocopy.monitor.errors.MonitorPackageError: the page: absent_package is not installed.
      To fix: pip install absent_package
    """

    code = "not-installed"


def require(module: str, purpose: str) -> Any:
    """Import and return a module of the extra ``monitor``; errors name the `purpose`."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        absent = error.name in (package, module)
        why = f"{package} is not installed" if absent else f"importing it failed: {error}"
        install = f"pip install {_DISTRIBUTIONS.get(package, package)}"
        raise MonitorPackageError(purpose, why, install) from error
