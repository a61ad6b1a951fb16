"""Hostile peers: processes of the same user whose files and handles lie."""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from helpers.lying_segments import attempt, handle_of, memfd
from helpers.paths import ROOT

import zerocopy as zc
from zerocopy.shared.handle import INDEXED, MAPPING, SMALL, TABLE, Handle
from zerocopy.shared.segment import HEAD


def test_the_files_of_these_tests_are_accepted_as_they_are() -> None:
    with memfd(1 << 20) as fd:
        assert not attempt(handle_of(fd)).any()  # type: ignore[attr-defined]


@pytest.mark.hazard("robustness#shrunk-memory")
@pytest.mark.parametrize(
    "flags", [0, SMALL, INDEXED, TABLE | INDEXED, SMALL | INDEXED, MAPPING, MAPPING | INDEXED]
)
def test_memory_without_seals(flags: int) -> None:
    """Its owner could shrink it, which ends readers by SIGBUS."""
    for seals in (0, fcntl.F_SEAL_SHRINK, fcntl.F_SEAL_GROW, fcntl.F_SEAL_WRITE):
        with memfd(1 << 20, seals) as fd:
            assert attempt(handle_of(fd, flags=flags)) is zc.errors.HandleAccessError


@pytest.mark.parametrize(
    "flags", [0, SMALL, INDEXED, TABLE | INDEXED, SMALL | INDEXED, MAPPING, MAPPING | INDEXED]
)
@pytest.mark.parametrize("size", [0, 8, 16, 4096, 5000, 1 << 40, 1 << 60, (1 << 63) - 1])
def test_sizes_that_lie(size: int, flags: int) -> None:
    """Sparse files of any size take no memory here, and bytes past the end are refused."""
    with memfd(size) as fd:
        for first, count in (
            (4096, 800),
            (size - 800 if size > 800 else 0, 800),
            (4096, 1 << 62),
            (0, 1 << 50),
        ):
            outcome = attempt(handle_of(fd, first, count, flags))
            assert isinstance(outcome, np.ndarray) or issubclass(outcome, zc.ZeroCopyError)  # type: ignore[arg-type]
            assert count == 800 or not isinstance(outcome, np.ndarray)


@pytest.mark.parametrize(
    "flags", [INDEXED, TABLE | INDEXED, SMALL | INDEXED, SMALL | TABLE | INDEXED, MAPPING | INDEXED]
)
def test_indexes_that_lie(flags: int) -> None:
    rng = np.random.default_rng(1)
    special = [0, 1, 2, 0xFFFF_FFFF, 0x7FFF_FFFF, 60, 100]
    for _ in range(300):
        counts = rng.choice(special, 3).astype("<u4").tobytes()
        content = bytes(4096 - HEAD.size) + counts + rng.integers(0, 256, 500, np.uint8).tobytes()
        with memfd(1 << 16, content=content) as fd:
            outcome = attempt(handle_of(fd, 4096, 700, flags))
            assert isinstance(outcome, type)
            assert issubclass(outcome, zc.ZeroCopyError)


def test_an_owner_that_holds_the_lock_for_ever() -> None:
    with memfd(1 << 20) as fd:
        fcntl.flock(fd, fcntl.LOCK_EX)
        began = time.monotonic()
        assert attempt(handle_of(fd)) is zc.errors.StaleHandleError
        assert time.monotonic() - began < 30


@pytest.mark.hazard("robustness#handles-of-other-files")
def test_other_files_behind_the_descriptor(tmp_path) -> None:
    """None of them is opened: opening a FIFO waits, and opening a device can have effects."""
    read, write = os.pipe()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "memfd:zerocopy (deleted)").write_bytes(bytes(10_000))
    fds = [
        *(read, write, os.open(tmp_path / "fifo", os.O_RDWR), os.open("/dev/null", os.O_RDONLY)),
        *(os.open(tmp_path, os.O_RDONLY), os.open(tmp_path / "memfd:zerocopy (deleted)", os.O_RDONLY)),
        os.open("/dev/zero", os.O_RDONLY),
    ]
    opened = []
    watched = threading.get_ident()

    def watch(event: str, args: tuple) -> None:
        if event == "open" and threading.get_ident() == watched and not args[2] & os.O_PATH:
            opened.append(args[0])

    sys.addaudithook(watch)
    try:
        zc.Shared.from_bytes(handle_of(read))
        attempt(handle_of(read))
        opened.clear()
        for fd in fds:
            for flags in (0, SMALL):
                assert attempt(handle_of(fd, flags=flags)) is zc.errors.StaleHandleError
        assert opened == []
    finally:
        watched = 0
        for fd in fds:
            os.close(fd)


