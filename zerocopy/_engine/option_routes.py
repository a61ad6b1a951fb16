"""Routes for calls with options: the plain route, or one with a step between exporter and importer.

The step takes the ndarray that the exporter returns. It checks properties that differ between
objects of one type, and raises if only the slow path can decide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from zerocopy._engine import recording
from zerocopy.casting.parse import parse_dtype
from zerocopy.device import HOST
from zerocopy.dtype import from_numpy, native_numbers
from zerocopy.errors import ZeroCopyError
from zerocopy.framework import Framework, identity
from zerocopy.protocols.array_interface import aligned_copy
from zerocopy.source import Array

Route = Callable[[Any], Any]

#: Options that a route can hold. The others depend on the object, or need the whole plan.
ROUTABLE = frozenset(("copy", "device", "dtype", "leaves", "writable"))
_NUMBERS = native_numbers()
_NATIVE = [np.dtype(char) for char in "fd?bBhHiIlLqQeFD"]


class Parts(NamedTuple):
    """The parts of a route: the frameworks, and their functions by form."""

    source: Framework
    target: Framework
    exporters: dict[str, Route]
    importers: dict[str, Route]
    owned: bool  # whether the objects belong to the target
    native_exporter: Any = None  # of the compiled core
    native_importer: Any = None
    native_table: Any = None  # exporter of tables


def is_routable(target: Framework, options: Mapping[str, Any]) -> bool:
    """Whether a route can hold these options, none of them None."""
    if not options.keys() <= ROUTABLE or "cpu" not in target.device_kinds:
        return False  # a route to a framework without arrays on the host transfers them
    if "device" in options and not _is_host(target, options["device"]):
        return False
    return "dtype" not in options or bool(_dtypes_of(options["dtype"]))


def option_route(parts: Parts, options: Mapping[str, Any], plain: Route | None) -> Route | None:
    """Return the route for an array and these options, none of them None; or None.

    `plain` is the route without options, in a form of host memory.
    """
    target = parts.target
    if not is_routable(target, options):
        return None
    copy = options.get("copy")
    if not target.aliases_host and not parts.owned:
        # Its importers copy: the slow path refuses copy=False, and casts without a copy in between.
        return None if copy is False or "dtype" in options else plain
    if copy is not True and options.keys() <= {"copy", "leaves"}:
        if parts.owned:
            return identity
        # A route aliases or raises, so it serves copy=False too.
        return None if target.tables and parts.source.tables else plain
    if target.kind == "table" or (target.tables and parts.source.tables):
        return None  # other rules apply to tables and their columns
    if parts.owned and not _is_ndarray(parts):
        return _own_route(parts, options)
    step = _step(parts, options)
    if step is None:
        return plain
    return _stepped(parts, step, fresh=copy is True)


def _composed(*functions: Route) -> Route:
    """Return the functions, applied from left to right, as one of at most three calls."""
    kept = [function for function in functions if function is not identity]
    if len(kept) < 2:
        return kept[0] if kept else identity
    if len(kept) > 3:
        return _composed(_composed(*kept[:-2]), *kept[-2:])
    first, second = kept[:2]
    if len(kept) == 2:
        return lambda obj: second(first(obj))
    third = kept[2]
    return lambda obj: third(second(first(obj)))


def _stepped(parts: Parts, step: Route, fresh: bool) -> Route | None:
    """Return the route with a step on the ndarray; `fresh` if the step returns a copy."""
    importers = parts.importers
    if (active := recording.counters) is not None:
        step = recording.measured_step(active, step)
    for form in ("readonly", "ndarray"):
        if form in parts.exporters and form in importers:
            importer = importers["ndarray"] if fresh else importers[form]
            return _composed(parts.exporters[form], step, importer)
    return None


def _own_route(parts: Parts, options: Mapping[str, Any]) -> Route | None:
    """Return the route for the target's own objects: unchanged, or copied by the target.

    The exporter is called only to check that the object is plain memory on the host.
    """
    target, check = parts.target, parts.exporters.get("ndarray")
    if check is None or target.kind != "tensor" or not target.can_copy_to_device:
        return None
    if "dtype" in options:
        check = _composed(check, _checked(_dtypes_of(options["dtype"])))
    if options.get("writable") is True and target.mutable:
        check = _composed(check, _refuse_readonly)
    if options.get("copy") is True and (active := recording.counters) is not None:
        check = recording.measured(active, "ndarray", check, copies=True)
    copy_to_device = target.copy_to_device

    def unchanged(obj: Any) -> Any:
        check(obj)
        return obj

    def copied(obj: Any) -> Any:
        if not check(obj).size:
            raise ValueError("no elements: the slow path returns the object itself")
        return copy_to_device(obj, HOST, None)

    return copied if options.get("copy") is True else unchanged


def _is_ndarray(parts: Parts) -> bool:
    """Whether the target's own objects are ndarrays."""
    return parts.exporters.get("ndarray") is identity is parts.importers.get("ndarray")


