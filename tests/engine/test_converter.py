"""``converter``: converters return what ``convert`` returns; schemas of unsupported types are refused."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from helpers.arrays import sample
from helpers.frameworks import HOST
from helpers.table_cases import KINDS, TABLES, shaped
from helpers.tiers import sampled

import zerocopy as zc
from zerocopy import registry
from zerocopy._native import core

pa = pytest.importorskip("pyarrow")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("to", [*HOST, *(t for t in TABLES if t not in HOST)])
@pytest.mark.parametrize("options", [{}, {"copy": False}, {"encode": True}, {"nulls": "mask"}], ids=str)
def test_a_refused_schema_is_one_that_convert_refuses(to: str, options: dict[str, Any]) -> None:
    """converter raises only what every table with the schema raises, also one without rows."""
    for (name,) in sampled(3, [*KINDS], first=len(to + str(options))):
        column = shaped(KINDS[name], "plain")
        table = pa.table({"x": column, "y": pa.array(np.arange(len(column)))})
        try:
            converter = zc.converter(table.schema, to, **options)
        except zc.ZeroCopyError as error:
            for rows in (table, table.slice(0, 0)):
                with pytest.raises(zc.ZeroCopyError) as refusal:
                    zc.convert(rows, to, **options)
                assert (type(refusal.value), refusal.value.code) == (type(error), error.code), name  # noqa: PT017
        else:
            assert kind_of(converter, table) == kind_of(zc.convert, table, to, **options), name


def kind_of(convert: Any, *arguments: Any, **options: Any) -> Any:
    """Return the type of a result, or of an error with its code."""
    try:
        return type(convert(*arguments, **options))
    except zc.ZeroCopyError as error:
        return type(error), error.code


def test_schemas_of_other_libraries_and_single_types() -> None:
    text = pa.schema({"x": pa.int64(), "name": pa.string()})
    schemas = [text]
    for library in ("polars", "nanoarrow"):
        module = pytest.importorskip(library) if library in registry.frameworks() else None
        if module is not None and registry.frameworks()[library].installed:
            schemas.append(
                module.Schema({"x": module.Int64, "name": module.String})
                if library == "polars"
                else module.c_schema(text)
            )
    for schema in schemas:
        with pytest.raises(zc.UnsupportedConversionError, match="name"):
            zc.converter(schema, "numpy")
        assert zc.converter(schema, "numpy", columns=["x"])(pa.table({"x": [1]}))["x"].tolist() == [1]
    with pytest.raises(zc.UnsupportedConversionError):
        zc.converter(pa.string(), "numpy")
    assert zc.converter(pa.int64(), "numpy")(pa.array([1, 2])).tolist() == [1, 2]


def test_a_schema_names_missing_columns() -> None:
    schema = pa.schema({"price": pa.float64()})
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.converter(schema, "numpy", columns=["prices"])
    assert caught.value.code == "unknown-name"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"to": "numpyy"}, zc.errors.UnknownFrameworkError),
        ({"to": "numpy", "copy": 1}, ValueError),
        ({"to": "numpy", "colour": 1}, TypeError),
        ({"to": "numpy", "dtype": "floot"}, ValueError),
        ({"to": "numpy", "device": "cuda"}, zc.DeviceError),
        ({"to": "numpy", "layout": "rows"}, ValueError),
        ({"to": "numpy", "columns": "a"}, ValueError),
    ],
)
def test_certain_errors_are_raised_at_once(options: dict[str, Any], error: type[Exception]) -> None:
    for subject in (np.ndarray, sample("f4"), pa.schema({"a": pa.int64()})):
        with pytest.raises(error):
            zc.converter(subject, **options)


def test_options_are_copied() -> None:
    labels, nulls = ["a"], {"a": 0}
    table = pa.table({"a": [1, None], "b": [2, 3]})
    converter = zc.converter(table, "numpy", columns=labels, nulls=nulls)
    labels[:] = ["b"]
    nulls["a"] = 7
    matrix = {"layout": "matrix", "order": "F"}
    assert zc.converter(pa.table({"a": [1]}), "numpy", **matrix).options == matrix
    converter.options["columns"] = None
    assert converter.options == {"columns": ["a"], "nulls": {"a": 0}}
    assert {name: x.tolist() for name, x in converter(table).items()} == {"a": [1, 0]}
    once = zc.converter(table, "numpy", columns=iter(["b"]))
    assert [list(once(table)) for _ in range(3)] == [["b"]] * 3


def test_representation_and_explanation() -> None:
    x = sample("f4", (64,))
    converter = zc.converter(x, "numpy", copy=True)
    assert repr(converter) == "<converter to 'numpy', copy=True>"
    assert (converter.to, converter.options) == ("numpy", {"copy": True})
    for name in ("to", "options"):  # a call would not use the new value
        with pytest.raises(AttributeError):
            setattr(converter, name, "torch")
    assert str(converter.explain(x)) == str(zc.explain(x, "numpy", copy=True))
    assert repr(zc.converter(np.ndarray, np)) == "<converter to numpy>"


def test_pickled_converter() -> None:
    table = pa.table({"a": [1], "b": [2]})
    converter = pickle.loads(pickle.dumps(zc.converter(table.schema, "numpy", columns=["b"])))
    assert list(converter(table)) == ["b"]
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(zc.converter(table.schema, np))


@pytest.mark.parametrize("options", [{}, {"copy": False}], ids=str)
def test_a_converter_has_the_routes_before_and_after_they_are_dropped(options: dict[str, Any]) -> None:
    x = sample("f4", (64,))
    converter = zc.converter(x, "numpy", **options)
    has_routes = core is not None or not options
    assert (converter._routes.get(np.ndarray) is not None) == has_routes
    zc.register(registry.by_name("numpy"))
    assert converter._routes.get(np.ndarray) is None
    assert converter(x) is x
    assert (converter._routes.get(np.ndarray) is not None) == has_routes
