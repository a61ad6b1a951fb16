"""A batch of rows by their numbers: `zc.dataset` and the map-style data sets of torch and Hugging Face.

Each contender makes the batch of a ``DataLoader`` of torch, which passes the numbers to the data set and the
rows to ``default_collate``; or it indexes the data set with all numbers.
"""

from __future__ import annotations

import atexit
import shutil
from collections.abc import Callable
from functools import partial
from tempfile import mkdtemp
from typing import Any

import numpy as np

import zerocopy as zc
from benchmarks.contest import Contest, Method, installed, refusal
from benchmarks.goals import Promise, judge, labelled, ratio
from benchmarks.suite import Case, Section, Settings, Suite, Task

ROWS, COLUMNS, BATCH = 200_000, 8, 1024

TENSORS = "collate([tensors[k] for k in rows])"
FORMATTED = "torch_rows[rows]"
_OURS = Method("collate(data.__getitems__(rows))", "ours")
_OF_DATASETS = (
    _OURS,
    Method("zc_rows[rows]", "reference", 'with_format("zerocopy", to="torch")'),
    Method("numpy_rows[rows]", "library", 'with_format("numpy")'),
    Method(FORMATTED, "library", 'with_format("torch")'),
    Method("collate(torch_rows.__getitems__(rows))", "library", "in a DataLoader"),
)


def columns() -> dict[str, Any]:
    """Return the columns of the rows."""
    numbers = np.random.default_rng(0)
    return {f"c{place}": numbers.random(ROWS, np.float32) for place in range(COLUMNS)}


def _table(chunk: int) -> dict[str, Any]:
    """Return a data set of an Arrow table in chunks of some rows, and the TensorDataset of it."""
    import pyarrow as pa
    import torch

    arrays = columns()
    table = pa.table(arrays)
    table = pa.concat_tables([table.slice(start, chunk) for start in range(0, ROWS, chunk)])
    tensors = torch.utils.data.TensorDataset(*map(torch.from_numpy, arrays.values()))
    return {"data": zc.dataset(table, "torch"), "tensors": tensors}


def _datasets(is_on_disk: bool) -> dict[str, Any]:
    """Return a shuffled data set of Hugging Face in its formats; on disk it has chunks of 1,000 rows."""
    import datasets

    from zerocopy.integrations.datasets import install

    datasets.disable_progress_bars()
    rows = datasets.Dataset.from_dict(columns())
    if is_on_disk:
        folder = mkdtemp()
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        rows.save_to_disk(folder)
        rows = datasets.load_from_disk(folder)
    rows = rows.shuffle(seed=0)
    formats = {f"{name}_rows": rows.with_format(name) for name in ("torch", "numpy")}
    formats["zc_rows"] = rows.with_format(install(), to="torch")
    return {"data": zc.dataset(rows, "torch"), **formats}


_TENSOR_DATASET = Method(TENSORS, "library", "TensorDataset")
_CASES: dict[str, tuple[Callable[[], dict[str, Any]], tuple[Method, ...], tuple[str, ...]]] = {
    "Arrow table": (partial(_table, ROWS), (_OURS, _TENSOR_DATASET), ()),
    "Arrow table in chunks": (partial(_table, 1000), (_OURS, _TENSOR_DATASET), ()),
    "datasets, in memory": (partial(_datasets, False), _OF_DATASETS, ("datasets",)),
    "datasets, on disk": (partial(_datasets, True), _OF_DATASETS, ("datasets",)),
}


def tasks(settings: Settings) -> list[Task]:
    """Return a task for each source whose packages are installed."""
    if not settings.wants("torch"):
        return []
    able = [name for name, (*_, needs) in _CASES.items() if installed("torch", "pyarrow", *needs)]
    return [Task(name, partial(run, name, settings), 10.0) for name in able]


def run(name: str, settings: Settings) -> list[Case]:
    """Compare the batches, then time the contenders in turns."""
    import torch

    make, methods, _ = _CASES[name]
    rows = np.random.default_rng(1).permutation(ROWS)[:BATCH].tolist()
    names = {**make(), "rows": rows, "collate": torch.utils.data.default_collate}
    expected = methods[-1].statement(names).value()
    expected = list(expected.values()) if isinstance(expected, dict) else expected

    def wrong(method: Method) -> str:
        batch = method.statement(names).value()
        columns_of_batch = list(batch.values()) if isinstance(batch, dict) else batch
        equal = map(np.array_equal, map(np.asarray, columns_of_batch), map(np.asarray, expected))
        return "" if all(equal) and len(columns_of_batch) == COLUMNS else "gives other values"

    contest = Contest()
    case = contest.case(name)
    for method in methods:
        refused = refusal(partial(wrong, method))
        contest.add(case, method.code, method.role, method.statement(names), refused, method.note)
    return contest.time(settings.pace)


PROMISES = (
    Promise("a batch: 2x of TensorDataset at most", ratio(labelled(TENSORS)), 2.0),
    Promise('a batch: 0.05x of with_format("torch") at most', ratio(labelled(FORMATTED)), 0.05),
)

SUITE = Suite(
    "rows",
    "a batch of rows by their numbers: zc.dataset, torch's TensorDataset and Hugging Face datasets",
    (
        Section(
            "batches",
            f"{BATCH:,} of {ROWS:,} rows of {COLUMNS} float32 columns, in any order",
            tasks,
            "rivals",
            partial(judge, PROMISES),
        ),
    ),
    frameworks=("torch",),
    distributions=("numpy", "torch", "pyarrow", "datasets"),
)
