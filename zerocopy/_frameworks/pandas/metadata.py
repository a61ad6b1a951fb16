"""The ``b"pandas"`` entry of an Arrow schema: which columns are the index, and the types of labels.

The JSON is that of pandas' developer guide, "Storing pandas DataFrame objects in Apache
Parquet format"; pyarrow writes it in ``Table.from_pandas`` and reads it in ``to_pandas``.
"""

from __future__ import annotations

import json
import re
from ast import literal_eval
from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from itertools import count
from math import isfinite
from typing import Any

import numpy as np

from zerocopy._frameworks.pandas import labels
from zerocopy._version import __version__
from zerocopy.protocols.exporter_errors import is_error

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
    #: The labels in pandas of the fields of one name, in order, as `labels.encode` writes them.
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
                labels.append(_restored(pd, known[seen[name] % len(known)], name))
            else:
                labels.append(name)
            seen[name] += 1
        return labels

    @property
    def lost(self) -> list[str]:
        """The types of labels that became text for good."""
        values = [value for known in self.names.values() for value in known if isinstance(value, list)]
        return list(dict.fromkeys(kind for value in values if (kind := labels.unrestorable(value))))


def _restored(pd: Any, value: Any, text: str) -> Any:
    try:
        return labels.decode(pd, value) if isinstance(value, list) else value
    except (ValueError, TypeError, KeyError, IndexError, ArithmeticError) as error:
        if not is_error(error):
            raise
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
    return entry if label is None or type(label) is str else {**entry, labels.KEY: labels.encode(label)}


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
    except (KeyError, TypeError, ValueError) as error:
        if not is_error(error):
            raise
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
    except (TypeError, ValueError) as error:
        if not is_error(error):
            raise
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
            label = None if generated else column.get(labels.KEY, column["name"])
            names.setdefault(name, []).append(label)
        levels = [dict(level) for level in entry.get("column_indexes") or ()]
        index = list(entry["index_columns"])
        return IndexMetadata(index, names, levels, dict(entry.get("attributes") or {}))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if not is_error(error):
            raise
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
        return labels.index_of(pd, fields)
    names = [_restored(pd, level.get(labels.KEY, level.get("name")), "") for level in metadata.labels]
    text = all(isinstance(label, str) for label in fields)
    if text and _DTYPE not in metadata.labels[0]:
        return _of_other_writers(pd, fields, metadata, names)
    rows = metadata.restored(pd, fields) if text else fields
    types = [level.get(_DTYPE) for level in metadata.labels]
    if len(names) == 1:
        return labels.index_of(pd, rows, types[0], names[0])
    if any(type(row) is not tuple or len(row) != len(names) for row in rows):
        return labels.index_of(pd, rows)  # the metadata does not fit the labels
    columns = list(zip(*rows, strict=True)) if rows else [() for _ in names]
    levels = [labels.index_of(pd, list(c), dtype) for c, dtype in zip(columns, types, strict=True)]
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
    except (ValueError, TypeError, SyntaxError, KeyError) as error:
        if not is_error(error):
            raise
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
