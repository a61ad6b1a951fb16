"""A model of a channel: the functions of the protocol on a simulated memory, in every interleaving.

``explore`` visits each reachable state of some processes, each of which may be killed before any access, and
checks in each state that no item is torn, repeated or lost, and that the processes that are left can finish.

A program is an ordinary function of a `Replay`, which returns the results of its first accesses and stops it
at the next one. The place of a process is that access, with the line and the variables of each function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from zerocopy.channels import ring as protocol
from zerocopy.channels.ring import Ring

#: Words of a slot's data, behind those of the protocol: a torn item has different ones.
DATA = 2
#: The data of an item that is not published.
TORN = 255


class Broken(AssertionError):
    """A promise does not hold in some interleaving."""


class Access(NamedTuple):
    """An access to shared state: its kind, the word or byte, the value of a word that is written."""

    kind: str
    place: int = 0
    value: int = 0


class _Stopped(Exception):
    """Stops a program before an access."""


class Replay:
    """The memory of a program that is run again with the results of its accesses, up to the next access."""

    def __init__(self, results: tuple[Any, ...]) -> None:
        self._results = iter(results)
        self.stopped_at: Access | None = None

    def __repr__(self) -> str:
        return "memory"  # a variable of the program that does not tell places apart

    @property
    def words(self) -> Replay:
        return self

    def __getitem__(self, word: int) -> int:
        return self._access(Access("load", word))

    def __setitem__(self, word: int, value: int) -> None:
        self._access(Access("store", word, value))

    def lock(self, byte: int, shared: bool = False) -> bool:
        return self._access(Access("lock shared" if shared else "lock", byte))

    def is_locked(self, byte: int) -> bool:
        return self._access(Access("probe", byte))

    def unlock(self, byte: int) -> None:
        self._access(Access("unlock", byte))

    def wait(self) -> None:
        """Let other processes run."""
        self._access(Access("wait"))

    def _access(self, access: Access) -> Any:
        for result in self._results:
            return result
        self.stopped_at = access
        raise _Stopped


def write(ring: Ring, memory: Replay, count: int, closes: bool = True) -> None:
    """Put `count` items whose data is their number, and close."""
    last = begin(ring, memory)
    for number in range(last + 1, last + 1 + count):
        slot = claim(ring, memory)
        if slot is None:
            return
        fill(ring, memory, slot, number)
        protocol.publish(ring, memory, slot, number)
    if closes:
        memory[protocol.CLOSED] = 1


def write_on(ring: Ring, memory: Replay, count: int) -> None:
    """Put `count` items; when all readers have ended, wait for another one."""
    last = begin(ring, memory)
    for number in range(last + 1, last + 1 + count):
        slot = claim(ring, memory)
        while slot is None:
            memory.wait()
            slot = claim(ring, memory)
        fill(ring, memory, slot, number)
        protocol.publish(ring, memory, slot, number)


def write_after(ring: Ring, memory: Replay, count: int) -> None:
    """Put `count` items and close, after another writer has begun and ended."""
    while not memory[protocol.WRITERS]:
        memory.wait()
    write(ring, memory, count)


def write_two_slots(ring: Ring, memory: Replay) -> None:
    """Claim a slot, put an item in another one, then abandon the first, and end without closing."""
    last = begin(ring, memory)
    first = claim(ring, memory)
    if first is None:
        return
    memory[data_word(ring, first, 0)] = TORN
    second = claim(ring, memory, first)
    if second is None:
        return
    fill(ring, memory, second, last + 1)
    protocol.publish(ring, memory, second, last + 1)
    memory[data_word(ring, first, 1)] = TORN
    memory.unlock(ring.slot_byte(first))


def write_late(ring: Ring, memory: Replay) -> None:
    """Claim a slot, end without closing, and write to the slot after that."""
    begin(ring, memory)
    slot = claim(ring, memory)
    memory.unlock(protocol.WRITER)
    if slot is not None:
        fill(ring, memory, slot, TORN)
        memory.unlock(ring.slot_byte(slot))


def begin(ring: Ring, memory: Replay) -> int:
    """Wait until no other process writes, and return the number of the last item."""
    last = protocol.begin_writing(ring, memory)
    while last is None:
        memory.wait()
        last = protocol.begin_writing(ring, memory)
    return last


def claim(ring: Ring, memory: Replay, *claimed: int) -> int | None:
    """Wait for a slot, and return it, or None if all readers of a queue have ended."""
    while True:
        taken = protocol.consumed(ring, memory) if ring.is_queue else 0
        if taken is None:
            return None
        slot = protocol.claim(ring, memory, taken, claimed)
        if slot is not None:
            return slot
        memory.wait()


def fill(ring: Ring, memory: Replay, slot: int, number: int) -> None:
    """Write an item's data."""
    for each in range(DATA):
        memory[data_word(ring, slot, each)] = number


