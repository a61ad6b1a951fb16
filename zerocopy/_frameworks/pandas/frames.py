"""Objects of pandas as Arrow tables, and back with their own types.

``convert`` would give the columns the dtype ``ArrowDtype``. ``pyarrow.Table.to_pandas`` reads the original
dtypes from the schema's metadata, and aliases columns without nulls.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from zerocopy._frameworks.pandas import metadata
from zerocopy.errors import Fix, UnsupportedConversionError
from zerocopy.frames.hook import FramesHook
from zerocopy.tables.hub import hub

_UNNAMED = "-unnamed"


class PandasFrames(FramesHook):
    """pandas itself pickles out of band, and of a slice only its rows: no types to send as frames."""

    restores_tables = True

    def flatten(self, obj: Any) -> tuple[Any, str]:
        import pandas as pd

        return flatten(pd, obj)

    def restore(self, table: Any, form: str) -> Any:
        import pandas as pd

        return restore(pd, table, form)


def flatten(pd: Any, obj: Any) -> tuple[Any, str]:
    """Return a data frame with the content of `obj`, and the form that `restore` takes."""
    if isinstance(obj, pd.DataFrame):
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
        return data, form if obj.name is not None else form + _UNNAMED
    return pd.DataFrame({0: pd.Series(obj, copy=False)}, copy=False), "Array"


def restore(pd: Any, table: Any, form: str) -> Any:
    """Return the object of a form over a table of the hub with the metadata of pandas.

    Raises
    ------
    ValueError
        The form does not exist, or is one column and the table is not.
    """
    kind = form.removesuffix(_UNNAMED)
    if kind not in ("DataFrame", "Series", "Index", "Array"):
        raise ValueError(f"pandas has no form {form!r}")
    data = _data_frame(pd, table)
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


def _data_frame(pd: Any, table: Any) -> Any:
    """Return a data frame; pyarrow 26 cannot convert bool8 and raises KeyError."""
    pa = hub().module()
    for column in table.columns:
        if column.type.num_fields or pa.types.is_dictionary(column.type):
            column.validate(full=True)  # to_pandas reads these, and does not check offsets and codes
    places = [i for i, kind in enumerate(table.schema.types) if kind == pa.bool8()]
    storage = table
    for place in places:
        storage = storage.set_column(place, table.schema.field(place).name, _storage(pa, table.column(place)))
    data = storage.to_pandas(split_blocks=True)
    described = metadata.read(table.schema.metadata or {})
    if described is not None:
        levels = [entry for entry in described.index if isinstance(entry, str)]
        labels = [name for name in table.schema.names if name not in levels]
        data.columns = metadata.labels_index(pd, labels, described)  # pyarrow makes text of tuples
        _restore_arrow_types(pd, data, table, levels)
    if not table.num_columns:
        data = pd.DataFrame(index=pd.RangeIndex(table.num_rows), columns=data.columns)
    for place in places:
        values = data.iloc[:, place].to_numpy()
        # A series, because pandas copies an ndarray here.
        flags = pd.Series(values.view(np.bool_), index=data.index, copy=False)
        data.isetitem(place, flags)
    return data


def _restore_arrow_types(pd: Any, data: Any, table: Any, levels: list[str]) -> None:
    """Give columns back their ``ArrowDtype``: pandas cannot parse those with parameters, such as decimals."""
    entries = json.loads(table.schema.metadata[metadata.KEY]).get("columns", [])
    arrow = {each.get("field_name") for each in entries if str(each.get("numpy_type")).endswith("[pyarrow]")}
    names = [(i, name) for i, name in enumerate(table.schema.names) if name not in levels]
    for place, (i, name) in enumerate(names):
        if name in arrow and not isinstance(data.dtypes.iloc[place], pd.ArrowDtype):
            values = pd.arrays.ArrowExtensionArray(table.column(i))
            data.isetitem(place, pd.Series(values, index=data.index, copy=False))


def _storage(pa: Any, column: Any) -> Any:
    return pa.chunked_array([chunk.storage for chunk in column.chunks], pa.int8())
