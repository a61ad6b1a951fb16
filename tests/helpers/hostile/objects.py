"""Python objects with hostile methods: subclasses of arrays and containers, attributes that raise."""

from __future__ import annotations

import collections
import enum
from random import Random
from typing import Any

import numpy as np

from helpers.hostile.case import Built

_ERRORS = [
    RuntimeError,
    ValueError,
    AttributeError,
    KeyError,
    TypeError,
    RecursionError,
    MemoryError,
    StopIteration,
]


class AnyAttribute:
    """An object that has every attribute, as a mock has."""

    def __getattr__(self, name: str) -> Any:
        return AnyAttribute()

    def __call__(self, *_: Any, **__: Any) -> Any:
        return AnyAttribute()


def _raising(error: type[Exception]) -> Any:
    class Raises:
        def __getattribute__(self, name: str) -> Any:
            raise error(name)

    return Raises()


def _raising_container(base: type, method: str, error: type[Exception]) -> type:
    def fail(self: Any, *_: Any, **__: Any) -> Any:
        raise error(method)

    return type("Hostile", (base,), {method: fail})


class ProducerOfProducers:
    """An object whose export returns another producer, not a capsule."""

    def __init__(self, depth: int) -> None:
        self.depth = depth

    def __dlpack__(self, **_: Any) -> Any:
        return ProducerOfProducers(self.depth - 1) if self.depth else None

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


