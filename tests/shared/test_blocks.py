"""Segments, blocks, slabs, the address book and the room: used again, trimmed, bounded."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest
from helpers.shared_memory import memfd_bytes, open_memfds, run_reader

import zerocopy as zc
from zerocopy.shared import blocks, room
from zerocopy.shared.blocks import SLAB_BYTES, LargeBlocks, Slabs, size_class
from zerocopy.shared.handle import LARGEST_SMALL
from zerocopy.shared.reading import AddressBook, was_written
from zerocopy.shared.segment import FileMapping, Segment


def frame(value: int, nbytes: int) -> tuple[int, np.ndarray]:
    return 0, np.full(nbytes, value, np.uint8)


def data(block) -> np.ndarray:
    return np.asarray(block)


def test_size_classes_waste_an_eighth_at_most() -> None:
    for size in [1, 4096, 4097, 100_000, 1 << 20, (1 << 20) + 1, 10**9, 1 << 40]:
        rounded = size_class(size)
        assert rounded >= size
        assert rounded % 4096 == 0
        assert rounded - size <= max(4096, size // 8)


def test_large_blocks_are_used_again() -> None:
    blocks = LargeBlocks()
    first = blocks.take(100_000, [frame(1, 100_000)])
    segment, generation = first.segment, first.generation
    del first
    assert blocks.idle_bytes == segment.size
    second = blocks.take(100_001, [frame(2, 100_001)])
    assert second.segment is segment
    assert second.generation == generation + 2
    assert (blocks.fresh, blocks.recycled, blocks.idle_bytes) == (1, 1, 0)
    assert data(second)[:100_001].tolist() == [2] * 100_001


def test_a_block_with_a_reader_is_passed_over() -> None:
    shared = zc.share(np.arange(100_000))
    held = zc.convert(shared, "numpy")
    shared.close()
    others = [zc.share(np.zeros(100_000)) for _ in range(20)]
    assert np.array_equal(held, np.arange(100_000))
    del others


@pytest.fixture
def before() -> Iterator[int]:
    """The bytes of segments that other tests use."""
    gc.collect()
    zc.shared.trim()
    yield memfd_bytes()
    zc.shared.set_limit(None)
    zc.shared.trim()


@pytest.mark.parametrize(
    ("count", "nbytes"),
    [(1, 150_000_000), (10, 20_000_000), (300, 1_000_000), (3000, 60_000), (20_000, 1000)],
)
@pytest.mark.parametrize("order", ["first to last", "every second one first", "last to first"])
def test_closing_returns_memory_beyond_64_MB(before: int, count: int, nbytes: int, order: str) -> None:
    x = np.ones(nbytes, np.uint8)
    shared = [zc.share(x) for _ in range(count)]
    used = memfd_bytes() - before
    assert used >= count * nbytes
    if order == "every second one first":
        del shared[::2]
    while order == "last to first" and shared:
        shared.pop()
    shared.clear()
    kept = memfd_bytes() - before
    assert kept <= 64_000_000
    assert zc.shared.trim() >= kept
    assert memfd_bytes() == before


def test_an_eighth_of_the_free_memory_is_kept(before: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "available", lambda: (80_000_000, "memory"))
    sizes = [60_000, 1000, 2_000_000, 100_000, 5000, 20_000_000]
    shared = [zc.share(np.ones(nbytes, np.uint8)) for nbytes in sizes for _ in range(5)]
    shared.clear()
    assert 0 < memfd_bytes() - before <= 10_000_000


def test_the_limit_can_be_set(before: int) -> None:
    shared = [zc.share(np.ones(70_000_000, np.uint8)), zc.share(np.ones(10, np.uint8))]
    zc.shared.set_limit(100_000_000)
    shared.clear()
    assert memfd_bytes() - before >= 70_000_000
    zc.shared.set_limit(0)
    assert memfd_bytes() == before
    zc.share(np.ones(70_000, np.uint8)).close()
    zc.share(np.ones(10, np.uint8)).close()
    assert memfd_bytes() == before
    for wrong, error in ((-1, ValueError), (1.5, TypeError), (True, TypeError), ("1 GB", TypeError)):
        with pytest.raises(error, match="set_limit"):
            zc.shared.set_limit(wrong)
    assert blocks.kept_bytes() == 0


def test_slabs_are_for_all_sizes_of_small_blocks(before: int) -> None:
    """The limit includes one slab for each size."""
    for exponent in range(17):
        zc.share(np.ones(1 << exponent, np.uint8)).close()
    assert memfd_bytes() - before == blocks._SLABS


def test_slabs_are_freed_while_threads_take_and_drop(before: int) -> None:
    blocks, errors = Slabs(), []

    def work(seed: int) -> None:
        random, kept = Random(seed), []
        for i in range(3000):
            if kept and random.random() < 0.5:
                block, value = kept.pop(random.randrange(len(kept)))
                if data(block)[0] != value:
                    errors.append(value)
            else:
                value = (seed * 50 + i) % 251
                kept.append((blocks.take(60_000, [frame(value, 60_000)]), value))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    gc.collect()
    blocks.trim()
    assert blocks.free_bytes == 0
    assert memfd_bytes() == before


def test_idle_segments_are_limited() -> None:
    """Each has a file descriptor, of which a process has 1024 by default."""
    gc.collect()
    before = open_memfds()
    blocks = LargeBlocks()
    kept = [blocks.take(70_000) for _ in range(150)]
    kept.clear()
    assert open_memfds() - before <= 2 * 64
    blocks.trim()
    gc.collect()
    assert open_memfds() == before


def test_descriptors_are_closed_with_the_memory() -> None:
    before = open_memfds()
    segment = Segment(1 << 20)
    mapped = FileMapping.private(os.dup(segment.fd))
    view = np.frombuffer(mapped, np.uint8)
    del segment, mapped
    assert open_memfds() > before
    assert not view.any()
    del view
    assert open_memfds() == before


def test_slabs_are_used_again_and_freed() -> None:
    slabs = Slabs()
    before = open_memfds()
    kept = [slabs.take(1000, [frame(i % 256, 1000)]) for i in range(5000)]
    assert all(data(block)[:1000].tolist() == [i % 256] * 1000 for i, block in enumerate(kept[:300]))
    extents = {(id(block.segment), block.start) for block in kept}
    assert len(extents) == 5000
    kept.clear()
    assert slabs.free_bytes == SLAB_BYTES
    assert open_memfds() - before <= 2
    assert slabs.trim() == SLAB_BYTES
    assert slabs.free_bytes == 0


@pytest.mark.parametrize("nbytes", [0, 1, 63, 64, 65, 4000, LARGEST_SMALL])
def test_small_blocks_hold_their_bytes(nbytes: int) -> None:
    slabs = Slabs()
    block = slabs.take(nbytes, [frame(7, nbytes)])
    other = slabs.take(nbytes, [frame(9, nbytes)])
    assert data(block)[:nbytes].tolist() == [7] * nbytes
    assert data(other)[:nbytes].tolist() == [9] * nbytes
    assert block.data % 64 == 0


@pytest.mark.hazard("robustness#shrunk-memory")
def test_a_segment_cannot_be_resized_or_written_by_a_reader() -> None:
    segment = Segment(1 << 20)
    fd = os.open(f"/proc/self/fd/{segment.fd}", os.O_RDWR)
    try:
        for change in (
            lambda: os.ftruncate(fd, 4096),
            lambda: os.ftruncate(fd, 1 << 21),
            lambda: os.pwrite(fd, b"x", 0),
            lambda: FileMapping.shared(fd),
        ):
            with pytest.raises(PermissionError):
                change()
    finally:
        os.close(fd)


def test_a_segment_that_fails_leaves_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    before = open_memfds()

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for name in ("posix_fallocate", "pwrite", "ftruncate"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, refuse)
            with pytest.raises(zc.errors.SharedMemoryError) as caught:
                Segment(1 << 20, [frame(1, 10)], committed=True)
            assert isinstance(caught.value.__cause__, OSError)
            del caught
    gc.collect()
    assert open_memfds() == before


# -- the address book --------------------------------------------------------------------------------


class Owner:
    pass


def test_the_address_book_finds_and_forgets() -> None:
    book = AddressBook()
    owners = [Owner() for _ in range(5000)]
    for i, owner in enumerate(owners):
        book.add(i * 100, i * 100 + 90, owner)
    assert all(book.find(i * 100 + 5, i * 100 + 90) is owner for i, owner in enumerate(owners))
    assert book.find(495, 505) is None
    assert book.find(90, 95) is None
    del owner
    owners.clear()
    assert book.find(5, 10) is None
    for i in range(10_000):
        book.add(i * 100, i * 100 + 90, Owner())
    assert len(book) < 10_000
    new = Owner()
    book.add(50, 1050, new)  # over the ranges of owners that are gone
    assert book.find(60, 1050) is new
    assert book.find(1050, 1060) is None


def test_the_address_book_does_not_wait_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A finalizer can interrupt the thread that has the lock."""
    from zerocopy.shared import reading

    monkeypatch.setattr(reading, "_LOCK_SECONDS", 0.01)
    book, owner = AddressBook(), Owner()
    book.add(0, 10, owner)
    with book._lock:
        assert book.find(0, 10) is None
        book.add(20, 30, owner)
    assert book.find(0, 10) is owner
    assert book.find(20, 30) is None


