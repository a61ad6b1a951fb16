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
    loader = zc.loader(TABLE, to="torch", batch=1, encode=True, nulls="mask")
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
