"""The ``b"pandas"`` entry of an Arrow schema: which columns are the index, and the labels with their types.

The JSON is that of pandas' developer guide, "Storing pandas DataFrame objects in Apache
Parquet format"; pyarrow writes it in ``Table.from_pandas`` and reads it in ``to_pandas``. Labels that are not
strings have an entry of their own, and come back as they were. Callers pass pandas as `pd`.
"""

from __future__ import annotations

import datetime
import decimal
import json
import re
from ast import literal_eval
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from itertools import count
from math import isfinite
from typing import Any

import numpy as np

from zerocopy._version import __version__

#: The key of an entry of the metadata that holds a label.
_LABEL = "zerocopy"
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
        except (TypeError, ValueError, AttributeError):
            pass  # the labels have changed since the type was written
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


KEY = b"pandas"
#: The dtype of a level of the labels, in its description.
_DTYPE = "zerocopy_dtype"
_GENERATED = re.compile(r"__index_level_\d+__")

#: A type in the JSON: ``pandas_type``, ``numpy_type``, ``metadata``.
TypeEntry = tuple[str, str, dict[str, Any] | None]


@dataclass(frozen=True, slots=True)
class IndexMetadata:
    """The contents of the entry."""

    #: A field's name for each level of the index, or a dict that describes a range.
    index: list[Any] = field(default_factory=list)
    #: The labels in pandas of the fields of one name, in order, as `encode` writes them.
    names: dict[str, list[Any]] = field(default_factory=dict)
    #: A description of each level of the column labels.
    labels: list[dict[str, Any]] = field(default_factory=list)
    #: The data frame's ``attrs``.
    attributes: dict[str, Any] = field(default_factory=dict)

    def level_name(self, pd: Any, field_name: str) -> Any:
        """Return the name of a level of the index; None if its field's name was generated."""
        if field_name not in self.names:
            return None if _GENERATED.fullmatch(field_name) else field_name
        return _restored(pd, self.names[field_name][-1], field_name)

    def restored(self, pd: Any, fields: Sequence[str]) -> list[Any]:
        """Return the labels in pandas of a table's fields; a text that is ambiguous stays text."""
        counts, seen = Counter(fields), Counter[str]()
        labels = []
        for name in fields:
            known = self.names.get(name, [])
            if known and (len(known) == counts[name] or all(label == known[0] for label in known)):
                label = _restored(pd, known[seen[name] % len(known)], name)
                # A level without a name that is a column keeps its field's name.
                labels.append(name if label is None and _GENERATED.fullmatch(name) else label)
            else:
                labels.append(name)
            seen[name] += 1
        return labels

    @property
    def lost(self) -> list[str]:
        """The types of labels that became text for good."""
        values = [value for known in self.names.values() for value in known if isinstance(value, list)]
        return list(dict.fromkeys(kind for value in values if (kind := unrestorable(value))))


def _restored(pd: Any, value: Any, text: str) -> Any:
    try:
        return decode(pd, value) if isinstance(value, list) else value
    except (ValueError, TypeError, KeyError, IndexError, ArithmeticError):
        return text


def generated_name(level: int, taken: Collection[str] = ()) -> str:
    """Return the field's name for a level of the index that has no name, or whose name is `taken`.

    Examples
    --------
    >>> generated_name(0), generated_name(0, {"__index_level_0__"})
    ('__index_level_0__', '__index_level_1__')
    """
    return next(name for i in count(level) if (name := f"__index_level_{i}__") not in taken)


def column_entry(label: Hashable, field_name: str, dtype: TypeEntry, mixed: bool = False) -> dict[str, Any]:
    """Return the description of one column.

    If the labels have several types (`mixed`), numbers stay numbers, because the entry has no
    single type from which pyarrow could restore them. zerocopy restores a label from an entry of its own.
    """
    if type(label) is str:
        name: Any = label
    else:
        number = mixed and isinstance(label, (bool, int, float)) and isfinite(label)
        name = label if label is None or number else _label_text(label)
    keys = ("name", "field_name", "pandas_type", "numpy_type", "metadata")
    entry = dict(zip(keys, (name, field_name, *dtype), strict=True))
    return entry if label is None or type(label) is str else {**entry, _LABEL: encode(label)}


def _label_text(label: Any) -> str:
    if isinstance(label, bytes):
        return label.decode(errors="backslashreplace")
    # Tuples in pyarrow's notation, which literal_eval can read.
    return str(tuple(map(_label_text, label))) if isinstance(label, tuple) else str(label)


