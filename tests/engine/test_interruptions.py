"""Exceptions that arrive from outside during a conversion reach the caller unchanged: those of signal
handlers, of trace functions and of other threads."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.arrays import sample
from helpers.frameworks import HOST
from helpers.interruptions import Interruption, places, raise_as_another_thread, raise_by_signal
from helpers.tiers import runs_all

import zerocopy as zc
from zerocopy._engine import routes
from zerocopy.loading.sources.columnar import ParquetFiles
from zerocopy.loading.sources.files import find_files
from zerocopy.loading.sources.streams import BatchStream
from zerocopy.protocols.exporter_errors import MAX_NESTING, calling


class TimedOut(Exception):
    """As the time limits of libraries: their handlers raise classes of their own."""


CLASSES = [TimeoutError, TimedOut, MemoryError, KeyboardInterrupt]
#: Classes that clauses for one library's errors catch, so that they pass only where any code may raise.
NARROW = [ValueError, TypeError, KeyError, RuntimeError]


class Producer:
    """A producer of one array that calls `act` before each export."""

    def __init__(self, array: np.ndarray, act: Callable[[], Any] = lambda: None) -> None:
        self.array, self.act = array, act

    def __dlpack__(self, **options: Any) -> Any:
        self.act()
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


class Stream:
    """A producer of one Arrow stream, or of the columns of `__array__`."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self.act = act

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        return self.act()


class Columns:
    """An object that only ``__array__`` exports."""

    shape, dtype, ndim = (3,), np.dtype("f4"), 1

    def __init__(self, act: Callable[[], Any]) -> None:
        self.act = act

    def __array__(self, dtype: object = None, copy: object = None) -> Any:
        return self.act()


SOURCES = {
    "ndarray": lambda: sample("f4"),
    "reversed": lambda: sample("f4")[::-1],
    "producer": lambda: Producer(sample("f4")),
    "tree": lambda: {"x": [sample("f4"), (sample("f4")[::-1],)]},
    "buffer": lambda: bytearray(8),
}


@pytest.mark.hazard("robustness#exceptions-of-others")
@pytest.mark.parametrize("to", HOST)
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("warm", [False, True], ids=["first call", "second call"])
def test_an_exception_at_any_place_reaches_the_caller(
    monkeypatch: pytest.MonkeyPatch, source: str, to: str, warm: bool
) -> None:
    obj, ignored = SOURCES[source](), list[Any]()
    # Without its traceback, which would keep the call's objects until the end of the test.
    monkeypatch.setattr(
        sys, "unraisablehook", lambda raised: ignored.append(raised.exc_value.with_traceback(None))
    )

    def call() -> None:
        if not warm:
            routes.clear()
        zc.convert(obj, to)

    with suppress(zc.ZeroCopyError):
        call()
    count = places(call)
    step = 1 if to == "numpy" else 1 + count // 12
    for number, at in enumerate(range(1, count + 1, step)):
        for cls in CLASSES if step == 1 and runs_all() else [CLASSES[number % len(CLASSES)]]:
            error = cls("from outside")
            interruption = Interruption(error, at)
            caught = interruption.run(call)
            assert caught is error or error in ignored or interruption.places < at, (at, error.__traceback__)
            caught = None  # its traceback keeps the objects of an interrupted call alive


@pytest.mark.hazard("robustness#exceptions-of-others")
@pytest.mark.parametrize("to", ["numpy", "torch", "pandas"])
@pytest.mark.parametrize("make", [lambda act: Producer(sample("f4"), act), Stream, Columns])
@pytest.mark.parametrize("cls", CLASSES + NARROW)
def test_an_exception_of_a_signal_handler_is_not_one_of_the_producer(cls: Any, make: Any, to: str) -> None:
    pytest.importorskip(to)
    error = cls("from outside")
    for obj in (make(lambda: raise_by_signal(error)), [make(lambda: raise_by_signal(error))]):
        with pytest.raises(cls) as caught:
            zc.convert(obj, to)
        assert caught.value is error


