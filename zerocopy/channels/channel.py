"""``Channel``: a ring of items in shared memory, with one writer and any number of readers."""

from __future__ import annotations

import base64
import binascii
import os
import struct
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from types import TracebackType
from typing import Any, Self

from zerocopy import forks
from zerocopy.channels import ring as protocol
from zerocopy.channels.items import FIELDS, Fields, Items, Slot, items_of
from zerocopy.channels.memory import LONGEST_WAIT, PAGE, ChannelMemory, Holder
from zerocopy.channels.reader import Place, Reader, deadline
from zerocopy.channels.ring import CLOSED, DROPPED, FREED, HEAD, WAITING, Ring
from zerocopy.channels.stats import ChannelStats, read_stats
from zerocopy.errors import (
    ChannelClosedError,
    ChannelTimeoutError,
    HandleFormatError,
    LossyConversionError,
    OptionError,
    StaleHandleError,
    UnsupportedConversionError,
    ZeroCopyError,
)
from zerocopy.errors.tracebacks import public
from zerocopy.formatting import shown
from zerocopy.shared.handle import LOCATION_BYTES, Location
from zerocopy.shared.segment import Array

_MAGIC = b"ZCCHAN1\0"
#: Magic; whether it is a queue, whether items are dropped, form of the items; readers, slots; bytes of an
#: item and of the form's header.
_HEAD = struct.Struct("<8sBBBxIIQQ")
_PREFIX = "zerocopy-channel:"
#: Readers that `latest` keeps, each for one target.
_MOST_READERS = 8
MOST_SLOTS = 1 << 16
MODES, FULL = ("queue", "latest"), ("block", "drop")


