"""Calls as users write them, for type checkers: tests/test_typing.py runs mypy and pyright on this file."""

from pathlib import Path
from types import MappingProxyType
from typing import Any, assert_type

import jax
import numpy as np
import polars as pl
import torch
from torch.utils.data import DataLoader

import zerocopy as zc
import zerocopy.stable.v1 as v1

x = np.arange(3.0)
frame = pl.DataFrame({"a": [1.0]})
tensor = torch.ones(2)
name = str(x.dtype)
unknown: Any = x

# names
assert_type(zc.convert(x, to="torch"), torch.Tensor)
assert_type(zc.convert(x, "torch.Tensor", dtype="float32", copy=True), torch.Tensor)
assert_type(zc.convert(x, "jax"), jax.Array)
assert_type(zc.convert(torch.ones(2), to="numpy", copy=False), np.ndarray[Any, Any])
assert_type(zc.convert(frame["a"], "torch"), torch.Tensor)
assert_type(zc.convert(memoryview(b"abc"), "numpy"), np.ndarray[Any, Any])

# types and modules
assert_type(zc.convert(x, torch.Tensor), torch.Tensor)
assert_type(zc.convert(frame["a"], pl.Series), pl.Series)
assert_type(zc.convert(x, torch), Any)

# an object of the target
assert_type(zc.convert(x, tensor), torch.Tensor)
assert_type(zc.convert(x, frame), pl.DataFrame)
assert_type(zc.convert(frame, tensor), Any)
assert_type(zc.convert([tensor], tensor), list[Any])
assert_type(zc.explain(x, tensor), zc.Plan)

# containers, if the types of their leaves are known: those of x contain Any
assert_type(zc.convert({"a": tensor}, "numpy"), dict[str, Any])
assert_type(zc.convert([tensor, tensor], "numpy"), list[Any])
assert_type(zc.convert((tensor, tensor), to="jax"), tuple[Any, ...])
assert_type(zc.convert([tensor], "numpy", leaves="error"), list[Any])

# tables
assert_type(zc.convert(frame, "torch"), dict[Any, torch.Tensor])
assert_type(zc.convert(frame, "numpy", dtype="float32"), dict[Any, np.ndarray[Any, Any]])
assert_type(zc.convert(frame, "torch", layout="matrix", copy=True), torch.Tensor)
assert_type(zc.convert(frame, "torch", nulls="mask"), Any)
assert_type(zc.convert(frame, "torch", layout="matrix", nulls="mask"), Any)
assert_type(zc.convert({"a": tensor}, "polars"), pl.DataFrame)
assert_type(zc.convert({"a": tensor}, "numpy", layout="matrix"), Any)
assert_type(zc.convert(frame, "polars"), pl.DataFrame)
assert_type(zc.convert(frame, "polars.DataFrame", columns=["a"]), pl.DataFrame)
assert_type(zc.convert(x, "pandas"), Any)
assert_type(zc.convert(frame, "jax", columns=["a"], nulls=0, lists="pad"), dict[Any, jax.Array])

# objects whose types do not name the type of their contents
assert_type(zc.convert(zc.share(x), "torch"), Any)
assert_type(zc.convert(zc.open_weights("model.npz"), "torch"), Any)
assert_type(zc.convert(MappingProxyType({"a": tensor}), "numpy"), Any)

# converters
to_torch = zc.converter(frame, "torch", columns=["a"], nulls={"a": 0}, copy=True)
assert_type(to_torch(frame), dict[Any, torch.Tensor])
assert_type(to_torch(x), torch.Tensor)
assert_type(to_torch([tensor]), list[Any])
assert_type(to_torch((tensor, tensor)), tuple[Any, ...])
assert_type(to_torch({"a": x}), Any)
assert_type(to_torch(unknown), Any)
assert_type(to_torch.explain(frame), zc.Plan)
assert_type(zc.converter(frame, "numpy")(frame), dict[Any, np.ndarray[Any, Any]])
assert_type(zc.converter(frame, "jax")(x), jax.Array)
assert_type(zc.converter(frame, "torch", layout="matrix")(frame), torch.Tensor)
assert_type(zc.converter(frame, "torch", nulls="mask")(frame), Any)
assert_type(zc.converter(frame, "torch", encode=True)(frame), Any)
assert_type(zc.converter(frame, "polars")(frame), pl.DataFrame)
assert_type(zc.converter(frame, "polars")(x), Any)
assert_type(zc.converter(x, torch.Tensor)(x), torch.Tensor)
assert_type(zc.converter(x, tensor)(frame), dict[Any, torch.Tensor])
assert_type(zc.converter(x, frame)(frame), pl.DataFrame)
assert_type(zc.converter(x, torch)(x), Any)
assert_type(zc.converter(x, zc.FrameworkName(name))(x), Any)
assert_type([zc.converter(x, "torch")(each) for each in (x, x)], list[torch.Tensor])

