"""Hugging Face datasets by the format "zerocopy", and by ``zc.dataset``."""

from __future__ import annotations

import datetime
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zerocopy as zc
from zerocopy._frameworks.datasets import PRIVATE
from zerocopy.integrations import datasets as integration

datasets = pytest.importorskip("datasets")
torch = pytest.importorskip("torch")
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, default_collate  # noqa: E402

VALUES = {
    "i1": [1, -2, 3, 4],
    "u2": [1, 2, 65535, 4],
    "i8": [1 << 60, 2, -3, 4],
    "f2": [0.5, 1.5, -2, 4],
    "f4": [0.25, 1.5, -2, 4],
    "f8": [0.1, 1.5, -2, 4],
    "flag": [True, False, False, True],
    "label": [0, 2, 1, 0],
    "fixed": [[1, 2], [3, 4], [5, 6], [7, 8]],
    "equal": [[1.5, 2], [3, 4], [5, 6], [7, 8]],
    "array": (np.arange(24).reshape(4, 2, 3) / 2).tolist(),
}
TEXT = {"text": ["a", "\u00fc", "", "d"], "bytes": [b"a", b"\xff", b"", b"d"]}
FEATURES = {
    **{name: datasets.Value(kind) for name, kind in (
        ("i1", "int8"), ("u2", "uint16"), ("i8", "int64"), ("f2", "float16"), ("f4", "float32"),
        ("f8", "float64"), ("flag", "bool"), ("text", "string"), ("bytes", "binary"),
    )},
    "label": datasets.ClassLabel(names=["no", "yes", "maybe"]),
    "fixed": datasets.Sequence(datasets.Value("int32"), length=2),
    "equal": datasets.Sequence(datasets.Value("float32")),
    "array": datasets.Array2D((2, 3), "float32"),
}  # fmt: skip
ORDERS = {
    "in order": lambda data: data,
    "selected": lambda data: data.select([3, 0, 2]),
    "shuffled": lambda data: data.shuffle(seed=1),
    "of a range": lambda data: data.select(range(1, 4)),
}


@pytest.fixture(autouse=True)
def installed():
    datasets.disable_progress_bars()
    integration.install()
    yield
    integration.uninstall()


def made(names: Any = (*VALUES, *TEXT)) -> Any:
    columns = {name: {**VALUES, **TEXT}[name] for name in names}
    return datasets.Dataset.from_dict(
        columns, features=datasets.Features({name: FEATURES[name] for name in names})
    )


def as_lists(rows: Any) -> dict[str, Any]:
    return {name: part.tolist() if hasattr(part, "tolist") else part for name, part in rows.items()}


@pytest.mark.parametrize("to", ["torch", "numpy"])
@pytest.mark.parametrize("order", ORDERS)
def test_rows_of_all_features(order: str, to: str) -> None:
    data = ORDERS[order](made())
    expected, ours = data.with_format(None), data.with_format("zerocopy", to=to)
    for index in (0, -1, slice(0, 2), [2, 0, 0], range(2)):
        assert as_lists(ours[index]) == expected[index]
    for name in data.column_names:
        assert as_lists({"": ours[name][:]}) == {"": expected[name][:]}
    assert ours[:]["label"].dtype == (torch.int64 if to == "torch" else np.int64)
    assert str(ours[:]["i1"].dtype).endswith("int8")


@pytest.mark.parametrize("order", ORDERS)
def test_rows_of_a_data_set(order: str, tmp_path: Path) -> None:
    data = ORDERS[order](made(tuple(VALUES)))
    data.save_to_disk(tmp_path, num_shards=2)
    for each in (data, datasets.load_from_disk(tmp_path)):
        ours = zc.dataset(each, "torch")
        for index in (0, -1, slice(0, 2), [2, 0, 0]):
            assert as_lists(ours[index]) == data[index]
        chosen = zc.dataset(each, "torch", columns=["label", "f8"])
        assert as_lists(chosen[[1, 0]]) == data.select_columns(["label", "f8"])[[1, 0]]


def test_dates_times_nulls_and_lists_of_other_lengths() -> None:
    day, noon = datetime.date(2024, 2, 29), datetime.datetime(2024, 2, 29, 12)
    columns = {"d": [day, None], "t": [noon, noon], "x": [None, 1.5], "r": [[1], [2, 3]]}
    kinds = {
        "d": datasets.Value("date32"),
        "t": datasets.Value("timestamp[s]"),
        "x": datasets.Value("float32"),
    }
    features = datasets.Features({**kinds, "r": datasets.Sequence(datasets.Value("int64"))})
    data = datasets.Dataset.from_dict(columns, features=features)
    options: dict[str, Any] = {"encode": True, "nulls": "mask", "lists": "pad"}
    for rows in (data.with_format("zerocopy", to="torch", **options), zc.dataset(data, "torch", **options)):
        batch = rows[[1, 0]]
        assert batch["d"].to_pylist() == [None, (day - datetime.date(1970, 1, 1)).days]
        assert batch["t"].to_pylist() == [int(noon.replace(tzinfo=datetime.UTC).timestamp())] * 2
        assert batch["x"].to_pylist() == [1.5, None]
        assert bool(rows[0]["x"].mask)
    padded = data.with_format("zerocopy", columns=["r"], to="torch", lists="pad", pad_value=-1)[:]["r"]
    assert padded.tolist() == [[1, -1], [2, 3]]
    ragged = data.with_format("zerocopy", columns=["r"], to="torch", lists="ragged")[:]["r"]
    assert ragged.to_pylist() == [[1], [2, 3]]
    with pytest.raises(zc.LossyConversionError, match="null"):
        data.with_format("zerocopy", columns=["x"], to="torch")[:]