class Channel:
    """Slots in shared memory for the items of one writer: :func:`zerocopy.channel` returns it.

    It can be pickled. As a context manager, it ends writing at the end of the block.

    Attributes
    ----------
    handle : str
        Text that opens the channel in another process: ``zc.channel(handle)``.
    nbytes : int
        Bytes of one item.

    Examples
    --------
    >>> import zerocopy as zc
    >>> with zc.channel({"t": ((), "f8")}) as channel:
    ...     reader = channel.read()
    ...     channel.put({"t": 0.5})
    True
    >>> [float(batch["t"]) for batch in reader]
    [0.5]
    """

    def __init__(self, memory: ChannelMemory, ring: Ring, items: Items, drops: bool) -> None:
        self._memory, self._ring, self._items, self._drops = memory, ring, items, drops
        self._place = _place_of(ring, items)
        # Re-entrant: a finalizer or a signal's handler may abandon a slot, or close, within the section.
        self._lock = forks.lock()
        self._writer: _Writer | None = None
        self._is_closed = False
        self._readers: dict[Any, Reader] = {}

    @classmethod
    def create(cls, items: Items, ring: Ring, drops: bool) -> Channel:
        """Allocate a channel."""
        place = _place_of(ring, items)
        memory = ChannelMemory.create(place.first_slot + ring.slots * place.slot_bytes)
        sizes = ring.readers, ring.slots, items.nbytes, len(items.header)
        head = _HEAD.pack(_MAGIC, ring.is_queue, drops, items.form, *sizes) + items.header
        memory.bytes[: len(head)] = memoryview(head)
        return cls(memory, ring, items, drops)

    @classmethod
    def from_handle(cls, handle: str) -> Channel:
        """Open the channel of a handle."""
        location = _parse(handle)
        try:
            memory = ChannelMemory.open(location)
        except ZeroCopyError as error:
            remedy = "keep the Channel in its process until the others have opened it"
            is_stale = isinstance(error, StaleHandleError)
            raise error.with_context(
                asked="channel()", remedy=remedy if is_stale else None
            ) from error.__cause__
        try:
            head = _HEAD.unpack_from(memory.bytes.data)
            magic, is_queue, drops, form, readers, slots, nbytes, length = head
            if magic != _MAGIC or not 2 <= slots <= MOST_SLOTS:
                raise ValueError("it has another format")
            items = items_of(form, memory.bytes[_HEAD.size : _HEAD.size + length].tobytes(), nbytes)
            ring = Ring(slots, bool(is_queue), readers)
            place = _place_of(ring, items)
            if items.nbytes != nbytes or memory.bytes.nbytes != place.first_slot + slots * place.slot_bytes:
                raise ValueError("its sizes do not agree")
        except (OSError, ValueError, TypeError, struct.error) as error:  # OSError: a schema of pyarrow
            why = f"the memory of the handle is not a channel: {error}"
            raise HandleFormatError("channel()", why, "pass channel.handle unchanged") from error
        return cls(memory, ring, items, bool(drops))

    def __reduce__(self) -> Any:
        return Channel.from_handle, (self.handle,)

    def __repr__(self) -> str:
        mode = MODES[not self._ring.is_queue]
        return f"<zerocopy.Channel {mode}: {self._ring.slots} slots of {self._items.nbytes:,} bytes>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        with self._lock, suppress(ChannelClosedError):  # readers get this error after the last item, too
            self._begin()
            self._end()

    @property
    def handle(self) -> str:
        """Text that opens the channel in another process of this machine and user: ``zc.channel(handle)``.

        It is valid while this process keeps the channel. A `Channel` can be pickled too.
        """
        return _PREFIX + base64.urlsafe_b64encode(self._memory.own_location().pack()).decode()

    @property
    def nbytes(self) -> int:
        """Bytes of one item."""
        return self._items.nbytes

    # -- writing ---------------------------------------------------------------

    @public
    def put(self, batch: Any, timeout: float | None = None) -> bool:
        """Copy a batch into a slot, and publish it.

        Parameters
        ----------
        batch : dict of arrays, or table
            Arrays of any framework with the shapes and dtypes of the fields; Python numbers for fields of
            shape (). In a channel of tables, a table of any framework.
        timeout : float, optional
            Seconds to wait for a free slot. Default: without a limit.

        Returns
        -------
        bool
            False if no slot was free, and the channel was created with ``full="drop"``.

        Raises
        ------
        ChannelTimeoutError
            No slot became free in time.
        ChannelClosedError
            All readers of the queue have ended, or this object was closed.
        UnsupportedConversionError, LossyConversionError
            The batch, or a Python number in it, does not fit the fields; nothing is published.
        """
        claim = _Claim()
        try:
            self._claim(claim, "put", timeout)
            if claim.slot is None:
                return False
            self._items.write(self._bytes(claim.slot), batch)
            self._publish(claim)
        except BaseException as error:
            self._abandon(claim)
            if isinstance(error, (LossyConversionError, UnsupportedConversionError)):
                raise error.with_context(asked=f"{self!r}.put()") from error.__cause__
            raise
        return True

    @contextmanager
    def slot(self, timeout: float | None = None) -> Iterator[Slot]:
        """Give the arrays of a free slot to write to; the item is published at the end of the block.

        If the block raises, nothing is published. The arrays must not be used after the block: a later
        item is written there.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait for a free slot. Default: without a limit.

        Yields
        ------
        Slot
            A dict of ndarrays by the name of the field; its ``to("torch")`` gives tensors over the slot.

        Raises
        ------
        ChannelTimeoutError, ChannelClosedError
            As `put`; with ``full="drop"`` too, since there is no slot to give.
        UnsupportedConversionError
            It is a channel of tables.
        """
        if not isinstance(self._items, Fields):
            why = "the items are tables, which cannot be written in place"
            raise UnsupportedConversionError(f"{self!r}.slot()", why, "call channel.put(table)")
        claim = _Claim()
        try:
            self._claim(claim, "slot", timeout)
            if claim.slot is None:
                why = f"all {self._ring.slots} slots are in use"
                remedy = "catch this error to drop the item"
                raise ChannelTimeoutError(f"{self!r}.slot()", why, remedy, code="channel-full")
            yield Slot(self._items.views(self._bytes(claim.slot)))
            self._publish(claim)
        except BaseException:
            self._abandon(claim)
            raise

    def close(self) -> None:
        """End writing: readers finish after the last item, and this object puts no other one.

        A channel to which no process has written is closed too. Without effect if another process writes, or
        was the last to write.
        """
        with self._lock:
            self._is_closed, writer = True, self._writer
            if writer is None or not writer.holder.is_usable:
                if self._memory.words(self._place.words, self._ring.words)[protocol.WRITERS]:
                    return
                try:
                    writer = self._begin()
                except ChannelClosedError:
                    return
            writer.holder.words[CLOSED] = 1
            writer.holder.wake(HEAD)
            self._end()

    def _end(self) -> None:
        """Release the writer's lock; slots that are being written stay locked until their blocks end."""
        writer, self._writer = self._writer, None
        if writer is not None and writer.holder.is_usable:
            writer.holder.unlock(protocol.WRITER)
            if not writer.claimed:
                writer.holder.close()

    def _begin(self) -> _Writer:
        """Return the writer of this process; the lock is held."""
        writer = self._writer
        if writer is not None and writer.holder.is_usable:
            return writer
        holder = self._new_holder()
        last = protocol.begin_writing(self._ring, holder)
        if last is None:
            holder.close()
            why = "another process, or another Channel of this one, writes to it"
            remedy = "put all items by one Channel, or end the other writer first"
            raise ChannelClosedError(f"{self!r}", why, remedy)
        self._writer = writer = _Writer(holder, last)
        return writer

    def _claim(self, claim: _Claim, call: str, timeout: float | None) -> None:
        """Claim a slot; without one if items are dropped."""
        end = deadline(timeout)
        is_waiting = False
        while True:
            with self._lock:
                if self._is_closed or (claim.writer is not None and self._writer is not claim.writer):
                    raise self._was_closed(call)
                claim.writer = writer = self._begin()
                holder = writer.holder
                holder.words[CLOSED] = 0
                taken = protocol.consumed(self._ring, holder) if self._ring.is_queue else 0
                if taken is None:
                    why = "all readers of the queue have ended"
                    remedy = "start a reader, and put the item again"
                    raise ChannelClosedError(f"{self!r}.{call}()", why, remedy)
                # Before the claim: a reader that frees a slot after it wakes this process.
                holder.words[WAITING] = int(is_waiting)
                freed = holder.words[FREED]
                claim.slot = protocol.claim(self._ring, holder, taken, writer.claimed)
                if claim.slot is not None:
                    writer.claimed.add(claim.slot)
                    holder.words[WAITING] = 0
                    return
                if self._drops:
                    holder.words[DROPPED] += 1
                    return
            left = LONGEST_WAIT if end is None else end - time.monotonic()
            if left <= 0:
                holder.words[WAITING] = 0
                raise self._is_full(holder, call, timeout)
            if is_waiting:
                holder.wait(FREED, freed, left)
            is_waiting = True

    def _is_full(self, holder: Holder, call: str, timeout: float | None) -> ChannelTimeoutError:
        stats = read_stats(self._ring, holder)
        readers = ", ".join(f"process {each.pid} has taken {each.taken}" for each in stats.readers)
        why = f"no slot became free within {timeout:g} seconds: {stats.published} items were put"
        why += f", {readers}" if readers else ""
        if self._ring.is_queue and not stats.readers:
            why += ", and no reader has registered"
        remedy = 'let readers drop batches, or create the channel with more slots= or full="drop"'
        return ChannelTimeoutError(f"{self!r}.{call}()", why, remedy, code="channel-full")

    def _was_closed(self, call: str) -> ChannelClosedError:
        why = "this Channel was closed before the item was put"
        remedy = "close it after the last item; zc.channel(channel.handle) gives another writer"
        return ChannelClosedError(f"{self!r}.{call}()", why, remedy)

    def _bytes(self, slot: int) -> Array:
        first = self._place.first_slot + slot * self._place.slot_bytes
        return self._memory.bytes[first : first + self._items.nbytes]

    def _publish(self, claim: _Claim) -> None:
        with self._lock:
            writer, slot = claim.writer, claim.slot
            if writer is None or slot is None or self._writer is not writer or not writer.holder.is_usable:
                raise self._was_closed("put")
            number = writer.last + 1
            try:
                protocol.publish(self._ring, writer.holder, slot, number)
            except BaseException:  # such as KeyboardInterrupt: half of it would stop the queue
                protocol.publish(self._ring, writer.holder, slot, number)
                raise
            finally:
                writer.last, claim.slot = number, None
                writer.claimed.discard(slot)
            writer.holder.wake(HEAD)

    def _abandon(self, claim: _Claim) -> None:
        with self._lock:
            writer, slot = claim.writer, claim.slot
            if writer is not None and slot is not None and writer.holder.is_usable:
                writer.holder.unlock(self._ring.slot_byte(slot))
                writer.claimed.discard(slot)
                if self._writer is not writer and not writer.claimed:
                    writer.holder.close()

    # -- reading ---------------------------------------------------------------

    @public
    def read(self, to: Any = "numpy", *, timeout: float | None = None, **options: Any) -> Reader:
        """Return an iterator of the items, as batches of a framework.

        Parameters
        ----------
        to : str, module or type
            As in :func:`zerocopy.convert`. In a channel of tables, ``"pyarrow"`` is the default.
        timeout : float, optional
            Seconds to wait for each item. Default: without a limit.
        **options
            Options of :func:`zerocopy.convert`; ``copy=True`` gives batches that hold no slot.

        Returns
        -------
        Reader
            In a queue, it gets every item, beginning after those that all earlier readers had taken when
            the writer last put one, and after those that ended readers of this object took. Otherwise it
            gets the newest item each time.

        Raises
        ------
        ChannelTimeoutError
            By the iterator: no item arrived in time, or this process holds all slots.
        ChannelClosedError
            By the iterator: the writer has ended without :meth:`close`.
        """
        target = "pyarrow" if to == "numpy" and self._items.form != FIELDS else to
        return Reader(self._memory, self._ring, self._items, self._place, target, timeout, options)

    @public
    def latest(self, to: Any = "numpy", *, timeout: float | None = None, **options: Any) -> Any:
        """Return the newest item, and wait only if there is none yet.

        Parameters
        ----------
        to : str, module or type
            As in :func:`zerocopy.convert`.
        timeout : float, optional
            Seconds to wait for the first item. Default: without a limit.
        **options
            Options of :func:`zerocopy.convert`.

        Returns
        -------
        object
            A dict of arrays, or a table, that aliases the slot. Two results of one item share its memory.

        Raises
        ------
        OptionError
            The channel is a queue.
        ChannelTimeoutError
            No item arrived in time.
        """
        if self._ring.is_queue:
            why = "the channel is a queue, whose readers get every item"
            raise OptionError(
                "Channel.latest()", why, 'iterate over channel.read(), or create it with mode="latest"'
            )
        given = ((name, type(value), value) for name, value in sorted(options.items()))  # 0 == False
        key = (os.getpid(), to, *given) if _is_hashable(to, options) else None
        reader = self._readers.get(key)
        if reader is None:
            reader = self.read(to, **options)
            if key is not None and len(self._readers) < _MOST_READERS:
                self._readers[key] = reader
        try:
            return reader.newest(timeout)
        except (ChannelClosedError, ChannelTimeoutError) as error:
            raise error.with_context(asked="Channel.latest()") from error.__cause__

    def stats(self) -> ChannelStats:
        """Return the state of the channel, now.

        Returns
        -------
        ChannelStats
            Items that were put and dropped, the slots, and the readers of a queue.
        """
        with closing(self._new_holder()) as holder:
            return read_stats(self._ring, holder)

    def _new_holder(self) -> Holder:
        return Holder(self._memory, self._place.words, self._ring.words)