def range_entry(start: int, stop: int, step: int, name: str | None = None) -> dict[str, Any]:
    """Return the description of an index that is a range and not a column."""
    return {"kind": "range", "name": name, "start": start, "stop": stop, "step": step}


def range_of(description: dict[str, Any]) -> range:
    """Return the range of a `range_entry`; an empty one if the description is invalid."""
    try:
        return range(description["start"], description["stop"], description["step"])
    except (KeyError, TypeError, ValueError):
        return range(0)


def write(
    columns: Sequence[dict[str, Any]],
    index: Sequence[Any],
    levels: Sequence[dict[str, Any]],
    attributes: dict[Any, Any],
    version: str,
) -> dict[bytes, bytes]:
    """Return schema metadata that has this entry only.

    Examples
    --------
    >>> read(write([], [range_entry(0, 4, 2)], [], {}, "3.0")).index
    [{'kind': 'range', 'name': None, 'start': 0, 'stop': 4, 'step': 2}]
    """
    try:
        kept = not attributes or json.loads(json.dumps(attributes)) == attributes
    except (TypeError, ValueError):
        kept = False  # JSON cannot represent it; pyarrow omits attrs, too
    entry = {
        "index_columns": list(index),
        "column_indexes": list(levels),
        "columns": list(columns),
        "attributes": attributes if kept else {},
        "creator": {"library": "zerocopy", "version": __version__},
        "pandas_version": version,
    }
    return {KEY: json.dumps(entry).encode()}


def read(metadata: dict[bytes, bytes]) -> IndexMetadata | None:
    """Return the contents of the entry; None if it is missing or invalid."""
    text = metadata.get(KEY)
    if text is None:
        return None
    try:
        entry = json.loads(text)
        names: dict[str, list[Any]] = {}
        for column in entry["columns"]:
            name = str(column.get("field_name", column["name"]))
            generated = "field_name" not in column and _GENERATED.fullmatch(name)
            label = None if generated else column.get(_LABEL, column["name"])
            names.setdefault(name, []).append(label)
        levels = [dict(level) for level in entry.get("column_indexes") or ()]
        index = list(entry["index_columns"])
        return IndexMetadata(index, names, levels, dict(entry.get("attributes") or {}))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None  # not JSON of pandas


def select(metadata: dict[bytes, bytes], fields: Collection[str]) -> dict[bytes, bytes]:
    """Return the metadata without the levels of the index that are not among the fields.

    pyarrow raises KeyError for a level without a column. Without fields, no column is an index.
    """
    if read(metadata) is None:
        return metadata
    entry = json.loads(metadata[KEY])
    levels = entry["index_columns"]
    kept = [level for level in levels if fields and (isinstance(level, dict) or level in fields)]
    if kept == levels:
        return metadata
    entry["index_columns"] = kept
    return {**metadata, KEY: json.dumps(entry).encode()}


# -- types, as pandas' metadata names them; `pd` is the module -------------------


@lru_cache(maxsize=64)
def _name_of(dtype: np.dtype[Any]) -> str:
    """Return a dtype's name, which NumPy computes in Python: 3 us for each column."""
    return dtype.name


def type_entry(pd: Any, dtype: Any) -> TypeEntry:
    """Return a type as pandas' metadata names it."""
    if isinstance(dtype, np.dtype) and dtype.kind in "iufb":
        name = _name_of(dtype)
        return name, name, None
    text = str(dtype)
    if isinstance(dtype, np.dtype):
        kinds = {"O": "object", "M": "datetime", "m": "timedelta", "S": "bytes", "V": "bytes"}
        return kinds.get(dtype.kind, dtype.name), "object" if dtype.kind in "SV" else text, None
    if isinstance(dtype, pd.CategoricalDtype):
        size = len(dtype.categories)
        codes = next(f"int{n}" for n in (8, 16, 32, 64) if size < 2 ** (n - 1))
        return "categorical", codes, {"num_categories": size, "ordered": bool(dtype.ordered)}
    if isinstance(dtype, pd.DatetimeTZDtype):
        return "datetimetz", f"datetime64[{dtype.unit}]", {"timezone": zone(dtype.tz) or str(dtype.tz)}
    if isinstance(dtype, pd.StringDtype):
        return "unicode", text, None
    if isinstance(dtype, pd.ArrowDtype):
        # to_pandas() raises for types that pandas cannot read from their own names.
        return "object", text if text.partition("[")[0].isalnum() else "object", None
    return getattr(getattr(dtype, "numpy_dtype", None), "name", "object"), text, None


