"""Folders for machine code: only files that no other user can have written are read.

A stored object file is code that this process runs, so its folder is opened component by component
without symbolic links, and each owner and mode is checked on the opened descriptor.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: opening a named pipe must not wait for a writer.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

MAX_BYTES = 64 << 20  # a kernel's object file has about 200 KiB


class UntrustedError(OSError):
    """Another user can change a folder or a file, so it is neither read nor written."""


def read(folder: str, name: str) -> bytes:
    """Return the bytes of a file that only the user or root can change; raise OSError for others."""
    with _opened(folder, create=False) as at:
        descriptor = os.open(name, _READ, dir_fd=at)
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise UntrustedError(f"{name} is not a regular file")
            _check(status, name)
            content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise UntrustedError(f"{name} has more than {MAX_BYTES} bytes")
    return content


def write(folder: str, name: str, content: bytes) -> None:
    """Store a file atomically; create the folder if necessary. Raise OSError if that is impossible."""
    with _opened(folder, create=True) as at:
        draft = f".{name}.{os.getpid()}.{secrets.token_hex(8)}"
        descriptor = os.open(draft, _NEW, 0o600, dir_fd=at)
        try:
            with open(descriptor, "wb") as file:
                os.fchmod(descriptor, 0o644)  # readable by all users, as other files of the folder
                file.write(content)
            os.rename(draft, name, src_dir_fd=at, dst_dir_fd=at)
        except BaseException:
            os.unlink(draft, dir_fd=at)
            raise


@contextmanager
def _opened(folder: str, *, create: bool) -> Iterator[int]:
    """Yield a descriptor of a folder whose parents and itself belong to the user or to root."""
    if not os.path.isabs(folder):
        raise UntrustedError(f"{folder} is not an absolute path")
    # Links are resolved once. If another user replaces a folder of the result by a link, O_NOFOLLOW
    # refuses it.
    *parents, last = [part for part in os.path.realpath(folder).split(os.sep) if part] or [""]
    at = os.open(os.sep, _FOLDER)
    try:
        for part in (*parents, last):
            _check(os.fstat(at), folder, sticky=True)
            below = _enter(part, at, create=create)
            os.close(at)
            at = below
        _check(os.fstat(at), folder)
        yield at
    finally:
        os.close(at)


def _enter(name: str, at: int, *, create: bool) -> int:
    """Open a folder in the folder `at`; if it does not exist, create it for the user alone."""
    if not create:
        return os.open(name, _FOLDER, dir_fd=at)
    try:
        return os.open(name, _FOLDER, dir_fd=at)
    except FileNotFoundError:
        try:
            os.mkdir(name, 0o700, dir_fd=at)
            os.chmod(name, 0o700, dir_fd=at)  # a umask such as 0o777 would leave it unusable
        except FileExistsError:  # another process has created it
            pass
        return os.open(name, _FOLDER, dir_fd=at)


def _check(status: os.stat_result, path: str, *, sticky: bool = False) -> None:
    """Refuse what another user can change; in a parent, the sticky bit protects its entries."""
    if status.st_uid not in (0, os.geteuid()):
        raise UntrustedError(f"{path} belongs to the user {status.st_uid}, or is in a folder of that user")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not (sticky and status.st_mode & stat.S_ISVTX):
        raise UntrustedError(f"{path} is writable by other users, or is in a folder that is")