def read_queue(ring: Ring, memory: Replay, count: int, closed: bool = False) -> None:
    """Take `count` items, or fewer if the channel has ended, and check that none is missing.

    The lease of the first is kept until the end. With `closed`, other writers continue until it is closed.
    """
    registered = protocol.register(ring, memory, 1)
    assert registered is not None
    (entry, last), kept = registered, None
    while count:
        state = protocol.state(memory)
        taken = protocol.take_next(ring, memory, entry, last)
        if taken is None:
            if state > protocol.OPEN + closed:
                for slot in range(ring.slots):
                    if memory[ring.number_word(slot)] > last:
                        raise Broken(f"the channel has ended, and an item after item {last} was not taken")
                break
            memory.wait()
            continue
        check(ring, memory, taken, closed)
        if kept is None and not closed:
            kept = taken.slot
        else:
            release(ring, memory, taken.slot)
        last, count = taken.number, count - 1
    if kept is not None:
        release(ring, memory, kept)
    protocol.leave(ring, memory, entry)


def read_queue_again(ring: Ring, memory: Replay, count: int) -> None:
    """Take an item, end, and take `count` items by another reader: none is repeated or missing."""
    registered = protocol.register(ring, memory, 1)
    assert registered is not None
    entry, last = registered
    while (taken := protocol.take_next(ring, memory, entry, last)) is None:
        memory.wait()
    check(ring, memory, taken, False)
    release(ring, memory, taken.slot)
    protocol.leave(ring, memory, entry)
    registered = protocol.register(ring, memory, 1, taken.number)
    assert registered is not None
    entry, last = registered
    if last < taken.number:
        raise Broken(f"item {taken.number} is read again")
    while count:
        taken = protocol.take_next(ring, memory, entry, last)
        if taken is None:
            memory.wait()
            continue
        check(ring, memory, taken, False)
        release(ring, memory, taken.slot)
        last, count = taken.number, count - 1
    protocol.leave(ring, memory, entry)


def read_newest(ring: Ring, memory: Replay, count: int, closed: bool = False) -> None:
    """Take `count` newest items, or fewer if the channel has ended, and check that numbers rise."""
    last = 0
    while count:
        state = protocol.state(memory)
        taken = protocol.take_newest(ring, memory, last)
        if taken is None:
            if state > protocol.OPEN + closed:
                break
            memory.wait()
            continue
        if taken.number <= last:
            raise Broken(f"item {taken.number} follows item {last}")
        check(ring, memory, taken, closed)
        release(ring, memory, taken.slot)
        last, count = taken.number, count - 1


def release(ring: Ring, memory: Replay, slot: int) -> None:
    """End a lease."""
    memory.unlock(ring.slot_byte(slot))


def check(ring: Ring, memory: Replay, taken: protocol.Taken, is_only: bool) -> None:
    """Read an item's data; `is_only`: check that no other item has its number."""
    for each in range(DATA):
        value = memory[data_word(ring, taken.slot, each)]
        if value != taken.number:
            raise Broken(f"item {taken.number} has the data of item {value}")
    for slot in range(ring.slots * is_only):
        if slot != taken.slot and memory[ring.number_word(slot)] == taken.number:
            raise Broken(f"two items have the number {taken.number}")


def data_word(ring: Ring, slot: int, each: int) -> int:
    return ring.words + slot * DATA + each


Program = Callable[[Replay], None]
#: Words, locks, and where each process is; a killed process is `KILLED`. A lock is 0, a set of shared holders
#: as bits, or `EXCLUSIVE` and the holder.
State = tuple[bytes, bytes, tuple[int, ...]]
KILLED = -1
EXCLUSIVE = 128
#: By the process: each lock without it.
_WITHOUT = [
    bytes(
        0 if lock == EXCLUSIVE + index else lock if lock >= EXCLUSIVE else lock & ~(1 << index)
        for lock in range(256)
    )
    for index in range(7)
]