def test_memfds_of_other_names_and_of_huge_pages() -> None:
    with memfd(1 << 20, name="other") as fd:
        assert attempt(handle_of(fd)) is zc.errors.StaleHandleError
    try:
        with memfd(1 << 21, flags=os.MFD_HUGETLB) as fd:
            assert attempt(handle_of(fd)) is zc.errors.StaleHandleError
    except OSError:
        pytest.skip("the kernel has no huge pages")


@pytest.mark.hazard("robustness#copies-during-reuse")
def test_an_owner_that_overwrites_while_readers_copy() -> None:
    """A small block is right or stale, however often its owner uses it again."""
    stop = threading.Event()
    current = [zc.share(np.zeros(6000, "u8"))]

    def owner() -> None:
        for i in range(1, 10**6):
            current[0] = zc.share(np.full(6000, i, "u8"))  # drops the block before
            if stop.is_set():
                return

    thread = threading.Thread(target=owner)
    thread.start()
    program = (
        "import sys, zerocopy as zc\n"
        "right = stale = 0\n"
        "for line in sys.stdin:\n"
        "    try: x = zc.convert(zc.Shared.from_bytes(bytes.fromhex(line)), 'numpy')\n"
        "    except zc.errors.StaleHandleError: stale += 1\n"
        "    else:\n"
        "        assert (x == x[0]).all(), x\n"
        "        right += 1\n"
        "print(right, stale)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=-1, stdout=-1, text=True, cwd=ROOT
    ) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        for _ in range(3000):
            try:
                data = bytes(current[0])
            except zc.errors.StaleHandleError:
                continue
            reader.stdin.write(data.hex() + "\n")
            reader.stdin.flush()
        stop.set()
        reader.stdin.close()
        right, stale = map(int, reader.stdout.read().split())
    thread.join()
    assert right + stale == 3000
    assert reader.returncode == 0


@pytest.mark.hazard("robustness#copies-during-reuse")
def test_seqlock_detects_each_step_of_reuse(monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner drops, takes and writes the block between any two steps of the reader."""
    from zerocopy.shared import reading

    for reused in (False, True):
        shared = zc.share(np.arange(100))
        real = os.preadv

        def interrupted(*args: object, shared=shared, reused=reused, read=real) -> int:
            shared.close()
            kept = [zc.share(np.full(100, 9)) for _ in range(3)] if reused else []
            count = read(*args)  # type: ignore[arg-type]
            kept.clear()
            return count

        monkeypatch.setattr(os, "preadv", interrupted)
        with pytest.raises(zc.errors.StaleHandleError):
            reading.read_small(shared.handle.location, shared.handle.first, shared.handle.length)
        monkeypatch.setattr(os, "preadv", real)


@pytest.mark.hazard("robustness#memory-that-a-reader-has")
def test_lease_and_generation_at_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner drops and writes a large block again before or after the reader's lease."""
    for step in ("open", "flock", "pread", "map"):
        for reuse in (False, True):
            shared = zc.share(np.zeros(100_000))
            handle = shared.handle
            kept: list[zc.Shared] = []

            def interfere(shared=shared, reuse=reuse, kept=kept) -> None:
                shared.close()
                if reuse and not kept:
                    kept += [zc.share(np.ones(100_000)) for _ in range(2)]

            array = _open_interrupted(monkeypatch, step, handle, interfere)
            assert array is None or not array.any(), (step, reuse)


def _open_interrupted(
    monkeypatch: pytest.MonkeyPatch, step: str, handle: Handle, interfere: object
) -> np.ndarray | None:
    from zerocopy.shared import reading

    target, name = {
        "open": (reading, "open_segment"),
        "flock": (reading, "_lease"),
        "pread": (reading, "check_generation"),
        "map": (reading.Mapping, "private"),
    }[step]
    real, state = getattr(target, name), {"done": False}

    def interrupted(*args: object) -> object:
        result = real(*args)
        if not state["done"]:
            state["done"] = True
            interfere()  # type: ignore[operator]
        return result

    with monkeypatch.context() as patch:
        patch.setattr(target, name, interrupted)
        try:
            return reading.mapping(handle.location).part(handle.first, handle.length)
        except zc.errors.StaleHandleError:
            return None


@pytest.mark.hazard("robustness#handles-of-other-files")
def test_fuzzed_handles() -> None:
    completed = subprocess.run(
        [sys.executable, "tests/shared/faults/fuzz.py", "3000", "7"],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    figures = json.loads(completed.stdout)
    assert figures["foreign"] == []
    assert "accepted without a right checksum" not in figures
    assert mmap.PAGESIZE
