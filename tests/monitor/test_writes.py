"""``record(writes=True)``: 100 planted writes to immutable memory are found, and reads are not reported."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zerocopy as zc
from zerocopy import handover
from zerocopy._engine import recording
from zerocopy.monitor.writes import Write

pd, pa, pl = (pytest.importorskip(name) for name in ("pandas", "pyarrow", "polars"))
pq, _, _ = (pytest.importorskip(f"pyarrow.{name}") for name in ("parquet", "csv", "feather"))
torch, jnp = pytest.importorskip("torch"), pytest.importorskip("jax.numpy")


def frozen(values: Any) -> Any:
    values.flags.writeable = False
    return values


#: Immutable sources of `n` values, the type in the report, and the path of the alias in the result.
SOURCES: dict[str, tuple[Callable[[int], Any], str, str]] = {
    "pandas": (lambda n: pd.DataFrame({"x": np.arange(n, dtype="f4")}), "pandas.Series", "['x']"),
    "pyarrow": (lambda n: pa.table({"x": pa.array(np.arange(n, dtype="f4"))}), "pyarrow.Table", "['x']"),
    "polars": (lambda n: pl.DataFrame({"x": np.arange(n, dtype="f4")}), "polars.Series", "['x']"),
    "jax": (lambda n: jnp.arange(n, dtype="f4"), "jax.ArrayImpl", ""),
    "bytes": (lambda n: [bytes(n)], "bytes", "[0]"),
    "shared": (lambda n: zc.share(np.arange(n, dtype="f4")), "numpy.ndarray", ""),
    "numpy": (lambda n: {"a": {"b": frozen(np.arange(n, dtype="f4"))}}, "numpy.ndarray", "['a']['b']"),
}


def by_torch(alias: Any, i: int) -> None:
    alias[i : i + 3] += 1


def by_a_view(alias: Any, i: int) -> None:
    alias.view(-1, 2).t()[0, i // 2] = 99


def by_numpy(alias: Any, i: int) -> None:
    array = alias.numpy() if isinstance(alias, torch.Tensor) else alias
    if not array.flags.writeable:
        array.flags.writeable = True
    np.negative(array[i : i + 2], out=array[i : i + 2])
    array[i] = 99


def by_numba(alias: Any, i: int) -> None:
    compiled()(np.from_dlpack(alias.detach()), i)


def by_address(alias: Any, i: int) -> None:
    ctypes.memset(zc.view(alias[i:]).ptr, 255, 1)


def compiled(kept: list[Any] = []) -> Any:  # noqa: B006 - compiled once
    if not kept:
        numba = pytest.importorskip("numba")

        @numba.njit
        def write(array: Any, i: int) -> None:
            array[i] = 99

        kept.append(write)
    return kept[0]


WRITERS = {"torch": (by_torch, by_a_view, by_numpy, by_numba, by_address), "numpy": (by_numpy, by_address)}
SIZES = (50, 5_000)


def leaves(result: object) -> Iterator[Any]:
    if isinstance(result, (dict, list)):
        for item in result.values() if isinstance(result, dict) else result:
            yield from leaves(item)
    else:
        yield result


def convert_at(line: int, source: object, to: str) -> Any:
    """Convert at a line of the file ``case.py``."""
    names = {"zc": zc, "source": source, "to": to}
    exec(compile("\n" * (line - 1) + "result = zc.convert(source, to)", "case.py", "exec"), names)
    return names["result"]


def planted() -> Iterator[tuple[str, str, Any, int, bool]]:
    for (to, writers), name, size, released in product(WRITERS.items(), SOURCES, SIZES, (True, False)):
        for write in writers:
            # NumPy's own arrays are returned unchanged.
            if to == "torch" or name not in ("numpy", "shared"):
                yield name, to, write, size, released


def test_planted_writes_are_found_with_source_line_and_bytes() -> None:
    cases = list(planted())
    assert len(cases) >= 100
    for line, (name, to, write, size, released) in enumerate(cases, 1):
        make, kind, path = SOURCES[name]
        source = make(size)
        with zc.monitor.record(writes=True) as r:
            result = convert_at(line, source, to)
            read = [zc.convert(leaf, "numpy").sum() for leaf in leaves(result)]
            assert r.writes == [], (name, to, read)
            for leaf in leaves(result):
                write(leaf, size // 2)
            if released:
                del result, leaf
        assert len(r.writes) == 1, (name, to, write, size, r.writes)
        (change,) = r.writes
        case = name, to, write.__name__, change
        assert (change.file, change.line, change.function) == ("case.py", line, "<module>"), case
        dtype, width = ("uint8", 1) if name == "bytes" else ("float32", 4)
        assert (change.source, change.path) == (f"{kind} {dtype} ({size},)", path), case
        assert (change.target, change.nbytes) == (to, width * size), case
        ((first, stop),) = change.ranges
        assert first <= size // 2 * width < stop <= first + 128, case
        assert change.rows == ((first // width, stop // width),), case
        assert f"case.py:{line} <module>: {kind}" in str(r), case
        assert r.as_dict()["writes"][0]["line"] == line, case


def test_views_that_outlive_the_result_are_watched_and_memory_is_freed_with_them() -> None:
    source = frozen(np.arange(64.0))
    memory = weakref.ref(source)
    with zc.monitor.record(writes=True) as r:
        view = zc.convert(source, "torch").reshape(8, 8)[2:]
        del source
        gc.collect()
        assert memory() is not None
        view[0, 0] = 1
        del view
        assert memory() is None  # the recording does not keep it
        assert [write.rows for write in r.writes] == [((16, 24),)]


def test_values_with_gaps_and_repetitions() -> None:
    matrix = np.zeros((1000, 4))
    column = frozen(matrix[:, 1])
    repeated = np.broadcast_to(np.arange(3.0), (1 << 40, 3))
    with zc.monitor.record(writes=True) as r:
        alias, wide = zc.convert(column, "torch"), zc.convert(repeated, "torch")
        matrix[:, [0, 2, 3]] = 1  # the gaps are other memory
        assert r.writes == []
        alias[500] = 1
        wide[5, 2] = 7
    assert {write.rows for write in r.writes} == {((496, 504),), ((0, 1),)}


def test_copies_mutable_sources_and_results_of_earlier_calls_are_not_watched() -> None:
    series, array = pd.Series(np.arange(100.0)), np.arange(100.0)
    before = zc.convert(series, "torch")
    with zc.monitor.record(writes=True) as r:
        mine, copied = (zc.convert(series, "torch", writable=True), zc.convert(series, "torch", copy=True))
        for each in (mine, copied, zc.convert(array, "torch"), before):
            each += 1
        later = zc.convert(series, "torch")
    later += 1
    with zc.monitor.record() as plain:
        zc.convert(series, "torch")[0] = 1
    assert r.writes == plain.writes == []


def test_recordings_are_independent_and_threads_are_watched() -> None:
    series = pd.Series(np.arange(100.0))
    with zc.monitor.record(writes=True) as outer:
        alias = zc.convert(series, "torch")
        alias[0] = 7
        with zc.monitor.record(writes=True) as inner:
            thread = threading.Thread(target=lambda: zc.convert(series, "torch").zero_())
            thread.start()
            thread.join()
        inside = zc.convert(series, "torch")
        inside[99] = 5
    assert [write.ranges for write in inner.writes] == [((0, 800),)]
    assert [(write.line, write.ranges) for write in outer.writes[:1]] == [(inner.writes[0].line, ((0, 800),))]
    assert len(outer.writes) == 3
    assert recording.counters is None


def test_text_of_several_ranges() -> None:
    write = Write(
        "", 0, "zerocopy.loader", "x\x1b[1m", "torch", 512, "", ((0, 64), (128, 192)), ((0, 8), (16, 24))
    )
    assert str(write).splitlines()[0] == ("zerocopy.loader: x\\x1b[1m is immutable, but torch aliases it")
    assert str(write).splitlines()[1] == (
        "  changed: bytes 0 to 63 and 1 more range of 512 (rows 0 to 7 and 1 more range)"
    )


def test_batches_of_a_data_set_are_copies() -> None:
    frame = pd.DataFrame({"km": np.arange(1000.0)})
    with zc.monitor.record(writes=True) as r:
        batch = zc.dataset(frame, to="torch")[[1, 2]]
        batch["km"].zero_()
    assert frame["km"][1] == 1
    assert r.writes == []


@pytest.mark.parametrize("source", ["frame", "array", "stream"])
def test_a_write_to_a_batch_that_aliases_the_source_is_one_report(source: str) -> None:
    frame = pd.DataFrame({"km": np.arange(1000.0)})
    table = pa.Table.from_pandas(frame)
    makers = {
        "frame": lambda: frame,
        "array": lambda: {"km": frozen(np.arange(1000.0))},
        "stream": table.to_reader,
    }
    with zc.monitor.record(writes=True) as outer, zc.monitor.record(writes=True) as r:
        for batch in zc.loader(makers[source](), to="torch", batch_size=100):
            batch["km"].mul_(2)
        del batch
    assert len(r.writes) == len(outer.writes) == 1
    assert (r.writes[0].file, r.writes[0].ranges) == (__file__, ((0, 800),))
    assert "fix: pass shuffle=True to the loader" in str(r)
    with zc.monitor.record(writes=True) as r:
        for batch in zc.loader(makers[source](), to="torch", batch_size=100, shuffle=True):
            batch["km"].mul_(2)
    assert r.writes == []


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("source", ["a.parquet", "a.arrow", "a.csv", "open", "table"])
def test_batches_with_new_memory_are_not_watched(source: str, shuffle: bool, tmp_path: Path) -> None:
    table = pa.table({"km": np.arange(1000.0), "city": ["Bern", "Oslo"] * 500})
    pq.write_table(table, tmp_path / "a.parquet")
    pa.feather.write_feather(table, tmp_path / "a.arrow", compression="lz4")
    pa.csv.write_csv(table, tmp_path / "a.csv")
    given: Any = {"open": pq.ParquetFile(tmp_path / "a.parquet"), "table": table}.get(source)
    with zc.monitor.record(writes=True) as r:
        loader = zc.loader(
            given or tmp_path / source, to="torch", batch_size=100, encode="bytes", shuffle=shuffle
        )
        for batch in loader:
            batch["km"].mul_(2)
            batch["city"].values.zero_()
    assert len(r.writes) == 2 * (source == "table" and not shuffle)


PROTECTED = """
import os
import numpy as np, zerocopy as zc
shared = zc.share(np.zeros(100_000))
with zc.monitor.record(writes=True):
    tensor = zc.convert(shared, "torch")
