"""``memory_split``: the parts of a GPU's memory, and what cannot be known."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.fake_nvml import GIB, FakeNvml, gpu, mig_device
from hypothesis import HealthCheck, given, settings, strategies as st

from zerocopy.monitor.cards import CardReader
from zerocopy.monitor.memory_split import MemorySplit, memory_split
from zerocopy.monitor.sample import Card, Cards, ProcessRecord


def read(*gpus: dict[str, Any]) -> Cards:
    return CardReader(FakeNvml(*gpus)).read()


def one_card(**changes: Any) -> Card:
    return read(gpu(**changes))["cards"][0]


def record(
    pid: int = 100, devices: dict[str, tuple[int, int | None]] | None = None, ended: bool = False
) -> ProcessRecord:
    """Return a record whose pool has these bytes in use and reserved, by device."""
    pool = {
        index: {"in_use": used, "reserved": taken, "peak": used, "limit": None}
        | {"largest_free": None, "fragmentation": None}
        for index, (used, taken) in (devices or {}).items()
    }
    fields: Any = {"pool": {"devices": pool}}
    fields |= {"process": {"pid": pid}, "ended": ended}
    return fields


def test_the_parts_sum_to_the_memory_of_the_gpu() -> None:
    card = one_card(compute=[(100, 6 * GIB), (7, GIB)])
    split = memory_split(card, [record(100, {"0": (2 * GIB, 5 * GIB)})])
    assert split == MemorySplit(2 * GIB, 3 * GIB, GIB, 4 * GIB, 69 * GIB, GIB)
    assert split.total == card["memory_total"]


def test_several_processes_are_added() -> None:
    card = one_card(compute=[(1, 3 * GIB), (2, 2 * GIB), (3, GIB)])
    records = [record(1, {"0": (GIB, 2 * GIB)}), record(2), record(9)]  # 9 does not use the GPU
    split = memory_split(card, records)
    assert (split.pool_in_use, split.pool_free) == (GIB, GIB)
    assert split.process_outside_pool == GIB + 2 * GIB  # of 1 and 2
    assert split.other_processes == 10 * GIB - 5 * GIB


def test_without_a_monitored_process_all_use_is_of_others() -> None:
    assert memory_split(one_card(), []) == MemorySplit(0, 0, 0, 10 * GIB, 69 * GIB, GIB)


def test_ended_processes_are_ignored() -> None:
    split = memory_split(one_card(), [record(100, {"0": (GIB, GIB)}, ended=True)])
    assert (split.pool_in_use, split.other_processes) == (0, 10 * GIB)


def test_a_pool_that_does_not_count_its_free_memory() -> None:
    split = memory_split(one_card(), [record(100, {"0": (GIB, None)})])
    assert (split.pool_in_use, split.pool_free, split.process_outside_pool) == (GIB, None, None)
    assert split.other_processes == 4 * GIB
    assert split.total is None
    assert "does not count its free memory" in split.why_not[0]


# -- which GPU ------------------------------------------------------------------------


def test_all_gpus_are_attributed_by_index() -> None:
    cards = read(gpu(0, compute=[(5, 4 * GIB)]), gpu(1, compute=[(5, 8 * GIB)]))
    records = [record(5, {"0": (GIB, 2 * GIB), "1": (3 * GIB, 4 * GIB)})]
    splits = [memory_split(card, records, cards) for card in cards["cards"]]
    assert [split.pool_in_use for split in splits] == [GIB, 3 * GIB]


def test_a_process_on_one_gpu_is_attributed_by_its_pid() -> None:
    """As under CUDA_VISIBLE_DEVICES=1, where the device's index is 0."""
    cards = read(gpu(0, compute=[], used=0), gpu(1, compute=[(5, 8 * GIB)]))
    records = [record(5, {"0": (3 * GIB, 4 * GIB)})]
    splits = [memory_split(card, records, cards) for card in cards["cards"]]
    assert [split.pool_in_use for split in splits] == [0, 3 * GIB]
    assert [split.process_outside_pool for split in splits] == [0, 4 * GIB]


