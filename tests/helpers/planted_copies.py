"""A sample package for `forbid_copies`: lines that alias, and lines with the comment ``# copies``.

Each function gets its arrays and tables from `make`, and has one line that copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import tensorflow as tf
import torch

import zerocopy as zc
from zerocopy.protocols.array_interface import aligned_copy

SIZE = 4096


def make() -> SimpleNamespace:
    """Return new arrays and tables of 16 KiB or more, which every framework aliases."""
    x = aligned_copy(np.arange(SIZE, dtype="f4"))
    flags = np.arange(SIZE) % 2 == 0
    table = pa.table({"a": x, "flag": flags, "text": [str(i) for i in range(SIZE)]})
    numbers = table.select(["a"])
    return SimpleNamespace(
        x=x, big=x.astype(">f4"), flags=flags, table=table, numbers=numbers, tensor=torch.from_numpy(x),
        matrix=x.reshape(64, 64), frame=zc.convert(numbers, "pandas"), lazy=zc.convert(numbers, "polars"),
        series=zc.convert(x, "polars"), column=zc.convert(x, "pandas"), jax=zc.convert(x, "jax"),
        tf=zc.convert(x, "tensorflow"), arrow=zc.convert(x, "pyarrow"),
    )  # fmt: skip


CASES: list[Callable[[Any], object]] = []


def case(function: Callable[[Any], object]) -> Callable[[Any], object]:
    CASES.append(function)
    return function


# -- convert -------------------------------------------------------------------------


@case
def negative_strides(o: Any) -> None:
    zc.convert(o.x, "torch")
    zc.convert(o.x[::-1], "torch")  # copies


@case
def byte_order(o: Any) -> None:
    zc.convert(o.big, "numpy")
    zc.convert(o.big, "torch")  # copies


@case
def misaligned(o: Any) -> None:
    zc.convert(o.x[1:], "torch")
    zc.convert(o.x[1:], "jax")  # copies


@case
def not_contiguous(o: Any) -> None:
    zc.convert(o.matrix[:, ::2], "torch")
    zc.convert(o.matrix[:, ::2], "tensorflow")  # copies


@case
def asked_for(o: Any) -> None:
    zc.convert(o.x, "torch", copy=None)
    zc.convert(o.x, "torch", copy=True)  # copies


@case
def cast(o: Any) -> None:
    zc.convert(o.x, "torch", dtype="float32")
    zc.convert(o.x, "torch", dtype="float64")  # copies


@case
def into_an_array(o: Any) -> None:
    out = torch.zeros(SIZE)
    zc.convert(o.x, "torch", out=out)  # copies


@case
def writable(o: Any) -> None:
    zc.convert(o.arrow, "torch")
    zc.convert(o.arrow, "torch", writable=True)  # copies


@case
def own_object(o: Any) -> None:
    zc.convert(o.x, "numpy")
    zc.convert(o.x, np, copy=True)  # copies


@case
def numbers(o: Any) -> None:
    zc.convert(b"12", "numpy")
    zc.convert([1.0, 2.0], "numpy")  # copies


@case
def buffers(o: Any) -> None:
    zc.convert(bytearray(8), "numpy")
    zc.convert(bytearray(8), "numpy", dtype="uint16")  # copies


@case
def by_an_object_of_the_target(o: Any) -> None:
    zc.convert(o.x, o.tensor)
    zc.convert(o.x[::-1], o.tensor)  # copies


@case
def matrix(o: Any) -> None:
    zc.convert(o.frame, "numpy", layout="matrix")
    zc.convert({"a": o.x, "b": o.x}, "numpy", layout="matrix")  # copies


@case
def column_order(o: Any) -> None:
    zc.convert(o.numbers, "torch", layout="matrix", order="F")
    zc.convert({"a": o.x, "b": o.x}, "torch", layout="matrix", order="F")  # copies


# -- tables and columns ----------------------------------------------------------------


@case
def packed_booleans(o: Any) -> None:
    zc.convert(o.table, "torch", columns=["a"])
    zc.convert(o.table, "torch", columns=["a", "flag"])  # copies


@case
def booleans_to_a_table(o: Any) -> None:
    zc.convert({"a": o.x}, "polars")
    zc.convert({"a": o.x, "flag": o.flags}, "polars")  # copies


@case
def text(o: Any) -> None:
    zc.convert(o.lazy, "pyarrow")
    zc.convert(o.table, "polars")  # copies


@case
def several_chunks(o: Any) -> None:
    zc.convert(pa.concat_tables([o.numbers] * 2), "polars")
    zc.convert(pa.concat_tables([o.numbers] * 2), "torch")  # copies


@case
def codes(o: Any) -> None:
    zc.convert(o.table, "numpy", columns=["text"], encode="bytes")
    zc.convert(o.table, "numpy", columns=["text"], encode="codes")  # copies


@case
def filled(o: Any) -> None:
    zc.convert(pa.array([1.0, 2.0]), "numpy", nulls=0)
    zc.convert(pa.array([1.0, None]), "numpy", nulls=0)  # copies


@case
def padded(o: Any) -> None:
    zc.convert(pa.array([[1], [2]]), "numpy", lists="dense")
    zc.convert(pa.array([[1], [2, 3]]), "numpy", lists="pad")  # copies


@case
def one_cast_column(o: Any) -> None:
    zc.convert(o.frame, "polars")
    zc.convert(o.frame, "polars", dtype={"a": "float64"})  # copies


@case
def records(o: Any) -> None:
    zc.convert(o.numbers, "numpy")
    zc.convert({"a": o.x, "b": o.x}, "numpy", layout="records")  # copies


@case
def names_of_columns(o: Any) -> None:
    zc.convert(o.matrix.T, "polars", names=list(map(str, range(64))))
    zc.convert(o.matrix, "polars", names=list(map(str, range(64))))  # copies


# -- containers and functions -------------------------------------------------------------


@case
def leaf_of_a_list(o: Any) -> None:
    zc.convert([o.x, (o.x,)], "torch")
    zc.convert([o.x, (o.x[::-1],)], "torch")  # copies


@case
def leaf_of_a_dict(o: Any) -> None:
    zc.convert({"a": {"b": o.x}}, "torch")
    zc.convert({"a": {"b": o.big}}, "torch")  # copies


@case
def sparse(o: Any) -> None:
    import scipy.sparse

    zc.convert(scipy.sparse.csr_array(o.matrix), "torch")
    zc.convert(scipy.sparse.csr_array(o.matrix), "torch", copy=True)  # copies


@case
def converter(o: Any) -> None:
    to_torch = zc.converter(np.ndarray, "torch")
    to_torch(o.x)
    to_torch(o.x[::-1])  # copies


@case
def accepts(o: Any) -> None:
    total = zc.accepts("torch")(lambda x: x)
    total(o.x)
    total(o.x[::-1])  # copies


@case
def bridge(o: Any) -> None:
    negative = zc.bridge(jnp.negative, to="torch")
    negative(o.tensor)
    negative(o.tensor[1:])  # copies


# -- calls of the frameworks ---------------------------------------------------------------


@case
def torch_tensor(o: Any) -> None:
    torch.from_numpy(o.x)
    torch.tensor(o.x)  # copies


@case
def torch_as_tensor(o: Any) -> None:
    torch.as_tensor(o.x)
    torch.as_tensor(o.x, dtype=torch.float64)  # copies


@case
def torch_asarray(o: Any) -> None:
    torch.asarray(o.x)
    torch.asarray(o.x, copy=True)  # copies


@case
def numpy_array(o: Any) -> None:
    np.asarray(o.tensor)
    np.array(o.tensor)  # copies


@case
def numpy_of_jax(o: Any) -> None:
    np.asarray(o.jax)
    np.array(o.jax)  # copies


@case
def jax_array(o: Any) -> None:
    jnp.from_dlpack(o.tensor)
    jnp.array(o.tensor)  # copies


@case
def tensorflow_constant(o: Any) -> None:
    tf.experimental.dlpack.to_dlpack(o.tf)
    tf.constant(o.x)  # copies


@case
def tensorflow_numpy(o: Any) -> None:
    np.asarray(memoryview(o.x))
    o.tf.numpy()  # copies


@case
def pandas_series(o: Any) -> None:
    pd.Series(o.x, copy=False)
    pd.Series(o.x)  # copies


@case
def pandas_frame(o: Any) -> None:
    o.frame.to_numpy()
    pd.DataFrame({"a": o.x, "b": o.x})  # copies


@case
def pandas_values(o: Any) -> None:
    o.column.values  # noqa: B018
    pd.DataFrame({"a": pd.array(o.x, "Float32"), "b": pd.array(o.x, "Float32")}).values  # noqa: B018  # copies


@case
def polars_to_torch(o: Any) -> None:
    o.series.to_numpy()
    o.series.to_torch()  # copies


@case
def polars_to_pandas(o: Any) -> None:
    o.series.to_pandas()
    o.lazy.to_pandas()  # copies


@case
def polars_to_numpy(o: Any) -> None:
    o.lazy.to_numpy()
    o.lazy.with_columns(b=o.series).to_numpy()  # copies


@case
def polars_from_numpy(o: Any) -> None:
    pl.Series(o.x)
    pl.from_numpy(o.matrix)  # copies


@case
def pyarrow_array(o: Any) -> None:
    pa.array(o.x)
    pa.array(o.flags)  # copies


@case
def pyarrow_to_pandas(o: Any) -> None:
    o.arrow.to_numpy()
    o.numbers.to_pandas()  # copies


def marked_lines() -> Iterator[tuple[Callable[[Any], object], int]]:
    """Yield each function and the number of its line that copies."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    for function in CASES:
        first = function.__code__.co_firstlineno
        last = max(line for _, _, line in function.__code__.co_lines() if line is not None)
        (marked,) = [n for n in range(first, last + 1) if lines[n - 1].endswith("# copies")]
        yield function, marked
