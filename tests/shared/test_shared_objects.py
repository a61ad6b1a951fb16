"""``Shared``: pickles, copies, comparisons, closing, and handles that cannot be opened."""

from __future__ import annotations

import copy
import gc
import pickle
import struct
import weakref
import zlib
from typing import Any

import numpy as np
import pytest
from helpers.shared_memory import run_reader

import zerocopy as zc
from zerocopy.frames.header import VERSION
from zerocopy.shared import segment
from zerocopy.shared.blocks import large_blocks, slabs
from zerocopy.shared.handle import LOCATION_BYTES, VERSION as HANDLE_VERSION, parse
from zerocopy.shared.segment import read_figures

LARGE, SMALL = np.arange(100_000), np.arange(100)


def signed(data: bytes) -> bytes:
    """Return a handle's bytes with the checksum that belongs to them."""
    return data[:-4] + struct.pack("<I", zlib.crc32(data[:-4]))


@pytest.fixture(params=["large", "small"])
def array(request: pytest.FixtureRequest) -> np.ndarray:
    return LARGE if request.param == "large" else SMALL


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_pickle_protocol(array: np.ndarray, protocol: int) -> None:
    shared = zc.share(array)
    data = pickle.dumps(shared, protocol)
    assert len(data) <= 256 or protocol < 3  # those write bytes as text
    other = pickle.loads(data)
    assert (other, other.nbytes, other.copied_bytes) == (shared, array.nbytes, 0)
    assert np.array_equal(zc.convert(other, "numpy"), array)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy])
def test_a_copy_keeps_the_memory(array: np.ndarray, duplicate: Any) -> None:
    """It neither shares the lifetime with the first, nor takes it away."""
    shared = zc.share(array)
    other = duplicate(shared)
    shared.close()
    assert np.array_equal(zc.convert(other, "numpy"), array)
    again = zc.share(array)
    third = duplicate(again)
    third.close()
    assert np.array_equal(zc.convert(again, "numpy"), array)
    assert duplicate({"a": [other]})["a"][0] == other


def test_comparisons_and_hashes_last(array: np.ndarray) -> None:
    shared, same = zc.share(array), zc.share(array)
    other = zc.Shared.from_bytes(bytes(shared))
    assert shared == other
    assert hash(shared) == hash(other)
    assert shared != same
    assert shared != bytes(shared)
    known = {shared: 1}
    shared.close()
    assert known[shared] == known[other] == 1  # closing does not change the hash


def test_context_manager_closes(array: np.ndarray) -> None:
    with zc.share(array) as shared:
        data = bytes(shared)
        held = zc.convert(shared, "numpy")
    assert shared.closed
    assert repr(shared) == "<zerocopy.Shared closed>"
    shared.close()
    assert np.array_equal(held, array)
    for use in (bytes, pickle.dumps, copy.copy, lambda x: x.framework, lambda x: zc.convert(x, "numpy")):
        with pytest.raises(zc.errors.StaleHandleError):
            use(shared)
    assert "StaleHandleError" in run_reader(bytes.fromhex(data.hex())).stdout


def test_weak_references_end(array: np.ndarray) -> None:
    shared = zc.share(array)
    reference = weakref.ref(shared)
    assert reference() is shared
    del shared
    gc.collect()
    assert reference() is None


def test_dropping_both_frees_the_memory() -> None:
    large_blocks.trim()
    shared = zc.share(LARGE)
    result = zc.convert(shared, "numpy")
    del shared
    large_blocks.trim()
    assert large_blocks.idle_bytes == 0
    assert np.array_equal(result, LARGE)
    del result
    gc.collect()
    again = zc.share(LARGE)
    del again
    assert large_blocks.idle_bytes >= LARGE.nbytes


def test_small_blocks_are_used_again() -> None:
    for _ in range(3):
        kept = [zc.share(SMALL) for _ in range(100)]
        free = slabs.free_bytes
        kept.clear()
        assert slabs.free_bytes > free