def _is_host(target: Framework, spec: Any) -> bool:
    """Whether the option ``device=`` names the host, and the target can use it."""
    try:
        device = target.parse_device(spec)
        target.check_device(device)
    except ZeroCopyError:
        return False
    return device.is_host


def _dtypes_of(spec: Any) -> list[np.dtype[Any]]:
    """Return NumPy's types that the option ``dtype=`` names, as ``long`` and ``long long`` are int64."""
    if isinstance(spec, Mapping):
        return []
    wanted = parse_dtype(spec)
    return [dtype for dtype in _NATIVE if from_numpy(dtype) is wanted]


# -- steps: functions from an ndarray to an ndarray ------------------------------


def _step(parts: Parts, options: Mapping[str, Any]) -> Route | None:
    """Return the step of these options; None if the plain route gives the same result."""
    target = parts.target
    step = _checked(_dtypes_of(options["dtype"])) if "dtype" in options else None
    if step is None and _is_ndarray(parts):
        step = _checked(_NATIVE)  # ndarrays of dates, text and objects are converted as columns
    copy, writable = options.get("copy"), options.get("writable")
    immutable = "readonly" in parts.exporters
    # Legacy capsules cannot mark memory as read-only, so frameworks that import them ignore such marks.
    marks = target.marks_readonly or not parts.importers.keys() & {"capsule", "aligned"}
    if copy is True:
        step = _then(step, _copied)
    elif writable is True and target.mutable:
        step = _then(step, _writable if copy is None else _refuse_readonly)
    if writable is False and marks and (copy is True or not immutable):
        step = _then(step, _frozen)
    elif writable is False and marks:
        step = _then(step, identity)  # the ndarray is read-only already
    return step


def _then(first: Route | None, second: Route) -> Route:
    return second if first is None else _composed(first, second)


def _checked(dtypes: list[np.dtype[Any]]) -> Route:
    """Return a step that refuses other dtypes."""
    # Comparing the identity of the usual dtype object takes 30 ns less than comparing its number.
    first, numbers = dtypes[0], frozenset(dtype.num for dtype in dtypes)

    def checked(array: Array) -> Array:
        dtype = array.dtype
        if dtype is not first and (dtype.num not in numbers or not dtype.isnative):
            raise ValueError("another dtype: the slow path decides")
        return array

    return checked


def _copied(array: Array) -> Array:
    dtype = array.dtype
    if dtype.num not in _NUMBERS or not dtype.isnative or not array.size:
        raise ValueError("another dtype, or no elements: the slow path decides")
    return aligned_copy(array)


def _frozen(array: Array) -> Array:
    if type(array) is np.ndarray and not array.flags.writeable:
        return array
    # A new view, because the array can be the source itself.
    view = array.view() if type(array) is np.ndarray else array.view(np.ndarray)
    view.setflags(write=False)
    return view


def _writable(array: Array) -> Array:
    return array if array.flags.writeable else _copied(array)


def _refuse_readonly(array: Array) -> Array:
    if not array.flags.writeable:
        raise ValueError("immutable: the slow path refuses it")
    return array
