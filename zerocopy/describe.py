"""``describe``: one object as a `Source` (an array) or a `Table` (columns); copies nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zerocopy import registry
from zerocopy.errors import Fix, UnsupportedConversionError, ZeroCopyError
from zerocopy.framework import Framework
from zerocopy.protocols import producer
from zerocopy.source import Source

if TYPE_CHECKING:
    from zerocopy.tables.column import Column, Table

# Tables are imported inside functions, because conversions between arrays do not need them.


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
    if issubclass(type(obj), dict):  # not isinstance, which reads __class__
        table = describe_columns(obj)
        if table is None:
            raise UnsupportedConversionError(
                "", "a dict of tables is not one table", "convert each table separately", code="not-a-column"
            )
        return table
    framework = registry.by_type(type(obj))
    if framework is not None:
        table = framework.table(obj, index)
        return _owned(framework, obj) if table is None else table
    if producer.is_arrow(obj):
        from zerocopy.tables import arrow_table

        return arrow_table.describe(obj, for_table)
    return describe_array(obj)


def describe_array(obj: Any) -> Source:
    """Describe an object as one array: a column of numbers is accepted, a table is refused.

    Raises
    ------
    ZeroCopyError
        The object is not an array, or not one block of memory.
    """
    framework = registry.by_type(type(obj))
    if framework is not None:
        return _owned(framework, obj)
    source = producer.describe(obj)
    if source is None and producer.is_arrow_array(obj):
        from zerocopy.tables import arrow_table

        source = arrow_table.as_array(obj)
    return producer.describe_buffer(obj) if source is None else source


def _owned(framework: Framework, obj: Any) -> Source:
    source = framework.source(obj)
    source.framework, source.obj = framework, obj
    return source


def describe_columns(columns: dict[Any, Any]) -> Table | None:
    """Describe a dict's values as the columns of one table; None if a value is itself a table.

    Raises
    ------
    ZeroCopyError
        A value is not a column, or the lengths differ.
    """
    from zerocopy.tables.column import Table

    described: list[Column] = []
    refusal: ZeroCopyError | None = None
    for label, value in columns.items():
        try:
            column = _column(value)
        except ZeroCopyError as error:
            # A later value can be a table, which makes the dict a container of tables.
            if refusal is None:
                error.obstacles, error.fixes = [((label,), error.reason)], ()
                refusal = error.with_context(why=f"column {label!r}: {error.why}")
            continue
        if column is None:
            return None
        described.append(column)
    if refusal is not None:
        raise refusal
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


def _column(value: Any) -> Column | None:
    """Describe a dict's value as a column; None if it is a table."""
    from zerocopy.tables.column import Table
    from zerocopy.tables.result import Encoded, Masked
    from zerocopy.tables.tensor_column import TensorColumn

    if isinstance(value, Masked) and not isinstance(value.values, Encoded):
        return TensorColumn.masked(describe_array(value.values), describe_array(value.mask))
    if isinstance(value, (Encoded, Masked)):
        raise UnsupportedConversionError(
            "",
            "an Encoded is the result of a conversion, not a column",
            "pass the original column",
            code="not-a-column",
        )
    if isinstance(value, (dict, list, tuple)):
        raise UnsupportedConversionError(
            "",
            f"a {type(value).__qualname__} is not a column",
            "pass an array of its values" if isinstance(value, dict) else "",
            code="not-a-column",
            fixes=[] if isinstance(value, dict) else [Fix("numpy.asarray({x})")],
        )
    described = describe(value, for_table=True)
    if isinstance(described, Table):
        if not described.single:
            return None
        if described.read is not None:
            # A stream can be read only once, so explain() must not read it.
            raise UnsupportedConversionError(
                "",
                f"a {type(value).__qualname__} is a stream, and becomes a column when it is read",
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


def summarize(description: Source | Table) -> str:
    """Return a short text for a `Source` or `Table`: type, dtype, shape.

    Examples
    --------
    >>> import numpy as np
    >>> summarize(describe(np.zeros((2, 3), "f4")))
    'numpy.ndarray float32 (2, 3)'
    """
    if isinstance(description, Source):
        return f"{description.name} {description.view.dtype} {description.view.shape}"
    field = description.columns[0].field if description.single else None
    text = description.name if field is None else f"{description.name} {field}"
    return f"{text} {description.shape}" if description.read is None else str(text)
