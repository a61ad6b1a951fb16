"""The command ``zerocopy monitor``: its options, which of them contradict each other, and its work."""

from __future__ import annotations

import contextlib
import json
import math
import sys
import time
from types import SimpleNamespace
from typing import Any

import click

import zerocopy
from zerocopy.cli.monitor.watching import (
    Wait,
    ending_after,
    open_outputs,
    served,
    show,
    terminated_as_exit,
    until_process_ends,
    watch,
)
from zerocopy.errors import OptionError, ZeroCopyError
from zerocopy.monitor.conversion import ORDERS
from zerocopy.monitor.observer import Observer
from zerocopy.monitor.process_record import start_ticks
from zerocopy.monitor.run_directory import FileName
from zerocopy.monitor.sample import Sample

#: Seconds between the two samples of a report: the use of cores is counted between samples.
_BETWEEN = 0.25

_EPILOG = """\b
Examples:
  zerocopy monitor                            all processes of this user, live
  zerocopy monitor -- train.py --epochs 3     run a program; report at its end
  zerocopy monitor --serve -- -m package      the same, with a page in the browser
  zerocopy monitor --csv out.csv --every 0.5  one row for each GPU and sample
  ZEROCOPY_MONITOR=1 python train.py          monitor a program without this command
"""


@click.command(
    short_help="Show conversions that copy, memory pools, GPUs and loaders.",
    context_settings={"allow_interspersed_args": False},
    epilog=_EPILOG,
)
@click.option(
    "--every",
    type=click.FloatRange(0.1, 3600),
    default=1.0,
    metavar="SECONDS",
    help="Time between samples. Default: 1.",
)
@click.option("--count", type=click.IntRange(1), metavar="N", help="End after N samples.")
@click.option(
    "--pid", type=click.IntRange(1), metavar="PID", help="Only this process and its descendants; end with it."
)
@click.option("--directory", metavar="DIR", help="The run directory. Default: that of this user.")
@click.option(
    "--order",
    type=click.Choice(ORDERS),
    default=ORDERS[0],
    help="Lines of code with most copied bytes first, or the longest time. The page has both.",
)
@click.option("--once", is_flag=True, help="Print one report.")
@click.option("--json", "as_json", is_flag=True, help="With --once or --holders: print JSON.")
@click.option("--csv", "csv_path", metavar="FILE", help="Write rows to a new file; -: standard output.")
@click.option("--append", is_flag=True, help="Add rows to a CSV file with the same columns.")
@click.option("--fields", metavar="A,B", help="Only these fields of the CSV file.")
@click.option("--list-fields", is_flag=True, help="List the fields of the CSV file.")
@click.option(
    "--prometheus",
    flag_value="-",
    metavar="[FILE]",
    help="Print Prometheus' text once, or replace FILE at each sample.",
    is_flag=False,
)
@click.option(
    "--serve",
    flag_value="0",
    metavar="[PORT]",
    is_flag=False,
    help="Show a page in the browser. Default: a free port.",
)
@click.option(
    "--address", metavar="ADDR", default="127.0.0.1", help="Address of the page. Default: 127.0.0.1."
)
@click.option(
    "--keep/--no-keep",
    default=None,
    help="Whether the page stays after PROGRAM, which is required, has ended. Default: in a terminal.",
)
@click.option("--writes", is_flag=True, help="Report writes to immutable memory by a program.")
@click.option("--holders", is_flag=True, help="List the processes that have a GPU open.")
@click.argument("program", nargs=-1, type=click.UNPROCESSED, metavar="[-- PROGRAM [ARGS]...]")
def monitor(**values: Any) -> None:
    """Show conversions, GPUs, pools and loaders of monitored processes.

    Without options, the terminal shows them live; q ends. PROGRAM is a Python script, -m MODULE,
    -c CODE or a command. It runs as without the monitor. The exit code is that of PROGRAM, and a
    report follows on standard error.
    """
    options = SimpleNamespace(**values)
    if options.serve is not None:
        options.serve = _port(options.serve)
    why = problem(options)
    if why:
        raise click.UsageError(why)
    try:
        code = _run(options)
    except ZeroCopyError as error:
        print(f"zerocopy monitor: {error}", file=sys.stderr)
        code = 2
    if code:
        sys.exit(code)


def _port(text: str) -> int:
    if text.isascii() and text.isdecimal() and int(text) < 65536:
        return int(text)
    message = f"{text!r} is not a port from 0 to 65535. A program follows after --: --serve -- {text}"
    raise click.BadParameter(message, param_hint="--serve")


