"""pylibcudf: columns in Arrow's layout on a CUDA device, with nulls in a separate mask.

cuDF's frames consist of these columns, and its file reaches this one through the registry. Only
public functions that do not copy are used: neither ``to_dlpack``, nor ``Column.from_arrow`` for
device memory, which drops the mask if its nulls are not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from zerocopy._frameworks import _obstacles as obstacles
from zerocopy._frameworks.pylibcudf import columns as libcudf
from zerocopy.device import CUDA, Device
from zerocopy.dtype import by_name
from zerocopy.errors import DeviceError, Reason
from zerocopy.framework import Framework
from zerocopy.protocols import arrow_c, cuda_driver
from zerocopy.protocols.arrow_c import Memory
from zerocopy.protocols.arrow_schema import Field
from zerocopy.source import Source
from zerocopy.strided_view import StridedView
from zerocopy.tables import placement
from zerocopy.tables.arrow_column import ArrowColumn
from zerocopy.tables.column import Column, Table
from zerocopy.tables.decode import as_tensor
from zerocopy.tables.hub import hub
from zerocopy.tables.tensor_column import TensorColumn
from zerocopy.tables.to_tables import Copied

_INSTALL = (
    "pip install pylibcudf-cu13 for CUDA 13, or pylibcudf-cu12 for CUDA 12: nvidia-smi shows the version"
)
_MAX_ROWS = 2**31 - 1  # libcudf's size_type
_BOOL = by_name("bool")
_VALIDITY = Reason("cuDF packs its nulls into bits, and a mask has one byte per row", code="packed-bits")
_UPLOAD = Reason("it is in host memory, and cuDF's memory is on the GPU", code="other-device")


class PyLibCuDF(Framework):
    """``pylibcudf.Table``, which has no names, and ``pylibcudf.Column``."""

    name = "pylibcudf"
    aliases = ("plc",)
    types = ("Table", "Column")
    kind = "table"
    kinds: Mapping[str, Any] = {"Column": "column"}
    root_modules = ("pylibcudf",)
    distribution = "pylibcudf-cu13"
    install_hint = _INSTALL
    device_kinds = ("cuda",)

    def owns(self, cls: type) -> bool:
        plc = self.module()
        return issubclass(cls, (plc.Table, plc.Column))

    # -- source ---------------------------------------------------------------

    def source(self, obj: Any) -> Source:
        table = self.table(obj)
        if not table.single:
            raise obstacles.refuse_table(table.name)
        return as_tensor(table.columns[0])

    def table(self, obj: Any, index: bool | None = None) -> Table:
        name = f"pylibcudf.{type(obj).__name__}"
        if isinstance(obj, self.module().Column):
            column = self.column(name, obj)
            return Table(name, [""], [column], column.length, single=True, obj=obj)
        columns = [self.column(name, col) for col in obj.columns()]
        return Table(name, [f"column_{i}" for i in range(len(columns))], columns, obj.num_rows(), obj=obj)

    def column(
        self,
        name: str,
        col: Any,
        dtype: Any = None,
        series: Callable[[], Any] | None = None,
        owner: Any = None,
        reasons: Sequence[Reason] = (),
    ) -> LibCudfColumn:
        """Describe a ``pylibcudf.Column``; cuDF passes its dtype, and a function that returns the Series."""
        index = cuda_driver.ordinal(libcudf.any_address(col))
        device = Device(CUDA, libcudf.current_device() if index is None else index)
        return LibCudfColumn(
            name, libcudf.read(col, dtype, (col, owner), device, libcudf.stream()), col, series, reasons
        )

    # -- target ---------------------------------------------------------------

    def copy_reasons(self, view: StridedView) -> list[Reason]:
        why = "cuDF has columns, not arrays"
        raise obstacles.refuse_column(why, "leave out layout=", code="not-an-array")

    def column_reasons(self, column: Column) -> list[Reason]:
        if isinstance(column, LibCudfColumn) and column.field.dictionary is not None:
            raise obstacles.refuse_column(
                f"it is {column.field}, and its pylibcudf column has only the codes",
                'convert it to "cudf", or cast it to its values first: x.astype(x.cat.categories.dtype)',
            )
        return self.import_reasons(column)

    def import_reasons(self, column: Column) -> list[Reason]:
        """Return the reasons to copy a column; refuse one that libcudf cannot hold."""
        self.check_device(Device(CUDA, libcudf.current_device()))
        if column.length > _MAX_ROWS:
            raise obstacles.refuse_column(
                f"it has {column.length:,} rows and cuDF holds {_MAX_ROWS:,}",
                "convert it in parts",
                code="too-many-elements",
            )
        if isinstance(column, LibCudfColumn):
            return list(column.reasons)
        if isinstance(column, TensorColumn):
            libcudf.check_tensor(column.source.view)
            if self.on_gpu(column):
                return libcudf.tensor_reasons(column)
        elif self.on_gpu(column):
            assert isinstance(column, ArrowColumn)
            return libcudf.device_copy_reasons(column)
        if column.field is not None:
            libcudf.check(column.field)
        return [*column.arrow_reasons(), _UPLOAD]

    def table_warnings(self, table: Table) -> tuple[str, ...]:
        warnings = ["pylibcudf does not store names, an index or metadata: they are lost"]
        zones = [c.field.timezone for c in table.columns if c.field is not None and c.field.timezone]
        if zones:
            warnings.append(
                f"pylibcudf does not store time zones: {', '.join(zones)} is lost, and the values are in UTC"
            )
        return tuple(warnings)

    def from_table(self, table: Table) -> Any:
        return self.module().Table([self.to_pylibcudf(column) for column in table.columns])

    def from_column(self, table: Table) -> Any:
        return self.to_pylibcudf(table.columns[0])

    def to_pylibcudf(self, column: Column) -> Any:
        """Return a column as a ``pylibcudf.Column``, which aliases it if it has no reasons to copy."""
        plc, copied = self.module(), isinstance(column, Copied)
        inner = column._column if isinstance(column, Copied) else column
        if isinstance(inner, LibCudfColumn):
            result = inner.plc
        elif not self.on_gpu(inner):
            return plc.Column.from_arrow(self.cast_for_cudf(column.arrow()))
        elif isinstance(inner, TensorColumn):
            result = libcudf.alias_tensor(plc, inner.source)
        else:
            assert isinstance(inner, ArrowColumn)
            libcudf.order(arrow_c.ready(inner.chunks[0]), inner.device)
            result = libcudf.build(plc, inner.chunks[0])
        return result.copy() if copied else result

    def on_gpu(self, column: Column) -> bool:
        inner = column._column if isinstance(column, Copied) else column
        if isinstance(inner, TensorColumn):
            return inner.source.view.device.kind == "cuda"
        return isinstance(inner, ArrowColumn) and not inner.device.is_host

    def cast_for_cudf(self, array: Any) -> Any:
        """Return a ``pyarrow`` array or table cast to the types in which cuDF stores its values."""
        pa = hub().module()
        if isinstance(array, pa.Table):
            fields = [field.with_type(libcudf.storage_type(pa, field.type)) for field in array.schema]
            columns = [hub().cast_views(c, f.type) for c, f in zip(array.columns, fields, strict=True)]
            return pa.Table.from_arrays(columns, schema=pa.schema(fields, metadata=array.schema.metadata))
        return hub().cast_views(array, libcudf.storage_type(pa, array.type))

    # -- devices --------------------------------------------------------------

    def default_device(self, view: StridedView) -> Device:
        return view.device if view.device.kind == "cuda" else Device(CUDA, libcudf.current_device())

    def check_device(self, device: Device) -> None:
        super().check_device(device)
        asked = f"to={self.name!r}, device={str(device)!r}"
        cuda_driver.require(asked)
        if device.id != libcudf.current_device():
            # cuDF's functions take no device: they allocate on the current one.
            raise DeviceError(
                asked,
                f"cuDF works on the current device, cuda:{libcudf.current_device()}",
                f"make {device} current first: cupy.cuda.Device({device.id}).use()",
                code="other-device",
            )

    def devices(self) -> list[str]:
        return [f"cuda:{i}" for i in range(cuda_driver.count())] or ["cuda (no device)"]


# -- columns of pylibcudf as sources -----------------------------------------------


class LibCudfColumn(ArrowColumn):
    """A column of libcudf: Arrow's memory, but with one byte per boolean.

    `series` returns it as a ``cudf.Series``, whose dtype has what pylibcudf's lacks: categories,
    time zone, names of fields.
    """

    def __init__(
        self,
        name: str,
        chunk: Memory,
        col: Any,
        series: Callable[[], Any] | None = None,
        reasons: Sequence[Reason] = (),
    ) -> None:
        self.plc, self.series = col, series
        field = Field("b") if chunk.field.extension == "arrow.bool8" else chunk.field
        super().__init__(
            name, field, lambda: (chunk,), chunk.length, self._to_host, reasons, device=chunk.device
        )

    def _to_host(self) -> Any:
        return self.plc.to_arrow() if self.series is None else self.series().to_arrow()

    def arrow_reasons(self) -> list[Reason]:
        why = f"it is on {self.device}, and Arrow arrays are on the host"
        return [
            *self.reasons,
            Reason(why, "convert it to CuPy, torch, JAX or Numba, which alias it", code="other-device"),
        ]

    def values(self, dtype: Any, shape: tuple[int, ...] = ()) -> Source:
        return self._blocks(_BOOL if self.field.kind == "bool" else dtype, shape, 1)

    def mask(self) -> Source:
        # cuDF computes the mask on the device, with the column's offset.
        def on_gpu() -> Any:
            return FRAMEWORK.module().unary.is_null(self.plc)

        def host() -> Any:
            return FRAMEWORK.source(on_gpu()).host()

        view = StridedView(0, (self.length,), (1,), _BOOL, self.device, True, self)
        return placement.via_host(Source(self.name, view, host, "cuda-array-interface", (_VALIDITY,)), on_gpu)

    def filled(self, value: Any) -> Callable[[], Any] | None:
        plc = FRAMEWORK.module()
        plain = self.field.kind in ("number", "bool")
        if not plain or not hasattr(plc.Scalar, "from_py"):  # pylibcudf before 25.06: fill on the host
            return None
        python = value.item() if hasattr(value, "item") else value
        return lambda: plc.replace.replace_nulls(self.plc, plc.Scalar.from_py(python, self.plc.type()))


FRAMEWORK = PyLibCuDF()
