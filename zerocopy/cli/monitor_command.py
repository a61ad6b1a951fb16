"""The options of ``zerocopy monitor``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

#: The value of ``--prometheus`` without a file.
STDOUT = "-"

_EPILOG = """\b
Examples:
  zerocopy monitor                            all processes of this user, live
  zerocopy monitor -- train.py --epochs 3     run a program; report at its end
  zerocopy monitor --serve -- -m package      the same, with a page in the browser
  zerocopy monitor --csv out.csv --every 0.5  one row for each GPU and sample
  ZEROCOPY_MONITOR=1 python train.py          monitor a program without this command
"""


def monitor_command() -> Any:
    """Return the command as a click command."""
    import click

    @click.command(
        short_help="Show conversions that copy, memory pools, GPUs and loaders.",
        context_settings={"allow_interspersed_args": False},
        epilog=_EPILOG,
    )
    @_sampling_options
    @_report_options
    @_serving_options
    @click.argument("program", nargs=-1, type=click.UNPROCESSED, metavar="[-- PROGRAM [ARGS]...]")
    def monitor(**options: Any) -> None:
        """Show conversions, GPUs, pools and loaders of monitored processes.

        Without options, the terminal shows them live; q ends. PROGRAM is a Python script, -m MODULE,
        -c CODE or a command. It runs as without the monitor. The exit code is that of PROGRAM, and a
        report follows on standard error.
        """
        code = _run(options)
        if code:
            sys.exit(code)

    return monitor


def _run(values: dict[str, Any]) -> int:
    """Check the options, run the command, and return the exit code."""
    import click

    from zerocopy.cli.monitor import run
    from zerocopy.cli.monitor.options import Options
    from zerocopy.errors import ZeroCopyError

    if values["serve"] is not None:
        values["serve"] = _port(values["serve"])
    options = Options(**values)
    problem = options.problem()
    if problem:
        raise click.UsageError(problem)
    try:
        return run.run(options)
    except ZeroCopyError as error:
        print(f"zerocopy monitor: {error}", file=sys.stderr)
        return 2


def _port(text: str) -> int:
    import click

    if text.isascii() and text.isdecimal() and int(text) < 65536:
        return int(text)
    message = f"{text!r} is not a port from 0 to 65535. A program follows after --: --serve -- {text}"
    raise click.BadParameter(message, param_hint="--serve")


def _sampling_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of processes and times of samples."""
    import click

    from zerocopy.monitor.conversion import ORDERS

    options = [
        click.option(
            "--every",
            type=click.FloatRange(0.1, 3600),
            default=1.0,
            metavar="SECONDS",
            help="Time between samples. Default: 1.",
        ),
        click.option("--count", type=click.IntRange(1), metavar="N", help="End after N samples."),
        click.option(
            "--pid",
            type=click.IntRange(1),
            metavar="PID",
            help="Only this process and its descendants; end with it.",
        ),
        click.option("--directory", metavar="DIR", help="The run directory. Default: that of this user."),
        click.option(
            "--order",
            type=click.Choice(ORDERS),
            default=ORDERS[0],
            help="Lines of code with most copied bytes first, or the longest time. The page has both.",
        ),
    ]
    return _with(command, options)


def _report_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of reports and CSV files."""
    import click

    options = [
        click.option("--once", is_flag=True, help="Print one report."),
        click.option("--json", "as_json", is_flag=True, help="With --once or --holders: print JSON."),
        click.option(
            "--csv", "csv_path", metavar="FILE", help="Write rows to a new file; -: standard output."
        ),
        click.option("--append", is_flag=True, help="Add rows to a CSV file with the same columns."),
        click.option("--fields", metavar="A,B", help="Only these fields of the CSV file."),
        click.option("--list-fields", is_flag=True, help="List the fields of the CSV file."),
    ]
    return _with(command, options)


def _serving_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of Prometheus, the page and GPUs."""
    import click

    options = [
        click.option(
            "--prometheus",
            is_flag=False,
            flag_value=STDOUT,
            metavar="[FILE]",
            help="Print Prometheus' text once, or replace FILE at each sample.",
        ),
        click.option(
            "--serve",
            is_flag=False,
            flag_value="0",
            metavar="[PORT]",
            help="Show a page in the browser. Default: a free port.",
        ),
        click.option(
            "--address", metavar="ADDR", default="127.0.0.1", help="Address of the page. Default: 127.0.0.1."
        ),
        click.option(
            "--keep/--no-keep",
            default=None,
            help="Whether the page stays after the program has ended. Default: in a terminal.",
        ),
        click.option("--holders", is_flag=True, help="List the processes that have a GPU open."),
    ]
    return _with(command, options)


def _with(command: Callable[..., None], options: Sequence[Callable[..., Any]]) -> Callable[..., None]:
    """Return a command with options, which its help lists in their order."""
    for option in reversed(options):
        command = option(command)
    return command
