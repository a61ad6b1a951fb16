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
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from zerocopy.errors import ZeroCopyError
from zerocopy.testing.cases import CASES, Skip, Violation, cases_of, made

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
_GRACE = 5  #: seconds in which an aborted process writes where it is
_MOST_TEXT = 1 << 24  #: bytes of standard error that are kept


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
        lines, ended, errors = _in_child(targets, side, pending, timeout)
        for line in lines:
            if "error" in line:
                raise TargetError(line["error"])
            versions.update(line.get("versions", {}))
            if "id" in line and outcomes.get(line["id"], {}).get("status") != "failed":  # by a fork of it
                outcomes[line["id"]] = line
        if not lines:
            raise TargetError(_crash_text(ended, errors, timeout + _IMPORTS))
        done, pending = pending, [each for each in pending if each not in outcomes]
        if not pending and ended == 0:
            break
        case = pending[0] if pending else done[-1]
        before = done[: done.index(case)]
        text = _crash_text(ended, errors, timeout) + (f"; after {', '.join(before)}" if before else "")
        crashes[case] = {"status": "failed", "severity": "crash", "text": text}
        if not before:  # a case that follows others runs again, in a process of its own
            outcomes[case] = crashes[case]
            pending = pending[1:]
    passed = {each: crash for each, crash in crashes.items() if outcomes[each]["status"] != "failed"}
    return outcomes | passed, versions


def _in_child(targets: Targets, side: str, ids: list[str], timeout: float) -> tuple[list[Any], Any, str]:
    """Run cases in one child; return the lines that it wrote, how it ended, and its standard error."""
    with tempfile.TemporaryDirectory(prefix="zerocopy-check-") as folder:
        request: dict[str, Any] = {"side": side, "ids": ids, "out": str(Path(folder, "out"))}
        # Open files, because the target can delete the folder.
        with open(request["out"], "ab+") as out, Path(folder, "errors").open("ab+") as errors:
            if all(isinstance(each, str) for each in targets):
                text = json.dumps({**request, "targets": targets, "path": sys.path})
                command, heap = [sys.executable, "-c", _PROGRAM, text], {**os.environ, **_CHECKED_HEAP}
                options: dict[str, Any] = {"stdin": -3, "stdout": -3, "stderr": errors, "env": heap}
                process = subprocess.Popen(command, **options, start_new_session=True)
                has_groups = hasattr(os, "killpg")
                ended = _wait(process.pid, out, errors, timeout) if has_groups else process.wait()
                process.returncode = 0
            elif child := os.fork():
                ended = _wait(child, out, errors, timeout)
            else:
                try:
                    os.setsid()
                    null = os.open(os.devnull, os.O_RDWR)
                    for copy, number in ((null, 0), (null, 1), (errors.fileno(), 2)):
                        os.dup2(copy, number)
                    run_here(targets, **request)  # type: ignore[arg-type]
                    os._exit(0)
                finally:
                    os._exit(70)
            out.seek(0)
            errors.seek(0)
            return _parsed(out.read(), ids), ended, errors.read().decode("utf-8", errors="replace")


def _parsed(data: bytes, ids: list[str]) -> list[Any]:
    """Return the lines that a child wrote."""
    with suppress(ValueError):
        lines = [json.loads(line) for line in data.split(b"\n")[:-1]]
        if all(isinstance(line, dict) and line.get("id", ids[0]) in ids for line in lines):
            return lines
    raise TargetError("it writes to the file of the results")


def _wait(child: int, out: IO[bytes], errors: IO[bytes], timeout: float) -> int | None:
    """Return the status of a child, or None if it wrote no line for too long, and kill its session.

    The time is measured here, because the child's target can stop timers of its own process.
    """
    written, end, is_late = 0, time.monotonic() + timeout + _IMPORTS, False
    ended = 0, 0
    try:
        while not (ended := os.waitpid(child, os.WNOHANG | os.WUNTRACED))[0]:
            if (size := os.fstat(out.fileno()).st_size) > written:
                written, end = size, time.monotonic() + timeout
            elif time.monotonic() > end:
                os.kill(child, signal.SIGKILL if is_late else signal.SIGABRT)
                end, is_late = time.monotonic() + _GRACE, True
            if os.fstat(errors.fileno()).st_size > _MOST_TEXT:
                errors.truncate(0)
            time.sleep(0.01)
    finally:
        is_alive = not ended[0] or os.WIFSTOPPED(ended[1])  # stopped by itself, it would never end
        with suppress(OSError):  # it has no other process
            os.killpg(child, signal.SIGKILL)
        if is_alive:
            os.kill(child, signal.SIGKILL)  # it may not have its group yet
            os.waitpid(child, 0)
    if os.WIFSTOPPED(ended[1]):
        return None if is_late else -os.WSTOPSIG(ended[1])
    return None if is_late else os.waitstatus_to_exitcode(ended[1])


def run_here(targets: Targets, side: str, ids: list[str], out: str) -> None:
    """Run cases in this process, a child; write a line of JSON for each outcome."""
    faulthandler.disable()  # an enabled one would not replace the handlers that a library installed since
    faulthandler.enable(2, all_threads=False)
    with suppress(ImportError):  # Windows
        from resource import RLIMIT_CORE, getrlimit, setrlimit

        setrlimit(RLIMIT_CORE, (0, getrlimit(RLIMIT_CORE)[1]))  # crashes leave no files
    cases_of(side)
    gc.freeze()  # collections look at the objects of cases alone
    pid = os.getpid()

    def write(**line: Any) -> None:
        if is_fork := os.getpid() != pid:
            text = "it forks, and returns in the new process too"
            line = {"id": line.get("id", ids[0]), "status": "failed", "severity": "crash", "text": text}
        with open(out, "a", encoding="utf-8") as file:  # the target may close descriptors
            file.write(json.dumps(line) + "\n")
        if is_fork:
            os._exit(0)

    try:
        target, *read = [resolve(each) if isinstance(each, str) else each for each in targets]
        function: Any = (lambda producer: read[0](target(producer))) if read else target
        made = function() if side == "producer" else target
    except BaseException as error:  # noqa: BLE001 - the parent raises it; SystemExit has a text too
        write(error=f"{type(error).__name__}: {error}")
        return
    write(versions=_versions(made))
    del made
    for name in ids:
        write(id=name, **_outcome(name, function))


def _outcome(name: str, target: Any) -> Outcome:
    try:
        case = CASES[name]
        case.run(made(target, case.protocol) if case.takes_object else target)
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


def _crash_text(status: int | None, errors: str, timeout: float) -> str:
    """Return how a process ended, with the lines of faulthandler that say where."""
    lines = [line.strip() for line in errors.splitlines()]
    last = map(str.strip, errors.rpartition("Fatal Python error")[2].splitlines())
    shown = [line for line in last if line.startswith("File ")][:2]
    if status is None:
        return "; ".join([f"it did not end within {timeout:g} s", *shown])
    ended = f"the process ended with {'signal' if status < 0 else 'status'} {abs(status)}"
    fatal = [line for line in lines if line.startswith(("Fatal Python error", "free()", "double"))]
    return "; ".join([ended, *fatal, *shown])
