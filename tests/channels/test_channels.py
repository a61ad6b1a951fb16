"""Channels: what a reader gets, what is refused, and how long memory is held."""

from __future__ import annotations

import asyncio
import base64
import gc
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from helpers.frameworks import host_frameworks

import zerocopy as zc
from zerocopy.channels import ring
from zerocopy.errors import (
    ChannelClosedError,
    ChannelTimeoutError,
    HandleFormatError,
    OptionError,
    StaleHandleError,
)

SPEC = {"image": ((4, 3), "u1"), "t": ((), "f8")}


def item(number: int) -> dict[str, object]:
    return {"image": np.full((4, 3), number, "u1"), "t": float(number)}


@pytest.fixture(params=["queue", "latest"])
def channel(request):
    with zc.channel(SPEC, mode=request.param) as channel:
        yield channel


def test_an_item_is_read_as_it_was_put(channel) -> None:
    reader = channel.read()
    channel.put(item(7))
    batch = next(reader)
    assert batch["image"].tolist() == [[7, 7, 7]] * 4
    assert batch["t"].shape == ()
    assert batch["t"] == 7


@pytest.mark.parametrize("name", host_frameworks())
def test_batches_alias_the_slot_in_every_framework(name: str) -> None:
    channel = zc.channel({"x": ((64,), "f4")})
    reader, other = channel.read(to=name), channel.read()
    channel.put({"x": np.arange(64, dtype="f4")})
    batch = next(reader)
    assert np.array_equal(np.asarray(zc.convert(batch["x"], "numpy")), np.arange(64, dtype="f4"))
    plain = next(other)["x"]
    if not zc.explain(plain, name).copied_bytes:
        offset = zc.view(batch["x"]).ptr - reader._leases._address
        assert offset == zc.view(plain).ptr - other._leases._address, "both alias the slot"


def test_readers_of_a_queue_get_every_item() -> None:
    with zc.channel(SPEC, readers=2) as channel:
        readers = [channel.read(timeout=60), channel.read(timeout=60)]
        seen: list[list[float]] = [[], []]

        def consume(place: int) -> None:
            seen[place] += [float(batch["t"]) for batch in readers[place]]

        threads = [threading.Thread(target=consume, args=(place,)) for place in range(2)]
        for thread in threads:
            thread.start()
        for number in range(50):
            channel.put(item(number), timeout=30)
        channel.close()
        for thread in threads:
            thread.join()
    assert seen == [[*range(50)]] * 2


def test_a_reader_that_registers_late_takes_items_without_a_gap() -> None:
    channel = zc.channel(SPEC, slots=3)
    first = channel.read()
    for number in range(3):
        channel.put(item(number))
    kept = next(first)
    for _ in range(2):
        next(first)
    channel.put(item(3), timeout=0)  # overwrites item 1 or 2, while the slot of item 0 is leased
    late = channel.read(timeout=0)
    channel.put(item(4), timeout=0)
    seen = [float(next(late)["t"]) for _ in range(2)]
    assert seen == [3, 4], "not item 0, after which there is a gap"
    assert kept["t"] == 0


def test_a_batch_that_is_kept_does_not_keep_its_reader() -> None:
    channel = zc.channel(SPEC, slots=2)
    channel.put(item(0))
    batch = next(channel.read())
    with pytest.raises(ChannelClosedError, match="all readers of the queue have ended"):
        channel.put(item(1), timeout=0)
    assert batch["t"] == 0


def test_a_reader_that_is_closed_in_another_thread_is_refused() -> None:
    channel = zc.channel(SPEC)
    reader = channel.read()
    for number in range(3):
        channel.put(item(number))
    errors = []

    def consume() -> None:
        try:
            for _ in reader:
                pass
        except ChannelClosedError as error:
            errors.append(error)

    thread = threading.Thread(target=consume)
    thread.start()
    reader.close()
    thread.join()
    assert errors
    assert channel.stats().published == 3


def test_a_write_to_an_alias_of_a_batch_does_not_hide_the_next_item() -> None:
    torch = pytest.importorskip("torch")
    channel = zc.channel({"x": ((5000,), "f4")}, slots=2)
    reader = channel.read()
    for number in range(6):
        channel.put({"x": np.full(5000, number, "f4")})
        tensor = zc.convert(next(reader)["x"], "torch")
        assert (tensor == number).all()
        tensor += 100
        assert type(tensor) is torch.Tensor


@pytest.mark.parametrize("has_begun", [False, True])
def test_an_exception_in_the_writer_is_no_regular_end(has_begun: bool) -> None:
    channel = zc.channel(SPEC)
    reader = channel.read(timeout=0.1)
    with pytest.raises(ZeroDivisionError), channel:  # noqa: PT012
        if has_begun:
            channel.put(item(1))
        raise ZeroDivisionError
    if has_begun:
        assert next(reader)["t"] == 1
    with pytest.raises(ChannelClosedError, match="the writer has ended without"):
        next(reader)
    channel.close()
    with pytest.raises(ChannelClosedError, match="the writer has ended without"):
        next(reader)


