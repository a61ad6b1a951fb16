"""An iteration that ends in any way leaves no thread, no open file and no memory."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers.loader_cases import Groups, Tables, ids, loader_of, parquet_file

import zerocopy as zc
from zerocopy.loading import prefetcher

WAYS: list[dict[str, Any]] = [
    {},
    {"shuffle": True},
    {"layout": "matrix", "dtype": "float64"},
    {"to": "pyarrow"},
]
SIZES = [7, 0, 13, 1, 21, 6, 11]
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform cannot fork")


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "zerocopy-loader"]


def open_files(path: str) -> int:
    if not os.path.isdir("/proc/self/fd"):
        return 0
    links = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            links.append(os.readlink(f"/proc/self/fd/{number}"))
    return links.count(path)


@pytest.fixture(autouse=True)
def _no_threads() -> Iterator[None]:
    """Fail if a test leaves a thread, and interrupt one that hangs."""
    if threading.current_thread() is threading.main_thread() and hasattr(signal, "SIGALRM"):
        signal.alarm(120)
    assert not threads()
    yield
    if hasattr(signal, "SIGALRM"):
        signal.alarm(0)
    assert not threads()


def by_break(loader: Any) -> None:
    for _ in loader:
        break


def by_error(loader: Any) -> None:
    with contextlib.suppress(KeyError):
        for _ in loader:
            raise KeyError


def by_generator(loader: Any) -> None:
    generator = (batch for batch in loader)
    next(generator)
    generator.close()


def by_drop(loader: Any) -> None:
    iterator = iter(loader)
    next(iterator)
    del iterator


def by_drop_at_once(loader: Any) -> None:
    iter(loader)


def by_close(loader: Any) -> None:
    iterator = iter(loader)
    next(iterator)
    iterator.close()
    assert list(iterator) == []


def by_close_in_another_thread(loader: Any) -> None:
    iterator = iter(loader)
    thread = threading.Thread(target=iterator.close)
    thread.start()
    thread.join()
    assert list(iterator) == []


def by_cycle(loader: Any) -> None:
    cycle: list[Any] = [iter(loader)]
    next(cycle[0])
    cycle.append(cycle)
    del cycle
    gc.collect()


def by_end(loader: Any) -> None:
    assert len(list(loader)) == len(loader)


def by_zip(loader: Any) -> None:
    list(itertools.islice(zip(loader, loader, strict=False), 2))


@pytest.mark.hazard("robustness#thread-after-break")
@pytest.mark.parametrize("end", [value for name, value in list(globals().items()) if name.startswith("by_")])
def test_end_leaves_nothing(end: Callable[[Any], None], tmp_path: Path) -> None:
    path = parquet_file(tmp_path, 400, 25)
    gc.collect()
    memory, references = pa.total_allocated_bytes(), []
    for options in WAYS:
        for prefetch in (1, 50):
            loader = zc.loader(path, **({"to": "numpy", "batch_size": 10, "prefetch": prefetch} | options))
            end(loader)
            assert not threads()
            assert open_files(path) == 0
            assert (
                sum(len(batch["id"]) if not isinstance(batch, np.ndarray) else len(batch) for batch in loader)
                == 400
            )
            references.append(weakref.ref(loader))
            del loader
    gc.collect()
    assert not any(reference() for reference in references)
    for _ in range(1000):  # a thread of Arrow may free its last buffer after the read
        if pa.total_allocated_bytes() == memory:
            break
        time.sleep(0.01)
    assert pa.total_allocated_bytes() == memory


def test_error_of_the_reader_follows_the_batches_before_it() -> None:
    for options in WAYS[:1] + WAYS[3:]:
        iterator = iter(loader_of(Groups(SIZES, broken=(4,)), **({"batch_size": 4} | options)))
        assert [ids(next(iterator)) for _ in range(5)][-1] == [16, 17, 18, 19]
        with pytest.raises(OSError, match="broken") as caught:
            next(iterator)
        assert caught.value.row_group == 4  # type: ignore[attr-defined]
        assert list(iterator) == []
        assert not threads()


class Ending(Groups):
    """A dataset whose files cannot be closed."""

    def close(self) -> None:
        raise OSError("close")


def test_error_at_the_close_of_a_file_reaches_the_consumer() -> None:
    """The thread ends, and the consumer does not wait for it."""
    with pytest.raises(OSError, match="close"):
        list(loader_of(Ending(SIZES), batch_size=4))
    assert not threads()
    by_drop(loader_of(Ending([4] * 100), batch_size=4))
    assert not threads()


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, MemoryError, StopIteration, GeneratorExit])
def test_any_exception_of_the_reader_reaches_the_consumer(kind: type[BaseException]) -> None:
    class Raising(Groups):
        def read(self, index: int) -> Any:
            if index == 2:
                raise kind("reader")
            return super().read(index)

    expected = RuntimeError if kind is StopIteration else kind
    iterator = iter(loader_of(Raising([4, 4, 4]), batch_size=4))
    assert [ids(next(iterator)) for _ in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    with pytest.raises(expected):
        next(iterator)
    assert not threads()


@pytest.mark.hazard("robustness#thread-after-break")
def test_errors_leave_no_cycles() -> None:
    """The rows that were read are freed with the error, without the garbage collector."""
    gc.collect()
    gc.disable()
    try:
        memory = pa.total_allocated_bytes()
        for _ in range(5):
            with contextlib.suppress(OSError):
                list(loader_of(Groups([1000] * 5, broken=(4,)), batch_size=100))
            by_drop_at_once(loader_of(Groups([1000] * 5, broken=(0,)), batch_size=100))
        assert pa.total_allocated_bytes() == memory
    finally:
        gc.enable()


def test_a_thread_that_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """The epoch is not counted."""
    loader = loader_of(Groups(SIZES), batch_size=4)

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="start"):
            iter(loader)
    assert [row for batch in loader for row in ids(batch)] == list(range(sum(SIZES)))
    assert loader.epoch == 0


def test_batch_that_cannot_be_made_is_tried_again() -> None:
    loader = loader_of(Groups(SIZES), batch_size=4)
    iterator = iter(loader)
    first = [ids(next(iterator)) for _ in range(2)]
    convert = loader._plan.from_arrays

    def fail(arrays: Any) -> Any:
        raise MemoryError

    loader._plan.from_arrays = fail  # type: ignore[method-assign]
    with pytest.raises(MemoryError):
        next(iterator)
    assert loader.state_dict()["done"] == 2
    loader._plan.from_arrays = convert  # type: ignore[method-assign]
    assert [row for part in first for row in part] + [row for b in iterator for row in ids(b)] == list(
        range(59)
    )


# -- several iterators and threads -----------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"shuffle": 12}])
def test_iterators_at_once_are_epochs_of_their_own(options: dict[str, Any], tmp_path: Path) -> None:
    """The state is that of the last one."""
    path = parquet_file(tmp_path, 400, 25)
    alone = zc.loader(path, to="numpy", batch_size=8, **options)
    expected = [[ids(batch) for batch in alone] for _ in range(2)]
    loader = zc.loader(path, to="numpy", batch_size=8, **options)
    first, second = iter(loader), iter(loader)
    seen: list[list[list[int]]] = [[], []]
    for turn in range(50):
        seen[0].append(ids(next(first)))
        if turn % 2:
            seen[1].append(ids(next(second)))
            assert (loader.state_dict()["epoch"], loader.state_dict()["done"]) == (1, turn // 2 + 1)
    assert list(first) == []
    assert loader.state_dict()["done"] == 25
    seen[1] += [ids(batch) for batch in second]
    assert seen == expected


def test_threads_share_an_iterator() -> None:
    """Each batch goes to one thread; the iterator was created in another one."""
    loader = loader_of(Groups([7] * 60), batch_size=4, shuffle=20)
    iterator = iter(loader)
    results: list[list[int]] = []
    workers = [
        threading.Thread(target=lambda: results.extend(ids(batch) for batch in iterator)) for _ in range(4)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(row for part in results for row in part) == list(range(420))
    assert loader.state_dict()["done"] == 105


def test_loading_a_state_leaves_a_running_iterator_alone() -> None:
    loader = loader_of(Groups(SIZES), batch_size=4)
    state = loader.state_dict()
    iterator = iter(loader)
    next(iterator)
    loader.load_state_dict(state)
    assert loader.state_dict() == state
    assert len(list(iterator)) == 14
    assert loader.state_dict() == state
    assert len(list(loader)) == 15


# -- a reader that is blocked ---------------------------------------------------------------------


class Blocking(Tables):
    """A stream that waits after its first table."""

    def __init__(self) -> None:
        super().__init__([4, 4])
        self.waits, self.go = threading.Event(), threading.Event()

    def batches(self) -> Any:
        yield self.groups.read(0)
        self.waits.set()
        self.go.wait(60)
        yield self.groups.read(1)


def test_dropping_does_not_wait_forever_for_a_blocked_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread ends when its read returns."""
    monkeypatch.setattr(prefetcher, "PATIENCE", 0.05)
    stream = Blocking()
    iterator = iter(loader_of(stream, batch_size=4))
    next(iterator)
    assert stream.waits.wait(60)
    del iterator
    (thread,) = threads()
    stream.go.set()
    thread.join(60)
    assert not thread.is_alive()


