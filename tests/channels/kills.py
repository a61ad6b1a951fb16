"""Processes of one channel that are killed at random points.

1,000 kills, 500 in each mode, take a minute::

    python tests/channels/kills.py --seed 1 --kills 1000

A writer and three readers run; one of the four is killed and replaced, again and again. The seed determines
which, and the pauses between kills. A reader exits with status 1 if an item is torn, repeated or, in a queue,
missing; the last readers must reach the end, and no descriptor, process or memory may be left.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import time

import numpy as np

import zerocopy as zc
from zerocopy.channels.channel import MODES, Channel
from zerocopy.errors import ChannelClosedError, StaleHandleError

SIZE = 20_000
READERS = 3


def write(channel: Channel) -> None:
    values = np.empty(SIZE, "i8")
    own, count = time.monotonic_ns(), 0  # numbers of processes are used again
    while True:
        values[:] = count
        try:
            if count % 2:
                with channel.slot() as slot:
                    slot["writer"][...], slot["count"][...], slot["values"][:] = own, count, values
            else:
                channel.put({"writer": own, "count": count, "values": values})
        except ChannelClosedError:  # all readers were killed, or the writer before this one has not ended yet
            time.sleep(0.001)
            continue
        count += 1
        if os.getppid() == 1:
            os._exit(3)


def read(channel: Channel, is_queue: bool) -> None:
    writer, last, ended = 0, -1, set()
    reader = channel.read()
    while True:
        try:
            batch = next(reader)
        except ChannelClosedError:  # the writer was killed, and its successor has not begun
            time.sleep(0.0005)
            continue
        except StopIteration:
            os._exit(0)
        source, count = int(batch["writer"]), int(batch["count"])
        if not (batch["values"] == count).all():
            fail(f"torn: item {count} of {source}")
        if source != writer:
            ended.add(writer)
            if source in ended or (is_queue and writer and count != 0):
                fail(f"item {count} of {source} follows item {last} of {writer}")
        elif count != last + 1 if is_queue else count <= last:
            fail(f"item {count} follows item {last} of one writer")
        writer, last = source, count


def fail(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
    os._exit(1)


def start(function, *args) -> int:
    pid = os.fork()
    if not pid:
        try:
            function(*args)
        except BaseException as error:  # noqa: BLE001 - the parent sees the status
            fail(f"{function.__name__}: {type(error).__name__}: {error}")
        os._exit(0)
    return pid


def kill(mode: str, seed: int, kills: int) -> None:
    """Kill processes of a channel, and check those that are left."""
    rng = random.Random(f"{mode} {seed}")
    spec = {"writer": ((), "i8"), "count": ((), "i8"), "values": ((SIZE,), "i8")}
    channel = zc.channel(spec, slots=5, mode=mode)
    is_queue = mode == "queue"
    jobs = [(write, channel)] + [(read, channel, is_queue)] * READERS
    pids = [start(*job) for job in jobs]
    descriptors = len(os.listdir("/proc/self/fd"))
    for _ in range(kills):
        time.sleep(rng.random() * 0.004)
        place = rng.randrange(len(pids))
        os.kill(pids[place], signal.SIGKILL)
        check(pids[place], killed=True)
        pids[place] = start(*jobs[place])
    before = channel.stats().published
    end = time.monotonic() + 120
    while channel.stats().published < before + 20:
        assert time.monotonic() < end, f"the processes that are left do not go on: {channel.stats()}"
        time.sleep(0.01)
    os.kill(pids[0], signal.SIGKILL)
    check(pids[0], killed=True)
    with channel:  # the parent writes the last item, and closes
        while True:
            try:
                channel.put({"writer": os.getpid(), "count": 0, "values": np.zeros(SIZE, "i8")}, timeout=120)
                break
            except ChannelClosedError:
                time.sleep(0.001)
    for pid in pids[1:]:
        check(pid)
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 1
    address = channel.handle
    del channel, jobs
    try:
        zc.channel(address)
    except StaleHandleError:
        print(f"{mode}, seed {seed}: {kills} kills, {before} items", flush=True)
    else:
        raise AssertionError("the memory of the channel exists after its last user")


def check(pid: int, killed: bool = False) -> None:
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status == 0 or (killed and status == -signal.SIGKILL), f"process {pid} ended with {status}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--mode", choices=MODES, help="default: half of the kills in each mode")
    options = parser.parse_args()
    modes = [options.mode] if options.mode else MODES
    for each in modes:
        kill(each, options.seed, options.kills // len(modes))
