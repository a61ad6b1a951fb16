"""The protocol of a channel's slots: which process may write to a slot, and which may read it.

Each function gets the memory of the channel, and accesses shared state through it alone: words, and locks of
bytes. The model in tests/helpers/channel_model.py runs the same functions on a simulated memory, in every
interleaving, where a process may be killed before an access. The model knows a process by its variables: a
function keeps each result of an access in one, and makes no access in a comprehension.

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

from collections.abc import Collection
from typing import NamedTuple, Protocol

#: The most processes that read one queue at the same time.
ENTRIES = 64
#: Words before those of the slots: the number of the last item; whether the channel is closed; how often a
#: writer began; the number up to which all readers of a queue had taken the items, which may be overwritten.
#: The last three are not part of the protocol: items that were not put because no slot was free; whether the
#: writer waits for a slot, and the word whose waiters a reader then wakes.
HEAD, CLOSED, WRITERS, TAKEN, DROPPED, WAITING, FREED = range(7)
_FIRST_SLOT = 8
#: Words of a reader's entry: 1 + the number of the last item it took (0: no reader); registrations; process;
#: whether it, or a later entry, was ever taken.
_POSITION, _REGISTRATIONS, _PID, _USED, _ENTRY_WORDS = range(5)
#: States of a channel: an item may come; the writer has ended without closing it; it was closed.
OPEN, ABANDONED, FINISHED = range(3)
#: Locked bytes: the writer's, those of slots, those of entries.
WRITER = 0


class Words(Protocol):
    """The words of a channel: each is read and written whole."""

    def __getitem__(self, word: int, /) -> int: ...
    def __setitem__(self, word: int, value: int, /) -> None: ...


class Memory(Protocol):
    """The shared state of a channel, as one holder of locks accesses it."""

    @property
    def words(self) -> Words: ...

    def lock(self, byte: int, shared: bool = False) -> bool:
        """Take the lock of a byte, shared or exclusive; False if another holder prevents it."""

    def is_locked(self, byte: int) -> bool:
        """Whether another holder has the lock of a byte."""

    def unlock(self, byte: int) -> None:
        """Release the lock of a byte."""


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


# -- the writer -------------------------------------------------------------------------------------------


def begin_writing(ring: Ring, memory: Memory) -> int | None:
    """Take the writer's lock, and return the number of the last item, or None if another process writes."""
    words = memory.words
    if not memory.lock(WRITER):
        return None
    words[WRITERS] += 1
    last = words[HEAD]
    for slot in range(ring.slots):  # a writer that was killed had published an item, and not HEAD yet
        last = max(last, words[ring.number_word(slot)])
    words[HEAD] = last
    return last


def consumed(ring: Ring, memory: Memory) -> int | None:
    """Return the number up to which all readers of a queue have taken the items, or None if all have ended.

    It is 0 if fewer readers have registered than must. Entries of readers that have ended are freed.
    """
    words = memory.words
    registered, least = 0, -1
    for entry in range(ENTRIES):
        if not words[ring.entry_word(entry, _USED)]:
            break
        registered += words[ring.entry_word(entry, _REGISTRATIONS)]
        position = words[ring.entry_word(entry, _POSITION)]
        if position and not _has_freed(ring, memory, entry):
            least = position - 1 if least < 0 else min(least, position - 1)
    if registered < ring.readers:
        return 0
    return None if least < 0 else least


def _has_freed(ring: Ring, memory: Memory, entry: int) -> bool:
    """Whether the reader of an entry has ended; if so, free the entry."""
    byte = ring.entry_byte(entry)
    if memory.is_locked(byte) or not memory.lock(byte):
        return False
    memory.words[ring.entry_word(entry, _POSITION)] = 0
    memory.unlock(byte)
    return True


def claim(ring: Ring, memory: Memory, taken: int, claimed: Collection[int] = ()) -> int | None:
    """Return a slot to write to, locked exclusively, or None if none is free.

    Parameters
    ----------
    ring : Ring
    memory : Memory
    taken : int
        Of a queue: the number up to which all readers have taken the items.
    claimed : collection of int
        Slots that this writer has claimed already, whose locks it would get again.
    """
    words = memory.words
    if ring.is_queue and taken > words[TAKEN]:
        words[TAKEN] = taken
    numbers = []
    for slot in range(ring.slots):
        numbers.append((words[ring.number_word(slot)], slot))
    newest = max(numbers)[0]
    # A queue writes to the slot that was read last, whose memory is in caches: 4 MB take 0.2 ms, not 0.3. The
    # newest item is overwritten last, so that readers have time to lease it.
    numbers.sort(reverse=ring.is_queue)
    for number, slot in numbers:
        if slot in claimed or (number > taken if ring.is_queue else 0 < number == newest):
            continue
        if not memory.lock(ring.slot_byte(slot)):
            continue  # a reader has leased it
        if ring.is_queue and number and _is_needed(ring, memory, number):
            memory.unlock(ring.slot_byte(slot))
            return None
        words[ring.number_word(slot)] = 0
        return slot
    return None


