"""``Observer``: processes, families, missing parts, and a history of bounded size."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from helpers.monitor_recorders import no_sources, row

from zerocopy.errors import FrameworkNotInstalledError, OptionError
from zerocopy.monitor import run_directory
from zerocopy.monitor.observer import Observer, no_cards, no_machine
from zerocopy.monitor.process_record import make_record
from zerocopy.monitor.run_directory import FileName, write
from zerocopy.monitor.sampling import Ring


def put(folder: Path, pid: int, parent: int, **changes: Any) -> None:
    record: Any = make_record([row(1), row(2, seconds=0.5)], 1.0, sources=no_sources())
    record |= {"process": {**record["process"], "pid": pid, "parent": parent}} | changes
    write(str(folder), FileName(pid, 7), record)


def observer(folder: Path, **options: Any) -> Observer:
    return Observer(folder, cards=no_cards, machine=no_machine, **options)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(run_directory.FileName, "is_alive", True)
    return tmp_path / "runs"


def pids(sample: Any) -> list[int]:
    return [record["process"]["pid"] for record in sample["processes"]]


def test_processes_of_a_family(folder: Path) -> None:
    for pid, parent in ((2_000_000_001, 1), (2_000_000_002, 2_000_000_001), (2_000_000_003, 2_000_000_002)):
        put(folder, pid, parent)
    put(folder, 2_000_000_009, 1)
    assert len(pids(observer(folder).read())) == 4
    family = observer(folder, pid=2_000_000_001)
    assert pids(family.read()) == [2_000_000_001, 2_000_000_002, 2_000_000_003]
    put(folder, 2_000_000_003, 1)  # its parent has ended
    assert pids(family.read()) == [2_000_000_001, 2_000_000_002, 2_000_000_003]


def test_parents_that_are_not_monitored_are_followed(folder: Path) -> None:
    put(folder, 2_000_000_005, os.getpid())
    assert pids(observer(folder, pid=os.getppid()).read()) == [2_000_000_005]


def test_the_order_of_conversions(folder: Path) -> None:
    put(folder, 5, 1)
    orders = []
    for order in ("bytes", "time"):
        sample = observer(folder, order=order).read()
        assert sample["order"] == order
        orders.append([row["line"] for row in sample["processes"][0]["conversions"]])
    assert orders[0] == orders[1][::-1]
    with pytest.raises(OptionError):
        observer(folder, order="calls")


def test_history_has_sums(folder: Path) -> None:
    put(folder, 5, 1)
    reader = observer(folder)
    assert len(reader.read()["processes"][0]["conversions"]) == 2
    (sample,) = reader.history
    (conversions,) = sample["processes"][0]["conversions"]
    assert (conversions["calls"], conversions["file"]) == (2, "")
    assert len(reader.newest["processes"][0]["conversions"]) == 2


def test_parts_that_fail_are_problems(folder: Path) -> None:
    def fail() -> Any:
        raise ImportError("pip install psutil")

    sample = Observer(folder, cards=fail, machine=fail).read()
    assert [problem for problem in sample["problems"] if "pip install" in problem] == sample["problems"][1:]
    assert "pip install" in sample["cards"]["why_not"]
    assert sample["machine"]["disk_read"] is None


def test_own_readers_of_gpus_and_the_machine(folder: Path) -> None:
    pytest.importorskip("psutil")
    sample = Observer(folder).read()
    assert sample["machine"]["memory_total"] > 0


def test_rates_need_two_samples(folder: Path) -> None:
    reader = observer(folder)
    assert reader.read()["rates"] is None
    assert reader.read()["rates"]["conversions"]["calls"] == 0.0


def test_ring_drops_what_is_old_and_what_a_clock_that_was_set_back_made_later() -> None:
    ring: Ring[int] = Ring(300.0)
    for tick in range(100_000):
        ring.add(tick * 0.2, tick)
        assert len(ring) <= 1501
    assert (len(ring), list(ring)[-1], ring.at(19_990.0)) == (1501, 99_999, 99_950)
    ring.add(19_900.0, -1)
    assert (list(ring)[-1], list(ring)[-2]) == (-1, 99_500)


def test_a_missing_package_is_a_problem_in_one_line(folder: Path) -> None:
    def cards() -> Any:
        raise FrameworkNotInstalledError(
            "reading the machine", "psutil is not installed", "pip install psutil"
        )

    folder.mkdir(mode=0o700)
    sample = Observer(folder, cards=cards, machine=cards).read()
    assert sample["problems"] == [
        f"{name}: psutil is not installed; to fix: pip install psutil" for name in ("GPUs", "the machine")
    ]
    assert "\n" not in sample["cards"]["why_not"]


@pytest.mark.hazard("robustness#numbers-beyond-floats")
@pytest.mark.parametrize("field", ["time", "recording_since"])
@pytest.mark.parametrize("number", ["1" + "0" * 400, "-1" + "0" * 400, "1e999", "NaN"])
def test_numbers_that_no_float_holds_are_problems(folder: Path, field: str, number: str) -> None:
    put(folder, 2_000_000_001, 1)
    put(folder, 2_000_000_002, 1)
    (file,) = folder.glob("2000000001-*")
    text = json.dumps(json.loads(file.read_text()) | {field: "NUMBER"})
    file.write_text(text.replace('"NUMBER"', number))
    sample = observer(folder).read()
    assert pids(sample) == [2_000_000_002]
    assert any(file.name in problem for problem in sample["problems"])
