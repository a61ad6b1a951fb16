"""What ``zerocopy monitor`` does for its options."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import zerocopy
from zerocopy.cli.monitor.watching import Output, Wait, terminated_as_exit, until_process_ends, watch
from zerocopy.errors import ZeroCopyError
from zerocopy.monitor.observer import Observer
from zerocopy.monitor.process_info import start_ticks
from zerocopy.monitor.run_directory import FileName

#: Seconds between the two samples of a report: the use of cores is counted between samples.
_BETWEEN = 0.25


class ProcessGoneError(ZeroCopyError, ProcessLookupError):
    """There is no process with the given ID, and none has left a record.

    Examples
    --------
    >>> raise ProcessGoneError("--pid 7", "no process has this ID", "pass that of a running process")
    Traceback (most recent call last):
        ...
    zerocopy.cli.monitor.run.ProcessGoneError: --pid 7: no process has this ID.
      To fix: pass that of a running process
    """

    code = "process-gone"


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command."""

    every: float = 1.0
    count: int | None = None
    pid: int | None = None
    directory: str | None = None
    once: bool = False
    as_json: bool = False
    csv_path: str | None = None
    append: bool = False
    fields: str | None = None
    list_fields: bool = False
    prometheus: str | None = None
    serve: int | None = None
    address: str = "127.0.0.1"
    keep: bool | None = None
    holders: bool = False
    program: tuple[str, ...] = ()

    def problem(self) -> str:
        """Return why the options contradict each other; "" if they do not."""
        single = [
            name
            for name, given in (
                ("--once", self.once),
                ("--holders", self.holders),
                ("--list-fields", self.list_fields),
                ("--prometheus without a file", self.prometheus == "-"),
            )
            if given
        ]
        outputs = [
            name
            for name, given in (
                ("--csv", self.csv_path),
                ("--serve", self.serve is not None),
                ("--prometheus FILE", self.prometheus not in (None, "-")),
                ("a program", self.program),
            )
            if given
        ]
        if single and len(single + outputs) > 1:
            return f"{single[0]} prints once and ends; it cannot be combined with {(single[1:] + outputs)[0]}"
        if self.as_json and not (self.once or self.holders):
            return "--json needs --once or --holders"
        if (self.append or self.fields is not None) and self.csv_path is None:
            return "--append and --fields need --csv FILE"
        if self.program and self.csv_path == "-":
            return "the rows of --csv - would mix with the output of the program: pass a file"
        if self.program and self.pid is not None:
            return "--pid cannot be combined with a program: the program and its descendants are shown"
        if self.keep is not None and not (self.program and self.serve is not None):
            return "--keep and --no-keep need --serve and a program"
        return ""


def run(options: Options) -> int:
    """Return the exit code."""
    if options.list_fields:
        return _list_fields()
    if options.holders:
        return _print_holders(options.as_json)
    if options.program:
        from zerocopy.cli.monitor.run_program import run_program

        return run_program(options)
    process = _find(options) if options.pid is not None else None
    observer = Observer(options.directory, options.pid)
    if options.once or options.prometheus == "-":
        return _print_once(observer, options)
    with terminated_as_exit(), open_outputs(options) as outputs:
        wait = until_process_ends(process)
        if outputs or options.serve is not None:
            return _write(observer, outputs, options, wait)
        if sys.stdout.isatty():
            return _show(observer, options, wait)
    print(
        "zerocopy monitor: standard output is not a terminal, so this is one report. For files: --csv FILE, "
        "--once --json",
        file=sys.stderr,
    )
    return _print_once(observer, options)


def _find(options: Options) -> FileName:
    """Return the identity of the process of ``--pid``, or of one that has ended and left a record."""
    pid = options.pid or 0
    ticks = start_ticks(pid)
    if ticks is None and not Observer(options.directory, pid).read()["processes"]:
        fix = "pass the ID of a process that runs, such as one of `zerocopy monitor --once`"
        raise ProcessGoneError(f"--pid {pid}", "no process has this ID, and none has left a record", fix)
    return FileName(pid, -1 if ticks is None else ticks)


@contextlib.contextmanager
def open_outputs(options: Options) -> Iterator[list[Output]]:
    """Open the files that samples are written to."""
    outputs: list[Output] = []
    try:
        if options.csv_path is not None:
            from zerocopy.monitor.csv_fields import select
            from zerocopy.monitor.csv_file import CsvFile

            outputs.append(CsvFile(options.csv_path, select(options.fields), options.append))
        if options.prometheus not in (None, "-"):
            from zerocopy.monitor.prometheus_file import PrometheusFile

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


def _write(observer: Observer, outputs: list[Output], options: Options, wait: Wait) -> int:
    """Write samples and serve the page until Ctrl+C, ``--count`` or the end of the process."""
    page = Observer(options.directory, options.pid)
    with contextlib.suppress(KeyboardInterrupt), served(page, options):
        failures = watch(observer, outputs, options.every, options.count, wait)
        if options.serve is None:
            return 1 if failures else 0
        while not (options.count and outputs) and not wait(options.every):
            pass
    return 0


def _show(observer: Observer, options: Options, wait: Wait) -> int:
    """Show the live view."""
    from zerocopy.cli.monitor.live import run_live

    process = f" process {options.pid}" if options.pid is not None else ""
    title = f"zerocopy monitor{process}   every {options.every:g} s   q ends"
    run_live(
        lambda screen, wait_for_keys: watch(observer, [screen], options.every, options.count, wait_for_keys),
        title,
        wait,
    )
    return 0


def _print_once(observer: Observer, options: Options) -> int:
    from zerocopy.monitor.csv_file import write_output

    observer.read()
    time.sleep(_BETWEEN)
    sample = observer.read()
    try:
        if options.as_json:
            document = {"zerocopy": zerocopy.__version__, **sample}
            write_output(json.dumps(document, indent=2, allow_nan=False) + "\n")
        elif options.prometheus is not None:
            from zerocopy.monitor.prometheus import exposition

            write_output(exposition(sample))
        else:
            from zerocopy.cli.monitor.view import report
            from zerocopy.cli.terminal import Output as Terminal

            out = Terminal()
            title = f"zerocopy {zerocopy.__version__} monitor: {observer.directory}"
            out.show(*report(sample, None, out.width, title))
            write_output("")
    except OSError as error:
        print(f"zerocopy monitor: standard output: {error.strerror or error}", file=sys.stderr)
        return 1
    return 0


def _list_fields() -> int:
    from zerocopy.monitor.csv_fields import FIELDS

    for field in FIELDS.values():
        print(field.title)
    return 0


def _print_holders(as_json: bool) -> int:
    from zerocopy.monitor.holders import find_holders

    holders = find_holders()
    print(json.dumps(holders.as_dict(), indent=2) if as_json else str(holders))
    return 0
