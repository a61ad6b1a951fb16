"""``describe``: one object as a `Source` (an array) or a `Table` (columns); copies nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from zerocopy import registry
from zerocopy.errors import Fix, UnsupportedConversionError, ZeroCopyError
from zerocopy.protocols import producer
from zerocopy.protocols.exporter_errors import is_error
from zerocopy.source import Source

if TYPE_CHECKING:
    from zerocopy.tables.column import Column, Table
    from zerocopy.tables.result import Encoded, Masked

# Tables are imported inside functions, because conversions between arrays do not need them.


class translated_errors:
    """A context that turns exceptions of frameworks and producers into zerocopy's own (promise P9).

    `asked` is a function, because the text of a call may name the described object. This is a class,
    because entering a generator takes a microsecond longer.
    """

    __slots__ = ("_asked",)

    def __init__(self, asked: Callable[[], str]) -> None:
        self._asked = asked

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if error is None or (isinstance(error, MemoryError) and not isinstance(error, ZeroCopyError)):
            return
        if isinstance(error, ZeroCopyError):
            raise_known(self._asked, error)
            error.with_context(asked=self._asked())
        elif not is_error(error):
            return
        elif isinstance(error, RecursionError):
            raise UnsupportedConversionError(
                self._asked(),
                "it holds itself, or its types are nested deeper than Python's recursion limit",
                "flatten it, or raise the limit with sys.setrecursionlimit",
                code="nested-too-deep",
            ) from error
        else:
            raise_known(self._asked, error)
            raise UnsupportedConversionError(
                self._asked(),
                f"describing it raised {type(error).__name__}: {error}",
                "see the cause above; please report it if zerocopy should check for it",
                code="producer-raised",
            ) from error


def raise_known(asked: Callable[[], str], error: Exception) -> None:
    """Raise the error for an exception that is understood: lack of memory, or a type without a hash.

    An exporter can have raised a framework's own out-of-memory error.
    """
    # Names of a class in Python: a type with a metaclass, not a list or an array that is an item of a set.
    if type(error) is TypeError and re.search(r"unhashable type: '(?!list|dict|set)\w+'", str(error)):
        remedy = "define __hash__, for a type in its metaclass"
        raise UnsupportedConversionError(asked(), str(error), remedy, code="producer-raised") from error
    cause: BaseException | None = error
    why = type(error).__name__
    if isinstance(error, ZeroCopyError):
        cause, why = error.__cause__ if error.code == "producer-raised" else None, error.why  # with a column
    name = registry.out_of_memory(cause) if isinstance(cause, Exception) else None
    if name is not None:
        raise MemoryError(
            f"{asked()}: {name} could not allocate memory ({why}).\n"
            "  To fix: free memory that is no longer needed, or convert in parts"
        ) from cause


def opened(obj: Any, target: str = "") -> Any:
    """Return the object that a handle of shared memory locates, NumPy's array of a buffer of records, or the
    object of another framework that `obj` wraps.

    Any other object is returned itself. A table of the framework `target` is restored as its own object.
    """
    if type(obj) in (dict, list, tuple):
        return obj
    open_handle = getattr(type(obj), "__zerocopy_open__", None)
    if open_handle is not None:
        return open_handle(obj, target)
    framework = registry.by_type(type(obj))
    if framework is not None:
        return framework.unwrapped(obj) if framework.unwrap else obj
    records = producer.records_of(obj)
    return obj if records is None else records


def describe(obj: Any, index: bool | None = None, for_table: bool = False) -> Source | Table:
    """Describe any object by its framework, or else by the protocols of its type.

    Parameters
    ----------
    obj : object
        A dict is a table of its values.
    index : bool, optional
        The option ``index=``, for frameworks whose tables have row labels.
    for_table : bool
        Whether the target is a table framework. pyarrow then reads a whole Arrow
        stream in one call, instead of batch by batch.

    Raises
    ------
    ZeroCopyError
        The object is not an array or a table, or its exporter returns invalid data.
    """
    cls = type(obj)
    if cls in (list, tuple):
        return describe_array(obj)
    # Not isinstance, which reads __class__; frameworks own some subclasses, such as SciPy's DOK arrays.
    if cls is dict or (issubclass(cls, dict) and registry.by_type(cls) is None):
        table = describe_columns(obj)
        if table is None:
            raise UnsupportedConversionError(
                "", "a dict of tables is not one table", "convert each table separately", code="not-a-column"
            )
        return table
    framework = registry.by_type(type(obj))
    if framework is None and hasattr(cls, "__zerocopy_node__"):
        from zerocopy.tables.column import Table

        column = _column_of_result(obj)
        return Table(f"zerocopy.{cls.__name__}", [""], [column], column.length, single=True, obj=obj)
    if framework is not None and framework.unwrap and (inner := framework.unwrapped(obj)) is not obj:
        return describe(inner, index, for_table)
    if framework is not None:
        table = framework.table(obj, index)
        return registry.source_of(framework, obj) if table is None else table
    if producer.is_arrow(obj):
        from zerocopy.tables import arrow_table

        return arrow_table.describe(obj, for_table)
    records = producer.records_of(obj)
    return describe_array(obj) if records is None else describe(records, index)


def describe_array(obj: Any) -> Source:
    """Describe an object as one array: a column of numbers is accepted, a table is refused.

    Raises
    ------
    ZeroCopyError
        The object is not an array, or not one block of memory.
    """
    if type(obj) in (list, tuple):
        from zerocopy.protocols import python_numbers

        if not obj or python_numbers.is_array(obj):
            return python_numbers.describe(obj)
    framework = registry.by_type(type(obj))
    if framework is not None:
        inner = framework.unwrapped(obj) if framework.unwrap else obj
        if inner is not obj and type(inner) is not dict:  # the framework refuses a dict as one array
            return describe_array(inner)
        return registry.source_of(framework, obj)
    source = producer.describe(obj)
    if hasattr(type(obj), "__zerocopy_node__"):
        why = f"zerocopy.{type(obj).__name__} may have several arrays"
        fix = Fix("{x}.values", "is one of them")
        raise UnsupportedConversionError("", why, code="not-an-array", fixes=[fix])
    if source is None and producer.is_arrow_array(obj) and not producer.is_array_too(type(obj)):
        from zerocopy.tables import arrow_table

        source = arrow_table.as_array(obj)
    if source is None:
        return producer.describe_buffer(obj)
    if not source.view.device.is_host and source.to_host is None:
        source.to_host = registry.RelayedCopy(source)
    return source


#: A dict of columns as one column.
_STRUCTS = Fix('zc.convert({x}, "pyarrow").to_struct_array()', "gives a column of structs")


def describe_columns(columns: dict[Any, Any]) -> Table | None:
    """Describe a dict's values as the columns of one table; None if a value is itself a table.

    Raises
    ------
    ZeroCopyError
        A value is not a column, or the lengths differ.
    """
    from zerocopy.tables.column import Table

    described: list[Column] = []
    refused: dict[Any, ZeroCopyError] = {}
    for label, value in columns.items():
        try:
            column = _column(value)
        except ZeroCopyError as error:
            # A later value can be a table, which makes the dict a container of tables.
            refused[label] = error
            continue
        if column is None:
            return None
        described.append(column)
    if refused:
        from zerocopy.tables.labels import combine_errors

        raise combine_errors(refused)
    lengths = {column.length for column in described}
    if len(lengths) > 1:
        each = ", ".join(f"{label!r} has {c.length:,}" for label, c in zip(columns, described, strict=True))
        raise UnsupportedConversionError(
            "",
            f"the columns differ in length: {each}",
            "pass columns of one length",
            code="different-lengths",
        )
    return Table("dict", list(columns), described, lengths.pop() if lengths else 0, obj=columns)


def are_columns(columns: dict[Any, Any]) -> bool:
    """Whether the values of a dict are the columns of one table."""
    try:
        return describe_columns(columns) is not None
    except ZeroCopyError:
        return False


def _column(value: Any) -> Column | None:
    """Describe a dict's value as a column; None if it is a table."""
    from zerocopy.protocols import python_numbers
    from zerocopy.tables.column import Table
    from zerocopy.tables.tensor_column import TensorColumn

    if hasattr(type(value), "__zerocopy_node__"):
        return _column_of_result(value)
    if python_numbers.is_array(value):
        return TensorColumn(python_numbers.describe_column(value))
    if python_numbers.is_text(value):
        import numpy as np

        value = np.array(value, object)
    if isinstance(value, (dict, list, tuple)):
        # NumPy refuses items of different lengths; Arrow refuses arrays of the other byte order, for example.
        make = "pyarrow.array" if _differ_in_length(value) else "numpy.asarray"
        fixes = [Fix(f"{make}({{x}})")]
        if isinstance(value, dict):
            fixes = [_STRUCTS] if _is_table(value) else []
        why = f"a {type(value).__qualname__} is not a column"
        remedy = "" if fixes else "pass an array of its values"
        raise UnsupportedConversionError("", why, remedy, code="not-a-column", fixes=fixes)
    described = describe(value, for_table=True)
    if isinstance(described, Table):
        if not described.single:
            return None
        if described.read is not None:
            # explain() must not read it, and a stream can be read only once.
            raise UnsupportedConversionError(
                "",
                f"a {type(value).__qualname__} becomes a column when its values are read",
                "read it first",
                code="unread",
                fixes=[Fix(action="read", effect="reads it first")],
            )
        return described.columns[0]
    if described.view.ndim == 0:
        raise UnsupportedConversionError(
            "",
            "a 0-dimensional array is not a column",
            code="too-few-dimensions",
            fixes=[Fix("numpy.atleast_1d({x})")],
        )
    return TensorColumn(described)