# frozen names
assert_type(v1.convert(x, "torch"), torch.Tensor)
assert_type(v1.explain(x, "torch"), v1.Plan)


# kinds
def check_kinds(obj: object) -> None:
    assert_type(zc.kind(obj), zc.Kind | None)
    if zc.is_table(obj):
        assert_type(zc.convert(obj, "polars"), pl.DataFrame)
    elif zc.is_array(obj) or zc.is_column(obj):
        assert_type(obj, Any)


# batches
assert_type([*zc.loader(frame, to="torch", batch_size=2, shuffle=True)], list[dict[Any, torch.Tensor]])
assert_type(next(iter(zc.loader("a.parquet", "torch", layout="matrix", seed=1))), torch.Tensor)
assert_type([*zc.loader(x, "numpy", layout="columns")], list[dict[Any, np.ndarray[Any, Any]]])
assert_type([*zc.loader(x, "jax", columns=["a"], nulls=0.0, lists="pad")], list[dict[Any, jax.Array]])
assert_type([*zc.loader(frame, "torch", nulls="mask")], list[Any])
assert_type([*zc.loader(frame, "torch", encode=True)], list[Any])
assert_type([*zc.loader(frame, "polars", drop_last=True)], list[pl.DataFrame])
assert_type([*zc.loader(frame, pl.DataFrame)], list[pl.DataFrame])
assert_type([*zc.loader(frame, tensor)], list[dict[Any, torch.Tensor]])
assert_type([*zc.loader(frame, torch.Tensor)], list[dict[Any, torch.Tensor]])
assert_type([*zc.loader(frame, "pyarrow")], list[Any])
assert_type([*zc.loader(frame, torch)], list[Any])
assert_type([*zc.loader(frame, zc.FrameworkName(name))], list[Any])
iter(zc.loader(frame, "torch")).close()
DataLoader(zc.loader(frame, "torch"), batch_size=None)
for batch in zc.loader(frame, "torch", epochs=2):
    batch["a"].sum()

# weights
weights = zc.open_weights("model.safetensors", "torch", copy=True)
assert_type(weights["w"], torch.Tensor)
assert_type(weights.read(["w"]), dict[str, torch.Tensor])
assert_type([*weights.values()], list[torch.Tensor])
assert_type(weights.get("w"), torch.Tensor | None)
assert_type(zc.open_weights("model.npz")["w"], np.ndarray[Any, Any])
assert_type(zc.open_weights(["a.npz", Path("b.npz")], to="jax", dtype="float32")["w"], jax.Array)
assert_type(zc.open_weights("model.gguf", torch.Tensor)["w"], torch.Tensor)
assert_type(zc.open_weights("model.gguf", torch)["w"], Any)
assert_type(zc.open_weights("model.gguf", zc.FrameworkName(name))["w"], Any)


def read_all(files: zc.Weights) -> dict[str, Any]:
    """Without parameters, the results are Any."""
    return files.read()


read_all(weights)

# names that a program computes, plugins, objects of unknown types
assert_type(zc.convert(x, zc.FrameworkName(name)), Any)
assert_type(zc.convert(x, zc.FrameworkName("my_plugin"), nulls="mask"), Any)
assert_type(zc.convert(frame, "pyarrow.Table"), Any)
zc.convert(unknown, "torch").sum()

# values of options
for null in (0, 0.5, 1j, True, np.float32(0), np.int8(0)):
    zc.convert(frame, "torch", nulls=null)
zc.convert(frame, "torch", nulls={"a": "mask", "b": 0, "c": None})
zc.explain(frame, "torch", nulls="drop", lists="pad", pad_value=0, encode={"a": ["x", "y"]})
zc.loader(frame, "torch", nulls={"a": np.nan}, shuffle="full", on_error="skip", engine="cudf")

# explain
assert_type(zc.explain(x, "torch", dtype="float32"), zc.Plan)

zc.explain(x, zc.FrameworkName(name), copy=True)


# functions
@zc.accepts("torch", arguments="x", returns="same", copy=False)
def halves(x: torch.Tensor, parts: int = 2) -> list[torch.Tensor]:
    return list(x.chunk(parts))


class Scale:
    @zc.accepts("torch")
    def scaled(self, x: torch.Tensor) -> torch.Tensor:
        return x

    @zc.accepts("torch")
    @staticmethod
    async def later(x: torch.Tensor) -> int:
        return len(x)


async def call_later() -> None:
    assert_type(await Scale.later(tensor), int)


assert_type(halves(tensor, parts=3), list[torch.Tensor])
assert_type(Scale().scaled(tensor), torch.Tensor)
