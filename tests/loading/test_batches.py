"""Each row is delivered once, with its columns aligned, in the order of a slow reference."""

from __future__ import annotations

import datetime
import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers.frameworks import HOST
from helpers.loader_cases import Groups, Tables, expected_batches, ids, loader_of
from helpers.tiers import sampled
from hypothesis import given, settings, strategies as st

import zerocopy as zc
from zerocopy.errors import ReadError

#: Options of each way in which batches are assembled.
WAYS: dict[str, dict[str, Any]] = {
    "columns": {},
    "matrix": {"layout": "matrix", "dtype": "float64"},
    "table": {"to": "pyarrow"},
}


def window_of(loader: Any) -> int:
    return int(loader.state_dict()["window"])


SHUFFLES = [False, None, True, 1, 5, "full"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_small_cases(way: str, shuffle: Any) -> None:
    """All mixes of groups, batches, shards and ``drop_last``, against the reference."""
    all_sizes = [[], [0], [1], [3, 0, 4], [0, 0, 5, 1, 0], [2, 2, 2, 2], [9]]
    first = [*WAYS].index(way) + SHUFFLES.index(shuffle)
    for sizes, batch, world, drop_last in sampled(3, all_sizes, (1, 3), (1, 3), (False, True), first=first):
        for rank in range(world):
            source = Groups(sizes)
            options = {"shuffle": shuffle, "drop_last": drop_last, "seed": 5} | WAYS[way]
            loader = loader_of(source, batch_size=batch, rank=rank, world_size=world, **options)
            for epoch in range(2):
                expected = expected_batches(
                    sizes, batch, window_of(loader), 5, epoch, (rank, world), drop_last
                )
                assert len(loader) == len(expected)
                assert [ids(batch) for batch in loader] == expected, (sizes, batch, world, rank)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 9), max_size=7),
    st.integers(1, 9),
    st.one_of(st.sampled_from([False, True, "full"]), st.integers(1, 30)),
    st.sampled_from(list(WAYS)),
    st.booleans(),
    st.integers(0, 3),
    st.sets(st.integers(0, 6)),
)
def test_any_case(
    sizes: Any, batch: int, shuffle: Any, way: str, drop_last: bool, rank: int, broken: Any
) -> None:
    """With groups that cannot be read and are skipped, too: no other batch changes."""
    options = {"shuffle": shuffle, "rank": rank, "world_size": 4, "drop_last": drop_last, "on_error": "skip"}
    loader = loader_of(Groups(sizes, tuple(broken)), batch_size=batch, **(options | WAYS[way]))
    expected = expected_batches(sizes, batch, window_of(loader), 0, 0, (rank, 4), drop_last, tuple(broken))
    assert [ids(batch) for batch in loader] == expected


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 9), max_size=7),
    st.integers(1, 9),
    st.one_of(st.sampled_from([False, True]), st.integers(1, 30)),
    st.sampled_from(list(WAYS)),
    st.booleans(),
)
def test_streams(sizes: Any, batch: int, shuffle: Any, way: str, drop_last: bool) -> None:
    """A stream delivers each row once; unshuffled in its order."""
    options = {"shuffle": shuffle, "drop_last": drop_last} | WAYS[way]
    loader = loader_of(Tables(sizes), batch_size=batch, **options)
    batches = [ids(batch) for batch in loader]
    rows, total = list(itertools.chain(*batches)), sum(sizes)
    kept = total - total % batch if drop_last else total
    assert len(rows) == kept
    assert len(set(rows)) == kept
    assert all(len(part) == batch for part in batches[: kept // batch])
    if not shuffle:
        assert rows == list(range(kept))


def test_streams_refuse_options_that_need_their_length() -> None:
    cases = {"stream-shard": {"rank": 0, "world_size": 2}, "stream-shuffle": {"shuffle": "full"}}
    for code, options in cases.items():
        with pytest.raises(zc.ZeroCopyError) as caught:
            loader_of(Tables([3]), batch_size=2, **options)
        assert caught.value.code == code
        assert isinstance(caught.value, ValueError)


def test_windows_of_all_shards_have_one_size() -> None:
    for k in range(3):
        assert window_of(loader_of(Groups([10]), batch_size=1, shuffle="full", rank=k, world_size=3)) == 4


def test_broken_group_is_read_once_in_an_epoch() -> None:
    """Several windows have rows of the group."""
    source = Groups([5, 20, 5], broken=[1])
    loader = loader_of(source, batch_size=2, shuffle=4, on_error="skip")
    list(loader)
    assert source.reads.count(1) == 1
    assert len(loader._counters.skipped) == 1


def test_group_with_other_rows_is_refused() -> None:
    """A file that has changed has fewer rows than its row of the window."""
    for shuffle in (False, True):
        source = Groups([4, 4])
        loader = loader_of(source, batch_size=2, shuffle=shuffle)
        source.starts[2] = 7
        with pytest.raises(ReadError) as caught:
            list(loader)
        assert caught.value.code == "changed-file"


# -- a batch is the conversion of its rows -----------------------------------------------------

ROWS = 23
NUMBERS = np.arange(ROWS)


def table_of_all_types() -> pa.Table:
    days = [datetime.date(2020, 1, 1) + datetime.timedelta(days=int(k)) for k in NUMBERS]
    columns: dict[str, Any] = {"id": pa.array(NUMBERS)}
    for name in ("int8", "int16", "int32", "uint8", "uint16", "uint32", "uint64", "float16", "float32"):
        columns[name] = pa.array(NUMBERS.astype(name))
    columns["bool"] = pa.array(NUMBERS % 2 == 0)
    columns["lists"] = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(ROWS * 3.0)), 3)
    columns["us"] = pa.array(NUMBERS.astype("M8[us]"))
    columns["day"] = pa.array(days)
    columns["duration"] = pa.array(NUMBERS.astype("m8[s]"))
    columns["word"] = pa.array([f"word {k % 3}" for k in NUMBERS]).dictionary_encode()
    return pa.table(columns)