tensor[3] = 1
recording = zc.monitor.record(writes=True).__enter__()
again = zc.convert(shared, "torch")
print(tensor[3].item(), again.sum().item(), flush=True)
if not os.fork():
    tensor[4] = 1
    os._exit(0)
print(os.wait()[1] & 127)
alias = zc.convert(bytes(100), "numpy")
alias.flags.writeable = True
alias[50] = 1
"""


@pytest.mark.skipif(sys.platform != "linux", reason="shared memory needs Linux")
def test_shared_memory_is_protected_and_a_block_that_has_not_ended_reports_at_exit() -> None:
    done = subprocess.run([sys.executable, "-c", PROTECTED], capture_output=True, text=True, timeout=120)
    # Before a recording ends, a write kills the process, and afterwards it does not.
    assert (done.returncode, done.stdout) == (0, "1.0 1.0\n11\n"), done.stderr
    assert "Segmentation fault" in done.stderr
    assert 'File "<string>", line 12 in <module>' in done.stderr
    assert "zerocopy monitor: <string>:15 <module>: bytes uint8 (100,) is immutable" in done.stderr


def test_an_array_without_dimensions() -> None:
    with zc.monitor.record(writes=True) as r:
        t = zc.convert(frozen(np.array(1.0)), "torch")
        t.fill_(5)
    assert [each.ranges for each in r.writes] == [((0, 8),)]


def fail(*_: object) -> None:
    raise MemoryError


def test_a_block_that_cannot_begin_or_end_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    record = zc.monitor.record(writes=True)
    record.__enter__()
    t = zc.convert(zc.share(np.arange(1e5)), "torch")
    with monkeypatch.context() as patch:
        patch.setattr(record._recorder, "rows", fail)
        with pytest.raises(MemoryError):
            record.__exit__()
    assert not handover.watchers
    t[0] = 5  # its pages are writable again

    monkeypatch.setattr("zerocopy.monitor.writes.Watcher.__init__", fail)
    with pytest.raises(MemoryError), zc.monitor.record(writes=True):
        pass
    assert recording.counters is None


TRUNCATED = """
import os, sys
import numpy as np, torch
import zerocopy as zc

np.arange(100_000.0).tofile(PATH)
mapped = np.memmap(PATH, "f8", "r")
sys.__stderr__ = None
with zc.monitor.record(writes=True):
    t = zc.convert(mapped, "torch")
    os.truncate(PATH, 0)
"""


def test_a_file_that_is_truncated_is_not_compared(run_warm, tmp_path: Path) -> None:
    done = run_warm(TRUNCATED.replace("PATH", repr(str(tmp_path / "a"))))
    assert done.returncode == 0, done.stderr
