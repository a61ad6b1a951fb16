"""``converter``: a conversion whose target and options are resolved once, for loops."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import Parameter
from typing import TYPE_CHECKING, Any, Generic, Unpack, overload

from zerocopy import registry
from zerocopy._engine.convert import convert_slowly
from zerocopy._engine.explain import explain
from zerocopy._engine.fixes import compose_calls
from zerocopy._engine.options import SIGNATURE, Like, ResultT, TableT, Target, check_options
from zerocopy._engine.planner import Call, make_plan
from zerocopy._engine.routes import keep, routes_of
from zerocopy._engine.target import is_named, of_object, text
from zerocopy.describe import translated_errors
from zerocopy.device import parse_stream
from zerocopy.errors import ZeroCopyError
from zerocopy.errors.tracebacks import not_transformed, public, shorten
from zerocopy.formatting import printable
from zerocopy.plan import Plan
from zerocopy.protocols.arrow_c import read_field
from zerocopy.protocols.exporter_errors import is_error
from zerocopy.request import ONE_CALL, ConvertOptions, MatrixOrder
from zerocopy.source import type_name
from zerocopy.tables.arrow_column import UnreadColumn
from zerocopy.tables.column import Table

if TYPE_CHECKING:
    from zerocopy._engine.options import TableLike


@public
def converter(schema: Any, to: Target | Like, **options: Unpack[ConvertOptions]) -> Converter[Any, Any]:
    """Return a function that converts objects to one target with the same options, for loops.

    Parameters
    ----------
    schema : object
        An object that :func:`zerocopy.convert` accepts, or a type; for an object, the route of its type
        is made. Or an object with ``__arrow_c_schema__``, such as ``pyarrow.Schema``, ``pyarrow.DataType``,
        ``polars.Schema`` or ``nanoarrow.Schema``, whose types the target must support. The result does not
        keep `schema`, and converts objects of other types and schemas too.
    to : str, module, type or object
        The target, as for :func:`zerocopy.convert`.
    device, copy, stream, writable, dtype, leaves, validate : optional
        Options of :func:`zerocopy.convert`.
    layout, order, columns, nulls, encode, lists, pad_value, max_length, names, index, connection : optional
        Its options for tables.

    Returns
    -------
    Converter
        ``converter(obj)`` returns what ``convert(obj, to, **options)`` returns, and raises what it
        raises, for every object: the properties of an object, such as its null counts and strides, are
        checked in each call. It has the attributes ``to`` and ``options`` and the method
        ``explain(obj)``. It can be pickled if the target and the options can.

    Raises
    ------
    UnknownFrameworkError, FrameworkNotInstalledError
        `to` is not a known, or not an installed, framework.
    UnsupportedConversionError, LossyConversionError
        The target lacks a type of the schema, or the schema lacks a column in `columns`.
    DeviceError
        The device does not exist, or the target does not support it.
    OptionError, TypeError
        An option has an invalid value, or does not exist.

    Examples
    --------
    >>> import pyarrow as pa, zerocopy as zc
    >>> batches = pa.table({"x": [0.0, 1.0], "y": [2, 3]}).to_batches(max_chunksize=1)
    >>> to_numpy = zc.converter(batches[0].schema, "numpy", columns=["x"], copy=False)
    >>> [to_numpy(batch) for batch in batches]
    [{'x': array([0.])}, {'x': array([1.])}]
    >>> to_numpy
    <converter to 'numpy', columns=['x'], copy=False>
    >>> print(to_numpy.explain(batches[0]).zero_copy)
    True
    >>> zc.converter(pa.schema({"name": pa.string()}), "numpy")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    zerocopy.errors.UnsupportedConversionError: convert(pyarrow.lib.Schema..., to='numpy'): ...
    """
    checked = {name: _copy_of(value) for name, value in check_options("converter", options).items()}
    named: Any = to
    if not is_named(to):
        named, checked = of_object(to, None, checked)
    obj = None if isinstance(schema, type) else schema
    call = Call(obj, named, checked)
    target = call.target
    target.module()
    parse_stream(checked.get("stream"))
    if "device" in checked:
        target.check_device(target.parse_device(checked["device"]))
    made: Converter[Any, Any] = Converter(named, checked)
    if obj is not None and not _check_schema(call):
        _keep_route(call)
    return made


converter.__signature__ = SIGNATURE.replace(  # type: ignore[attr-defined]
    parameters=[
        Parameter("schema", Parameter.POSITIONAL_OR_KEYWORD, annotation=Any),
        *[each for name, each in SIGNATURE.parameters.items() if name != "obj" and name not in ONE_CALL],
    ],
    return_annotation="Converter",
)


@not_transformed
class Converter(Generic[ResultT, TableT]):
    """``convert`` with one target and checked options: the result of :func:`converter`."""

    __slots__ = ("_options", "_routes", "_to")

    def __init__(self, to: Target, options: Mapping[str, Any]) -> None:
        self._to = to
        self._options = dict(options)
        self._routes = routes_of(to, self._options)

    @overload  # type checkers use the first overload that matches
    def __call__(self, obj: Mapping[Any, Any]) -> Any: ...
    @overload
    def __call__(self, obj: list[Any]) -> list[Any]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, obj: tuple[Any, ...]) -> tuple[Any, ...]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, obj: TableLike) -> TableT: ...
    @overload
    def __call__(self, obj: object) -> ResultT: ...
    def __call__(self, obj: Any) -> Any:
        """Return ``convert(obj, to, **options)``."""
        try:
            return self._routes[type(obj)](obj)
        except BaseException as error:
            if not is_error(error):
                raise
            try:
                return convert_slowly(obj, self._to, self._options)
            except ZeroCopyError as refusal:
                shorten(refusal)
                raise

    @property
    def to(self) -> Target:
        """The target, as it was passed."""
        return self._to

    @property
    def options(self) -> dict[str, object]:
        """The options that are not None, as a new dict."""
        options = dict(self._options)
        layout = options.get("layout")
        if isinstance(layout, MatrixOrder):
            options |= {"layout": "matrix", "order": layout.value}
        return options

    def explain(self, obj: object) -> Plan:
        """Return ``explain(obj, to, **options)``: what a call would do."""
        return explain(obj, self._to, **self._options)  # type: ignore[no-any-return, misc]

    def __repr__(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self._options.items())
        return printable(f"<converter to {text(self._to)}{options}>")

    def __reduce__(self) -> tuple[object, ...]:
        return Converter, (self._to, self._options)


def _copy_of(value: Any) -> object:
    """Return a copy of an option if the caller can change it, or if it can be read only once."""
    if isinstance(value, dict):
        return dict(value)
    return list(value) if isinstance(value, list) or hasattr(value, "__next__") else value


def _check_schema(call: Call) -> bool:
    """Refuse a schema with a type that the target lacks; return False if the object is not a schema."""
    schema = call.obj
    if hasattr(type(schema), "__arrow_c_array__") or hasattr(type(schema), "__arrow_c_stream__"):
        return False  # data, whose schema is one of many that the type can have
    with translated_errors(call.__str__):
        field = read_field(schema)
    if field is None:
        return False
    name = type_name(schema)
    is_table = field.format == "+s"
    parts = field.children if is_table else (field,)
    columns = [UnreadColumn(name, part) for part in parts]
    labels = [part.name for part in parts] if is_table else [""]
    metadata = dict(field.metadata) if is_table else {}
    # A table that has not been read: its types are checked, and its content is unknown.
    call.description = Table(
        name, labels, columns, 0, single=not is_table, metadata=metadata, read=_no_content, obj=schema
    )
    try:
        make_plan(call)
    except ZeroCopyError as error:
        compose_calls(error, call)
        raise
    return True


def _no_content() -> Table:
    raise AssertionError("a schema has no content")


def _keep_route(call: Call) -> None:
    """Make the route for objects of this type, unless it is a container."""
    if isinstance(call.obj, (list, tuple, dict)) or registry.by_type(type(call.obj)) is None:
        return
    keep(call.obj, call.to, call.options)
