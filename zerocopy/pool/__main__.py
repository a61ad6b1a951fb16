"""``zerocopy pool [options] -- script.py ...``, or ``python -m zerocopy.pool``: run a program on a pool."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from zerocopy.errors import ZeroCopyError
from zerocopy.interpreter.program import NoProgramError, run_module, run_script
from zerocopy.pool.host import MODES
from zerocopy.pool.install import discard_deferred_error, install, installed_pool, preview
from zerocopy.pool.settings import KINDS, VARIABLE, Settings

_EPILOG = (
    f"Options replace those of {VARIABLE}, which is used if there are none. {VARIABLE} is then set, so that "
    "processes started by the program get the pool too, when they import zerocopy. Without a program "
    "the command prints what installing the pool would do, and changes nothing."
)


def _parser(name: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=name,
        usage="%(prog)s [options] [-- (script.py | -m module) ...]",
        description="Run a Python program with one memory pool for its frameworks.",
        epilog=_EPILOG,
    )
    parser.add_argument("--kind", metavar="KIND", help=", ".join(kind for kind in KINDS if kind != "custom"))
    parser.add_argument("--host", metavar="MODES", help=f"off, {', '.join(MODES)}; joined by +")
    parser.add_argument("--devices", metavar="N,N", help="such as 0,1; default: all")
    parser.add_argument("--limit", metavar="SIZE", help="maximum on each device, such as 8GiB")
    parser.add_argument("--fraction", metavar="PART", help="the same, as a fraction of the GPU's memory")
    parser.add_argument("--reserve", metavar="SIZE", help="the same, as memory left to other processes")
    parser.add_argument("--initial", metavar="SIZE", help="size that is allocated at once")
    parser.add_argument("--release-threshold", metavar="SIZE", help="unused memory that CUDA's pools keep")
    parser.add_argument("--frameworks", metavar="A,B", help="frameworks that use the pool; default: all")
    parser.add_argument("--track", action="store_true", help="record each allocation, for check_leaks()")
    parser.add_argument("--strict", action="store_true", help="fail if a framework cannot use the pool")
    parser.add_argument("--report", action="store_true", help="print the report before the program runs")
    return parser


def main(arguments: list[str] | None = None, name: str = "python -m zerocopy.pool") -> None:
    """Parse the command line, install the pool, and run the program."""
    discard_deferred_error()  # reported below if the variable counts
    arguments = sys.argv[1:] if arguments is None else arguments
    options, program = arguments, []
    if "--" in arguments:
        options, program = arguments[: arguments.index("--")], arguments[arguments.index("--") + 1 :]
    parser = _parser(name)
    values: dict[str, Any] = vars(parser.parse_args(options))
    report = values.pop("report")
    values = {name: value for name, value in values.items() if value is not None and value is not False}
    if program == ["-m"]:
        parser.error("-m: the name of a module is missing")
    if program and program[0] != "-m" and not os.path.exists(program[0]):
        parser.error(f"{program[0]} does not exist")
    try:
        settings = Settings.read(**values) if values else Settings.from_environment() or Settings()
        pool = installed_pool()  # installed by `import zerocopy`, from the variable
        if pool is not None and (not program or pool.settings != settings):
            pool.close()
        if not program:
            print(preview(settings))
            return
        os.environ[VARIABLE] = str(settings)
        pool = install(settings)
    except ZeroCopyError as error:
        parser.exit(2, f"{parser.prog}: error: {' '.join(str(error).split())}\n")
    if report:
        print(pool.report(), file=sys.stderr)
    try:
        if program[0] == "-m":
            run_module(program[1], program[2:])
        else:
            run_script(program[0], program[1:])
    except NoProgramError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
