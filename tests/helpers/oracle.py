"""The oracle of conversions: every caller gives the result or the error of the plan, which `explain` shows.

A caller is a way to convert: `convert` after a route exists, a converter, a recorded call, pure Python, a
function that `accepts` decorates. `check` compares a caller with the planner.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
import pytest

import zerocopy as zc
from helpers.arrays import bits, sample
from helpers.option_cases import outcome, variants
from helpers.recorded_calls import check_agrees, recording
from zerocopy import registry
from zerocopy._engine import convert as engine, routes
from zerocopy.dtype import NATIVE_NAMES

SHAPES: dict[str, tuple[int, ...]] = {"one dimension": (16,), "none": (), "two": (4, 8), "empty": (3, 0)}


def planned(x: Any, to: str, **options: Any) -> Any:
    return engine.convert_slowly(x, to, options)


def by_converter(x: Any, to: str, **options: Any) -> Any:
    return zc.converter(type(x), to, **options)(x)


def recorded(x: Any, to: str, **options: Any) -> Any:
    with recording():
        return zc.convert(x, to, **options)


def by_accepts(x: Any, to: str, **options: Any) -> Any:
    @zc.accepts(to, returns=None, **options)
    def function(x: Any) -> Any:
        return x

    return function(x)


CALLERS: dict[str, Callable[..., Any]] = {
    "convert": zc.convert,
    "converter": by_converter,
    "accepts": by_accepts,
    "recorded": recorded,
    "pure Python": engine.convert_in_python,
}


def check(x: Any, warm: Any, to: str, options: dict[str, Any], caller: str) -> None:
    """Check that a caller, after a conversion of `warm`, gives the result or the error of the plan."""
    case = type(x), to, options, caller
    routes.clear()
    expected = outcome(x, to, options, planned)
    if expected[0] not in (ValueError, TypeError):  # of an option
        agrees(x, to, **options)
    with suppress(zc.ZeroCopyError, ValueError, TypeError):
        zc.convert(warm, to, **options)
    for _ in range(2):
        seen = outcome(x, to, options, CALLERS[caller])
        if caller == "accepts" and issubclass(expected[0], Exception):  # its messages name the parameter
            assert seen[:2] == expected[:2], case
        else:
            assert seen == expected, case
    if caller == "recorded":
        with recording():  # keeps the routes between the recorders
            check_agrees(x, to, options)


def agrees(x: Any, to: str, **options: Any) -> None:
    """Check `explain` and the promises of the options against the conversion (P2, P3)."""
    case = type(x), to, options
    plan = zc.explain(x, to, **options)
    try:
        result = zc.convert(x, to, **options)
    except zc.ZeroCopyError as error:
        if plan.unread and error.code == "nulls":
            return  # known only after the query has run
        assert not plan.possible, (case, error)  # noqa: PT017
        assert plan.reasons or plan.leaves, case
        assert (plan.error.code, type(plan.error)) == (error.code, type(error)), case  # noqa: PT017
        return
    assert plan.possible, (case, plan.reasons, x)
    assert plan.run is None or type(plan.run()) is type(result), case
    try:
        shares = zc.shares_memory(x, result)
    except zc.UnsupportedConversionError as error:
        # A relation or a stream has no memory, and a nanoarrow array of null structs is not a table.
        assert error.code in ("unread", "nulls"), case  # noqa: PT017
        return
    assert plan.shares_memory in (None, shares), (case, str(plan))
    assert shares or not plan.aliased_bytes, (case, str(plan))
    assert pickle.loads(pickle.dumps(plan)).aliased_bytes == plan.aliased_bytes
    if plan.zero_copy or not (plan.leaves or plan.partial):
        assert plan.zero_copy == shares, (case, str(plan))
    assert not (options.get("copy") is True and shares), case
    if options.get("copy") is False and not plan.leaves:
        assert shares or not zc.shares_memory(x, x) or 0 in getattr(result, "shape", ()), case


def ml_dtypes() -> list[np.dtype[Any]]:
    """Return the dtypes of `ml_dtypes`, which NumPy lacks."""
    module = pytest.importorskip("ml_dtypes")
    names = [name for name in dir(module) if name.startswith(("bfloat", "float", "int", "uint"))]
    return [np.dtype(getattr(module, name)) for name in names if isinstance(getattr(module, name), type)]


def odd_dtypes() -> list[np.dtype[Any]]:
    """Return dtypes that few frameworks have."""
    names = [">i4", ">f8", ">g", "g", "M8[s]", "M8[D]", "m8[ns]", "U3", "S3", "O", "i4,f8"]
    return [np.dtype(name) for name in names]


@cache
def arrays_of(source: str) -> list[tuple[Any, np.ndarray]]:
    """Return arrays of a framework, of every dtype and number of dimensions, and their values."""
    arrays: list[tuple[Any, np.ndarray]] = []
    for dtype in [*map(np.dtype, NATIVE_NAMES), *ml_dtypes()]:
        for shape in SHAPES.values():
            values = sample(dtype, shape) if dtype.kind != "V" else np.ones(shape, dtype)
            with suppress(zc.ZeroCopyError):
                arrays.append((zc.convert(values, source, copy=True if shape == () else None), values))
    if source == "numpy":
        others = [*variants().values(), *(np.zeros(4, dtype) for dtype in odd_dtypes())]
        arrays += [(array, array) for array in others]
        scalars = [np.ones(1, dtype) for dtype in ("i4", "f4", "c8", *ml_dtypes())]
        arrays += [(array[0], array) for array in scalars]
    return arrays


def check_values(x: Any, values: np.ndarray, to: str, options: dict[str, Any]) -> None:
    """Check that a result has the values of an array (P1)."""
    with suppress(zc.ZeroCopyError, ValueError, TypeError):  # refused, or not readable by NumPy
        result = np.asarray(zc.convert(zc.convert(x, to, **options), "numpy"))
        if "dtype" not in options and values.dtype.kind not in "OMmUSV":
            assert bits(result) == bits(values.astype(result.dtype)), (type(x), to, options)


def tensors_of_torch() -> list[Any]:
    """Return tensors of one type whose memory lacks their values, or has an unusual layout."""
    torch = pytest.importorskip("torch")
    return [
        torch.arange(4.0).requires_grad_(),
        torch.tensor([1 + 2j, 3]).conj(),
        torch.tensor([1 + 2j, 3]).conj().imag,
        torch.eye(3).to_sparse(),
        torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
        torch.empty(3, device="meta"),
        torch.arange(4.0).expand(3, 4),
        torch.arange(8.0)[::2],
        torch.empty(0),
    ]


@cache
def own_objects(framework: str) -> list[Any]:
    """Return objects of a framework: a matrix or table of numbers, others, and those of `special_objects`."""
    values = [sample("f4", (4, 2)), *(np.zeros(4, dtype) for dtype in odd_dtypes())]
    made = []
    for value in [*values, *(tables_of_arrow().values() if registry.by_name(framework).tables else ())]:
        with suppress(zc.ZeroCopyError, ValueError, TypeError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made.append(zc.convert(value, framework))
    owns = registry.by_name(framework).owns  # without dicts of columns
    return [x for x in made if owns(type(x))] + special_objects(framework)


def special_objects(framework: str) -> list[Any]:
    """Return objects of a framework's main type of tensor that no single block of memory holds."""
    if framework == "torch":
        torch = pytest.importorskip("torch")
        ragged = [torch.ones(1), torch.ones(2)]
        return [
            *tensors_of_torch(),
            torch.eye(2).to_sparse_csr(),
            torch.nested.nested_tensor(ragged),
            torch.nested.nested_tensor(ragged, layout=torch.jagged),
        ]
    if framework == "jax":
        jax = pytest.importorskip("jax")
        deleted = jax.numpy.ones(3)
        deleted.delete()
        return [deleted, jax.random.key(0), jax.numpy.ones(3, "float8_e4m3fn"), jax.numpy.ones(3, "int4")]
    if framework == "tensorflow":
        tf = pytest.importorskip("tensorflow")
        return [
            tf.constant(["a", "b"]),
            tf.raw_ops.EmptyTensorList(element_shape=[2], max_num_elements=-1, element_dtype=tf.float32),
            tf.quantization.quantize(tf.ones(3), 0, 1, tf.qint8).output,
            tf.ragged.constant([[1.0], [2.0, 3.0]]),
            tf.sparse.eye(2),
            tf.Variable([1.0, 2.0]),
        ]
    return []


