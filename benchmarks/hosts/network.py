"""Two hosts on one machine: Linux network namespaces with one link, each with processes of its own.

A host has its address and its PID namespace, so that zerocopy treats the other host as another machine. It
needs root, and the programs `ip` and `unshare`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

#: The addresses of the hosts, which exist in their namespaces alone.
ADDRESSES = ("10.77.0.1", "10.77.0.2")

_LINK = "link0"
#: The processes of a command end with it.
_UNSHARE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


def missing() -> str:
    """Return what this process lacks to make two hosts; empty if nothing."""
    programs = [name for name in ("ip", "unshare") if shutil.which(name) is None]
    if programs:
        return f"needs {' and '.join(programs)}: install iproute2 and util-linux"
    if os.geteuid() != 0:
        return "needs root, to make network namespaces"
    probe = subprocess.run([*_UNSHARE, "--net", "true"], capture_output=True, text=True, check=False)
    return f"the kernel makes no namespace: {probe.stderr.strip()}" if probe.returncode else ""


@contextmanager
def two_hosts() -> Iterator[Sequence[Sequence[str]]]:
    """Make two hosts, and delete them at the end; yields the words before a command that run it on each."""
    names = [f"zc{os.getpid()}{end}" for end in "ab"]
    try:
        for name in names:
            _ip("netns", "add", name)
        ends = [f"{_LINK} netns {name}".split() for name in names]
        _ip("link", "add", *ends[0], "type", "veth", "peer", "name", *ends[1])
        for name, address, other in zip(names, ADDRESSES, reversed(ADDRESSES), strict=True):
            _ip("-n", name, "address", "add", f"{address}/24", "dev", _LINK)
            for device in ("lo", _LINK):
                _ip("-n", name, "link", "set", device, "up")
            _ip("-n", name, "route", "add", "default", "via", other)  # Ray looks for one
        yield [("ip", "netns", "exec", name, *_UNSHARE) for name in names]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], capture_output=True, check=True)
