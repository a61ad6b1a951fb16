"""``python -m zerocopy.pool [options] -- script.py ...``: run a program on a pool."""

from __future__ import annotations

import argparse
import builtins
import importlib.util
import io
import os
import sys
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader, SourcelessFileLoader
from types import CodeType, ModuleType
from typing import Any

from zerocopy.errors import ZeroCopyError
from zerocopy.pool.host import MODES
from zerocopy.pool.install import install, survey
from zerocopy.pool.kinds import KINDS
from zerocopy.pool.settings import VARIABLE, Settings

_EPILOG = (
    f"Options take the place of {VARIABLE}; without any it is read. The program gets the pool, and so do the "
    f"processes that it starts, when they import zerocopy: {VARIABLE} is set for them. Without a program "
    "this says what installing would come to, and changes nothing."
)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m zerocopy.pool",
        usage="%(prog)s [options] [-- (script.py | -m module) ...]",
        description="Run a Python program with one memory pool under its frameworks.",
        epilog=_EPILOG,
    )
    parser.add_argument("--kind", metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--host", metavar="MODES", help=f"off, {', '.join(MODES)}; joined by +")
    parser.add_argument("--devices", metavar="N,N", help="such as 0,1; all by default")
    parser.add_argument("--limit", metavar="SIZE", help="the most it takes of each device, such as 8GiB")
    parser.add_argument("--fraction", metavar="PART", help="the same, as a part of the card's total")
    parser.add_argument("--reserve", metavar="SIZE", help="the same, as what is left to others")
    parser.add_argument("--initial", metavar="SIZE", help="what is taken at once")
    parser.add_argument("--release-threshold", metavar="SIZE", help="what CUDA's pools keep unused")
    parser.add_argument("--frameworks", metavar="A,B", help="those that it is for; all by default")
    parser.add_argument("--track", action="store_true", help="note each allocation, for check_leaks()")
    parser.add_argument("--log", metavar="FILE", help="RMM writes each allocation there")
    parser.add_argument("--strict", action="store_true", help="fail unless all of it can be had")
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
    asked = {name: value for name, value in asked.items() if value is not None and value is not False}
    if program == ["-m"]:
        parser.error("-m: which module?")
    if program and program[0] != "-m" and not os.path.exists(program[0]):
        parser.error(f"there is no {program[0]}")
    try:
        settings = Settings.read(**asked) if asked else Settings.from_environment() or Settings()
        if not program:
            print(survey(settings).report())
            return
        # Before the pool, whose frameworks' processes read it too; and in place of "off".
        os.environ[VARIABLE] = str(settings)
        pool = install(settings)
    except ZeroCopyError as error:
        parser.exit(2, f"{parser.prog}: error: {' '.join(str(error).split())}\n")
    if reporting:
        print(pool.report(), file=sys.stderr)
    # After the pool: to find a module is to import the packages that it is in.
    module, code = _prepared(parser, program)
    # It stays there to the end, as a program's does: exit handlers, pickles and the processes of
    # multiprocessing look for what it has defined.
    sys.modules["__main__"] = module
    exec(code, vars(module))


def _prepared(parser: argparse.ArgumentParser, program: list[str]) -> tuple[ModuleType, CodeType]:
    """Return a program as Python would run it: what is ``__main__``, and its code."""
    if program[0] == "-m":
        sys.argv = ["-m", *program[2:]]
        found = _module(parser, program[1])
        sys.argv[0] = found.origin or program[1]
        return _main(parser, found)
    path = os.path.join(os.getcwd(), program[0])
    sys.argv = program
    inside = PathFinder.find_spec("__main__", [path])  # of a directory, or an archive
    if not sys.flags.safe_path:  # sys.path[0] is where this command was started
        sys.path.pop(0)
    if inside is not None:
        sys.path.insert(0, path)
        return _main(parser, inside)
    if not sys.flags.safe_path:
        sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
    loader = SourcelessFileLoader if path.endswith(".pyc") else SourceFileLoader
    module = _empty(path, loader("__main__", path))
    try:
        if path.endswith(".pyc"):
            return module, _code(parser, path, module.__loader__)
        with io.open_code(path) as file:
            return module, compile(file.read(), path, "exec", dont_inherit=True)
    except OSError as error:
        parser.error(f"{program[0]} cannot be read: {error.strerror}")


def _module(parser: argparse.ArgumentParser, name: str) -> ModuleSpec:
    try:
        found = importlib.util.find_spec(name)
        if found is not None and found.submodule_search_locations is not None:
            found = importlib.util.find_spec(f"{name}.__main__")
    except (ImportError, ValueError) as error:
        parser.error(f"-m {name}: {error}")
    if found is None:
        parser.error(f"-m {name}: there is no such module, or it is a package without __main__")
    return found


def _main(parser: argparse.ArgumentParser, found: ModuleSpec) -> tuple[ModuleType, CodeType]:
    module = _empty(found.origin, found.loader)
    module.__spec__ = found
    module.__package__ = found.parent
    vars(module)["__cached__"] = found.cached
    return module, _code(parser, found.name, found.loader, found.name)


def _code(parser: argparse.ArgumentParser, what: str, loader: Any, name: str = "__main__") -> CodeType:
    try:
        code: CodeType | None = loader.get_code(name)
    except (ImportError, AttributeError, EOFError) as error:
        parser.error(f"{what} cannot be run: {error}")
    if code is None:
        parser.error(f"{what} cannot be run: it has no code of Python")
    return code


def _empty(file: str | None, loader: Any) -> ModuleType:
    """Return a module named ``__main__`` with what Python puts into it."""
    module = ModuleType("__main__")
    module.__loader__ = loader
    vars(module).update(__builtins__=builtins, __file__=file, __cached__=None)
    return module


if __name__ == "__main__":
    main()
