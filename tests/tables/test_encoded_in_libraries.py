"""``Encoded`` in the functions by which training libraries walk, copy, pin and move batches."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import zerocopy as zc

TABLE = pa.table(
    {
        "x": [1.0, 2.0],
        "day": pa.array([1, None], pa.date32()),
        "text": ["a", None],
        "codes": pa.array(["u", "v"]).dictionary_encode(),
        "lists": [[1, 2], [3]],
        "struct": [{"a": 1, "t": "x"}, {"a": None, "t": "y"}],
    }
)
OPTIONS: list[dict[str, Any]] = [{"nulls": "mask"}, {"nulls": {"day": 0, "text": "mask", "struct": "mask"}}]


def rows(batch: dict[str, Any]) -> dict[str, Any]:
    return {name: part.to_pylist() if hasattr(part, "to_pylist") else part for name, part in batch.items()}


@pytest.fixture(params=OPTIONS, ids=["masks", "some masks"])
def batch(request: pytest.FixtureRequest) -> Any:
    pytest.importorskip("torch")
    return zc.convert(TABLE.drop_columns("x"), "torch", encode=True, **request.param)


def walked(data: Any, call: Any) -> Any:
    """Return data with ``call(tensor)``, as Lightning does: it sets the fields of copies of dataclasses."""
    torch = pytest.importorskip("torch")
    if isinstance(data, torch.Tensor):
        return call(data)
    if dataclasses.is_dataclass(data):
        fields = {field.name: getattr(data, field.name) for field in dataclasses.fields(data)}
        result = copy.deepcopy(data, memo={id(value): value for value in fields.values()})
        for name, value in fields.items():
            setattr(result, name, walked(value, call))
        return result
    if isinstance(data, dict):
        return {key: walked(value, call) for key, value in data.items()}
    if isinstance(data, tuple):
        return type(data)(*(walked(value, call) for value in data))
    return data


def _add_device(devices: list[str], tensor: Any) -> None:
    devices.append(str(tensor.device))


def test_a_walk_that_sets_fields_changes_each_tensor(batch: Any) -> None:
    expected = rows(batch)
    moved = walked(batch, lambda tensor: tensor.clone())
    assert rows(moved) == expected
    assert not zc.shares_memory(moved["text"].values.values, batch["text"].values.values)


def test_copies_and_pickles_have_the_same_rows(batch: Any) -> None:
    for copied in (copy.copy, copy.deepcopy, lambda data: pickle.loads(pickle.dumps(data))):
        assert rows(copied(batch)) == rows(batch)


def test_to_moves_each_tensor_and_mask(batch: Any) -> None:
    for column in batch.values():
        part = column.values if isinstance(column, zc.Masked) else column
        devices: list[str] = []
        walked(part.to("meta", non_blocking=True), partial(_add_device, devices))
        assert {*devices} == {"meta"}


def test_parts_without_the_methods_stay() -> None:
    column = zc.convert(TABLE["codes"], "numpy", encode=True)
    assert column.to("cpu").values is column.values
    assert column.pin_memory().to_pylist() == ["u", "v"]


def test_the_default_functions_of_torch_take_a_batch(batch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.data import _utils

    assert rows(torch.utils.data.default_convert(batch)) == rows(batch)
    pinned = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: pinned.append(tensor) or tensor.clone())
    assert rows(_utils.pin_memory.pin_memory(batch)) == rows(batch)
    assert len(pinned) >= len(batch)


def test_a_loader_s_batches_reach_workers_and_lightning_s_walk() -> None:
    torch = pytest.importorskip("torch")
    loader = zc.loader(TABLE, to="torch", batch_size=1, encode=True, nulls="mask")
    batches = list(torch.utils.data.DataLoader(loader, batch_size=None))
    texts = [walked(batch, lambda tensor: tensor.clone())["text"].values.to_pylist() for batch in batches]
    assert texts == [["a"], [None]]


@pytest.mark.parametrize("library", ["lightning_utilities.core.apply_func", "lightning.fabric.utilities"])
def test_lightning_moves_a_batch(library: str, batch: Any) -> None:
    torch = pytest.importorskip("torch")
    module = pytest.importorskip(library)
    if hasattr(module, "move_data_to_device"):
        moved = module.move_data_to_device(batch, torch.device("cpu"))
    else:
        moved = module.apply_to_collection(batch, torch.Tensor, lambda tensor: tensor.clone())
    assert rows(moved) == rows(batch)


def test_accelerate_moves_a_batch(batch: Any) -> None:
    operations = pytest.importorskip("accelerate.utils.operations")
    moved = operations.send_to_device(batch, "meta")
    devices: list[str] = []
    walked(moved, partial(_add_device, devices))
    assert {*devices} == {"meta"}
    assert rows(operations.recursively_apply(np.asarray, batch, test_type=lambda leaf: False)) == rows(batch)


@pytest.mark.parametrize("options", OPTIONS, ids=["masks", "some masks"])
def test_jax_maps_and_compiles_a_batch(options: dict[str, Any]) -> None:
    jax = pytest.importorskip("jax")
    batch = zc.convert(TABLE.drop_columns("x"), "jax", encode=True, **options)
    assert rows(jax.tree.map(lambda leaf: leaf + 0 if leaf.dtype != bool else leaf, batch)) == rows(batch)
    assert rows(jax.jit(lambda data: data)(batch)) == rows(batch)


WORDS = pa.array(["u", "v", "w"])
#: Columns whose rows are single numbers or codes, with two samples of each.
STACKED = {
    "date": pa.array([1, 2, 3, 4], pa.date32()),
    "timestamp": pa.array([1, 2, None, 4], pa.timestamp("us", "UTC")),
    "time": pa.array([1, None, 3, 4], pa.time32("ms")),
    "duration": pa.array([1, 2, 3, 4], pa.duration("s")),
    "codes": pa.DictionaryArray.from_arrays(pa.array([0, 2, None, 1], pa.int8()), WORDS),
}
REFUSED = {
    "decimal": pa.array([1, 2], pa.decimal128(5, 1)),
    "decimal64": pa.array([1, 2], pa.decimal64(5, 1)),
    "lists": pa.array([[1], [2, 3]]),
    "bytes": pa.array([b"a", b"bc"]),
    "struct": pa.array([{"a": 1}, {"a": 2}]),
}
NULLS = ["mask", "fill"]


def collates() -> list[Any]:
    """Return functions that stack samples: torch's, and that for workers."""
    from zerocopy.integrations.multiprocessing import shared_collate

    torch = pytest.importorskip("torch")
    return [torch.utils.data.default_collate, shared_collate("torch")]