def test_a_channel_without_items_ends() -> None:
    channel = zc.channel(SPEC)
    reader = channel.read(timeout=60)
    with channel:
        pass
    assert list(reader) == []


class Interrupted:
    """A memory that raises KeyboardInterrupt in place of an access."""

    def __init__(self, memory, before: int) -> None:
        self._memory, self._left = memory, before

    @property
    def words(self):
        return self

    def __setitem__(self, word: int, value: int) -> None:
        self._count()
        self._memory.words[word] = value

    def unlock(self, byte: int) -> None:
        self._count()
        self._memory.unlock(byte)

    def _count(self) -> None:
        if not self._left:
            raise KeyboardInterrupt
        self._left -= 1


def test_an_interrupt_while_an_item_is_published_loses_no_number(monkeypatch) -> None:
    channel = zc.channel(SPEC)
    reader = channel.read(timeout=0)
    channel.put(item(0))
    publish = ring.publish
    for stop in range(3):
        stops = [stop]

        def interrupted(shape, memory, *args, stops=stops):
            publish(shape, Interrupted(memory, stops.pop()) if stops else memory, *args)

        monkeypatch.setattr(ring, "publish", interrupted)
        with pytest.raises(KeyboardInterrupt):
            channel.put(item(1 + 2 * stop))
        monkeypatch.undo()
        channel.put(item(2 + 2 * stop))
        assert [float(next(reader)["t"]) for _ in range(3 if not stop else 2)][-1] == 2 + 2 * stop


def test_a_reader_that_saw_the_end_of_one_writer_gets_the_item_of_the_next(monkeypatch) -> None:
    channel = zc.channel(SPEC)
    reader = channel.read(timeout=0)
    with pytest.raises(ZeroDivisionError), channel:
        1 / 0  # noqa: B018
    take_next, looks = ring.take_next, []

    def another_writer_comes_after(*args):
        looks.append(take_next(*args))
        if len(looks) == 2:
            monkeypatch.undo()
            channel.put(item(1))
            channel.close()
        return looks[-1]

    monkeypatch.setattr(ring, "take_next", another_writer_comes_after)
    with pytest.raises(ChannelClosedError, match="the writer has ended without"):
        next(reader)
    assert [float(batch["t"]) for batch in reader] == [1]


def test_a_slot_that_is_written_while_the_channel_is_closed_is_not_published() -> None:
    channel = zc.channel(SPEC, slots=2)
    other = pickle.loads(pickle.dumps(channel))
    with pytest.raises(ChannelClosedError, match="this Channel was closed"), channel.slot() as slot:  # noqa: PT012
        channel.close()
        other.put(item(2), timeout=0)
        with pytest.raises(ChannelTimeoutError):
            other.put(item(3), timeout=0)  # the slot of the block stays locked
        slot["t"][...] = 1
    reader = channel.read(timeout=30)
    assert next(reader)["t"] == 2
    other.put(item(3), timeout=0)
    assert next(reader)["t"] == 3


def test_a_reader_that_has_ended_does_not_keep_items() -> None:
    channel = zc.channel(SPEC, slots=2)
    reader = channel.read(timeout=30)
    with channel:
        channel.put(item(0))
    assert [float(batch["t"]) for batch in reader] == [0]
    with pytest.raises(ChannelClosedError, match="all readers of the queue have ended"):
        zc.channel(channel.handle).put(item(1), timeout=0)
    assert list(reader) == []


def test_a_forked_child_does_not_publish_the_slot_of_its_parent() -> None:
    channel = zc.channel(SPEC)
    pid = 1
    with channel.slot() as slot:
        slot["t"][...] = 1
        pid = os.fork()
        if not pid:
            try:
                channel.put(item(9), timeout=0)
            except ChannelClosedError:
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert channel.stats().published == 1


@pytest.mark.parametrize("timeout", ["5", float("nan"), -1, pytest.param(10**5000, id="large")])
def test_a_timeout_is_a_number_of_seconds(timeout) -> None:
    channel = zc.channel(SPEC)
    with pytest.raises(OptionError, match="timeout="):
        channel.put(item(1), timeout=timeout)


def test_numbers_of_python_get_the_type_of_the_field() -> None:
    channel = zc.channel({"f": ((), "f4"), "i": ((), "i2"), "b": ((), "?")})
    reader = channel.read()
    channel.put({"f": 0.1, "i": 3, "b": True})
    assert next(reader)["f"] == np.float32(0.1)
    for wrong in ({"i": 40_000}, {"i": 2**70}, {"i": 0.5}, {"b": 1.5}, {"f": 1j}):
        with pytest.raises(zc.UnsupportedConversionError):
            channel.put({"f": 0.1, "i": 3, "b": True} | wrong)


