"""``loader.stats()``: counts, times of waiting, and the bottleneck."""

import gc
import pickle
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zerocopy as zc
from zerocopy.errors import ReadError
from zerocopy.loading.dataset import Dataset, Group
from zerocopy.loading.loader import Loader
from zerocopy.loading.options import LoaderOptions
from zerocopy.loading.stats import Counters, LoaderStats, Skipped

TABLE = pa.table({"x": np.arange(100.0), "n": np.arange(100, dtype=np.int32)})


def line(stats: LoaderStats) -> str:
    """Return the text of some counts in one line."""
    return " ".join(str(stats).split())


@pytest.fixture(autouse=True)
def _small_groups(monkeypatch):
    """Read each row group on its own."""
    monkeypatch.setattr("zerocopy.loading.sources.columnar._LEAST_ROWS", 1)


@pytest.mark.parametrize("shuffle", [False, 20])
@pytest.mark.parametrize("layout", [None, "matrix"])
def test_rows_and_bytes_are_those_of_the_batches(shuffle, layout):
    table = TABLE.select(["x"]) if layout else TABLE
    loader = zc.loader(table, "numpy", batch_size=8, shuffle=shuffle, layout=layout)
    batches = list(loader)
    stats = loader.stats()
    arrays = [array for b in batches for array in (b.values() if isinstance(b, dict) else [b])]
    assert stats.batches == len(batches) == len(loader)
    assert stats.rows == 100
    assert stats.nbytes == sum(array.nbytes for array in arrays)
    assert stats.ready == 0


def test_bytes_of_text_add_up():
    table = pa.table({"t": ["a", "bcd", "", "ef"] * 8, "c": pa.array(["x", "y"] * 16).dictionary_encode()})
    loader = zc.loader(table, "pandas", batch_size=8)
    list(loader)
    text_bytes = 33 * 4 + 6 * 8
    assert loader.stats().nbytes == pytest.approx(text_bytes + 32 * 4, abs=8)


def test_counts_of_all_iterators_add_up(tmp_path):
    pq.write_table(TABLE, tmp_path / "x.parquet", row_group_size=25)
    loader = zc.loader(str(tmp_path / "x.parquet"), "numpy", batch_size=25)
    for epoch in range(1, 6):
        list(loader)
        stats = loader.stats()
        assert (stats.batches, stats.rows, stats.groups) == (4 * epoch, 100 * epoch, 4 * epoch)
    assert len(loader._counters._iterators) == 1
    assert stats.read_seconds > 0
    assert stats.assemble_seconds >= 0
    assert stats.seconds > 0


def test_an_iterator_that_was_dropped_is_counted():
    loader = zc.loader(TABLE, "numpy", batch_size=10)
    batches = iter(loader)
    next(batches)
    next(batches)
    del batches
    gc.collect()
    assert loader.stats().batches == 2
    next(iter(loader))
    assert loader.stats().batches == 3


def test_buffers_are_counted():
    loader = zc.loader(TABLE, "numpy", batch_size=10, shuffle=20)
    for batch in loader:
        del batch
    assert 1 <= loader.stats().buffers <= 5


class _Broken(Dataset):
    name = "broken"
    groups = (Group(4, "a.parquet", 0), Group(3, "a.parquet", 1), Group(4, "b.parquet", 0))
    schema = pa.schema({"x": pa.float64()})

    def read(self, index):
        if index == 1:
            raise ReadError("reading", "it is broken", file="a.parquet", row_group=1)
        return pa.table({"x": np.arange(4.0)})

    def fingerprint(self):
        return "broken"


@pytest.mark.parametrize("shuffle", [False, 8])
def test_skipped_groups_are_listed(shuffle):
    source = _Broken()
    options = LoaderOptions("numpy", 4, shuffle=shuffle, on_error="skip", layout="matrix")
    loader = Loader(source, options, source.schema.empty_table())
    rows = sum(len(batch) for batch in loader)
    stats = loader.stats()
    assert rows == stats.rows == 8
    assert stats.nbytes == 64
    assert stats.groups == 2
    assert stats.skipped == (Skipped("a.parquet", 1, 3, "reading: it is broken."),)
    assert "1 group with 3 rows" in line(stats)


def test_the_reader_waits_when_the_consumer_is_slow():
    loader = zc.loader(TABLE, "numpy", batch_size=1, layout="matrix", columns=["x"], prefetch=1, shuffle=2)
    batches = iter(loader)
    next(batches)
    gate = threading.Event()
    while loader.stats().ready == 0:  # the reader is ahead now, and waits
        gate.wait(0.001)
    list(batches)
    assert loader.stats().reader_waited > 0


@pytest.mark.parametrize("is_stream", [False, True])
def test_assembling_waits_while_a_group_is_read(is_stream):
    stream = pa.RecordBatchReader.from_batches(TABLE.schema, TABLE.to_batches(20))
    loader = zc.loader(stream if is_stream else TABLE, "numpy", batch_size=10)
    list(loader)
    assert loader.stats().assembly_waited >= loader.stats().read_seconds > 0


def test_the_text_names_the_side_that_waits():
    stats = LoaderStats(*(10, 100, 800, 2, 5.0, 1.0), assembly_waited=4.0, consumer_waited=6.2, seconds=10)
    assert line(stats) == (
        "10 batches, 100 rows at 10 rows/s. The consumer waited 62% of the time: reading and decoding is the "
        "bottleneck (reading 5.0 s, assembling 1.0 s, which waited 4.0 s for reading)."
    )
    assert "assembling batches is the bottleneck" in line(stats._replace(assemble_seconds=7.0))
    idle = stats._replace(consumer_waited=0.1, reader_waited=8.0)
    assert (
        "The consumer waited 1% of the time, and the reader 8.0 s: the loader is not the bottleneck."
        in line(idle)
    )
    assert str(LoaderStats()) == "No batch has been delivered."
    assert not any(LoaderStats())


def test_counts_of_many_threads_are_exact():
    counters = Counters()

    def work():
        for _ in range(500):
            with counters.timed("read"):
                counters.count_group()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert counters.groups == 2000


def test_a_pickle_of_counters_is_empty():
    counters = Counters()
    counters.count_group()
    assert pickle.loads(pickle.dumps(counters)).groups == 0


def test_repr_is_one_line():
    assert repr(zc.loader(TABLE, "torch")) == "<Loader: pyarrow.lib.Table -> 'torch', batch_size=8192>"
    shuffled = zc.loader(TABLE, "torch", batch_size=8, shuffle=True, seed=3, rank=1, world_size=4)
    assert repr(shuffled).endswith("batch_size=8, shuffle=True, seed=3, rank=1, world_size=4>")


def test_tqdm_shows_the_number_of_batches(capsys):
    tqdm = pytest.importorskip("tqdm")
    with tqdm.tqdm(zc.loader(TABLE, "numpy", batch_size=8)) as bar:
        assert bar.total == 13
        assert sum(1 for _ in bar) == 13