def _is_needed(ring: Ring, memory: Memory, number: int) -> bool:
    """Whether a reader has not taken an item: one that has registered before `TAKEN` was written."""
    for entry in range(ENTRIES):
        if not memory.words[ring.entry_word(entry, _USED)]:
            break
        if 0 < memory.words[ring.entry_word(entry, _POSITION)] <= number:
            return True
    return False


def publish(ring: Ring, memory: Memory, slot: int, number: int) -> None:
    """Let readers take an item, whose number is one more than that of the last item."""
    memory.words[ring.number_word(slot)] = number
    memory.unlock(ring.slot_byte(slot))
    memory.words[HEAD] = number


# -- a reader ---------------------------------------------------------------------------------------------


def register(ring: Ring, memory: Memory, pid: int, taken: int = 0) -> tuple[int, int] | None:
    """Return the entry of a new reader of a queue, and the number of the item before its first one.

    None if all entries are taken. After the first `Ring.readers` ones, a reader omits items up to `taken`.
    """
    words = memory.words
    for entry in range(ENTRIES):
        if not memory.lock(ring.entry_byte(entry)):
            continue
        words[ring.entry_word(entry, _POSITION)] = 1
        words[ring.entry_word(entry, _PID)] = pid
        for each in range(entry, -1, -1):  # the reader of an earlier entry may have been killed before it did
            words[ring.entry_word(each, _USED)] = 1
        words[ring.entry_word(entry, _REGISTRATIONS)] += 1
        # A system call: either the writer sees the position before it overwrites an item, or `TAKEN` is read
        # after it was written.
        memory.is_locked(WRITER)
        last = words[TAKEN]
        if taken > last and _registrations(ring, memory) > ring.readers:
            last = taken
        words[ring.entry_word(entry, _POSITION)] = last + 1
        return entry, last
    return None


def _registrations(ring: Ring, memory: Memory) -> int:
    count = 0
    for entry in range(ENTRIES):
        if not memory.words[ring.entry_word(entry, _USED)]:
            break
        count += memory.words[ring.entry_word(entry, _REGISTRATIONS)]
    return count


def leave(ring: Ring, memory: Memory, entry: int) -> None:
    """End a reader of a queue: the writer no longer keeps items for it."""
    memory.words[ring.entry_word(entry, _POSITION)] = 0
    memory.unlock(ring.entry_byte(entry))


def take_next(ring: Ring, memory: Memory, entry: int, last: int) -> Taken | None:
    """Lease the item after the item `last`, or return None if it is not there yet."""
    words = memory.words
    number = last + 1
    for slot in range(ring.slots):
        if words[ring.number_word(slot)] == number:
            if not _has_leased(ring, memory, slot, number):
                return None
            words[ring.entry_word(entry, _POSITION)] = number + 1
            return Taken(slot, number)
    return None


def take_newest(ring: Ring, memory: Memory, last: int) -> Taken | None:
    """Lease the newest item if its number is greater than `last`, or return None."""
    number, slot = last, -1
    for each in range(ring.slots):
        present = memory.words[ring.number_word(each)]
        if present > number:
            number, slot = present, each
    if slot < 0 or not _has_leased(ring, memory, slot, number):
        return None
    return Taken(slot, number)


def _has_leased(ring: Ring, memory: Memory, slot: int, number: int) -> bool:
    if not memory.lock(ring.slot_byte(slot), shared=True):
        return False  # it is being written
    if memory.words[ring.number_word(slot)] != number:
        memory.unlock(ring.slot_byte(slot))
        return False
    return True


def reader_at(ring: Ring, memory: Memory, entry: int) -> tuple[int, int]:
    """Return the process and the position of the reader of an entry; position 0 without one."""
    if not memory.is_locked(ring.entry_byte(entry)):
        return 0, 0
    return memory.words[ring.entry_word(entry, _PID)], memory.words[ring.entry_word(entry, _POSITION)]


def state(memory: Memory) -> int:
    """Return `OPEN`, `ABANDONED` or `FINISHED`.

    A reader that then finds no item has taken all items of the writers up to this access.
    """
    words = memory.words
    if words[CLOSED]:
        return FINISHED
    return ABANDONED if words[WRITERS] and not memory.is_locked(WRITER) else OPEN