BLOCKED = """
import sys, threading, time
sys.path.insert(0, "tests")
from helpers.loader_cases import Tables, loader_of, ids
import zerocopy.loading.prefetcher as prefetcher
prefetcher.PATIENCE = 0.1
class Blocking(Tables):
    def batches(self):
        yield self.groups.read(0)
        started.set()
        time.sleep(600)
started = threading.Event()
loader = loader_of(Blocking([4]), batch_size=4)
iterator = iter(loader)  # a global variable, alive at the end of the interpreter
print(ids(next(iterator)), flush=True)
started.wait(60)
"""

ALIVE = """
import sys
sys.path.insert(0, "tests")
from helpers.loader_cases import Groups, loader_of, ids
loader = loader_of(Groups([7] * 1000), batch_size=4, {options})
iterator = iter(loader)
next(iterator)
print("ends", flush=True)
"""


@pytest.mark.hazard("robustness#thread-at-exit")
def test_interpreter_ends_with_a_blocked_reader(run_python) -> None:
    completed = run_python(BLOCKED)
    assert (completed.returncode, completed.stdout, completed.stderr) == (0, "[0, 1, 2, 3]\n", "")


@pytest.mark.hazard("robustness#thread-at-exit")
@pytest.mark.parametrize("options", ["", "shuffle=True", "layout='matrix', dtype='float64', prefetch=1000"])
def test_interpreter_ends_with_an_iterator_alive(run_finalized, options: str) -> None:
    completed = run_finalized(ALIVE.format(options=options))
    assert (completed.returncode, completed.stdout, completed.stderr) == (0, "ends\n", "")