def read_file(act: Callable[[], Any], patch: pytest.MonkeyPatch, path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"x": [1.0]}), path)
    patch.setattr(pq.ParquetFile, "read_row_groups", lambda *_, **__: act())
    ParquetFiles(find_files(str(path)), None).read(0)


def read_stream(act: Callable[[], Any], patch: pytest.MonkeyPatch, path: Path) -> None:
    """Read in this thread: `loader` reads in another, where no signal handler runs."""
    pa = pytest.importorskip("pyarrow")

    def batches() -> Iterator[Any]:
        yield pa.record_batch({"x": [1.0]})
        act()

    list(BatchStream("stream", pa.schema({"x": "f8"}), batches).batches())


#: Calls outside conversions that run code of others.
CALLS: dict[str, Any] = {
    "loader of a file": read_file,
    "loader of a stream": read_stream,
}


@pytest.mark.hazard("robustness#exceptions-of-others")
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("cls", CLASSES + NARROW)
def test_an_exception_of_a_signal_handler_passes_the_loader(
    cls: Any, call: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    error = cls("from outside")
    with pytest.raises(cls) as caught:
        CALLS[call](lambda: raise_by_signal(error), monkeypatch, tmp_path / "x.parquet")
    assert caught.value is error


@pytest.mark.parametrize("call", CALLS)
def test_a_panic_is_an_error_of_the_called_code(
    call: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """PyO3's class does not derive from ``Exception``."""

    def act() -> None:
        raise type("PanicException", (BaseException,), {})("not implemented")

    with suppress(zc.ZeroCopyError):
        CALLS[call](act, monkeypatch, tmp_path / "x.parquet")


@pytest.mark.hazard("robustness#exceptions-of-others")
@pytest.mark.parametrize("cls", [TimeoutError, TimedOut, ValueError, RuntimeError, KeyboardInterrupt])
def test_an_exception_of_another_thread_is_not_one_of_the_producer(cls: Any) -> None:
    with pytest.raises(cls) as caught:
        zc.convert(Producer(sample("f4"), lambda: raise_as_another_thread(cls)), "numpy")
    assert type(caught.value) is cls


@pytest.mark.parametrize("cls", [*CLASSES[:2], *NARROW, OSError, StopIteration])
@pytest.mark.parametrize("arguments", [(), ("of the producer",)], ids=["bare", "text"])
def test_an_exception_of_the_producer_is_translated(cls: Any, arguments: tuple[str, ...]) -> None:
    def fail() -> None:
        raise cls(*arguments)

    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.convert(Producer(sample("f4"), fail), "numpy")
    assert type(caught.value.__cause__) is cls


def test_interruptions_whose_traceback_is_kept_do_not_count_as_nested_producers() -> None:
    interrupted = [calling("convert()") for _ in range(2 * MAX_NESTING)]
    try:
        for context in interrupted:
            context.__enter__()  # and never __exit__, as if an exception of a signal handler came first
        producer = Producer(np.arange(3.0))
        assert zc.convert(producer, "numpy").tolist() == [0.0, 1.0, 2.0]
    finally:
        interrupted[0].__exit__(None, None, None)


def test_interruptions_do_not_count_as_nested_producers() -> None:
    obj = Producer(sample("f4"), lambda: zc.convert(Producer(sample("f4")), "numpy"))

    def call() -> None:
        zc.convert(obj, "numpy")

    for at in range(1, places(call) + 1, 3):
        Interruption(TimeoutError("from outside"), at).run(call)
    for _ in range(2 * MAX_NESTING):
        call()


class TextWithoutArguments(Exception):
    """An error that keeps its text outside ``args``, as those of TensorFlow do."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def __str__(self) -> str:
        return self.text


def test_an_error_of_the_producer_may_have_text_without_arguments() -> None:
    def fail() -> None:
        raise TextWithoutArguments("strides")

    with pytest.raises(zc.UnsupportedConversionError, match="strides"):
        zc.convert(Producer(sample("f4"), fail), "numpy")
