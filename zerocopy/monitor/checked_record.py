"""Checks that parsed JSON is a `ProcessRecord`, so that readers can rely on its types."""

from __future__ import annotations

import types
import typing
from functools import cache
from typing import Any

from zerocopy.monitor.conversion import ConversionRow
from zerocopy.monitor.sample import ProcessRecord

FORMAT = 1
_LARGEST = 1 << 63


def checked(value: object) -> ProcessRecord:
    """Return a record with the known fields of `value`.

    Raises
    ------
    ValueError
        A field is missing or has another type. The message names the field.
    """
    if isinstance(value, dict) and type(value.get("format")) is int and value["format"] != FORMAT:
        version = value["format"]
        raise ValueError(f"its format is {version}; this version of zerocopy reads format {FORMAT}")
    record: ProcessRecord = _convert(value, ProcessRecord, "record")
    rows = record["conversions"]
    record["conversions"] = [_fields(row, ConversionRow, f"conversions[{i}]") for i, row in enumerate(rows)]
    return record


def _convert(value: Any, expected: Any, path: str) -> Any:
    """Return a value of the expected type; an int passes as a float."""
    origin = typing.get_origin(expected)
    if origin in (types.UnionType, typing.Union):  # of a type and None
        choices = typing.get_args(expected)
        return None if value is None else _convert(value, choices[0], path)
    if origin is list and type(value) is list:
        (item,) = typing.get_args(expected)
        return [_convert(each, item, f"{path}[{i}]") for i, each in enumerate(value)]
    if origin is dict and type(value) is dict:
        item = typing.get_args(expected)[1]
        return {key: _convert(each, item, f"{path}[{key[:40]!r}]") for key, each in value.items()}
    if typing.is_typeddict(expected) and type(value) is dict:
        return _fields(value, expected, path)
    if expected is Any:
        return value
    if expected is float and type(value) in (int, float) and abs(value) < _LARGEST:  # False for NaN
        return float(value)
    if expected in (str, bool) and type(value) is expected:
        return value
    if expected is int and type(value) is int and abs(value) < _LARGEST:
        return value
    name = getattr(expected, "__name__", str(expected))
    raise ValueError(f"{path} is not {name}: {repr(value)[:60]}")


def _fields(value: dict[str, Any], expected: type, path: str) -> Any:
    """Return the fields of a `TypedDict` or a dataclass; others are dropped."""
    result = {}
    for name, annotation in _hints(expected).items():
        if name not in value:
            raise ValueError(f"{path} lacks {name!r}")
        result[name] = _convert(value[name], annotation, f"{path}.{name}")
    return result


@cache
def _hints(expected: type) -> dict[str, Any]:
    return typing.get_type_hints(expected)
