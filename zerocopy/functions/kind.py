"""``kind``: the framework of an object, and whether it is an array, a column or a table."""

from __future__ import annotations

import builtins
import types
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from zerocopy.errors import ZeroCopyError
from zerocopy.errors.tracebacks import not_transformed, shorten
from zerocopy.protocols.exporter_errors import is_error

if TYPE_CHECKING:
    from typing import TypeGuard

    from zerocopy._engine.signatures import TableLike

_OWN = __name__.removesuffix("functions.kind")
_ALL = ("array", "column", "table", "sparse", "ragged")
#: The kind of a framework's classes that its `kinds` does not name.
_BY_FRAMEWORK = {"table": "table", "column": "column", "compound": "sparse"}
_OF_ARRAYS = ("__dlpack__", "__cuda_array_interface__", "__array_interface__")
_OF_ARROW = ("__arrow_c_stream__", "__arrow_c_device_array__", "__arrow_c_array__")
#: Types of Python itself: they cannot get a protocol, and importing the registry imports NumPy.
_OF_PYTHON = [
    each
    for module in (builtins, types)
    for each in vars(module).values()
    if isinstance(each, type) and each.__module__ == "builtins"
]


class Kind(NamedTuple):
    """What an object is, as :func:`kind` returns it.

    Attributes
    ----------
    framework : str or None
        The framework that owns its type: a name of :func:`zerocopy.frameworks`, or a source such as
        ``"PIL"``; ``"zerocopy"`` for its own results. None if zerocopy knows the type by a protocol alone.
    kind : str
        ``"array"``, ``"column"``, ``"table"``, ``"sparse"`` or ``"ragged"``.

    Examples
    --------
    >>> import pandas as pd, zerocopy as zc
    >>> framework, kind = zc.kind(pd.Series([1, 2]))
    >>> framework, kind
    ('pandas', 'column')
    """

    framework: str | None
    kind: str


@not_transformed
def kind(obj: object, /) -> Kind | None:
    """Return the framework of an object and what it is; None if it is neither an array nor a table.

    It reads no values, runs no query and imports no framework. A known type that has a kind is one lookup.

    Parameters
    ----------
    obj : object
        Any object. Its type decides: a subclass has the kind of its base class, and a proxy has none unless
        its own class has a protocol. The object decides if one type has several kinds, as PyTorch's.

    Returns
    -------
    Kind or None
        ``"array"``: dense, of any number of dimensions; images and arrays in files too. ``"column"``: a
        series, an index, an Arrow array. ``"table"``: also a query that has not run, such as a LazyFrame.
        ``"sparse"`` and ``"ragged"``: arrays of several buffers. None: lists, dicts, numbers (NumPy's
        scalars too), text, buffers such as ``bytes``, and all other objects.

        An object without a framework is an array if its class has ``__dlpack__``, an array interface, or
        ``__array__`` with ``shape``, ``dtype`` and ``ndim``; and a table or a column if its class has
        Arrow's PyCapsule interface. Without ``__arrow_c_schema__``, a stream is assumed to be a table, since
        a stream may be requested only once; an array is exported, and a struct is a table. :func:`convert`
        can refuse an object that has a kind, and says why.

    Raises
    ------
    FrameworkNotInstalledError
        The object's framework is older than the oldest supported version.
    StaleHandleError, UnsupportedConversionError
        The object has to be read, and was closed or released, or its protocol raises.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> zc.kind(np.zeros(3))
    Kind(framework='numpy', kind='array')
    >>> zc.kind([0.0, 0.0]) is None
    True
    """
    try:
        try:
            known = _KINDS[type(obj)]
        except Exception as error:  # its metaclass has __eq__ alone, or a __hash__ that raises
            if not is_error(error):
                raise
            known = _of_type(_registry(), type(obj))
        if type(known) is not tuple:
            return known  # type: ignore[no-any-return]
        read, kinds = known
        return kinds[read(obj)]  # type: ignore[no-any-return]
    except ZeroCopyError as error:
        from zerocopy.describe import raise_known

        raise_known(lambda: f"kind({type(obj).__qualname__})", error)
        shorten(error)  # here, because the wrapper of `public` takes longer than the lookup
        raise


