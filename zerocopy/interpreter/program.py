"""Run a program in this process as ``python`` would: a script, a module or code.

The program's ``__main__`` stays until the process ends: threads, exit handlers and pickles look names up
there, also after the program ended with an exception.
"""

from __future__ import annotations

import builtins
import importlib.util
import io
import os
import pkgutil
import runpy
import sys
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader
from types import CodeType, ModuleType
from typing import Any


class NoProgramError(ImportError):
    """There is no such program."""


def run_script(script: str, arguments: Sequence[str]) -> None:
    """Run a file; a directory, an archive or a compiled file through runpy."""
    path = os.path.join(os.getcwd(), script)  # as in Python: valid after the program changes the folder
    importer = pkgutil.get_importer(path)
    sys.argv[:] = [script, *arguments]
    if not sys.flags.safe_path:
        del sys.path[0]  # where this command was started
        if importer is None:  # runpy adds a directory or an archive itself
            sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
    if importer is not None and importer.find_spec("__main__") is None:
        raise NoProgramError(f"can't find '__main__' module in {script!r}")
    if importer is not None or path.endswith(".pyc"):
        vars(sys.modules["__main__"]).update(runpy.run_path(path, run_name="__main__"))
        return
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    execute(code, __file__=path, __loader__=SourceFileLoader("__main__", path))


def run_module(name: str, arguments: Sequence[str]) -> None:
    """Run a module or the ``__main__`` of a package as ``python -m`` does."""
    sys.argv[:] = ["-m", *arguments]
    if not sys.flags.safe_path:
        sys.path[0] = os.getcwd()
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(f"{error.name}."):
            raise  # the import of a parent package failed
        spec = None
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{name}.__main__")
        if spec is None:
            raise NoProgramError(f"-m {name}: {name!r} is a package and cannot be directly executed")
    if spec is None:
        raise NoProgramError(f"-m {name}: No module named {name}")
    get_code = getattr(spec.loader, "get_code", None)
    code = None if get_code is None else get_code(spec.name)
    if code is None:
        raise NoProgramError(f"-m {name}: No code object available for {name}")
    sys.argv[0] = str(spec.origin)
    execute(code, __spec__=spec, __package__=spec.parent, __loader__=spec.loader, __file__=str(spec.origin))


def execute(code: CodeType, **attributes: Any) -> None:
    """Run code in a new ``__main__`` with these attributes."""
    main = ModuleType("__main__")
    vars(main).update(attributes, __builtins__=builtins)
    sys.modules["__main__"] = main
    exec(code, vars(main))