@pytest.mark.hazard("robustness#order-of-gpus")
def test_some_of_several_gpus_are_unknown() -> None:
    cards = read(*(gpu(i, compute=[(5, 8 * GIB)]) for i in range(3)))
    split = memory_split(cards["cards"][0], [record(5, {"0": (1, 1), "1": (1, 1)})], cards)
    assert (split.pool_in_use, split.pool_free, split.process_outside_pool) == (None, None, None)
    assert split.other_processes == 2 * GIB
    assert "CUDA_VISIBLE_DEVICES" in split.why_not[0]


def test_a_mig_device_is_attributed_by_the_pid() -> None:
    cards = read(gpu(mig=[mig_device(0), mig_device(1, used=4 * GIB, compute=[(5, 3 * GIB)])]))
    records = [record(5, {"0": (GIB, 2 * GIB)})]
    splits = [memory_split(card, records, cards) for card in cards["cards"]]
    assert [split.pool_in_use for split in splits] == [0, GIB]


def test_a_mig_device_without_the_pid_is_unknown() -> None:
    cards = read(gpu(mig=[mig_device(0, compute=[])]))
    split = memory_split(cards["cards"][0], [record(5, {"0": (GIB, 2 * GIB)})], cards)
    assert split.pool_in_use is None
    assert "MIG" in split.why_not[0]


@pytest.mark.hazard("robustness#order-of-gpus")
def test_a_pool_that_exceeds_the_process_is_not_attributed() -> None:
    split = memory_split(one_card(), [record(100, {"0": (GIB, 7 * GIB)})])
    assert split.pool_in_use is None
    assert "more memory than NVML counts" in split.why_not[0]


# -- what NVML does not list -------------------------------------------------------------


@pytest.mark.parametrize("compute", [[], [(4_000_000, 6 * GIB)]])
def test_processes_in_a_container_are_not_listed(compute: list[tuple[int, int]]) -> None:
    split = memory_split(one_card(compute=compute), [record(100, {"0": (GIB, 2 * GIB)})])
    assert (split.pool_in_use, split.pool_free) == (GIB, GIB)
    assert split.process_outside_pool is split.other_processes is None
    assert "PID namespace" in split.why_not[0]


def test_an_idle_gpu_is_not_a_container() -> None:
    split = memory_split(one_card(compute=[], used=1 << 20), [record(100)])
    assert (split.process_outside_pool, split.other_processes, split.why_not) == (0, 1 << 20, ())


def test_memory_that_nvml_does_not_count_by_process() -> None:
    split = memory_split(one_card(compute=[(100, None)]), [record(100)])
    assert split.process_outside_pool is None
    assert "memory of each process" in split.why_not[0]


def test_a_lost_gpu_has_no_figures() -> None:
    library = FakeNvml(gpu())
    library.gpus[0]["lost"] = 15
    (card,) = CardReader(library).read()["cards"]
    split = memory_split(card, [])
    assert (split.free, split.reserved, split.other_processes, split.total) == (None,) * 4


_SIZES = st.none() | st.integers(0, 80 * GIB)


# Other processes of the machine slow the generation down.
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    memory=st.none() | st.dictionaries(st.integers(1, 4), _SIZES),
    used=st.integers(0, 79 * GIB),
    records=st.lists(
        st.tuples(
            st.integers(1, 4),
            st.dictionaries(st.sampled_from("01"), st.tuples(st.integers(0, GIB), _SIZES)),
            st.booleans(),
        ),
        max_size=4,
        unique_by=lambda part: part[0],
    ),
)
def test_no_part_is_negative_and_unknown_parts_have_a_reason(memory: Any, used: int, records: Any) -> None:
    compute = None if memory is None else list(memory.items())
    card = one_card(compute=compute, graphics=compute, mps=compute, used=used)
    split = memory_split(card, [record(*fields) for fields in records])
    parts = [split.pool_in_use, split.pool_free, split.process_outside_pool, split.other_processes]
    assert all(part is None or part >= 0 for part in parts)
    assert (None in parts) == bool(split.why_not)
