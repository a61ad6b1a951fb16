"""The options of ``convert``, listed once, and ``Request``: those of one call, parsed."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, SupportsComplex, SupportsFloat, TypeAlias, TypedDict

if TYPE_CHECKING:
    from zerocopy.casting.option import DTypeOption
    from zerocopy.framework import Framework

#: Values of ``nulls=`` with which a column stays one array: the numbers of NumPy and Python, and these texts.
Fill: TypeAlias = Literal["nan", "drop"] | SupportsFloat | SupportsComplex
#: A value of ``nulls=`` for one column.
NullPolicy: TypeAlias = Literal["mask"] | Fill


class MatrixOrder(Enum):
    """``layout="matrix"`` and ``order=`` as one value: keys of routes in the core do not have ``order=``."""

    C = "C"
    F = "F"

    def __repr__(self) -> str:
        return f"'matrix', order={self.value!r}"  # after layout=, as the caller passed the two


#: The values of ``layout=`` that make one array of a table, with its memory order; empty for either.
MATRIX_ORDERS: dict[object, str] = {"matrix": "", MatrixOrder.C: "C", MatrixOrder.F: "F"}


class ArrayOptions(TypedDict, total=False):
    """Options of every conversion."""

    device: Any
    copy: bool | None
    stream: Any
    writable: bool | None
    dtype: Any
    leaves: Literal["keep", "error"] | None
    validate: Literal["full"] | None
    out: Any


class ConvertOptions(ArrayOptions, total=False):
    """All options: those of every conversion, and those for tables."""

    layout: Literal["columns", "matrix", "records"] | None
    order: Literal["C", "F"] | None
    columns: Sequence[Hashable] | None
    nulls: NullPolicy | Mapping[Hashable, NullPolicy | None] | None
    encode: bool | Literal["codes", "bytes"] | Mapping[Hashable, Any] | None
    lists: Literal["dense", "ragged", "pad", "variable"] | None
    pad_value: Any
    max_length: int | None
    names: Sequence[str] | None
    index: Any
    connection: Any


NAMES = tuple(ConvertOptions.__annotations__)
#: Options of one call, which functions for many calls do not take.
ONE_CALL = frozenset(("out",))
#: The options for tables, which have no effect on arrays.
TABLE_NAMES = tuple(name for name in NAMES if name not in ArrayOptions.__annotations__)


@dataclass(slots=True, kw_only=True)
class Request:
    """The target and the options of one call, each None if it was not passed.

    Attributes
    ----------
    target : Framework
        The framework of the result.
    device : Any
        The option ``device=``; None for the device of the source, if the target has it.
    stream : int or None
        The stream of the caller, parsed.
    cast : DTypeOption or None
        The option ``dtype=``, parsed.
    columns, names : tuple or None
        These options as tuples.
    layout : str, MatrixOrder or None
        The options ``layout=`` and ``order=``.
    validate : str or None
        ``"full"`` if the content of Arrow columns is checked.
    of_tables : mapping of str to object
        The options for tables that were passed.
    for_explain : bool
        Whether the plan is for ``explain``, and describes each column.
    is_trial : bool
        Whether the plan is made for its error alone.
    drop : Any
        The option ``nulls=`` if it has ``"drop"``, which `nulls` then lacks.

    The other attributes are options as ``convert`` takes them.
    """

    target: Framework
    device: Any = None
    copy: bool | None = None
    writable: bool | None = None
    stream: int | None = None
    cast: DTypeOption | None = None
    validate: str | None = None
    layout: str | MatrixOrder | None = None
    columns: Sequence[Hashable] | None = None
    nulls: Any = None
    encode: bool | str | Mapping[Hashable, Any] | None = None
    lists: str | None = None
    pad_value: Any = None
    max_length: int | None = None
    names: Sequence[str] | None = None
    index: Any = None
    connection: Any = None
    for_explain: bool = False
    is_trial: bool = False
    drop: Any = None
    of_tables: Mapping[str, Any] = field(default_factory=dict)
