"""Kill owners and readers of shared memory at random points, and count the failures.

    python tests/shared/faults/kills.py [count] [seed]

Each round forks an owner, which shares arrays and sends their handles through a pipe, and a reader, which
opens and verifies them. One of them, or both, gets SIGKILL after a random time. The other has to end by
itself. The memory that is left is that of a cgroup for these processes, where the process may make one.
"""

from __future__ import annotations

import json
import os
import random
import signal
import struct
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

import zerocopy as zc

SIZES = (200, 5_000, 60_000, 100_000, 300_000, 1_000_000)
MESSAGE = struct.Struct("<HQQ")  # bytes of the handle, seed, bytes of the array
KEPT = 4
PATIENCE = 20.0
CGROUP = Path("/sys/fs/cgroup/memory")


def pattern(seed: int, nbytes: int) -> np.ndarray:
    """Return bytes that no other seed has."""
    return (np.arange(nbytes, dtype=np.uint32) * 2_654_435_761 + seed).view(np.uint8)[::4].copy()


def owner(pipe: int, seed: int) -> None:
    """Share arrays until the reader is gone; the last few stay alive."""
    choose, kept = random.Random(seed), []
    for i in range(100_000):
        number, nbytes = seed + i, choose.choice(SIZES)
        if choose.random() < 0.3:
            array = zc.shared_empty(nbytes, "u1")
            array[:] = pattern(number, nbytes)
            shared = zc.share(array)
        else:
            shared = zc.share(pattern(number, nbytes))
        data = bytes(shared)
        os.write(pipe, MESSAGE.pack(len(data), number, nbytes) + data)
        kept = [*kept[1 - KEPT :], shared]


def reader(pipe: int, results: int, seed: int) -> None:
    """Open handles until the owner is gone; verify each array now, and again while it is held."""
    choose, held = random.Random(seed), []
    with open(pipe, "rb") as file:
        while len(start := file.read(MESSAGE.size)) == MESSAGE.size:
            length, number, nbytes = MESSAGE.unpack(start)
            data = file.read(length)
            if len(data) < length:
                break
            try:
                array = zc.convert(zc.Shared.from_bytes(data), to="numpy")
            except zc.errors.StaleHandleError:
                os.write(results, b"s")
                continue
            held = [*held[-choose.randrange(4) :], (array, pattern(number, nbytes))]
            right = all(np.array_equal(*pair) for pair in held)
            os.write(results, b"r" if right else b"w")


def forked(function, *args) -> int:
    """Run a function in a child; any error but a closed pipe is its exit status 3."""
    child = os.fork()
    if child:
        return child
    status = 0
    try:
        signal.alarm(int(3 * PATIENCE))
        function(*args)
    except BrokenPipeError:
        pass
    except BaseException:  # noqa: BLE001  # the child must end here
        import traceback

        traceback.print_exc()
        status = 3
    os._exit(status)


def ended(child: int) -> int | None:
    """Return the status of a child, or None if it hangs; it is then killed."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.0005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def one_round(choose: random.Random, counts: Counter) -> None:
    """Start an owner and a reader, kill, and wait for both."""
    handles, results = os.pipe(), os.pipe()
    seed = choose.getrandbits(32)

    def as_owner() -> None:
        for fd in (handles[0], *results):
            os.close(fd)
        owner(handles[1], seed)

    def as_reader() -> None:
        for fd in (handles[1], results[0]):
            os.close(fd)
        reader(handles[0], results[1], seed)

    children = {"owner": forked(as_owner), "reader": forked(as_reader)}
    for fd in (*handles, results[1]):
        os.close(fd)
    victims = choose.choice([["owner"], ["reader"], ["owner", "reader"], ["reader", "owner"]])
    time.sleep(choose.random() * 0.08)
    for victim in victims:
        os.kill(children[victim], signal.SIGKILL)
        counts["killed " + victim] += 1
    for name, child in children.items():
        status = ended(child)
        if status is None:
            counts["hangs"] += 1
        elif name not in victims and status != 0:
            counts["survivors that failed"] += 1
    with open(results[0], "rb") as file:
        for letter in file.read().decode():
            counts[{"r": "right", "w": "wrong", "s": "stale"}[letter]] += 1


def memfds() -> int:
    """Return how many descriptors of segments the processes of this run have open."""
    count = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(process.name)) != os.getpgid(0):
                continue
            count += sum(os.readlink(fd) == "/memfd:zerocopy (deleted)" for fd in (process / "fd").iterdir())
        except OSError:
            continue
    return count


class Cgroup:
    """A memory cgroup (version 1) for this process and its children, if this process may make one."""

    def __init__(self) -> None:
        self.folder: Path | None = CGROUP / f"zerocopy-kills-{os.getpid()}"
        try:
            self.folder.mkdir()
            (self.folder / "cgroup.procs").write_text(str(os.getpid()))
        except OSError:
            self.folder = None

    def shared_bytes(self) -> int | None:
        """Return the bytes of shared memory of the cgroup, or None."""
        if self.folder is None:
            return None
        lines = (self.folder / "memory.stat").read_text().splitlines()
        return int(dict(line.split() for line in lines)["shmem"])

    def remove(self) -> None:
        """Move this process out, and remove the cgroup."""
        if self.folder is not None:
            (CGROUP / "cgroup.procs").write_text(str(os.getpid()))
            self.folder.rmdir()


def main(count: int = 1000, seed: int = 1) -> dict:
    """Run until `count` processes were killed."""
    os.setpgid(0, 0)
    for nbytes in (SIZES[0], SIZES[-1]):  # imports and caches that the children inherit
        zc.convert(zc.share(pattern(0, nbytes)), to="numpy")
    zc.share(zc.shared_empty(8, "u1"))
    choose, counts, group = random.Random(seed), Counter(wrong=0, hangs=0, stale=0, right=0), Cgroup()
    began, before = time.monotonic(), group.shared_bytes()
    while counts["killed owner"] + counts["killed reader"] < count:
        one_round(choose, counts)
    after = group.shared_bytes()
    group.remove()
    counts["survivors that failed"] += 0
    return {
        **counts,
        "segments left": memfds(),
        "bytes left": None if before is None or after is None else after - before,
        "seconds": round(time.monotonic() - began, 1),
        "kernel": os.uname().release,
        "python": sys.version.split()[0],
    }


if __name__ == "__main__":
    print(json.dumps(main(*map(int, sys.argv[1:]))))
