"""``read_shared``: exact counts of shared memory, here and in a second process."""

from __future__ import annotations

import gc
import json
import sys
import threading
from weakref import ref

import numpy as np
import pytest
from helpers.shared_memory import run_reader

import zerocopy as zc
from zerocopy.monitor import sample
from zerocopy.monitor.process_record import read_shared
from zerocopy.shared import segment as segment_module

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="shared memory needs Linux")
MIB = 1 << 20

#: Prints a record after each step; opens the handles of its arguments.
OPENER = """
    import gc, json, sys
    import zerocopy as zc
    from zerocopy.monitor.process_record import read_shared
    def show(): print(json.dumps(read_shared()), flush=True)
    print("zerocopy.shared" in sys.modules, end=" ")
    show()
    handles = [zc.Shared.from_bytes(bytes.fromhex(text)) for text in sys.argv[1:]]
    show()
    results = [zc.convert(handle, to="numpy") for handle in handles]
    views = [zc.convert(handle, to="numpy")[1:] for handle in handles]
    show()
    del results
    show()
    del views
    gc.collect()
    show()
"""


@pytest.fixture
def before():
    """Return the figures before the test, without idle segments."""
    from zerocopy.shared.blocks import large_blocks

    gc.collect()
    large_blocks.trim()
    record = read_shared()
    yield record
    gc.collect()
    assert read_shared()["handles"] == record["handles"]
    assert read_shared()["leases"] == record["leases"]


def change(before):
    """Return the figures since `before` that changed."""
    now = read_shared()
    assert now.keys() == sample.SharedRecord.__annotations__.keys()
    return {name: now[name] - before[name] for name in now if now[name] != before[name]}


def test_shared_objects_are_counted(before) -> None:
    first, second = zc.share(np.zeros(MIB, "u1")), zc.share(np.zeros(2 * MIB, "u1"))
    figures = change(before)
    assert (figures["handles"], figures["segments"]) == (2, 2)
    assert 3 * MIB <= figures["segment_bytes"] < 4 * MIB
    first.close()
    assert change(before)["handles"] == 1
    assert change(before)["segments"] == 2  # kept for reuse
    third = zc.share(np.zeros(MIB, "u1"))
    assert change(before)["segments"] == 2  # reused
    del second, third
    from zerocopy.shared.blocks import large_blocks

    large_blocks.trim()
    assert change(before) == {}


def test_shared_empty_is_a_segment_without_a_handle(before) -> None:
    memory = zc.shared_empty(MIB, "u1")
    assert change(before).get("handles", 0) == 0
    assert change(before)["segments"] == 1
    with zc.share(memory) as shared, zc.share(memory[10:]):
        assert shared.copied_bytes == 0
        assert change(before)["handles"] == 2
        assert change(before)["segments"] == 1


def test_small_objects_share_a_segment(before) -> None:
    shared = [zc.share(np.zeros(10)) for _ in range(20)]
    figures = change(before)
    assert figures["handles"] == 20
    assert figures.get("segments", 0) <= 1
    del shared


def test_own_object_that_is_opened_here_is_a_lease(before) -> None:
    with zc.share(np.zeros(MIB, "u1")) as shared:
        result = zc.convert(shared, to="numpy")
        figures = change(before)
        assert (figures["leases"], figures.get("mapped", 0)) == (1, 0)  # not of another process
        del result


def test_second_process_counts_what_it_maps(before) -> None:
    large = [zc.share(np.zeros(size * MIB, "u1")) for size in (1, 3)]
    small = zc.share(np.zeros(8))
    completed = run_reader(*large, small, code=OPENER)
    first, *rest = completed.stdout.splitlines()
    assert first.startswith("False "), completed.stderr  # nothing was imported
    unused, unopened, opened, views, dropped = (
        json.loads(line) for line in (first.removeprefix("False "), *rest)
    )
    none = dict.fromkeys(sample.SharedRecord.__annotations__, 0)
    assert unused == unopened == none
    lengths = change(before)["segment_bytes"] - (MIB if change(before)["segments"] == 3 else 0)
    assert opened == none | {"mapped": 2, "mapped_bytes": lengths, "leases": 2}
    assert views == opened  # a view keeps the lease
    assert dropped == none


def test_handles_and_segments_of_a_forked_child(run_python) -> None:
    """In a new process: threads that other tests have left may drop handles between two counts."""
    process = run_python(
        """
        import os, numpy as np, zerocopy as zc
        from zerocopy.integrations.multiprocessing import reducing
        from zerocopy.monitor.process_record import read_shared
        x = np.zeros(1 << 20, "u1")
        shared = zc.share(x)
        assert reducing._tickets.issue(zc.share(x)) is not None  # kept for a receiver by the parent alone
        result = zc.convert(shared, to="numpy")
        parent = read_shared()
        assert (parent["handles"], parent["leases"]) == (2, 1)
        child = os.fork()
        if not child:
            own = read_shared()
            assert own["segments"] == own["segment_bytes"] == 0  # they are the parent's
            assert (own["handles"], own["leases"]) == (1, 1)
            with zc.share(x):
                own = read_shared()
                assert (own["segments"], own["handles"]) == (1, 2)
            print("child", flush=True)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert read_shared() == parent
        """
    )
    assert process.stdout == "child\n", process.stderr


def test_count_of_handles_in_threads(before) -> None:
    kept: list[object] = []

    def work() -> None:
        for number in range(1500):
            shared = zc.share(np.zeros(4))
            if number % 10 == 0:
                kept.append(shared)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert 0 <= change(before).get("handles", 0) <= 604
    for thread in threads:
        thread.join()
    assert change(before)["handles"] == 600
    kept.clear()


def test_dead_references_do_not_accumulate(before) -> None:
    array, known = np.zeros(4), len(segment_module._handles)
    for _ in range(3000):
        zc.share(array)
    assert len(segment_module._handles) <= 2 * known + segment_module._FEWEST


@pytest.mark.hazard("robustness#reads-within-reads")
def test_a_read_within_a_read_is_exact_and_does_not_wait(before, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal handler, or a finalizer, may read the figures while its own thread reads them."""
    nested: list[int] = []

    class Handle:
        @property
        def closed(self) -> bool:
            if not nested:
                nested.append(-1)
                nested[0] = change(before)["handles"]
            return False

    kept = [Handle() for _ in range(5)]
    for each in kept:
        monkeypatch.setitem(segment_module._handles, id(each), ref(each))
    done: list[int] = []
    thread = threading.Thread(target=lambda: done.append(change(before)["handles"]), daemon=True)
    thread.start()
    thread.join(60)
    assert (done, nested) == ([5], [5])