def test_a_reader_of_a_queue_begins_with_the_oldest_item_that_is_held() -> None:
    channel = zc.channel(SPEC)
    for number in range(3):
        channel.put(item(number))
    reader = channel.read()
    assert [float(next(reader)["t"]) for _ in range(3)] == [0, 1, 2]


def test_the_newest_item_is_read() -> None:
    channel = zc.channel(SPEC, mode="latest")
    with pytest.raises(ChannelTimeoutError, match="no item arrived"):
        channel.latest(timeout=0)
    for number in range(20):
        channel.put(item(number))
    assert channel.latest()["t"] == 19
    assert channel.latest()["t"] == 19
    reader = channel.read(timeout=0.01)
    assert next(reader)["t"] == 19
    with pytest.raises(ChannelTimeoutError):
        next(reader)
    channel.put(item(20))
    assert float(next(reader)["t"]) == float(channel.latest("torch")["t"]) == 20


def test_a_batch_that_is_kept_holds_its_slot() -> None:
    channel = zc.channel(SPEC, slots=2, mode="latest")
    channel.put(item(1))
    kept = channel.latest()["image"]
    channel.put(item(2))
    with pytest.raises(ChannelTimeoutError, match="no slot became free within 0 seconds: 2 items were put"):
        channel.put(item(3), timeout=0)
    assert (kept == 1).all()
    del kept
    channel.put(item(3), timeout=0)
    assert channel.latest()["t"] == 3


def test_a_reader_that_holds_all_slots_is_refused() -> None:
    channel = zc.channel(SPEC, slots=2)
    reader = channel.read()
    held = []
    for number in range(2):
        channel.put(item(number))
        held.append(next(reader))
    with pytest.raises(ChannelTimeoutError, match="holds batches in all 2 slots"):
        next(reader)
    with pytest.raises(ChannelTimeoutError, match="no slot"):
        channel.put(item(3), timeout=0)
    held.clear()
    channel.put(item(3), timeout=0)
    assert next(reader)["t"] == 3
    copies = channel.read(copy=True)
    channel.put(item(4), timeout=0)
    assert next(copies)["t"] == 3


def test_items_are_dropped_and_counted() -> None:
    channel = zc.channel(SPEC, slots=2, full="drop")
    reader = channel.read()
    assert [channel.put(item(number)) for number in range(4)] == [True, True, False, False]
    assert channel.stats()[:3] == (2, 2, 2)
    with pytest.raises(ChannelTimeoutError), channel.slot():
        pass
    assert [float(next(reader)["t"]) for _ in range(2)] == [0, 1]


def test_a_queue_waits_until_readers_have_begun() -> None:
    channel = zc.channel(SPEC, slots=2, readers=2)
    first = channel.read()
    for number in range(2):
        channel.put(item(number))
    next(first), next(first)
    with pytest.raises(ChannelTimeoutError):
        channel.put(item(2), timeout=0)
    second = channel.read()
    assert next(second)["t"] == 0
    channel.put(item(2), timeout=0)


def test_a_queue_without_readers_is_reported() -> None:
    channel = zc.channel(SPEC, slots=2)
    reader = channel.read()
    channel.put(item(0))
    reader.close()
    with pytest.raises(ChannelClosedError, match="all readers of the queue have ended"):
        channel.put(item(1), timeout=0)
    reader = channel.read()
    channel.put(item(1))
    assert [float(next(reader)["t"]) for _ in range(2)] == [0, 1]
    reader.close()
    with pytest.raises(ChannelClosedError, match="the reader was closed"):
        next(reader)


def test_a_slot_is_written_in_place() -> None:
    torch = pytest.importorskip("torch")
    channel = zc.channel({"x": ((8,), "f4")})
    reader = channel.read()
    with channel.slot() as slot:
        torch.arange(8.0, out=slot.to("torch")["x"])
    assert next(reader)["x"].tolist() == [*range(8)]
    with pytest.raises(ZeroDivisionError), channel.slot() as slot:
        1 / 0  # noqa: B018
    channel.put({"x": np.ones(8, "f4")})
    assert next(reader)["x"].tolist() == [1] * 8


def test_an_array_that_replaces_one_of_a_slot_is_refused() -> None:
    channel = zc.channel({"x": ((8,), "f4")})
    with (
        pytest.raises(zc.UnsupportedConversionError, match=r"slot\['x'\]\[...\] = value"),
        channel.slot() as slot,
    ):
        slot["x"] = np.ones(8, "f4")
    assert channel.stats().published == 0


