"""``python -m zerocopy.pool [options] -- script.py ...``: run a program on a pool."""

from __future__ import annotations

import argparse
import os
import runpy
import sys

from zerocopy.errors import ZeroCopyError
from zerocopy.pool.install import install, survey
from zerocopy.pool.settings import KINDS, VARIABLE, Settings

_EPILOG = (
    f"Without options {VARIABLE} is read. The program and the processes that it starts get the pool: "
    f"{VARIABLE} is set for them. Without a program this says what installing would come to, and "
    "changes nothing."
)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m zerocopy.pool",
        usage="%(prog)s [options] [-- (script.py | -m module) ...]",
        description="Run a Python program with one memory pool under its frameworks.",
        epilog=_EPILOG,
    )
    parser.add_argument("--kind", metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--host", metavar="MODES", help="off, aligned, recycle, pinned; joined by +")
    parser.add_argument("--devices", metavar="N+N", help="such as 0+1; all by default")
    parser.add_argument("--limit", metavar="SIZE", help="the most it takes of each device, such as 8GiB")
    parser.add_argument("--fraction", metavar="PART", help="the same, as a part of the card's total")
    parser.add_argument("--reserve", metavar="SIZE", help="the same, as what is left to others")
    parser.add_argument("--initial", metavar="SIZE", help="what is taken at once")
    parser.add_argument("--release-threshold", metavar="SIZE", help="what CUDA's pools keep unused")
    parser.add_argument("--frameworks", metavar="A+B", help="those that it is for; all by default")
    parser.add_argument(
        "--track", action="store_const", const="1", help="note each allocation, for check_leaks()"
    )
    parser.add_argument("--log", metavar="FILE", help="RMM writes each allocation there")
    parser.add_argument("--strict", action="store_const", const="1", help="fail unless all of it can be had")
    parser.add_argument("--report", action="store_true", help="print the report before the program")
    return parser


def main(arguments: list[str] | None = None) -> None:
    """Read the command line, install, and run."""
    given = sys.argv[1:] if arguments is None else arguments
    options, program = given, []
    if "--" in given:
        options, program = given[: given.index("--")], given[given.index("--") + 1 :]
    parser = _parser()
    asked = vars(parser.parse_args(options))
    reporting = asked.pop("report")
    kind = asked.pop("kind") or "auto"
    text = ",".join([kind] + [f"{name}={value}" for name, value in asked.items() if value is not None])
    try:
        if text != "auto":
            settings = Settings.from_text(text, "python -m zerocopy.pool")
        else:
            settings = Settings.from_environment() or Settings()
        if not program:
            print(survey(settings).report())
            return
        os.environ[VARIABLE] = text if text != "auto" else os.environ.get(VARIABLE) or "auto"
        pool = install(settings)
    except ZeroCopyError as error:
        parser.exit(2, f"{error}\n")
    if reporting:
        print(pool.report(), file=sys.stderr)
    _run(parser, program)


def _run(parser: argparse.ArgumentParser, program: list[str]) -> None:
    """Run a program as Python would: its own arguments, and ``__main__`` for a name."""
    if program[0] == "-m":
        if len(program) < 2:
            parser.error("-m: which module?")
        sys.argv = program[1:]
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
        return
    if not os.path.exists(program[0]):
        parser.error(f"there is no {program[0]}")
    sys.argv = program
    sys.path[0] = os.path.dirname(os.path.abspath(program[0]))
    runpy.run_path(program[0], run_name="__main__")


if __name__ == "__main__":
    main()
