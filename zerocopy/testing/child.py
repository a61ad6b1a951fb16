"""Runs cases in child processes: a case that crashes or hangs ends its child, and another runs the rest.

A target that can be imported runs in a fresh interpreter, another callable in a fork of this process.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from zerocopy.errors import ZeroCopyError
from zerocopy.testing.cases import CASES, Skip, Violation, cases_of

Targets = list[str | Callable[..., Any]]  #: the target, and `read` of `check_consumer` if it is given
Outcome = dict[str, str]  #: ``status``, ``text``, and for a crash ``severity``

_PROGRAM = """
import json, sys
request = json.loads(sys.argv[1])
sys.path[:] = request.pop("path")
from zerocopy.testing.child import run_here
run_here(**request)
"""
#: glibc fills memory that is freed, and Python uses its heap, so that reads of freed memory are found.
_CHECKED_HEAP = {"MALLOC_PERTURB_": "170", "PYTHONMALLOC": "malloc"}
_IMPORTS = 300  #: more seconds for the imports of a target


class TargetError(Exception):
    """The target cannot be imported, or its first call raises."""


def resolve(target: str) -> Any:
    """Return the object of an import string, ``"module:name"`` or ``"module:Class.name"``."""
    module, _, name = target.partition(":")
    value = import_module(module)
    for part in name.split("."):
        value = getattr(value, part)
    return value


def run_cases(targets: Targets, side: str, ids: list[str], timeout: float) -> tuple[dict[str, Outcome], Any]:
    """Return the outcome of each case, and the versions of the packages."""
    outcomes: dict[str, Outcome] = {}
    crashes: dict[str, Outcome] = {}
    versions: dict[str, str] = {}
    pending = ids
    while pending:
        lines, status, errors = _in_child(targets, side, pending, timeout)
        for line in lines:
            if "error" in line:
                raise TargetError(line["error"])
            versions.update(line.get("versions", {}))
            if "id" in line:
                outcomes[line["id"]] = line
        if not lines:
            raise TargetError(_crash_text(status, errors, timeout + _IMPORTS))
        done, pending = pending, [each for each in pending if each not in outcomes]
        if not pending and status == 0:
            break
        case = pending[0] if pending else done[-1]
        before = done[: done.index(case)]
        text = _crash_text(status, errors, timeout) + (f"; after {', '.join(before)}" if before else "")
        crashes[case] = {"status": "failed", "severity": "crash", "text": text}
        if not before:  # a case that follows others runs again, in a process of its own
            outcomes[case] = crashes[case]
            pending = pending[1:]
    passed = {each: crash for each, crash in crashes.items() if outcomes[each]["status"] != "failed"}
    return outcomes | passed, versions


def _in_child(targets: Targets, side: str, ids: list[str], timeout: float) -> tuple[list[Any], int, str]:
    """Run cases in one child; return the lines that it wrote, its status and its standard error."""
    with tempfile.TemporaryDirectory(prefix="zerocopy-check-") as folder:
        out, errors = Path(folder, "out"), Path(folder, "errors")
        out.touch()
        request = {"side": side, "ids": ids, "timeout": timeout, "out": str(out)}
        with errors.open("wb") as stream:
            if all(isinstance(each, str) for each in targets):
                text = json.dumps({**request, "targets": targets, "path": sys.path})
                command, heap = [sys.executable, "-c", _PROGRAM, text], {**os.environ, **_CHECKED_HEAP}
                options: dict[str, Any] = {"stdin": -3, "stdout": stream, "stderr": stream, "env": heap}
                process = subprocess.Popen(command, **options, start_new_session=True)
                status = _wait(process.pid) if hasattr(os, "killpg") else process.wait()
                process.returncode = status
            elif child := os.fork():
                status = _wait(child)
            else:
                try:
                    os.setsid()
                    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                    os.dup2(stream.fileno(), 2)
                    run_here(targets, **request)  # type: ignore[arg-type]
                    os._exit(0)
                finally:
                    os._exit(70)
        lines = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
        return lines, status, errors.read_text("utf-8", errors="replace")


def _wait(child: int) -> int:
    """Return the status of a child that leads a session, and kill all processes of the session."""
    try:
        _, status = os.waitpid(child, os.WUNTRACED)
    finally:
        with suppress(OSError):  # it has no other process
            os.killpg(child, signal.SIGKILL)
    if os.WIFSTOPPED(status):  # by itself; it would never end
        os.waitpid(child, 0)
        return -os.WSTOPSIG(status)
    return os.waitstatus_to_exitcode(status)


def run_here(targets: Targets, side: str, ids: list[str], timeout: float, out: str) -> None:
    """Run cases in this process, a child; write a line of JSON for each outcome."""
    faulthandler.disable()  # an enabled one would not replace the handlers that a library installed since
    faulthandler.enable(2, all_threads=False)
    cases_of(side)
    gc.freeze()  # collections look at the objects of cases alone
    with open(out, "a", encoding="utf-8", buffering=1) as file:
        faulthandler.dump_traceback_later(timeout + _IMPORTS, exit=True, file=2)
        try:
            target, *read = [resolve(each) if isinstance(each, str) else each for each in targets]
            function: Any = (lambda producer: read[0](target(producer))) if read else target
            made = function() if side == "producer" else target
        except BaseException as error:  # noqa: BLE001 - the parent raises it; SystemExit has a text too
            file.write(json.dumps({"error": f"{type(error).__name__}: {error}"}) + "\n")
            return
        file.write(json.dumps({"versions": _versions(made)}) + "\n")
        del made
        for name in ids:
            faulthandler.dump_traceback_later(timeout, exit=True, file=2)
            file.write(json.dumps({"id": name, **_outcome(name, function)}) + "\n")
        faulthandler.cancel_dump_traceback_later()


def _outcome(name: str, target: Any) -> Outcome:
    try:
        CASES[name].run(target)
        gc.collect()
    except Skip as error:
        return {"status": "skipped", "text": str(error)}
    except Violation as error:
        return dict(zip(("text", "severity"), error.args, strict=False), status="failed")
    except ZeroCopyError as error:  # the reader of Arrow's structs refuses them
        return {"status": "failed", "text": str(error), "severity": "wrong value"}
    except BaseException as error:  # noqa: BLE001 - a finding; a panic of Rust is not an Exception
        severity = "wrong error class" if isinstance(error, Exception) else "crash"
        return {"status": "failed", "text": f"{type(error).__name__}: {error}", "severity": severity}
    return {"status": "passed", "text": ""}


def _versions(made: Any) -> dict[str, str]:
    """Return the versions of Python, NumPy, zerocopy and the package that defines an object's type."""
    module = getattr(made, "__module__", None) or type(made).__module__
    names = dict.fromkeys(["numpy", "zerocopy", module.partition(".")[0]])
    versions = {name: getattr(sys.modules.get(name), "__version__", None) for name in names}
    return {"python": sys.version.split()[0]} | {name: str(v) for name, v in versions.items() if v}


def _crash_text(status: int, errors: str, timeout: float) -> str:
    """Return how a process ended, with the lines of faulthandler that say where."""
    lines = [line.strip() for line in errors.splitlines()]
    ended = f"the process ended with {'signal' if status < 0 else 'status'} {abs(status)}"
    if any(line.startswith("Timeout (") for line in lines):
        ended = f"it did not end within {timeout:g} s"
    shown = [line for line in lines if line.startswith(("Fatal Python error", "free()", "double"))]
    shown += [line for line in lines if line.startswith("File ")][:2]
    return "; ".join([ended, *shown])
