"""A call: its options parsed into a `Request`, its object classified and described, and its plan.

``explain`` returns the plan, ``convert`` runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from zerocopy import handover, registry
from zerocopy._engine.container_types import is_container, is_mapping, is_result, items_of
from zerocopy._engine.target import may_be_compound, resolve, text
from zerocopy.describe import describe, describe_columns, opened, summarize, translated_errors
from zerocopy.device import parse_stream
from zerocopy.errors import Fix, UnsupportedConversionError, ZeroCopyError
from zerocopy.framework import Framework
from zerocopy.plan import Plan
from zerocopy.protocols.exporter_errors import is_error
from zerocopy.request import TABLE_NAMES, Request
from zerocopy.source import Source, type_name

if TYPE_CHECKING:
    from zerocopy.casting.option import DTypeOption
    from zerocopy.sparse_ragged.hook import CompoundArray
    from zerocopy.tables.column import Table

#: With only these options, except ``copy=True``, an object of the target is returned unchanged.
_UNCHANGED = frozenset(("copy", "stream", "leaves", "validate"))
#: The longest text of an option in a message.
_WIDEST = 200
#: Options of arrays that a `Request` stores unparsed.
_OF_REQUEST = ("device", "copy", "writable", "validate")


def parse(target: Framework, options: Mapping[str, Any], for_explain: bool = False) -> Request:
    """Return the request of a call, whose options have passed `check_options`; the plan parses `stream`."""
    given = {name: options[name] for name in _OF_REQUEST if name in options}
    if "dtype" in options:
        from zerocopy.casting.option import DTypeOption  # most calls cast nothing

        given["cast"] = DTypeOption(options["dtype"], target.packs_booleans)
    if of_tables := {name: options[name] for name in TABLE_NAMES if name in options}:
        from zerocopy.tables.options import check  # conversions between arrays need no tables

        given["of_tables"] = of_tables = check(of_tables)
        given |= of_tables
    return Request(target=target, for_explain=for_explain, **given)


class Call:
    """One call: the object, the target, the options and, after `describe`, the object's description.

    The description is used for all messages, so the object is described once.
    """

    __slots__ = (
        "_summary", "description", "is_small", "obj", "options", "refuse", "request", "target", "to", "unwrap"
    )  # fmt: skip

    def __init__(self, obj: object, to: object, options: dict[str, Any], for_explain: bool = False) -> None:
        self.obj: Any = obj
        self.to, self.options = to, options
        # Names take no other module: a first conversion runs few files.
        self.target = registry.find(to) or resolve(to, obj)
        self.description: Source | Table | None = None
        #: Returns the error of a guard against copies for this call and its plan; for fixes.
        self.refuse: Callable[[Call, Plan | None], ZeroCopyError | None] | None = None
        self.is_small = False  # whether `refuse` also judges expressions in fixes, which are evaluated
        self._summary = self.unwrap = ""  # the method of the caller's object that returned `obj`, see `open`
        if options:
            self.request = parse(self.target, options, for_explain)
        else:
            self.request = Request(target=self.target, for_explain=for_explain)

    def open(self, obj: object) -> None:
        """Set `obj` to the object that a handle locates, or that the caller's object wraps."""
        self.obj = opened(obj, self.target.name)
        if self.obj is not obj and (framework := registry.by_type(type(obj))) is not None:
            self.unwrap = framework.unwrap

    @property
    def subject(self) -> str:
        """The object for messages: its type, with its dtype and shape if it is described."""
        if self.description is None:
            return type_name(self.obj)
        # Computed once: an error needs it three times, and the type of text or objects is read from values.
        self._summary = self._summary or summarize(self.description)
        return self._summary

    def __str__(self) -> str:
        options = "".join(f", {name}={_shown(value)}" for name, value in self.options.items())
        return f"convert({self.subject}, to={text(self.to)}{options})"

    def describe(self, target: Framework) -> Source | Table:
        """Describe the object, unless `classify` did, and return the `Source` or `Table`."""
        if self.description is None:
            if type(self.obj) in (list, tuple) and not self.obj:
                from zerocopy.protocols import python_numbers

                python_numbers.check_empty(self.options)
            # pyarrow reads a stream whole if it has to check it.
            for_table = target.kind != "tensor" or "validate" in self.options
            self.description = describe(self.obj, self.own_index, for_table)
        return self.description

    @property
    def is_of_layout(self) -> bool:
        """Whether the only option for tables has no effect on arrays and single columns."""
        request = self.request
        return request.layout not in (None, "records") and request.of_tables.keys() == {"layout"}

    @property
    def own_index(self) -> bool | None:
        """The option ``index=`` for the object's own row labels; labels from the caller replace them."""
        index = self.options.get("index")
        return index if index is None or isinstance(index, bool) else False


