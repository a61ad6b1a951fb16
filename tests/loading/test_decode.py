"""``engine="cudf"``: row groups that cuDF decodes, over stubs that present host memory as device memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import cuda_stubs, cudf_stubs

import zerocopy as zc

ROWS, BATCH = 1000, 64
TABLE = pa.table({"x": np.arange(ROWS, dtype=np.float32), "n": np.arange(ROWS, dtype=np.float32) * 2})


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    # Groups of one row group each, although they are small.
    monkeypatch.setattr("zerocopy.loading.sources.columnar._LEAST_ROWS", 1)
    yield cudf_stubs.install(monkeypatch)
    cuda_stubs.forget()


@pytest.fixture
def path(tmp_path: Path) -> str:
    half = ROWS // 2
    pq.write_table(TABLE[:half], tmp_path / "a.parquet", row_group_size=150)
    pq.write_table(TABLE[half:], tmp_path / "b.parquet", row_group_size=200)
    return str(tmp_path / "*.parquet")


def decoded(source: Any, **options: Any) -> Any:
    own = {"to": "cupy", "batch_size": BATCH, "device": "cuda:1", "engine": "cudf"}
    return zc.loader(source, **own | options)


def on_host(batch: Any) -> Any:
    return {k: zc.convert(v, "numpy") for k, v in batch.items()} if isinstance(batch, dict) else batch


def check(loader: Any, other: Any) -> None:
    assert len(loader) == len(other)
    for batch, right in zip(loader, other, strict=True):
        np.testing.assert_equal(on_host(batch), right)


PART = {"rank": 1, "world_size": 3}


@pytest.mark.parametrize(
    "options",
    [{}, {"columns": ["n"]}, PART, {"drop_last": True}, {"epochs": 2}, {"batch_size": 600}],
    ids=str,
)
def test_batches_are_those_of_the_host(machine: Any, path: str, options: dict[str, Any]) -> None:
    check(decoded(path, **options), zc.loader(path, to="numpy", **{"batch_size": BATCH} | options))
    reads = [entry for entry in machine.log if entry[0] == "read_parquet"]
    assert {entry[-1] for entry in reads} == {1}  # the device
    assert {tuple(entry[2]) for entry in reads} == {tuple(options.get("columns", ("x", "n")))}


def test_columns_alias_the_decoded_row_group(machine: Any, path: str) -> None:
    batches = iter(decoded(path, batch_size=50))
    first, second = next(batches), next(batches)
    assert second["x"].data.ptr - first["x"].data.ptr == 50 * 4
    assert not [entry for entry in machine.log if entry[0] == "fetch"]


def test_matrix(path: str) -> None:
    expected = zc.loader(path, "numpy", batch_size=BATCH, layout="matrix")
    for batch, right in zip(decoded(path, layout="matrix"), expected, strict=True):
        np.testing.assert_equal(zc.convert(batch, "numpy"), right)


def test_state_is_that_of_the_host(path: str) -> None:
    loader = decoded(path)
    batches = iter(loader)
    for _ in range(5):
        next(batches)
    state = loader.state_dict()
    rest = [on_host(batch) for batch in batches]
    for resumed in (decoded(path), zc.loader(path, to="numpy", batch_size=BATCH)):
        resumed.load_state_dict(state)
        assert len(resumed) == len(rest)
        for batch, right in zip(resumed, rest, strict=True):
            np.testing.assert_equal(on_host(batch), right)


def test_nulls(tmp_path: Path) -> None:
    file = str(tmp_path / "nulls.parquet")
    pq.write_table(pa.table({"x": pa.array([1, None, 3, None], pa.int32())}), file)
    values = [zc.convert(b["x"], "numpy").tolist() for b in decoded(file, batch_size=2, nulls=-1)]
    assert values == [[1, -1], [3, -1]]
    with pytest.raises(zc.ZeroCopyError, match="null"):
        list(decoded(file, batch_size=2))


@pytest.mark.parametrize("name", [None, "day"])
def test_an_index_of_pandas_is_a_column(tmp_path: Path, name: str | None) -> None:
    file = str(tmp_path / "frame.parquet")
    frame = TABLE.to_pandas().set_index(pd.Index(np.arange(ROWS)[::-1], name=name))
    frame.to_parquet(file)
    check(decoded(file), zc.loader(file, to="numpy", batch_size=BATCH))


def test_explain_and_stats(path: str) -> None:
    loader = decoded(path)
    plan = loader.explain()
    assert (plan.batch_bytes, plan.columns, plan.rows, plan.groups) == (-1, {}, ROWS, 7)
    assert "cudf decodes on the device" in str(plan)
    assert "bytes each" not in str(plan)
    list(loader)
    assert loader.stats().rows == ROWS


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"engine": "torch"}, "'cudf'"),
        ({"engine": "nothing"}, "'cudf'"),
        ({"engine": True}, "'cudf'"),
        ({"device": None}, "CUDA device"),
        ({"to": "numpy", "device": "cpu"}, "CUDA device"),
        ({"encode": True}, "encode="),
        ({"encode": {}}, "encode="),
        ({"shuffle": True}, "shuffle="),
        ({"on_error": "skip"}, "on_error="),
        ({"schema": {"x": "float32"}}, "schema="),
    ],
    ids=str,
)
def test_refused_options(path: str, options: dict[str, Any], why: str) -> None:
    with pytest.raises(zc.errors.OptionError, match=r"loader\(engine=") as caught:
        decoded(path, **options)
    assert why in caught.value.why
    assert caught.value.remedy


def test_other_sources_are_refused(tmp_path: Path) -> None:
    with pytest.raises(zc.errors.OptionError, match="local Parquet files"):
        decoded(TABLE)
    (tmp_path / "year=2024").mkdir()
    pq.write_table(TABLE, tmp_path / "year=2024" / "a.parquet")
    with pytest.raises(zc.errors.OptionError, match="local Parquet files"):
        decoded(str(tmp_path))
    assert len(list(decoded(str(tmp_path), columns=["x"], batch_size=ROWS))) == 1


def test_types_that_the_target_lacks_are_refused_before_reading(machine: Any, tmp_path: Path) -> None:
    file = str(tmp_path / "text.parquet")
    pq.write_table(pa.table({"name": ["a"]}), file)
    with pytest.raises(zc.UnsupportedConversionError, match="name"):
        decoded(file)
    assert machine.log == []


def test_faults_name_the_row_group(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import cudf  # type: ignore[import-not-found]

    def fail(*args: Any, **options: Any) -> Any:
        raise RuntimeError("corrupt page")

    loader = decoded(path)
    monkeypatch.setattr(cudf, "read_parquet", fail)
    with pytest.raises(zc.ZeroCopyError, match="cudf raised RuntimeError: corrupt page") as caught:
        list(loader)
    assert caught.value.row_group == 0
    os.utime(caught.value.file, (1, 1))
    with pytest.raises(zc.ZeroCopyError, match="has changed"):
        list(loader)
