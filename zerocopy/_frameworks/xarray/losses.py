"""Labels that a target cannot keep, as warnings of a plan."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from zerocopy._frameworks.xarray.tables import attributes, column_names
from zerocopy.framework import Framework
from zerocopy.tables.column import Table
from zerocopy.tables.labels import listed


def warnings(obj: Any, target: Framework, options: Mapping[str, Any], is_dataset: bool) -> tuple[str, ...]:
    """Return one warning for all labels that a conversion of `obj` loses; none if it loses none."""
    keeps_columns = target.tables and options.get("layout") is None
    lost = _of_dataset(obj, keeps_columns, options) if is_dataset else _of_array(obj, keeps_columns, options)
    parts = [f"{kind} {listed(names)}" for kind, names in lost.items() if names]
    verb = "is" if sum(map(len, lost.values())) == 1 else "are"
    return (
        (f"{target.name} has no place for labels of xarray: {'; '.join(parts)} {verb} lost",) if parts else ()
    )


def _of_array(obj: Any, keeps_columns: bool, options: Mapping[str, Any]) -> dict[str, list[Hashable]]:
    dims = _named(obj.dims)
    lost: dict[str, list[Hashable]] = {"the name": [], "the dimensions": dims}
    coords, name = list(getattr(obj, "coords", ())), getattr(obj, "name", None)
    indexed = bool(options.get("index")) and obj.ndim in (1, 2) and bool(coords)
    if name is not None and not (keeps_columns and obj.ndim == 1) and not (indexed and obj.ndim == 1):
        lost["the name"] = [name]
    kept: set[Hashable] = set()
    if indexed:
        kept |= _index_of(obj, obj.dims[0])
    if keeps_columns and coords and options.get("names") is None and column_names(obj) is not None:
        kept.add(obj.dims[1])
    lost["the dimensions"] = [dim for dim in dims if dim not in kept]
    lost["the coordinates"] = [label for label in coords if label not in kept]
    lost["the attributes"] = list(obj.attrs)
    return lost


def _index_of(obj: Any, dim: Hashable) -> set[Hashable]:
    """Return the coordinates that a dimension's index makes columns of."""
    return {dim, *obj.xindexes.get_all_coords(dim)} if dim in obj.xindexes else set()


def _of_dataset(obj: Any, keeps_columns: bool, options: Mapping[str, Any]) -> dict[str, list[Hashable]]:
    data_dims = {obj.variables[label].dims for label in obj.data_vars}
    rows: tuple[Hashable, ...] = next(iter(data_dims)) if len(data_dims) == 1 else ()
    index = options.get("index")
    kept: set[Hashable] = set()
    if len(rows) == 1 and index is not False:
        kept = {label for label in obj.coords if obj.variables[label].dims == rows}
    elif index:
        kept = {*obj.coords}
    chosen = options.get("columns")
    names = [label for label in obj.data_vars if chosen is None or label in chosen]
    schema = attributes(obj.attrs) if keeps_columns else {}
    return {
        "the dimensions": [] if len(rows) == 1 and rows[0] in kept else _named(obj.dims),
        "the coordinates": [label for label in obj.coords if label not in kept],
        "the attributes": [key for key in obj.attrs if key not in schema],
        "the attributes of": [label for label in (*names, *kept) if obj.variables[label].attrs],
    }


def _named(dims: Iterable[Hashable]) -> list[Hashable]:
    return [dim for dim in dims if not (isinstance(dim, str) and dim.startswith("dim_"))]


def of_table(table: Table) -> tuple[str, ...]:
    """Return what a dataset cannot keep of a table."""
    kept = (b"pandas",)
    metadata = [key.decode(errors="replace") for key in table.metadata if key not in kept]
    lost = [f"xarray has no metadata of a schema: {', '.join(metadata)} is lost"] if metadata else []
    labelled = [
        label
        for label, column in zip(table.labels, table.columns, strict=True)
        if hasattr(getattr(getattr(column, "source", None), "obj", None), "coords")
    ]
    if labelled and type(table.obj) is dict:
        lost.append(
            f"the dimensions and coordinates of {listed(labelled)} are lost: xarray.Dataset(x) keeps them"
        )
    for label, column in zip(table.labels, table.columns, strict=True):
        days = column.field is not None and column.field.kind == "date"
        if days and getattr(column, "source", None) is not None:
            lost.append(f"column {label!r}: {column.field} becomes datetime64, which has times of day too")
    return tuple(lost)