def test_several_slots_are_written_at_the_same_time() -> None:
    channel = zc.channel(SPEC)
    reader = channel.read()
    with channel.slot() as first, channel.slot() as second:
        first["t"][...], second["t"][...] = 1, 2
        channel.put(item(0))
    assert [float(next(reader)["t"]) for _ in range(3)] == [0, 2, 1]


def test_a_write_to_a_batch_changes_nothing_for_others() -> None:
    torch = pytest.importorskip("torch")
    channel = zc.channel({"x": ((5000,), "f4")}, slots=2)
    readers = [channel.read(to="torch"), channel.read()]
    for number in range(6):
        channel.put({"x": np.full(5000, number, "f4")})
        batch = next(readers[0])["x"]
        assert (batch == number).all(), "a page that was written stays as it was written"
        batch += 100
        other = next(readers[1])["x"]
        assert (other == number).all()
        assert not other.flags.writeable
        assert type(batch) is torch.Tensor
        del batch, other


@pytest.mark.parametrize("start", ["spawn", "forkserver", "fork"])
def test_a_channel_is_passed_to_children(start: str) -> None:
    context = multiprocessing.get_context(start)
    requests, answers = zc.channel({"n": ((), "i8")}), zc.channel({"n": ((), "i8"), "pid": ((), "i8")})
    reader = answers.read(timeout=120)
    child = context.Process(target=double, args=(requests, answers))
    child.start()
    for number in range(5):
        requests.put({"n": number}, timeout=120)
    requests.close()
    results = [(int(batch["n"]), int(batch["pid"])) for batch in reader]
    child.join()
    assert results == [(2 * number, child.pid) for number in range(5)]


def double(requests, answers) -> None:
    with answers:
        for batch in requests.read(timeout=60):
            answers.put({"n": 2 * int(batch["n"]), "pid": os.getpid()}, timeout=60)


