"""xarray: labelled arrays, variables and datasets over NumPy's memory or that of any other array.

An array that a variable holds is described by the framework of that array, so a variable over a JAX array
is aliased as a JAX array is. Labels that the target lacks are reported by ``explain``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from zerocopy._frameworks import _obstacles as obstacles
from zerocopy._frameworks._private import Private
from zerocopy.dtype import DType, native_numbers, to_numpy
from zerocopy.errors import Fix, Reason
from zerocopy.framework import Framework
from zerocopy.source import Array, Source
from zerocopy.strided_view import StridedView
from zerocopy.tables.column import Column, Table
from zerocopy.tables.labels import text_warnings

#: `data` loads lazy arrays; only this attribute shows whether the values are an ndarray.
_DATA = Private("xarray", "2025.4 to 2026", "Variable._data", "0.9 / 10.7 us")


class XArray(Framework):
    """``DataArray``, ``Variable`` and ``Dataset``; arrays become a DataArray, tables a Dataset.

    ``to="xarray.DataArray"`` and ``"xarray.Dataset"`` name a form. `template` is an object of xarray whose
    names, coordinates and attributes the results have.
    """

    name = "xarray"
    aliases = ("xr",)
    kinds: Mapping[str, Any] = {"Dataset": "table"}
    # Older versions convert dates to nanoseconds, with a copy and without an error for far ones.
    min_version = "2025.4"
    root_modules = ("xarray",)
    distribution = "xarray"
    marks_readonly = True
    has_dimensions = True
    forms = ("DataArray", "Dataset")
    template: Any = None
    actions: Mapping[str, Fix] = {
        "align": Fix('zc.convert({x}, "numpy", copy=True)'),
        "column": Fix("{x}[{label}]"),
        "replace": Fix("{x}.assign(**{{{label}: {value}}})"),
        "code-points": Fix(
            "xarray.DataArray(numpy.ascontiguousarray({x}).view('uint32').reshape(*{x}.shape, -1), "
            "dims=(*{x}.dims, 'character'))"
        ),
        "contiguous": Fix("numpy.ascontiguousarray({x})"),
        "cast:float64": Fix("{x}.astype('float64')"),
        "cast:float32": Fix("{x}.astype('float32')"),
        "cast:int8": Fix("{x}.astype('int8')"),
        "objects": Fix("{x}.values.tolist()"),
        "read": Fix("{x}.compute()"),
        "truncate:us": Fix("{x}.astype('m8[us]')"),
    }

    @property
    def kind(self) -> str:  # type: ignore[override]
        return {None: "both", "DataArray": "tensor", "Dataset": "table"}[self.form]

    def owns(self, cls: type) -> bool:
        xr = self.module()
        return issubclass(cls, (xr.DataArray, xr.Dataset, xr.Variable))

    def like(self, obj: Any) -> Framework:
        framework = copy.copy(self)
        framework.template = obj
        return framework

    def labelled(self, result: Any, obj: Any) -> Any:
        from zerocopy._frameworks.xarray import building

        if getattr(obj, "shape", None) != getattr(result, "shape", ()):
            return result
        return building.like_array(obj, result.data)

    # -- source ---------------------------------------------------------------

    def source(self, obj: Any) -> Source:
        from zerocopy._frameworks.xarray import tables

        name = f"xarray.{type(obj).__name__}"
        if isinstance(obj, self.module().Dataset):
            raise tables.refuse_dataset(name)
        return tables.array_source(obj, name)

    def table(self, obj: Any, index: bool | None = None) -> Table | None:
        from zerocopy._frameworks.xarray import tables

        name = f"xarray.{type(obj).__name__}"
        if isinstance(obj, self.module().Dataset):
            return tables.dataset_table(obj, name, index)
        return tables.array_table(obj, name, index)

    def label_warnings(self, obj: Any, target: Framework, options: Mapping[str, Any]) -> tuple[str, ...]:
        from zerocopy._frameworks.xarray import tables

        return tables.label_warnings(obj, target, options, isinstance(obj, self.module().Dataset))

    def fast_exporters(self, cls: type) -> dict[str, Callable[[Any], Any]]:
        import numpy as np

        if cls is not self.module().DataArray or not _DATA():
            return {}
        numbers = native_numbers()

        def plain(obj: Any) -> Array:
            array = obj.variable._data
            # By number, because longdouble and types of ml_dtypes have the kinds of numbers too.
            if type(array) is not np.ndarray or array.dtype.num not in numbers or not array.dtype.isnative:
                raise TypeError("not plain numbers: use the slow path")
            return array.view()

        return {"ndarray": plain}

    # -- target ---------------------------------------------------------------

    def copy_reasons(self, view: StridedView) -> list[Reason]:
        obstacles.check_numpy("xarray", view)
        return []

    def of_ndarray(self, array: Array, dtype: DType) -> Any:
        from zerocopy._frameworks.xarray import building

        extended = None if dtype.in_numpy else to_numpy(dtype)
        values = array if extended is None else array.view(extended)
        if self.template is not None:
            return building.like_array(self.template, values)
        return building.array(self.module(), values)

    def fast_importers(self) -> dict[str, Callable[[Any], Any]]:
        return {} if self.form == "Dataset" else super().fast_importers()

    def column_reasons(self, column: Column) -> list[Reason]:
        from zerocopy._frameworks.xarray import building

        if self.template is not None and getattr(column, "of_xarray", None) is not None:
            return building.own_reasons(column)
        return building.reasons_against(column)

    def guards_writes(self, column: Column) -> bool:
        if column.held is not None:
            return not column.held.flags.writeable
        from zerocopy._frameworks.xarray import building

        if self.template is not None and getattr(column, "of_xarray", None) is not None:
            source = column.source
            return source is not None and source.view.readonly  # NumPy's flag, and pandas' indexes
        return building.guards_writes(column)

    def table_reasons(self, table: Table) -> list[list[Reason]]:
        from zerocopy._frameworks.xarray import building

        if not table.single:
            obstacles.check_unique(table.labels, "xarray")
        if self.template is not None or not building.index_places(table):
            return super().table_reasons(table)
        reasons: list[list[Reason]] = building.pandas().table_reasons(table)
        return reasons

    def table_warnings(self, table: Table) -> tuple[str, ...]:
        from zerocopy._frameworks.xarray import building, tables

        if self.template is not None:
            return ()
        extensions = building.through_pandas(table)
        named = [table.labels[place] for place in building.index_places(table)]
        renamed = text_warnings("xarray's dimensions and levels", named)
        return (*tables.lost_labels(table), *renamed, *building.pandas().table_warnings(extensions))

    def from_table(self, table: Table) -> Any:
        from zerocopy._frameworks.xarray import building

        xr = self.module()
        if isinstance(self.template, xr.Dataset):
            return building.like_dataset(xr, self.template, table)
        return building.dataset(xr, table)

    def from_column(self, table: Table) -> Any:
        from zerocopy._frameworks.xarray import building

        (column,), (label,) = table.columns, table.labels
        if self.template is not None:
            return building.like_column(self.template, column)
        if self.form == "Dataset":
            named = "column_0" if label == "" else label
            return self.from_table(replace(table, labels=[named], single=False))
        name = None if isinstance(label, str) and label == "" else label
        return building.array(self.module(), building.values_of(column), name)


FRAMEWORK = XArray()
