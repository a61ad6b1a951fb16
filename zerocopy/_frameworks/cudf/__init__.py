"""cuDF: frames, series and indexes of pylibcudf's columns.

The columns are taken out and put in as pylibcudf's, which aliases; ``to_dlpack`` and
``from_dlpack`` copy, and ``Series.__cuda_array_interface__`` of a slice exports a mask
that begins at the wrong row: neither is used. How a column lies in memory is in
pylibcudf's file, which the registry finds.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Sequence
from functools import partial
from types import ModuleType
from typing import Any

from zerocopy import registry
from zerocopy.device import Device
from zerocopy.errors import FrameworkNotInstalledError, Reason, UnsupportedConversionError
from zerocopy.framework import Framework, Source
from zerocopy.protocols.arrow_schema import Field
from zerocopy.strided_view import StridedView
from zerocopy.tables.column import Column, Table
from zerocopy.tables.decode import as_tensor
from zerocopy.tables.to_tables import Copied

_INSTALL = "pip install cudf-cu13 for CUDA 13, or cudf-cu12 for CUDA 12: nvidia-smi says which"
_FRAMES = ("DataFrame", "Series", "Index", "RangeIndex", "MultiIndex")
_RANGE = Reason("a RangeIndex has no memory, and its values are made", "index=False leaves it out")
_LEVELS = Reason("a MultiIndex keeps codes, and its values are made", "index=False leaves it out")
_DAYS = Reason("cuDF's frames have no dates, and count seconds instead", "")


class CuDF(Framework):
    """``cudf.DataFrame``, ``cudf.Series`` and ``cudf.Index``, on CUDA devices only."""

    name = "cudf"
    pool_hook = "zerocopy._frameworks.cudf.pool:CuDFHook"
    kind = "table"
    root_modules = ("cudf",)
    distribution = "cudf-cu13"
    device_kinds = ("cuda",)

    def module(self) -> ModuleType:
        try:
            return super().module()
        except FrameworkNotInstalledError as error:
            # "pip install cudf" finds a placeholder: the wheels have the CUDA version in
            # their names.
            error.remedy = _INSTALL
            error.args = (error.asked, error.why, error.remedy)
            raise

    def owns(self, cls: type) -> bool:
        return issubclass(cls, _classes(*_FRAMES))

    # -- source ---------------------------------------------------------------

    def source(self, obj: Any) -> Source:
        table = self.table(obj, False)
        if not table.single:
            raise UnsupportedConversionError(
                f"convert({table.name})",
                "a table is not one array",
                "pick a column, or convert it to a dict of them",
            )
        return as_tensor(table.columns[0])

    def table(self, obj: Any, index: bool | None = None) -> Table:
        name = f"cudf.{type(obj).__name__}"
        if isinstance(obj, _classes("DataFrame")):
            return self._frame(obj, name, index)
        if isinstance(obj, _classes("Series")):
            if index:
                label = "column_0" if obj.name is None else obj.name
                return self._frame(obj.to_frame(label), name, True)
            col, _ = obj.to_pylibcudf()
            column = _columns().column(name, col, obj.dtype, lambda: obj, obj)
            label = "" if obj.name is None else obj.name
            return Table(name, [label], [column], len(obj), single=True, obj=obj)
        levels = _levels(obj, name)
        single = not isinstance(obj, _classes("MultiIndex"))
        labels = [n if n is not None else ("" if single else i) for i, n in enumerate(obj.names)]
        return Table(name, labels, levels, len(obj), single=single, obj=obj)

    def _frame(self, obj: Any, name: str, index: bool | None) -> Table:
        inner, _ = obj.to_pylibcudf()  # the index is no part of it
        labels: list[Hashable] = list(obj)
        columns: list[Column] = [
            _columns().column(name, col, dtype, partial(obj.__getitem__, label), obj)
            for label, col, dtype in zip(labels, inner.columns(), obj.dtypes, strict=True)
        ]
        if not (_says_something(obj.index) if index is None else index):
            return Table(name, labels, columns, len(obj), obj=obj)
        levels = _levels(obj.index, name)
        # Of no rows: pandas' own words for the index, without the copy of the rows.
        schema = obj.iloc[:0].to_arrow(preserve_index=True).schema
        return Table(
            name,
            [*labels, *schema.names[-len(levels) :]],
            [*columns, *levels],
            len(obj),
            index=len(levels),
            metadata=dict(schema.metadata or {}),
            obj=obj,
        )

    # -- target ---------------------------------------------------------------

    def copy_reasons(self, view: StridedView) -> list[Reason]:
        raise UnsupportedConversionError("", "cuDF has columns and no arrays", "leave layout out")

    def column_reasons(self, column: Column) -> list[Reason]:
        reasons: list[Reason] = _columns().fits(column)
        if not _columns().on_gpu(column):
            return reasons
        lies = column.plc.type().id().name if hasattr(column, "plc") else ""
        if lies in ("DICTIONARY32", "DURATION_DAYS"):
            raise UnsupportedConversionError(
                "", f"is {lies}, which cuDF's frames lack", "cast it in pylibcudf"
            )
        days = column.field is not None and column.field.format == "tdD"
        return [*reasons, _DAYS] if days else reasons

    def table_warnings(self, table: Table) -> tuple[str, ...]:
        _unique(table.labels)
        said = []
        for label, column in zip(table.labels, table.columns, strict=True):
            found = "" if column.field is None else _becomes(column.field)
            if found:
                said.append(f"column {label!r} is {column.field}, and cuDF holds it as {found}")
        if set(table.metadata) - {b"pandas"}:
            said.append("the schema's metadata does not survive: cuDF keeps none but pandas'")
        return tuple(said)

    def from_table(self, table: Table) -> Any:
        cudf = self.module()
        _unique(table.labels)
        if not any(_columns().on_gpu(column) for column in table.columns):
            arrow: Any = registry.by_name("pyarrow")
            arrow.module()
            # One copy, from there to the GPU; the index is read from pandas' metadata.
            return cudf.DataFrame.from_arrow(_columns().storable(arrow.from_table(table)))
        width = len(table.columns) - table.index
        parts = [self._part(column) for column in table.columns]
        labels = list(table.labels)
        frame = self._framed(labels[:width], parts[:width], table.length)
        if table.index:
            levels = self._framed(labels[width:], parts[width:], table.length)
            many = table.index > 1
            index = cudf.MultiIndex.from_frame(levels) if many else cudf.Index(levels[labels[width]])
            index.names = [None if str(n).startswith("__index_level_") else n for n in labels[width:]]
            frame.index = index
        return frame

    def from_column(self, table: Table) -> Any:
        cudf, label = self.module(), table.labels[0]
        part = self._part(table.columns[0])
        series = part if isinstance(part, cudf.Series) else cudf.Series.from_pylibcudf(part)
        series.name = None if label == "" else label
        return series

    def _part(self, column: Column) -> Any:
        """Return a column as pylibcudf's, or as a series where that has more to say."""
        cudf, columns = self.module(), _columns()
        if not columns.on_gpu(column):
            return cudf.Series.from_arrow(columns.storable(column.arrow()))
        series = getattr(column, "series", None)
        if series is None or _plain(column.field):
            return columns.part(column)
        # reset_index: rows are put together by their place, and not by their labels.
        return series().reset_index(drop=True).copy(deep=isinstance(column, Copied))

    def _framed(self, labels: list[Hashable], parts: list[Any], rows: int) -> Any:
        cudf = self.module()
        if not parts:
            return cudf.DataFrame(index=cudf.RangeIndex(rows))
        if any(isinstance(part, cudf.Series) for part in parts):
            whole = [p if isinstance(p, cudf.Series) else cudf.Series.from_pylibcudf(p) for p in parts]
            return cudf.DataFrame(dict(zip(labels, whole, strict=True)))
        return cudf.DataFrame.from_pylibcudf(_columns().module().Table(parts), {"columns": labels})

    # -- devices --------------------------------------------------------------

    def default_device(self, view: StridedView) -> Device:
        found: Device = _columns().default_device(view)
        return found

    def check_device(self, device: Device) -> None:
        super().check_device(device)
        _columns().check_device(device)

    def devices(self) -> list[str]:
        found: list[str] = _columns().devices()
        return found