# -- pages that were written -------------------------------------------------------------------------


def test_written_pages_are_known() -> None:
    segment = Segment(1 << 20, committed=True)
    mapped = FileMapping.private(os.dup(segment.fd))
    array, first = np.frombuffer(mapped, np.uint8), mapped.address
    assert not was_written(first, 1 << 20)  # not in memory
    assert array.sum() == 0
    assert not was_written(first, 1 << 20)  # read
    array[50_000] = 1
    assert was_written(first, 1 << 20)
    assert was_written(first + 50_000, 1)
    assert not was_written(first, 4096)
    assert not was_written(first + 60_000, 100_000)
    assert segment.bytes[50_000] == 0


def test_pages_are_written_if_the_kernel_gives_no_information(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError

    monkeypatch.setattr(os, "open", refuse)
    assert was_written(4096, 4096)


# -- the room ------------------------------------------------------------------------------------------


def tree(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


MEMINFO = {"meminfo": "MemTotal: 9000000 kB\nMemAvailable:    1000 kB\n"}


def test_room_of_the_machine(tmp_path: Path) -> None:
    assert room.available(tmp_path, tree(tmp_path / "proc", MEMINFO)) == (1000 * 1024, "memory")


def test_room_of_cgroup_version_2(tmp_path: Path) -> None:
    proc = tree(tmp_path / "proc", {**MEMINFO, "self/cgroup": "0::/a/b\n"})
    root = tree(
        tmp_path / "cgroup",
        {
            "a/memory.max": "300000\n",
            "a/memory.current": "250000\n",
            "a/memory.stat": "anon 5\ninactive_file 10000\n",
            "a/b/memory.max": "max\n",
            "a/b/memory.current": "5\n",
        },
    )
    assert room.available(root, proc) == (60_000, str(root / "a/memory.max"))
    (root / "a/b/memory.max").write_text("1000")
    (root / "a/b/memory.stat").write_text("inactive_file 0\n")
    assert room.available(root, proc) == (995, str(root / "a/b/memory.max"))
    (root / "a/b/memory.current").write_text("2000")
    assert room.available(root, proc)[0] == 0


def test_room_of_cgroup_version_1(tmp_path: Path) -> None:
    proc = tree(tmp_path / "proc", {**MEMINFO, "self/cgroup": "5:cpu,memory:/x\n3:pids:/x\n0::/\n"})
    root = tree(
        tmp_path / "cgroup",
        {
            "memory/memory.limit_in_bytes": "9223372036854771712\n",
            "memory/memory.usage_in_bytes": "5\n",
            "memory/memory.stat": "total_inactive_file 0\n",
            "memory/x/memory.limit_in_bytes": "100000\n",
            "memory/x/memory.usage_in_bytes": "90000\n",
            "memory/x/memory.stat": "cache 1\ntotal_inactive_file 20000\n",
        },
    )
    assert room.available(root, proc) == (30_000, str(root / "memory/x/memory.limit_in_bytes"))


@pytest.mark.parametrize("line", ["0::/../other", "0::/", "5:memory:/docker/abc", "x", "", "5:memory"])
def test_room_in_a_container(tmp_path: Path, line: str) -> None:
    """Paths that do not exist here, and lines that no kernel writes."""
    proc = tree(tmp_path / "proc", {**MEMINFO, "self/cgroup": line + "\n"})
    root = tree(
        tmp_path / "cgroup",
        {
            "memory.max": "4096\n",
            "memory.current": "96\n",
            "memory.stat": "inactive_file 0\n",
            "memory/memory.limit_in_bytes": "4096\n",
            "memory/memory.usage_in_bytes": "96\n",
            "memory/memory.stat": "total_inactive_file 0\n",
        },
    )
    expected = 4000 if line.count(":") == 2 else 1000 * 1024
    assert room.available(root, proc)[0] == expected


def test_no_room_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "available", lambda: (5000, "a/memory.max"))
    before = open_memfds()
    for attempt in (lambda: zc.share(np.zeros(10**6)), lambda: zc.shared_empty(10**6)):
        with pytest.raises(zc.errors.SharedMemoryError) as caught:
            attempt()
        assert "5,000 are available (a/memory.max)" in str(caught.value)
        assert isinstance(caught.value, MemoryError)
        del caught
    gc.collect()
    assert open_memfds() <= before


def test_a_reader_hands_on_after_the_owner_dropped_the_block() -> None:
    x = np.arange(100_000)
    shared = zc.share(x)
    result = zc.convert(shared, "numpy")
    shared.close()
    handed = zc.share(result)
    assert handed.copied_bytes == 0
    assert int(run_reader(handed).stdout) == x.sum()
    generation = handed.handle.location.generation
    del result, handed
    zc.share(np.zeros(100_000))
    assert generation % 2 == 1


@pytest.mark.parametrize("allocator", [LargeBlocks, Slabs])
@pytest.mark.parametrize("allocations", range(8))
def test_a_collection_may_drop_blocks_while_free_bytes_are_counted(allocator: type, allocations: int) -> None:
    """It runs finalizers between any two allocations of Python objects, such as the pairs of ``items()``."""
    blocks = allocator()
    large = allocator is LargeBlocks
    for exponent in range(16, 22) if large else range(8, 13):
        blocks.take(1 << exponent)  # and drop
    gc.collect()
    threshold = gc.get_threshold()
    gc.disable()
    try:
        cycle: list = [blocks.take(3 << 16 if large else 100)]
        cycle.append(cycle)
        del cycle
        pairs = [(i, i) for i in range(3000)]  # Python keeps up to 2,000 freed pairs, to use them again
        gc.set_threshold(gc.get_count()[0] + allocations)
        gc.enable()
        counted = blocks.idle_bytes if large else blocks.free_bytes
    finally:
        gc.set_threshold(*threshold)
        gc.enable()
    assert counted > 0
    assert len(pairs) == 3000