@cache
def columns_of_a_dict() -> dict[str, dict[Any, Any]]:
    """Return dicts of columns, which have a route to tables, and dicts that only the planner reads."""
    pa = pytest.importorskip("pyarrow")
    x, y = np.arange(50.0), np.arange(50)
    days = np.arange(50).astype("M8[D]")
    days[7] = "NaT"
    matrix = np.asfortranarray(np.arange(100.0).reshape(50, 2))
    frozen = np.arange(50, dtype="f4")
    frozen.flags.writeable = False
    dicts: dict[str, dict[Any, Any]] = {
        "arrays": {"a": x, "b": y, "c": np.arange(50, dtype="u1")},
        "one": {"a": x},
        "columns of a matrix": {"a": matrix[:, 0], "b": matrix[:, 1]},
        "read-only": {"a": frozen, "b": x},
        "gaps": {"a": np.arange(100.0)[::2], "b": x},
        "reversed": {"a": x[::-1], "b": y},
        "two dimensions": {"a": x.reshape(25, 2), "b": np.arange(25)},
        "lengths": {"a": x, "b": y[:3]},
        "no rows": {"a": x[:0], "b": y[:0]},
        "nothing": {},
        "booleans": {"a": x > 2, "b": x},
        "text": {"a": np.array(["x", "y"]), "b": x[:2]},
        **{f"dates in {unit}": {"a": days.astype(f"M8[{unit}]"), "b": y} for unit in ("ms", "ns", "D", "h")},
        "dates with gaps": {"a": np.repeat(days, 2).astype("M8[ms]")[::2], "b": y},
        "dates in the other byte order": {"a": days.astype(">M8[ms]"), "b": y},
        "dates in tens": {"a": days.astype("M8[10ms]"), "b": y},
        "misaligned dates": {"a": np.frombuffer(b"\0" + days.tobytes(), "u1")[1:].view("M8[ms]"), "b": y},
        "dates in two dimensions": {"a": days.astype("M8[ms]").reshape(25, 2), "b": np.arange(25)},
        "durations": {"a": days.astype("M8[ms]") - np.datetime64("2020-01-01", "ms"), "b": y},
        "NaN": {"a": np.array([1.0, np.nan]), "b": y[:2]},
        "float16": {"a": x.astype("f2"), "b": y},
        "complex": {"a": x.astype("c8"), "b": y},
        "scalars": {"a": np.array(1.0), "b": np.array(2)},
        "labels of numbers": {0: x, 1: y},
        "labels of several types": {1: x, "1": y, None: x},
        "alignments": {f"c{i}": np.arange(50.0 + i)[i:] for i in range(9)},
        "misaligned": {"a": x, "b": np.zeros(401, "u1")[1:].view("f8")},
        "rows of a matrix": dict(zip("abcd", np.arange(200.0).reshape(50, 4).T, strict=True)),
        "every other row": dict(zip("abcd", np.arange(400.0).reshape(8, 50)[::2], strict=True)),
        "vectors": {"a": np.zeros((5, 2)), "b": np.zeros((5, 2), order="F")},
        "shapes": {"a": np.zeros(3), "b": np.zeros((2, 3)), ("c", 1): np.zeros(0)},
        "the other byte order": {"a": x.astype(">f8"), "b": y},
        "an empty label": {"": x, "b": y},
        "a zero byte": {"a\0b": x, "c": y},
        "Arrow": {"a": pa.array(x), "b": y},
        "lists": {"a": [1, 2], "b": [1.5, 2.5]},
        "a dict": {"a": {"b": x}},
        "Python numbers": {"a": 1, "b": 2},
        "masked": {"a": np.ma.masked_array([1, 2, 3], [0, 1, 0]), "b": np.arange(3)},
        "longdouble": {"a": x.astype("g"), "b": y},
        "bfloat16": {"a": x.astype(ml_dtypes()[0]), "b": y},
    }
    for name, make in (("torch", "from_numpy"), ("pandas", "Series"), ("polars", "Series")):
        module = pytest.importorskip(name)
        dicts[name] = {"a": getattr(module, make)(x.copy()), "b": y}
    return dicts