def test_images_are_refused_with_what_to_do() -> None:
    image = pytest.importorskip("PIL.Image").new("RGB", (2, 2))
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    data = datasets.Dataset.from_dict({"image": [image], "label": [3]}, features=features)
    for read in (lambda: data.with_format("zerocopy", to="torch")[0], lambda: zc.dataset(data, "torch")):
        with pytest.raises(zc.UnsupportedConversionError, match="'image' is struct<bytes: binary, path"):
            read()
    assert data.with_format("zerocopy", columns=["label"], to="torch")[0] == {"label": 3}
    decoded = data.map(lambda row: {"image": np.asarray(row["image"])}, features=datasets.Features(
        {"image": datasets.Array3D((2, 2, 3), "uint8"), "label": datasets.Value("int64")}
    ))  # fmt: skip
    assert zc.dataset(decoded, "torch")[:]["image"].shape == (1, 2, 2, 3)


@pytest.mark.parametrize("options", [
    {"to": "pandas"}, {"to": "polars"}, {"to": "pyarrow"}, {"to": "pyarrow.Table"}, {"to": "duckdb"},
    {"to": "xarray"}, {"to": "torch", "layout": "matrix"}, {"to": "numpy", "layout": "records"},
    {"to": "torch", "nulls": "drop"}, {"to": "torch", "nulls": {"f4": "drop"}},
], ids=str)  # fmt: skip
def test_results_without_a_tensor_for_each_column_are_refused(options: dict[str, Any]) -> None:
    data = made(["f4", "text"])
    with pytest.raises(zc.errors.OptionError, match="dict of tensors by column") as caught:
        data.with_format("zerocopy", **options)
    change, call = re.fullmatch(r"pass (.*); or use (.*)", caught.value.remedy).groups()  # type: ignore[union-attr]
    rows = data.with_format("zerocopy", **options | eval(f"dict({change})"))[:2]
    assert list(rows) == ["f4", "text"]
    numbers = data.select_columns(["f4"])
    if options["to"] not in ("duckdb", "xarray"):  # which are not installed here
        assert eval(call, {"zc": zc, "data": numbers}) is not None


def test_batches_are_memory_of_their_own(tmp_path: Path) -> None:
    made(["f4", "fixed"]).save_to_disk(tmp_path)
    for data in (datasets.load_from_disk(tmp_path), made(["f4", "fixed"])):
        batch = data.with_format("zerocopy", to=torch.zeros(1))[0:2]
        batch["f4"] -= 1  # ended the process: the pages of the file are read-only
        batch["fixed"] += 1
        assert data[0:2] == {"f4": VALUES["f4"][:2], "fixed": VALUES["fixed"][:2]}
        aliases = data.with_format("zerocopy", to="numpy", copy=False)[:]
        assert zc.shares_memory(aliases["f4"], data.data.table["f4"])
        assert not aliases["f4"].flags.writeable


def test_columns_have_the_order_of_the_table() -> None:
    data = made(["text", "f4", "bytes", "i1"]).with_format("zerocopy", to="torch")
    assert [*data[:]] == [*data[0]] == ["text", "f4", "bytes", "i1"]
    chosen = data.with_format("zerocopy", columns=["i1", "text"], to="torch")
    assert [*chosen[:]] == [*chosen.with_format("arrow", columns=["i1", "text"])[:].column_names]


def test_streams_are_refused() -> None:
    stream = made(["f4"]).to_iterable_dataset()
    with pytest.raises(zc.errors.OptionError, match=re.escape('zc.loader(data, to="torch")')):
        next(iter(stream.with_format("zerocopy")))
    with pytest.raises(zc.UnsupportedConversionError, match=r"zc\.loader\(source, \.\.\.\)"):
        zc.dataset(stream, "torch")


def test_the_format_is_installed_and_removed() -> None:
    data = made(["f4"]).with_format("zerocopy", to="torch")
    pickled = pickle.dumps(data)
    assert integration.install() == "zerocopy"
    integration.uninstall()
    integration.uninstall()
    with pytest.raises(ValueError, match="Format type should be one of"):
        data[0]
    assert pickle.loads(pickled)[0]["f4"] == 0.25  # as in a worker, which installs it
    assert data[0]["f4"] == 0.25


def test_other_versions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "__version__", "6.0.0")
    monkeypatch.setattr(PRIVATE, "known", None)
    with pytest.raises(zc.UnsupportedConversionError, match=r"zc\.dataset\(data"):
        integration.install()
    monkeypatch.undo()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers(method: str) -> None:
    data = made(tuple(VALUES)).shuffle(seed=0)
    expected = [as_lists(default_collate([*rows])) for rows in (data.select([0, 1]), data.select([2, 3]))]
    options: dict[str, Any] = {"num_workers": 2 if method == "fork" else 1, "multiprocessing_context": method}
    formatted = data.with_format("zerocopy", to="torch")
    sampler = BatchSampler(range(4), 2, drop_last=False)  # type: ignore[arg-type]
    loaders = [
        DataLoader(zc.dataset(data, "torch"), batch_size=2, **options),
        DataLoader(formatted, sampler=sampler, batch_size=None, **options),
    ]
    for loader in loaders:
        batches = [as_lists(batch) for batch in loader]
        assert [batch["label"] for batch in batches] == [batch["label"] for batch in expected]
        assert [sorted(batch) for batch in batches] == [sorted(VALUES)] * 2


def test_a_shuffled_epoch_has_each_row_once() -> None:
    data = datasets.Dataset.from_dict({"x": range(100)})
    sampler = RandomSampler(range(100), generator=torch.Generator().manual_seed(0))  # type: ignore[arg-type]
    batches = DataLoader(zc.dataset(data, "torch"), batch_size=32, sampler=sampler)
    assert sorted(x for batch in batches for x in batch["x"].tolist()) == [*range(100)]
