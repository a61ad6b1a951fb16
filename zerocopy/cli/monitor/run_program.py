"""``zerocopy monitor -- PROGRAM``: files and the page while it runs, and a report after its end."""

from __future__ import annotations

import contextlib
import sys
import time

from rich.text import Text

from zerocopy.cli.monitor.options import Options
from zerocopy.cli.monitor.outputs import open_outputs, served
from zerocopy.cli.monitor.private_directory import private_directory
from zerocopy.cli.monitor.program import Program
from zerocopy.cli.monitor.view import final_report
from zerocopy.cli.monitor.watching import watch
from zerocopy.formatting.units import format_count, format_seconds
from zerocopy.monitor.observer import Observer
from zerocopy.monitor.sample import Sample

#: Seconds for which ended processes are in the samples: files are kept for an hour.
_SHOWN = 3600.0


def run_program(options: Options) -> int:
    """Run the program, print the report, and return the program's exit code."""
    folder = contextlib.nullcontext(options.directory) if options.directory else private_directory()
    with folder as directory:
        program = Program(options.program, str(directory))
        observer, page = (Observer(directory, shown=_SHOWN, order=options.order) for _ in range(2))
        with open_outputs(options) as outputs, contextlib.ExitStack() as stack:
            with program:
                stack.enter_context(served(page, options))
                began = time.time()
                program.start()
                watch(observer, outputs, options.every, options.count, program.wait)
                while not program.wait(options.every):
                    pass
            sample = observer.read()
            sample["processes"] = [record for record in sample["processes"] if record["time"] >= began]
            _print_report(sample, _headline(program, options, time.time() - began, len(sample["processes"])))
            if options.serve is not None and _stays(options) and not program.is_ending:
                _wait_for_interrupt()
    return program.exit_code or 0


def _headline(program: Program, options: Options, seconds: float, count: int) -> str:
    """Return how the program ended."""
    name = " ".join(options.program[: 2 if options.program[0] == "-m" else 1])
    end = (
        f"was killed by {program.signal_name}"
        if program.signal_name
        else f"ended with exit code {program.exit_code}"
    )
    recorded = f"; {format_count(count, 'process', 'processes')}" if count > 1 else ""
    return f"zerocopy monitor: {name} {end} after {format_seconds(seconds)}{recorded}"


def _print_report(sample: Sample, headline: str) -> None:
    """Print the report to standard error: standard output is the program's."""
    from zerocopy.cli.terminal import PLAIN_WIDTH, Output

    is_terminal = sys.stderr.isatty()
    out = Output(sys.stderr)
    if is_terminal:
        from rich.console import Console

        out.console = Console(stderr=True, highlight=False)
        out.plain, out.width = False, out.console.width
    width = out.width if is_terminal else PLAIN_WIDTH
    with contextlib.suppress(OSError):  # a closed pipe: the exit code is the program's
        out.show(Text(""), *final_report(sample, width, headline))
        sys.stderr.flush()


def _stays(options: Options) -> bool:
    return sys.stdin.isatty() if options.keep is None else options.keep


def _wait_for_interrupt() -> None:
    print("zerocopy monitor: the page stays until Ctrl+C", file=sys.stderr, flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            time.sleep(3600)
