"""``Holder`` and ``Holders``: the processes with open files of the NVIDIA driver, as data and as text."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from typing import Any

from zerocopy.formatting.printable import printable

#: Files of a GPU: of CUDA, and of graphics.
GPU = re.compile(r"/dev/nvidia\d+")
RENDERER = re.compile(r"/dev/dri/(?P<name>card\d+|renderD\d+)")

_WIDTH = 80
_LINE = "{:>8}  {:<10}  {:<15}  {:>10}  {:<9}  {}"


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that has files of the NVIDIA driver open.

    Attributes
    ----------
    pid : int
        Process ID.
    user : str
        The user's name, or the number if this system has no name for it.
    program : str
        The kernel's name of the program, at most 15 characters; never its arguments.
    devices : tuple of str
        The files, such as ``"/dev/nvidia0"``. ``/dev/nvidiactl`` and ``/dev/nvidia-uvm`` alone mean that
        the process uses the driver; they do not show which GPU it uses.
    listed : bool or None
        Whether NVML lists the process on a GPU; None without NVML.
    memory : int or None
        Bytes of GPU memory, by NVML.
    container : str
        The start of the container's id; empty outside containers.
    this_process : bool
        Whether it is the searching process itself: reading NVML opens the driver's files.
    """

    pid: int
    user: str
    program: str
    devices: tuple[str, ...]
    listed: bool | None = None
    memory: int | None = None
    container: str = ""
    this_process: bool = False

    @property
    def holds_gpu(self) -> bool:
        """Whether a file of a GPU is open, in addition to those of the driver."""
        return any(GPU.fullmatch(name) or RENDERER.fullmatch(name) for name in self.devices)


@dataclass(frozen=True, slots=True)
class Holders:
    """The result of `find_holders`.

    Attributes
    ----------
    holders : tuple of Holder
        In the order of their PIDs.
    searched : int
        Processes whose open files were read.
    unreadable : int
        Processes whose open files this user may not read.
    unseen : tuple of int
        PIDs that NVML lists and ``/proc`` does not show.
    problems : tuple of str
        One sentence for each part that could not be read, with the remedy.
    """

    holders: tuple[Holder, ...]
    searched: int
    unreadable: int
    unseen: tuple[int, ...]
    problems: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the result as JSON types."""
        return {
            "holders": [_as_dict(holder) for holder in self.holders],
            "searched": self.searched,
            "unreadable": self.unreadable,
            "unseen": list(self.unseen),
            "problems": list(self.problems),
        }

    def __str__(self) -> str:
        """Return lines of at most 80 characters."""
        return _text(self)


def _as_dict(holder: Holder) -> dict[str, Any]:
    names = ("pid", "user", "program", "listed", "memory", "container", "this_process", "holds_gpu")
    return {name: getattr(holder, name) for name in names} | {"devices": list(holder.devices)}


# -- text: lines of at most 80 characters ------------------------------------------------


def _text(result: Holders) -> str:
    """Return a table of the processes, and what could not be read."""
    lines = []
    if result.holders:
        lines.append(_LINE.format("PID", "user", "program", "GPU memory", "in NVML", "open files"))
        for holder in result.holders:
            lines += _holder_lines(holder)
    else:
        lines.append(f"No process of the {result.searched} that were searched has a GPU open.")
    hidden = sum(one.listed is False and one.holds_gpu and not one.this_process for one in result.holders)
    if hidden:
        subject = "1 process holds a GPU and is" if hidden == 1 else f"{hidden} processes hold a GPU and are"
        lines += ["", f"{subject} not listed by NVML."]
    if result.problems:
        lines.append("")
    for problem in result.problems:
        lines += textwrap.wrap(f"Note: {problem}.", _WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    return printable("\n".join(line.rstrip() for line in lines), "\n")


def _holder_lines(holder: Holder) -> list[str]:
    listed = {True: "yes", False: "no", None: "unknown"}[holder.listed]
    memory = "-" if holder.memory is None else f"{holder.memory / (1 << 20):,.0f} MiB"
    names = [name.removeprefix("/dev/") for name in holder.devices]
    if holder.this_process:
        names.append("(this command)")
    if holder.container:
        names.append(f"container {holder.container}")
    head = _LINE.format(holder.pid, _cut(holder.user, 10), _cut(holder.program, 15), memory, listed, "")
    text = ", ".join(names)
    if len(head) + len(text) <= _WIDTH:
        return [head + text]
    indent = " " * 10
    wrapped = textwrap.wrap(
        text, _WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )
    return [head, *wrapped]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}+"
