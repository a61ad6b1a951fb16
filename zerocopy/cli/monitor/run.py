"""Runs ``zerocopy monitor`` according to its options."""

from __future__ import annotations

import contextlib
import json
import sys
import time

import zerocopy
from zerocopy.cli.monitor.options import Options
from zerocopy.cli.monitor.outputs import open_outputs, served
from zerocopy.cli.monitor.watching import Output, Wait, terminated_as_exit, until_process_ends, watch
from zerocopy.errors import ZeroCopyError
from zerocopy.monitor.observer import Observer
from zerocopy.monitor.process_record import start_ticks
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


def run(options: Options) -> int:
    """Do what the options select, and return the exit code."""
    if options.list_fields:
        return _list_fields()
    if options.holders:
        return _print_holders(options.as_json)
    if options.program:
        from zerocopy.cli.monitor.run_program import run_program

        return run_program(options)
    process = _find(options) if options.pid is not None else None
    observer = Observer(options.directory, options.pid, order=options.order)
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
    from zerocopy.monitor.csv_file import FIELDS

    for field in FIELDS.values():
        print(field.title)
    return 0


def _print_holders(as_json: bool) -> int:
    from zerocopy.monitor.holders import find_holders

    holders = find_holders()
    print(json.dumps(holders.as_dict(), indent=2) if as_json else str(holders))
    return 0
