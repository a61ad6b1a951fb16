"""Compound arrays, such as sparse and ragged ones: each part is converted, and the target joins the results.

Only the slow path and the routes that it keeps run this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from zerocopy import registry
from zerocopy._engine.planner import Call
from zerocopy._engine.routes import NO_ROUTES, generation, routes_of, store
from zerocopy.describe import describe_array, translated_errors
from zerocopy.dtype import DType
from zerocopy.errors import CopyRequiredError, Fix, ZeroCopyError
from zerocopy.framework import hook_of
from zerocopy.plan import Plan, of_leaves
from zerocopy.source import refuse_dtype, type_name
from zerocopy.sparse_ragged.hook import CompoundArray, CompoundHook, Layout, Part
from zerocopy.sparse_ragged.ragged import RaggedLayout

Convert = Callable[[object, object, Mapping[str, object]], Any]

#: Options for the parts; `validate` is for the whole, and the options for tables do not apply.
_PART_OPTIONS = frozenset(("device", "copy", "stream", "writable"))
_COPY = Fix(options={"copy": None}, effect="copies")
_INTEGERS = Fix("{x}.astype('int64')", "gives integers", action="cast:int64")
#: For types without a wider one that all frameworks have; complex32 has no cast in zerocopy.
_CASTS = {
    "float16": (Fix(options={"dtype": "float32"}), Fix(action="cast:float32", effect="casts it")),
    "complex32": (Fix(action="cast:complex64", effect="casts it"),),
}
#: NumPy's types that no other framework has: longdouble, dates, text, objects, records.
_NUMPY_ALONE = frozenset("gGmMSUTOV")
#: The parts that hold the values, to which `dtype=` applies.
_VALUES = ("data", "values")


def convert(call: Call, compound: CompoundArray, convert_part: Convert) -> object:
    """Convert a compound array part by part."""
    call.target.module()
    with translated_errors(call.__str__):
        layout, parts = _fit(call, compound)
        arrays = []
        for name, part in zip(layout.names, parts, strict=True):
            options = _options_of(call, name, part)
            obj = part.obj if part.make is None else part.make()
            try:
                arrays.append(convert_part(obj, compound.target, options))
            except ZeroCopyError as error:
                raise _located(error, name, call) from error
        if compound.builder.part_target == "numpy":
            arrays = [array.view() for array in arrays]  # the caller can assign a shape to its own arrays
        result = compound.builder.build(layout, arrays)
    # No route for a table framework: it would use the route for its columns of lists, which have other rules.
    if not call.options and call.request.cast is None and not compound.has_tables:
        _keep(call, compound)
    return result


def _fit(call: Call, compound: CompoundArray) -> tuple[Layout, list[Part]]:
    """Return the layout and the parts that the target takes; refuse values whose dtype it lacks."""
    name, values = next(x for x in zip(compound.layout.names, compound.parts, strict=True) if x[0] in _VALUES)
    try:
        dtype = _dtype_of(values)
    except ZeroCopyError as error:
        raise _located(error, name, call) from error
    layout, parts = compound.builder.fit(compound.layout, compound.parts)
    new = None if call.request.cast is None else call.request.cast.new_type(dtype)
    if new is not None:
        if parts[0].make is None:  # otherwise duplicates are summed before the cast
            compound.layout.check_cast(compound.parts)
        dtype = new
    allowed = compound.builder.value_types(layout)
    if allowed is not None and dtype.name not in allowed:
        raise _located(refuse_dtype(call.target.name, dtype, fixes=_CASTS.get(dtype.name, ())), name, call)
    return layout, parts


def _dtype_of(values: object) -> DType:
    """Return the dtype of the values; the fixes of an error apply to an array of several buffers."""
    try:
        return describe_array(values).view.dtype
    except ZeroCopyError as error:
        # A view and encode= apply to one array alone.
        kind = getattr(getattr(values, "dtype", None), "kind", "")
        if kind in ("m", "M"):
            error.fixes = (_INTEGERS,)
            error.with_context(remedy=str(_INTEGERS))
        elif kind in ("U", "S", "T", "O"):
            error.fixes = ()
            error.with_context(remedy="store numbers, such as codes of the values")
        raise


def _options_of(call: Call, name: str, part: Part) -> dict[str, object]:
    """Return the options for one part: ``dtype=`` is for the values alone."""
    options = {key: value for key, value in call.options.items() if key in _PART_OPTIONS}
    if name in _VALUES and "dtype" in call.options:
        options["dtype"] = call.options["dtype"]
    elif part.cast:
        options["dtype"] = part.cast
    if part.reason is not None and options.get("copy") is False:
        why = f"copy=False, but a copy is needed: {part.reason.why}"
        raise _located(CopyRequiredError("", why, code=part.reason.code), name, call)
    if part.make is not None and options.get("copy") is True:
        del options["copy"]  # make() copies
    return options


def _located(error: ZeroCopyError, name: str, call: Call) -> ZeroCopyError:
    """Name the part in its error, and keep the fixes that apply to the whole."""
    why = f"its part {name}: {error.why}"
    values = name in _VALUES
    new: ZeroCopyError
    if isinstance(error, CopyRequiredError):
        new = CopyRequiredError(str(call), why, code=error.code, fixes=[_COPY])
    else:
        new = type(error)(str(call), why, error.remedy if not error.calls else "", code=error.code)
        new.fixes = tuple(
            fix
            for fix in error.fixes
            if not error.calls
            or (
                fix.source == "{x}"
                and not fix.to
                and not fix.alone
                and (values or "dtype" not in fix.options)
            )
        )
    return new


def explain_compound(call: Call, compound: CompoundArray, explain: Callable[..., Plan]) -> Plan:
    """Return the plan of a compound array: the sum of its parts' plans."""
    call.target.module()
    with translated_errors(call.__str__):
        layout, parts = _fit(call, compound)
        leaves = {}
        for name, part in zip(layout.names, parts, strict=True):
            leaves[f".{name}"] = _explain_part(call, explain, compound, name, part)
        warnings = compound.layout.warnings(compound.parts)
    if _is_empty_column(call, compound):
        # Columns without rows have no bytes; their only offset is not counted.
        leaves = {path: replace(leaf, zero_copy=False, aliased_bytes=0) for path, leaf in leaves.items()}
    reasons = [reason for leaf in leaves.values() for reason in leaf.reasons]
    return of_leaves(
        layout.summarize(compound.name, compound.parts),
        call.target.name,
        leaves,
        steps=(
            f"convert its {len(leaves)} parts",
            f"{call.target.name} joins them",
            *_other_form(call, compound),
        ),
        reasons=tuple(dict.fromkeys(reasons)),
        warnings=(*warnings, *dict.fromkeys(line for leaf in leaves.values() for line in leaf.warnings)),
    )