class EndlessSequence:
    """A sequence whose items are the sequence itself."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Any:
        return self


def _array_subclass(rng: Random) -> Any:
    error = rng.choice(_ERRORS)
    method = rng.choice(
        ["__array_finalize__", "__dlpack__", "__getitem__", "__array_ufunc__", "shape", "dtype"]
    )
    method = rng.choice(
        [method, "flags", "view", "astype", "strides", "__eq__", "__len__", "__repr__", "__class__"]
    )

    def fail(self: Any, *_: Any, **__: Any) -> Any:
        raise error(method)

    is_property = method in ("shape", "dtype", "flags", "strides", "__class__")
    cls = type("HostileArray", (np.ndarray,), {method: property(fail) if is_property else fail})
    if method == "__array_finalize__":
        return np.ma.masked_array([1, 2, 3], [0, 1, 0])
    return np.ndarray.__new__(cls, (2, 3), np.float32)


def _masked(rng: Random) -> Any:
    return rng.choice(
        [
            np.ma.masked_array([1.0, 2.0], [False, True]),
            np.ma.masked_array([1.0, 2.0], [False, False]),
            np.ma.masked,
            np.matrix([[1, 2]]),
            np.rec.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
            np.char.array(["a", "b"]),
            np.memmap.__new__(np.memmap, __file__, np.uint8, "r", 0, (16,)),
        ]
    )


def _torch(rng: Random) -> Any:
    import torch

    class Fails(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise RuntimeError("no function")

    class Counts(torch.Tensor):
        pass

    base = torch.arange(6.0).reshape(2, 3)
    meta = torch.empty(2, 3, device="meta")
    return rng.choice(
        [
            lambda: base.as_subclass(Fails),
            lambda: base.as_subclass(Counts),
            lambda: meta,
            lambda: base.to_sparse(),
            lambda: base.to_sparse_csr(),
            lambda: torch.nn.Parameter(base),
            lambda: base.requires_grad_() * 2,
            lambda: torch.quantize_per_tensor(base, 0.1, 0, torch.qint8),
            lambda: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)], layout=torch.jagged),
            lambda: torch.empty(0),
            lambda: torch.tensor(True),
            lambda: base.to(torch.complex64).conj(),
            lambda: base.to(torch.complex64).conj().imag,
            lambda: torch.nn.Linear(2, 2),
            lambda: torch.float32,
            lambda: base.storage(),
            lambda: base.untyped_storage(),
            lambda: torch.func.vmap(lambda x: x)(base),
            lambda: base.expand(4, 2, 3),
            lambda: torch.empty_strided((2, 2), (1, 1)),
            lambda: torch.nn.UninitializedParameter(),
        ]
    )()


def _jax(rng: Random) -> Any:
    import jax
    import jax.numpy as jnp

    return rng.choice(
        [
            lambda: jnp.zeros((0,)),
            lambda: jax.random.key(0),
            lambda: jax.ShapeDtypeStruct((2,), jnp.float32),
            lambda: jnp.float32,
            lambda: _deleted(jnp.ones(3)),
            lambda: jnp.ones(3, jnp.bfloat16),
            lambda: jnp.array([1, 2], jnp.int4),
            lambda: (
                jax.experimental.sparse.BCOO.fromdense(jnp.ones((2, 2)))
                if hasattr(jax, "experimental.sparse")
                else 1
            ),
        ]
    )()


def _deleted(x: Any) -> Any:
    x.delete()
    return x


def _tensorflow(rng: Random) -> Any:
    import tensorflow as tf

    return rng.choice(
        [
            lambda: tf.constant("text"),
            lambda: tf.constant(["a", "b"]),
            lambda: tf.ragged.constant([[1], [2, 3]]),
            lambda: tf.sparse.from_dense([[1, 0]]),
            lambda: tf.Variable([1.0, 2.0]),
            lambda: tf.constant([1, 2], tf.qint8) if False else tf.TensorSpec((2,), tf.float32),
            lambda: tf.TensorArray(tf.float32, 1),
            lambda: tf.constant([True, False]),
            lambda: tf.zeros((0, 3)),
            lambda: tf.float32,
            lambda: tf.cast(tf.constant([1.0, 2.0]), tf.bfloat16),
        ]
    )()


def _table_object(rng: Random) -> Any:
    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    return rng.choice(
        [
            lambda: pd.Series([1, "a", None]),
            lambda: pd.Series([object()]),
            lambda: pd.DataFrame([[1, 2]], columns=["a", "a"]),
            lambda: pd.DataFrame({("a", 1): [1], ("b", 2): [2]}),
            lambda: pd.Index([1, 2]),
            lambda: pd.MultiIndex.from_tuples([(1, 2)]),
            lambda: pd.Categorical(["a", None]),
            lambda: pd.array([1, None], dtype="Int64"),
            lambda: pd.Series(pd.period_range("2000", periods=2)),
            lambda: pd.Series(pd.arrays.SparseArray([0, 1])),
            lambda: pd.Series(pd.interval_range(0, 2)),
            lambda: pl.Series([object()]),
            lambda: pl.Series([[1], None]),
            lambda: pl.DataFrame(),
            lambda: pl.Series([1, 2], dtype=pl.Int128),
            lambda: pl.col("a"),
            lambda: pl.Series(["a"], dtype=pl.Enum(["a", "b"])),
            lambda: duckdb.sql("select 1 a, 'x' b"),
            lambda: duckdb.sql("select 1 a where false"),
            lambda: duckdb.sql("select [1, 2] a, {'x': 1} b, null c, 1.5::decimal(9, 2) d"),
            lambda: duckdb.connect(),
            lambda: pa.scalar(3),
            lambda: pa.schema([("a", "int8")]) if False else pa.schema([("a", pa.int8())]),
            lambda: pa.py_buffer(b"abcd"),
            lambda: pa.array([1, "a"][:1]).type,
            lambda: pa.UnionArray.from_sparse(
                pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])]
            ),
            lambda: pa.RunEndEncodedArray.from_arrays([2, 5], ["a", "b"]),
            lambda: pa.chunked_array([], pa.int8()),
            lambda: pa.chunked_array([[1], [2]]),
            lambda: pa.table({"a": [1]}).schema,
            lambda: pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16], pa.binary(16))),
            lambda: pa.SparseCOOTensor.from_dense_numpy(np.eye(2)),
        ]
    )()


def _container(rng: Random) -> Any:
    x = np.arange(3.0)
    cycle: list[Any] = [x]
    cycle.append(cycle)
    deep: Any = [x]
    for _ in range(rng.choice([10, 5000])):
        deep = [deep]
    names = collections.namedtuple("names", "a b")
    error = rng.choice(_ERRORS)
    base, method = rng.choice(_METHODS)
    try:
        hostile = _raising_container(base, method, error)
        odd: Any = base.__new__(hostile)
        if base is dict:
            dict.__setitem__(odd, "a", x)
        elif base is list:
            list.append(odd, x)
    except Exception:  # noqa: BLE001 - the class cannot be made at all
        odd = []
    return rng.choice(
        [
            cycle,
            deep,
            names(x, [x]),
            odd,
            odd,
            odd,
            odd,
            odd,
            collections.OrderedDict(a=x),
            [],
            {},
            (),
            [None],
            {"a": None},
            collections.defaultdict(list, a=x),
            collections.Counter(a=1),
            {1: x, None: x, (1, 2): x},
            {x.tobytes(): x},
            {"a": x, "b": x[:2]},
            {"a": np.float64(1)},
            [x, "text"],
            (x, (x, {"a": x})),
            {"a": {"b": x}},
            collections.deque([x]),
            {"a": x, 1: x},
            [[], {}],
            ({},),
            {float("nan"): x},
            {"": x},
            {"a": []},
            collections.UserDict(a=x),
        ]
    )


_METHODS: list[tuple[type, str]] = [
    *((dict, name) for name in ("items", "values", "keys", "__iter__", "__len__", "__copy__", "__setitem__")),
    *((dict, name) for name in ("__reduce_ex__", "__bool__")),
    *((list, name) for name in ("__iter__", "__len__", "__copy__", "__init__", "__bool__")),
    *((tuple, name) for name in ("__iter__", "__new__")),
]


class _Color(enum.Enum):
    RED = 1


def _plain(rng: Random) -> Any:
    return rng.choice(
        [
            None,
            1,
            2.5,
            1j,
            True,
            "text",
            "",
            ...,
            NotImplemented,
            object(),
            object,
            type,
            int,
            len,
            lambda: 0,
            iter([1]),
            (i for i in [1]),
            {1, 2},
            frozenset(),
            range(3),
            slice(3),
            _Color.RED,
            Exception("x"),
            np,
            np.float32,
            np.float32(3),
            np.datetime64("2000-01-01"),
            np.dtype("f4"),
            np.bool_(True),
            np.str_("x"),
            np.void(b"abc"),
            10**30,
            b"",
            memoryview,
            np.array(None),
            np.array([None, 1]),
            np.array([[1], [1, 2]], object),
            np.array("x"),
            np.array([], object),
            np.zeros(3).__dlpack__(),
            np.random.default_rng(0),
            np.nditer([1]),
            np.broadcast([1], [2]),
            EndlessSequence(),
            AnyAttribute(),
            ProducerOfProducers(rng.choice([0, 3, 50])),
            type("C", (), {"__dlpack__": 3})(),
            np.flatiter,
        ]
    )


def build(rng: Random) -> Built:
    """Return one of the objects."""
    kinds = [
        _array_subclass,
        _masked,
        _torch,
        _jax,
        _tensorflow,
        _table_object,
        _table_object,
        _container,
        _plain,
        _plain,
    ]
    if rng.random() < 0.06:
        error = rng.choice(_ERRORS)
        return Built(_raising(error), f"every attribute raises {error.__name__}")
    kind = rng.choice(kinds)
    return Built(kind(rng), kind.__name__.strip("_"))
