"""``find_holders``: the processes that have a file of the NVIDIA driver open, from ``/proc``.

NVML does not list every process that holds a GPU: a process without a CUDA context, such as a debugger
or a crashed run's child, is missing from nvidia-smi and still prevents a reset of the GPU. This module
reads only; it ends no process.
"""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from zerocopy.formatting import format_count, printable
from zerocopy.monitor.report import aligned
from zerocopy.monitor.sample import Cards

#: Files of a GPU: of CUDA, and of graphics; and the driver's own.
GPU = re.compile(r"/dev/nvidia\d+")
RENDERER = re.compile(r"/dev/dri/(?P<name>card\d+|renderD\d+)")
_DRIVER = re.compile(r"/dev/nvidia(ctl|-uvm|-uvm-tools|-modeset|-caps/.+)")
#: The inode of the first PID namespace (<linux/proc_ns.h>, PROC_PID_INIT_INO).
_FIRST_NAMESPACE = "pid:[4026531836]"
_KERNEL_THREAD = 0x0020_0000  # PF_KTHREAD, <linux/sched.h>
_NVIDIA_VENDOR = "0x10de"

_WIDTH = 80
_HEADS = ["program", "user", "PID", "GPU memory", "in NVML"]


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that has files of the NVIDIA driver open."""

    pid: int
    user: str  # the name, or the number if this system has no name for it
    program: str  # the kernel's name of the program, at most 15 characters; never its arguments
    #: The files. /dev/nvidiactl and /dev/nvidia-uvm alone do not show which GPU the process uses.
    devices: tuple[str, ...]
    listed: bool | None = None  # whether NVML lists the process on a GPU; None without NVML
    memory: int | None = None  # bytes of GPU memory, by NVML
    container: str = ""  # the start of the container's id; empty outside containers
    this_process: bool = False  # reading NVML opens the driver's files

    @property
    def holds_gpu(self) -> bool:
        """Whether a file of a GPU is open, in addition to those of the driver."""
        return any(GPU.fullmatch(name) or RENDERER.fullmatch(name) for name in self.devices)


@dataclass(frozen=True, slots=True)
class Holders:
    """The result of `find_holders`."""

    holders: tuple[Holder, ...]  # in the order of their PIDs
    searched: int  # processes whose open files were read
    unreadable: int  # processes whose open files this user may not read
    unseen: tuple[int, ...]  # PIDs that NVML lists and /proc does not show
    problems: tuple[str, ...]  # one sentence for each part that could not be read, with the remedy

    def as_dict(self) -> dict[str, Any]:
        """Return the result as JSON types."""
        holders = [
            {**asdict(each), "devices": list(each.devices), "holds_gpu": each.holds_gpu}
            for each in self.holders
        ]
        return {**asdict(self), "holders": holders}

    def __str__(self) -> str:
        """Return a table of lines of at most 80 characters, and the parts that could not be read."""
        lines = [f"No process of the {self.searched} that were searched has a GPU open."]
        if self.holders:
            files = [[f"open files: {', '.join(_files(holder))}"] for holder in self.holders]
            lines = aligned(_HEADS, list(map(_cells, self.holders)), files, 2, _WIDTH)
        hidden = sum(one.listed is False and one.holds_gpu and not one.this_process for one in self.holders)
        if hidden:
            verbs = "holds a GPU and is" if hidden == 1 else "hold a GPU and are"
            lines += ["", f"{format_count(hidden, 'process', 'processes')} {verbs} not listed by NVML."]
        lines += [""] * bool(self.problems)
        for problem in self.problems:
            note = f"Note: {problem}."
            lines += textwrap.wrap(note, _WIDTH, subsequent_indent="  ", break_on_hyphens=False)
        return printable("\n".join(lines), "\n")


def _cells(holder: Holder) -> list[str]:
    listed = {True: "yes", False: "no", None: "unknown"}[holder.listed]
    memory = "-" if holder.memory is None else f"{holder.memory / (1 << 20):,.0f} MiB"
    return [holder.program, holder.user, str(holder.pid), memory, listed]


def _files(holder: Holder) -> list[str]:
    names = [name.removeprefix("/dev/") for name in holder.devices]
    names += ["(this command)"] * holder.this_process
    return names + [f"container {holder.container}"] * bool(holder.container)


def find_holders(
    root: Path = Path("/proc"), cards: Cards | None = None, drm: Path = Path("/sys/class/drm")
) -> Holders:
    """Return the processes that have a GPU, or the driver, open.

    Only open file descriptors count. A process that has closed them and keeps memory mapped is not shown.
    `cards` are the GPUs and their processes by NVML, which is read if they are not passed.
    """
    if cards is None:
        from zerocopy.monitor.cards import CardReader

        reader = CardReader()
        cards = reader.read()
        reader.close()
    memory = None if cards["why_not"] else _memory_by_pid(cards)
    renderers = {folder.name for folder in _folders(drm) if _text(folder / "device/vendor") == _NVIDIA_VENDOR}
    pids = sorted(int(path.name) for path in _folders(root) if path.name.isdecimal())
    holders, searched, unreadable = [], 0, 0
    for pid in pids:
        try:
            devices = _devices(root / str(pid), renderers)
            holder = _holder(root / str(pid), pid, devices, memory) if devices else None
        except PermissionError:
            unreadable += not _is_kernel_thread(root / str(pid))
            continue
        except OSError:
            continue  # the process has ended
        searched += 1
        if holder is not None:
            holders.append(holder)
    unseen = tuple(sorted(set(memory or ()) - set(pids)))
    problems = tuple(_problems(root, cards, bool(pids), unreadable, unseen))
    return Holders(tuple(holders), searched, unreadable, unseen, problems)


def _folders(root: Path) -> list[Path]:
    try:
        return list(root.iterdir())
    except OSError:
        return []


def _text(file: Path) -> str:
    """Return a file's text; "" for those that the system does not have, or does not let this user read."""
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""


