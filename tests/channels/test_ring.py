"""The protocol of a channel in every interleaving of a writer and two readers of two slots, with kills."""

from __future__ import annotations

import inspect

import pytest
from helpers import channel_model as model
from helpers.channel_model import Broken

from zerocopy.channels import ring as protocol
from zerocopy.channels.ring import Load, Lock, Ring, Store, Unlock

#: The access of the writer before which it can be killed first: readers wait for a writer that has not begun.
BEGUN = (3,)


@pytest.fixture(autouse=True)
def _few_entries(monkeypatch) -> None:
    monkeypatch.setattr(protocol, "ENTRIES", 2)


def explore(mode: str, items: int, kills: int, readers: int = 2, taken: int = 2) -> int:
    ring = Ring(2, mode == "queue", 1)
    read = model.read_queue if ring.is_queue else model.read_newest
    programs = [lambda: model.write(ring, items)] + [lambda: read(ring, taken)] * readers
    return model.explore(ring, programs, kills, BEGUN)


@pytest.mark.parametrize(("mode", "items", "kills"), [("latest", 2, 1), ("queue", 2, 1)])
def test_no_item_is_torn_repeated_or_lost(mode: str, items: int, kills: int) -> None:
    assert explore(mode, items, kills) > 10_000


@pytest.mark.full
@pytest.mark.parametrize(("mode", "items", "kills"), [("latest", 3, 2), ("queue", 3, 1)])
def test_no_item_is_torn_repeated_or_lost_in_more_states(mode: str, items: int, kills: int) -> None:
    assert explore(mode, items, kills) > 100_000


def unchecked_lease(ring, slot, number):
    return bool((yield Lock(ring.slot_byte(slot), shared=True)))


def no_lease(ring, slot, number):
    return (yield Load(ring.number_word(slot))) == number


def publish_before_the_number(ring, slot, number):
    yield Unlock(ring.slot_byte(slot))
    yield Store(ring.number_word(slot), number)
    yield Store(protocol.HEAD, number)


def publish_without_unlocking(ring, slot, number):
    yield Store(ring.number_word(slot), number)
    yield Store(protocol.HEAD, number)


def everything_is_consumed(ring, number):
    return True
    yield


def entries_are_never_freed(ring, entry):
    return False
    yield


def claim_without_zero(number: int):
    """Return `claim` without its store of 0 for the slot that it claims (0), or for a leased one (1)."""
    lines = inspect.getsource(protocol.claim).splitlines()
    places = [place for place, line in enumerate(lines) if "yield Store(ring.number_word(slot), 0)" in line]
    lines[places[number]] = lines[places[number]].split("yield")[0] + "pass"
    names = vars(protocol).copy()
    exec("from __future__ import annotations\n" + "\n".join(lines), names)
    return names["claim"]


#: A fault, the mode that shows it, the function that has it.
FAULTS = {
    "the number is not compared again": ("latest", "_has_leased", lambda: unchecked_lease),
    "no lease is taken": ("latest", "_has_leased", lambda: no_lease),
    "a slot is free before it has its number": ("queue", "publish", lambda: publish_before_the_number),
    "a slot stays locked": ("queue", "publish", lambda: publish_without_unlocking),
    "items are overwritten before they are read": ("queue", "_is_consumed", lambda: everything_is_consumed),
    "a killed reader keeps its items": ("queue", "_has_freed", lambda: entries_are_never_freed),
    "the number stays while a slot is written": (
        "latest",
        "claim",
        lambda: claim_without_zero(0),
    ),
    "a leased item stays before a gap": ("queue", "claim", lambda: claim_without_zero(1)),
    "a lease is not released": (
        "latest",
        "release",
        lambda: no_release,
    ),
}


def no_release(ring, slot):
    return
    yield


@pytest.mark.parametrize("fault", FAULTS)
def test_the_model_finds_planted_faults(monkeypatch, fault: str) -> None:
    mode, name, make = FAULTS[fault]
    monkeypatch.setattr(protocol, name, make())
    kills = int(not ("gap" in fault or "released" in fault))
    readers, taken = (1, 3) if "released" in fault else (1 if mode == "queue" and kills else 2, 2)
    with pytest.raises(Broken):
        explore(mode, 3, kills, readers, taken)
