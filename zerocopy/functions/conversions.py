"""The conversions of one decorated function: its arguments on the way in, its results on the way out."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping
from inspect import Parameter
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, NamedTuple

from zerocopy import registry
from zerocopy._engine.call_text import renamed, rewrite
from zerocopy._engine.container_types import is_container, is_mapping, is_plain_object, items_of
from zerocopy._engine.containers import convert_leaves, format_path, map_leaves
from zerocopy._engine.convert import convert, convert_slowly
from zerocopy._engine.explain import explain
from zerocopy._engine.routes import NO_ROUTES, Routes, routes_of
from zerocopy._engine.target import resolve, text
from zerocopy.describe import are_columns, describe
from zerocopy.device import HOST, Device, same_memory_space
from zerocopy.errors import DeviceError, UnsupportedConversionError, ZeroCopyError
from zerocopy.errors.tracebacks import not_transformed, public, shorten
from zerocopy.framework import Framework
from zerocopy.functions.kind import is_array
from zerocopy.plan import Plan
from zerocopy.protocols.dlpack import device_of
from zerocopy.protocols.exporter_errors import is_error
from zerocopy.protocols.producer import is_arrow
from zerocopy.source import Source, type_name

#: Types whose objects are neither converted nor searched for arrays.
PLAIN = frozenset(
    (type(None), bool, int, float, complex, str, bytes, type, FunctionType, BuiltinFunctionType, MethodType)
)
#: A result of these types, or of a subclass, is returned unchanged.
_VALUES = (type(None), int, float, complex, str, bytes)


class Leaf(NamedTuple):
    """One array among the arguments of a call."""

    name: str
    array: Any
    device: Device | None  # None if it is not known: its conversion raises the error


class ResultConversion(NamedTuple):
    """How the results of one call are converted. ``to=None`` returns them unchanged.

    Results that have the shape of `labels`, the caller's first array, get its labels.
    """

    to: Any
    options: Mapping[str, Any]
    labels: Any = None


UNCHANGED = ResultConversion(None, {})


class Conversions:
    """The conversions of one function.

    `routes` and `results` change with the table of routes. `routes` stays empty for a function whose calls
    all take the slow path.
    """

    __slots__ = (
        *("function", "to", "chosen", "returns", "options", "name", "parameters", "skipped", "target"),
        *("back_options", "fast", "routes", "results", "several_devices"),
    )

    def __init__(
        self, function: Any, to: Any, chosen: tuple[str, ...] | None, returns: Any, options: dict[str, Any]
    ) -> None:
        self.function = function
        self.to = to
        self.chosen = chosen
        self.returns = returns
        self.options = options
        self.name: str = str(getattr(function, "__qualname__", None) or type(function).__qualname__)
        self.parameters: Parameters = Parameters(function, chosen)
        self.skipped: frozenset[int] = self.parameters.skipped
        self.back_options: dict[str, bool] = {"copy": False} if options.get("copy") is False else {}
        self.target: Framework = resolve(to)
        # A device= or a target without host memory moves arguments, so each call must know their devices.
        moves = "device" in options or "cpu" not in self.target.device_kinds
        self.fast: bool = not moves and self.parameters.complete
        self.routes: Routes = NO_ROUTES
        self.results: ResultRoutes = ResultRoutes(self)
        # Until the first call by the slow path imports the target, its devices are not known.
        self.several_devices: bool = True

    def __reduce__(self) -> tuple[Any, ...]:  # routes cannot be pickled
        return Conversions, (self.function, self.to, self.chosen, self.returns, self.options)

    # -- arguments ----------------------------------------------------------------------

    @not_transformed
    def enter(self, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[list[Any], dict[str, Any], Any]:
        """Return the converted arguments, and for `leave` a `ResultConversion` or the type of an array."""
        if self.routes is not NO_ROUTES:
            try:
                return self._by_routes(args, named)
            except BaseException as error:
                if not is_error(error):
                    raise
        try:
            return self._slowly(args, named)
        except ZeroCopyError as refusal:
            shorten(refusal)
            raise

    def _by_routes(
        self, args: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any], Any]:
        """Do as `enter`, or raise if an argument has no route, or if devices must be compared."""
        routes, skipped, caller, first = self.routes, self.skipped, None, None
        converted: list[Any] = []
        for value in args:
            cls = type(value)
            if cls in PLAIN or (skipped and len(converted) in skipped):
                converted.append(value)
                continue
            converted.append(routes[cls](value))
            if caller is None:
                caller, first = cls, value
            elif self.several_devices:
                raise LookupError("several arrays: the slow path compares their devices")
        skipped_names = self.parameters.skipped_names
        keywords = named
        for name, value in named.items():
            cls = type(value)
            if cls in PLAIN or name in skipped_names:
                continue
            keywords = {**keywords, name: routes[cls](value)}
            if caller is None:
                caller, first = cls, value
            elif self.several_devices:
                raise LookupError("several arrays: the slow path compares their devices")
        if caller is None or caller in self.results or not has_labels(caller):
            return converted, keywords, caller
        back = self.back_for_type(caller)
        return converted, keywords, back if back.to is None else back._replace(labels=first)

    def _slowly(
        self, args: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any], ResultConversion]:
        """Return the result of `enter`, for arguments of all kinds."""
        values = [*args, *named.values()]
        described = [*self._arrays_of(args, named)]
        leaves = [leaf for _, leaves in described for leaf in leaves]
        back = self._back_for(leaves)
        if "device" not in self.options:
            self._check_devices(leaves)
        for (position, name), _ in described:
            values[position] = self._argument(name, values[position])
        if leaves:
            self.several_devices = self.target.devices() != ["cpu"]
            if self.fast:
                self.routes = routes_of(self.to, self.options)
        return values[: len(args)], dict(zip(named, values[len(args) :], strict=True)), back

    @public
    def send(self, value: Any) -> Any:
        """Return a value that the caller sends to a generator, converted as an argument."""
        if type(value) in PLAIN or not any(_arrays_in(value)):
            return value
        return self._argument("", value)

    def _arrays_of(
        self, args: tuple[Any, ...], named: Mapping[str, Any]
    ) -> Iterator[tuple[tuple[int, str], list[Leaf]]]:
        """Yield the position and the name of each argument that has arrays, and these."""
        for position, (name, value) in enumerate(self.parameters.selected(args, named)):
            if name is None or type(value) in PLAIN:
                continue
            try:
                leaves = [Leaf(name + path, array, _device_of(array)) for path, array in _arrays_in(value)]
            except ZeroCopyError as error:
                raise _located(error, self._place(name), name) from error.__cause__
            if leaves:
                yield (position, name), leaves

    def _argument(self, name: str, value: Any) -> Any:
        """Return one argument converted; an error names it."""
        try:
            call = convert_slowly if self._is_table(value) else _converted
            return call(value, self.to, self.options)
        except ZeroCopyError as error:
            raise _located(error, self._place(name), name) from error.__cause__
        except Exception as error:
            error.add_note(f"{self._place(name)} was converted to {text(self.to)}")
            raise

    def _is_table(self, value: Any) -> bool:
        """Whether `convert` makes one table of a dict of columns."""
        is_dict = self.target.tables and is_container(value) and is_mapping(value)
        return is_dict and are_columns(dict(items_of(value)))

    def _place(self, name: str) -> str:
        return f"argument {name!r} of {self.name}()" if name else f"a value sent to {self.name}()"

    def _check_devices(self, leaves: list[Leaf]) -> None:
        """Refuse arrays of several devices; 0-d arrays on the host are accepted with arrays of any device."""
        known = [(leaf, leaf.device) for leaf in leaves if leaf.device is not None]
        for leaf, device in known:
            if not same_memory_space(device, known[0][1]) and not (device.is_host and _is_number(leaf.array)):
                first, on = known[0]
                raise DeviceError(
                    f"{self.name}()",
                    f"argument {first.name!r} is on {on}, and argument {leaf.name!r} on {device}",
                    f"@zc.accepts({text(self.to)}, device={str(on)!r}) moves all to one device",
                    code="several-devices",
                )

    def _back_for(self, leaves: list[Leaf]) -> ResultConversion:
        """Return how results are converted to the framework and device of the first array."""
        if self.returns is None:
            return UNCHANGED
        if self.returns != "same":
            return ResultConversion(self.returns, self.back_options)
        caller = registry.target_of(type(leaves[0].array)) if leaves else None
        if caller is None:
            return UNCHANGED
        leaf = leaves[0]
        moved = leaf.device is not None and self._is_moved(leaf.array, leaf.device)
        if caller.name == self.target.name.partition(".")[0] and not moved:
            return UNCHANGED
        options = self.back_options | ({"device": str(leaf.device)} if moved else {})
        return ResultConversion(caller.name, options, leaf.array if caller.tables else None)

    def _is_moved(self, array: Any, device: Device) -> bool:
        """Whether the conversion of an argument moves it to another device."""
        if "device" in self.options:
            return not same_memory_space(self.target.parse_device(self.options["device"]), device)
        return device.kind not in self.target.device_kinds

    # -- results ------------------------------------------------------------------------

    def back_for_type(self, cls: Any) -> ResultConversion:
        """Return how results are converted if the first array has type `cls`, by the fast path."""
        if self.returns is None or (self.returns == "same" and cls is None):
            return UNCHANGED
        if self.returns != "same":
            return ResultConversion(self.returns, self.back_options)
        caller = registry.target_of(cls)
        if caller is None or caller.name == self.target.name.partition(".")[0]:
            return UNCHANGED
        return ResultConversion(caller.name, self.back_options)

    @not_transformed
    def leave(self, result: Any, caller: Any) -> Any:
        """Return a result converted for `caller`: a `ResultConversion`, or the type of the first array."""
        if type(caller) is not ResultConversion:
            try:
                routes = self.results[caller]
                return result if routes is None else routes[type(result)](result)
            except BaseException as error:
                if not is_error(error):
                    raise
        back = caller if type(caller) is ResultConversion else self.back_for_type(caller)
        try:
            return self._leave_slowly(result, back)
        except ZeroCopyError as refusal:
            shorten(refusal)
            raise

    def _leave_slowly(self, result: Any, back: ResultConversion) -> Any:
        if back.to is None or type(result) in _VALUES:
            return result
        place = f"result of {self.name}()"
        try:
            if not is_container(result) and is_plain_object(result):
                if isinstance(result, _VALUES):
                    return result
                raise self._not_an_array(result)
            if back.labels is None:
                converted = _converted(result, back.to, back.options)
            else:
                converted = labelled(result, back.to, back.options, back.labels)
        except ZeroCopyError as error:
            raise _located(error, place, "result") from error.__cause__
        except Exception as error:
            error.add_note(f"the {place} was converted to {text(back.to)}")
            raise
        self.results.clear()  # a framework may have been registered
        return converted

    def _not_an_array(self, result: Any) -> UnsupportedConversionError:
        return UnsupportedConversionError(
            "",
            f"it is a {type_name(result)}, which is not an array",
            f"@zc.accepts({text(self.to)}, returns=None) returns it unchanged",
            code="result-not-an-array",
        )

    # -- explain --------------------------------------------------------------------------

    @public
    def explain(self, *args: Any, **named: Any) -> dict[str, Plan]:
        """Return the plan of each argument that has arrays, by its name; convert nothing."""
        given = [*args, *named.values()]
        return {
            name: explain(given[i], self.to, **_with_leaves(given[i], self.options, self._is_table(given[i])))
            for (i, name), _ in self._arrays_of(args, named)
        }


def _located(error: ZeroCopyError, place: str, name: str) -> ZeroCopyError:
    """Return an error that names an argument or result, with its type, instead of the call of ``convert``."""
    rewrite(error, lambda code: renamed(code, name or "x"))
    asked = error.asked.removeprefix("convert") if error.asked.startswith("convert(") else error.asked
    return error.with_context(asked=f"{place} {asked}".rstrip())


class ResultRoutes(dict[Any, Routes | None]):
    """Routes of results, by the type of the caller's first array; None: results are returned unchanged."""

    def __init__(self, conversions: Conversions) -> None:
        super().__init__()
        self._conversions = conversions

    def __missing__(self, cls: Any) -> Routes | None:
        back = self._conversions.back_for_type(cls)
        if back.to is not None and self._conversions.returns == "same" and has_labels(cls):
            raise LookupError("results get the labels of the caller's array, which its type does not have")
        self[cls] = routes = None if back.to is None else routes_of(back.to, back.options)
        return routes