def _memory_by_pid(cards: Cards) -> dict[int, int | None]:
    memory: dict[int, int | None] = {}
    for card in cards["cards"]:
        for one in card["processes"] or ():
            before, more = memory.get(one["pid"]), one["memory"]
            memory[one["pid"]] = more if before is None else before + (more or 0)
    return memory


# -- one process ------------------------------------------------------------------------


def _devices(process: Path, renderers: set[str]) -> tuple[str, ...]:
    names = set()
    for descriptor in (process / "fd").iterdir():
        try:
            target = os.readlink(descriptor).removesuffix(" (deleted)")
        except PermissionError:
            raise
        except OSError:
            continue  # closed meanwhile
        match = RENDERER.fullmatch(target)
        if match["name"] in renderers if match else GPU.fullmatch(target) or _DRIVER.fullmatch(target):
            names.add(target)
    return tuple(sorted(names))


def _holder(
    process: Path, pid: int, devices: tuple[str, ...], memory: dict[int, int | None] | None
) -> Holder:
    name = (process / "comm").read_text(encoding="utf-8", errors="replace").rstrip("\n")
    container = re.search(r"[0-9a-f]{64}", _text(process / "cgroup"))  # runtimes put the id into the path
    return Holder(
        pid=pid,
        user=_user(process),
        program=printable(name),  # which the program itself chooses
        devices=devices,
        listed=None if memory is None else pid in memory,
        memory=(memory or {}).get(pid),
        container=container[0][:12] if container else "",
        this_process=pid == os.getpid(),
    )


def _user(process: Path) -> str:
    number = process.stat().st_uid
    try:
        import pwd

        return pwd.getpwuid(number).pw_name
    except (ImportError, KeyError):
        return str(number)


def _is_kernel_thread(process: Path) -> bool:
    fields = _text(process / "stat").rpartition(")")[2].split()
    return len(fields) > 6 and fields[6].isdecimal() and bool(int(fields[6]) & _KERNEL_THREAD)


# -- failed reads -------------------------------------------------------------------------


def _problems(
    root: Path, cards: Cards, has_pids: bool, unreadable: int, unseen: tuple[int, ...]
) -> Iterator[str]:
    if not has_pids:
        yield f"{root} shows no processes: the search needs Linux and a mounted /proc"
    if unreadable:
        is_root = getattr(os, "geteuid", lambda: 1)() == 0
        fix = "a container or sandbox denies this to root" if is_root else "run the command as root"
        yield f"the open files of {format_count(unreadable, 'process', 'processes')} could not be read: {fix}"
    if _hides_pids(root):
        yield f"{root} is mounted with hidepid, so processes of other users are not shown: run as root"
    try:
        namespace = os.readlink(root / "self/ns/pid")
    except OSError:
        namespace = _FIRST_NAMESPACE
    if namespace != _FIRST_NAMESPACE:
        yield (
            "this is a container's PID namespace, so processes outside it are not shown: run on the host, or "
            "with --pid=host (Kubernetes: hostPID: true)"
        )
    if unseen:
        yield (
            f"NVML also lists PIDs {', '.join(map(str, unseen))}, which are not shown here: they have ended, "
            "or are PIDs of another namespace"
        )
    if cards["why_not"]:
        yield f"NVML is not available, so memory and hidden processes are unknown: {cards['why_not']}"


def _hides_pids(root: Path) -> bool:
    lines = map(str.split, _text(root / "self/mounts").splitlines())
    mounts = [fields for fields in lines if len(fields) > 3 and fields[1] == "/proc"]
    options = mounts[-1][3].split(",") if mounts else []
    # 0 and "off" hide nothing (proc(5)).
    return any(option.startswith("hidepid=") and option[8:] not in ("0", "off") for option in options)
