"""The run directory: who may use it, what is written, and what a hostile or damaged file does."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from helpers.monitor_recorders import no_sources, row

from zerocopy.errors import MonitorFileError
from zerocopy.monitor.process_record import make_record
from zerocopy.monitor.run_directory import (
    KEPT,
    MOST_BYTES,
    SHOWN,
    FileName,
    RunFiles,
    checked,
    default_directory,
    opened,
    write,
)

OWN = FileName.of_this_process()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def record(**changes: Any) -> Any:
    return {**make_record([row()], 1.0, sources=no_sources()), **changes}


def test_files_are_private_and_hold_the_record(folder: Path) -> None:
    write(str(folder), OWN, record())
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()] == [0o600]
    records, problems = RunFiles(str(folder)).read()
    assert (len(records), problems) == (1, [])
    assert (records[0]["process"]["pid"], records[0]["ended"]) == (os.getpid(), False)


def test_default_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ZEROCOPY_MONITOR_DIR", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert default_directory() == str(tmp_path / "zerocopy-monitor")
    for unusable in ("", "relative", str(tmp_path / "absent")):
        monkeypatch.setenv("XDG_RUNTIME_DIR", unusable)
        assert default_directory() == f"/tmp/zerocopy-monitor-{os.geteuid()}"
    monkeypatch.setenv("ZEROCOPY_MONITOR_DIR", str(tmp_path / "chosen"))
    assert default_directory() == str(tmp_path / "chosen")


@pytest.mark.hazard("robustness#unsafe-run-directory")
def test_unsafe_directories_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(mode=0o700)
    link = folder.with_name("link")
    link.symlink_to(folder)
    file = folder.with_name("file")
    file.write_text("")
    shared = folder.with_name("shared")
    shared.mkdir()
    shared.chmod(0o750)
    for path, why in ((link, "symbolic link"), (file, "not a directory"), (shared, "chmod 700")):
        with pytest.raises(MonitorFileError, match=why):
            write(str(path), OWN, record())
        assert why in RunFiles(str(path)).read()[1][0].replace("\n", " ")
    assert list(folder.iterdir()) == list(shared.iterdir()) == []
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    with pytest.raises(MonitorFileError, match="belongs to the user"), opened(str(folder)):
        pass


@pytest.mark.hazard("robustness#unsafe-run-directory")
def test_a_link_in_place_of_the_file_is_replaced_and_not_followed(folder: Path) -> None:
    write(str(folder), OWN, record())
    target = folder.with_name("target")
    target.write_text("unchanged")
    for name in (str(OWN), OWN.temporary):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)
    write(str(folder), OWN, record())
    assert target.read_text() == "unchanged"
    assert [file.name for file in folder.iterdir()] == [str(OWN)]


def test_a_full_disk_leaves_the_old_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(str(folder), OWN, record(rss=1))
    full = os.open("/dev/full", os.O_WRONLY)
    written = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: written(full, data))
    with pytest.raises(OSError, match="No space left"):
        write(str(folder), OWN, record(rss=2))
    monkeypatch.undo()
    os.close(full)
    assert [file.name for file in folder.iterdir()] == [str(OWN)]
    assert RunFiles(str(folder)).read()[0][0]["rss"] == 1


def test_a_write_in_parts_is_completed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: written(fd, data[:100]))
    write(str(folder), OWN, record())
    assert len(RunFiles(str(folder)).read()[0]) == 1


def deep(levels: int) -> str:
    return "[" * levels + "]" * levels


def changed(**fields: Any) -> str:
    return json.dumps(record(**fields))


HOSTILE = {
    "empty": "",
    "cut": changed()[:200],
    "list": "[]",
    "no fields": "{}",
    "nested": deep(200_000),
    "nested field": changed().replace('"notes": []', f'"notes": {deep(50_000)}'),
    "large": " " * (MOST_BYTES + 1),
    "huge integer": changed(rss=0).replace('"rss": 0', f'"rss": {"9" * 4000}'),
    "integer of 64 bits": changed(rss=1 << 63),
    "infinite": changed(time=0).replace('"time": 0', '"time": 1e999'),
    "nan": changed(time=float("nan")),
    "text for a number": changed(rss="1"),
    "bool for a number": changed(rss=True),
    "null for a number": changed(rss=None),
    "rows of another type": changed(conversions=[1]),
    "rows without fields": changed(conversions=[{}]),
    "another process": changed(process={**record()["process"], "pid": 1}),
    "a later format": changed(format=2),
    "not UTF-8": b"\xff\xfe{",
}


@pytest.mark.hazard("robustness#damaged-records")
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_problems(name: str, folder: Path) -> None:
    write(str(folder), OWN, record())
    text = HOSTILE[name]
    (folder / str(OWN)).write_bytes(text if isinstance(text, bytes) else text.encode())
    records, problems = RunFiles(str(folder)).read()
    assert records == []
    assert problems[0].startswith(f"{OWN}: ")
    assert len(problems[0]) < 300


@pytest.mark.hazard("robustness#damaged-records")
def test_pipes_directories_links_and_other_names_are_not_read(folder: Path) -> None:
    write(str(folder), OWN, record())
    os.mkfifo(folder / f"{os.getppid()}-0.json")
    (folder / "1-0.json").mkdir()
    (folder / "1-1.json").symlink_to(folder / str(OWN))
    for other in ("x.json", "..json", "1-2.txt", "-.json", "1-2-3.json"):
        (folder / other).write_text("{}")
    records, problems = RunFiles(str(folder)).read()
    assert len(records) == 1
    assert len(problems) <= 3


def test_unknown_fields_are_dropped_and_integers_become_floats() -> None:
    result = checked({**record(time=5), "more": deep(3)})
    assert "more" not in result
    assert type(result["time"]) is float


def test_a_file_that_did_not_change_is_parsed_once(folder: Path) -> None:
    files = RunFiles(str(folder))
    write(str(folder), OWN, record())
    first = files.read()[0][0]
    assert files.read()[0][0] is first
    write(str(folder), OWN, record(rss=7))
    assert files.read()[0][0]["rss"] == 7


def ended_process() -> FileName:
    """Return the name of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        return FileName(process.pid, 1)


def test_files_of_ended_processes_are_shown_for_a_while_and_removed_after_an_hour(folder: Path) -> None:
    name = ended_process()
    write(str(folder), name, record(process={**record()["process"], "pid": name.pid}))
    (folder / name.temporary).write_text("{")
    now = time.time()
    assert [each["ended"] for each in RunFiles(str(folder)).read(now)[0]] == [True]
    assert RunFiles(str(folder)).read(now + SHOWN + 5) == ([], [])
    assert [file.name for file in folder.iterdir()] == [str(name)]
    assert RunFiles(str(folder)).read(now + KEPT + 5) == ([], [])
    assert list(folder.iterdir()) == []


@pytest.mark.hazard("robustness#reused-process-id")
def test_a_later_process_with_the_same_id_is_not_the_one_of_the_file(folder: Path) -> None:
    assert OWN.is_alive
    assert not FileName(OWN.pid, OWN.started + 1).is_alive
