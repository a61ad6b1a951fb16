"""Samples in Prometheus' text format, which prometheus_client writes, and a file for node_exporter."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import Any

from zerocopy.errors import MonitorFileError
from zerocopy.formatting import printable
from zerocopy.monitor.figures import FIGURES, SERIES, running
from zerocopy.monitor.observer import require
from zerocopy.monitor.sample import Sample

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(sample: Sample) -> str:
    """Return a sample in Prometheus' text format, which ends with a line feed.

    Values that cannot be read are left out, as are families without values.

    Raises
    ------
    FrameworkNotInstalledError
        prometheus_client is not installed.
    """
    text: str = require("prometheus_client", "Prometheus' text").generate_latest(_Collector(sample)).decode()
    return text


class _Collector:
    """A registry of prometheus_client with the families of one sample."""

    def __init__(self, sample: Sample) -> None:
        self._sample = sample

    def collect(self) -> Iterator[Any]:
        """Yield the families that have values."""
        core, present = require("prometheus_client.core", "Prometheus' text"), running(self._sample)
        for name, series in SERIES.items():
            # Ended processes have counters of conversions, and no other figures.
            entries = [*series(self._sample if name in ("pair", "site") else present)]
            for figure in FIGURES:
                if figure.series != name or not figure.metric:
                    continue
                # The format allows each set of labels once: one line can contain several functions.
                sums: dict[tuple[tuple[str, str], ...], float] = {}
                for labels, figures in entries:
                    value = figures[figure.key]
                    if value is not None:
                        each = tuple((label, printable(text, "\n")) for label, text in labels.items())
                        sums[each] = sums.get(each, 0) + value / (
                            100 if figure.metric.endswith("_ratio") else 1
                        )
                if sums:
                    metric = f"zerocopy_{figure.metric}"
                    kind = "counter" if metric.endswith("_total") else "gauge"
                    family = core.Metric(metric.removesuffix("_total"), figure.help, kind)
                    for each, total in sums.items():
                        family.add_sample(metric, dict(each), total)
                    yield family


class PrometheusFile:
    """A file for node_exporter's textfile collector, which each sample replaces.

    A reader sees the old or the new text, never a part. node_exporter reads files with the suffix ``.prom``.

    Raises
    ------
    MonitorFileError
        The path is not that of a regular file, or its directory does not exist.
    """

    def __init__(self, path: str) -> None:
        self._client = require("prometheus_client", "--prometheus")
        self.name = path
        self._path = os.path.realpath(path)  # a link stays, and its target is replaced
        asked = f"--prometheus {path}"
        if not os.path.isdir(os.path.dirname(self._path)):
            why, fix = "its directory does not exist", "create the directory, or pass another file"
            raise MonitorFileError(asked, why, fix)
        if os.path.exists(self._path) and not stat.S_ISREG(os.stat(self._path).st_mode):
            raise MonitorFileError(asked, "it is not a regular file", "pass another name")

    def write(self, sample: Sample) -> None:
        """Replace the file; raise OSError if the disk is full, and keep the former text."""
        self._client.write_to_textfile(self._path, _Collector(sample))

    def close(self) -> None:
        """Do nothing: the last text stays."""
