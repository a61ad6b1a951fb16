"""How one object goes to one framework: the plan, and the function that carries it out.

A plan is made from three descriptions that know nothing of each other: the
source's memory, the target's demands, and what the caller asked. ``convert``
runs the plan that ``explain`` shows, so that the two cannot disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from zerocopy import registry
from zerocopy._engine.containers import is_container
from zerocopy._view import describe
from zerocopy.device import HOST, Device, parse_stream, same_place
from zerocopy.errors import CopyRequiredError, Reason, UnsupportedConversionError, ZeroCopyError
from zerocopy.framework import Framework, Source
from zerocopy.plan import Plan
from zerocopy.protocols.array_interface import address, aligned_copy
from zerocopy.strided_view import StridedView
from zerocopy.tables import planner as tables
from zerocopy.tables.describe import described, holds_tables, table_of
from zerocopy.tables.options import DEFAULTS, Options, Request
from zerocopy.tables.options import OPTION_NAMES as TABLE_OPTIONS
from zerocopy.tables.result import Masked

#: What ``convert`` takes beside the object and the target.
OPTIONS = ("device", "copy", "stream", "writable", *TABLE_OPTIONS)


def known(function: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that were said; raise TypeError, as Python does, for one that is none."""
    for name in options:
        if name not in OPTIONS:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}; it takes {OPTIONS}")
    return {name: value for name, value in options.items() if value is not None}


def is_table(container: Any, to: Any, options: dict[str, Any]) -> bool:
    """Whether a container is a table: a dict of columns, where tables are wanted.

    They are by a framework that has tables, and by options that are for tables. A dict of
    tables is a container of them, and so is one of lists where the framework has arrays
    to make of what is in them.
    """
    if not isinstance(container, dict):
        return False
    target = registry.by_name(to)
    if not target.tables and not any(name in options for name in TABLE_OPTIONS):
        return False
    if target.kind != "table" and any(
        is_container(value) and not isinstance(value, Masked) for value in container.values()
    ):
        return False
    return not holds_tables(container)


def make(
    obj: Any,
    to: Any,
    device: Any = None,
    copy: bool | None = None,
    stream: Any = None,
    writable: bool | None = None,
    **table_options: Any,
) -> Plan:
    """Return a plan that is possible; raise what ``convert`` raises for one that is not."""
    for name, value in (("copy", copy), ("writable", writable)):
        if not (value is None or value is True or value is False):  # 0 == False, and would be neither
            raise ValueError(f"{name} is True, False or None, not {value!r}")
    target = registry.by_name(to)
    try:
        target.module()
        handle = parse_stream(stream)
        native = target.owns(type(obj)) and target.is_native(obj)
        if native and device is None and copy is not True and writable is None and not table_options:
            return _itself(obj, target)

        def between(source: Source, copy: bool | None) -> Plan:
            where = _where(source, target, device)
            return _between(source, target, where, copy, handle, writable)

        asked = Options(**table_options) if table_options else DEFAULTS
        with _looked_at(obj, to):
            table = described(obj, target, asked)
            if table is not None:
                if target.tables and device is not None:
                    target.check_device(target.parse_device(device))
                return tables.make(table, Request(target, asked, copy, writable, between))
            source = describe(obj)
        where = _where(source, target, device)
        if native:
            return _within(source, target, where, copy, handle, writable)
        return _between(source, target, where, copy, handle, writable)
    except ZeroCopyError as error:
        # The one place that knows the whole call; what raised knew its part of it.
        asked_for = {"device": device, "copy": copy, "stream": stream, "writable": writable}
        error.asked = call(obj, to, asked_for | table_options)
        error.args = (error.asked, error.why, error.remedy)
        raise


@contextmanager
def _looked_at(obj: Any, to: Any) -> Iterator[None]:
    """Give what frameworks raise there the one vocabulary of errors (P9)."""
    try:
        yield
    except (ZeroCopyError, MemoryError):
        raise
    except RecursionError as error:
        raise UnsupportedConversionError(
            "", "its types are nested deeper than Python can follow", "flatten it, or sys.setrecursionlimit"
        ) from error
    except Exception as error:
        name = registry.out_of_memory(error)
        if name is not None:
            raise no_memory(f"convert({_type_name(obj)}, to={to!r})", name, error) from error
        raise UnsupportedConversionError(
            "",
            f"looking at it raised {type(error).__name__}: {error}",
            "see the cause above; if it is a guard that we lack, please report it",
        ) from error