def _shown(value: object) -> str:
    """Return an option as text; for an array or another object with a long text, its type."""
    is_long = isinstance(value, (list, tuple)) and len(value) > _WIDEST
    try:
        # The text of an array can read memory that has been freed.
        shown = "\n" if is_long or registry.by_type(type(value)) is not None else repr(value)
    except Exception as error:
        if not is_error(error):
            raise
        shown = "\n"  # the option has a type whose objects, such as tensors of bits, cannot be shown
    return shown if len(shown) <= _WIDEST and "\n" not in shown else f"<{type_name(value)}>"


def classify(call: Call) -> Literal["tree", "whole"] | CompoundArray:
    """Decide once how an object is converted: by leaves, by parts, or whole; a dict is described for it.

    A dict is a table if the target has tables or an option is for tables. A dict of tables is
    a container of them, and so is a dict of containers if the target has arrays. Lists of Python
    numbers are arrays, unless ``leaves="keep"`` keeps their numbers.
    """
    obj, options = call.obj, call.options
    cls = type(obj)
    if "out" in options:
        return "whole"  # the plan refuses containers
    if issubclass(cls, (list, tuple)):
        from zerocopy.protocols import python_numbers

        is_empty = cls in (list, tuple) and not obj
        is_array = "leaves" not in options and (is_empty or python_numbers.is_array(obj))
        return "whole" if is_array else "tree"
    if cls is not dict:
        if registry.by_type(cls) is not None:  # also SciPy's DOK arrays, which are dicts
            return _compound_of(call) or "whole"
        with translated_errors(call.__str__):
            if not is_container(obj) or (is_result(cls) and call.target.tables and "leaves" not in options):
                return "whole"
    is_table = (call.target.tables and "leaves" not in options) or call.request.of_tables
    return "whole" if is_table and is_mapping(obj) and _describe_columns(call) else "tree"


def _compound_of(call: Call) -> CompoundArray | None:
    has_others = call.request.of_tables not in ({}, {"lists": "ragged"})
    if has_others or not may_be_compound(type(call.obj), call.target):
        return None
    from zerocopy.sparse_ragged.hook import compound_of  # here, because most objects have one buffer

    with translated_errors(call.__str__):
        return compound_of(call.obj, call.target, call.options)


def _describe_columns(call: Call) -> bool:
    """Describe a mapping as a table; return False if its values are tables or containers."""
    from zerocopy._engine.open_files import read_error, reading  # arrays do not need it

    obj, target, is_alias = call.obj, call.target, call.options.get("copy") is False
    with translated_errors(call.__str__):
        columns, read = obj if type(obj) is dict else dict(items_of(obj)), None
        if columns is not obj and (is_alias or call.request.for_explain):
            read = reading(obj, list(columns), list(columns.values()), target.name)
        if read is not None and is_alias:
            raise read_error(f"[{read[0]!r}]", read[1])
        if target.kind != "table" and any(map(_is_inner_container, columns.values())):
            return False
        target.module()  # a missing framework is reported before faults of the columns
        table = call.description = describe_columns(columns)
    if table is not None and read is not None:
        for column in table.columns:
            column.reasons = (read[1], *column.reasons)
    return table is not None


def _is_inner_container(value: object) -> bool:
    from zerocopy.protocols import python_numbers

    if not is_container(value) or python_numbers.is_array(value) or python_numbers.is_text(value):
        return False
    return not is_result(type(value))