def test_a_handle_is_text_for_other_programs() -> None:
    channel = zc.channel(SPEC)
    code = f"""
import zerocopy as zc
with zc.channel({channel.handle!r}) as channel:
    channel.put({{"image": __import__("numpy").ones((4, 3), "u1"), "t": 2}})
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert [float(batch["t"]) for batch in channel.read()] == [2]


def test_a_second_writer_is_refused_while_the_first_lives() -> None:
    channel = zc.channel(SPEC)
    other = pickle.loads(pickle.dumps(channel))
    channel.put(item(0))
    with pytest.raises(ChannelClosedError, match="another process, or another Channel"):
        other.put(item(1))
    channel.close()
    other.put(item(1))
    reader = other.read()
    assert [float(next(reader)["t"]) for _ in range(2)] == [0, 1]


def test_tables_are_handed_over() -> None:
    pa = pytest.importorskip("pyarrow")
    polars = pytest.importorskip("polars")
    table = pa.table({"a": pa.array([1, None, 3]), "b": [0.5, 1.5, 2.5]})
    channel = zc.channel(like=table, max_rows=100)
    reader = channel.read(to="polars")
    channel.put(table)
    channel.put(table.slice(1))
    channel.put(polars.from_arrow(table))
    assert next(reader).equals(polars.from_arrow(table))
    assert next(reader)["a"].to_list() == [None, 3]
    assert next(reader)["b"].to_list() == [0.5, 1.5, 2.5]
    with pytest.raises(zc.UnsupportedConversionError, match="cannot be written in place"), channel.slot():
        pass
    texts = pa.table({"s": ["a", None, "longer"]})
    with pytest.raises(ValueError, match="max_bytes"):
        zc.channel(texts.schema, max_rows=3)
    channel = zc.channel(texts.schema, max_bytes=10_000)
    with pytest.raises(zc.UnsupportedConversionError, match=r"needs .* bytes, and a slot has"):
        channel.put(pa.table({"s": ["x" * 20_000]}))
    channel.put(texts)
    assert next(channel.read()).equals(texts)


def test_the_most_rows_of_a_schema_fit() -> None:
    pa = pytest.importorskip("pyarrow")
    fields = [
        (f"c{place}", kind) for place, kind in enumerate([pa.int8(), pa.float64(), pa.bool_(), pa.date32()])
    ]
    channel = zc.channel(pa.schema(fields), max_rows=1001)
    rows = pa.table(
        {name: pa.array([None] + [0] * 1000, pa.int64()).cast(kind, safe=False) for name, kind in fields[:3]}
    )
    full = rows.append_column("c3", pa.array([None] + [0] * 1000, pa.int32()).cast(pa.date32()))
    channel.put(full)
    assert next(channel.read()).equals(full)


@pytest.mark.parametrize("readers", [1, 2])
def test_an_item_that_a_reader_returned_is_not_returned_again(readers: int) -> None:
    channel = zc.channel(SPEC, readers=readers)
    for number in range(3):
        channel.put(item(number))
    for _ in range(readers - 1):
        assert next(channel.read(timeout=0))["t"] == 0, "each of the readers that must begin gets it"
    assert [float(next(channel.read(timeout=0))["t"]) for _ in range(3)] == [0, 1, 2]


def test_an_item_whose_conversion_failed_is_not_returned_to_the_next_reader() -> None:
    pytest.importorskip("torch")
    pa = pytest.importorskip("pyarrow")
    channel = zc.channel(like=pa.table({"a": [1, None]}))
    for value in (None, 1):
        channel.put(pa.table({"a": pa.array([value], pa.int64())}))
    with pytest.raises(zc.ZeroCopyError, match="null"):
        next(channel.read("torch", timeout=0))
    gc.collect()
    assert next(channel.read(timeout=0))["a"].to_pylist() == [1]


def test_a_channel_that_was_closed_writes_no_other_item() -> None:
    channel = zc.channel(SPEC)
    reader = channel.read(timeout=0)
    channel.put(item(0))
    channel.close()
    with pytest.raises(ChannelClosedError, match="this Channel was closed"):
        channel.put(item(1))
    with pytest.raises(ChannelClosedError, match="this Channel was closed"), channel.slot():
        pass
    channel.close()
    assert channel.stats().closed
    zc.channel(channel.handle).put(item(2))
    assert [float(next(reader)["t"]) for _ in range(2)] == [0, 2]


@pytest.mark.parametrize("by_handle", [False, True])
def test_the_most_rows_are_exact(by_handle: bool) -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"a": [*range(12)]})
    for options, limit in (
        ({"spec": table.schema, "max_rows": 10}, 10),
        ({"like": table.slice(0, 2)}, 2),
        ({"spec": table.schema, "max_rows": 3, "max_bytes": 4096}, 3),
    ):
        channel = zc.channel(**options)
        writer = zc.channel(channel.handle) if by_handle else channel
        writer.put(table.slice(0, limit))
        why = rf"the table has {limit + 1} rows, and the channel takes {limit}\.(?s:.*)max_rows={limit + 1}"
        with pytest.raises(zc.UnsupportedConversionError, match=why):
            writer.put(table.slice(0, limit + 1))
    with pytest.raises(OptionError, match="max_rows="):
        zc.channel(like=table.slice(0, 0))


def test_text_of_each_form_is_put() -> None:
    pa = pytest.importorskip("pyarrow")
    forms = [pa.string(), pa.large_string(), pa.string_view()]
    tables = [pa.table({"a": [1, 2], "s": pa.array(["x" * 20, None], form)}) for form in forms]
    for table in tables:
        channel = zc.channel(table.schema, max_bytes=4096)
        for other in tables:
            channel.put(other)
        reader = channel.read()
        assert all(next(reader).equals(table) for _ in tables)
        refusal = r"has the columns a: int32, s: string\.(?s:.*)columns of the channel: a: int64, s: string"
        with pytest.raises(zc.UnsupportedConversionError, match=refusal):
            channel.put(pa.table({"a": pa.array([1], pa.int32()), "s": ["x"]}))


def test_text_without_max_bytes_is_refused_without_another_error() -> None:
    pa = pytest.importorskip("pyarrow")
    with pytest.raises(OptionError, match="max_bytes=") as refused:
        zc.channel(pa.schema({"s": pa.string()}), max_rows=3)
    assert refused.value.__suppress_context__


def test_the_schema_of_polars_is_refused_with_a_fix() -> None:
    polars = pytest.importorskip("polars")
    with pytest.raises(OptionError, match=r"the field 'a' is Int64(?s:.*)or like=table"):
        zc.channel(polars.DataFrame({"a": [1]}).schema, max_rows=3)


def test_a_channel_that_is_too_large_is_refused_with_a_fix() -> None:
    with pytest.raises(zc.errors.SharedMemoryError, match=r"fewer slots= or smaller fields"):
        zc.channel({"x": ((1 << 50,), "u1")})


def test_types_that_numpy_lacks() -> None:
    torch = pytest.importorskip("torch")
    channel = zc.channel({"x": ((3,), "bfloat16")})
    reader = channel.read(to="torch")
    channel.put({"x": torch.ones(3, dtype=torch.bfloat16)})
    batch = next(reader)["x"]
    assert batch.dtype == torch.bfloat16
    assert batch.tolist() == [1, 1, 1]
    with pytest.raises(zc.UnsupportedConversionError, match="field is bfloat16"):
        channel.put({"x": np.ones(3, "f4")})
    ml_dtypes = pytest.importorskip("ml_dtypes")
    channel.put({"x": np.full(3, 2, ml_dtypes.bfloat16)})
    assert next(reader)["x"].tolist() == [2, 2, 2]


def test_like_takes_the_arrays_of_a_batch() -> None:
    torch = pytest.importorskip("torch")
    batch = {"x": torch.ones(2, 3), "y": np.arange(4)}
    channel = zc.channel(like=batch)
    channel.put(batch)
    result = next(channel.read(to="torch"))
    assert torch.equal(result["x"], batch["x"])
    assert result["y"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"image": np.ones((4, 3), "u1")}, r"the batch has the fields \['image'\]"),
        ({"image": np.ones((4, 2), "u1"), "t": 1.0}, "the array of 'image' is"),
        ({"image": np.ones((4, 3), "i1"), "t": 1.0}, "cast or reshape it to"),
        ({"image": np.ones((4, 3), "u1"), "t": 1j}, "complex"),
        ([1], "the batch is of <class 'list'>"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused(channel, batch, message: str) -> None:
    channel.put(item(1))
    with pytest.raises(zc.ZeroCopyError, match=message):
        channel.put(batch)
    channel.put(item(2))
    assert channel.stats().published == 2


@pytest.mark.parametrize(
    "options",
    [
        {"spec": {}},
        {"spec": {"a": 3}},
        {"spec": {"a": ((-1,), "f4")}},
        {"spec": {"a": ((), "O")}},
        {"spec": {1: ((), "f4")}},
        {"spec": {"a": ((), "no such type")}},
        {"spec": SPEC, "like": {}},
        {},
        {"spec": SPEC, "slots": 1},
        {"spec": SPEC, "slots": "4"},
        {"spec": SPEC, "mode": "newest"},
        {"spec": SPEC, "full": "wait"},
        {"spec": SPEC, "readers": 0},
        {"spec": SPEC, "readers": 65},
        {"spec": {"a": ((1.5,), "f4")}},
        {"spec": {"a": ("34", "f4")}},
        {"spec": SPEC, "mode": np.array(["queue"])},
        {"spec": SPEC, "mode": np.array(["queue", "latest"])},
    ],
)
def test_options_are_checked(options) -> None:
    with pytest.raises(OptionError, match=r"channel\(\)"):
        zc.channel(**options)


@pytest.mark.parametrize(
    "handle", ["", "x", "zerocopy-channel:", "zerocopy-channel:%", "zerocopy-channel:" + "A" * 80]
)
def test_damaged_handles_are_refused(handle: str) -> None:
    with pytest.raises(ValueError, match=r"channel\(\)"):
        zc.channel(handle)


def test_handles_of_other_memory_are_refused() -> None:
    channel = zc.channel(SPEC)
    raw = bytearray(base64.urlsafe_b64decode(channel.handle.removeprefix("zerocopy-channel:")))
    for place in range(len(raw)):
        changed = bytes(raw[:place]) + bytes([raw[place] ^ 1]) + bytes(raw[place + 1 :])
        try:
            opened = zc.channel("zerocopy-channel:" + base64.urlsafe_b64encode(changed).decode())
        except zc.ZeroCopyError:
            continue
        assert opened.nbytes == channel.nbytes


def test_a_channel_whose_creator_has_ended_is_stale() -> None:
    code = f"import zerocopy as zc; print(zc.channel({SPEC!r}).handle)"
    handle = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.strip()
    with pytest.raises(StaleHandleError, match=r"^channel\(\): (?s:.*)keep the Channel in its process"):
        zc.channel(handle)


def test_the_end_of_a_writer_without_close_is_reported() -> None:
    channel = zc.channel(SPEC)
    reader = channel.read(timeout=60)
    code = f"""
