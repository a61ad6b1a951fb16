"""Plans for tables and columns: the counterpart of :mod:`zerocopy.planner` for tensors.

To tensors, each column is decoded into leaves, and each leaf is planned like any
tensor. To tables, the target says of each column whether it aliases it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any

from zerocopy.errors import (
    CopyRequiredError,
    LossyConversionError,
    Reason,
    UnsupportedConversionError,
    ZeroCopyError,
)
from zerocopy.framework import Framework, Source
from zerocopy.plan import Plan
from zerocopy.tables import nulls, pandas_metadata
from zerocopy.tables.column import Column, Table
from zerocopy.tables.decode import Decoder, Leaf
from zerocopy.tables.options import Options
from zerocopy.tables.result import parts, rebuild

#: ``between(source, copy) -> Plan`` for one tensor, with all else that was asked in it.
Between = Callable[[Source, bool | None], Plan]


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked of a table's conversion.

    Attributes
    ----------
    target : Framework
    options : Options
    copy, writable : bool or None
    between : callable
        Plans one tensor.
    """

    target: Framework
    options: Options
    copy: bool | None
    writable: bool | None
    between: Between


def make(table: Table, request: Request) -> Plan:
    """Return the plan of a table or a column.

    Raises
    ------
    ZeroCopyError
        What ``convert`` raises; the lead of the message is the caller's to fill in.
    """
    if table.read is not None:
        return _unread(table, request)
    chosen = select(table, request.options.columns)
    if request.options.index is False:
        chosen = replace(chosen, metadata=pandas_metadata.selected(chosen.metadata, ()))
    if request.target.tables and request.options.layout is None:
        return _to_table(chosen, request)
    return _to_tensors(chosen, request)


def select(table: Table, wanted: Any) -> Table:
    """Return the table with the columns that were asked for, in that order.

    Raises
    ------
    UnsupportedConversionError
        A name that no column has, or that several have.
    """
    if wanted is None:
        return table
    if table.single:
        raise UnsupportedConversionError(
            "", "columns= picks from a table, and this is one column", "leave it out"
        )
    labels = list(table.labels)
    places = []
    for label in wanted:
        count = labels.count(label)
        if count != 1:
            import difflib

            near = difflib.get_close_matches(str(label), map(str, labels), n=3)
            raise UnsupportedConversionError(
                "",
                f"{'no column' if not count else f'{count} columns'} of the table "
                f"{'is' if count < 2 else 'are'} called {label!r}",
                f"did you mean {' or '.join(map(repr, near))}?"
                if near and not count
                else f"it has: {labels}",
            )
        places.append(labels.index(label))
    first = len(labels) - table.index
    return replace(
        table,
        labels=[labels[i] for i in places],
        columns=[table.columns[i] for i in places],
        metadata=pandas_metadata.selected(table.metadata, [str(labels[i]) for i in places]),
        obj=None,
        index=sum(i >= first for i in places) if all(i >= first for i in sorted(places)[-1:]) else 0,
    )


def _unread(table: Table, request: Request) -> Plan:
    """Plan what is known only once it is read: its types are, how it lies is not."""
    if request.copy is False and any(column.reasons for column in table.columns):
        raise _required({"it": list(table.columns[0].reasons)})
    read = table.read
    assert read is not None
    typed = select(table, request.options.columns) if table.columns else table
    # What no reading can mend is refused before a query runs or a stream is used up.
    if request.target.tables and request.options.layout is None:
        _each_column(typed, request.target.column_reasons)
    else:
        decode(typed, request)
    how = "it can be read once, and is used up" if table.once else "reading runs it"
    reasons = {reason: None for column in table.columns for reason in column.reasons}
    return Plan(
        f"{table.name} of {len(table.columns)} columns",
        request.target.name,
        steps=("read it", "convert what was read"),
        reasons=tuple(reasons),
        warnings=(f"how much is copied is known when it has been read ({how})",),
        run=lambda: _run(make(read(), request)),
    )


def _run(plan: Plan) -> Any:
    assert plan.run is not None
    return plan.run()


# -- to tables ------------------------------------------------------------------