def problem(options: SimpleNamespace) -> str:
    """Return the reason why the options contradict each other; "" if they do not."""
    once = {
        "--once": options.once,
        "--holders": options.holders,
        "--list-fields": options.list_fields,
        "--prometheus without a file": options.prometheus == "-",
    }
    outputs = {
        "--csv": options.csv_path,
        "--serve": options.serve is not None,
        "--prometheus FILE": options.prometheus not in (None, "-"),
        "a program": options.program,
    }
    given = [name for name, value in {**once, **outputs}.items() if value]
    if given and given[0] in once and len(given) > 1:
        return f"{given[0]} prints once and ends; it cannot be combined with {given[1]}"
    rows, serves = options.csv_path is not None, options.serve is not None
    rules = (
        (math.isnan(options.every), "--every is not a number"),  # click accepts it in every range
        (options.as_json and not (options.once or options.holders), "--json needs --once or --holders"),
        (
            (options.append or options.fields is not None) and not rows,
            "--append and --fields need --csv FILE",
        ),
        (
            options.program and options.csv_path == "-",
            "the rows of --csv - would mix with the output of the program: pass a file",
        ),
        (
            options.program and options.pid is not None,
            "--pid cannot be combined with a program: the program and its descendants are shown",
        ),
        (options.writes and not options.program, "--writes needs a program"),
        (options.address != "127.0.0.1" and not serves, "--address needs --serve"),
        (
            options.keep is not None and not (options.program and serves),
            "--keep and --no-keep need --serve and a program",
        ),
    )
    return next((why for broken, why in rules if broken), "")


# -- its work --------------------------------------------------------------------------


def _run(options: SimpleNamespace) -> int:
    """Run the work that the options select, and return the exit code."""
    if options.list_fields:
        from zerocopy.monitor.csv_file import FIELDS

        print(*(field.column for field in FIELDS.values()), sep="\n")
        return 0
    if options.holders:
        from zerocopy.monitor.holders import find_holders

        holders = find_holders()
        print(json.dumps(holders.as_dict(), indent=2) if options.as_json else str(holders))
        return 0
    if options.program:
        from zerocopy.cli.monitor.program import run_program

        return run_program(options)
    process = _find(options) if options.pid is not None else None
    observer = Observer(options.directory, options.pid, order=options.order)
    if options.once or options.prometheus == "-":
        return _print_once(observer, options)
    with terminated_as_exit(), ending_after(process), open_outputs(options) as outputs:
        wait = until_process_ends(process)
        if outputs or options.serve is not None:
            return _write(observer, outputs, options, wait)
        if sys.stdout.isatty():
            show(observer, options, wait)
            return 0
    print(
        "zerocopy monitor: standard output is not a terminal, so this is one report. For files: --csv FILE, "
        "--once --json",
        file=sys.stderr,
    )
    return _print_once(observer, options)


def _find(options: SimpleNamespace) -> FileName:
    """Return the identity of the process of ``--pid``, or of one that has ended and left a record."""
    ticks = start_ticks(options.pid)
    if ticks is None and not Observer(options.directory, options.pid).read()["processes"]:
        fix = "pass the ID of a process that runs, such as one of `zerocopy monitor --once`"
        why = "no process has this ID, and none has left a record"
        raise OptionError(f"--pid {options.pid}", why, fix, code="process-gone")
    return FileName(options.pid, -1 if ticks is None else ticks)


def _write(observer: Observer, outputs: list[Any], options: SimpleNamespace, wait: Wait) -> int:
    """Write samples and serve the page until Ctrl+C, ``--count`` or the end of the process."""
    is_served = options.serve is not None and not (options.count and outputs)
    with contextlib.suppress(KeyboardInterrupt), served(observer, options):
        failures = watch(observer, outputs, options.every, options.count, wait, is_served=is_served)
        return 1 if failures and options.serve is None else 0
    return 0


def _print_once(observer: Observer, options: SimpleNamespace) -> int:
    from zerocopy.monitor.csv_file import write_output

    observer.read()
    time.sleep(_BETWEEN)
    # Processes write their records once a second, so this interval has no rates.
    sample: Sample = {**observer.read(), "rates": None}
    try:
        if options.as_json:
            document = {"zerocopy": zerocopy.__version__, **sample}
            write_output(json.dumps(document, indent=2, allow_nan=False) + "\n")
        elif options.prometheus is not None:
            from zerocopy.monitor.prometheus import exposition

            write_output(exposition(sample))
        else:
            from zerocopy.cli.monitor.view import report
            from zerocopy.cli.terminal import Output

            out = Output()
            title = f"zerocopy {zerocopy.__version__} monitor: {observer.directory}"
            out.show(*report(sample, out.width, title))
            write_output("")
    except OSError as error:
        print(f"zerocopy monitor: standard output: {error.strerror or error}", file=sys.stderr)
        return 1
    return 0