import os, zerocopy as zc
zc.channel({channel.handle!r}).put({{"image": __import__("numpy").ones((4, 3), "u1"), "t": 2}})
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert next(reader)["t"] == 2
    with pytest.raises(ChannelClosedError, match="the writer has ended without"):
        next(reader)
    channel.put(item(3))
    assert next(reader)["t"] == 3


def test_objects_that_outlive_their_modules_print_nothing_at_exit() -> None:
    code = f"""
import os, sys, numpy as np, zerocopy as zc
channel = zc.channel({SPEC!r})
reader = channel.read()
channel.put({{"image": np.ones((4, 3), "u1"), "t": 2}})
os.kept = channel, reader, next(reader), list(sys.modules.values())
"""
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert result.stderr == ""


def test_asynchronous_iteration(channel) -> None:
    async def main() -> list[float]:
        reader = channel.read(timeout=60)

        async def produce() -> None:
            for number in range(3):
                await asyncio.sleep(0.01)
                channel.put(item(number))
            channel.close()

        task = asyncio.create_task(produce())
        seen = [float(batch["t"]) async for batch in reader]
        await task
        return seen

    seen = asyncio.run(main())
    assert seen[-1] == 2
    assert seen == sorted(set(seen))


def test_memory_is_freed_with_the_last_user() -> None:
    gc.collect()
    before = descriptors()
    for _ in range(20):
        channel = zc.channel(SPEC)
        reader = channel.read()
        channel.put(item(1))
        batch = next(reader)
        channel.close()
        reader.close()
        del channel, reader
        assert (batch["image"] == 1).all()
        del batch
    gc.collect()
    assert descriptors() <= before


