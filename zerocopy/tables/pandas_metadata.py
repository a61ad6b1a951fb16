"""The ``b"pandas"`` entry of an Arrow schema: which columns are an index, and what labels were.

The JSON is that of pandas' developer guide, "Storing pandas DataFrame objects in Apache
Parquet format"; pyarrow writes it in ``Table.from_pandas`` and reads it in ``to_pandas``.
"""

from __future__ import annotations

import json
import re
from ast import literal_eval
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import numpy as np

from zerocopy import __version__

KEY = b"pandas"
_GENERATED = re.compile(r"__index_level_\d+__")

#: A type as the JSON has it: ``pandas_type``, ``numpy_type``, ``metadata``.
Typed = tuple[str, str, dict[str, Any] | None]


@dataclass(frozen=True, slots=True)
class Said:
    """What the entry says.

    Attributes
    ----------
    index : list
        A field's name for each level of the index, or a dict that describes a range.
    names : dict
        What each field was called in pandas, by the field's name.
    labels : list of dict
        A description of each level of the column labels.
    attributes : dict
        The data frame's ``attrs``.
    """

    index: list[Any] = field(default_factory=list)
    names: dict[str, Any] = field(default_factory=dict)
    labels: list[dict[str, Any]] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)

    def level_name(self, field_name: str) -> Any:
        """Return what a level of the index was called; None if its field's name was made up."""
        name = self.names.get(field_name, field_name)
        made_up = name == field_name and _GENERATED.fullmatch(field_name)
        return None if made_up else name


def level(place: int) -> str:
    """Return the name of the field of an index's level that has none.

    Examples
    --------
    >>> level(0)
    '__index_level_0__'
    """
    return f"__index_level_{place}__"


def entry(label: Hashable, field_name: str, of: Typed, mixed: bool = False) -> dict[str, Any]:
    """Return the description of one column.

    Parameters
    ----------
    label : hashable
        What pandas calls it.
    field_name : str
        What the Arrow column is called.
    of : tuple
        ``pandas_type``, ``numpy_type`` and ``metadata``.
    mixed : bool
        Whether the labels are of several types: then numbers stay numbers, since no
        one type is named from which they could be read again.
    """
    kept = label is None or (mixed and isinstance(label, (bool, int, float)))
    name = label if kept else _said(label)
    return {
        "name": name,
        "field_name": field_name,
        "pandas_type": of[0],
        "numpy_type": of[1],
        "metadata": of[2],
    }


def _said(label: Any) -> str:
    if isinstance(label, bytes):
        return label.decode(errors="backslashreplace")
    # A tuple as pyarrow writes it, so that literal_eval reads it whatever is inside.
    return str(tuple(map(_said, label))) if isinstance(label, tuple) else str(label)


def span(start: int, stop: int, step: int, name: str | None = None) -> dict[str, Any]:
    """Return the description of an index that is a range, and no column."""
    return {"kind": "range", "name": name, "start": start, "stop": stop, "step": step}


def range_of(described: dict[str, Any]) -> range:
    """Return the range that an index was; an empty one where the description is none."""
    try:
        return range(described["start"], described["stop"], described["step"])
    except (KeyError, TypeError, ValueError):
        return range(0)


def written(
    columns: Sequence[dict[str, Any]],
    index: Sequence[Any],
    labels: Sequence[dict[str, Any]],
    attributes: dict[Any, Any],
    version: str,
) -> dict[bytes, bytes]:
    """Return the schema metadata with the one entry.

    Examples
    --------
    >>> read(written([], [span(0, 4, 2)], [], {}, "3.0")).index
    [{'kind': 'range', 'name': None, 'start': 0, 'stop': 4, 'step': 2}]
    """
    try:
        kept = not attributes or json.loads(json.dumps(attributes)) == attributes
    except (TypeError, ValueError):
        kept = False  # what JSON does not hold: pyarrow leaves attrs out, too
    said = {
        "index_columns": list(index),
        "column_indexes": list(labels),
        "columns": list(columns),
        "attributes": attributes if kept else {},
        "creator": {"library": "zerocopy", "version": __version__},
        "pandas_version": version,
    }
    return {KEY: json.dumps(said).encode()}


def read(metadata: dict[bytes, bytes]) -> Said | None:
    """Return what the entry says; None where there is none, or none that can be read."""
    text = metadata.get(KEY)
    if text is None:
        return None
    try:
        said = json.loads(text)
        names = {str(c.get("field_name", c["name"])): c["name"] for c in said["columns"]}
        labels = [dict(one) for one in said.get("column_indexes") or ()]
        return Said(list(said["index_columns"]), names, labels, dict(said.get("attributes") or {}))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None  # somebody else's bytes under that name: the columns are what they are


def selected(metadata: dict[bytes, bytes], fields: Collection[str]) -> dict[bytes, bytes]:
    """Return the metadata without the levels of the index that are not among the fields.

    pyarrow raises a KeyError for a level that it has no column for. Without any
    fields, no column is an index.
    """
    if read(metadata) is None:
        return metadata
    said = json.loads(metadata[KEY])
    kept = [one for one in said["index_columns"] if fields and (isinstance(one, dict) or one in fields)]
    if kept == said["index_columns"]:
        return metadata
    said["index_columns"] = kept
    return {**metadata, KEY: json.dumps(said).encode()}


