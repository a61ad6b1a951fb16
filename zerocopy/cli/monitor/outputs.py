"""The files and the page to which samples are written."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from zerocopy.cli.monitor.options import Options
from zerocopy.cli.monitor.watching import Output
from zerocopy.monitor.observer import Observer


@contextlib.contextmanager
def open_outputs(options: Options) -> Iterator[list[Output]]:
    """Open the files that samples are written to."""
    outputs: list[Output] = []
    try:
        if options.csv_path is not None:
            from zerocopy.monitor.csv_file import CsvFile, select

            outputs.append(CsvFile(options.csv_path, select(options.fields), options.append))
        if options.prometheus not in (None, "-"):
            from zerocopy.monitor.prometheus import PrometheusFile

            outputs.append(PrometheusFile(str(options.prometheus)))
        yield outputs
    finally:
        for output in outputs:
            output.close()


@contextlib.contextmanager
def served(observer: Observer, options: Options) -> Iterator[Any]:
    """Serve the page, and print its address; yields None without ``--serve``."""
    if options.serve is None:
        yield None
        return
    from zerocopy.monitor.web.server import serve

    with serve(observer, port=options.serve, address=options.address, every=options.every) as server:
        print(f"zerocopy monitor: {server.url}", file=sys.stderr, flush=True)
        yield server
