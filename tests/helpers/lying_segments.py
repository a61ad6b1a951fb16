"""Segments and handles of a process that lies about its shared memory."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

import zerocopy as zc
from zerocopy.frames import to_frames
from zerocopy.shared.handle import INDEXED, Handle, Location, host_id
from zerocopy.shared.segment import HEAD, MAGIC, NAME, SEALS

GENERATION = 1000


@contextmanager
def memfd(
    size: int, seals: int = SEALS, name: str = NAME, content: bytes = b"", flags: int = 0
) -> Iterator[int]:
    """Make a file as a hostile process does, with a right head."""
    fd = os.memfd_create(name, os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC | flags)
    try:
        os.ftruncate(fd, size)
        if size and not flags:
            os.pwrite(fd, HEAD.pack(MAGIC, GENERATION) + content, 0)
        if seals:
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
        yield fd
    finally:
        os.close(fd)


def handle_of(fd: int, first: int = 4096, count: int = 800, flags: int = 0, **changes: int) -> bytes:
    header = b"" if flags & INDEXED else to_frames(np.zeros(min(count // 8, 1000))).header
    location = Location(host_id(), os.getpid(), fd, os.fstat(fd).st_ino, GENERATION, 0, 0)._replace(**changes)
    return Handle(location, flags, first, count, count, header).pack()


def attempt(data: bytes) -> object:
    try:
        return zc.convert(zc.Shared.from_bytes(data), "numpy")
    except zc.ZeroCopyError as error:
        return type(error)
