"""The rows of several processes are summed by call site and pair."""

from __future__ import annotations

from helpers.monitor_samples import ROWS, process

from zerocopy.monitor.conversion import as_dict, merged_rows


def test_counts_are_summed_and_reasons_kept() -> None:
    without_reason = {**as_dict(ROWS[0]), "why": "", "fix": "", "code": "", "seconds": None}
    records = [process(1, conversions=[without_reason]), process(2), process(3)]
    first, *others = merged_rows(records)
    assert first.copied_bytes == 3 * ROWS[0].copied_bytes
    assert (first.seconds, first.why) == (2 * 0.61, ROWS[0].why)
    assert len(others) == len(ROWS) - 1
    assert records[1]["conversions"][0]["calls"] == ROWS[0].calls


def test_no_processes_have_no_rows() -> None:
    assert merged_rows([]) == []
