"""The protocol of a channel in every interleaving of a writer and two readers of two slots, with kills."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from helpers import channel_model as model
from helpers.channel_model import Broken

from zerocopy.channels import ring as protocol
from zerocopy.channels.ring import Ring

#: The access of the writer before which it can be killed first: readers wait for a writer that has not begun.
BEGUN = (3,)
#: A process that is not killed.
NEVER = 1 << 62


@pytest.fixture(autouse=True)
def _few_entries(monkeypatch) -> None:
    monkeypatch.setattr(protocol, "ENTRIES", 2)


def explore(mode: str, items: int, kills: int, readers: int = 2, taken: int = 2) -> int:
    ring = Ring(2, mode == "queue", 1)
    read = model.read_queue if ring.is_queue else model.read_newest
    programs = [partial(model.write, ring, count=items)] + [partial(read, ring, count=taken)] * readers
    return model.explore(ring, programs, kills, BEGUN)


@pytest.mark.parametrize(("mode", "items", "kills"), [("latest", 2, 1), ("queue", 2, 1)])
def test_no_item_is_torn_repeated_or_lost(mode: str, items: int, kills: int) -> None:
    assert explore(mode, items, kills) > 10_000


@pytest.mark.full
@pytest.mark.parametrize(("mode", "items", "kills"), [("latest", 3, 2), ("queue", 3, 1)])
def test_no_item_is_torn_repeated_or_lost_in_more_states(mode: str, items: int, kills: int) -> None:
    assert explore(mode, items, kills) > 100_000


def explore_successor(mode: str, first: Callable[..., None], items: int = 1, readers: int = 1) -> int:
    """A writer that ends without closing or is killed, and another one that continues, and is not killed."""
    ring = Ring(2, mode == "queue", 1)
    read = model.read_queue if ring.is_queue else model.read_newest
    writers = [partial(first, ring), partial(model.write_after, ring, count=items)]
    programs = writers + [partial(read, ring, count=3, closed=True)] * readers
    return model.explore(ring, programs, 1, (*BEGUN, NEVER))


def explore_again(items: int) -> int:
    """A writer that begins again if all readers have ended, and a reader that is followed by another one."""
    ring = Ring(2, True, 1)
    programs = [
        partial(model.write_on, ring, count=items),
        partial(model.read_queue_again, ring, count=items - 1),
    ]
    return model.explore(ring, programs, 0)


def test_a_reader_continues_after_an_earlier_one() -> None:
    assert explore_again(4) > 1_000


def test_an_item_that_is_overwritten_before_the_lock_is_not_leased() -> None:
    ring, locked = Ring(2, False, 1), set()
    words = [0] * ring.words
    words[ring.number_word(1)] = 5

    def lock(byte: int, shared: bool = False) -> bool:
        words[ring.number_word(1)] = 7  # by the writer, which had the lock
        locked.add(byte)
        return True

    memory = SimpleNamespace(words=words, lock=lock, unlock=locked.remove)
    assert protocol.take_newest(ring, memory, 4) is None
    assert not locked


put_one = partial(model.write, count=1, closes=False)


@pytest.mark.parametrize("mode", ["latest", "queue"])
@pytest.mark.parametrize(
    "first", [put_one, model.write_two_slots, model.write_late], ids=["one", "two", "late"]
)
def test_a_successor_continues_after_a_writer_that_ended_or_was_killed(mode: str, first) -> None:
    assert explore_successor(mode, first) > 1_000


def unchecked_lease(ring, memory, slot, number):
    return memory.lock(ring.slot_byte(slot), shared=True)


def no_lease(ring, memory, slot, number):
    return memory.words[ring.number_word(slot)] == number


def publish_before_the_number(ring, memory, slot, number):
    memory.unlock(ring.slot_byte(slot))
    memory.words[ring.number_word(slot)] = number
    memory.words[protocol.HEAD] = number


def publish_without_unlocking(ring, memory, slot, number):
    memory.words[ring.number_word(slot)] = number
    memory.words[protocol.HEAD] = number


def everything_is_consumed(ring, memory):
    return 200


def changed(name: str, old: str, new: str, number: int = 0) -> Callable[..., Any]:
    """Return a function of the protocol with another text at the place of one of its texts."""
    source = inspect.getsource(getattr(protocol, name))
    parts = source.split(old)
    assert len(parts) > number + 1, f"{name} has no {old}"
    source = old.join(parts[: number + 1]) + new + old.join(parts[number + 1 :])
    names = vars(protocol).copy()
    exec("from __future__ import annotations\n" + source, names)
    return names[name]


_ZERO = "words[ring.number_word(slot)] = 0"
#: A fault, the mode that shows it, the function that has it.
FAULTS = {
    "the number is not compared again": ("latest", "_has_leased", lambda: unchecked_lease),
    "no lease is taken": ("latest", "_has_leased", lambda: no_lease),
    "a slot is free before it has its number": ("queue", "publish", lambda: publish_before_the_number),
    "a slot stays locked": ("queue", "publish", lambda: publish_without_unlocking),
    "items are overwritten before they are read": ("queue", "consumed", lambda: everything_is_consumed),
    "a killed reader keeps its items": ("queue", "_has_freed", lambda: lambda *_: False),
    "the number stays while a slot is written": ("latest", "claim", lambda: changed("claim", _ZERO, "pass")),
    "a reader that registers meanwhile is not seen": ("queue", "_is_needed", lambda: lambda *_: False),
    "a reader that registers later begins with any item": (
        *("queue", "claim", lambda: changed("claim", "words[TAKEN] = taken", "pass")),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_model_finds_planted_faults(monkeypatch, fault: str) -> None:
    mode, name, make = FAULTS[fault]
    monkeypatch.setattr(protocol, name, make())
    kills = int("registers" not in fault)
    readers = 1 if mode == "queue" and kills else 2
    with pytest.raises(Broken):
        explore(mode, 3, kills, readers)


def test_the_model_finds_a_lease_that_is_not_released(monkeypatch) -> None:
    monkeypatch.setattr(model, "release", lambda *_: None)
    with pytest.raises(Broken):
        explore("latest", 3, 0, 1, 3)


#: A fault, the first writer that shows it, the function, its text and another one.
FAULTS_WITH_A_SUCCESSOR = {
    "the number of a killed writer's item is used again": (
        *(put_one, "begin_writing", "max(last, words[ring.number_word(slot)])", "last"),
    ),
    "the number of the last item is lost with its slot": (
        *(put_one, "begin_writing", "words[HEAD] = last", "pass"),
    ),
    "a slot is claimed twice": (model.write_two_slots, "claim", "if slot in claimed or", "if"),
    "a slot is written without its lock": (
        *(model.write_late, "claim", "if not memory.lock(ring.slot_byte(slot))", "if False"),
    ),
}


@pytest.mark.parametrize("fault", FAULTS_WITH_A_SUCCESSOR)
def test_the_model_finds_planted_faults_with_a_successor(monkeypatch, fault: str) -> None:
    first, name, old, new = FAULTS_WITH_A_SUCCESSOR[fault]
    monkeypatch.setattr(protocol, name, changed(name, old, new))
    with pytest.raises(Broken):
        explore_successor("queue", first, 2)