def _arrays_in(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield each array or table of an argument with its path in it; bytes are text here."""
    if not is_container(value):
        if type(value) is not bytes and not is_plain_object(value):
            yield "", value
        return
    leaves: list[tuple[Any, Any]] = []

    def visit(leaf: Any, path: Any) -> None:
        if type(leaf) not in PLAIN and not is_plain_object(leaf):
            leaves.append((path, leaf))

    map_leaves(value, visit, lambda container, keys, values: None)
    for path, leaf in leaves:
        yield format_path(path), leaf


def _converted(value: Any, to: Any, options: Mapping[str, Any]) -> Any:
    """Return an array, a table or a container of them converted; other leaves are kept."""
    if not is_container(value):
        return convert_slowly(value, to, options)
    return convert_leaves(value, _leaf, to, dict(_with_leaves(value, options)))


def _leaf(leaf: Any, to: Any, **options: Any) -> Any:
    return leaf if type(leaf) is bytes else convert(leaf, to, **options)


def _with_leaves(value: Any, options: Mapping[str, Any], is_table: bool = False) -> dict[str, Any]:
    return {"leaves": "keep", **options} if is_container(value) and not is_table else dict(options)


def _device_of(array: Any) -> Device | None:
    """Return the device of an array or table; None if it cannot be described.

    The conversion exports it: a producer may have one capsule only.
    """
    framework, cls = registry.by_type(type(array)), type(array)
    if framework is not None and framework.device_kinds == ("cpu",):
        return HOST
    try:
        if framework is None and hasattr(cls, "__dlpack__"):
            return device_of(array)
        if framework is None and is_arrow(array) and not hasattr(cls, "__arrow_c_device_array__"):
            return HOST
        description = describe(array)
    except Exception as error:
        if not is_error(error):
            raise
        return None  # the conversion raises it again, with its reason
    return description.view.device if isinstance(description, Source) else HOST


def _is_number(array: Any) -> bool:
    return getattr(array, "shape", None) == ()


def has_labels(cls: type) -> bool:
    """Whether objects of a type can have labels: those of frameworks with tables."""
    framework = registry.target_of(cls)
    return framework is not None and framework.tables


def labelled(result: Any, to: Any, options: Mapping[str, Any], caller: Any) -> Any:
    """Return a converted result; arrays of the shape of `caller`, an array or table, get its labels."""
    if is_container(result):

        def leaf(value: Any, path: Any) -> Any:
            if type(value) is bytes or is_plain_object(value):
                return value
            try:
                return labelled(value, to, options, caller)
            except ZeroCopyError as error:
                raise error.with_context(why=f"at {format_path(path)}: {error.why}") from error.__cause__

        return map_leaves(result, leaf, to=to)
    if _is_number(result) and not is_array(caller):  # columns and tables cannot hold it
        return result
    converted = convert(result, to, **options, **_names_for(result, caller))
    framework = registry.by_type(type(caller))
    if converted is result or framework is None or not framework.owns(type(converted)):
        return converted
    return framework.labelled(converted, caller)


def _names_for(result: Any, table: Any) -> dict[str, Any]:
    """Return the option ``names=`` for a matrix of the shape of a table."""
    shape = tuple(getattr(result, "shape", ()))
    if len(shape) != 2 or registry.by_type(type(result)) is None:
        return {}
    described = describe(table, False)
    if isinstance(described, Source) or described.single or described.shape != shape:
        return {}
    labels = list(described.labels)
    unique = len({*labels}) == len(labels) and all(type(label) is str for label in labels)
    return {"names": labels} if unique else {}


class Parameters:
    """Which arguments of a function are converted.

    Attributes
    ----------
    skipped, skipped_names : frozenset
        Positions and names of parameters that are not converted.
    complete : bool
        Whether these two sets decide; if not, arguments of ``*args`` or ``**kwargs`` are skipped too.
    """

    def __init__(self, function: Any, chosen: tuple[str, ...] | None) -> None:
        every = _parameters(function)
        known = [parameter.name for parameter in every or ()]
        if chosen is not None:
            _check_names(function, chosen, None if every is None else known)
        positional = [p for p in every or () if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        bound = known[:1] if chosen is None and positional and known[:1] in (["self"], ["cls"]) else []
        skipped = {name for name in known if name in bound or (chosen is not None and name not in chosen)}
        self._names = [parameter.name for parameter in positional]
        self._rest = next((p.name for p in every or () if p.kind is Parameter.VAR_POSITIONAL), None)
        self._others = next((p.name for p in every or () if p.kind is Parameter.VAR_KEYWORD), None)
        self._skips_rest, self._skips_others = self._rest in skipped, self._others in skipped
        self.complete: bool = not (self._skips_rest or self._skips_others)
        self.skipped: frozenset[int] = frozenset(i for i, name in enumerate(self._names) if name in skipped)
        # A keyword of **kwargs may have the name of a positional-only parameter.
        self.skipped_names: frozenset[str] = frozenset(
            p.name for p in every or () if p.name in skipped and p.kind is not p.POSITIONAL_ONLY
        )
        self._keywords = {p.name for p in every or () if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}

    def selected(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> Iterator[tuple[str | None, Any]]:
        """Yield the name and the value of each argument; the name is None if it is not converted."""
        for position, value in enumerate(args):
            if position < len(self._names):
                yield None if position in self.skipped else self._names[position], value
            else:
                name = f"{self._rest or 'args'}[{position - len(self._names)}]"
                yield None if self._skips_rest else name, value
        for name, value in named.items():
            skips = name in self.skipped_names if name in self._keywords else self._skips_others
            yield None if skips else name, value


def _parameters(function: Any) -> list[Parameter] | None:
    """Return the parameters of a function; None for builtin functions without a signature."""
    # Annotations can name modules that are imported for type checkers only.
    options: Any = {} if sys.version_info < (3, 14) else {"annotation_format": _strings()}
    try:
        return [*inspect.signature(function, **options).parameters.values()]
    except (ValueError, TypeError):
        return None


def _strings() -> Any:
    import annotationlib  # type: ignore[import-not-found]

    return annotationlib.Format.STRING


def _check_names(function: Any, chosen: tuple[str, ...], known: list[str] | None) -> None:
    shown = getattr(function, "__qualname__", None) or type(function).__qualname__
    if known is None:
        raise ValueError(f"arguments={chosen!r}: the parameters of {shown} are not known; leave it out")
    for name in chosen:
        if name not in known:
            raise ValueError(f"arguments={chosen!r}: {shown} has no parameter {name!r}; it has {known}")
