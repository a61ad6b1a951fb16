"""``Prefetcher``: exceptions of signal handlers, and calls inside its locked regions."""

from __future__ import annotations

import gc
import linecache
import queue
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from zerocopy.loading import prefetcher
from zerocopy.loading.prefetcher import Prefetcher

SIGNALS = """
import signal, sys, threading, time
sys.path.insert(0, "tests")
from helpers.loader_cases import Groups, loader_of, ids
from zerocopy.loading.prefetcher import Prefetcher
class Stop(Exception): pass
armed, count = False, 0
def handle(*_):
    global count
    if armed and count < 500:
        count += 1
        raise Stop
signal.signal(signal.SIGALRM, handle)
def end():
    signal.setitimer(signal.ITIMER_REAL, 0)
    return count > 0, [each.name for each in threading.enumerate() if each.name == "zerocopy-loader"]
"""


def test_interrupts_lose_no_item(run_python) -> None:
    """An item is delivered once, whichever call a handler's exception interrupts."""
    completed = run_python(
        SIGNALS
        + """
class Item:
    batches = 1
def make():
    for number in range(2000):
        if number % 4: time.sleep(0.0003)  # the consumer waits
        item = Item()
        item.number = number
        yield item
items, seen, is_seen, is_at_end = Prefetcher(make, 2), [], False, False
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0007)
while not is_at_end:
    try:
        armed = True
        if is_seen: items.drop_first()
        else: item = items.first()
        armed = False
    except Stop:
        armed = False
        continue
    if is_seen: is_seen = False
    elif item is None: is_at_end = True
    else:
        seen.append(item.number)
        is_seen = True
print(seen == list(range(2000)), *end())
"""
    )
    assert completed.stdout == "True True []\n", completed.stderr


@pytest.mark.hazard("robustness#signals-in-a-condition")
def test_interrupts_lose_no_rows(run_python) -> None:
    """The order of batches is kept, and an exception in next() loses its own batch at most."""
    completed = run_python(
        SIGNALS
        + """
expected = [ids(batch) for batch in loader_of(Groups([3] * 3000), batch_size=4, shuffle=8)]
iterator, seen = iter(loader_of(Groups([3] * 3000), batch_size=4, shuffle=8)), []
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0007)
while True:
    try:
        armed = True
        batch = next(iterator)
        armed = False
    except Stop:
        armed = False
        continue
    except StopIteration:
        armed = False
        break
    seen.append(ids(batch))
places = {tuple(batch): number for number, batch in enumerate(expected)}
numbers = [places[tuple(batch)] for batch in seen]
print(numbers == sorted(set(numbers)), len(expected) - len(numbers) <= count, *end())
"""
    )
    assert completed.stdout == "True True True []\n", completed.stderr


class _Item:
    batches = 1


class _StopError(Exception):
    pass


class _Raises:
    """Raises an error at one of the lines that run, as a signal's handler may.

    Leaving a ``with`` block is a line of its own to a tracer, but not to signals.
    """

    def __init__(self, line: int) -> None:
        self.left = line
        self.files = {prefetcher.__file__, threading.__file__, queue.__file__}

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename not in self.files:
            return None
        text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip()
        if event == "line" and not text.startswith("with "):
            self.left -= 1
            if self.left == 0:
                raise _StopError
        return self


def _take_all(items: Prefetcher, trace: _Raises) -> tuple[list[Any], int]:
    """Return the items, and the number of errors that the trace has raised."""
    seen: list[Any] = []
    is_seen, errors, before = False, 0, sys.gettrace()
    while True:
        try:
            sys.settrace(trace)
            try:
                first = items.drop_first() if is_seen else items.first()  # type: ignore[func-returns-value]
            finally:
                sys.settrace(before)
        except _StopError:
            errors += 1
            continue
        if not is_seen:
            if first is None:
                return seen, errors
            seen.append(first)
        is_seen = not is_seen


@pytest.mark.hazard("robustness#signals-in-a-condition")
def test_an_error_at_any_line_loses_no_item() -> None:
    """The consumer gets the handler's error, each item once, and the thread ends."""
    made = [_Item() for _ in range(3)]

    def slowly() -> Iterator[_Item]:
        for item in made:
            time.sleep(0.002)  # the consumer waits
            yield item

    for line in range(1, 1000):
        items = Prefetcher(slowly, 1)
        seen, errors = _take_all(items, _Raises(line))
        assert seen == made
        items.close()
        assert items.channel.thread is not None
        items.channel.thread.join(60)
        assert not items.channel.thread.is_alive()
        if not errors:
            break
    assert errors == 0
    assert line > 30


def test_a_finalizer_in_a_locked_region_may_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """The garbage collector may drop an iterator in a thread that holds the lock, for statistics."""
    monkeypatch.setattr(prefetcher, "PATIENCE", 0.05)  # the loader's thread may need the lock to end
    items = Prefetcher(lambda: iter([_Item(), _Item()]), 2)
    assert items.first() is not None
    thread = items.channel.thread
    assert thread is not None
    with items.channel.lock:
        del items
        gc.collect()
    thread.join(60)
    assert not thread.is_alive()


def test_close_ends_a_thread_and_a_consumer_that_wait() -> None:
    """The thread waits for room; a consumer in another thread waits for an item."""
    full = Prefetcher(lambda: iter([_Item() for _ in range(9)]), 1)
    assert full.first() is not None
    full.close()
    assert full.first() is None

    go, waits = threading.Event(), threading.Event()

    def blocked() -> Iterator[_Item]:
        waits.set()
        go.wait(60)
        yield _Item()

    empty, got = Prefetcher(blocked, 1), []
    consumer = threading.Thread(target=lambda: got.append(empty.first()))
    consumer.start()
    assert waits.wait(60)
    closing = threading.Thread(target=empty.close)
    closing.start()
    consumer.join(60)
    go.set()
    closing.join(60)
    assert got == [None]
    for each in (full, empty):
        assert each.channel.thread is not None
        assert not each.channel.thread.is_alive()
