"""The protocol of a channel's slots: which process may write to a slot, and which may read it.

Each function is a generator. It yields one access to shared state at a time, and receives the result:
`Load` and `Store` of a word, `Lock`, `Probe` and `Unlock` of a byte. `perform` runs it on the memory of a
channel. The model in tests/helpers/channel_model.py runs the same generators on a simulated memory, in every
interleaving, where a process may be killed before an access.

Locks are open file description locks (fcntl(2)): the kernel releases them when a process ends, and system
calls order the accesses to memory before and after them. Each word is written by one process at a time,
except `FREED`, on which nothing but the length of a wait depends, and `_USED`, to which all write 1:

- The holder of the writer's lock writes `HEAD` and, while it holds the exclusive lock of a slot, the slot's
  number.
- A slot's number is 0 while the slot is written. A killed writer leaves 0, so that no reader gets a torn
  item.
- A reader holds the shared lock of a slot, its lease, while it uses the slot's memory. It compares the
  number before and after it takes the lock.
- In a queue a reader also holds the exclusive lock of its entry, and writes its position there after it has
  the lease. An entry whose lock is free belongs to a reader that has ended.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple, Protocol, TypeVar

T = TypeVar("T")

#: The most processes that read one queue at the same time.
ENTRIES = 64
#: Words before those of the slots: the number of the last item; whether the channel is closed; how often a
#: writer began. The last three are not part of the protocol: items that were not put because no slot was
#: free; whether the writer waits for a slot, and the word whose waiters a reader then wakes.
HEAD, CLOSED, WRITERS, DROPPED, WAITING, FREED = range(6)
_FIRST_SLOT = 8
#: Words of a reader's entry: 1 + the number of the last item it took (0: no reader); registrations; process;
#: whether it, or a later entry, was ever taken.
_POSITION, _REGISTRATIONS, _PID, _USED, _ENTRY_WORDS = range(5)
#: Locked bytes: the writer's, those of slots, those of entries.
WRITER = 0


class Load(NamedTuple):
    """Read a word."""

    word: int


class Store(NamedTuple):
    """Write a word."""

    word: int
    value: int


class Lock(NamedTuple):
    """Take the lock of a byte, shared or exclusive, unless another holder prevents it."""

    byte: int
    shared: bool = False


class Probe(NamedTuple):
    """Whether another process holds the lock of a byte."""

    byte: int


class Unlock(NamedTuple):
    """Release the lock of a byte."""

    byte: int


Access = Load | Store | Lock | Probe | Unlock
Steps = Generator[Access, int, T]


class Memory(Protocol):
    """Carries out an access, and returns the word, or whether the lock was taken."""

    def __call__(self, access: Access) -> int: ...


class Taken(NamedTuple):
    """A slot that a reader has leased, and the number of its item."""

    slot: int
    number: int


class Ring(NamedTuple):
    """The shape of a channel, the same in all its processes.

    Attributes
    ----------
    slots : int
    is_queue : bool
        Whether each reader gets every item; otherwise each gets the newest.
    readers : int
        How many readers of a queue must have registered before an item may be overwritten.
    """

    slots: int
    is_queue: bool
    readers: int

    @property
    def words(self) -> int:
        """How many words of 8 bytes the protocol needs."""
        return _FIRST_SLOT + self.slots + ENTRIES * _ENTRY_WORDS

    def number_word(self, slot: int) -> int:
        """Return the word that holds the number of a slot's item."""
        return _FIRST_SLOT + slot

    def slot_byte(self, slot: int) -> int:
        """Return the byte whose lock is a slot's."""
        return WRITER + 1 + slot

    def entry_byte(self, entry: int) -> int:
        """Return the byte whose lock is that of a reader's entry."""
        return WRITER + 1 + self.slots + entry

    def entry_word(self, entry: int, field: int) -> int:
        """Return a word of a reader's entry."""
        return _FIRST_SLOT + self.slots + entry * _ENTRY_WORDS + field


def perform(steps: Steps[T], memory: Memory) -> T:
    """Run a function of the protocol on a memory, and return its result."""
    try:
        access = next(steps)
        while True:
            access = steps.send(memory(access))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


# -- the writer -------------------------------------------------------------------------------------------


def begin_writing(ring: Ring) -> Steps[int | None]:
    """Take the writer's lock, and return the number of the last item, or None if another process writes."""
    if not (yield Lock(WRITER)):
        return None
    yield Store(WRITERS, (yield Load(WRITERS)) + 1)
    last = yield Load(HEAD)
    for slot in range(ring.slots):  # a writer that was killed had published an item, and not HEAD yet
        last = max(last, (yield Load(ring.number_word(slot))))
    return last


def claim(ring: Ring, claimed: frozenset[int] = frozenset()) -> Steps[int | None]:
    """Return a slot to write to, locked exclusively, or None if none is free.

    `claimed` are slots that this writer has claimed already, whose locks it would get again.
    """
    numbers = []
    for slot in range(ring.slots):
        numbers.append(((yield Load(ring.number_word(slot))), slot))
    newest = max(numbers)[0]
    for number, slot in sorted(numbers):
        if slot in claimed:
            continue
        if number and ring.is_queue and not (yield from _is_consumed(ring, number)):
            return None  # overwriting a later item would leave a gap for readers that begin with this one
        if number and not ring.is_queue and number == newest:
            continue
        if (yield Lock(ring.slot_byte(slot))):
            yield Store(ring.number_word(slot), 0)
            return slot
        # It is leased. A reader that registers now would take its item, and wait for an overwritten one.
        if ring.is_queue:
            yield Store(ring.number_word(slot), 0)
    return None