# -- signals -----------------------------------------------------------------------------------------

SIGNALS = """
import os, signal, sys, threading, time
sys.path.insert(0, "tests")
from helpers.loader_cases import Groups, Tables, loader_of, ids
names = lambda: [thread.name for thread in threading.enumerate() if thread.name == "zerocopy-loader"]
class Slow(Groups):
    def read(self, index):
        if index == 3 and not gone.is_set():
            waits.set()
            gone.wait(60)
        return super().read(index)
waits, gone = threading.Event(), threading.Event()
loader = loader_of(Slow([4] * 10), batch_size=4)
def interrupt(number):
    waits.wait(60)
    time.sleep(0.2)  # the consumer waits in next()
    os.kill(os.getpid(), number)
"""


@pytest.mark.hazard("robustness#signal-in-next")
def test_interrupt_in_next_and_the_iterator_goes_on(run_python) -> None:
    completed = run_python(
        SIGNALS
        + """
threading.Thread(target=interrupt, args=(signal.SIGINT,)).start()
rows, iterator = [], iter(loader)
try:
    while True: rows += ids(next(iterator))
except KeyboardInterrupt: print(len(rows), loader.state_dict()["done"])
gone.set()
for batch in iterator: rows += ids(batch)
print(rows == list(range(40)), names())
"""
    )
    assert completed.stdout.split("\n")[:2] == ["12 3", "True []"], completed.stderr


def test_interrupt_in_the_body_ends_the_thread(run_python) -> None:
    completed = run_python(
        SIGNALS
        + """
gone.set()
try:
    for batch in loader: signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt: pass
print(names(), loader.state_dict()["done"])
for batch in loader: signal.raise_signal(signal.SIGINT)
"""
    )
    assert completed.stdout == "[] 1\n"
    assert completed.returncode == -signal.SIGINT
    assert completed.stderr.rstrip().endswith("KeyboardInterrupt")


@pytest.mark.parametrize(
    ("handler", "status"),
    [("", -signal.SIGTERM), ("lambda *_: sys.exit(3)", 3), ("lambda *_: (iterator.close(), sys.exit(4))", 4)],
)
def test_terminate_in_next(run_warm, handler: str, status: int) -> None:
    """Without a handler, with one that exits, and with one that closes the iterator."""
    completed = run_warm(
        SIGNALS
        + f"""
import zerocopy.loading.prefetcher as prefetcher
prefetcher.PATIENCE = 0.2
handler = {handler or None}
if handler: signal.signal(signal.SIGTERM, handler)
threading.Thread(target=interrupt, args=(signal.SIGTERM,), daemon=True).start()
iterator = iter(loader)
while True: next(iterator)
"""
    )
    assert (completed.returncode, completed.stderr) == (status, "")


# -- forks ---------------------------------------------------------------------------------------------

FORKS = """
import os, signal, sys, threading, time, warnings
sys.path.insert(0, "tests")
import tempfile, pathlib
import zerocopy as zc
from helpers.forked_child import in_child
from helpers.loader_cases import ids, parquet_file
path = parquet_file(pathlib.Path(tempfile.mkdtemp()), 400, 25)
names = lambda: [thread.name for thread in threading.enumerate() if thread.name == "zerocopy-loader"]
"""