def zone(tz: Any) -> str:
    """Return a time zone as Arrow writes it; an empty string for one that only pyarrow can name."""
    key = getattr(tz, "key", None) or getattr(tz, "zone", None)
    offset = None if key else tz.utcoffset(None)
    if offset is None:
        return key or ""
    if not offset:
        return "UTC"
    minutes, rest = divmod(abs(offset), timedelta(minutes=1))
    sign = "-" if offset < timedelta() else "+"
    return "" if rest else f"{sign}{minutes // 60:02}:{minutes % 60:02}"


def label_entry(pd: Any, level: Any) -> dict[str, Any]:
    """Describe one level of the column labels, so that their types can be restored."""
    dtype = level.dtype
    entry: TypeEntry = ("unicode", "object", {"encoding": "UTF-8"})
    if isinstance(dtype, pd.DatetimeTZDtype) or (isinstance(dtype, np.dtype) and dtype.kind in "iufbM"):
        entry = type_entry(pd, dtype)
        if entry[0] == "datetime":
            entry = (str(dtype), str(dtype), None)
    elif isinstance(dtype, pd.StringDtype):
        entry = ("unicode", str(dtype), {"encoding": "UTF-8"})
    elif isinstance(dtype, np.dtype) and dtype.kind == "O":
        inferred = pd.api.types.infer_dtype(level)
        if inferred == "bytes":
            entry = ("bytes", "object", None)
        elif inferred not in ("string", "empty"):
            entry = ("mixed", "object", None)
    column = column_entry(level.name, "", entry)
    # A CategoricalIndex comes back as its values.
    plain = dtype.categories.dtype if isinstance(dtype, pd.CategoricalDtype) else dtype
    return {**column, "field_name": column["name"], _DTYPE: str(plain)}


def labels_index(pd: Any, fields: list[Any], metadata: IndexMetadata | None) -> Any:
    """Return the column labels as an index, with their types in pandas."""
    if metadata is None or not metadata.labels:
        return index_of(pd, fields)
    names = [_restored(pd, level.get(_LABEL, level.get("name")), "") for level in metadata.labels]
    text = all(isinstance(label, str) for label in fields)
    if text and _DTYPE not in metadata.labels[0]:
        return _of_other_writers(pd, fields, metadata, names)
    rows = metadata.restored(pd, fields) if text else fields
    types = [level.get(_DTYPE) for level in metadata.labels]
    if len(names) == 1:
        return index_of(pd, rows, types[0], names[0])
    if any(type(row) is not tuple or len(row) != len(names) for row in rows):
        return index_of(pd, rows)  # the metadata does not fit the labels
    columns = list(zip(*rows, strict=True)) if rows else [() for _ in names]
    levels = [index_of(pd, list(c), dtype) for c, dtype in zip(columns, types, strict=True)]
    return pd.MultiIndex.from_arrays(levels, names=names)


def _of_other_writers(pd: Any, fields: list[str], metadata: IndexMetadata, names: list[Any]) -> Any:
    """Return the column labels of a schema that pyarrow wrote, whose labels are texts."""
    try:
        texts = metadata.restored(pd, fields)
        if len(names) == 1:
            return _label_values(pd, texts, metadata.labels[0]).rename(names[0])
        # Labels of several levels are written as tuples.
        rows = [literal_eval(text) for text in texts]
        columns = zip(*rows, strict=True) if rows else [[] for _ in names]
        levels = [
            _label_values(pd, list(c), level) for c, level in zip(columns, metadata.labels, strict=True)
        ]
        return pd.MultiIndex.from_arrays(levels, names=names)
    except (ValueError, TypeError, SyntaxError, KeyError):
        return pd.Index(fields)  # the metadata does not fit the labels


def _label_values(pd: Any, texts: list[Any], level: dict[str, Any]) -> Any:
    kind, numpy_type = level.get("pandas_type", "unicode"), level.get("numpy_type", "object")
    if kind == "bytes":
        return pd.Index([text.encode() for text in texts])
    if kind == "bool":
        return pd.Index([str(text) == "True" for text in texts], dtype=bool)
    if kind == "datetimetz":
        zoned = pd.to_datetime(texts, utc=True).tz_convert(level["metadata"]["timezone"])
        return zoned.as_unit(np.datetime_data(numpy_type)[0])
    if kind in ("unicode", "string", "empty") or "mixed" in kind:
        return pd.Index(texts, dtype=None if texts else numpy_type)
    return pd.Index(texts).astype(numpy_type)