class _Writer:
    """The holder of the writer's lock in this process, with the number of the last item."""

    def __init__(self, holder: Holder, last: int) -> None:
        self.holder, self.last = holder, last
        self.claimed: set[int] = set()


class _Claim:
    """A slot that is being written, and the writer that has claimed it."""

    slot: int | None = None
    writer: _Writer | None = None


def _is_hashable(to: Any, options: dict[str, Any]) -> bool:
    try:
        hash((to, *options.values()))
    except TypeError:
        return False
    return True


def _place_of(ring: Ring, items: Items) -> Place:
    words = _pages(_HEAD.size + len(items.header))
    return Place(words, words + _pages(ring.words * 8), _pages(items.nbytes))


def _pages(nbytes: int) -> int:
    return -(-nbytes // PAGE) * PAGE


def _parse(handle: str) -> Location:
    try:
        prefix, data = handle[: len(_PREFIX)], base64.urlsafe_b64decode(handle[len(_PREFIX) :])
        if prefix != _PREFIX or len(data) != LOCATION_BYTES:
            raise ValueError("it has another form")
        return Location.unpack(data)
    except (ValueError, binascii.Error) as error:
        why = f"{shown(handle)} is not the handle of a channel"
        raise HandleFormatError("channel()", why, "pass channel.handle unchanged") from error
