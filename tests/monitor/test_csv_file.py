"""The CSV file: pandas and polars read its numbers, and no partial row or former file is lost."""

from __future__ import annotations

import csv
import io
import resource
from pathlib import Path

import pytest
from helpers.monitor_samples import (
    SAMPLES,
    ChangingObserver,
    card,
    cards,
    lost_card,
    process,
    sample,
    unreadable_card,
)

from zerocopy.errors import MonitorFileError, OptionError
from zerocopy.monitor.csv_file import FIELDS, CsvFile, select


def written(path: Path, *samples: object, fields: str | None = None) -> Path:
    file = CsvFile(str(path), select(fields))
    for each in samples:
        file.write(each)  # type: ignore[arg-type]
    file.close()
    return path


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text())))


def test_header_begins_with_the_fields_of_nvidia_smi(tmp_path: Path) -> None:
    header = written(tmp_path / "a.csv").read_text().rstrip("\n").split(",")
    assert header[:9] == [
        "timestamp", "index", "name", "uuid", "utilization.gpu [%]", "utilization.memory [%]",
        "memory.total [MiB]", "memory.used [MiB]", "memory.free [MiB]",
    ]  # fmt: skip
    assert header[9:14] == [
        "temperature.gpu", "power.draw [W]", "power.limit [W]", "clocks.current.sm [MHz]",
        "clocks.current.memory [MHz]",
    ]  # fmt: skip
    assert all(title.startswith("zerocopy.") for title in header[16:])


@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample_has_a_row_for_each_gpu(tmp_path: Path, name: str) -> None:
    lines = rows(written(tmp_path / "a.csv", SAMPLES[name]))
    gpus = SAMPLES[name]["cards"]["cards"]
    assert [row["index"] for row in lines] == ([gpu["index"] for gpu in gpus] or [""])
    assert all(None not in row and None not in row.values() for row in lines)


def test_values_are_those_of_the_sample(tmp_path: Path) -> None:
    (row,) = rows(written(tmp_path / "a.csv", SAMPLES["1 GPU"]))
    assert row["memory.total [MiB]"] == str(141 * 1024)
    assert (row["power.draw [W]"], row["pcie.rx [KiB/s]"]) == ("512.50", str(round(3e9 / 1024)))
    assert row["zerocopy.copied [bytes]"] == str(40 * 37_718_912)
    assert row["zerocopy.copied_rate [bytes/s]"] == ""


def test_rates_are_in_the_second_row(tmp_path: Path) -> None:
    observer = ChangingObserver()
    before, after = observer.read(), observer.read()
    file = CsvFile(str(tmp_path / "a.csv"), select("zerocopy.copied_rate"))
    file.write(before)
    file.write(after)
    file.close()
    assert (tmp_path / "a.csv").read_text().split() == [
        "zerocopy.copied_rate", "[bytes/s]", '""', "37718912",
    ]  # fmt: skip


def test_totals_keep_processes_that_are_no_longer_listed(tmp_path: Path) -> None:
    path = written(
        tmp_path / "a.csv", sample(process(1), process(2)), sample(process(2)), fields="zerocopy.calls"
    )
    first, second = (int(row["zerocopy.calls"]) for row in rows(path))
    assert first == second == 2 * 1042


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_libraries_read_numbers(tmp_path: Path, library: str) -> None:
    read = pytest.importorskip(library).read_csv
    hostile = card(name='a "quoted", name\nof two lines')
    table = read(
        written(tmp_path / "a.csv", sample(gpus=cards(hostile, unreadable_card("1"), lost_card("2"))))
    )
    assert list(table.columns) == [field.column for field in FIELDS.values()]
    assert list(table["name"]) == [hostile["name"], "NVIDIA H200", "NVIDIA H200"]
    assert table["power.draw [W]"][0] == 512.5
    assert table["memory.used [MiB]"].max() == 60 * 1024
    assert table["zerocopy.copied [bytes]"][2] == 40 * 37_718_912


@pytest.mark.hazard("robustness#existing-output")
def test_an_existing_file_is_refused_and_unchanged(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", sample())
    before = path.read_bytes()
    with pytest.raises(MonitorFileError, match="the file exists") as caught:
        CsvFile(str(path), select(None))
    assert caught.value.code == "file-exists"
    assert path.read_bytes() == before


def test_rows_are_appended_under_the_same_header(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", sample(), fields="timestamp,index")
    file = CsvFile(str(path), select("timestamp,index"), append=True)
    file.write(sample())
    file.close()
    assert len(rows(path)) == 2
    with pytest.raises(MonitorFileError) as caught:
        CsvFile(str(path), select("timestamp"), append=True)
    assert caught.value.code == "other-columns"
    path.write_text(path.read_text() + "2026")
    with pytest.raises(MonitorFileError) as caught:
        CsvFile(str(path), select("timestamp,index"), append=True)
    assert caught.value.code == "incomplete-line"


def test_an_empty_file_is_used(tmp_path: Path) -> None:
    (tmp_path / "a.csv").touch()
    assert len(rows(written(tmp_path / "a.csv", sample()))) == 1


@pytest.mark.parametrize("path", ["/dev/full", "/nonexistent/a.csv", "/"])
def test_a_file_that_cannot_be_written_is_an_error(path: str) -> None:
    with pytest.raises(MonitorFileError, match="cannot be written"):
        CsvFile(path, select(None))


@pytest.mark.hazard("robustness#full-disk-of-csv")
def test_a_full_disk_leaves_no_partial_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = CsvFile(str(tmp_path / "a.csv"), select(None))
    file.write(sample())
    complete = (tmp_path / "a.csv").read_bytes()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(complete) + 10, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            file.write(sample())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        file.close()
    assert (tmp_path / "a.csv").read_bytes() == complete


@pytest.mark.parametrize("asked", ["memory.usd", "", "timestamp,", "timestamp,index,timestamp"])
def test_unknown_fields_are_refused(asked: str) -> None:
    with pytest.raises(OptionError) as caught:
        select(asked)
    assert "memory.used" in str(caught.value) or asked != "memory.usd"