def no_memory(asked: str, name: str, error: Exception) -> MemoryError:
    """Return Python's error for memory that ran out, of a framework's own."""
    return MemoryError(
        f"{asked}: {name} found no memory left ({type(error).__name__}).\n"
        "  To fix: free what is not needed any more, or convert it in parts"
    )


def _where(source: Source, target: Framework, device: Any) -> Device:
    where = target.default_device(source.view) if device is None else target.parse_device(device)
    target.check_device(where)
    return where


def _itself(obj: Any, target: Framework) -> Plan:
    try:
        table = table_of(obj)
        if table is not None:
            rows = any(column.length and column.nbytes for column in table.columns)
            empty = table.read is None and not rows
        else:
            empty = describe(obj).view.size == 0
    except ZeroCopyError:
        empty = False  # a sparse tensor, say: the target's own, and it comes back as it is
    return Plan(words(obj), target.name, zero_copy=not empty, steps=("the object itself",), run=lambda: obj)


def _within(
    source: Source,
    target: Framework,
    where: Device,
    copy: bool | None,
    stream: int | None,
    writable: bool | None,
) -> Plan:
    """Plan for an object of the target's own: copied, moved, or as it is."""
    reasons: list[Reason] = []
    if not same_place(source.view.device, where):
        reasons.append(_transfer(source.view.device, where))
    reasons += _protection(source.view, target, writable)
    if not reasons and copy is not True and writable is not False:
        return _itself(source.obj, target)
    if not target.can_copy_to_device:
        return _between(source, target, where, copy, stream, writable)
    reasons = _decide(copy, reasons, source.view)
    run = (lambda: target.copy_to_device(source.obj, where, stream)) if reasons else (lambda: source.obj)
    return _finish(source, target, reasons, run, f"{target.name} copies to {where}", where)


def _between(
    source: Source,
    target: Framework,
    where: Device,
    copy: bool | None,
    stream: int | None,
    writable: bool | None,
) -> Plan:
    """Plan for an object of another framework, or known by protocol alone."""
    if source.refusal is not None:
        raise UnsupportedConversionError("", source.refusal.why, source.refusal.remedy)
    view, on_host = source.view, source.view.device.is_host
    # The target's demands are asked for in any case: they refuse what no copy mends.
    demands = target.copy_reasons(view) if where.is_host else target.device_copy_reasons(view)
    reasons = list(source.reasons)
    if same_place(view.device, where):
        reasons += demands + _protection(view, target, writable)
    else:
        reasons.append(_transfer(view.device, where))
    reasons = _decide(copy, reasons, view)
    run: Callable[[], Any]
    if on_host:
        run, step = _from_host(source, target, where, stream, reasons, writable)
    elif where.is_host:
        run, step = _to_host(source, target, where, stream, writable)
    else:
        run, step = _on_device(source, target, where, stream, reasons)
    return _finish(source, target, reasons, run, step, where)


def _from_host(
    source: Source,
    target: Framework,
    where: Device,
    stream: int | None,
    reasons: list[Reason],
    writable: bool | None,
) -> tuple[Callable[[], Any], str]:
    dtype = source.view.dtype

    def run() -> Any:
        array = source.host()
        if source.reasons:
            # What came is a copy already; it is copied again only where the target
            # cannot take it as it lies.
            if where.is_host and target.copy_reasons(_view_of(array, source)):
                array = aligned_copy(array)
        elif reasons and (where.is_host or not source.view.c_contiguous):
            array = aligned_copy(array)
        if writable is False and array.flags.writeable:
            array = array.view()
            array.flags.writeable = False
        return target.from_host(array, dtype, where, stream)

    if not reasons:
        return run, f"{target.name} aliases the memory"
    if not where.is_host:
        return run, f"{target.name} copies from the host to {where}"
    if source.reasons:
        return run, f"{source.name} makes memory of its values; {target.name} aliases that"
    return run, f"copy to row-major memory at a multiple of 64 bytes; {target.name} aliases the copy"


def _to_host(
    source: Source, target: Framework, where: Device, stream: int | None, writable: bool | None
) -> tuple[Callable[[], Any], str]:
    dtype = source.view.dtype

    def run() -> Any:
        fetch = source.to_host or _relay(source).to_host
        assert fetch is not None
        array = fetch(stream)
        if target.copy_reasons(_view_of(array, source)):
            array = aligned_copy(array)
        if writable is False:
            array.flags.writeable = False
        return target.from_host(array, dtype, where, stream)

    return run, f"copy from {source.view.device} to the host; {target.name} aliases the copy"


