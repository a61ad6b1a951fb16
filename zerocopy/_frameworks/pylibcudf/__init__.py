"""pylibcudf: columns in Arrow's layout on a CUDA device, their nulls in a mask apart.

cuDF's frames are made of these, and its file takes them from here by way of the
registry. Only public calls are used, and none that copies: not ``to_dlpack``, nor
``Column.from_arrow`` for memory on the device, which drops a mask whose nulls are not
counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from zerocopy import registry
from zerocopy._frameworks.pylibcudf import fitting, memory as libcudf
from zerocopy.device import CUDA, Device
from zerocopy.dtype import by_name
from zerocopy.errors import (
    DeviceError,
    FrameworkNotInstalledError,
    Reason,
    UnsupportedConversionError,
)
from zerocopy.framework import Framework, Source
from zerocopy.protocols import arrow_device, cuda_driver
from zerocopy.protocols.arrow_c import Memory
from zerocopy.protocols.arrow_schema import Field
from zerocopy.strided_view import StridedView
from zerocopy.tables import on_device
from zerocopy.tables.arrow_column import ArrowColumn
from zerocopy.tables.column import Column, Table
from zerocopy.tables.decode import as_tensor
from zerocopy.tables.tensor_column import TensorColumn
from zerocopy.tables.to_tables import Copied

_INSTALL = "pip install pylibcudf-cu13 for CUDA 13, or pylibcudf-cu12 for CUDA 12: nvidia-smi says which"
_MAX_ROWS = 2**31 - 1  # libcudf's size_type
_BOOL = by_name("bool")
_VALIDITY = Reason("cuDF packs its nulls into bits, and a mask has a byte a row", "")
_UPLOAD = Reason("it is in host memory and cuDF's is on the GPU", "")


class PyLibCuDF(Framework):
    """``pylibcudf.Table``, which has no names, and ``pylibcudf.Column``."""

    name = "pylibcudf"
    kind = "table"
    root_modules = ("pylibcudf",)
    distribution = "pylibcudf-cu13"
    device_kinds = ("cuda",)

    def module(self) -> ModuleType:
        try:
            return super().module()
        except FrameworkNotInstalledError as error:
            error.remedy = _INSTALL  # the wheels have the CUDA version in their names
            error.args = (error.asked, error.why, error.remedy)
            raise

    def owns(self, cls: type) -> bool:
        plc = self.module()
        return issubclass(cls, (plc.Table, plc.Column))

    # -- source ---------------------------------------------------------------

    def source(self, obj: Any) -> Source:
        table = self.table(obj)
        if not table.single:
            raise UnsupportedConversionError(
                f"convert({table.name})",
                "a table is not one array",
                "pick a column, or convert it to a dict of them",
            )
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
        """Describe a column.

        Parameters
        ----------
        name : str
        col : pylibcudf.Column
        dtype : object, optional
            cuDF's type of it, which knows the categories, the time zone, the names of fields.
        series : callable, optional
            Returns it as a ``cudf.Series`` of that type.
        owner : object, optional
            What else is to be kept alive.
        reasons : sequence of Reason
            See :class:`Column`.
        """
        index = cuda_driver.ordinal(libcudf.somewhere(col))
        device = Device(CUDA, fitting.current_device() if index is None else index)
        return LibCudfColumn(
            name, libcudf.read(col, dtype, (col, owner), device, fitting.stream()), col, series, reasons
        )

    # -- target ---------------------------------------------------------------

    def copy_reasons(self, view: StridedView) -> list[Reason]:
        raise UnsupportedConversionError("", "cuDF has columns and no arrays", "leave layout out")

    def column_reasons(self, column: Column) -> list[Reason]:
        if isinstance(column, LibCudfColumn) and column.field.dictionary is not None:
            raise UnsupportedConversionError(
                "",
                f"is {column.field}, and its pylibcudf column is the codes alone",
                'convert it to "cudf", or cast it to its values first: x.astype(x.cat.categories.dtype)',
            )
        return self.fits(column)

    def fits(self, column: Column) -> list[Reason]:
        """Return why a column that comes in is copied; raise what libcudf cannot hold."""
        self.check_device(Device(CUDA, fitting.current_device()))
        if column.length > _MAX_ROWS:
            raise UnsupportedConversionError(
                "", f"has {column.length:,} rows and cuDF holds {_MAX_ROWS:,}", "convert it in parts"
            )
        if isinstance(column, LibCudfColumn):
            return list(column.reasons)
        if isinstance(column, TensorColumn):
            fitting.check_tensor(column.source.view)
            if self.on_gpu(column):
                return fitting.tensor_reasons(column)
        elif self.on_gpu(column):
            assert isinstance(column, ArrowColumn)
            return fitting.device_copy_reasons(column)
        if column.field is not None:
            fitting.check(column.field)
        return [*column.arrow_reasons(), _UPLOAD]

    def table_warnings(self, table: Table) -> tuple[str, ...]:
        said = ["pylibcudf has no names, no index and no metadata: they do not survive"]
        zones = [c.field.timezone for c in table.columns if c.field is not None and c.field.timezone]
        if zones:
            said.append(
                f"pylibcudf has no time zones: {', '.join(zones)} does not survive, what is in UTC does"
            )
        return tuple(said)

    def from_table(self, table: Table) -> Any:
        return self.module().Table([self.part(column) for column in table.columns])

    def from_column(self, table: Table) -> Any:
        return self.part(table.columns[0])

    def part(self, column: Column) -> Any:
        """Return a column that `column_reasons` took as a ``pylibcudf.Column``: an alias where it can be."""
        plc, copied = self.module(), isinstance(column, Copied)
        inner = column._column if isinstance(column, Copied) else column
        if isinstance(inner, LibCudfColumn):
            made = inner.plc
        elif not self.on_gpu(inner):
            return plc.Column.from_arrow(self.storable(column.arrow()))
        elif isinstance(inner, TensorColumn):
            made = fitting.of_tensor(plc, inner.source)
        else:
            assert isinstance(inner, ArrowColumn)
            fitting.order(arrow_device.ready(inner.chunks[0]), inner.device)
            made = libcudf.build(plc, inner.chunks[0])
        return made.copy() if copied else made

    def on_gpu(self, column: Column) -> bool:
        """Whether a column's memory is on a GPU."""
        inner = column._column if isinstance(column, Copied) else column
        if isinstance(inner, TensorColumn):
            return inner.source.view.device.kind == "cuda"
        return isinstance(inner, ArrowColumn) and not inner.device.is_host

    def storable(self, array: Any) -> Any:
        """Return a ``pyarrow`` array or table in types that cuDF has, where another one will do."""
        pa: Any = registry.by_name("pyarrow").module()
        if isinstance(array, pa.Table):
            fields = [field.with_type(fitting.storable(pa, field.type)) for field in array.schema]
            return array.cast(pa.schema(fields, metadata=array.schema.metadata))
        kind = fitting.storable(pa, array.type)
        return array if kind == array.type else array.cast(kind)

    # -- devices --------------------------------------------------------------

    def default_device(self, view: StridedView) -> Device:
        return view.device if view.device.kind == "cuda" else Device(CUDA, fitting.current_device())

    def check_device(self, device: Device) -> None:
        super().check_device(device)
        asked = f"to={self.name!r}, device={str(device)!r}"
        reason = cuda_driver.missing()
        if reason is not None:
            raise DeviceError(asked, reason.why, reason.remedy)
        if device.id != fitting.current_device():
            # No call of cuDF names a device: it allocates on the current one.
            raise DeviceError(
                asked,
                f"cuDF works on the current device, cuda:{fitting.current_device()}",
                f"make the other one current first: cupy.cuda.Device({device.id}).use()",
            )

    def devices(self) -> list[str]:
        return [f"cuda:{i}" for i in range(cuda_driver.count())] or ["cuda (no device)"]