def descriptors() -> int:
    """Return how many descriptors of shared memory this process has."""
    links = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            links.append(os.readlink(f"/proc/self/fd/{name}"))
    return sum("memfd:zerocopy" in link for link in links)


def test_a_forked_child_reads_by_a_reader_of_its_own() -> None:
    channel = zc.channel(SPEC)
    reader = channel.read()
    channel.put(item(1))
    pid = os.fork()
    if not pid:
        try:
            next(reader)
        except ChannelClosedError:
            os._exit(0 if float(next(channel.read(timeout=60))["t"]) == 1 else 2)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert next(reader)["t"] == 1


@pytest.mark.parametrize("mode", ["queue", "latest"])
def test_killed_processes_never_block_the_others(mode: str) -> None:
    script = Path(__file__).with_name("kills.py")
    result = subprocess.run(
        [sys.executable, str(script), "--mode", mode, "--seed", "1", "--kills", "60"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr


def test_descriptors_that_the_program_closed_are_not_used(run_python) -> None:
    """Their numbers belong to other files, as in a program that becomes a daemon."""
    completed = run_python("""
        import gc, os, tempfile, zerocopy as zc
        reading = zc.channel({"x": ((), "f8")})
        reader = reading.read()
        writing = zc.channel({"x": ((), "f8")}, mode="latest")
        writing.put({"x": 1.0})
        held = writing.latest()

        def refused():
            for call in (lambda: writing.put({"x": 2.0}), lambda: writing.latest(timeout=1)):
                try:
                    call()
                except zc.errors.SharedMemoryError as error:
                    assert "the descriptor of the channel was closed by the program" in str(error)
                else:
                    raise AssertionError(call)

        os.closerange(3, 200)
        refused()
        files = [tempfile.TemporaryFile() for _ in range(60)]
        refused()
        del reader, reading, writing, held
        gc.collect()
        for file in files:
            os.fstat(file.fileno())
        inodes = [f":{os.fstat(file.fileno()).st_ino} " for file in files]
        assert not any(inode in open("/proc/locks").read() for inode in inodes)
    """)
    assert (completed.returncode, completed.stdout, completed.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("number", "dtype"),
    [
        (1e300, "f4"),
        (16_777_217, "f4"),
        (2**53 + 1, "f8"),
        (1e300, "c8"),
        (complex(float("inf"), 1e300), "c8"),
        pytest.param(2**2000, "f8", id="2**2000"),
        pytest.param(10**5000, "f8", id="10**5000"),
    ],
)
def test_a_number_that_a_field_would_change_is_refused(number, dtype: str) -> None:
    channel = zc.channel({"x": ((), dtype)}, mode="latest")
    with pytest.raises(zc.LossyConversionError, match=r"put\(\): (float|complex)\d+ cannot hold"):
        channel.put({"x": number})
    for exact in (0.1, 2**70, float("inf"), float("nan"), True):
        channel.put({"x": exact})
        np.testing.assert_equal(channel.latest()["x"], np.asarray(exact, dtype))


def test_a_batch_that_another_thread_is_releasing_holds_no_slot(monkeypatch) -> None:
    channel = zc.channel(SPEC, slots=2)
    reader = channel.read(timeout=0.01)
    channel.put(item(0))
    channel.put(item(1))
    batches = [next(reader), next(reader)]

    def drop_after(*args, take=reader._try):
        result = take(*args)
        with reader._leases.lock:
            batches.clear()
        return result

    monkeypatch.setattr(reader, "_try", drop_after)
    with pytest.raises(ChannelTimeoutError, match="no item arrived"):
        next(reader)


def test_the_end_that_another_thread_reads_first_is_the_end_for_all(monkeypatch) -> None:
    channel = zc.channel(SPEC)
    reader = channel.read()
    channel.close()
    leases, lock = reader._leases, reader._leases.lock

    class OtherThreadFirst:
        def __enter__(self) -> None:
            leases.lock = lock
            assert next(reader, None) is None
            lock.acquire()

        def __exit__(self, *error: object) -> None:
            lock.release()

    monkeypatch.setattr(leases, "lock", OtherThreadFirst())
    assert next(reader, None) is None


def test_a_write_to_a_page_in_swap_is_a_page_fault(monkeypatch) -> None:
    from types import SimpleNamespace

    from zerocopy.channels import reader

    counts = [SimpleNamespace(ru_minflt=5, ru_majflt=0), SimpleNamespace(ru_minflt=5, ru_majflt=1)]
    monkeypatch.setattr(reader.resource, "getrusage", lambda who: counts.pop())
    assert reader._page_faults() != reader._page_faults()


def test_a_slot_takes_its_own_arrays_only() -> None:
    channel = zc.channel({"x": ((2,), "f4")})
    reader = channel.read(timeout=5)
    with channel.slot() as slot:
        slot["x"][...] = 1
        slot["x"] += 1
        changes = [lambda: slot.update(x=np.ones(2)), lambda: slot.update({"x": 1})]
        changes += [lambda: slot.__ior__({"x": 1}), lambda: slot.setdefault("y", 1), lambda: slot.pop("x")]
        for change in [*changes, lambda: slot.__delitem__("x"), slot.popitem, slot.clear]:
            with pytest.raises(zc.UnsupportedConversionError, match=r"slot\[.x.\]\[...\] = value|slot keeps"):
                change()
    assert next(reader)["x"].tolist() == [2, 2]


@pytest.mark.parametrize(
    "call",
    [
        lambda channel, huge: channel.put({"x": huge}),
        lambda channel, huge: channel.put({huge: 1}),
        lambda channel, huge: channel.put({"x": 1}, timeout=-huge),
        lambda channel, huge: channel.put({"x": 1}, timeout=huge),
        lambda channel, huge: zc.channel({"x": (huge, "f8")}),
        lambda channel, huge: zc.channel({huge: ((), "f8")}),
        lambda channel, huge: zc.channel({"x": ((), "f8")}, slots=huge),
        lambda channel, huge: zc.convert(np.ones(1), "numpy", max_length=huge),
    ],
)
def test_an_integer_without_a_text_gets_the_error_of_other_values(call: Callable[..., object]) -> None:
    with pytest.raises(zc.ZeroCopyError, match=r"an integer of 16610 bits|<(tuple|list|int)>"):
        call(zc.channel({"x": ((), "i4")}), 10**5000)


def test_memory_that_is_not_that_of_a_channel_is_refused() -> None:
    pa = pytest.importorskip("pyarrow")
    from zerocopy.channels.channel import _HEAD
    from zerocopy.shared.handle import Location, broker_number, host_id
    from zerocopy.shared.segment import Segment

    channel = zc.channel(pa.schema({"a": pa.int64()}), max_rows=2)
    channel._memory.bytes[_HEAD.size + 8 : _HEAD.size + 60] = 255
    segment = Segment(4096)
    place = Location(host_id(), os.getpid(), segment.fd, segment.inode, 0, 0, broker_number())
    for handle in (channel.handle, "zerocopy-channel:" + base64.urlsafe_b64encode(place.pack()).decode()):
        with pytest.raises(
            HandleFormatError, match=r"channel\(\): the memory of the handle is not a channel"
        ):
            zc.channel(handle)


def test_options_that_are_equal_and_differ_in_type_have_readers_of_their_own() -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"a": pa.array([1, None])})
    channel = zc.channel(table.schema, max_rows=2, mode="latest")
    channel.put(table)
    assert channel.latest(np, nulls=0)["a"].tolist() == [1, 0]
    with pytest.raises(zc.LossyConversionError, match="cannot hold False"):
        channel.latest(np, nulls=False)


