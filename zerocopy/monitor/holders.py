"""``find_holders``: the processes that have a file of the NVIDIA driver open, from ``/proc``.

NVML does not list every process that holds a GPU: a process without a CUDA context, such as a debugger
or a crashed run's child, is missing from nvidia-smi and still prevents a reset of the GPU. This module
reads only; it ends no process.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from zerocopy.formatting.printable import printable
from zerocopy.monitor.holder import GPU, RENDERER, Holder, Holders
from zerocopy.monitor.sample import Cards

#: The inode of the first PID namespace (<linux/proc_ns.h>, PROC_PID_INIT_INO).
_FIRST_NAMESPACE = "pid:[4026531836]"
_KERNEL_THREAD = 0x0020_0000  # PF_KTHREAD, <linux/sched.h>
_NVIDIA_VENDOR = "0x10de"
_DRIVER = re.compile(r"/dev/nvidia(ctl|-uvm|-uvm-tools|-modeset|-caps/.+)")


def find_holders(
    root: Path = Path("/proc"), cards: Cards | None = None, drm: Path = Path("/sys/class/drm")
) -> Holders:
    """Return the processes that have a GPU, or the driver, open.

    Only open file descriptors count. A process that has closed them and keeps memory mapped is not shown.

    Parameters
    ----------
    root : Path, optional
        The process filesystem.
    cards : Cards, optional
        The GPUs and their processes by NVML. Default: read now.
    drm : Path, optional
        The folder that has the vendor of each ``/dev/dri`` file.

    Returns
    -------
    Holders
        `problems` lists the parts that could not be read.

    Examples
    --------
    >>> holders = find_holders()
    >>> holders.searched > 0
    True
    """
    if cards is None:
        from zerocopy.monitor.sources.cards import CardReader

        reader = CardReader()
        cards = reader.read()
        reader.close()
    memory = None if cards["why_not"] else _memory_by_pid(cards)
    renderers = _nvidia_renderers(drm)
    pids = sorted(int(path.name) for path in _folders(root) if path.name.isdecimal())
    holders, searched, unreadable = [], 0, 0
    for pid in pids:
        try:
            devices = _devices(root / str(pid), renderers)
            holder = _holder(root, pid, devices, memory) if devices else None
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


def _memory_by_pid(cards: Cards) -> dict[int, int | None]:
    """Return the memory of each process on all GPUs."""
    memory: dict[int, int | None] = {}
    for card in cards["cards"]:
        for one in card["processes"] or ():
            before, more = memory.get(one["pid"]), one["memory"]
            memory[one["pid"]] = more if before is None else before + (more or 0)
    return memory


def _nvidia_renderers(drm: Path) -> set[str]:
    """Return the names of the ``/dev/dri`` files of NVIDIA's GPUs."""
    names = set()
    for folder in _folders(drm):
        try:
            if (folder / "device/vendor").read_text().strip() == _NVIDIA_VENDOR:
                names.add(folder.name)
        except OSError:
            continue  # a connector or a virtual device
    return names


# -- one process ------------------------------------------------------------------------


def _devices(process: Path, renderers: set[str]) -> tuple[str, ...]:
    """Return the driver's files that the process has open."""
    names = set()
    for descriptor in (process / "fd").iterdir():
        try:
            target = os.readlink(descriptor).removesuffix(" (deleted)")
        except PermissionError:
            raise
        except OSError:
            continue  # closed meanwhile
        match = RENDERER.fullmatch(target)
        if match:
            is_nvidia = match["name"] in renderers
        else:
            is_nvidia = bool(GPU.fullmatch(target) or _DRIVER.fullmatch(target))
        if is_nvidia:
            names.add(target)
    return tuple(sorted(names))


def _holder(root: Path, pid: int, devices: tuple[str, ...], memory: dict[int, int | None] | None) -> Holder:
    process = root / str(pid)
    return Holder(
        pid=pid,
        user=_user(process),
        program=_program(process),
        devices=devices,
        listed=None if memory is None else pid in memory,
        memory=(memory or {}).get(pid),
        container=_container(process),
        this_process=pid == os.getpid(),
    )


def _user(process: Path) -> str:
    number = process.stat().st_uid
    try:
        import pwd

        return pwd.getpwuid(number).pw_name
    except (ImportError, KeyError):
        return str(number)


def _program(process: Path) -> str:
    name = (process / "comm").read_text(encoding="utf-8", errors="replace").rstrip("\n")
    return printable(name)  # which the program itself chooses


def _container(process: Path) -> str:
    """Return the start of the container's id, which runtimes put into the cgroup's path."""
    try:
        match = re.search(r"[0-9a-f]{64}", (process / "cgroup").read_text())
    except OSError:
        return ""
    return match[0][:12] if match else ""


def _is_kernel_thread(process: Path) -> bool:
    """Return whether a process is a kernel thread, which has no open files."""
    try:
        fields = (process / "stat").read_text(errors="replace").rpartition(")")[2].split()
        return bool(int(fields[6]) & _KERNEL_THREAD)
    except (OSError, ValueError, IndexError):
        return False


# -- what could not be read ----------------------------------------------------------------


def _problems(
    root: Path, cards: Cards, has_pids: bool, unreadable: int, unseen: tuple[int, ...]
) -> Iterator[str]:
    if not has_pids:
        yield f"{root} shows no processes: the search needs Linux and a mounted /proc"
    if unreadable:
        subject = "1 process" if unreadable == 1 else f"{unreadable} processes"
        is_root = getattr(os, "geteuid", lambda: 1)() == 0
        fix = "a container or sandbox denies this to root" if is_root else "run the command as root"
        yield f"the open files of {subject} could not be read: {fix}"
    if _hides_pids(root):
        yield f"{root} is mounted with hidepid, so processes of other users are not shown: run as root"
    namespace = _namespace(root)
    if namespace and namespace != _FIRST_NAMESPACE:
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
    try:
        lines = (root / "self/mounts").read_text().splitlines()
    except OSError:
        return False
    mounts = [fields for fields in map(str.split, lines) if len(fields) > 3 and fields[1] == "/proc"]
    options = mounts[-1][3].split(",") if mounts else []
    # 0 and "off" hide nothing (proc(5)).
    return any(option.startswith("hidepid=") and option[8:] not in ("0", "off") for option in options)


def _namespace(root: Path) -> str:
    try:
        return os.readlink(root / "self/ns/pid")
    except OSError:
        return ""