@cache
def frames() -> list[tuple[Any, list[Any]]]:
    """Return, for each type of column and frame, one of numbers and others of odd dtypes and labels."""
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    xarray = pytest.importorskip("xarray")
    makers: list[Callable[[np.ndarray], Any]] = [
        lambda array: pd.Series(array, copy=False),
        lambda array: pd.DataFrame({"x": pd.Series(array, copy=False), "y": 1.0}),
        lambda array: pl.Series("x", array),
        lambda array: pl.DataFrame({"x": pl.Series("x", array), "y": np.ones(len(array))}),
        lambda array: xarray.DataArray(array, dims="row"),
    ]
    every = []
    for make in makers:
        others = []
        for dtype in [*map(np.dtype, NATIVE_NAMES), *odd_dtypes(), *ml_dtypes()]:
            with suppress(TypeError, ValueError, NotImplementedError, pl.exceptions.PolarsError):
                others.append(make(np.zeros(4, dtype)))
                repr(others[-1])  # the framework lacks the dtype
        every.append((make(np.zeros(4)), others))
    nan = float("nan")
    labels = [(nan, nan), (nan, "a"), (None, None), (1, 1.0), (1, True), (pd.NaT, pd.NaT), (pd.NA, pd.NA)]
    labels += [(("a", 1), ("a", 1)), (np.float64("nan"), np.float64("nan")), ("a", "a"), (b"a", "a")]
    others = []
    for pair in labels:
        frame = pd.DataFrame(np.ones((3, 2)))
        frame.columns = pd.Index(list(pair), dtype=object, tupleize_cols=False)
        others.append(frame)
    return [*every, (pd.DataFrame(np.ones((3, 2)), columns=["a", "b"]), others)]