def _other_form(call: Call, compound: CompoundArray) -> tuple[str, ...]:
    """Return the step that names the other form of a column of lists."""
    is_lists = compound.has_tables and not call.target.tables and isinstance(compound.layout, RaggedLayout)
    return ('or, if all lists have one length: lists="dense" makes one tensor',) if is_lists else ()


def _is_empty_column(call: Call, compound: CompoundArray) -> bool:
    """Whether the source or the result is a column of lists without rows."""
    return (compound.has_tables or call.target.tables) and not getattr(compound.layout, "length", 1)


def _explain_part(
    call: Call, explain: Callable[..., Plan], compound: CompoundArray, name: str, part: Part
) -> Plan:
    options = _options_of(call, name, part)
    if part.make is not None:
        assert part.reason is not None
        return Plan(
            type_name(part.obj),
            compound.target,
            copied_bytes=part.nbytes,
            reasons=(part.reason,),
            steps=("compute the part",),
        )
    plan = explain(part.obj, compound.target, **options)
    if plan.error is not None:
        raise _located(plan.error, name, call) from plan.error
    if part.reason is not None and plan.copied_bytes:
        return replace(plan, reasons=(part.reason,))
    return plan


def _keep(call: Call, compound: CompoundArray) -> None:
    """Keep a route for the type: it reads the parts, converts them by their routes and joins them."""
    read, build = compound.reader.read, compound.builder.build
    cls, before = type(call.obj), generation()
    kept, routes = routes_of(call.to, {}), routes_of(compound.target, {})
    if kept is NO_ROUTES or kept.get(cls) is not None:
        return  # the route of dense arrays of this type

    # Elements of NumPy arrays are read in 50 ns, of torch in 2 us.
    on_host = compound.builder.part_target == "numpy"

    def route(obj: object) -> object:
        described = read(obj)
        if described is None:
            raise ValueError("not a compound array: the slow path handles it")
        layout, parts = described
        arrays = [routes[type(part)](part) for part in parts]
        values = arrays[0] if on_host else parts[0]
        if getattr(getattr(values, "dtype", None), "char", "") in _NUMPY_ALONE:
            raise ValueError("values that only NumPy has: the slow path refuses them")
        layout.check(arrays if on_host else parts)
        return build(layout, [array.view() for array in arrays] if on_host else arrays)

    store(route, cls, call.to, {}, before)


def parts_of(obj: object) -> list[object] | None:
    """Return the arrays of a compound array that is described by its parts alone; None for other objects."""
    hook = hook_of(registry.by_type(type(obj)), CompoundHook)
    described = hook.read(obj)
    if described is None:
        return None
    layout, parts = described
    if not hook.converts_own and (layout.packed is not None or not getattr(layout, "length", 1)):
        return None  # described as a column: packed parts are copies, and a column without rows has no bytes
    return list(parts)
