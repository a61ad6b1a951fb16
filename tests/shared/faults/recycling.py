"""Owners reuse memory while readers open, hold and share again the objects that were in it.

    python tests/shared/faults/recycling.py [rounds] [readers] [owners]

Owners share arrays with checksums, and drop them soon, so that their memory is used again at once. Readers
get handles late, and check each array when they open it and again before they drop it.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import struct
import sys
import time
import zlib
from collections import Counter, deque

import numpy as np

import zerocopy as zc
from zerocopy.shared.blocks import large_blocks

SIZES = (3_000, 40_000, 70_000, 120_000, 250_000)
MESSAGE = struct.Struct("<HI")  # bytes of the handle, checksum
KEPT = 96
COUNTS = ("right", "stale", "wrong", "handed on", "other errors", "rounds", "recycled")
_SUMMARY = struct.Struct(f"<{len(COUNTS)}Q")


def owner(rounds: int, pipes: list[int], counts: Counter, seed: int) -> None:
    """Share arrays of random bytes; each handle goes to one reader or two."""
    choose, rng = random.Random(seed), np.random.default_rng(seed)
    noise = rng.integers(0, 256, 2 * SIZES[-1], dtype=np.uint8)
    kept: deque = deque(maxlen=KEPT)
    for i in range(rounds):
        nbytes, first = choose.choice(SIZES), choose.randrange(SIZES[-1])
        array = noise[first : first + nbytes].copy()
        array[:8] = np.frombuffer(struct.pack("<Q", seed << 40 | i), np.uint8)
        shared = zc.share(array)
        data = bytes(shared)
        message = MESSAGE.pack(len(data), zlib.crc32(array)) + data
        for pipe in choose.sample(pipes, choose.choice((1, 2))):
            os.write(pipe, message)  # at once: a pipe takes up to 4096 bytes as a whole
        kept.append(shared)
        counts["rounds"] += 1
    counts["recycled"] += large_blocks.recycled


def reader(pipe: int, others: list[int], counts: Counter, seed: int) -> None:
    """Open handles, hold some results, and hand some on to other readers."""
    choose = random.Random(seed)
    held: deque = deque(maxlen=3)
    handed: deque = deque(maxlen=8)
    with open(pipe, "rb") as file:
        while len(start := file.read(MESSAGE.size)) == MESSAGE.size:
            length, checksum = MESSAGE.unpack(start)
            data = file.read(length)
            try:
                array = zc.convert(zc.Shared.from_bytes(data), to="numpy")
            except zc.errors.StaleHandleError:
                counts["stale"] += 1
                continue
            except Exception:
                counts["other errors"] += 1
                raise
            counts["right" if zlib.crc32(array) == checksum else "wrong"] += 1
            if choose.random() < 0.3:
                held.append((array, checksum))
            counts["wrong"] += sum(zlib.crc32(each) != right for each, right in held)
            if choose.random() < 0.1:
                shared = zc.share(array)
                data = bytes(shared)
                try:
                    os.write(choose.choice(others), MESSAGE.pack(len(data), checksum) + data)
                except BlockingIOError:
                    continue
                handed.append(shared)
                counts["handed on"] += 1


def forked(function, results: int, *args) -> int:
    """Run a function with counts in a child, and write the counts."""
    child = os.fork()
    if child:
        return child
    counts: Counter = Counter()
    status = 0
    try:
        function(*args[:-1], counts, args[-1])
    except BaseException:  # noqa: BLE001  # the child must end here
        import traceback

        traceback.print_exc()
        status = 3
    os.write(results, _SUMMARY.pack(*(counts[name] for name in COUNTS)))
    os._exit(status)


def main(rounds: int = 100_000, readers: int = 16, owners: int = 2) -> dict:
    """Run owners and readers, and return the sums of their counts."""
    zc.convert(zc.share(np.zeros(SIZES[-1])), to="numpy")  # imports that the children inherit
    began, results = time.monotonic(), os.pipe()
    pipes = [os.pipe() for _ in range(readers)]
    for end in pipes:
        fcntl.fcntl(end[1], fcntl.F_SETPIPE_SZ, 4096)
    # Readers write to each other through descriptions of their own, which do not block.
    direct = [os.open(f"/proc/self/fd/{end[1]}", os.O_WRONLY | os.O_NONBLOCK) for end in pipes]
    stop = os.pipe()
    children = []
    for i in range(readers):

        def read(counts: Counter, seed: int, i: int = i) -> None:
            for j, end in enumerate(pipes):
                os.close(end[1])
                if j != i:
                    os.close(end[0])
            # A reader ends when no owner is left; other readers keep its pipe open until then.
            os.close(stop[1])
            _end_with(stop[0], direct)
            reader(pipes[i][0], direct, counts, seed)

        children.append(forked(read, results[1], i))
    owning = []
    for i in range(owners):

        def own(counts: Counter, seed: int) -> None:
            owner(rounds // owners, [end[1] for end in pipes], counts, seed)

        owning.append(forked(own, results[1], 1000 + i))
    for fd in [fd for end in pipes for fd in end] + direct + [stop[0]]:
        os.close(fd)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in owning]
    os.close(stop[1])
    statuses += [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    os.close(results[1])
    total: Counter = Counter(dict.fromkeys(COUNTS, 0))
    with open(results[0], "rb") as file:
        while len(data := file.read(_SUMMARY.size)) == _SUMMARY.size:
            total.update(dict(zip(COUNTS, _SUMMARY.unpack(data), strict=True)))
    return {
        **total,
        "failed processes": sum(status != 0 for status in statuses),
        "seconds": round(time.monotonic() - began, 1),
        "kernel": os.uname().release,
        "python": sys.version.split()[0],
    }


def _end_with(stop: int, fds: list[int]) -> None:
    """Redirect descriptors to /dev/null when the writing end of a pipe is closed in all processes."""
    from threading import Thread

    def wait() -> None:
        os.read(stop, 1)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for fd in fds:
            os.dup2(nowhere, fd, inheritable=False)

    Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    print(json.dumps(main(*map(int, sys.argv[1:]))))