@not_transformed
def is_array(obj: object, /) -> TypeGuard[Any]:
    """Whether an object is a dense array of any framework, or has a protocol of arrays.

    Parameters
    ----------
    obj : object
        Any object; see :func:`kind`.

    Returns
    -------
    bool
        Whether the kind is ``"array"``.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> zc.is_array(np.zeros(3)), zc.is_array([0.0])
    (True, False)
    """
    known = kind(obj)
    return known is not None and known.kind == "array"


@not_transformed
def is_column(obj: object, /) -> TypeGuard[Any]:
    """Whether an object is one column of any table framework, such as a series.

    Parameters
    ----------
    obj : object
        Any object; see :func:`kind`.

    Returns
    -------
    bool
        Whether the kind is ``"column"``.

    Examples
    --------
    >>> import pyarrow as pa, zerocopy as zc
    >>> zc.is_column(pa.array([1, None]))
    True
    """
    known = kind(obj)
    return known is not None and known.kind == "column"


@not_transformed
def is_table(obj: object, /) -> TypeGuard[TableLike]:
    """Whether an object is a table of any framework; a dict of columns is not.

    Parameters
    ----------
    obj : object
        Any object; see :func:`kind`.

    Returns
    -------
    bool
        Whether the kind is ``"table"``. For type checkers, :func:`convert` then has the table's overloads.

    Examples
    --------
    >>> import polars as pl, zerocopy as zc
    >>> zc.is_table(pl.DataFrame({"a": [1]})), zc.is_table({"a": [1]})
    (True, False)
    """
    known = kind(obj)
    return known is not None and known.kind == "table"


class _Kinds(dict[type, Any]):
    """By type: a `Kind`, None, or a function of an object, and the `Kind` of each of its results.

    A key is a type that its module defines, which lasts as long as the process.
    """

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(_OF_PYTHON))
        self._others: WeakKeyDictionary[type, Any] = WeakKeyDictionary()

    def __missing__(self, cls: type) -> Any:
        known = self._others.get(cls, self)
        if known is self:
            registry = _registry()
            known = _of_type(registry, cls)
            (self if registry.lasts(cls) else self._others)[cls] = known
        return known


_KINDS = _Kinds()


@cache
def _registry() -> types.ModuleType:
    from zerocopy import registry

    registry.on_change(_forget)
    return registry


def _forget() -> None:
    global _KINDS
    _KINDS = _Kinds()  # not cleared: another thread may store what it read before the change


def _of_type(registry: Any, cls: type) -> Any:
    framework = registry.by_type(cls)
    if framework is None:
        name = "zerocopy" if _is_own(cls) else None
        entry: Any = _by_protocol(cls) or _read_again
    else:
        name, entry = framework.name, _BY_FRAMEWORK.get(framework.kind, "array")
        # A subclass in another library may have the name of a class of the framework.
        names = [base.__name__ for base in cls.__mro__ if framework in registry.by_root(base)]
        entry = next((framework.kinds[each] for each in names if each in framework.kinds), entry)
    if callable(entry):
        return entry, {None: None} | {each: Kind(name, each) for each in _ALL}
    return None if entry is None else Kind(name, entry)


def _is_own(cls: type) -> bool:
    return str(getattr(cls, "__module__", "")).startswith(_OWN)


def _by_protocol(cls: type) -> str | Callable[[Any], str] | None:
    """Return the kind of a type without a framework, by the order of protocols in ``zerocopy.describe``."""
    from zerocopy.protocols import array_method

    if hasattr(cls, "__zerocopy_node__"):  # `Masked` and `Encoded`
        return "column"
    if any(hasattr(cls, name) for name in _OF_ARRAYS) or array_method.is_array(cls):
        return "array"
    if not any(hasattr(cls, name) for name in _OF_ARROW):
        return None
    if _is_own(cls):  # the schema of a loader is that of its first batch
        return "table" if hasattr(cls, "__arrow_c_stream__") else None
    return _of_arrow


def _read_again(obj: Any) -> str | None:
    """Return the kind of an object whose class had no protocol, and may have got one since."""
    entry = _by_protocol(type(obj))
    return entry(obj) if callable(entry) else entry


def _of_arrow(obj: Any) -> str:
    from zerocopy.protocols import arrow_c

    field = arrow_c.read_field(obj)
    if field is None:
        if hasattr(type(obj), "__arrow_c_stream__"):
            return "table"
        field = arrow_c.read_exported_field(obj)
    return "column" if field.is_series else "table"
