"""A model of a channel: the functions of the protocol on a simulated memory, in every interleaving.

``explore`` visits each reachable state of some processes, each of which may be killed before any access, and
checks in each state that no item is torn, repeated or lost, and that the processes that are left can finish.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from typing import Any

from zerocopy.channels import ring as protocol
from zerocopy.channels.ring import Load, Lock, Probe, Ring, Store, Unlock

#: Words of a slot's data, behind those of the protocol: a torn item has different ones.
DATA = 2


class Broken(AssertionError):
    """A promise does not hold in some interleaving."""


def write(ring: Ring, count: int) -> Generator[Any, Any, None]:
    """Put `count` items whose data is their number, and close."""
    last = yield from protocol.begin_writing(ring)
    while last is None:
        yield "wait"
        last = yield from protocol.begin_writing(ring)
    for number in range(last + 1, last + 1 + count):
        slot = yield from protocol.claim(ring)
        while slot is None:
            if ring.is_queue and (yield from protocol.live_readers(ring)) == 0:
                return
            yield "wait"
            slot = yield from protocol.claim(ring)
        for each in range(DATA):
            yield Store(data_word(ring, slot, each), number)
        yield from protocol.publish(ring, slot, number)
    yield Store(protocol.CLOSED, 1)


def read_queue(ring: Ring, count: int) -> Generator[Any, Any, None]:
    """Take `count` items, or fewer if the channel is closed, and check that none is missing.

    The lease of the first is kept until the end.
    """
    entry = yield from protocol.register(ring, 1)
    assert entry is not None
    last, kept = 0, None
    while count:
        is_over = yield from protocol.is_over()
        taken = yield from protocol.take_next(ring, entry, last)
        if taken is None:
            if is_over:
                for slot in range(ring.slots):
                    if (yield Load(ring.number_word(slot))) > last:
                        raise Broken(f"the channel has ended, and an item after item {last} was not taken")
                break
            yield "wait"
            continue
        if last and taken.number != last + 1:
            raise Broken(f"item {taken.number} follows item {last}")
        yield from check(ring, taken)
        if kept is None:
            kept = taken.slot
        else:
            yield from protocol.release(ring, taken.slot)
        last, count = taken.number, count - 1
    if kept is not None:
        yield from protocol.release(ring, kept)
    yield from protocol.leave(ring, entry)


def read_newest(ring: Ring, count: int) -> Generator[Any, Any, None]:
    """Take `count` newest items, or fewer if the channel is closed, and check that numbers rise."""
    last = 0
    while count:
        is_over = yield from protocol.is_over()
        taken = yield from protocol.take_newest(ring, last)
        if taken is None:
            if is_over:
                break
            yield "wait"
            continue
        if taken.number <= last:
            raise Broken(f"item {taken.number} follows item {last}")
        yield from check(ring, taken)
        yield from protocol.release(ring, taken.slot)
        last, count = taken.number, count - 1


def check(ring: Ring, taken: protocol.Taken) -> Generator[Any, Any, None]:
    """Read an item's data."""
    for each in range(DATA):
        value = yield Load(data_word(ring, taken.slot, each))
        if value != taken.number:
            raise Broken(f"item {taken.number} has the data of item {value}")


def data_word(ring: Ring, slot: int, each: int) -> int:
    return ring.words + slot * DATA + each


Program = Callable[[], Generator[Any, Any, None]]
#: Words, locks, and where each process is; a killed process is `KILLED`. A lock is 0, a set of shared holders
#: as bits, or -1 - the exclusive holder.
State = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
KILLED = -1


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
        steps, access = self._program(), None
        key: Any = None
        try:
            access = next(steps)
            for result in history:
                access = steps.send(result)
            inner: Any = steps
            frames = []
            while inner is not None:
                names = inspect.getgeneratorlocals(inner)
                variables = tuple((name, repr(value)) for name, value in names.items() if name != "programs")
                frames.append((inner.gi_frame.f_lasti, variables))
                inner = inner.gi_yieldfrom
            key = tuple(frames)
        except StopIteration:
            access = None
        steps.close()
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = len(self.accesses)
            self.accesses.append(access)
            self._histories.append(history)
        return place


def explore(ring: Ring, programs: list[Program], kills: int = 1, kill_from: tuple[int, ...] = ()) -> int:
    """Visit every reachable state, with up to `kills` killed processes; return how many there are.

    Parameters
    ----------
    ring : Ring
    programs : list of callable
        Each returns the accesses of one process.
    kills : int
    kill_from : tuple of int
        For each process, the access before which it can be killed first; 0 if it is not given.

    Raises
    ------
    Broken
        In some state a promise does not hold, or the processes that are left cannot finish.
    """
    words = (0,) * (ring.words + ring.slots * DATA)
    locks = (0,) * ring.entry_byte(protocol.ENTRIES)
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
            new_locks = tuple(_without(lock, index) for lock in new_locks)
        result.append((new_words, new_locks, (*places[:index], after, *places[index + 1 :])))
        if may_kill and processes[index].can_be_killed(place):
            kept = tuple(_without(lock, index) for lock in locks)
            result.append((words, kept, (*places[:index], KILLED, *places[index + 1 :])))
    return result


def _without(lock: int, index: int) -> int:
    return 0 if lock == -1 - index else lock & ~(1 << index) if lock > 0 else lock


def _accessed(words: Any, locks: Any, index: int, access: Any) -> tuple[Any, Any, Any]:
    if access == "wait":
        return words, locks, None
    if isinstance(access, Load):
        return words, locks, words[access.word]
    if isinstance(access, Store):
        return (*words[: access.word], access.value, *words[access.word + 1 :]), locks, None
    lock = _without(locks[access.byte], index)
    if isinstance(access, Probe):
        return words, locks, bool(lock)
    if isinstance(access, Lock):
        if lock < 0 or (lock and not access.shared):
            return words, locks, False
        lock = lock | 1 << index if access.shared else -1 - index
    else:
        assert isinstance(access, Unlock)
    answer = None if isinstance(access, Unlock) else True
    return words, (*locks[: access.byte], lock, *locks[access.byte + 1 :]), answer
