"""``find_holders``: open files in a fake ``/proc``, what NVML lists, and what cannot be read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.fake_nvml import GIB, FakeNvml, gpu

from zerocopy.monitor import holders as holders_module
from zerocopy.monitor.cards import CardReader
from zerocopy.monitor.holders import Holders, find_holders
from zerocopy.monitor.sample import Cards

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")

NO_NVML = Cards(driver="", why_not="no driver", cards=[])
CONTAINER = "0::/kubepods.slice/cri-containerd-" + "ab" * 32 + ".scope\n"


class Proc:
    """A folder like ``/proc``, and one like ``/sys/class/drm``."""

    def __init__(self, folder: Path) -> None:
        self.root, self.drm = folder / "proc", folder / "drm"
        for name, vendor in (("card0", "0x8086"), ("card1", "0x10de"), ("renderD129", "0x10de")):
            (self.drm / name / "device").mkdir(parents=True)
            (self.drm / name / "device/vendor").write_text(vendor + "\n")
        (self.drm / "card1-DP-1").mkdir()
        self.mounts("rw,nosuid")
        (self.root / "self/ns").mkdir()
        self.namespace(4026531836)

    def mounts(self, options: str) -> None:
        (self.root / "self").mkdir(parents=True, exist_ok=True)
        (self.root / "self/mounts").write_text(f"tmpfs /tmp tmpfs rw 0 0\nproc /proc proc {options} 0 0\n")

    def namespace(self, number: int) -> None:
        (self.root / "self/ns/pid").unlink(missing_ok=True)
        (self.root / "self/ns/pid").symlink_to(f"pid:[{number}]")

    def process(
        self, pid: int, *targets: str, name: str = "python", cgroup: str = "0::/\n", flags: int = 0
    ) -> Path:
        folder = self.root / str(pid)
        (folder / "fd").mkdir(parents=True)
        for number, target in enumerate(targets):
            (folder / "fd" / str(number)).symlink_to(target)
        (folder / "comm").write_text(name + "\n")
        (folder / "cgroup").write_text(cgroup)
        (folder / "stat").write_text(f"{pid} ({name}) S 1 1 1 0 -1 {flags} 0 0\n")
        (folder / "cmdline").write_text("python\0--token=secret\0")
        return folder

    def find(self, cards: Cards = NO_NVML) -> Holders:
        return find_holders(self.root, cards, self.drm)


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


def nvml(*processes: tuple[int, int | None]) -> Cards:
    return CardReader(FakeNvml(gpu(compute=list(processes)))).read()


def forbid(monkeypatch: pytest.MonkeyPatch, *pids: int) -> None:
    """Make the open files of these processes unreadable, also for root."""
    iterdir = Path.iterdir

    def refuse(self: Path) -> Any:
        if self.name == "fd" and int(self.parent.name) in pids:
            raise PermissionError(13, "Permission denied")
        return iterdir(self)

    monkeypatch.setattr(Path, "iterdir", refuse)


def test_processes_with_a_gpu_open_are_listed(proc: Proc) -> None:
    proc.process(10, "/dev/null", "/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia0", "socket:[5]")
    proc.process(11, "/dev/null", "/home/user/nvidia0", "/dev/nvidia0.txt")
    proc.process(12, "/dev/nvidiactl", "/dev/nvidia-uvm")
    result = proc.find()
    assert [one.pid for one in result.holders] == [10, 12]
    assert result.holders[0].devices == ("/dev/nvidia0", "/dev/nvidia1")
    assert [one.holds_gpu for one in result.holders] == [True, False]
    assert result.searched == 3


def test_deleted_files_and_mig_devices_count(proc: Proc) -> None:
    proc.process(10, "/dev/nvidia0 (deleted)", "/dev/nvidia-caps/nvidia-cap12")
    (holder,) = proc.find().holders
    assert holder.devices == ("/dev/nvidia-caps/nvidia-cap12", "/dev/nvidia0")


def test_renderers_of_other_vendors_are_not_listed(proc: Proc) -> None:
    proc.process(10, "/dev/dri/card0", "/dev/dri/renderD128")
    proc.process(11, "/dev/dri/card1", "/dev/dri/renderD129")
    (holder,) = proc.find().holders
    assert holder.devices == ("/dev/dri/card1", "/dev/dri/renderD129")
    assert holder.holds_gpu


def test_processes_that_nvml_does_not_list_are_marked(proc: Proc) -> None:
    for pid in (10, 11, 12):
        proc.process(pid, "/dev/nvidia0")
    result = proc.find(nvml((10, GIB), (11, None)))
    assert [(one.listed, one.memory) for one in result.holders] == [(True, GIB), (True, None), (False, None)]
    assert "1 process holds a GPU and is not listed by NVML." in str(result)


def test_without_nvml_it_is_unknown_what_nvml_lists(proc: Proc) -> None:
    proc.process(10, "/dev/nvidia0")
    result = proc.find()
    assert result.holders[0].listed is None
    assert "NVML is not available" in result.problems[-1]
    assert "unknown" in str(result)


def test_memory_is_summed_over_gpus(proc: Proc) -> None:
    proc.process(10, "/dev/nvidia0", "/dev/nvidia1")
    cards = CardReader(FakeNvml(gpu(0, compute=[(10, 3)]), gpu(1, compute=[(10, 4)]))).read()
    assert proc.find(cards).holders[0].memory == 7


def test_pids_that_only_nvml_lists_are_reported(proc: Proc) -> None:
    proc.process(10, "/dev/nvidia0")
    result = proc.find(nvml((10, 1), (999, 1)))
    assert result.unseen == (999,)
    assert "PIDs 999" in result.problems[-1]


@pytest.mark.hazard("robustness#escape-sequences")
def test_arguments_and_escape_sequences_are_not_shown(proc: Proc) -> None:
    proc.process(10, "/dev/nvidia0", name="a\x1b[2Jb\nc")
    result = proc.find()
    text = str(result) + json.dumps(result.as_dict())
    assert "secret" not in text
    assert "\x1b" not in text
    assert result.holders[0].program == "a\\x1b[2Jb\\nc"


def test_the_user_is_named(proc: Proc) -> None:
    pwd = pytest.importorskip("pwd")
    folder = proc.process(10, "/dev/nvidia0")
    assert proc.find().holders[0].user == pwd.getpwuid(folder.stat().st_uid).pw_name


def test_a_user_without_a_name_is_a_number(proc: Proc, monkeypatch: pytest.MonkeyPatch) -> None:
    import pwd

    def unknown(number: int) -> Any:
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    folder = proc.process(10, "/dev/nvidia0")
    assert proc.find().holders[0].user == str(folder.stat().st_uid)


def test_containers_are_named(proc: Proc) -> None:
    proc.process(10, "/dev/nvidia0", cgroup=CONTAINER)
    proc.process(11, "/dev/nvidia0")
    assert [one.container for one in proc.find().holders] == ["ab" * 6, ""]


# -- what could not be read ----------------------------------------------------------------


def test_unreadable_processes_are_counted(proc: Proc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for pid in (10, 11, 12):
        proc.process(pid, "/dev/nvidia0")
    forbid(monkeypatch, 10, 12)
    result = proc.find()
    assert ([one.pid for one in result.holders], result.searched, result.unreadable) == ([11], 1, 2)
    assert "2 processes could not be read: run the command as root" in result.problems[0]


def test_threads_of_the_kernel_are_not_counted(proc: Proc, monkeypatch: pytest.MonkeyPatch) -> None:
    proc.process(2, name="kthreadd", flags=0x0020_8040)
    proc.process(3, name="odd) S (name")
    forbid(monkeypatch, 2, 3)
    assert proc.find().unreadable == 1


def test_root_is_not_advised_to_be_root(proc: Proc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    proc.process(10)
    forbid(monkeypatch, 10)
    assert "1 process could not be read: a container or sandbox denies" in proc.find().problems[0]


@pytest.mark.parametrize(
    ("options", "hidden"),
    [("rw", False), ("rw,hidepid=0", False), ("rw,hidepid=2", True), ("hidepid=invisible", True)],
)
def test_hidepid_is_reported(proc: Proc, options: str, hidden: bool) -> None:
    proc.mounts(options)
    assert any("mounted with hidepid" in problem for problem in proc.find().problems) == hidden


def test_another_pid_namespace_is_reported(proc: Proc) -> None:
    proc.namespace(4026532000)
    assert any("hostPID" in problem for problem in proc.find().problems)


def test_processes_that_end_meanwhile_are_skipped(proc: Proc, monkeypatch: pytest.MonkeyPatch) -> None:
    proc.process(10, "/dev/nvidia0")
    (proc.process(11, "/dev/nvidia0") / "comm").unlink()
    (proc.root / "12").mkdir()
    assert [one.pid for one in proc.find().holders] == [10]


def test_a_system_without_proc(tmp_path: Path) -> None:
    result = find_holders(tmp_path / "absent", NO_NVML, tmp_path / "absent")
    assert (result.holders, result.searched) == ((), 0)
    assert "needs Linux" in result.problems[0]


# -- text and JSON ------------------------------------------------------------------------


def test_the_result_is_json(proc: Proc) -> None:
    proc.process(10, "/dev/nvidia0")
    document = json.loads(json.dumps(proc.find(nvml((10, 5))).as_dict()))
    (holder,) = document["holders"]
    assert (holder["pid"], holder["devices"], holder["memory"]) == (10, ["/dev/nvidia0"], 5)
    assert set(document) == {"holders", "searched", "unreadable", "unseen", "problems"}


# -- the real /proc -----------------------------------------------------------------------


def test_open_files_of_this_machine_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A process that has a file open is found in the real /proc, and is not ended."""
    import re

    path = tmp_path / "nvidia0"
    path.touch()
    monkeypatch.setattr(holders_module, "GPU", re.compile(re.escape(str(path))))
    program = "import sys; f = open(sys.argv[1]); print(flush=True); sys.stdin.read()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", program, str(path)], **pipes) as child:  # type: ignore[call-overload]
        try:
            child.stdout.readline()
            with path.open():
                result = find_holders(cards=NO_NVML)
            mine = {one.pid: one.this_process for one in result.holders}
            assert mine == {child.pid: False, os.getpid(): True}
            assert child.poll() is None
        finally:
            child.kill()