@pytest.mark.parametrize("nulls", NULLS)
@pytest.mark.parametrize("name", STACKED)
def test_collating_stacks_numbers_and_codes(name: str, nulls: str) -> None:
    column = STACKED[name]
    fill = {"nulls": "mask"} if nulls == "mask" else {"nulls": -1 if name == "codes" else 0}
    parts = [
        zc.convert(column[:2], "torch", encode=True, **fill),
        zc.convert(column[2:], "torch", encode=True, **fill),
    ]
    for collate in collates():
        batch = collate([{"x": part} for part in parts])["x"]
        assert type(batch) is type(parts[0])
        assert batch.to_pylist() == [part.to_pylist() for part in parts]
        encoded = batch.values if nulls == "mask" else batch
        assert encoded.to_pylist() == batch.to_pylist()
        assert encoded.values.shape == (2, 2)
        assert type(encoded.values).__module__ == "torch"


@pytest.mark.parametrize("name", REFUSED)
def test_collating_refuses_rows_of_several_numbers(name: str) -> None:
    part = zc.convert(REFUSED[name], "torch", encode="bytes" if name == "bytes" else True)
    assert isinstance(part, zc.Encoded)
    for collate in collates():
        with pytest.raises(zc.UnsupportedConversionError, match="not one number") as error:
            collate([{"x": part}, {"x": part}])
        assert "collate_fn=list" in error.value.remedy


@pytest.mark.hazard("training#categories-of-samples")
def test_collating_refuses_other_categories_types_and_masks() -> None:
    def encoded(values: Any, **options: Any) -> Any:
        return zc.convert(pa.array(values), "torch", encode=True, **options)

    codes = encoded(["a", "b"])
    for other, why in (
        (encoded(["a", "c"]), "different categories"),
        (encoded(["b", "c"]), "different categories"),
        (zc.convert(STACKED["date"], "torch", encode=True), "sample 1 is date32"),
        (zc.convert(STACKED["codes"], "torch", encode=True, nulls="mask").values, "with categories, a mask"),
        (codes.values, "sample 1 is Tensor"),
    ):
        for collate in collates():
            with pytest.raises(zc.UnsupportedConversionError, match=why):
                collate([codes, other])
    for collate in collates():
        assert collate([codes, encoded(["a", "b"])]).to_pylist() == [["a", "b"], ["a", "b"]]


def test_the_collate_function_without_stacks_converts_each_part() -> None:
    from zerocopy.integrations.multiprocessing import shared_collate

    torch = pytest.importorskip("torch")
    batch = zc.convert(TABLE, "numpy", encode=True, nulls="mask")
    sent = shared_collate("torch", stack=False)(batch)
    assert rows(sent) == rows(batch)
    leaves: list[Any] = []
    walked(sent, leaves.append)
    assert len(leaves) > len(batch)
    assert all(type(part) is not np.ndarray for part in leaves)
    assert isinstance(sent["text"].mask, torch.Tensor)


def test_a_loader_of_torch_collates_codes_in_workers() -> None:
    torch = pytest.importorskip("torch")
    samples = [zc.convert(STACKED["codes"], "torch", encode=True, nulls=-1) for _ in range(4)]
    batches = torch.utils.data.DataLoader(samples, batch_size=2, num_workers=0)
    assert [batch.to_pylist() for batch in batches] == [[samples[0].to_pylist()] * 2] * 2