PLAIN = ["id", "int8", "uint16", "float16", "float32", "bool", "lists"]


def leaves(batch: Any) -> Any:
    """Return a batch as plain Python objects, with the types of its parts."""
    if isinstance(batch, dict):
        return {name: leaves(part) for name, part in batch.items()}
    if isinstance(batch, zc.Masked):
        return ("Masked", leaves(batch.values), leaves(batch.mask))
    if isinstance(batch, zc.Encoded):
        kind = (batch.type, batch.unit, batch.timezone, batch.ordered)
        return ("Encoded", kind, leaves(batch.values), batch.offsets is None, batch.categories is None)
    if hasattr(batch, "to_pylist"):
        return (type(batch), batch.to_pylist())
    if hasattr(batch, "to_dict"):
        return (type(batch), str(batch.to_dict()))
    array = zc.convert(batch, "numpy")
    return (type(batch), str(batch.dtype), array.shape, str(array.tolist()))  # NaN is not equal to NaN


@pytest.mark.parametrize("shuffle", [False, 6])
@pytest.mark.parametrize(
    "to", sorted({"numpy", "torch", "jax", "tensorflow", "pyarrow", "polars", "pandas"} & set(HOST))
)
def test_batch_equals_conversion_of_its_rows(to: str, shuffle: Any) -> None:
    is_table = to in ("pyarrow", "polars", "pandas")
    with_nulls = pa.array([None if k % 5 == 0 else float(k) for k in NUMBERS])
    table = table_of_all_types()
    cases: list[tuple[pa.Table, dict[str, Any]]] = [
        (table.select(PLAIN), {}),
        (table.select(PLAIN[:3]), {"dtype": "float64"} if not is_table else {}),
        (table if to == "pyarrow" else table.select(PLAIN), {}),
    ]
    if not is_table:
        cases[2:] = [
            (table.select(["id", "us", "day", "duration", "word"]), {"encode": True}),
            (table.select(["id"]).append_column("n", with_nulls), {"nulls": "mask"}),
            (table.select(["id"]).append_column("n", with_nulls), {"nulls": "nan"}),
            (table.select(["id"]).append_column("n", with_nulls), {"nulls": -1.0}),
            (table.select(["id"]).append_column("n", with_nulls), {"nulls": {"n": 7.0}}),
            (table.select(["id", "int8"]), {"layout": "matrix", "dtype": "float32"}),
        ]
    for rows, options in cases:
        seen = []
        for batch in zc.loader(rows, to=to, batch_size=4, shuffle=shuffle, **options):
            host = zc.convert(batch, "numpy")[:, 0] if "layout" in options else batch["id"]
            numbers = np.asarray(host.values if isinstance(host, zc.Masked) else host).astype(int)
            seen += numbers.tolist()
            direct = zc.convert(rows.take(numbers).combine_chunks(), to, **options)
            assert leaves(batch) == leaves(direct), options
        assert sorted(seen) == list(range(ROWS))


@pytest.mark.parametrize("shuffle", [False, 6])
def test_text_and_lists_are_taken_from_tables(shuffle: Any) -> None:
    """Columns whose rows differ in bytes: text and lists, as numbers and offsets."""
    table = pa.table(
        {
            "id": NUMBERS,
            "text": [f"row {k}" * (k % 3) for k in NUMBERS],
            "lists": [list(range(k % 4)) for k in NUMBERS],
        }
    )
    seen = []
    for batch in zc.loader(table, to="numpy", batch_size=4, shuffle=shuffle, encode=True):
        numbers = batch["id"].tolist()
        seen += numbers
        assert batch["text"].to_pylist() == [f"row {k}" * (k % 3) for k in numbers]
        assert [list(row) for row in batch["lists"].to_pylist()] == [list(range(k % 4)) for k in numbers]
    assert sorted(seen) == list(range(ROWS))


@pytest.mark.parametrize("shuffle", [False, 6])
@pytest.mark.parametrize("to", ["pandas", "pyarrow", "polars"])
def test_arrays_to_tables(to: str, shuffle: Any) -> None:
    """A dict of arrays to a table framework has no template."""
    batches = list(zc.loader({"id": NUMBERS, "x": NUMBERS / 2}, to=to, batch_size=4, shuffle=shuffle))
    numbers = np.concatenate([np.asarray(batch["id"]) for batch in batches])
    assert sorted(numbers.tolist()) == list(range(ROWS))
    assert np.concatenate([np.asarray(batch["x"]) for batch in batches]).tolist() == (numbers / 2).tolist()
    assert [len(batch["id"]) for batch in batches] == [4, 4, 4, 4, 4, 3]