@pytest.mark.hazard("robustness#iterator-in-a-child")
@needs_fork
def test_fork_with_an_iterator_alive(run_python) -> None:
    """The child's next() refuses, its own iterators work, and the parent's iterator goes on."""
    completed = run_python(
        FORKS
        + """
def check():
    global iterator
    try: next(iterator)
    except RuntimeError as error: assert error.code == "forked-iterator"
    else: return False
    iterator.close()
    del iterator
    loader.load_state_dict(loader.state_dict())
    assert loader.state_dict()["done"] == 1
    assert sorted(rows + [row for batch in loader for row in ids(batch)]) == list(range(400))
    return not names()
for options in ({}, {"shuffle": 16}, {"layout": "matrix", "dtype": "float64"}):
    loader = zc.loader(path, to="numpy", batch_size=8, **options)
    iterator = iter(loader)
    rows = ids(next(iterator))
    statuses = [in_child(check) for _ in range(2)]
    for batch in iterator: rows += ids(batch)
    print(statuses, sorted(rows) == list(range(400)), names())
"""
    )
    assert completed.stdout == "[0, 0] True []\n" * 3, completed.stderr


@needs_fork
def test_child_exits_with_the_parents_iterator(run_python) -> None:
    completed = run_python(
        FORKS
        + """
iterator = iter(zc.loader(path, to="numpy", batch_size=8))
next(iterator)
child = os.fork()
if not child:
    signal.alarm(60)
    sys.exit(5)  # with handlers of atexit and finalizers
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), len(list(iterator)))
"""
    )
    assert completed.stdout == "5 49\n", completed.stderr


@pytest.mark.hazard("robustness#iterator-in-a-child", "robustness#imports-in-the-thread")
@needs_fork
def test_forks_while_a_loader_runs(run_python) -> None:
    """Another thread forks: each child imports, converts and loads."""
    completed = run_python(
        FORKS
        + """
stop, batches, statuses = threading.Event(), 0, []
def check():
    import zerocopy.pickling, wave
    options = {"layout": "matrix", "dtype": "float64", "shuffle": True}
    return sum(map(len, zc.loader(path, to="numpy", batch_size=8, **options))) == 400
def fork():
    for _ in range(8): statuses.append(in_child(check))
    stop.set()
thread = threading.Thread(target=fork)
thread.start()
while not stop.is_set():
    for options in ({}, {"shuffle": True}, {"shuffle": 16, "layout": "matrix", "dtype": "float64"}):
        batches += len(list(zc.loader(path, to="numpy", batch_size=8, **options)))
thread.join()
print(statuses, batches % 50, names())
"""
    )
    assert completed.stdout == "[0, 0, 0, 0, 0, 0, 0, 0] 0 []\n", completed.stderr


THREAD_IMPORTS = """
import traceback
import numpy as np, pyarrow as pa
from zerocopy.forks import IMPORTING, LOADING
class Finder:
    def find_spec(self, name, path=None, target=None):
        if threading.current_thread().name != "zerocopy-loader": return
        if not any(frame.name == "_find_and_load" for frame in traceback.extract_stack()): return
        if LOADING.acquire.__self__._is_owned() or threading.get_ident() in IMPORTING.values(): return
        print(name, flush=True)
table = pa.table({"id": range(100), "n": [None, 1.5] * 50, "t": ["a", "b"] * 50,
                  "d": pa.array(np.arange(100).astype("M8[us]"))})
matrix = {"layout": "matrix", "dtype": "float64"}
numbers = {"x": np.arange(100.0)}
sys.meta_path.insert(0, Finder())
cases = [(path, {}), (path, matrix), (numbers, {}), (numbers, matrix),
         (table.select(["id", "n"]), {"nulls": "mask"}), (table, {"nulls": "nan", "encode": True})]
def check():
    return sum(1 for _ in zc.loader(source, to="numpy", batch_size=8, **options, **shuffle)) > 0
statuses = []
for source, options in cases:
    for shuffle in ({}, {"shuffle": True}):
        statuses.append(in_child(check))  # each child imports for the first time
print(statuses)
"""


@pytest.mark.hazard("robustness#imports-in-the-thread")
@needs_fork
def test_the_thread_imports_nothing(run_python) -> None:
    """A forked child would wait forever for the lock of a module that the thread imports."""
    completed = run_python(FORKS + THREAD_IMPORTS)
    assert completed.stdout == f"{[0] * 12}\n", completed.stderr


def test_waiting_is_counted() -> None:
    """Both sides wait on a condition, not in a loop that polls."""
    loader = loader_of(Groups([4] * 50), batch_size=4, prefetch=1)
    iterator = iter(loader)
    next(iterator)
    for _ in range(1000):
        if iterator.prefetcher.depth >= 1:
            break
        time.sleep(0.001)
    assert iterator.prefetcher.depth == 1
    assert len(list(iterator)) == 49
    channel = iterator.prefetcher.channel
    assert min(channel.reader_waited, channel.consumer_waited) >= 0
