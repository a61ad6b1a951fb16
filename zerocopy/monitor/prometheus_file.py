"""``PrometheusFile``: a file for the textfile collector of Prometheus' node_exporter."""

from __future__ import annotations

import contextlib
import os
import stat

from zerocopy.monitor.errors import MonitorFileError
from zerocopy.monitor.prometheus import exposition
from zerocopy.monitor.rates import Rates
from zerocopy.monitor.sample import Sample


class PrometheusFile:
    """A file that each sample replaces: a reader sees the old or the new text, never a part.

    Parameters
    ----------
    path : str
        The file. node_exporter reads those whose names end in ``.prom``.

    Raises
    ------
    MonitorFileError
        The path is not that of a regular file, or its directory does not exist.

    Examples
    --------
    >>> PrometheusFile("/nonexistent/zerocopy.prom")
    Traceback (most recent call last):
        ...
    zerocopy.monitor.errors.MonitorFileError: --prometheus ...: its directory does not exist.
      To fix: create the directory, or pass another file
    """

    def __init__(self, path: str) -> None:
        self.name = path
        self._path = os.path.realpath(path)  # a link stays, and its target is replaced
        asked = f"--prometheus {path}"
        if not os.path.isdir(os.path.dirname(self._path)):
            why, fix = "its directory does not exist", "create the directory, or pass another file"
            raise MonitorFileError(asked, why, fix)
        if os.path.exists(self._path) and not stat.S_ISREG(os.stat(self._path).st_mode):
            raise MonitorFileError(asked, "it is not a regular file", "pass another name")
        self._temporary = f"{self._path}.{os.getpid()}.tmp"

    def write(self, sample: Sample, rates: Rates | None) -> None:
        """Replace the file.

        Raises
        ------
        OSError
            The disk is full, or the directory is gone. The file still has the former text.
        """
        try:
            # `tempfile` creates files that other users, such as node_exporter's, cannot read.
            with open(self._temporary, "w", encoding="utf-8", newline="\n") as file:
                file.write(exposition(sample))
            os.replace(self._temporary, self._path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(self._temporary)
            raise

    def close(self) -> None:
        """Do nothing: the last text stays."""
