"""``loader.explain()`` is compared with the addresses of the batches."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zerocopy as zc
from zerocopy.protocols.array_interface import aligned_empty

TENSORS = ["numpy", "torch", "jax", "tensorflow"]


@pytest.fixture(autouse=True)
def _small_groups(monkeypatch):
    """Read each row group on its own."""
    monkeypatch.setattr("zerocopy.loading.sources.columnar._LEAST_ROWS", 1)


def column_of(batch, name):
    """Return the values of a column of a batch in any framework."""
    column = batch[name]
    return column.values if isinstance(column, zc.Masked) else column


def shares(table, batch, name):
    return zc.shares_memory(table.select([name]), column_of(batch, name))


def arrow_table(rows=256):
    return pa.table(
        {
            "f": pa.array(range(rows), pa.float32()),  # in Arrow's memory, which is aligned
            "i": pa.array(range(rows), pa.int32()),
            "b": pa.array(np.arange(rows) % 2 == 0),
        }
    )


@pytest.mark.parametrize("to", [*TENSORS, "pandas", "polars", "pyarrow"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_aliased_columns_are_those_that_share_memory(to, shuffle):
    pytest.importorskip(to)
    table = arrow_table()
    loader = zc.loader(table, to, batch_size=64, shuffle=shuffle)
    plan = loader.explain()
    assert list(plan.columns) == table.column_names
    for batch in loader:
        for name, column in plan.columns.items():
            assert column.aliased is shares(table, batch, name), name
    if shuffle:
        assert not any(column.aliased for column in plan.columns.values())


@pytest.mark.parametrize("to", ["numpy", "torch"])
@pytest.mark.parametrize("nulls", [None, "mask", 0])
def test_copied_bytes_are_those_of_arrays_without_shared_memory(to, nulls):
    table = arrow_table().append_column("n", pa.array([None, 1.5] * 128))
    table = table if nulls is not None else table.drop_columns("n")
    loader = zc.loader(table, to, batch_size=64, nulls=nulls, dtype={"i": "int64"})
    plan = loader.explain()
    batch = next(iter(loader))
    for name, column in plan.columns.items():
        parts = batch[name] if nulls == "mask" else [batch[name]]
        fresh = [part for part in parts if not zc.shares_memory(table, part)]
        assert column.copied_bytes == sum(np.asarray(part).nbytes for part in fresh), name
        assert column.nbytes == sum(np.asarray(part).nbytes for part in parts), name
    assert plan.copied_bytes == sum(column.copied_bytes for column in plan.columns.values())
    assert plan.copies == {"conversion of columns": plan.copied_bytes}


@pytest.mark.parametrize("batch", [10, 16, 33])
@pytest.mark.parametrize("start", [0, 1, 16])
@pytest.mark.parametrize("ranks", [{}, {"rank": 1, "world_size": 3}])
def test_an_alias_that_depends_on_the_address_is_that_of_the_first_batch(batch, start, ranks):
    pytest.importorskip("jax")
    table = pa.table({"f": aligned_empty((512 + start,), np.dtype(np.float32))[start:]})
    loader = zc.loader(table, "jax", batch_size=batch, **ranks)
    assert loader.explain().columns["f"].aliased is shares(table, next(iter(loader)), "f")


@pytest.mark.parametrize("arrays", [False, True])
def test_a_first_batch_of_several_groups_is_copied(arrays, monkeypatch):
    monkeypatch.setattr("zerocopy.loading.sources.memory.GROUP_ROWS", 16)
    table = arrow_table().select(["f"])
    source = {"f": table["f"].to_numpy()} if arrays else table
    loader = zc.loader(source, "numpy", batch_size=24)
    assert not shares(table, next(iter(loader)), "f")
    assert not loader.explain().columns["f"].aliased
    assert loader.explain().joined == 10


@pytest.mark.parametrize("to", TENSORS)
def test_a_shuffled_matrix_is_copied_once(to):
    pytest.importorskip(to)
    table = arrow_table().select(["f"]).append_column("g", pa.array(np.zeros(256, np.float32)))
    loader = zc.loader(table, to, batch_size=64, shuffle=True, layout="matrix")
    plan = loader.explain()
    assert plan.copies == {"rows to their places in a window": 64 * 8}
    batches = list(loader)
    addresses = [zc.view(batch).ptr for batch in batches]
    assert np.diff(addresses).tolist() == [64 * 8] * 3  # slices of one window
    assert loader.stats().buffers == 1


def test_unaligned_rows_of_a_window_are_copied_again():
    pytest.importorskip("jax")
    table = arrow_table().select(["f"])
    copies = [zc.loader(table, "jax", batch_size=b, layout="matrix").explain().copied_bytes for b in (16, 10)]
    assert copies == [64, 80]


def test_shuffled_columns_are_copied_twice():
    plan = zc.loader(arrow_table(), "torch", batch_size=64, shuffle=True).explain()
    assert plan.batch_bytes == 64 * 9
    assert plan.copies == {
        "conversion of columns": 64,
        "rows to their places in a window": 64 * 9,
        "rows of a window to columns": 64 * 9,
    }


def test_shuffled_tables_are_taken():
    table = arrow_table().select(["f"])
    plan = zc.loader(table, "polars", batch_size=64, shuffle=True).explain()
    assert plan.copies == {"rows of a window, by Table.take": 64 * 4}


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("ranks", [{}, {"rank": 1, "world_size": 3}])
def test_joined_batches_are_those_without_shared_memory(drop_last, ranks):
    parts = [arrow_table(rows).select(["f"]).combine_chunks() for rows in (100, 50, 7, 64, 35)]
    table = pa.concat_tables(parts)
    loader = zc.loader(table, "numpy", batch_size=32, drop_last=drop_last, **ranks)
    plan = loader.explain()
    batches = list(loader)
    assert plan.batches == len(batches) == len(loader)
    assert plan.joined == sum(not shares(table, batch, "f") for batch in batches)


def test_memory_is_not_exceeded():
    table = arrow_table(4096).select(["f"])
    loader = zc.loader(table, "numpy", batch_size=64, shuffle=512)
    for batch in loader:
        del batch
    assert loader.stats().buffers * 512 * 4 <= loader.explain().memory_bytes


def test_a_file_is_not_read_and_its_plan_is_that_of_its_rows(tmp_path, monkeypatch):
    path = str(tmp_path / "x.parquet")
    pq.write_table(arrow_table(), path, row_group_size=64)
    loader = zc.loader(path, "torch", batch_size=64)
    in_memory = zc.loader(arrow_table(), "torch", batch_size=64).explain()
    with monkeypatch.context() as patch:
        patch.setattr("zerocopy.loading.sources.columnar.ParquetFiles.read", None)
        plan = loader.explain()
    assert (plan.rows, plan.groups, plan.files, plan.batches) == (256, 4, 1, 4)
    assert {name: (c.aliased, c.copied_bytes) for name, c in plan.columns.items()} == {
        name: (c.aliased, c.copied_bytes) for name, c in in_memory.columns.items()
    }


EVERY_TYPE = pa.schema(
    {
        "bool": pa.bool_(), "half": pa.float16(), "date": pa.date32(), "time": pa.time64("us"),
        "stamp": pa.timestamp("ns", "UTC"), "decimal": pa.decimal128(9, 2), "binary": pa.binary(),
        "fixed": pa.binary(3), "list": pa.list_(pa.int8()), "large": pa.large_list(pa.string()),
        "tensor": pa.list_(pa.float32(), 4), "struct": pa.struct({"a": pa.int8(), "t": pa.string()}),
        "map": pa.map_(pa.string(), pa.int8()), "view": pa.string_view(), "text": pa.string(),
        "category": pa.dictionary(pa.int8(), pa.string()),
        "shaped": pa.fixed_shape_tensor(pa.float32(), (2, 2)),
    }
)  # fmt: skip


@pytest.mark.parametrize("name", EVERY_TYPE.names)
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("to", ["numpy", "pyarrow"])
def test_every_type_of_a_file_is_explained(name, shuffle, to, tmp_path):
    path = str(tmp_path / "x.parquet")
    pq.write_table(EVERY_TYPE.empty_table().select([name]), path)
    encode = True if to == "numpy" else None
    plan = zc.loader(path, to, batch_size=4, encode=encode, shuffle=shuffle).explain()
    assert list(plan.columns) == [name]
    assert str(plan)


@pytest.mark.parametrize("names", [["x.categories", "['a']", "a]b", "it's"]])
@pytest.mark.parametrize("nulls", [None, "mask"])
def test_any_name_is_explained(names, nulls):
    table = pa.table({name: np.arange(8.0) for name in names})
    loader = zc.loader(table, "numpy", batch_size=4, nulls=nulls)
    assert list(loader.explain().columns) == names
    assert all(column.aliased for column in loader.explain().columns.values())
    assert list(next(iter(loader))) == names


def test_the_text_fits_80_columns_and_has_reasons_and_fixes():
    table = arrow_table().append_column("city", pa.array(["Bern", "Oslo"] * 128))
    for options in ({}, {"shuffle": True}, {"shuffle": 128, "epochs": 2}, {"rank": 1, "world_size": 2}):
        text = str(zc.loader(table, "torch", batch_size=50, encode=True, **options).explain())
        assert max(map(len, text.splitlines())) <= 80
        assert "why: Arrow packs booleans into bits" in text
        assert "fix: x['b'].cast(pyarrow.bool8())" in text
    assert "batches   3 of 50 rows, 650 bytes each" in text


def test_text_in_codes_is_noted():
    table = pa.table({"city": ["Bern", "Oslo"], "x": [1.0, 2.0]})
    plan = zc.loader(table, "torch", batch_size=2, encode=True).explain()
    assert plan.columns["city"].aliased
    assert plan.columns["city"].nbytes == 8
    assert plan.notes == ("text is read as codes: city",)


def test_arrays_are_explained():
    arrays = {"x": np.arange(64.0), "y": np.arange(64, dtype=">i4")}
    loader = zc.loader(arrays, "torch", batch_size=16)
    plan = loader.explain()
    for batch in loader:
        for name in arrays:
            assert plan.columns[name].aliased is np.shares_memory(arrays[name], batch[name].numpy())
    assert plan.columns["y"].copied_bytes == 64
    assert plan.columns["y"].reasons


@pytest.mark.parametrize("to", ["numpy", "torch", "pandas"])
def test_a_source_without_rows_aliases_nothing(to, tmp_path):
    """A zero-size array shares no memory: ``convert`` reports the same."""
    pytest.importorskip(to)
    table = arrow_table(0)
    pq.write_table(table, tmp_path / "x.parquet")
    for source in (table, tmp_path / "x.parquet"):
        plan = zc.loader(source, to, batch_size=4).explain()
        assert [column.aliased for column in plan.columns.values()] == [False] * 3
        assert "no rows" in str(plan)
        assert "aliased" not in str(plan)
