"""``Prefetcher``: runs an iterator in a thread, ahead of its consumer."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from zerocopy.errors import ZeroCopyError

_live: weakref.WeakSet[_Channel] = weakref.WeakSet()


class _Channel:
    """The state that the consumer and the thread share; the thread holds no reference to the consumer."""

    def __init__(self, ahead: int) -> None:
        self.ahead = ahead
        self.changed = threading.Condition(threading.Lock())
        self.items: deque[Any] = deque()
        self.weight = 0
        self.stopped = self.ended = False
        self.error: BaseException | None = None
        self.thread: threading.Thread | None = None
        self.pid = os.getpid()
        #: Seconds that the thread waited for the consumer, and the consumer for the thread.
        self.reader_waited = self.consumer_waited = 0.0

    def stop(self) -> None:
        """End the thread and wait until it has ended."""
        if os.getpid() != self.pid:
            return  # the thread does not exist in a forked child
        with self.changed:
            self.stopped = True
            self.items.clear()
            self.changed.notify_all()
        thread = self.thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()


class Prefetcher:
    """Iterates over the items that a thread makes.

    The thread makes the next item when fewer than `ahead` batches are ready. Dropping the last reference,
    or `close`, ends the thread.

    Examples
    --------
    >>> class Item:
    ...     batches = 1
    >>> with Prefetcher(lambda: iter([Item(), Item()]), 2) as items:
    ...     len(list(items))
    2
    """

    def __init__(self, items: Callable[[], Iterator[Any]], ahead: int) -> None:
        """Start a thread that iterates over ``items()``; each item has a number of ``batches``."""
        self._channel = channel = _Channel(ahead)
        thread = threading.Thread(target=_run, args=(channel, items), name="zerocopy-loader", daemon=True)
        channel.thread = thread
        _live.add(channel)
        self._finalizer = weakref.finalize(self, channel.stop)
        self._finalizer.atexit = False  # `_stop_all` ends the threads
        thread.start()

    @property
    def depth(self) -> int:
        """Number of batches that are ready."""
        return 0 if self.is_closed else self._channel.weight

    @property
    def is_closed(self) -> bool:
        """Whether the thread has been ended, or has made all items and they were taken."""
        channel = self._channel
        return channel.stopped or (channel.ended and not channel.items)

    @property
    def waited(self) -> tuple[float, float]:
        """Seconds that the thread waited for the consumer, and the consumer for the thread."""
        return self._channel.reader_waited, self._channel.consumer_waited

    def __iter__(self) -> Prefetcher:
        return self

    def __next__(self) -> Any:
        channel = self._channel
        if os.getpid() != channel.pid:
            raise ZeroCopyError(
                "next(batches)",
                "the iterator was created before a fork, and its thread is not in this process",
                "call iter(loader) in the child process",
                code="forked-iterator",
            )
        with channel.changed:
            if not channel.items and not channel.ended and not channel.stopped:
                began = time.perf_counter()
                try:
                    while not channel.items and not channel.ended and not channel.stopped:
                        channel.changed.wait()
                finally:
                    channel.consumer_waited += time.perf_counter() - began
            if channel.items:
                item = channel.items.popleft()
                channel.weight -= item.batches
                channel.changed.notify_all()
                return item
            error, channel.error = channel.error, None
        self.close()
        if error is not None:
            raise error
        raise StopIteration

    def close(self) -> None:
        """End the thread; what it has made is dropped."""
        self._finalizer()

    def __enter__(self) -> Prefetcher:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _run(channel: _Channel, make_items: Callable[[], Iterator[Any]]) -> None:
    """Make items until the channel is stopped; an error reaches the consumer after the items before it."""
    items: Any = iter(())
    try:
        items = make_items()
        while _wait_for_room(channel):
            item = next(items, None)
            if item is None:
                break
            with channel.changed:
                if channel.stopped:
                    break
                channel.items.append(item)
                channel.weight += item.batches
                channel.changed.notify_all()
            del item
    except BaseException as error:  # noqa: BLE001 - the consumer raises it
        channel.error = error
    finally:
        close = getattr(items, "close", None)
        if close is not None:
            close()
        with channel.changed:
            channel.ended = True
            channel.changed.notify_all()


def _wait_for_room(channel: _Channel) -> bool:
    """Wait until fewer batches are ready than the limit; return False if the channel is stopped."""
    with channel.changed:
        if channel.weight >= channel.ahead and not channel.stopped:
            began = time.perf_counter()
            while channel.weight >= channel.ahead and not channel.stopped:
                channel.changed.wait()
            channel.reader_waited += time.perf_counter() - began
        return not channel.stopped


@atexit.register
def _stop_all() -> None:
    """End all threads before the interpreter does: they would run Python code during its end."""
    for channel in list(_live):
        channel.stop()
