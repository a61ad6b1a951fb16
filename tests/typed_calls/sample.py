"""Calls as users write them, for type checkers: tests/test_typing.py runs mypy and pyright on this file."""

from typing import Any, assert_type

import jax
import numpy as np
import polars as pl
import torch

import zerocopy as zc

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

# names that a program computes, plugins, objects of unknown types
assert_type(zc.convert(x, zc.FrameworkName(name)), Any)
assert_type(zc.convert(x, zc.FrameworkName("my_plugin"), nulls="mask"), Any)
assert_type(zc.convert(frame, "pyarrow.Table"), Any)
zc.convert(unknown, "torch").sum()

# values of options
for null in (0, 0.5, 1j, True, np.float32(0), np.int8(0)):
    zc.convert(frame, "torch", nulls=null)
zc.convert(frame, "torch", nulls={"a": "mask", "b": 0, "c": None})
zc.explain(frame, "torch", nulls="drop", lists="pad", pad=0, encode={"a": ["x", "y"]})
zc.loader(frame, "torch", nulls={"a": np.nan}, shuffle="full", on_error="skip", decode="cudf")

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
