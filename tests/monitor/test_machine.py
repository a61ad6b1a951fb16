"""``MachineReader``: the machine's figures, a container's limits, and figures that are hidden."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from zerocopy.errors import FrameworkNotInstalledError
from zerocopy.monitor.observer import MachineReader, require
from zerocopy.monitor.sample import Machine

psutil = pytest.importorskip("psutil")

GIB = 1 << 30


def container(tmp_path: Path, version: int, limit: str, used: int, cache: int = 0) -> MachineReader:
    """Return a reader in a container with this memory limit."""
    cgroups, proc = tmp_path / "cgroup", tmp_path / "proc"
    (proc / "self").mkdir(parents=True)
    if version == 2:
        folder, name, line = cgroups, ("memory.max", "memory.current", "inactive_file"), "0::/"
    else:
        folder, line = cgroups / "memory", "5:memory:/"
        name = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    folder.mkdir(parents=True)
    (proc / "self/cgroup").write_text(line + "\n")
    (folder / name[0]).write_text(limit)
    (folder / name[1]).write_text(str(used))
    (folder / "memory.stat").write_text(f"{name[2]} {cache}\n")
    return MachineReader(cgroups, proc)


def test_the_record_has_the_declared_fields() -> None:
    machine = MachineReader().read()
    json.dumps(machine, allow_nan=False)
    assert set(machine) == set(get_type_hints(Machine))
    assert machine["cpu_count"] == len(machine["cpu_percent"]) >= 1
    assert all(0 <= percent <= 100 for percent in machine["cpu_percent"])
    assert 0 < machine["memory_available"] <= machine["memory_total"]


def test_memory_without_a_limit_is_that_of_the_machine(tmp_path: Path) -> None:
    reader = MachineReader(tmp_path, tmp_path)
    assert reader.read()["memory_total"] == psutil.virtual_memory().total


@pytest.mark.parametrize("version", [1, 2])
def test_memory_is_bounded_by_the_containers_limit(tmp_path: Path, version: int) -> None:
    machine = container(tmp_path, version, str(GIB // 2), GIB // 4, cache=GIB // 8).read()
    assert machine["memory_total"] == GIB // 2
    assert machine["memory_available"] == GIB // 2 - GIB // 4 + GIB // 8  # the kernel drops cached files


@pytest.mark.parametrize(("version", "limit"), [(2, "max"), (1, str((1 << 63) - 4096))])
def test_a_cgroup_without_a_limit_is_ignored(tmp_path: Path, version: int, limit: str) -> None:
    assert container(tmp_path, version, limit, GIB).read()["memory_total"] == psutil.virtual_memory().total


@pytest.mark.parametrize("name", ["disk_io_counters", "net_io_counters", "swap_memory"])
@pytest.mark.parametrize(
    "failure", [None, PermissionError("hidden"), NotImplementedError("no /proc/diskstats")]
)
def test_hidden_counters_are_none(monkeypatch: pytest.MonkeyPatch, name: str, failure: Any) -> None:
    def counters() -> Any:
        if failure is not None:
            raise failure
        return None

    monkeypatch.setattr(psutil, name, counters)
    machine = MachineReader().read()
    fields = {
        "disk_io_counters": (machine["disk_read"], machine["disk_written"]),
        "net_io_counters": (machine["network_received"], machine["network_sent"]),
        "swap_memory": (),
    }
    assert set(fields[name]) <= {None}
    assert machine["swap_used"] >= 0


def test_a_missing_shm_is_none(tmp_path: Path) -> None:
    machine = MachineReader(shm=tmp_path / "absent").read()
    assert machine["shared_memory_total"] is machine["shared_memory_free"] is None


def test_missing_psutil_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psutil", None)
    with pytest.raises(FrameworkNotInstalledError, match="psutil is not installed") as caught:
        MachineReader()
    assert "pip install psutil" in str(caught.value)
    assert isinstance(caught.value, ImportError)
    assert isinstance(caught.value.__cause__, ImportError)


def test_require_returns_the_module() -> None:
    assert require("json", "a test") is json
