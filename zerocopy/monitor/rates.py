"""Rates per second between two samples."""

from __future__ import annotations

from typing import TypedDict

from zerocopy.monitor.sample import Card, ProcessRecord, Sample
from zerocopy.monitor.totals import Totals, sum_record


class ConversionRates(TypedDict):
    """Conversions per second."""

    calls: float
    refused_calls: float
    aliased_bytes: float
    copied_bytes: float


class LinkRates(TypedDict):
    """Bytes per second over one NVLink; None if the link cannot be read."""

    received_bytes: float | None
    sent_bytes: float | None


class Rates(TypedDict):
    """Rates per second. None means that at least one of the samples lacks the value."""

    seconds: float  # between the samples
    conversions: ConversionRates  # of all processes
    processes: dict[int, ConversionRates]  # by process ID
    disk_read: float | None
    disk_written: float | None
    network_received: float | None
    network_sent: float | None
    nvlinks: dict[str, dict[int, LinkRates]]  # by the card's index, then by link


def rates(before: Sample, after: Sample) -> Rates:
    """Return the rates between two samples.

    A process writes its record at most once a second, so samples should be at least two seconds
    apart; `Observer.rates` selects them. The counts of a process are divided by the time between
    its own records. A counter that is smaller than before was reset; its rate is 0.

    Parameters
    ----------
    before, after : Sample
        An earlier and a later sample.

    Returns
    -------
    Rates
        All rates are 0 if the later sample is not later.
    """
    seconds = max(after["time"] - before["time"], 0.0)
    earlier = {_identity(record): record for record in before["processes"]}
    processes = {
        record["process"]["pid"]: _conversions(earlier.get(_identity(record)), record, before["time"])
        for record in after["processes"]
    }
    old, new = before["machine"], after["machine"]
    cards = {card["uuid"] or card["index"]: card for card in before["cards"]["cards"]}
    links = {
        card["index"]: _links(cards.get(card["uuid"] or card["index"]), card, seconds)
        for card in after["cards"]["cards"]
    }
    return Rates(
        seconds=seconds,
        conversions=_sum(list(processes.values())),
        processes=processes,
        disk_read=_rate(old["disk_read"], new["disk_read"], seconds),
        disk_written=_rate(old["disk_written"], new["disk_written"], seconds),
        network_received=_rate(old["network_received"], new["network_received"], seconds),
        network_sent=_rate(old["network_sent"], new["network_sent"], seconds),
        nvlinks={index: rows for index, rows in links.items() if rows},
    )


def _sum(processes: list[ConversionRates]) -> ConversionRates:
    return ConversionRates(
        calls=sum(each["calls"] for each in processes),
        refused_calls=sum(each["refused_calls"] for each in processes),
        aliased_bytes=sum(each["aliased_bytes"] for each in processes),
        copied_bytes=sum(each["copied_bytes"] for each in processes),
    )


def _identity(record: ProcessRecord) -> tuple[int, float]:
    """Return the key of a process and of the start of its counts."""
    return record["process"]["pid"], record["recording_since"]


def _conversions(before: ProcessRecord | None, after: ProcessRecord, since: float) -> ConversionRates:
    """Return one process's rates; a new process has counted since it began to record."""
    if before is None and after["recording_since"] < since:
        return ConversionRates(calls=0.0, refused_calls=0.0, aliased_bytes=0.0, copied_bytes=0.0)
    begin = before["time"] if before is not None else after["recording_since"]
    # A new process's first record may be milliseconds old.
    seconds = after["time"] - begin if before is not None else max(after["time"] - begin, 1.0)
    old, new = Totals() if before is None else sum_record(before), sum_record(after)
    return ConversionRates(
        calls=_rate(old.calls, new.calls, seconds) or 0.0,
        refused_calls=_rate(old.refused_calls, new.refused_calls, seconds) or 0.0,
        aliased_bytes=_rate(old.aliased_bytes, new.aliased_bytes, seconds) or 0.0,
        copied_bytes=_rate(old.copied_bytes, new.copied_bytes, seconds) or 0.0,
    )


def _rate(before: int | None, after: int | None, seconds: float) -> float | None:
    """Return the growth per second; 0 for a counter that was reset, None for an unknown one."""
    if before is None or after is None:
        return None
    return max(after - before, 0) / seconds if seconds > 0 else 0.0


def _links(before: Card | None, after: Card, seconds: float) -> dict[int, LinkRates]:
    """Return the rates of a card's links that both samples have."""
    earlier = {link["link"]: link for link in before["nvlinks"]} if before is not None else {}
    return {
        link["link"]: LinkRates(
            received_bytes=_rate(earlier[link["link"]]["received_bytes"], link["received_bytes"], seconds),
            sent_bytes=_rate(earlier[link["link"]]["sent_bytes"], link["sent_bytes"], seconds),
        )
        for link in after["nvlinks"]
        if link["link"] in earlier
    }
