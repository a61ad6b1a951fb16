"""Prometheus' text: the official parser reads it, and its values are those of the sample."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from helpers.monitor_samples import HOSTILE, ROWS, SAMPLES, cards, process, sample, unreadable_card
from helpers.paths import ROOT

from zerocopy.monitor.conversion import ConversionRow, as_dict
from zerocopy.monitor.figures import FIGURES, MOST_SITES
from zerocopy.monitor.prometheus import exposition

parser = pytest.importorskip("prometheus_client.parser")


def parsed(text: str) -> dict[str, Any]:
    """Return the samples of each family by the name in the text."""
    families = list(parser.text_string_to_metric_families(text))
    names = [family.name for family in families]
    assert len(names) == len(set(names))
    for family in families:
        keys = [(each.name, tuple(sorted(each.labels.items()))) for each in family.samples]
        assert len(keys) == len(set(keys)), family.name
    return {family.name: family for family in families}


@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample_is_parsed(name: str) -> None:
    for family in parsed(exposition(SAMPLES[name])).values():
        assert family.documentation
        assert family.type in ("counter", "gauge")
        assert all(math.isfinite(each.value) for each in family.samples), family


def test_the_page_lists_all_metrics_with_their_labels() -> None:
    page = (ROOT / "docs" / "monitor" / "outputs.md").read_text(encoding="utf-8")
    _, _, section = page.partition("\n## Prometheus\n")
    rows = [line.split("|") for line in section.partition("\n### ")[0].splitlines() if line.startswith("| `")]
    labels = {
        f"zerocopy_{metric}": set(re.findall(r"`(\w+)`", row[2]))
        for row in rows
        for metric in re.findall(r"`(\w+)`", row[1])
    }
    assert labels.keys() == {f"zerocopy_{figure.metric}" for figure in FIGURES if figure.metric}
    for each in SAMPLES.values():
        for family in parsed(exposition(each)).values():
            for one in family.samples:
                assert one.labels.keys() == labels[one.name], one


def test_counters_are_sums_over_the_call_sites_of_a_pair() -> None:
    copied = parsed(exposition(SAMPLES["no GPU"]))["zerocopy_copied_bytes"]
    assert copied.type == "counter"
    by_pair = {(each.labels["source"], each.labels["target"]): each.value for each in copied.samples}
    assert by_pair["polars.DataFrame", "torch"] == ROWS[0].copied_bytes
    assert copied.samples[0].name == "zerocopy_copied_bytes_total"
    assert copied.samples[0].labels["pid"] == "100"


def test_texts_are_escaped() -> None:
    row = ConversionRow(
        'a "b"\\c\nd/e "f"\\g\nh.py', 1, "f", "numpy.ndarray", "torch", 1, copied_calls=1, copied_bytes=8
    )
    text = exposition(sample(process(conversions=[as_dict(row)])))
    (site,) = parsed(text)["zerocopy_site_copied_bytes"].samples
    assert site.labels["file"] == 'e "f"\\g\nh.py'
    assert HOSTILE.rpartition("/")[2] not in text


@pytest.mark.hazard("robustness#names-that-are-not-unicode")
def test_names_that_are_not_unicode_are_written_as_utf_8() -> None:
    row = ConversionRow("\udcff.py", 1, "f", "numpy.ndarray", "torch", 1, copied_calls=1, copied_bytes=8)
    text = exposition(sample(process(conversions=[as_dict(row)]))).encode("utf-8").decode("utf-8")
    (site,) = parsed(text)["zerocopy_site_copied_bytes"].samples
    assert site.labels["file"] == "\\udcff.py"


def test_only_the_worst_call_sites_are_listed() -> None:
    rows = [
        as_dict(
            ConversionRow("a.py", line, "f", "numpy.ndarray", "torch", 1, copied_calls=1, copied_bytes=line)
        )
        for line in range(1, 101)
    ]
    sites = parsed(exposition(sample(process(conversions=rows))))["zerocopy_site_copied_bytes"].samples
    assert sorted(each.value for each in sites) == list(range(101 - MOST_SITES, 101))


def test_equal_labels_are_summed() -> None:
    row = as_dict(
        ConversionRow("x/a.py", 1, "f", "numpy.ndarray", "torch", 1, copied_calls=1, copied_bytes=5)
    )
    several = [row, {**row, "file": "y/a.py"}]
    (site,) = parsed(exposition(sample(process(conversions=several))))["zerocopy_site_copied_bytes"].samples
    assert site.value == 10


def test_values_that_cannot_be_read_are_left_out() -> None:
    families = parsed(exposition(sample(gpus=cards(unreadable_card()))))
    assert not [name for name in families if name.startswith("zerocopy_gpu")]


def test_a_process_that_has_ended_keeps_its_counters_and_no_gauges() -> None:
    families = parsed(exposition(SAMPLES["ended"]))
    assert families["zerocopy_conversions"].samples
    assert "zerocopy_process_resident_bytes" not in families
