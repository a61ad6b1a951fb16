"""``Session``: records the conversions of this process, and writes its file in the run directory.

``ZEROCOPY_MONITOR`` starts it at ``import zerocopy``, which must not import NumPy or the engine.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import time
from typing import Any

from zerocopy import forks
from zerocopy.errors import MonitorStateError, OptionError
from zerocopy.errors.tracebacks import public
from zerocopy.errors.warning import warn
from zerocopy.monitor import run_directory
from zerocopy.monitor.conversion import summarized
from zerocopy.monitor.process_record import SOURCES, make_record
from zerocopy.monitor.report import Snapshot, new_recorder
from zerocopy.monitor.run_directory import FileName, RunFiles, default_directory, write
from zerocopy.monitor.sample import ProcessRecord
from zerocopy.monitor.sampling import Ring, Sampler

#: Seconds between two writes of the file.
_WRITE_EVERY = 1.0
#: The thread pauses for at least this multiple of the CPU time of the last record: it uses at most a fiftieth
#: of one core.
_PAUSE = 50.0

VARIABLE = "ZEROCOPY_MONITOR"
_VALUES = "1, 0, serve:PORT and csv:FILE"

_lock = forks.lock()
_current: Session | None = None
_hooks_installed = _registered = False


class Session:
    """The monitor of this process; :func:`zerocopy.monitor.start` creates it.

    Attributes
    ----------
    directory : str
        The run directory, in which each monitored process has a file.
    history : Ring of ProcessRecord
        The records of the last `keep` seconds, each with one row of conversions: the sums.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> with zc.monitor.start() as session:
    ...     array = zc.convert(np.arange(3.0), to="numpy", copy=True)
    ...     session.snapshot().rows[0].copied_bytes
    24
    """

    def __init__(
        self, sites: bool = True, every: float = 0.2, keep: float = 300.0, directory: str | None = None
    ) -> None:
        self.directory: str = default_directory() if directory is None else os.path.abspath(directory)
        self.from_environment: bool = False
        self.adopted: bool = False
        self._sites, self._keep = sites, keep
        self._lock = forks.lock()
        self._sampler = Sampler(self._tick, every, _PAUSE)
        self._warned: set[str] = set()
        self._begin()

    def _begin(self) -> None:
        """Set all counts to zero, in a new process too."""
        self.history: Ring[ProcessRecord] = Ring(self._keep)
        self._pid, self._ended, self._written = os.getpid(), False, -_WRITE_EVERY
        self._since = time.time()
        self._recorder = new_recorder(self._sites)
        self._name = FileName.of_this_process()

    def _start(self) -> None:
        self._recorder.start()
        RunFiles(self.directory).read()  # removes files of processes that ended long ago
        self._tick()
        self._sampler.start()

    def snapshot(self) -> Snapshot:
        """Return the present figures of this process, and write them to its file."""
        with self._lock:
            return self._snapshot()

    def stop(self) -> Snapshot:
        """End recording, and return the last figures; as :func:`zerocopy.monitor.stop`."""
        if self.from_environment:
            self.adopted = False
            return self.snapshot()
        return self._end()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *error: object) -> None:
        if not self._ended:
            self.stop()

    def _end(self) -> Snapshot:
        global _current
        with _lock:
            if _current is self:
                _current = None
        self._sampler.stop()
        with self._lock:
            if not self._ended:
                self._ended = True
                self._recorder.stop()
            return self._snapshot()

    def _snapshot(self) -> Snapshot:
        rows = self._recorder.rows()
        record = self._record(rows)
        self._write(record)
        return Snapshot(rows, record)

    def _tick(self) -> None:
        """Add a record to the history, and write it once a second; errors do not reach the program."""
        try:
            with self._lock:
                if self._ended or self._pid != os.getpid():
                    return
                record = self._record(self._recorder.rows())
                self.history.add(record["time"], summarized(record))
                if time.monotonic() - self._written >= _WRITE_EVERY:
                    self._write(record)
        except Exception as error:  # noqa: BLE001 - a defect of the monitor must not end the program
            self._report("recording", error)

    def _record(self, rows: Any) -> ProcessRecord:
        return make_record(rows, self._since, ended=self._ended, on_error=self._report, sources=SOURCES)

    def _write(self, record: ProcessRecord) -> None:
        """Write the file; an error is reported as a warning, and later writes are still attempted."""
        self._written = time.monotonic()
        try:
            write(self.directory, self._name, record)
        except Exception as error:  # noqa: BLE001 - as in `_tick`
            self._report(f"writing to {self.directory}", error)

    def _report(self, part: str, error: Exception) -> None:
        """Warn of an error, once for each part of the record."""
        if part in self._warned:
            return
        self._warned.add(part)
        if part.startswith("writing"):
            text = f"the monitor of this process cannot continue {part}: {error}\n"
            remedy = (
                "  Recording continues, but other processes do not see it. To fix: free space there, or set "
                "ZEROCOPY_MONITOR_DIR to a directory of your own"
            )
        else:
            text = f"the monitor cannot read {part}: {type(error).__name__}: {error}\n"
            remedy = "  The program continues, and this part stays empty"
        warn(text + remedy, raises=False)

    def _begin_in_child(self) -> None:
        """Continue in a forked child with a separate file, counts and history."""
        self._recorder.stop()
        self._begin()
        self._recorder.start()
        self._sampler.start()


@public
def start(
    sites: bool = True,
    every: float = 0.2,
    keep: float = 300.0,
    directory: str | os.PathLike[str] | None = None,
) -> Session:
    """Record the conversions of this process until :func:`stop`, and let other processes read them.

    ``zerocopy monitor`` shows all processes of the run directory. Forked children are recorded too,
    and processes that are spawned while ``ZEROCOPY_MONITOR`` is set.

    Parameters
    ----------
    sites : bool, default True
        Record the line of code of each conversion, its time and why it copies.
    every : float, default 0.2
        Seconds between two records of the history.
    keep : float, default 300.0
        Seconds that the history covers.
    directory : path, optional
        The run directory. Default: ``ZEROCOPY_MONITOR_DIR``, else a directory of this user.

    Returns
    -------
    Session
        A context manager that ends the session. If ``ZEROCOPY_MONITOR`` has started a session, that
        session with its own options.

    Raises
    ------
    MonitorStateError
        The program has started a session already.
    OptionError
        An option has an invalid value.

    Warns
    -----
    RuntimeWarning
        The run directory cannot be written, or is not safe. Recording goes on.

    Examples
    --------
    >>> import zerocopy as zc
    >>> session = zc.monitor.start()
    >>> snapshot = zc.monitor.stop()
    """
    global _current
    _check("every", every, 0.01, 3600.0, "0.2")
    _check("keep", keep, 1.0, 86400.0, "300")
    path = None if directory is None else os.fspath(directory)
    with _lock:
        running = _current
        if running is not None:
            if running.from_environment and not running.adopted:
                running.adopted = True
                return running
            raise MonitorStateError(
                "monitor.start()",
                "the monitor of this process is running",
                "call zc.monitor.snapshot() for its figures, or zc.monitor.stop() first",
                code="monitor-running",
            )
        session = Session(sites, every, keep, path)
        _install_hooks()
        _current = session
    try:
        session._start()
    except BaseException:
        session._end()
        raise
    return session


@public
def snapshot() -> Snapshot:
    """Return the present figures of this process: conversions, pool, shared memory and loaders.

    Raises
    ------
    MonitorStateError
        There is no session.

    Examples
    --------
    >>> import zerocopy as zc
    >>> with zc.monitor.start():
    ...     print(zc.monitor.snapshot())
    process ...
    """
    return _running("snapshot").snapshot()


@public
def stop() -> Snapshot:
    """End the session of this process, and return the last figures.

    A session of ``ZEROCOPY_MONITOR`` goes on until the process ends.

    Raises
    ------
    MonitorStateError
        There is no session.

    Examples
    --------
    >>> import zerocopy as zc
    >>> session = zc.monitor.start()
    >>> zc.monitor.stop().rows
    []
    """
    return _running("stop").stop()


def _running(name: str) -> Session:
    session = _current
    if session is None:
        raise MonitorStateError(
            f"monitor.{name}()", "the monitor was not started", "call zc.monitor.start() first"
        )
    return session


def _check(name: str, value: Any, least: float, most: float, example: str) -> None:
    number = value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    if number is None or not least <= number <= most:
        raise OptionError(
            f"monitor.start({name}={value!r})",
            f"it is not between {least:g} and {most:g}",
            f"pass seconds, such as {name}={example}",
        )


# -- ZEROCOPY_MONITOR: the session, and a reader in a subprocess, at ``import zerocopy`` ----------


def start_from_environment() -> None:
    """Start the recording that ``ZEROCOPY_MONITOR`` requests; errors are warnings, so the program runs."""
    value = os.environ[VARIABLE]
    if _is_reader_command():
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
    start().from_environment = True  # `start` returns the same session
    if os.environ.get("ZEROCOPY_MONITOR_WRITES") == "1":
        from zerocopy.monitor.writes import Watcher

        Watcher()  # it reports at the end of the process
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
    pid = os.getpid()
    environment = {**os.environ, VARIABLE: "0", run_directory.VARIABLE: default_directory()}
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


# -- the ends and the forks of a process ------------------------------------------------


def _install_hooks() -> None:
    """Call the functions below at the end of this process and at its forks; holding `_lock`."""
    global _hooks_installed
    _finish_in_worker()
    if not _hooks_installed:
        _hooks_installed = True
        atexit.register(_at_exit)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)


def _at_exit() -> None:
    session = _current
    if session is not None and session._pid == os.getpid():
        session._end()


def _before_fork() -> None:
    session = _current
    if session is not None:
        global _registered
        # Workers that multiprocessing forks skip `atexit`.
        util = sys.modules.get("multiprocessing.util")
        if util is not None and not _registered:
            _registered = True  # children inherit it, and the registration
            util.register_after_fork(_finish_in_worker, lambda function: function())
        session._sampler.stop()


def _after_fork() -> None:
    session = _current
    if session is not None:
        session._sampler.start()


def _in_child() -> None:
    session = _current
    if session is not None:
        session._begin_in_child()


def _finish_in_worker() -> None:
    """Let multiprocessing call `_at_exit` at the end of this process, if it is one of its workers."""
    util, process = sys.modules.get("multiprocessing.util"), sys.modules.get("multiprocessing.process")
    if util is not None and process is not None and process.parent_process() is not None:
        util.Finalize(None, _at_exit, exitpriority=-100)