class Process:
    """The places of a program: before which access, with which variables."""

    def __init__(self, program: Program, kill_from: int) -> None:
        self._program, self._kill_from = program, kill_from
        self._places: dict[Any, int] = {}
        self._after: dict[tuple[int, Any], int] = {}
        #: By place: the next access (None at the end), the results that lead there.
        self.accesses: list[Any] = []
        self._histories: list[tuple[Any, ...]] = []
        self.start = self._place(())

    def after(self, place: int, result: Any) -> int:
        """Return the place after an access that had a result."""
        key = place, result
        known = self._after.get(key)
        if known is None:
            known = self._after[key] = self._place((*self._histories[place], result))
        return known

    def can_be_killed(self, place: int) -> bool:
        return len(self._histories[place]) >= self._kill_from

    def _place(self, history: tuple[Any, ...]) -> int:
        memory = Replay(history)
        frames = []
        try:
            self._program(memory)
        except _Stopped as stop:
            trace = stop.__traceback__
            while trace is not None:
                frames.append((trace.tb_lineno, repr(trace.tb_frame.f_locals)))
                trace = trace.tb_next
            del frames[0], frames[-2:]  # this function, and those of the memory
        key = memory.stopped_at, tuple(frames)
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = len(self.accesses)
            self.accesses.append(memory.stopped_at)
            self._histories.append(history)
        return place


def explore(ring: Ring, programs: list[Program], kills: int = 1, kill_from: tuple[int, ...] = ()) -> int:
    """Visit every reachable state, with up to `kills` killed processes; return how many there are.

    Parameters
    ----------
    ring : Ring
    programs : list of callable
        Each makes the accesses of one process.
    kills : int
    kill_from : tuple of int
        For each process, the access before which it can be killed first; 0 if it is not given.

    Raises
    ------
    Broken
        In some state a promise does not hold, or the processes that are left cannot finish.
    """
    words = bytes(ring.words + ring.slots * DATA)
    locks = bytes(ring.entry_byte(protocol.ENTRIES))
    firsts = (*kill_from, *[0] * len(programs))
    processes = [Process(program, first) for program, first in zip(programs, firsts, strict=False)]
    start: State = words, locks, tuple(process.start for process in processes)
    known = {start: 0}
    before: list[list[int]] = [[]]
    ends = []
    pending = [start]
    while pending:
        state = pending.pop()
        number = known[state]
        successors = _successors(processes, state, kills)
        if not successors:
            ends.append(number)
        for successor in successors:
            place = known.get(successor)
            if place is None:
                place = known[successor] = len(before)
                before.append([])
                pending.append(successor)
            before[place].append(number)
    _check_progress(before, ends)
    return len(before)


def _check_progress(before: list[list[int]], ends: list[int]) -> None:
    can_finish = set(ends)
    while ends:
        for number in before[ends.pop()]:
            if number not in can_finish:
                can_finish.add(number)
                ends.append(number)
    if len(can_finish) != len(before):
        raise Broken(f"from {len(before) - len(can_finish)} states the processes cannot finish")


def _successors(processes: list[Process], state: State, kills: int) -> list[State]:
    words, locks, places = state
    result = []
    may_kill = places.count(KILLED) < kills
    for index, place in enumerate(places):
        access = None if place == KILLED else processes[index].accesses[place]
        if access is None:
            continue
        new_words, new_locks, answer = _accessed(words, locks, index, access)
        after = processes[index].after(place, answer)
        if processes[index].accesses[after] is None:  # the process has ended
            new_locks = new_locks.translate(_WITHOUT[index])
        result.append((new_words, new_locks, (*places[:index], after, *places[index + 1 :])))
        if may_kill and processes[index].can_be_killed(place):
            kept = locks.translate(_WITHOUT[index])
            result.append((words, kept, (*places[:index], KILLED, *places[index + 1 :])))
    return result


def _accessed(words: bytes, locks: bytes, index: int, access: Access) -> tuple[bytes, bytes, Any]:
    """Return words, locks and the result after an access of a process."""
    kind, place, value = access
    if kind == "wait":
        return words, locks, None
    if kind == "load":
        return words, locks, words[place]
    if kind == "store":
        return words[:place] + bytes((value,)) + words[place + 1 :], locks, None
    lock = _WITHOUT[index][locks[place]]
    if kind == "probe":
        return words, locks, bool(lock)
    if kind != "unlock":
        if lock >= EXCLUSIVE or (lock and kind == "lock"):
            return words, locks, False
        lock = EXCLUSIVE + index if kind == "lock" else lock | 1 << index
    answer = None if kind == "unlock" else True
    return words, locks[:place] + bytes((lock,)) + locks[place + 1 :], answer