def publish(ring: Ring, slot: int, number: int) -> Steps[None]:
    """Let readers take an item, whose number is one more than that of the last item."""
    yield Store(ring.number_word(slot), number)
    yield Unlock(ring.slot_byte(slot))
    yield Store(HEAD, number)


def abandon(ring: Ring, slot: int) -> Steps[None]:
    """Release a claimed slot without an item."""
    yield Unlock(ring.slot_byte(slot))


def live_readers(ring: Ring) -> Steps[int | None]:
    """Return how many readers of a queue are alive, or None if fewer have registered than must.

    Entries of readers that have ended are freed.
    """
    registered, alive = 0, 0
    for entry in range(ENTRIES):
        if not (yield Load(ring.entry_word(entry, _USED))):
            break
        registered += yield Load(ring.entry_word(entry, _REGISTRATIONS))
        if (yield Load(ring.entry_word(entry, _POSITION))):
            alive += not (yield from _has_freed(ring, entry))
    return alive if registered >= ring.readers else None


def _is_consumed(ring: Ring, number: int) -> Steps[bool]:
    registered = 0
    for entry in range(ENTRIES):
        if not (yield Load(ring.entry_word(entry, _USED))):
            break
        registered += yield Load(ring.entry_word(entry, _REGISTRATIONS))
        position = yield Load(ring.entry_word(entry, _POSITION))
        if position and position - 1 < number and not (yield from _has_freed(ring, entry)):
            return False
    return registered >= ring.readers


def _has_freed(ring: Ring, entry: int) -> Steps[bool]:
    """Whether the reader of an entry has ended; if so, free the entry."""
    if not (yield Lock(ring.entry_byte(entry))):
        return False
    yield Store(ring.entry_word(entry, _POSITION), 0)
    yield Unlock(ring.entry_byte(entry))
    return True


# -- a reader ---------------------------------------------------------------------------------------------


def register(ring: Ring, pid: int) -> Steps[int | None]:
    """Return the entry of a new reader of a queue, or None if all entries are taken."""
    for entry in range(ENTRIES):
        if not (yield Lock(ring.entry_byte(entry))):
            continue
        yield Store(ring.entry_word(entry, _POSITION), 1)
        yield Store(ring.entry_word(entry, _PID), pid)
        for each in range(entry, -1, -1):  # the reader of an earlier entry may have been killed before it did
            yield Store(ring.entry_word(each, _USED), 1)
        count = ring.entry_word(entry, _REGISTRATIONS)
        yield Store(count, (yield Load(count)) + 1)
        return entry
    return None


def leave(ring: Ring, entry: int) -> Steps[None]:
    """End a reader of a queue: the writer no longer keeps items for it."""
    yield Store(ring.entry_word(entry, _POSITION), 0)
    yield Unlock(ring.entry_byte(entry))


def take_next(ring: Ring, entry: int, last: int) -> Steps[Taken | None]:
    """Lease the item after the item `last` (0: the oldest), or return None if it is not there yet."""
    number, slot = 0, 0
    for each in range(ring.slots):
        present = yield Load(ring.number_word(each))
        if present == last + 1 if last else present and (not number or present < number):
            number, slot = present, each
    if not number or not (yield from _has_leased(ring, slot, number)):
        return None
    if not last:  # the writer may have published while the words were read: is there an older item?
        for each in range(ring.slots):
            present = yield Load(ring.number_word(each))
            if present and present < number:
                yield Unlock(ring.slot_byte(slot))
                return None
    yield Store(ring.entry_word(entry, _POSITION), number + 1)
    return Taken(slot, number)


def take_newest(ring: Ring, last: int) -> Steps[Taken | None]:
    """Lease the newest item if its number is greater than `last`, or return None."""
    number, slot = last, -1
    for each in range(ring.slots):
        present = yield Load(ring.number_word(each))
        if present > number:
            number, slot = present, each
    if slot < 0 or not (yield from _has_leased(ring, slot, number)):
        return None
    return Taken(slot, number)


def _has_leased(ring: Ring, slot: int, number: int) -> Steps[bool]:
    if not (yield Lock(ring.slot_byte(slot), shared=True)):
        return False  # it is being written
    if (yield Load(ring.number_word(slot))) != number:
        yield Unlock(ring.slot_byte(slot))
        return False
    return True


def reader_at(ring: Ring, entry: int) -> Steps[tuple[int, int]]:
    """Return the process and the position of the reader of an entry; position 0 without one."""
    if not (yield Probe(ring.entry_byte(entry))):
        return 0, 0
    return (yield Load(ring.entry_word(entry, _PID))), (yield Load(ring.entry_word(entry, _POSITION)))


def is_over() -> Steps[bool]:
    """Whether no writer will publish another item: it has closed the channel, or has ended without."""
    if (yield Load(CLOSED)):
        return True
    return bool((yield Load(WRITERS)) and not (yield Probe(WRITER)))


def release(ring: Ring, slot: int) -> Steps[None]:
    """End a lease."""
    yield Unlock(ring.slot_byte(slot))