def _on_device(
    source: Source, target: Framework, where: Device, stream: int | None, reasons: list[Reason]
) -> tuple[Callable[[], Any], str]:
    here = same_place(source.view.device, where)

    def run() -> Any:
        given = source
        if reasons if here else [*source.reasons, *target.device_copy_reasons(source.view)]:
            relay = source if source.contiguous is not None else _relay(source)
            assert relay.contiguous is not None
            given = describe(relay.contiguous())
        # The target itself may have been lent; the stream is one of the result's device.
        own = given.obj if given.framework is target else None
        result = target.from_device(given, stream if here else None) if own is None else own
        return result if here else target.copy_to_device(result, where, stream)

    if not reasons:
        return run, f"{target.name} aliases the memory on {source.view.device}"
    if here:
        return run, f"copy on {where}; {target.name} aliases the copy"
    return run, f"copy from {source.view.device} to {where}"


def _relay(source: Source) -> Source:
    """Lend a framework to memory known by protocol alone, which can be aliased and not copied."""
    relay = registry.relay(source.view)
    return describe(relay.from_device(source, None))


def _view_of(array: Any, source: Source) -> StridedView:
    return StridedView(
        address(array),
        array.shape,
        array.strides,
        source.view.dtype,
        HOST,
        not array.flags.writeable,
        array,
    )


def _transfer(here: Device, there: Device) -> Reason:
    return Reason(
        f"the memory is on {here} and the result is to be on {there}",
        f"keep it on {here}, with a framework that lives there",
    )


def _protection(view: StridedView, target: Framework, writable: bool | None) -> list[Reason]:
    if writable and view.readonly and target.mutable:
        return [
            Reason(
                "writable=True was asked and the source calls its memory immutable",
                "leave writable out to get an alias, and do not write to it",
            )
        ]
    return []


def _decide(copy: bool | None, reasons: list[Reason], view: StridedView) -> list[Reason]:
    """Weigh the reasons to copy against what was asked; a zero-size array copies nothing."""
    if view.size == 0:
        return reasons
    if copy is False and reasons:
        raise CopyRequiredError(
            "",
            "copy=False, but a copy is needed: " + "; ".join(r.why for r in reasons),
            "; or ".join([*(r.remedy for r in reasons if r.remedy), "allow the copy with copy=None"]),
        )
    if copy is True and not reasons:
        return [Reason("copy=True was asked", "")]
    return reasons


def _finish(
    source: Source,
    target: Framework,
    reasons: list[Reason],
    run: Callable[[], Any],
    step: str,
    where: Device,
) -> Plan:
    view = source.view
    copies = bool(reasons)
    return Plan(
        f"{source.name} {view.dtype} {view.shape}",
        target.name if where.is_host else f"{target.name} on {where}",
        zero_copy=not copies and view.size != 0,
        copied_bytes=view.nbytes if copies else 0,
        protocol=source.protocol,
        steps=(step,),
        reasons=tuple(reasons),
        warnings=() if copies else _warnings(view, target),
        run=run,
    )


def _warnings(view: StridedView, target: Framework) -> tuple[str, ...]:
    if view.size == 0:
        return ()
    if view.readonly and target.mutable and not target.marks_readonly:
        return (
            f"the source is immutable and {target.name} cannot mark its alias read-only: writing to "
            "the result would change the source (writable=True copies instead)",
        )
    if not view.readonly and not target.mutable:
        return (
            f"{target.name} takes its arrays never to change: writing to the source would change "
            "the result (copy=True takes a snapshot)",
        )
    return ()


def words(obj: Any) -> str:
    """Return how messages call an object: its type, and what it holds if that is known."""
    try:
        table = table_of(obj)
        if table is not None:
            field = table.columns[0].field if table.single else None
            said = f"{table.name} {field}" if field is not None else table.name
            return f"{said} {table.shape}" if table.read is None else said
        source = describe(obj)
    except Exception:  # noqa: BLE001 - an error is being told: what it is about must not be another
        return _type_name(obj)
    return f"{source.name} {source.view.dtype} {source.view.shape}"


def _type_name(obj: Any) -> str:
    cls = type(obj)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def call(obj: Any, to: Any, options: dict[str, Any]) -> str:
    """Return a call of ``convert`` as messages tell it."""
    said = "".join(f", {k}={v!r}" for k, v in options.items() if v is not None)
    return f"convert({words(obj)}, to={to!r}{said})"