def _to_table(table: Table, request: Request) -> Plan:
    target, options = request.target, request.options
    for name in ("nulls", "encode"):
        if getattr(options, name) is not None:
            raise UnsupportedConversionError(
                "",
                f"{name}= is for tensors, and {target.name} has nulls and types of its own",
                "leave it out",
            )
    found = _each_column(table, target.column_reasons)
    for path, why in zip(_paths(table), target.table_reasons(table), strict=True):
        found[path] = [*found[path], *why]
    reasons = {label: list(why) for label, why in found.items()}
    if request.writable and target.mutable:
        for label, column in zip(_paths(table), table.columns, strict=True):
            if not reasons[label] and target.locks(column):
                reasons[label].append(
                    Reason("writable=True was asked and the column's memory is immutable", "leave it out")
                )
    if request.copy is False and any(reasons.values()):
        raise _required(reasons)
    copied = {label: bool(why) or request.copy is True for label, why in reasons.items()}
    asked = table
    if request.copy is True or request.writable:
        columns = [
            # Whole even where the target has reasons of its own: it may copy a part (offsets, codes).
            Copied(column) if copied[label] and (request.copy is True or not found[label]) else column
            for label, column in zip(_paths(table), table.columns, strict=True)
        ]
        table = replace(table, columns=columns, obj=None)
    leaves = {
        label: _leaf(label, column, target, reasons[label], copied[label])
        for label, column in zip(_paths(table), table.columns, strict=True)
    }
    run = (lambda: target.from_column(table)) if table.single else (lambda: target.from_table(table))
    # Of the columns as they came: one that is copied has no memory to look at yet.
    warnings = target.table_warnings(asked)
    if not all(copied.values()):
        warnings += target.alias_warnings(asked)
    return _sum(table, target, leaves, run, warnings)


class Copied(Column):
    """A column whose memory is copied before anybody gets it."""

    def __init__(self, column: Column) -> None:
        self._column = column
        self.name, self.field, self.length = column.name, column.field, column.length
        self.reasons = (*column.reasons, Reason("a copy was asked for", ""))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._column, name)

    @property
    def nbytes(self) -> int:
        return self._column.nbytes

    @property
    def null_count(self) -> int:
        return self._column.null_count

    @property
    def source(self) -> Source | None:
        """The tensor behind the column, if there is one, copied."""
        source: Source | None = getattr(self._column, "source", None)
        if source is None:
            return None
        kept = source
        return replace(kept, host=lambda: kept.host().copy())

    def arrow(self) -> Any:
        from zerocopy import registry

        return registry.by_name("pyarrow").copied(self._column.arrow())  # type: ignore[attr-defined]


def _leaf(label: str, column: Column, target: Framework, reasons: list[Reason], copied: bool) -> Plan:
    size = column.nbytes
    return Plan(
        f"{label} {column.field or ''}".rstrip(),
        target.name,
        zero_copy=bool(size) and not copied,
        copied_bytes=size if copied else 0,
        protocol="arrow",
        reasons=tuple(reasons) or ((Reason("copy=True was asked", ""),) if copied else ()),
    )


# -- to tensors -----------------------------------------------------------------


def _to_tensors(table: Table, request: Request) -> Plan:
    options, target = request.options, request.target
    if not options.said and target.owns(type(table.obj)) and target.is_native(table.obj):
        # Dates, text and records of NumPy's are no tensors, and NumPy's all the same.
        from zerocopy.tables import records

        return records.as_it_is(table, request)
    layout = options.layout or "columns"
    if layout != "columns" and table.single:
        raise UnsupportedConversionError("", f"layout={layout!r} is for tables, and this is one column", "")
    if layout == "records":
        from zerocopy.tables import records

        return records.plan(table, request)
    if layout.startswith("matrix"):
        from zerocopy.tables import matrix

        return matrix.plan(table, request)
    if not table.single:
        _unique(table)
    trees = decode(table, request)
    plans: dict[str, Plan] = {}

    def plan(leaf: Leaf, path: str) -> Callable[[], Any]:
        made = request.between(leaf.source, None if leaf.made else request.copy)
        plans[path] = made if not leaf.made else replace(made, zero_copy=False, copied_bytes=0)

        def run() -> Any:
            result = _run(made)
            return result.view(leaf.temporal) if leaf.temporal else result

        return run

    steps: dict[Hashable, Any] = {}
    refused: dict[Hashable, ZeroCopyError] = {}
    for label, (path, tree) in zip(table.labels, trees.items(), strict=True):
        try:
            steps[label] = rebuild(tree, plan, path)
        except ZeroCopyError as error:
            if table.single:
                raise
            refused[label] = error
    if refused:
        raise together(refused)
    if table.single and len(plans) == 1 and not isinstance(tree, dict):
        (only,) = plans.values()
        if isinstance(trees[""], Leaf):
            (run,) = steps.values()
            return replace(only, run=run)

    def result() -> Any:
        made = {label: rebuild(step, lambda run, _: run()) for label, step in steps.items()}
        return next(iter(made.values())) if table.single else made

    return _sum(table, target, plans, result, ())


