"""cuDF: frames, series and indexes, whose columns are pylibcudf's.

Columns are exchanged as pylibcudf's columns, without a copy. ``to_dlpack`` and ``from_dlpack`` copy, and
``Series.__cuda_array_interface__`` exports the mask of a slice at the wrong row, so they are not
used. The memory layout of columns is in pylibcudf's folder, reached through the registry.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Mapping
from functools import partial
from typing import Any

from zerocopy import registry
from zerocopy._frameworks import _obstacles as obstacles
from zerocopy.device import Device
from zerocopy.errors import Reason
from zerocopy.framework import Framework
from zerocopy.protocols.arrow_schema import Field
from zerocopy.source import Source
from zerocopy.strided_view import StridedView
from zerocopy.tables.column import Column, Table
from zerocopy.tables.decode import as_tensor
from zerocopy.tables.to_tables import Copied

_INSTALL = "pip install cudf-cu13, or cudf-cu12: nvidia-smi shows the CUDA version"
_FRAMES = ("DataFrame", "Series", "Index", "RangeIndex", "MultiIndex")
_RANGE = Reason(
    "a RangeIndex has no memory, so its values are computed", "pass index=False", code="no-memory"
)
_LEVELS = Reason(
    "a MultiIndex stores codes, so its values are computed", "pass index=False", code="no-memory"
)
_DAYS = Reason("cuDF's frames store dates as seconds, not as days", code="missing-dtype")


class CuDF(Framework):
    """``cudf.DataFrame``, ``cudf.Series`` and ``cudf.Index``, on CUDA devices only."""

    name = "cudf"
    kind = "table"
    kinds: Mapping[str, Any] = {"MultiIndex": "table", "Series": "column", "Index": "column"}
    root_modules = ("cudf",)
    distribution = "cudf-cu13"  # "pip install cudf" finds a placeholder
    install_hint = _INSTALL
    device_kinds = ("cuda",)

    def owns(self, cls: type) -> bool:
        return issubclass(cls, _classes(*_FRAMES))

    # -- source ---------------------------------------------------------------

    def source(self, obj: Any) -> Source:
        table = self.table(obj, False)
        if not table.single:
            raise obstacles.refuse_table(table.name)
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
            column = _pylibcudf().column(name, col, obj.dtype, lambda: obj, obj)
            label = "" if obj.name is None else obj.name
            return Table(name, [label], [column], len(obj), single=True, obj=obj)
        levels = _levels(obj, name)
        single = not isinstance(obj, _classes("MultiIndex"))
        unnamed: Any = [""] if single else range(len(obj.names))
        labels = [new if n is None else n for n, new in zip(obj.names, unnamed, strict=True)]
        return Table(name, labels, levels, len(obj), single=single, obj=obj)

    def _frame(self, obj: Any, name: str, index: bool | None) -> Table:
        inner, _ = obj.to_pylibcudf()  # without the index
        labels: list[Hashable] = list(obj)
        columns: list[Column] = [
            _pylibcudf().column(name, col, dtype, partial(obj.__getitem__, label), obj)
            for label, col, dtype in zip(labels, inner.columns(), obj.dtypes, strict=True)
        ]
        if not (_is_meaningful(obj.index) if index is None else index):
            return Table(name, labels, columns, len(obj), obj=obj)
        levels = _levels(obj.index, name)
        # pandas' metadata about the index, from a frame without rows, so that no data is copied.
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
        why = "cuDF has columns, not arrays"
        raise obstacles.refuse_column(why, "leave out layout=", code="not-an-array")

    def column_reasons(self, column: Column) -> list[Reason]:
        reasons: list[Reason] = _pylibcudf().import_reasons(column)
        if not _pylibcudf().on_gpu(column):
            return reasons
        type_id = column.plc.type().id().name if hasattr(column, "plc") else ""
        if type_id in ("DICTIONARY32", "DURATION_DAYS"):
            raise obstacles.refuse_column(
                f"it is {type_id}, which cuDF's frames lack", "cast it in pylibcudf"
            )
        days = column.field is not None and column.field.format == "tdD"
        return [*reasons, _DAYS] if days else reasons

    def table_reasons(self, table: Table) -> list[list[Reason]]:
        obstacles.check_unique(table.labels, "cuDF")
        obstacles.check_utf8(table.labels, "cuDF")
        return super().table_reasons(table)

    def table_warnings(self, table: Table) -> tuple[str, ...]:
        warnings = []
        for label, column in zip(table.labels, table.columns, strict=True):
            stored = "" if column.field is None else _stored_as(column.field)
            if stored:
                warnings.append(f"column {label!r} is {column.field}, and cuDF stores it as {stored}")
        if set(table.metadata) - {b"pandas"}:
            warnings.append("the schema's metadata is lost: cuDF keeps only pandas' metadata")
        return tuple(warnings)

    def from_table(self, table: Table) -> Any:
        cudf = self.module()
        obstacles.check_unique(table.labels, "cuDF")
        if not any(_pylibcudf().on_gpu(column) for column in table.columns):
            arrow: Any = registry.by_name("pyarrow")
            arrow.module()
            # One copy, to the GPU; cuDF reads the index from pandas' metadata.
            return cudf.DataFrame.from_arrow(_pylibcudf().cast_for_cudf(arrow.from_table(table)))
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
        """Return a pylibcudf column, or a series if its dtype has details that pylibcudf lacks."""
        cudf, columns = self.module(), _pylibcudf()
        if not columns.on_gpu(column):
            return cudf.Series.from_arrow(columns.cast_for_cudf(column.arrow()))
        series = getattr(column, "series", None)
        if series is None or _plain(column.field):
            return columns.to_pylibcudf(column)
        # reset_index: cuDF would otherwise align rows by their labels, not their positions.
        return series().reset_index(drop=True).copy(deep=isinstance(column, Copied))

    def _framed(self, labels: list[Hashable], parts: list[Any], rows: int) -> Any:
        cudf = self.module()
        if not parts:
            return cudf.DataFrame(index=cudf.RangeIndex(rows))
        if any(isinstance(part, cudf.Series) for part in parts):
            whole = [p if isinstance(p, cudf.Series) else cudf.Series.from_pylibcudf(p) for p in parts]
            return cudf.DataFrame(dict(zip(labels, whole, strict=True)))
        return cudf.DataFrame.from_pylibcudf(_pylibcudf().module().Table(parts), {"columns": labels})

    # -- devices --------------------------------------------------------------

    def default_device(self, view: StridedView) -> Device:
        device: Device = _pylibcudf().default_device(view)
        return device

    def check_device(self, device: Device) -> None:
        super().check_device(device)
        _pylibcudf().check_device(device)

    def devices(self) -> list[str]:
        names: list[str] = _pylibcudf().devices()
        return names


def _pylibcudf() -> Any:
    return registry.by_name("pylibcudf")


def _classes(*names: str) -> Any:
    """Return those classes that this version of cuDF has; cuDF must be imported."""
    cudf = sys.modules["cudf"]
    return tuple(getattr(cudf, name) for name in names if hasattr(cudf, name))


def _levels(index: Any, name: str) -> list[Column]:
    columns = _pylibcudf()
    why = _RANGE if isinstance(index, _classes("RangeIndex")) else None
    why = _LEVELS if isinstance(index, _classes("MultiIndex")) else why
    if why is None:
        col, _ = index.to_pylibcudf()
        return [columns.column(name, col, index.dtype, partial(sys.modules["cudf"].Series, index), index)]
    frame = index.to_frame(index=False)
    parts = zip(list(frame), frame.to_pylibcudf()[0].columns(), frame.dtypes, strict=True)
    return [
        columns.column(name, col, dtype, partial(frame.__getitem__, label), frame, (why,))
        for label, col, dtype in parts
    ]


def _is_meaningful(index: Any) -> bool:
    """Whether an index has a name or is not the default one."""
    plain = isinstance(index, _classes("RangeIndex")) and (index.start, index.step) == (0, 1)
    return not plain or any(name is not None for name in index.names)


def _plain(field: Field | None) -> bool:
    """Whether a pylibcudf column represents the type completely."""
    return (
        field is None
        or field.kind in ("number", "bool", "duration", "string")
        or (field.kind == "timestamp" and not field.timezone)
    )


def _stored_as(field: Field) -> str:
    """Return the type in which cuDF stores an Arrow type; "" if it is the same."""
    if field.extension:
        return "bool" if field.extension == "arrow.bool8" else str(field.storage)
    by_format = {"tdD": "datetime64[s]", "tdm": "datetime64[ms]", "n": "strings", "+L": "lists"}
    return by_format.get(field.format) or ("lists" if field.kind == "fixed_list" else "")


FRAMEWORK = CuDF()
