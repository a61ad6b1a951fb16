"""Columns of lists in ``loader``: the first batch decides their length."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zerocopy as zc

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

VALUES = np.arange(300.0, dtype="f4").reshape(100, 3)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file as Spark and DuckDB write it: lists, whose length its schema does not name."""
    lists = pa.array(VALUES.tolist(), pa.list_(pa.float32()))
    pq.write_table(pa.table({"id": np.arange(100), "e": lists}), tmp_path / "e.parquet", row_group_size=30)
    return tmp_path / "e.parquet"


@pytest.mark.parametrize(
    "options", [{}, {"shuffle": True}, {"layout": "matrix"}, {"layout": "matrix", "shuffle": 64}]
)
@pytest.mark.parametrize("to", ["numpy", "torch"])
def test_batches_of_lists(file: Path, to: str, options: dict[str, Any]) -> None:
    pytest.importorskip(to)
    columns = ["e"] if "layout" in options else None
    rows = []
    for batch in zc.loader(file, to=to, batch=16, columns=columns, **options):
        part = zc.convert(batch if "layout" in options else batch["e"], "numpy")
        if "layout" not in options:
            assert (part == VALUES[zc.convert(batch["id"], "numpy")]).all()
        rows.append(part.copy())
    made = np.concatenate(rows)
    assert np.array_equal(made[np.argsort(made[:, 0])], VALUES)


def test_a_batch_with_another_length_is_refused() -> None:
    table = pa.table({"e": [[1.0, 2.0]] * 4 + [[1.0, 2.0, 3.0]] * 4})
    batches = iter(zc.loader(table, to="numpy", batch=4))
    assert next(batches)["e"].shape == (4, 2)
    with pytest.raises(
        zc.UnsupportedConversionError, match=r"shape \(3,\), and those of the first \(2,\)"
    ) as caught:
        next(batches)
    assert caught.value.asked.startswith("loader(")
    with pytest.raises(zc.UnsupportedConversionError, match="different lengths") as caught:
        list(zc.loader(table, to="numpy", batch=6))
    assert caught.value.asked.startswith("loader(")
    assert 'zc.loader(source, "numpy", lists="pad", batch=6)' in caught.value.calls


def test_padded_batches_have_the_length_of_their_longest_list() -> None:
    table = pa.table({"e": [[1], [1, 2], [1, 2, 3], [4]]})
    shapes = [batch["e"].shape for batch in zc.loader(table, to="numpy", batch=2, lists="pad")]
    assert shapes == [(2, 2), (2, 3)]
    shapes = [b["e"].shape for b in zc.loader(table, to="numpy", batch=2, lists="pad", max_length=2, pad=9)]
    assert shapes == [(2, 2), (2, 2)]


def test_invalid_lists_option() -> None:
    with pytest.raises(zc.LoaderOptionError, match="lists"):
        zc.loader({"x": np.arange(3)}, to="numpy", lists="dens")
