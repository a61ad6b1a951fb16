"""``ZEROCOPY_MONITOR``: starts the session, and a reader in a subprocess, at ``import zerocopy``."""

from __future__ import annotations

import os
import subprocess
import sys

from zerocopy.errors.warning import warn

VARIABLE = "ZEROCOPY_MONITOR"
_VALUES = "1, 0, serve:PORT and csv:FILE"


def start_from_environment() -> None:
    """Start what ``ZEROCOPY_MONITOR`` requests; errors are warnings, so that the program can run."""
    value = os.environ.get(VARIABLE, "")
    if value in ("", "0") or _is_reader_command():
        return
    try:
        _start(value)
    except Exception as error:  # noqa: BLE001 - an import must not fail because of the monitor
        warn(f"{VARIABLE}={value!r}: {error}", raises=False)


def _start(value: str) -> None:
    command = None if value == "1" else reader_command(value)
    if value != "1" and command is None:
        fix = f"To fix: use one of {_VALUES}"
        warn(f"{VARIABLE}={value!r} is not valid, and nothing is recorded. {fix}", raises=False)
        return
    from zerocopy.monitor.session import start_from_environment as start_session

    start_session()
    if command is not None:
        os.environ[VARIABLE] = "1"  # children are recorded, and start no further readers
        start_reader(command)


def reader_command(value: str) -> list[str] | None:
    """Return the arguments of ``zerocopy monitor`` for a value; None if it is not valid.

    Examples
    --------
    >>> reader_command("csv:out.csv"), reader_command("serve:5006"), reader_command("csv:")
    (['--csv', 'out.csv', '--append'], ['--serve', '5006'], None)
    """
    kind, _, argument = value.partition(":")
    if kind == "csv" and argument:
        return ["--csv", argument, "--append"]  # the next program with this variable adds its rows
    if kind == "serve" and argument.isascii() and argument.isdecimal() and int(argument) < 65536:
        return ["--serve", argument]
    return None


def start_reader(arguments: list[str]) -> subprocess.Popen[bytes]:
    """Start ``zerocopy monitor`` for this process; it ends after this process, also if that is killed."""
    from zerocopy.monitor.run_directory import VARIABLE as DIRECTORY, default_directory

    pid = os.getpid()
    environment = {**os.environ, VARIABLE: "0", DIRECTORY: default_directory()}
    environment.pop("ZEROCOPY_POOL", None)  # only this process needs the pool
    # The parent of the package may be known to this process only, such as through sys.path.
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    paths = [package, *filter(None, [environment.get("PYTHONPATH")])]
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    command = [sys.executable, "-m", "zerocopy", "monitor", *arguments, "--pid", str(pid)]
    # A session of its own: Ctrl+C ends the program, and the reader after the last record.
    reader = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment, start_new_session=True)
    reader.returncode = 0  # otherwise Popen warns at exit that it is running
    return reader


def _is_reader_command() -> bool:
    """Whether a user started this process as ``zerocopy monitor``, which is not recorded."""
    arguments = sys.orig_argv[1:]
    if arguments[:2] == ["-m", "zerocopy"]:
        return arguments[2:3] == ["monitor"]
    names = [os.path.basename(argument) for argument in arguments[:2]]
    return names in (["zerocopy", "monitor"], ["zerocopy.exe", "monitor"])
