"""``zerocopy doctor``: what sharing memory between processes needs, and the engines."""

from __future__ import annotations

import json
import os
import re
import tomllib
from typing import Any

import pytest
from helpers.paths import ROOT

from zerocopy.cli import limits as processes
from zerocopy.shared import blocks, handle, room, segment

pytest.importorskip("click")
pytest.importorskip("rich")
from click.testing import CliRunner

from zerocopy.cli.main import command

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="Linux only")


def doctor(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the lines of the section, joined."""
    monkeypatch.setenv("COLUMNS", "80")
    text = CliRunner().invoke(command(), ["doctor", "--all"], catch_exceptions=False).stdout
    assert max(map(len, text.splitlines())) <= 80
    return text[text.index("Processes") : text.index("Extras")]


def rows() -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in processes.checks()}


def test_all_requirements_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    by_name = rows()
    assert [by_name[name]["works"] for name in ("memfd", "opening", "private maps")] == [True] * 3
    assert set(by_name) == {
        *("memfd", "opening", "private maps", "pagemap", "room"),
        *("file descriptors", "PID namespace", "/dev/shm"),
    }
    text = doctor(monkeypatch)
    for name in (*by_name, "dask", "ray", "flight", "torch DataLoader", "multiprocessing"):
        assert re.search(rf"^[+-]\s+{re.escape(name)}\s", text, re.MULTILINE), name


def test_json_has_the_section() -> None:
    done = CliRunner().invoke(command(), ["doctor", "--json"], catch_exceptions=False)
    document = json.loads(done.stdout)["processes"]
    assert {"name", "works", "detail"} == set(document["checks"][0])
    assert {"name", "wanted", "version", "works", "install"} == set(document["engines"][0])


def test_a_wrong_pool_variable_does_not_stop_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEROCOPY_POOL", "rms")
    assert rows()["opening"]["works"]


def test_no_room_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "available", lambda *_: (0, "/sys/fs/cgroup/memory.max"))
    by_name = rows()
    if "opening" not in by_name:  # a segment that other tests used is not allocated again
        assert not by_name["memfd"]["works"]
    assert not by_name["room"]["works"]
    assert "memory.max" in by_name["room"]["detail"]


def test_no_file_descriptor_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    from zerocopy.shared import share

    def refuse(obj: Any) -> Any:
        raise segment._refusal(1, OSError(24, "Too many open files"))

    monkeypatch.setattr(share, "share", refuse)
    row = rows()["memfd"]
    assert not row["works"]
    assert "no free file descriptor" in row["detail"]


def test_a_child_that_cannot_open_the_segment_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_CHILD", "raise PermissionError('ptrace is off')")
    row = rows()["opening"]
    assert not row["works"]
    assert "PermissionError: ptrace is off" in row["detail"]
    monkeypatch.setattr(processes, "_CHILD", "import os; os.abort()")
    assert "exit code -6" in rows()["opening"]["detail"]


def test_a_handle_that_the_child_refuses_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "host_id", lambda: bytes(24))
    assert "OtherHostError" in rows()["opening"]["detail"]


def test_a_hidden_page_map_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = "import zerocopy.shared.reading as p; p.was_written = lambda *_: True\n"
    monkeypatch.setattr(processes, "_CHILD", hidden + processes._CHILD)
    row = rows()["pagemap"]
    assert not row["works"]
    assert "is copied" in row["detail"]


def test_a_low_limit_of_file_descriptors_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 64))
    row = rows()["file descriptors"]
    assert not row["works"]
    assert "ulimit -n" in row["detail"]
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert rows()["file descriptors"]["detail"] == "no limit"


def test_a_container_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handle, "pid_namespace", lambda: 4026532000)
    assert processes._namespace()["detail"].startswith("a container's; ZEROCOPY_BROKER=1")
    monkeypatch.setenv("ZEROCOPY_BROKER", "1")
    assert "a broker lets" in processes._namespace()["detail"]


def test_a_missing_dev_shm_is_not_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(path: str) -> Any:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(processes.shutil, "disk_usage", missing)
    assert processes._dev_shm()["works"]


def test_other_systems_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    (row,) = processes.checks()
    assert (row["name"], row["works"]) == ("shared memory", False)


@pytest.mark.parametrize(("version", "works"), [(None, False), ("1.0", False), ("2026.8.0", True)])
def test_engines_that_are_absent_or_old_are_reported(
    monkeypatch: pytest.MonkeyPatch, version: str | None, works: bool
) -> None:
    listed = processes.engines(lambda module, distribution: version)
    assert [row["works"] for row in listed if row["name"] in ("dask", "ray", "flight")] == [works] * 3
    assert listed[-1]["works"]  # the standard library
    monkeypatch.setattr(processes, "engines", lambda: listed)
    if not works:
        assert "pip install 'distributed>=2026.1'" in " ".join(doctor(monkeypatch).split())


def test_versions_are_those_of_the_extras() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    wanted = {name: f"{distribution}>={oldest}" for name, _, distribution, oldest in processes.ENGINES}
    for name in ("dask", "ray", "flight"):
        assert wanted[name] in extras[name]
