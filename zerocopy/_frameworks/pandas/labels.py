"""Labels of pandas in JSON: those that are not strings come back from an Arrow schema as they were.

This module does not import pandas: callers pass the module as `pd`.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from zerocopy.protocols.exporter_errors import is_error

#: The key of an entry of the metadata that holds a label.
KEY = "zerocopy"
_UNKNOWN = "text"


def encode(label: Hashable) -> Any:
    """Return a label as JSON: a string as it is, others as a list of a type's name and a value.

    Examples
    --------
    >>> encode("a"), encode(decimal.Decimal("1.50")), encode((1, None))
    ('a', ['Decimal', '1.50'], ['tuple', [['int', 1], ['NoneType', None]]])
    """
    if type(label) is str:
        return label
    name = type(label).__name__
    known = type(label).__module__.partition(".")[0] in _PACKAGES
    write = _WRITERS.get(name) if known else None
    if write is None and isinstance(label, np.generic) and label.dtype.kind in "biufmM":
        return ["numpy", [label.dtype.str, label.tobytes().hex()]]
    value = None if write is None else write(label)
    return [_UNKNOWN, name] if value is _UNKNOWN or write is None else [name, value]


def decode(pd: Any, value: Any) -> Any:
    """Return the label that `encode` wrote.

    Raises
    ------
    ValueError
        The label's type cannot be written as JSON.
    """
    if isinstance(value, str):
        return value
    name, content = value
    if name == "tuple":
        return tuple(decode(pd, item) for item in content)
    if name not in _READERS:
        raise ValueError(f"a label of type {content} became text")
    return _READERS[name](pd, content)


def unrestorable(value: Any) -> str:
    """Return the name of the type of a label that `decode` cannot restore; empty for others."""
    if isinstance(value, str):
        return ""
    name, content = value
    if name == "tuple":
        return next((kind for item in content if (kind := unrestorable(item))), "")
    return str(content) if name not in _READERS else ""


def index_of(pd: Any, labels: list[Any], dtype: str | None = None, name: Hashable = None) -> Any:
    """Return labels as an index of a type, or of the type that pandas infers if it keeps them as they are."""
    if dtype not in (None, "object"):
        try:
            return pd.Index(labels, dtype=dtype, name=name, tupleize_cols=False)
        except (TypeError, ValueError, AttributeError) as error:
            if not is_error(error):
                raise
            # the labels have changed since the type was written
    if all(type(label) is str for label in labels) and dtype is None:
        return pd.Index(labels, name=name) if labels else pd.RangeIndex(0, name=name)
    if dtype is None:
        index = pd.Index(labels, name=name, tupleize_cols=False)
        # pandas would turn None among text or numbers into NaN, and the integers with it into floats.
        if [type(label) for label in index.tolist()] == [type(label) for label in labels]:
            return index
    values = np.empty(len(labels), object)
    values[:] = labels
    return pd.Index(values, dtype=object, name=name, tupleize_cols=False)


def _zone(tz: Any) -> Any:
    """Return a time zone's name, None without a zone, or `_UNKNOWN`."""
    if tz is None:
        return None
    key = getattr(tz, "key", None) or getattr(tz, "zone", None)
    return key or ("UTC" if tz is datetime.UTC else _UNKNOWN)


def _write_timestamp(label: Any) -> Any:
    zone = _zone(label.tz)
    return _UNKNOWN if zone is _UNKNOWN else [int(label.asm8.view("i8")), label.unit, zone]


def _read_timestamp(pd: Any, content: list[Any]) -> Any:
    count, unit, zone = content
    moment = pd.Timestamp(np.datetime64(count, unit))
    return moment if zone is None else moment.tz_localize("UTC").tz_convert(zone)


def _write_datetime(label: Any) -> Any:
    known = label.tzinfo is None or type(label.tzinfo) is datetime.timezone
    return [label.isoformat(), label.fold] if known else _UNKNOWN


def _write_interval(label: Any) -> Any:
    ends = [encode(label.left), encode(label.right)]
    return _UNKNOWN if any(map(unrestorable, ends)) else [*ends, label.closed]


_PACKAGES = ("builtins", "datetime", "decimal", "pandas")
_WRITERS: dict[str, Callable[[Any], Any]] = {
    "NoneType": lambda label: None,
    "bool": bool,
    "int": int,
    "float": repr,
    "complex": repr,
    "bytes": bytes.hex,
    "tuple": lambda label: [encode(item) for item in label],
    "Decimal": str,
    "date": lambda label: label.isoformat(),
    "time": lambda label: label.isoformat() if label.tzinfo is None else _UNKNOWN,
    "datetime": _write_datetime,
    "timedelta": lambda label: [label.days, label.seconds, label.microseconds],
    "Timestamp": _write_timestamp,
    "Timedelta": lambda label: [int(label.asm8.view("i8")), label.unit],
    "Period": lambda label: [label.ordinal, label.freqstr],
    "Interval": _write_interval,
    "NaTType": lambda label: None,
    "NAType": lambda label: None,
}
_READERS: dict[str, Callable[[Any, Any], Any]] = {
    "NoneType": lambda pd, content: None,
    "bool": lambda pd, content: content,
    "int": lambda pd, content: content,
    "float": lambda pd, content: float(content),
    "complex": lambda pd, content: complex(content),
    "bytes": lambda pd, content: bytes.fromhex(content),
    "tuple": lambda pd, content: tuple(decode(pd, item) for item in content),
    "Decimal": lambda pd, content: decimal.Decimal(content),
    "date": lambda pd, content: datetime.date.fromisoformat(content),
    "time": lambda pd, content: datetime.time.fromisoformat(content),
    "datetime": lambda pd, content: datetime.datetime.fromisoformat(content[0]).replace(fold=content[1]),
    "timedelta": lambda pd, content: datetime.timedelta(*content),
    "Timestamp": _read_timestamp,
    "Timedelta": lambda pd, content: pd.Timedelta(np.timedelta64(*content)),
    "Period": lambda pd, content: pd.Period(ordinal=content[0], freq=content[1]),
    "Interval": lambda pd, content: pd.Interval(decode(pd, content[0]), decode(pd, content[1]), content[2]),
    "NaTType": lambda pd, content: pd.NaT,
    "NAType": lambda pd, content: pd.NA,
    "numpy": lambda pd, content: np.frombuffer(bytes.fromhex(content[1]), content[0])[0],
}