def _column_of_result(result: Masked | Encoded) -> Column:
    """Describe the rows of a `Masked` or an `Encoded`."""
    from zerocopy.tables.hub import hub
    from zerocopy.tables.result import Encoded, Masked
    from zerocopy.tables.tensor_column import TensorColumn

    if isinstance(result, Masked) and not isinstance(result.values, Encoded):
        values = describe_array(result.values)
        if values.view.ndim == 1:
            return TensorColumn.masked(values, describe_array(result.mask))
    array, reasons = hub().array_of_result(result)
    described: Table = hub().table(array)
    column = described.columns[0]
    column.reasons = (*reasons, *column.reasons)
    return column


def _is_table(columns: dict[Any, Any]) -> bool:
    """Whether a dict in a dict has columns itself, and so can be a column of structs."""
    try:
        return bool(columns) and describe_columns(columns) is not None
    except ZeroCopyError:
        return False


def _differ_in_length(items: Any) -> bool:
    """Whether some items have another length than others; False if one of them raises, as 0-d arrays do."""
    try:
        return len({len(item) for item in items if hasattr(type(item), "__len__")}) > 1
    except Exception as error:
        if not is_error(error):
            raise
        return False


def summarize(description: Source | Table) -> str:
    """Return a short text for a `Source` or `Table`: type, dtype, shape.

    Examples
    --------
    >>> import numpy as np
    >>> summarize(describe(np.zeros((2, 3), "f4")))
    'numpy.ndarray float32 (2, 3)'
    """
    if isinstance(description, Source):
        return description.summary
    field = description.columns[0].shown if description.single and description.columns else None
    text = description.name if field is None else f"{description.name} {field}"
    return f"{text} {description.shape}" if description.read is None else str(text)