def targets() -> list[str]:
    """Return the installed frameworks with arrays on the host, and those with tables."""
    every = registry.frameworks().items()
    return [
        name
        for name, info in every
        if info.installed
        and (registry.by_name(name).tables or info.kind not in ("table", "compound"))
        and "cpu" in registry.by_name(name).device_kinds
    ]


@cache
def tables_of_arrow() -> dict[str, Any]:
    """Return tables of Arrow that routes convert, and tables that only the planner reads."""
    pa = pytest.importorskip("pyarrow")
    x = np.arange(float(12))
    numbers = pa.table({"a": x, "b": x.astype("i4"), "c": x.astype("u1")})
    words = [None if i % 5 == 3 else f"word {i}, which is longer than a view" for i in range(12)]
    shifted = np.frombuffer(b"\0" * 3 + x.tobytes(), "u1")[3:]
    dates = pa.array(x.astype("i8"), mask=x > 9)
    mixed = pa.table(
        {"a": words, "b": dates.cast(pa.timestamp("ms", "UTC")), "c": pa.array(x > 5, mask=x > 8)}
    )
    mixed = mixed.append_column("d", dates.cast(pa.timestamp("ns"))).append_column("e", pa.array(x))
    named = pa.field("a", pa.float64(), metadata={"ARROW:extension:name": "other.type"})
    misaligned = pa.Array.from_buffers(pa.float64(), 12, [None, pa.py_buffer(shifted)])
    return {
        "numbers": numbers,
        "one type": pa.table({"a": x, "b": x + 1, "c": x + 2}),
        "one column": pa.table({"a": x}),
        "nulls": pa.table({"a": pa.array(x, mask=x > 9), "b": pa.array(x.astype("i8"), mask=x < 2)}),
        "all null": pa.table({"a": pa.array([None] * 12, "int64"), "b": x}),
        "NaN": pa.table({"a": np.where(x > 3, np.nan, x), "b": x}),
        "text": pa.table({"a": words, "b": x}),
        "large text": pa.table({"a": pa.array(words, "large_string"), "b": x}),
        "views": pa.table({"a": pa.array(words, "string_view"), "b": x}),
        "bytes": pa.table({"a": pa.array([b"x"] * 12), "b": x}),
        "booleans": pa.table({"a": x > 3, "b": pa.array(x > 5, mask=x > 8)}),
        "float16": pa.table({"a": x.astype("f2"), "b": x}),
        "dates": pa.table({"a": pa.array(x.astype("i4")).cast("date32"), "b": x}),
        "seconds": pa.table({"a": pa.array(x.astype("i8")).cast(pa.timestamp("s", "UTC")), "b": x}),
        "decimals": pa.table({"a": pa.array(x).cast(pa.decimal128(9, 2)), "b": x}),
        "categories": pa.table({"a": pa.array(words).dictionary_encode(), "b": x}),
        "lists": pa.table({"a": pa.array([[1.0, 2.0]] * 12), "b": x}),
        "structs": pa.table({"a": pa.array([{"k": 1}] * 12), "b": x}),
        "nothing": pa.table({"a": pa.nulls(12), "b": x}),
        "misaligned": pa.table({"a": misaligned, "b": x}),
        "slice": numbers.slice(3, 5),
        "slice of text": pa.table({"a": words, "b": x}).slice(3, 5),
        "chunks": pa.concat_tables([numbers, numbers]),
        "one chunk of dates": mixed,
        "chunks of dates and text": pa.concat_tables(
            [mixed.slice(3, 5), mixed, mixed.slice(0, 0), mixed.slice(9)]
        ),
        "chunks that end at different rows": pa.table(
            {"a": pa.chunked_array([x[:5], x[5:]]), "b": pa.chunked_array([words[:7], words[7:]])}
        ),
        "chunks of bytes": pa.table(
            {"a": pa.chunked_array([[b"x"], [b"y"]]), "b": pa.chunked_array([[1], [2]])}
        ),
        "chunks of seconds": pa.table(
            {"a": pa.chunked_array([[1], [2]]).cast(pa.timestamp("s")), "b": [1, 2]}
        ),
        "an unknown extension type": pa.table([pa.array(x)], pa.schema([named])),
        "chunks of an unknown extension type": pa.table([pa.chunked_array([x, x])], pa.schema([named])),
        "no rows": numbers.slice(0, 0),
        "metadata": numbers.replace_schema_metadata({"k": "v"}),
        "metadata of a column": pa.table(
            [pa.array(x)], pa.schema([pa.field("a", pa.float64(), metadata={"k": "v"})])
        ),
        "an empty label": pa.table([x, x], ["", "b"]),
        "one label twice": pa.table([pa.array(x), pa.array(x)], ["a", "a"]),
        "labels that differ by case": pa.table([x, x], ["a", "A"]),
        "a zero byte": pa.table([x, x], ["a\0b", "c"]),
        "other letters": pa.table([x, x], ["Ä", "ä"]),
    }