def _columns() -> Any:
    """Return pylibcudf's file: it alone knows how columns lie in memory."""
    return registry.by_name("pylibcudf")


def _classes(*names: str) -> Any:
    """Return those classes that cuDF has; it is imported, since there is an object of its own."""
    cudf = sys.modules["cudf"]
    return tuple(getattr(cudf, name) for name in names if hasattr(cudf, name))


def _levels(index: Any, name: str) -> list[Column]:
    """Return an index's levels as columns."""
    columns = _columns()
    why = _RANGE if isinstance(index, _classes("RangeIndex")) else None
    why = _LEVELS if isinstance(index, _classes("MultiIndex")) else why
    if why is None:
        col, _ = index.to_pylibcudf()
        return [columns.column(name, col, index.dtype, partial(sys.modules["cudf"].Series, index), index)]
    made = index.to_frame(index=False)
    return [
        columns.column(name, col, dtype, partial(made.__getitem__, label), made, (why,))
        for label, col, dtype in zip(list(made), made.to_pylibcudf()[0].columns(), made.dtypes, strict=True)
    ]


def _says_something(index: Any) -> bool:
    """Whether an index has a name or is not the default one."""
    plain = isinstance(index, _classes("RangeIndex")) and (index.start, index.step) == (0, 1)
    return not plain or any(name is not None for name in index.names)


def _unique(labels: Sequence[Hashable]) -> None:
    twice = sorted({str(name) for name in labels if list(labels).count(name) > 1})
    if twice:
        raise UnsupportedConversionError(
            "", f"several columns are called {', '.join(twice)}, and cuDF has each once", "rename them"
        )


def _plain(field: Field | None) -> bool:
    """Whether pylibcudf's column says all that there is to know of a series' type."""
    return (
        field is None
        or field.kind in ("number", "bool", "duration", "string")
        or (field.kind == "timestamp" and not field.timezone)
    )


def _becomes(field: Field) -> str:
    """Return what cuDF holds a type of Arrow's as, where it is not the same."""
    if field.extension:
        return "bool" if field.extension == "arrow.bool8" else str(field.storage)
    by_format = {"tdD": "datetime64[s]", "tdm": "datetime64[ms]", "n": "strings", "+L": "lists"}
    return by_format.get(field.format) or ("lists" if field.kind == "fixed_list" else "")


FRAMEWORK = CuDF()