def make_plan(call: Call) -> Plan:
    """Return a plan that is possible."""
    options = call.options
    target = call.target
    try:
        target.module()
        if "out" in options:
            from zerocopy._engine import output

            return output.plan(call, make_plan)
        request = call.request
        if "stream" in options:
            request.stream = parse_stream(options["stream"])
        with translated_errors(call.__str__):
            native = target.owns(type(call.obj)) and target.is_native(call.obj)
            if native and options.keys() <= _UNCHANGED and options.get("copy") is not True:
                return _plan_unchanged(call, target)
            if native and _keeps_labels(call, target):
                target = target.like(call.obj)
                request = replace(request, target=target)
            description = call.describe(target)
            is_column = not isinstance(description, Source) and description.single
            if native and is_column and call.is_of_layout:
                others = {name: value for name, value in options.items() if name != "layout"}
                plain = Call(call.obj, call.to, others, request.for_explain)
                plain.description = description
                return make_plan(plain)
            cast = request.cast
            if cast is not None:
                _check_records(cast, options)
                cast.bind(_labels(description))
            shapes_arrays = request.of_tables and not call.is_of_layout
            if not isinstance(description, Source) or target.kind == "table" or shapes_arrays:
                return _plan_table(call, description, request)
        # Exceptions of the target's `copy_reasons` are faults of the target, and are not translated.
        new = None if cast is None else cast.new_type(description.view.dtype)
        if cast is not None and new is not None:
            from zerocopy.casting.sources import cast_source

            plan = handover.plan(cast_source(description, new, cast), request)
            return replace(plan, source=call.subject)
        if native:
            return handover.plan_native(description, request) or _plan_unchanged(call, target)
        return handover.plan(description, request)
    except ZeroCopyError as error:
        error.with_context(asked=str(call))
        raise


def _check_records(cast: DTypeOption, options: dict[str, object]) -> None:
    """Refuse a structured dtype for a result that is not records."""
    if cast.record is not None and options.get("layout") != "records":
        why = "dtype= has fields, and only records have them"
        fixes = [Fix(options={"layout": "records"}), Fix(options={"dtype": None})]
        raise UnsupportedConversionError("", why, code="option-value", fixes=fixes)


def _keeps_labels(call: Call, target: Framework) -> bool:
    """Whether the options leave one object of the target's, whose labels are those of the source."""
    given = call.request.of_tables.keys()
    if not given or target.kind == "tensor":
        return not given
    # A framework that has tensors too makes a dict of them with layout="columns".
    kept = {"columns", "index", "layout"} if target.kind == "table" else {"columns", "index"}
    return given <= kept


def _labels(description: Source | Table) -> list[Hashable] | None:
    """Return the labels of a table's columns, none for an array; None if they are not known yet."""
    if isinstance(description, Source):
        return []
    return None if description.read is not None and not description.columns else list(description.labels)


def _plan_table(call: Call, description: Source | Table, request: Request) -> Plan:
    """Plan a table, a column, or an array whose target or options are for tables."""
    from zerocopy.tables import planner

    if request.device is not None:
        parsed = request.target.parse_device(request.device)  # once: each column would repeat the error
        if request.target.kind != "tensor":
            request.target.check_device(parsed)
    return planner.make(description, request)


def _plan_unchanged(call: Call, target: Framework) -> Plan:
    """Return the plan for an object that `convert` returns unchanged."""
    shares, nbytes = True, 0
    try:
        with translated_errors(call.__str__):
            description = call.describe(target)
    except ZeroCopyError:
        # Such as a sparse tensor of the target, which has no single block of memory.
        if target.tables and "validate" in call.options:
            raise
    else:
        if isinstance(description, Source):
            nbytes, shares = description.view.nbytes, description.view.size > 0
        else:
            if "validate" in call.options:
                _validate(call, description)
            nbytes = sum(column.nbytes for column in description.columns if column.length)
            shares = nbytes > 0 or description.read is not None
    obj = call.obj
    step = "the object itself"
    return Plan(call.subject, target.name, True, shares, steps=(step,), run=lambda: obj, aliased_bytes=nbytes)


def _validate(call: Call, table: Table) -> None:
    """Check the content of a table that `convert` returns unchanged; refuse one that has not been read."""
    from zerocopy.tables import content

    if table.read is not None:
        why = "validate='full' checks the content, which is known only after it has been read"
        raise UnsupportedConversionError("", why, "read it first", code="unread")
    content.check(table)
