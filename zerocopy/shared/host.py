"""``host_id`` identifies the machine and the PID namespace of this process, `broker_number` its broker."""

from __future__ import annotations

import errno
import os
from functools import cache

from zerocopy.shared.errors import no_file_descriptor

#: Bytes of the boot ID, and of `host_id`.
BOOT_BYTES, SIZE = 16, 24
_broker_number = 0


@cache
def boot_id() -> bytes:
    """Return the 16 random bytes that the kernel chooses at each start, the same in all its containers."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return bytes.fromhex(file.read().strip().replace("-", ""))
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise no_file_descriptor(error) from error
        raise


def pid_namespace() -> int:
    """Return the inode of the PID namespace, in which a process number is unique."""
    return os.stat("/proc/self/ns/pid").st_ino


@cache
def _host_id() -> bytes:
    return boot_id() + pid_namespace().to_bytes(8, "little")


# A child can be in another namespace than its parent. It gets another object, even if the bytes are equal.
os.register_at_fork(after_in_child=_host_id.cache_clear)


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
    return _host_id()


def broker_number() -> int:
    """Return the random number in the name of this process's broker; its handles carry the number.

    A name made of public facts, such as the process number, could be taken by another user first.
    """
    return _broker_number


def _draw_broker_number() -> None:
    global _broker_number
    _broker_number = int.from_bytes(os.urandom(8), "little")


_draw_broker_number()
os.register_at_fork(after_in_child=_draw_broker_number)