def decode(table: Table, request: Request) -> dict[str, Any]:
    """Return each column's tree by its path; one error for all columns that have none."""
    options, target = request.options, request.target
    if isinstance(options.nulls, dict):
        select(table, list(options.nulls))  # a name that no column has is a mistake
    trees: dict[str, Any] = {}
    refused: dict[Hashable, ZeroCopyError] = {}
    for path, label, column in zip(_paths(table), table.labels, table.columns, strict=True):
        decoder = Decoder(nulls.parse(options.nulls, label), bool(options.encode), target.temporal)
        try:
            trees[path] = decoder.decode(column)
        except ZeroCopyError as error:
            if table.single:
                error.why = f"it {error.why}"
                raise
            refused[label] = error
    if refused:
        raise together(refused)
    return trees


def together(refused: dict[Hashable, ZeroCopyError]) -> ZeroCopyError:
    """Return one error for several columns: each named, each remedy once."""
    said = "; ".join(f"column {label!r} {error.why}" for label, error in refused.items())
    remedies = dict.fromkeys(error.remedy for error in refused.values() if error.remedy)
    errors = list(refused.values())
    lossy = all(isinstance(error, LossyConversionError) for error in errors)
    if len({type(error) for error in errors}) == 1:
        kind: type[ZeroCopyError] = type(errors[0])
    else:
        kind = LossyConversionError if lossy else UnsupportedConversionError
    whole = kind("", said, "; or ".join(remedies))
    whole.__cause__ = errors[0].__cause__
    return whole


def _unique(table: Table) -> None:
    """Refuse duplicate labels where they are to be the keys of a dict."""
    labels = list(table.labels)
    twice = list(dict.fromkeys(str(label) for label in labels if labels.count(label) > 1))
    if len({*labels}) != len(labels):
        raise UnsupportedConversionError(
            "",
            f"several columns are called {', '.join(map(repr, twice))}, and a dict has each key once",
            "rename them, or pass the columns one by one",
        )


def _each_column(table: Table, ask: Callable[[Column], list[Reason]]) -> dict[str, list[Reason]]:
    found: dict[str, list[Reason]] = {}
    refused: dict[Hashable, ZeroCopyError] = {}
    for path, label, column in zip(_paths(table), table.labels, table.columns, strict=True):
        try:
            found[path] = ask(column)
        except ZeroCopyError as error:
            refused[label] = error
    if refused and table.single:
        raise next(iter(refused.values()))
    if refused:
        raise together(refused)
    return found


def _paths(table: Table) -> list[str]:
    """Return each column's path in a plan; labels need not be unique, and paths are."""
    if table.single:
        return [""]
    seen: dict[str, int] = {}
    paths = []
    for label in table.labels:
        path = f"[{label!r}]"
        seen[path] = seen.get(path, 0) + 1
        paths.append(path if seen[path] == 1 else f"{path}#{seen[path]}")
    return paths


def _required(reasons: dict[str, list[Reason]]) -> CopyRequiredError:
    why = {path: "; ".join(r.why for r in found) for path, found in reasons.items() if found}
    remedies = dict.fromkeys(r.remedy for found in reasons.values() for r in found if r.remedy)
    said = "; ".join(f"{path}: {text}" if path else text for path, text in why.items())
    return CopyRequiredError(
        "",
        f"copy=False, but a copy is needed: {said}",
        "; or ".join([*remedies, "allow the copy with copy=None"]),
    )


def _sum(
    table: Table, target: Framework, leaves: dict[str, Plan], run: Callable[[], Any], beware: tuple[str, ...]
) -> Plan:
    copied = sum(plan.copied_bytes for plan in leaves.values())
    shares = any(plan.zero_copy for plan in leaves.values())
    said = dict.fromkeys([*beware, *(w for plan in leaves.values() for w in plan.warnings)])
    return Plan(
        f"{table.name} {table.shape}",
        target.name,
        zero_copy=shares and not copied,
        copied_bytes=copied,
        protocol=next((plan.protocol for plan in leaves.values()), ""),
        steps=(f"each of {len(table.columns)} columns on its own",),
        warnings=tuple(said),
        leaves=leaves if not table.single or len(leaves) > 1 else {},
        reasons=next(iter(leaves.values())).reasons if table.single and len(leaves) == 1 else (),
        run=run,
    )


def leaves_of(tree: Any) -> list[tuple[str, Leaf]]:
    """Return a tree's leaves with their paths."""
    return parts(tree)
