"""Objects of pandas as Arrow tables, and back with their own types.

``convert`` would give the columns the dtype ``ArrowDtype``. ``pyarrow.Table.to_pandas`` reads the original
dtypes from the schema's metadata, and aliases columns without nulls.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from zerocopy._frameworks.pandas import metadata
from zerocopy.errors import Fix, UnsupportedConversionError
from zerocopy.frames.hook import FramesHook
from zerocopy.tables.hub import hub

_UNNAMED = "-unnamed"


class Frames(FramesHook):
    """pandas itself pickles out of band, and of a slice only its rows: no types to send as frames."""

    restores_tables = True

    def flatten(self, obj: Any) -> tuple[Any, str]:
        import pandas as pd

        data, form = flatten(pd, obj)
        places = [str(i) for i, dtype in enumerate(data.dtypes) if _is_arrow_text(pd, dtype)]
        return data, f"{form}:{','.join(places)}" if places else form

    def restore(self, table: Any, note: str) -> Any:
        import pandas as pd

        form, _, places = note.partition(":")
        return restore(pd, table, form, [int(place) for place in places.split(",") if place])


def flatten(pd: Any, obj: Any) -> tuple[Any, str]:
    """Return a data frame with the content of `obj`, and the form that `restore` takes.

    Raises
    ------
    UnsupportedConversionError
        A column or a level of the index holds Python objects.
    """
    if isinstance(obj, pd.DataFrame):
        _refuse_objects(obj)
        return obj, "DataFrame"
    if isinstance(obj, pd.MultiIndex):
        why = "a MultiIndex is codes and values of each level, and not one column"
        fix = Fix("{x}.to_frame(index=False)")
        raise UnsupportedConversionError("", why, code="multi-index", fixes=[fix])
    if isinstance(obj, (pd.Series, pd.Index)):
        form = "Series" if isinstance(obj, pd.Series) else "Index"
        if form == "Index":
            data = pd.DataFrame({0: pd.Series(obj, copy=False)}, copy=False)
        else:
            data = obj.to_frame(0)
        if obj.name is not None:
            data.columns = pd.Index([obj.name], tupleize_cols=False)
        _refuse_objects(data)
        return data, form if obj.name is not None else form + _UNNAMED
    return pd.DataFrame({0: pd.Series(obj, copy=False)}, copy=False), "Array"


def _refuse_objects(data: Any) -> None:
    """Refuse columns of Python objects: Arrow would guess their types, and dicts would come back changed."""
    levels = getattr(data.index, "levels", [data.index])
    columns = zip(data.columns, data.dtypes, strict=True)
    for label, dtype in [*columns, *((level.name, level.dtype) for level in levels)]:
        if getattr(dtype, "kind", "") == "O" and getattr(dtype, "hasobject", False):
            raise UnsupportedConversionError(
                "",
                f"column {label!r} holds Python objects, whose memory cannot be sent",
                "pickle it: zerocopy.pickling.dumps(x); or, if its values have one type, x.convert_dtypes()",
                code="object-dtype",
            )


def _is_arrow_text(pd: Any, dtype: Any) -> bool:
    """Whether a type is Arrow's text, whose name is also that of pandas' own ``StringDtype``."""
    return isinstance(dtype, pd.ArrowDtype) and str(dtype) == "string[pyarrow]"


def restore(pd: Any, table: Any, form: str, arrow_text: Sequence[int] = ()) -> Any:
    """Return the object of a form over a table of the hub with the metadata of pandas.

    `arrow_text` has the positions of columns with the ``ArrowDtype`` of text.

    Raises
    ------
    ValueError
        The form does not exist, or is one column and the table is not.
    """
    kind = form.removesuffix(_UNNAMED)
    if kind not in ("DataFrame", "Series", "Index", "Array"):
        raise ValueError(f"pandas has no form {form!r}")
    data = _data_frame(pd, table, arrow_text)
    if kind == "DataFrame":
        return data
    if data.shape[1] != 1:
        raise ValueError(f"a {kind} has one column, and the table has {data.shape[1]}")
    series = data.iloc[:, 0]
    if form != kind:
        series.name = None
    if kind == "Series":
        return series
    return series.array if kind == "Array" else pd.Index(series, name=series.name, copy=False)


def _data_frame(pd: Any, table: Any, arrow_text: Sequence[int]) -> Any:
    """Return a data frame; pyarrow 26 cannot convert bool8 and raises KeyError."""
    pa = hub().module()
    for column in table.columns:
        if column.type.num_fields or pa.types.is_dictionary(column.type):
            column.validate(full=True)  # to_pandas reads these, and does not check offsets and codes
    described = metadata.read(table.schema.metadata or {})
    levels = [] if described is None else [entry for entry in described.index if isinstance(entry, str)]
    labels = [name for name in table.schema.names if name not in levels]
    flags = [i for i, kind in enumerate(table.schema.types) if kind == pa.bool8()]
    unparsed = {i for i in _unparsed(table) if table.schema.names[i] in labels}
    unparsed |= {table.schema.names.index(labels[place]) for place in arrow_text}
    storage = table
    for i in flags:
        storage = storage.set_column(i, table.schema.field(i).name, _storage(pa, table.column(i)))
    for i in unparsed:
        field = pa.field(table.schema.field(i).name, pa.int8())
        storage = storage.set_column(i, field, pa.nulls(len(table), pa.int8()))
    data = storage.to_pandas(split_blocks=True)
    if described is not None:
        data.columns = metadata.labels_index(pd, labels, described)  # pyarrow makes text of tuples
        if levels:
            data.index.names = [described.level_name(pd, name) for name in levels]  # and of numbers
    if not table.num_columns:
        data = pd.DataFrame(index=pd.RangeIndex(table.num_rows), columns=data.columns)
    for i in flags:
        values = data.iloc[:, i].to_numpy()
        # A series, because pandas copies an ndarray here.
        data.isetitem(i, pd.Series(values.view(np.bool_), index=data.index, copy=False))
    for i in unparsed:
        values = pd.arrays.ArrowExtensionArray(table.column(i))
        place = labels.index(table.schema.names[i])
        data.isetitem(place, pd.Series(values, index=data.index, copy=False))
    return data


def _unparsed(table: Any) -> list[int]:
    """Return the positions of columns whose ``ArrowDtype`` pandas cannot parse, such as decimals.

    Their type is object in the metadata; columns of objects are not sent.
    """
    entries = json.loads((table.schema.metadata or {}).get(metadata.KEY, b"{}")).get("columns", [])
    names = {each.get("field_name") for each in entries if each.get("numpy_type") == "object"}
    return [i for i, name in enumerate(table.schema.names) if name in names]


def _storage(pa: Any, column: Any) -> Any:
    return pa.chunked_array([chunk.storage for chunk in column.chunks], pa.int8())