def test_a_reader_that_locks_its_memory_is_refused(run_python) -> None:
    """With MCL_FUTURE it had private copies of all pages: each item was the first one."""
    completed = run_python("""
        import ctypes, zerocopy as zc
        channel = zc.channel({"x": ((), "f8")})
        if ctypes.CDLL(None).mlockall(2) == 0:
            try:
                channel.read()
            except zc.errors.SharedMemoryError as error:
                assert "mlockall" in str(error), error
            else:
                raise AssertionError
    """)
    assert completed.returncode == 0, completed.stderr


@pytest.mark.parametrize("mode", ["queue", "latest"])
def test_a_reader_whose_memory_is_locked_later_is_closed(run_python, mode: str) -> None:
    """It returned the first item again and again, after munlockall too."""
    completed = run_python(f"""
        import ctypes, numpy as np, zerocopy as zc
        channel = zc.channel({{"x": ((4096,), "f8")}}, mode={mode!r})
        reader = channel.read(np, timeout=9)
        channel.put({{"x": np.ones(4096)}})
        assert next(reader)["x"][0] == 1
        libc = ctypes.CDLL(None)
        if libc.mlockall(1) == 0:
            channel.put({{"x": np.zeros(4096)}})
            for unlock, text in ((False, "mlockall"), (True, "the reader was closed")):
                if unlock:
                    libc.munlockall()
                try:
                    next(reader)
                except zc.ZeroCopyError as error:
                    assert text in str(error), error
                else:
                    raise AssertionError
            if {mode!r} == "latest":
                assert next(channel.read(np, timeout=9))["x"][0] == 0
    """)
    assert completed.returncode == 0, completed.stderr