def called(said: Said, fields: Sequence[str]) -> list[Any]:
    """Return what the fields were called in pandas, before their types: tuples for several levels.

    Raises
    ------
    ValueError, SyntaxError
        Several levels are said, and a name is no tuple.
    """
    names = [said.names.get(name, name) for name in fields]
    return [literal_eval(name) for name in names] if len(said.labels) > 1 else names


# -- types, in pandas' words; `pd` is the module --------------------------------


def typed(pd: Any, dtype: Any) -> Typed:
    """Return a type in the words of pandas' metadata."""
    if isinstance(dtype, np.dtype) and dtype.kind in "iufb":
        return dtype.name, dtype.name, None  # its str() takes 3 us
    said = str(dtype)
    if isinstance(dtype, np.dtype):
        kinds = {"O": "object", "M": "datetime", "m": "timedelta", "S": "bytes", "V": "bytes"}
        return kinds.get(dtype.kind, dtype.name), "object" if dtype.kind in "SV" else said, None
    if isinstance(dtype, pd.CategoricalDtype):
        count = len(dtype.categories)
        codes = next(f"int{n}" for n in (8, 16, 32, 64) if count < 2 ** (n - 1))
        return "categorical", codes, {"num_categories": count, "ordered": bool(dtype.ordered)}
    if isinstance(dtype, pd.DatetimeTZDtype):
        return "datetimetz", f"datetime64[{dtype.unit}]", {"timezone": zone(dtype.tz) or str(dtype.tz)}
    if isinstance(dtype, pd.StringDtype):
        return "unicode", said, None
    if isinstance(dtype, pd.ArrowDtype):
        # to_pandas() raises for types that pandas cannot read from their own names.
        return "object", said if said.partition("[")[0].isalnum() else "object", None
    return getattr(getattr(dtype, "numpy_dtype", None), "name", "object"), said, None


def zone(tz: Any) -> str:
    """Return a time zone as Arrow writes it; nothing for one that pyarrow is to be asked for."""
    key = getattr(tz, "key", None) or getattr(tz, "zone", None)
    offset = None if key else tz.utcoffset(None)
    if offset is None:
        return key or ""
    if not offset:
        return "UTC"
    minutes, rest = divmod(abs(offset), timedelta(minutes=1))
    sign = "-" if offset < timedelta() else "+"
    return "" if rest else f"{sign}{minutes // 60:02}:{minutes % 60:02}"


def label_level(pd: Any, level: Any) -> dict[str, Any]:
    """Describe one level of the column labels, so that their types can be read again."""
    dtype = level.dtype
    of: Typed = ("unicode", "object", {"encoding": "UTF-8"})
    if isinstance(dtype, pd.DatetimeTZDtype) or (isinstance(dtype, np.dtype) and dtype.kind in "iufbM"):
        of = typed(pd, dtype)
        if of[0] == "datetime":
            of = (str(dtype), str(dtype), None)
    elif isinstance(dtype, pd.StringDtype):
        of = ("unicode", str(dtype), {"encoding": "UTF-8"})
    elif isinstance(dtype, np.dtype) and dtype.kind == "O":
        inferred = pd.api.types.infer_dtype(level)
        if inferred == "bytes":
            of = ("bytes", "object", None)
        elif inferred not in ("string", "empty"):
            of = ("mixed", "object", None)
    found = entry(level.name, "", of)
    return {**found, "field_name": found["name"]}


def index_of(pd: Any, labels: list[Any], said: Said | None) -> Any:
    """Return the column labels, in the types that they had."""
    if said is None or not said.labels:
        return pd.Index(labels, tupleize_cols=False) if labels else pd.RangeIndex(0)
    names = [one.get("name") for one in said.labels]
    if labels and not all(isinstance(label, str) for label in labels):
        if len(names) > 1:
            return pd.MultiIndex.from_tuples(labels, names=names)
        return pd.Index(labels, name=names[0])
    try:
        found = called(said, labels)
        if len(names) == 1:
            return _label_values(pd, found, said.labels[0]).rename(names[0])
        columns = zip(*found, strict=True) if found else [[] for _ in names]
        levels = [_label_values(pd, list(c), of) for c, of in zip(columns, said.labels, strict=True)]
        return pd.MultiIndex.from_arrays(levels, names=names)
    except (ValueError, TypeError, SyntaxError, KeyError):
        return pd.Index(labels)  # metadata that do not fit the labels: they stay as they are


def _label_values(pd: Any, found: list[Any], of: dict[str, Any]) -> Any:
    kind, numpy_type = of.get("pandas_type", "unicode"), of.get("numpy_type", "object")
    if kind == "bytes":
        return pd.Index([label.encode() for label in found])
    if kind == "bool":
        return pd.Index([str(label) == "True" for label in found], dtype=bool)
    if kind == "datetimetz":
        zoned = pd.to_datetime(found, utc=True).tz_convert(of["metadata"]["timezone"])
        return zoned.as_unit(np.datetime_data(numpy_type)[0])
    if kind in ("unicode", "string", "empty") or "mixed" in kind:
        return pd.Index(found, dtype=None if found else numpy_type)
    return pd.Index(found).astype(numpy_type)
