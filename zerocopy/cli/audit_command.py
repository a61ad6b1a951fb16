"""The command ``zerocopy audit``: run a program, and name the lines whose copies ``convert`` avoids."""

from __future__ import annotations

import json
import linecache
import os
import sys
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import click

from zerocopy.formatting import printable
from zerocopy.interpreter.program import NoProgramError, execute, run_module, run_script

if TYPE_CHECKING:
    from zerocopy.audit import Audit


@click.command(
    "audit",
    short_help="Run a program, and name the lines that copy where convert would alias.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option("-m", "as_module", is_flag=True, help="PROGRAM is a module, as for python -m.")
@click.option("-c", "as_code", is_flag=True, help="PROGRAM is code, as for python -c.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document, on one line.")
@click.option(
    "--output", type=click.Path(dir_okay=False), help="Write the report to a file. Default: standard error."
)
@click.option(
    "--min-bytes",
    type=click.IntRange(0),
    default=1024,
    metavar="N",
    help="Leave out results with fewer bytes. Default: 1024.",
)
@click.option("--all", "every", is_flag=True, help="List needed copies and calls that alias too.")
@click.argument("program")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def audit(
    as_module: bool,
    as_code: bool,
    as_json: bool,
    output: str | None,
    min_bytes: int,
    every: bool,
    program: str,
    args: tuple[str, ...],
) -> None:
    """Run PROGRAM with ARGS, and name the lines whose copies zerocopy.convert avoids.

    Calls of the frameworks, such as numpy.array(x), are compared with zerocopy.convert while the
    program runs. The report follows on standard error. The exit code is that of the program.
    """
    if as_module and as_code:
        raise click.UsageError("pass -m or -c, not both")
    if not (as_module or as_code) and not os.path.exists(program):
        why = f"{program} does not exist; pass a Python script, or -m and a module"
        raise click.UsageError(printable(why))
    run = run_code if as_code else run_module if as_module else run_script
    code = _run(
        partial(run, program, args),
        min_bytes,
        partial(_write, as_json, every, output),
    )
    sys.exit(code)


def _run(program: Any, min_bytes: int, write: Any) -> Any:
    """Run a program under an audit, write the report, and return the argument for ``sys.exit``."""
    from zerocopy.audit import audit

    process, error = os.getpid(), None
    with audit(min_bytes) as report:
        try:
            program()
        except NoProgramError as missing:
            raise click.UsageError(printable(str(missing))) from missing
        except BaseException as raised:  # noqa: BLE001 - `exit_code` reports it as Python does
            error = raised
        code = exit_code(error)
        del error  # its traceback keeps the program's arrays alive
        if os.getpid() == process:
            wait_for_threads()
    if os.getpid() == process:  # a forked child that reaches this line has its parent's rows
        write(report)
    return code


def _write(as_json: bool, every: bool, output: str | None, report: Audit) -> None:
    text = json.dumps(report.as_dict(every), allow_nan=False) if as_json else report.text(every)
    sys.stdout.flush()
    if output is None:
        try:
            print(text if as_json else f"\n{text}", file=sys.stderr, flush=True)
        except OSError:  # a closed pipe: the exit code is the program's
            from zerocopy.monitor.csv_file import discard_rest

            discard_rest(sys.stderr)
    else:
        Path(output).write_text(text + "\n", encoding="utf-8")


# -- a program in this process ends as Python ends it ---------------------------------------

#: Exit code of a program that Ctrl-C ends, as in shells.
_INTERRUPTED = 130
_CODE_NAME = "<string>"


def run_code(text: str, args: Sequence[str]) -> None:
    """Run code, as ``python -c text args`` would."""
    sys.argv[:] = ["-c", *args]
    sys.path[0] = ""
    # Tracebacks and reports read the lines from here.
    linecache.cache[_CODE_NAME] = (len(text), None, text.splitlines(keepends=True), _CODE_NAME)
    execute(compile(text, _CODE_NAME, "exec", dont_inherit=True))


def exit_code(error: BaseException | None) -> Any:
    """Report the exception that ended a program as Python does; return the argument for ``sys.exit``."""
    if error is None:
        return 0
    if isinstance(error, SystemExit):
        return error.code
    for each in _chain(error):
        each.__traceback__ = _own_frames(each.__traceback__)
    sys.excepthook(type(error), error, error.__traceback__)
    return _INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1


def _chain(error: BaseException) -> list[BaseException]:
    """Return an exception with its causes and contexts."""
    errors: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is not None and not any(each is known for known in errors):
            errors.append(each)
            waiting += [each.__cause__, each.__context__]
    return errors


def _own_frames(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames that run the program, and those of the audit's wrappers."""
    if trace is None:
        return None
    rest = _own_frames(trace.tb_next)
    name = str(trace.tb_frame.f_globals.get("__name__"))
    own = ("zerocopy.cli.", "zerocopy.audit.", "zerocopy.interpreter.")
    if name == "runpy" or name.startswith(own):
        return rest
    return TracebackType(rest, trace.tb_frame, trace.tb_lasti, trace.tb_lineno)


def wait_for_threads() -> None:
    """Wait for the threads that Python waits for before it exits."""
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.current_thread():
            thread.join()