# -- columns that come ------------------------------------------------------------


class LibCudfColumn(ArrowColumn):
    """A column of libcudf: Arrow's memory, but for booleans, of a byte each.

    Parameters
    ----------
    name : str
    chunk : Memory
        It, on the device.
    col : pylibcudf.Column
    series : callable, optional
        Returns it as a ``cudf.Series``, with the type that pylibcudf does not keep: the
        categories, the time zone, the names of fields.
    reasons : sequence of Reason
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
        why = f"it is on {self.device} and Arrow's memory is the host's"
        return [*self.reasons, Reason(why, "CuPy, torch, JAX and Numba alias it where it is")]

    def values(self, dtype: Any, shape: tuple[int, ...] = ()) -> Source:
        return self._blocks(_BOOL if self.field.kind == "bool" else dtype, shape, 1)

    def mask(self) -> Source:
        # By cuDF itself: it knows the offset, and the bits need not come to the host.
        def there() -> Any:
            return FRAMEWORK.module().unary.is_null(self.plc)

        def host() -> Any:
            return FRAMEWORK.source(there()).host()

        view = StridedView(0, (self.length,), (1,), _BOOL, self.device, True, self)
        return on_device.made(Source(self.name, view, host, "cuda-array-interface", (_VALIDITY,)), there)

    def filled(self, value: Any) -> Callable[[], Any] | None:
        plc = FRAMEWORK.module()
        plain = self.field.kind in ("number", "bool")
        if not plain or not hasattr(plc.Scalar, "from_py"):  # before 25.06: by way of the host
            return None
        python = value.item() if hasattr(value, "item") else value
        return lambda: plc.replace.replace_nulls(self.plc, plc.Scalar.from_py(python, self.plc.type()))


FRAMEWORK = PyLibCuDF()
