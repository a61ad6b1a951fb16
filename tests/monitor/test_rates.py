"""Rates between two samples."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.monitor_recorders import no_sources, row

from zerocopy.monitor.conversion import summarized
from zerocopy.monitor.observer import no_cards, no_machine, rates
from zerocopy.monitor.process_record import make_record
from zerocopy.monitor.sample import Sample


def process(time: float, copied: int, since: float = 0.0, **options: Any) -> Any:
    rows = [row(line, calls=1, copied_bytes=copied // 2) for line in (1, 2)]
    return {**make_record(rows, since, sources=no_sources(), **options), "time": time}


def sample(time: float, *processes: Any, disk: int | None = None, links: Any = ()) -> Sample:
    cards = {
        **no_cards(),
        "cards": [{"index": "0", "uuid": "GPU-a", "nvlinks": list(links)}] if links else [],
    }
    machine = {**no_machine(), "disk_read": disk}
    return Sample(
        time=time,
        processes=list(processes),
        cards=cards,
        machine=machine,
        problems=[],
        order="bytes",
        rates=None,
    )


def test_bytes_are_divided_by_the_time_between_the_records() -> None:
    result = rates(sample(10.0, process(9.0, 100)), sample(12.0, process(11.5, 350)))
    assert result["seconds"] == 2.0
    assert result["conversions"]["copied_bytes"] == 100.0


def test_a_history_has_the_same_rates() -> None:
    before, after = process(9.0, 100), process(11.5, 350)
    full = rates(sample(10.0, before), sample(12.0, after))
    assert rates(sample(10.0, summarized(before)), sample(12.0, summarized(after))) == full


@pytest.mark.parametrize(("before", "after"), [(350, 100), (100, 100)])
def test_rates_are_not_negative(before: int, after: int) -> None:
    result = rates(sample(10.0, process(9.0, before)), sample(12.0, process(11.0, after)))
    assert result["conversions"]["copied_bytes"] == 0.0


def test_a_new_process_counts_from_its_start_and_an_old_one_from_its_first_record() -> None:
    new, old = process(12.0, 100, since=10.0), process(12.0, 100, since=1.0)
    assert rates(sample(9.0), sample(12.0, new))["conversions"]["copied_bytes"] == 50.0
    assert rates(sample(9.0), sample(12.0, old))["conversions"]["copied_bytes"] == 0.0


def test_the_same_record_and_a_clock_that_was_set_back() -> None:
    record = process(9.0, 100)
    for time in (12.0, 10.0, 5.0):
        result = rates(sample(10.0, record, disk=5), sample(time, record, disk=9))
        assert result["conversions"]["copied_bytes"] == 0.0
        assert result["disk_read"] == (2.0 if time == 12.0 else 0.0)


def test_unknown_counters_have_no_rate() -> None:
    assert rates(sample(1.0, disk=None), sample(2.0, disk=5))["disk_read"] is None


def test_nvlinks() -> None:
    first = [{"link": 0, "received_bytes": 10, "sent_bytes": None}]
    second = [
        {"link": 0, "received_bytes": 30, "sent_bytes": 4},
        {"link": 1, "received_bytes": 1, "sent_bytes": 1},
    ]
    result = rates(sample(1.0, links=first), sample(3.0, links=second))["nvlinks"]
    assert result == {"0": {0: {"received_bytes": 10.0, "sent_bytes": None}}}
