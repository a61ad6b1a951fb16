"""Open damaged and hostile handles, and watch which files are opened.

    python tests/shared/faults/fuzz.py [count] [seed]

An owner in another process holds arrays and a table. The handles are changed: bits flip, bytes go missing,
fields get other values (with a right checksum, as a hostile sender makes it), processes and descriptors
are those of other programs. An audit hook records each file that is opened, and each connection.
"""

from __future__ import annotations

import codecs
import json
import os
import random
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections import Counter
from pathlib import Path

import numpy as np

import zerocopy as zc
from zerocopy.shared.cuda import opening  # noqa: F401  # as opening a handle of CUDA memory does
from zerocopy.shared.handle import Handle, Location, parse

OWNER = """
import sys, numpy as np, pyarrow as pa, zerocopy as zc
kept = [
    zc.share(np.arange(24, dtype="f4").reshape(2, 3, 4)),
    zc.share(np.arange(200_000, dtype="i8")),
    zc.share(pa.table({"a": range(1000), "b": [str(i) for i in range(1000)]})),
    zc.share(pa.table({"a": range(50_000), "b": [str(i) for i in range(50_000)]})),
]
big = zc.shared_empty((256, 1024), "f4")
big[:] = 3
kept.append(zc.share(big[5:9]))
for shared in kept:
    print(bytes(shared).hex(), flush=True)
sys.stdin.read()
"""
_LOCATION = ("host", "pid", "fd", "inode", "generation", "start", "broker")
_HANDLE = ("flags", "first", "length", "nbytes")


class Watch:
    """Records files that this thread opens other than segments, and connections other than to brokers."""

    def __init__(self) -> None:
        self.foreign: list[str] = []
        self.opened = 0
        self._thread = 0
        sys.addaudithook(self._hook)

    def __enter__(self) -> Watch:
        self._thread = threading.get_ident()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread = 0

    def _hook(self, event: str, args: tuple) -> None:
        if self._thread != threading.get_ident():
            return
        if event == "socket.connect" and not str(args[1]).startswith("\0zerocopy-"):
            self.foreign.append(f"connect {args[1]!r}")
        if event != "open":
            return
        path, _, flags = args
        if flags & os.O_PATH:  # opens nothing
            return
        self.opened += 1
        if path in ("/proc/self/pagemap",):
            return
        try:
            status = os.stat(path)
            is_ours = os.readlink(path) == "/memfd:zerocopy (deleted)" and status.st_uid == os.geteuid()
        except OSError:
            is_ours = False
        if not is_ours:
            self.foreign.append(f"open {path!r}")


def changed(choose: random.Random, handles: list[bytes], pids: list[int]) -> tuple[bytes, bool]:
    """Return a changed handle, and whether its checksum is right."""
    data = bytearray(choose.choice(handles))
    how = choose.randrange(8)
    if how == 0:
        for _ in range(choose.randrange(1, 4)):
            data[choose.randrange(len(data))] ^= 1 << choose.randrange(8)
        return bytes(data), False
    if how == 1:
        return bytes(data[: choose.randrange(len(data))]), False
    if how == 2:
        return choose.randbytes(choose.randrange(200)), False
    if how == 3:  # any byte, with a right checksum
        for _ in range(choose.randrange(1, 4)):
            data[choose.randrange(len(data) - 4)] = choose.randrange(256)
        return signed(data[:-4]), True
    handle = parse(bytes(data))
    location = handle.location
    if how == 4:  # other processes and descriptors
        pid = choose.choice(pids)
        location = location._replace(pid=pid, fd=choose.randrange(40))
    elif how == 5:
        name = choose.choice(_LOCATION)
        value = choose.randbytes(24) if name == "host" else number(choose, name in ("pid", "fd"))
        location = location._replace(**{name: value})
    elif how == 6:
        name = choose.choice(_HANDLE)
        value = choose.randrange(256) if name == "flags" else number(choose, False)
        handle = handle._replace(**{name: value})
    else:  # parts of two handles
        other = parse(choose.choice(handles))
        handle = handle._replace(**{name: getattr(other, name) for name in choose.sample(Handle._fields, 2)})
        location = handle.location
    return handle._replace(location=Location(*location)).pack(), True


def number(choose: random.Random, is_short: bool) -> int:
    """Return a number that may be special."""
    bits = choose.choice((1, 4, 8, 12, 16, 24, 31, 32, 40, 62, 63, 64))
    value = choose.choice((choose.getrandbits(bits), (1 << bits) - 1, 1 << (bits - 1)))
    return value & (0xFFFF_FFFF if is_short else 0xFFFF_FFFF_FFFF_FFFF)


def signed(data: bytes | bytearray) -> bytes:
    """Return bytes with the checksum that belongs to them."""
    return bytes(data) + struct.pack("<I", zlib.crc32(data))


def attempt(data: bytes) -> str:
    """Open a handle, read the whole object, and return the outcome."""
    try:
        shared = zc.Shared.from_bytes(data)
        repr(shared)
        value = zc.convert(shared, to="numpy" if type(shared).__name__ == "SharedArray" else "pyarrow")
    except zc.ZeroCopyError as error:
        return type(error).__name__
    if isinstance(value, np.ndarray):
        if value.nbytes < 1 << 24:
            zlib.crc32(np.ascontiguousarray(value).view(np.uint8) if value.nbytes else b"")
    else:
        value.nbytes  # noqa: B018
    return "opened"


def warm(handles: list[bytes]) -> None:
    """Import all modules that some handle needs, so that no import opens a file later."""
    for name in zc.__all__:
        getattr(zc, name)
    for data in handles:
        assert attempt(data) == "opened"
    attempt(handles[0][:3])
    codecs.lookup("unicode_escape")  # imported for the first name that is not printable
    for flags in range(256):
        attempt(parse(handles[0])._replace(flags=flags).pack())


def main(count: int = 100_000, seed: int = 1) -> dict:
    """Open `count` changed handles."""
    choose, counts = random.Random(seed), Counter()
    watch, began = Watch(), time.monotonic()
    with subprocess.Popen([sys.executable, "-c", OWNER], stdin=-1, stdout=-1, text=True) as process:
        handles = [bytes.fromhex(process.stdout.readline()) for _ in range(5)]
        warm(handles)
        pids = [int(each.name) for each in Path("/proc").glob("[0-9]*")]
        for _ in range(count):
            data, is_signed = changed(choose, handles, pids)
            with watch:
                outcome = attempt(data)
            counts[outcome] += 1
            if outcome == "opened" and not is_signed and data not in handles:
                counts["accepted without a right checksum"] += 1
        for data in handles:
            assert attempt(data) == "opened"
        process.stdin.close()
    return {
        **counts,
        "files opened": watch.opened,
        "foreign": watch.foreign[:10],
        "seconds": round(time.monotonic() - began, 1),
        "kernel": os.uname().release,
        "python": sys.version.split()[0],
    }


if __name__ == "__main__":
    print(json.dumps(main(*map(int, sys.argv[1:]))))
