"""Which machine and PID namespace this process runs in."""

from __future__ import annotations

import os
from functools import cache

#: Bytes of `host_id`.
SIZE = 24


@cache
def boot_id() -> bytes:
    """Return the 16 bytes that the kernel draws at each start; containers of one machine share them."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return bytes.fromhex(file.read().strip().replace("-", ""))


def pid_namespace() -> int:
    """Return the inode of the PID namespace, in which a process number is unique."""
    return os.stat("/proc/self/ns/pid").st_ino


# Not cached across forks: a child can be the first process of a new namespace.
@cache
def _host_id(pid: int) -> bytes:
    return boot_id() + pid_namespace().to_bytes(8, "little")


def host_id() -> bytes:
    """Return bytes that are equal in two processes if a process number means the same in both.

    Returns
    -------
    bytes
        The machine's boot ID (16 bytes), and the inode of the PID namespace (8 bytes).

    Examples
    --------
    >>> len(host_id()), host_id() == host_id()
    (24, True)
    """
    return _host_id(os.getpid())
