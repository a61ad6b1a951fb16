"""``Prefetcher``: runs an iterator in a thread, ahead of its consumer."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

from zerocopy import forks
from zerocopy._engine import recording
from zerocopy.errors import LoaderUseError
from zerocopy.loading.dataset import close_iterator

#: Seconds that `close` waits for the thread. A read that takes longer ends the thread when it returns.
PATIENCE = 10.0

_live: weakref.WeakSet[Channel] = weakref.WeakSet()


class Wake:
    """Wakes the thread that waits for a change of the channel.

    A signal handler may raise an error between any two Python calls. Inside `threading.Condition` such an
    error leaves the lock unlocked, or locked for ever. Each call here is one C function: an error may lose a
    token, but the state has already changed, and the next call of `first` checks the state before it waits.
    """

    def __init__(self) -> None:
        self._tokens: SimpleQueue[None] = SimpleQueue()

    def set(self) -> None:
        """Wake the thread after the state has changed; the garbage collector may call this."""
        if self._tokens.empty():
            self._tokens.put(None)

    def wait(self) -> None:
        """Wait until `set` is called, or has been; then check the state again."""
        self._tokens.get()


class Channel:
    """The state that the consumer and the thread share; the thread holds no reference to the consumer."""

    def __init__(self, ahead: int) -> None:
        self.ahead = ahead
        #: Its lock is re-entrant: the garbage collector may call `stop` in a thread that holds it.
        self.lock: threading.RLock = forks.lock()
        self.has_items: Wake = Wake()
        self.has_room: Wake = Wake()
        #: Items that the thread has made. The first one stays until the consumer has taken all its batches.
        self.items: deque[Any] = deque()
        self.begun: Any = None
        self.stopped: bool = False
        self.ended: bool = False
        self.error: BaseException | None = None
        self.thread: threading.Thread | None = None
        self.pid: int = os.getpid()
        self.reader_waited: float = 0.0
        self.consumer_waited: float = 0.0

    @property
    def weight(self) -> int:
        """Number of batches of the items that the consumer has not begun."""
        return sum(item.batches for item in self.items if item is not self.begun)

    @property
    def depth(self) -> int:
        """Number of batches that are ready."""
        with self.lock:
            return self.weight

    @property
    def is_closed(self) -> bool:
        """Whether the thread was stopped, or has ended and the consumer has taken all items."""
        return self.stopped or (self.ended and not self.items)

    def is_full(self) -> bool:
        """Whether the thread must wait; items are limited too, because ends of epochs have no batches."""
        with self.lock:
            return not self.stopped and (self.weight >= self.ahead or len(self.items) > self.ahead + 1)

    def is_empty(self) -> bool:
        """Whether the consumer must wait."""
        with self.lock:
            return not self.items and not self.ended and not self.stopped

    def stop(self) -> None:
        """End the thread, wait at most `PATIENCE` seconds for it, and drop its items."""
        if os.getpid() != self.pid:
            return  # the thread does not exist in a forked child
        with self.lock:
            self.stopped = True
        self.has_room.set()
        self.has_items.set()
        thread = self.thread
        # A thread without an identity has not started; if it starts later, it ends at once.
        if thread is not None and thread.ident is not None and thread is not threading.current_thread():
            thread.join(PATIENCE)
        with self.lock:
            # The frames of an error's traceback refer to the channel, which refers to the error.
            self.begun = self.error = None
            self.items.clear()


class Prefetcher:
    """Holds the items that a thread makes, of which the consumer takes the first.

    The thread makes the next item when fewer than `ahead` batches are ready. Dropping the last reference,
    or `close`, ends the thread.
    """

    def __init__(self, items: Callable[[], Iterator[Any]], ahead: int) -> None:
        """Start a thread that iterates over ``items()``; each item has a number of ``batches``."""
        channel = Channel(ahead)
        self.channel: Channel = channel
        thread = threading.Thread(target=_run, args=(channel, items), name="zerocopy-loader", daemon=True)
        channel.thread = thread
        _live.add(channel)
        self._finalizer = weakref.finalize(self, channel.stop)
        self._finalizer.atexit = False  # `_stop_all` ends the threads
        thread.start()

    @property
    def depth(self) -> int:
        """Number of batches that are ready."""
        return self.channel.depth

    def check_process(self) -> None:
        """Raise `LoaderUseError` in a forked child, where the thread does not exist."""
        if os.getpid() != self.channel.pid:
            raise LoaderUseError(
                "next(batches)",
                "the iterator was created before a fork, and its thread is not in this process",
                "call iter(loader) in the child process",
                code="forked-iterator",
            )

    def first(self) -> Any:
        """Return the first item, and wait for it; None at the end. The thread's error comes after its items.

        The item stays the first one until `drop_first`, so that no item is lost if a signal handler
        raises an error here.
        """
        self.check_process()
        channel = self.channel
        if channel.is_empty():
            began = time.perf_counter()
            try:
                while channel.is_empty():
                    channel.has_items.wait()
            finally:
                channel.consumer_waited += time.perf_counter() - began
        with channel.lock:
            first = channel.items[0] if channel.items and not channel.stopped else None
            channel.begun = first
            error = channel.error
        if first is not None:
            channel.has_room.set()
            return first
        try:
            if error is not None:
                raise error
        finally:
            self.close()
            del error  # its traceback refers to this frame
        return None

    def drop_first(self) -> None:
        """Drop the item that `first` returned."""
        channel = self.channel
        with channel.lock:
            if channel.items and channel.items[0] is channel.begun:
                channel.items.popleft()
            channel.begun = None
        channel.has_room.set()

    def close(self) -> None:
        """End the thread and drop its items."""
        self._finalizer()


def _run(channel: Channel, make_items: Callable[[], Iterator[Any]]) -> None:
    """Make items until the channel is stopped; an error reaches the consumer after the items before it."""
    items: Any = iter(())
    recording.own_work().__enter__()  # for the whole thread
    try:
        try:
            items = make_items()
            while _wait_for_room(channel):
                item = next(items, None)
                if item is None:
                    break
                with channel.lock:
                    if channel.stopped:
                        break
                    channel.items.append(item)
                channel.has_items.set()
                del item
        finally:
            close_iterator(items)
    except BaseException as error:  # noqa: BLE001 - the consumer raises it
        with channel.lock:
            channel.error = None if channel.stopped else error
    finally:
        with channel.lock:
            channel.ended = True
        channel.has_items.set()


def _wait_for_room(channel: Channel) -> bool:
    """Wait until fewer batches are ready than the limit; return False if the channel is stopped."""
    if channel.is_full():
        began = time.perf_counter()
        while channel.is_full():
            channel.has_room.wait()
        channel.reader_waited += time.perf_counter() - began
    return not channel.stopped


@atexit.register
def _stop_all() -> None:
    """End all threads before interpreter shutdown, during which they must not run Python code."""
    for channel in list(_live):
        channel.stop()