# -- handles that cannot be opened ------------------------------------------------------------------


def outcome(data: bytes) -> zc.ZeroCopyError:
    with pytest.raises(zc.ZeroCopyError) as caught:
        zc.convert(zc.Shared.from_bytes(data), "numpy")
    return caught.value


def test_another_version() -> None:
    data = bytearray(bytes(zc.share(SMALL)))
    assert data[4] == HANDLE_VERSION
    data[4] += 1
    error = outcome(signed(bytes(data)))
    assert isinstance(error, zc.errors.HandleFormatError)
    assert isinstance(error, ValueError)
    assert f"version {HANDLE_VERSION + 1} " in str(error)
    assert f"version {HANDLE_VERSION}" in str(error)


def test_another_version_of_the_header() -> None:
    shared = zc.share(SMALL)
    handle = shared.handle
    header = handle.header[:2] + bytes([VERSION + 1]) + handle.header[3:]
    error = outcome(handle._replace(header=header).pack())
    assert error.code == "protocol-version"
    assert f"version {VERSION + 1}" in str(error)


def test_each_flipped_bit_is_detected(array: np.ndarray) -> None:
    data = bytes(zc.share(array))
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(zc.errors.HandleFormatError):
            zc.Shared.from_bytes(bytes(damaged))
    for length in range(len(data)):
        with pytest.raises(zc.errors.HandleFormatError):
            zc.Shared.from_bytes(data[:length])
    with pytest.raises(zc.errors.HandleFormatError):
        zc.Shared.from_bytes(data + b"\0")


def test_other_buffers_are_handles_and_other_types_are_not() -> None:
    shared = zc.share(SMALL)
    for data in (bytearray(bytes(shared)), memoryview(bytes(shared)), np.frombuffer(bytes(shared), "u1")):
        assert zc.Shared.from_bytes(data) == shared
    for other in (5, "text", None):
        with pytest.raises(TypeError):
            zc.Shared.from_bytes(other)  # type: ignore[arg-type]


def test_unknown_flags() -> None:
    handle = zc.share(SMALL).handle
    assert "flags" in str(outcome(handle._replace(flags=128).pack()))


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"pid": 4_000_000}, zc.errors.StaleHandleError),
        ({"pid": 0}, zc.errors.StaleHandleError),
        ({"pid": 0xFFFF_FFFF}, zc.errors.StaleHandleError),
        ({"fd": 0}, zc.errors.StaleHandleError),
        ({"fd": 0xFFFF_FFFF}, zc.errors.StaleHandleError),
        ({"inode": 1}, zc.errors.StaleHandleError),
        ({"generation": 7}, zc.errors.StaleHandleError),
        ({"start": 8}, zc.errors.StaleHandleError),
        ({"start": 1 << 50}, zc.errors.StaleHandleError),
        ({"start": (1 << 64) - 8}, zc.errors.StaleHandleError),
        ({"host": bytes(24)}, zc.errors.OtherHostError),
    ],
)
def test_other_locations(array: np.ndarray, change: dict[str, Any], error: type[Exception]) -> None:
    shared = zc.share(array)
    handle = shared.handle
    assert type(outcome(handle._replace(location=handle.location._replace(**change)).pack())) is error


@pytest.mark.parametrize(
    "change", [{"first": 1 << 40}, {"length": 1 << 40}, {"first": (1 << 64) - 1}, {"length": (1 << 64) - 1}]
)
def test_bytes_outside_of_the_segment(array: np.ndarray, change: dict[str, int]) -> None:
    shared = zc.share(array)
    assert isinstance(outcome(shared.handle._replace(**change).pack()), zc.errors.HandleFormatError)


