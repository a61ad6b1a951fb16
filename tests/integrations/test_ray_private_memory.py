"""Private, writable memory over a shared mapping of a file, without Ray."""

from __future__ import annotations

import gc
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zerocopy.integrations.ray import private_memory
from zerocopy.integrations.ray.private_memory import MINIMUM, MINIMUM_WITHOUT_QUERY, writable_frame

SIZE = MINIMUM_WITHOUT_QUERY + (1 << 20)


@pytest.fixture
def store() -> Iterator[np.ndarray]:
    """A file without a name, mapped shared and writable, as Ray maps its object store."""
    file = os.memfd_create("zerocopy-test-store")
    os.ftruncate(file, SIZE)
    mapped = mmap.mmap(file, SIZE)
    memory = np.frombuffer(mapped, np.uint8)
    memory[:] = np.arange(SIZE, dtype=np.uint8)
    yield memory
    os.close(file)


def private_mappings() -> list[str]:
    """Return the private mappings of the file in this process."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [line for line in lines if "zerocopy-test-store" in line and "rw-p" in line]


def frame_of(store: Any, start: int = 4096 + 64, end: int = SIZE - 100) -> np.ndarray:
    frame = store[start:end]
    frame.flags.writeable = False
    return frame


@pytest.fixture(params=["own mapping", "owner's descriptor"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How the file is opened. The first way needs a capability, which containers lack."""
    if request.param == "owner's descriptor":
        monkeypatch.setattr(private_memory, "_owners", {})
        plain = private_memory._open_if_same
        refuse = lambda path, mapping: None if "map_files" in path else plain(path, mapping)  # noqa: E731
        monkeypatch.setattr(private_memory, "_open_if_same", refuse)
    elif not _may_open_map_files():
        pytest.skip("the process may not open /proc/self/map_files")
    return request.param


def _may_open_map_files() -> bool:
    entry = next(Path("/proc/self/map_files").iterdir())
    try:
        os.close(os.open(entry, os.O_RDONLY))
    except PermissionError:
        return False
    return True


@pytest.mark.parametrize("query", [True, False], ids=["one mapping", "all mappings"])
def test_a_write_changes_the_result_alone(store, way, query, monkeypatch) -> None:
    if query and not private_memory._has_query():
        pytest.skip("the kernel is older than Linux 6.11")
    monkeypatch.setattr(private_memory, "_has_query", lambda: query)
    frame = frame_of(store)
    first, second = writable_frame(frame), writable_frame(frame)
    assert len(private_mappings()) == 2, "both are mapped, not copied"
    assert np.array_equal(first, frame)
    first[:] = 7
    assert first.min() == first.max() == 7
    assert np.array_equal(second, frame)
    assert np.array_equal(store, np.arange(SIZE, dtype=np.uint8))


def test_the_mapping_ends_with_the_last_view(store) -> None:
    view = writable_frame(frame_of(store))[100:200]
    gc.collect()
    assert len(private_mappings()) == 1
    assert view[0] == store[4096 + 64 + 100]
    del view
    assert private_mappings() == []


def test_no_file_descriptor_stays_open(store, way) -> None:
    before = len(os.listdir("/proc/self/fd"))
    results = [writable_frame(frame_of(store)) for _ in range(20)]
    assert len(private_mappings()) == 20
    assert len(os.listdir("/proc/self/fd")) == before
    del results


@pytest.mark.hazard("robustness#store-memory-in-use")
def test_the_source_lives_as_long_as_the_result(store) -> None:
    """Ray recycles the memory of an object once its buffer is freed."""
    import weakref

    class Buffer(np.ndarray):
        pass

    frame = frame_of(store).view(Buffer)
    buffer = weakref.ref(frame)
    result = writable_frame(frame)[5:]
    del frame
    gc.collect()
    assert buffer() is not None
    del result
    assert buffer() is None


def test_small_frames_are_copied(store) -> None:
    result = writable_frame(frame_of(store, end=4096 + 64 + MINIMUM - 1))
    assert private_mappings() == []
    result[:] = 7
    assert store[5000] == 5000 % 256


@pytest.mark.parametrize("nbytes", [0, 1, SIZE])
def test_memory_that_is_not_a_shared_mapping_is_copied(nbytes) -> None:
    memory = np.arange(nbytes, dtype=np.uint8)
    result = writable_frame(memory)
    assert np.array_equal(result, memory)
    assert result.flags.writeable
    assert not np.shares_memory(result, memory)


@pytest.mark.hazard("robustness#mappings-that-are-refused")
@pytest.mark.parametrize("step", ["find", "open", "map"])
def test_a_refused_step_leads_to_a_copy(store, step, monkeypatch) -> None:
    if step == "find":
        monkeypatch.setattr(private_memory, "_find_mapping", lambda start, end: None)
    elif step == "open":
        monkeypatch.setattr(private_memory, "_open", lambda mapping: None)
    else:
        libc = private_memory._libc()
        failing = type("Libc", (), {"mmap": lambda *args: private_memory._FAILED, "munmap": libc.munmap})
        monkeypatch.setattr(private_memory, "_libc", lambda: failing)
    frame = frame_of(store)
    result = writable_frame(frame)
    assert private_mappings() == []
    assert np.array_equal(result, frame)
    result[:] = 7
    assert frame[0] == (4096 + 64) % 256


@pytest.mark.hazard("robustness#path-that-is-reused")
def test_another_file_at_the_path_is_not_mapped(store, tmp_path) -> None:
    """The mapped file is recognised by device and inode, not by a path or a number that can be reused."""
    start = store.__array_interface__["data"][0]
    mapping = private_memory._find_mapping(start, start + 10)
    other = tmp_path / "other"
    other.write_bytes(bytes(SIZE))
    assert private_memory._open_if_same(str(other), mapping) is None


def test_a_range_past_the_mapping_is_not_mapped(store) -> None:
    start = store.__array_interface__["data"][0]
    assert private_memory._find_mapping(start, start + (1 << 40)) is None


def test_both_searches_return_the_same_mapping(store) -> None:
    if not private_memory._has_query():
        pytest.skip("the kernel is older than Linux 6.11")
    address = store.__array_interface__["data"][0]
    assert private_memory._query(address) == private_memory._search(address) is not None
    heap = np.zeros(10).__array_interface__["data"][0]
    assert private_memory._query(heap) is None
    assert private_memory._search(heap) is None


def test_a_forked_child_writes_to_its_own_pages(run_python) -> None:
    process = run_python("""
        import mmap, os, numpy as np
        from zerocopy.integrations.ray.private_memory import MINIMUM_WITHOUT_QUERY as SIZE, writable_frame
        file = os.memfd_create("store")
        os.ftruncate(file, SIZE)
        result = writable_frame(np.frombuffer(mmap.mmap(file, SIZE), np.uint8))
        pid = os.fork()
        if not pid:
            result[:] = 9
            os._exit(0 if result[0] == 9 else 1)
        print(os.waitpid(pid, 0)[1], result.max())
    """)
    assert process.stdout == "0 0\n", process.stderr
