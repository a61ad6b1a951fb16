"""Recorders that start and stop between any two lines of a conversion, and sessions in other threads."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from helpers.recorded_calls import recording

import zerocopy as zc
from zerocopy._engine import recording as hook, routes
from zerocopy.monitor.recorder import Recorder

#: The files of the engine that use the recording.
ENGINE = {
    str(path)
    for path in Path(routes.__file__).parent.glob("*.py")
    if "recording" in path.read_text(encoding="utf-8")
}


@contextmanager
def at_line(number: int, action: Callable[[], None]) -> Iterator[list[int]]:
    """Call `action` before one line of the engine in this thread; yield a list with the count of lines."""
    lines = [0]

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename not in ENGINE:
            return None
        if event == "line":
            lines[0] += 1
            if lines[0] == number:
                action()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield lines
    finally:
        sys.settrace(before)


def sparse() -> Any:
    return pytest.importorskip("scipy.sparse").csr_matrix(np.eye(3))


def handle() -> Any:
    return zc.share(np.arange(100_000.0))


def table() -> Any:
    return pytest.importorskip("pyarrow").table({"x": np.arange(3.0), "y": np.arange(3.0)})


#: The object, the target and the options; each has another kind of route.
CASES: dict[str, tuple[Callable[[], Any], str, dict[str, Any]]] = {
    "buffer": (lambda: memoryview(bytearray(8)), "numpy", {}),
    "array": (lambda: np.arange(3.0), "torch", {}),
    "copied array": (lambda: np.arange(3.0), "torch", {"copy": True}),
    "list of arrays": (lambda: [np.arange(3.0), np.arange(2)], "torch", {}),
    "dict of arrays": (lambda: {"x": np.arange(3.0), "y": np.arange(2)}, "numpy", {"copy": True}),
    "columns of a table": (table, "numpy", {}),
    "matrix": (table, "numpy", {"layout": "matrix"}),
    "chosen columns": (table, "numpy", {"columns": ["x"], "copy": True}),
    "table": (table, "polars", {}),
    "sparse array": (sparse, "torch", {}),
    "handle": (handle, "numpy", {}),
}


def lines_of(call: Callable[[], Any], number: int = 0, action: Callable[[], None] = list) -> int:
    """Return the lines of the engine that a call runs, with `action` before one of them."""
    with at_line(number, action) as lines:
        call()
    return lines[0]


def calls_and_lines_of_routes(convert: Callable[..., Any], obj: Any) -> tuple[int, int]:
    """Return the recorded calls of four conversions, and the lines of the last, which has its routes."""
    parts = list(obj.values()) if isinstance(obj, dict) else obj if isinstance(obj, list) else []
    with recording(sites=True) as recorder:
        for part in parts:
            convert(part)
        before = sum(row.calls for row in recorder.rows())
        # The second power of two is more than one call away: one of the last two takes no sample.
        convert(obj), convert(obj)
        lines = min(lines_of(lambda: convert(obj)) for _ in range(2))
        return sum(row.calls for row in recorder.rows()) - before, lines


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("running", [False, True], ids=["start", "stop"])
def test_a_recorder_may_start_and_stop_between_any_two_lines(case: str, running: bool) -> None:
    make, to, options = CASES[case]
    if to != "numpy":
        pytest.importorskip(to)
    obj = make()

    def convert(obj: Any) -> Any:
        return zc.convert(obj, to, **options)

    convert(obj)  # imports
    routes.clear()
    undisturbed = calls_and_lines_of_routes(convert, obj)
    assert undisturbed[0] == 4
    number = lines = 1
    while number <= lines:
        recorder = Recorder()
        try:
            if running:
                recorder.start()
            routes.clear()
            lines = lines_of(lambda: convert(obj), number, recorder.stop if running else recorder.start)
            assert (hook.counters is None) is running
            # No route that was composed before the change is left.
            assert calls_and_lines_of_routes(convert, obj) == undisturbed, number
        finally:
            recorder.stop()
        assert hook.counters is None
        number += 1
    assert number > 10


def test_a_reason_that_arrives_after_the_end_is_not_one_of_the_next_recording() -> None:
    entered, go = threading.Event(), threading.Event()

    class Refused:
        def __dlpack_device__(self) -> tuple[int, int]:
            entered.set()
            go.wait(60)
            raise ValueError("of the recording that has ended")

        __dlpack__ = __dlpack_device__

    def convert() -> None:
        with pytest.raises(zc.ZeroCopyError):
            zc.convert(Refused(), "numpy")

    worker = threading.Thread(target=convert)
    with recording():
        worker.start()
        assert entered.wait(60)
    with recording() as recorder:
        go.set()
        worker.join()
        assert recorder.rows() == []
        assert not hook.counters.reasons


def test_sessions_come_and_go_while_threads_convert(tmp_path: Any) -> None:
    array, rounds = memoryview(bytearray(64)), 8
    done = threading.Event()
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            while not done.is_set():
                assert zc.convert([array, {"x": np.arange(2.0)}], "numpy")[0].nbytes == 64
                assert zc.convert(array, "numpy", copy=True, writable=bool(number)).nbytes == 64
                routes.clear()  # all routes are composed again
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for worker in workers:
        worker.start()
    try:
        for _ in range(rounds):
            session = zc.monitor.start(directory=tmp_path)
            zc.monitor.snapshot()
            assert session.stop().record["ended"]
    finally:
        done.set()
        for worker in workers:
            worker.join()
    assert not errors
    assert hook.counters is None