@cache
def sources_of(name: str, framework: str) -> list[Any]:
    """Return a table of Arrow as tables and columns of a framework, made by zerocopy and by the framework."""
    made, table = [], tables_of_arrow()[name]
    if framework == "polars" and table.column_names[0] == "a":
        pl = pytest.importorskip("polars")
        made = [pl.DataFrame({"a": [1.0, 2.0, 3.0]}).with_columns(b=pl.lit(2.0)), pl.select(b=pl.lit(2.0))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        makers = [lambda: zc.convert(table, framework), lambda: zc.convert(table[0], framework)]
        if framework == "pandas":
            makers += [table.to_pandas, lambda: table.to_pandas().set_index(table.column_names[0])]
            makers += [
                lambda: table.to_pandas().rename_axis(columns="k"),
                lambda: table.to_pandas().add_prefix(""),
            ]
            makers += [
                lambda: table.to_pandas().rename(columns={"a": 1}),
                lambda: table[0].to_pandas(),
                lambda: table.to_pandas()[["a"]].iloc[::2],
            ]
            makers += [lambda: table.to_pandas().iloc[::2], lambda: table.to_pandas().iloc[2:9]]
            makers += [lambda: table.to_pandas().convert_dtypes()]
        for make in makers:
            try:
                made.append(make())
            except (zc.ZeroCopyError, ValueError, KeyError, TypeError, NotImplementedError):
                continue
    return made


@cache
def matrices() -> dict[str, np.ndarray]:
    """Return matrices, of which some become columns with names by a route."""
    x = np.arange(60.0).reshape(12, 5)
    frozen = x.copy()
    frozen.flags.writeable = False
    return {
        "rows": x,
        "columns": np.asfortranarray(x),
        "read-only": frozen,
        "gaps": x[::2],
        "gaps in columns": np.asfortranarray(x)[2:7],
        "reversed": x[::-1],
        "part": np.arange(70.0).reshape(10, 7)[:, :5],
        "whole numbers": x.astype("i2"),
        "booleans": x > 3,
        "complex": x.astype("c16"),
        "float16": x.astype("f2"),
        "longdouble": x.astype("g"),
        "the other byte order": x.astype(">f8"),
        "no rows": x[:0],
        "one row": x[:1],
        "too few": x[:, :4],
        "a vector": x[0],
        "three dimensions": x.reshape(12, 5, 1),
        "misaligned": np.frombuffer(b"\0" + x.tobytes(), "u1")[1:].view("f8").reshape(x.shape),
        "text": np.array([["a"] * 5]),
    }