def test_the_host_of_an_error() -> None:
    handle = zc.share(SMALL).handle
    machine = outcome(handle._replace(location=handle.location._replace(host=bytes(24))).pack())
    assert "another machine" in str(machine)
    assert "pickling.dumps" in machine.remedy
    host = handle.location.host[:16] + bytes(8)
    namespace = outcome(handle._replace(location=handle.location._replace(host=host)).pack())
    assert "another PID namespace" in str(namespace)
    assert "start_broker" in namespace.remedy


def test_repr_of_a_stale_table() -> None:
    pa = pytest.importorskip("pyarrow")
    shared = zc.share(pa.table({"a": [1]}))
    assert "pyarrow" in repr(shared)
    data = bytes(shared)
    shared.close()
    assert "stale" in repr(zc.Shared.from_bytes(data))


def test_a_handle_has_a_fixed_size() -> None:
    handle = parse(bytes(zc.share(LARGE)))
    assert handle.location == type(handle.location).unpack(handle.location.pack())
    assert len(handle.location.pack()) == LOCATION_BYTES


# -- objects that cannot be shared --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "code", "remedy"),
    [
        (None, "not-an-array", "pass an array"),
        ("text", "not-an-array", "pass an array"),
        (5, "not-an-array", "numpy.asarray(x)"),
        ({"a": SMALL}, "not-an-array", "{k: zc.share(v) for k, v in x.items()}"),
        ([SMALL, SMALL], "not-an-array", "[zc.share(v) for v in x]"),
        ((SMALL,), "not-an-array", "[zc.share(v) for v in x]"),
        (np.array([object()]), "python-objects", "cast"),
        (np.zeros(2, [("a", "O")]), "python-objects", "cast"),
    ],
)
def test_objects_without_memory(x: Any, code: str, remedy: str) -> None:
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.share(x)
    assert caught.value.code == code
    assert remedy in caught.value.remedy
    assert str(caught.value).startswith("share(")


def test_queries_are_read_first() -> None:
    duckdb, pl = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    relation, frame = duckdb.sql("select 1 as a"), pl.LazyFrame({"a": [1]})
    for query in (relation, frame):
        with pytest.raises(zc.UnsupportedConversionError) as caught:
            zc.share(query)
        assert "query" in str(caught.value)
    assert relation.fetchall() == [(1,)]  # not touched
    assert frame.collect()["a"].to_list() == [1]


def test_object_columns() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": [1, 2], "b": [object(), object()]})
    before = frame.copy()
    with pytest.raises(zc.UnsupportedConversionError):
        zc.share(frame)
    assert frame.equals(before)


def test_an_index_of_several_levels_is_not_one_column() -> None:
    pd = pytest.importorskip("pandas")
    index = pd.MultiIndex.from_product([["a", "b"], [1, 2]], names=["x", "y"])
    with pytest.raises(zc.UnsupportedConversionError, match=r"x\.to_frame\(index=False\)"):
        zc.share(index)
    frame = index.to_frame(index=False)
    assert zc.convert(zc.share(frame), to="pandas").equals(frame)


def test_a_stale_handle_is_refused_by_a_plan_too() -> None:
    shared = zc.share(LARGE)
    data = bytes(shared)
    shared.close()
    plan = zc.explain(zc.Shared.from_bytes(data), "numpy")
    assert not plan.possible
    assert isinstance(plan.error, zc.errors.StaleHandleError)
    assert isinstance(outcome(data), RuntimeError)
    with pytest.raises(zc.errors.StaleHandleError):
        zc.convert({"a": zc.Shared.from_bytes(data)}, "numpy")


def test_handles_are_counted_while_they_keep_memory() -> None:
    gc.collect()  # handles of other tests
    kept = [zc.share(np.arange(8.0)) for _ in range(300)]
    before = read_figures().handles
    for _ in range(1000):  # dropped ones do not accumulate
        zc.share(kept[0])
        zc.share(np.arange(8.0))
    assert read_figures().handles == before
    kept.pop().close()
    kept.pop()
    assert read_figures().handles == before - 2
    assert len(segment._handles) < before + 700
