"""Tickets: shared memory of handles in flight."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest

import zerocopy as zc
from zerocopy.shared import tickets as tickets_module
from zerocopy.shared.blocks import large_blocks
from zerocopy.shared.tickets import InFlight, Ticket, Tickets, redeem

MEBI = 1 << 20


@pytest.fixture
def tickets() -> Tickets:
    return Tickets()


def share(nbytes: int = MEBI) -> zc.Shared:
    return zc.share(np.zeros(nbytes, "u1"))


def fields(ticket: bytes) -> Ticket:
    return Ticket(*tickets_module._FIELDS.unpack(ticket))


def packed(ticket: Ticket) -> bytes:
    return tickets_module._FIELDS.pack(*ticket)


@pytest.mark.hazard("robustness#memory-of-a-handle-in-a-pipe")
def test_memory_stays_until_the_ticket_is_redeemed(tickets: Tickets) -> None:
    shared = share()
    handle, ticket = bytes(shared), tickets.issue(shared)
    del shared
    assert zc.convert(zc.Shared.from_bytes(handle), to="numpy").nbytes == MEBI
    redeem(ticket)
    assert tickets.in_flight() == (0, 0)
    with pytest.raises(zc.errors.StaleHandleError):
        zc.convert(zc.Shared.from_bytes(handle), to="numpy")


def test_an_issue_frees_redeemed_tickets(tickets: Tickets) -> None:
    for _ in range(50):
        redeem(tickets.issue(share()))
    assert tickets.in_flight() == (0, 0)
    fresh = large_blocks.fresh
    for _ in range(50):
        redeem(tickets.issue(share()))
    assert large_blocks.fresh <= fresh + 1


def test_the_cost_of_a_ticket_does_not_grow_with_their_number(
    tickets: Tickets, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = share()
    tickets.limit, tickets.most = 1 << 60, 1 << 20
    last = [tickets.issue(shared) for _ in range(20_000)][-1]
    assert len(tickets._pending) == 20_000
    calls = []
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda *args: calls.append(1) or pread(*args))
    tickets.issue(shared)
    assert len(calls) <= 8
    redeem(last)
    assert tickets.in_flight().objects == 20_000
    tickets.release()
    assert tickets.in_flight() == (0, 0)


def test_tickets_in_any_order_are_freed_by_later_issues(tickets: Tickets) -> None:
    shared = share()
    issued = [tickets.issue(shared) for _ in range(64)]
    for ticket in issued[1::2]:
        redeem(ticket)
    for _ in range(8):
        redeem(tickets.issue(shared))
    assert len(tickets._pending) <= 32 + 8


def test_the_limit_refuses_further_objects_and_not_a_first_large_one() -> None:
    tickets = Tickets(limit=2 * MEBI)
    first = tickets.issue(share(3 * MEBI))
    assert first is not None
    assert not tickets.has_room(1)
    assert tickets.issue(share()) is None
    redeem(first)
    assert tickets.has_room(2 * MEBI)
    tickets.issue(share())
    tickets.issue(share())
    assert tickets.issue(share()) is None
    assert tickets.in_flight() == InFlight(2, 2 * MEBI)
    tickets.release()


def test_the_number_of_tickets_is_limited(tickets: Tickets) -> None:
    tickets.most = 3
    shared = share()
    assert [tickets.issue(shared) is not None for _ in range(4)] == [True, True, True, False]


@pytest.mark.hazard("robustness#pickle-that-is-loaded-twice")
def test_a_redeemed_ticket_does_not_redeem_the_next_one_of_its_slot(tickets: Tickets) -> None:
    first = tickets.issue(share())
    redeem(first)
    assert tickets.in_flight() == (0, 0)
    second = tickets.issue(share())
    assert fields(second).slot == fields(first).slot
    redeem(first)
    assert tickets.in_flight().objects == 1
    redeem(second)
    assert tickets.in_flight().objects == 0


def test_a_late_write_of_an_earlier_ticket_is_overwritten(tickets: Tickets) -> None:
    """Two processes load the same bytes: one writes after the slot has a later ticket."""
    first = fields(tickets.issue(share()))
    redeem(packed(first))
    assert tickets.in_flight().objects == 0
    second = tickets.issue(share())
    word = tickets_module._WORD.pack(first.number | tickets_module._REDEEMED)
    os.pwrite(first.fd, word, 8 * first.slot)
    assert tickets.in_flight().objects == 1
    redeem(second)
    assert tickets.in_flight().objects == 0


def test_released_memory_is_stale_and_its_ticket_has_no_effect(tickets: Tickets) -> None:
    shared = share()
    handle, ticket = bytes(shared), tickets.issue(shared)
    del shared
    tickets.release()
    with pytest.raises(zc.errors.StaleHandleError):
        zc.convert(zc.Shared.from_bytes(handle), to="numpy")
    tickets.issue(share())
    redeem(ticket)
    assert tickets.in_flight().objects == 1


@pytest.mark.parametrize(
    "change",
    [
        {"pid": 2**31 - 1},
        {"fd": 1_000_000},
        {"inode": 1},
        {"slot": 1 << 61},
        {"slot": 1 << 20},
        {"number": 0},
    ],
    ids=str,
)
def test_a_wrong_ticket_has_no_effect(tickets: Tickets, change: dict[str, int]) -> None:
    ticket = tickets.issue(share())
    redeem(packed(fields(ticket)._replace(**change)))
    assert tickets.in_flight().objects == 1


@pytest.mark.hazard("robustness#ticket-of-another-file")
def test_a_ticket_never_writes_to_another_file(tickets: Tickets, tmp_path: Path) -> None:
    ticket = fields(tickets.issue(share()))
    segment = share()
    path = tmp_path / "zerocopy-tickets (deleted)"
    path.write_bytes(bytes(64))
    reader, writer = os.pipe()
    with path.open("r+b") as file:
        for fd in (file.fileno(), writer, segment.handle.location.fd):
            inode = os.fstat(fd).st_ino
            redeem(packed(ticket._replace(fd=fd, inode=inode, slot=0)))
    os.close(writer)
    assert path.read_bytes() == bytes(64)
    assert os.read(reader, 8) == b""
    os.close(reader)


def test_readers_cannot_resize_the_slots(tickets: Tickets) -> None:
    ticket = fields(tickets.issue(share()))
    for size in (0, 1 << 30):
        with pytest.raises(PermissionError):
            os.ftruncate(ticket.fd, size)


@pytest.mark.hazard("robustness#objects-in-flight-at-a-fork")
@pytest.mark.filterwarnings("ignore:.*fork.*")
def test_a_forked_child_neither_frees_nor_reuses_the_tickets_of_its_parent(tickets: Tickets) -> None:
    shared = share()
    handle, ticket = bytes(shared), tickets.issue(shared)
    del shared
    child = os.fork()
    if not child:
        own = tickets.issue(share())
        works = tickets.in_flight().objects == 1 and fields(own).pid == os.getpid()
        tickets.release()
        os._exit(0 if works and fields(own).inode != fields(ticket).inode else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert tickets.in_flight().objects == 1
    assert zc.convert(zc.Shared.from_bytes(handle), to="numpy").nbytes == MEBI
    redeem(ticket)
    assert tickets.in_flight().objects == 0


def test_threads_issue_and_redeem(tickets: Tickets) -> None:
    def work() -> None:
        for _ in range(200):
            redeem(tickets.issue(share(1000)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert tickets.in_flight() == (0, 0)


def test_wait_ends_when_the_last_ticket_is_redeemed(tickets: Tickets) -> None:
    ticket = tickets.issue(share())
    timer = threading.Timer(0.05, redeem, (ticket,))
    timer.start()
    tickets.wait(60)
    assert tickets.in_flight().objects == 0
    timer.join()
    tickets.issue(share())
    tickets.wait(0.01)
    assert tickets.in_flight().objects == 1


def test_closed_descriptors_give_the_tickets_up(tickets: Tickets) -> None:
    """A daemon may close all descriptors."""
    os.close(fields(tickets.issue(share())).fd)
    assert tickets.in_flight() == (0, 0)
    redeem(tickets.issue(share()))
    assert tickets.in_flight() == (0, 0)


def test_without_descriptors_no_ticket_is_issued(tickets: Tickets, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str, size: int) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(tickets_module, "mapped_memfd", fail)
    assert tickets.issue(share()) is None
    assert tickets.in_flight() == (0, 0)
