"""Composes the fixes of an error into calls that can be pasted, in the terms of the call that failed.

An obstacle is removed by one of its fixes (:class:`zerocopy.errors.Fix`), and all obstacles must be
removed. A call takes one fix of each: fixes that are all needed make one call, alternatives make several.
A call that only changes options is planned before a message names it: if the plan refuses the call, the
fixes of that refusal are added. Only errors and ``explain`` run this module.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from zerocopy import registry
from zerocopy._engine.call_text import MAX_ITEMS, arguments, as_code, items_of_dict, relocate, with_imports
from zerocopy._engine.planner import Call
from zerocopy._engine.trials import (
    Candidate,
    are_plain,
    for_framework,
    has_attributes,
    includes,
    is_part,
    refusal,
    refusal_of_sample,
    same,
    without_cycles,
)
from zerocopy.errors import Fix, Reason, ZeroCopyError
from zerocopy.framework import Framework
from zerocopy.plan import Plan
from zerocopy.protocols.exporter_errors import is_error
from zerocopy.request import NAMES, TABLE_NAMES
from zerocopy.source import Source

Label = tuple[Hashable, ...]

#: The most calls in one message.
_MOST = 3
#: The most items of a dict that a call replaces one by one, if all have one expression.
_MOST_ITEMS = 4
#: The maximum number of successive refusals whose fixes are added to one call.
_DEPTH = 4


def compose_calls(error: ZeroCopyError, call: Call) -> None:
    """Set the `calls` of an error, and its `remedy` from them; `call` is the one that failed."""
    if not (error.fixes or error.obstacles):
        return
    try:
        _compose(error, call)
    except Exception as raised:  # an object's property or comparison can raise
        if not is_error(raised):
            raise
        error.add_note(f"composing its fixes raised {type(raised).__name__}: {raised}")


def _compose(error: ZeroCopyError, call: Call) -> None:
    composer = _Composer(call)
    later: list[str] = []  # the obstacles that remain when those of the error are removed
    kept = composer.working(composer.candidates(error), later, {error.why}, _DEPTH)[:_MOST]
    if not kept:
        return
    reasons = [reason for _, reason in _obstacles(error)]
    own = [(r.remedy.removeprefix(error.preface), "; or ".join(map(str, r.fixes))) for r in reasons]
    prose = dict.fromkeys([remedy for remedy, of_fixes in own if remedy != of_fixes])
    error.calls = tuple([each.code for each in kept])
    texts = [f"{each.code} {each.effect}".rstrip() for each in kept]
    texts += ["; and ".join(prose)] if any(prose) else []
    new = [why for why in later if why not in error.why]  # one of several obstacles can remain
    why = "; also, ".join([error.why, *new[:1]])
    error.with_context(why=why, remedy=error.preface + "; or ".join(texts))
    if call.unwrap:
        relocate(error, *call.unwrap.split("{x}"))


def _obstacles(error: ZeroCopyError) -> list[tuple[Label, Reason]]:
    return error.obstacles or [((), error.reason)]


def resolve_fixes(plan: Plan, call: Call, resolved: Callable[[Reason], Reason] | None = None) -> Plan:
    """Return a plan whose reasons, and those of its leaves, have fixes for the object's own framework."""
    if not (plan.reasons or plan.leaves):
        return plan
    resolved = resolved or cache(_Composer(call).resolved)
    leaves = {path: resolve_fixes(leaf, call, resolved) for path, leaf in plan.leaves.items()}
    return replace(plan, reasons=tuple(map(resolved, plan.reasons)), leaves=leaves)


#: A matrix whose columns are each in one block of memory.
_BY_COLUMN = Fix("numpy.asfortranarray({x})", "makes each column contiguous", action="by-column")


class _Composer:
    """Composes the fixes of one call that failed."""

    def __init__(self, call: Call) -> None:
        self.options = call.options
        self.target = call.target
        self.to = call.to if isinstance(call.to, str) else self.target.name
        self.obj, self.description, self.cast = call.obj, call.description, call.request.cast
        self.framework, self.unwrap, self.failed = _framework(call.obj), call.unwrap, call

    # -- which calls work -----------------------------------------------------

    def candidates(self, error: ZeroCopyError) -> list[Candidate]:
        """Return the calls that remove all obstacles of an error, the best first."""
        obstacles = _obstacles(error)
        alternatives = [self.usable(label, reason.fixes) for label, reason in obstacles]
        calls: dict[str, Candidate] = {}
        if all(alternatives):
            for i in range(max(map(len, alternatives))):
                # One fix for all obstacles, where they have it: others differ in effect, such as 0 and NaN.
                most = max(alternatives, key=len)
                chosen = [
                    most[i]
                    if fixes is most
                    else next((fix for fix in fixes if is_part(fix, most[i])), fixes[min(i, len(fixes) - 1)])
                    for fixes in alternatives
                ]
                # A statement removes each obstacle that names it: a cast after it would be needless.
                before = [fix for fix in chosen if fix.before and fix.source == "{x}"]
                chosen = [
                    next((fix for fix in before if fix in fixes), own)
                    for own, fixes in zip(chosen, alternatives, strict=True)
                ]
                labelled = [(label, fix) for (label, _), fix in zip(obstacles, chosen, strict=True)]
                calls |= {each.code: each for each in self.call(labelled)}
        if error.obstacles:
            labels = [label for label, _ in obstacles]
            for fix in [*error.fixes, *self.other_columns(labels, error.code == "out-of-range")]:
                if self.accepts(fix):
                    calls |= {each.code: each for each in self.call([((), fix)])}
        return list(calls.values())

    def working(
        self, candidates: Sequence[Candidate], later: list[str], seen: set[str], depth: int
    ) -> list[Candidate]:
        """Return the candidates that their plans do not refuse.

        The obstacles that follow those of the error are appended to `later`; `seen` has all earlier ones.
        """
        kept: dict[str, Candidate] = {}
        uncertain: list[Candidate] = []
        unchanged: list[Candidate] = []  # fixes of trials that the same refusal stopped
        enough: list[dict[str, object]] = []  # options that remove all obstacles, without a loss of columns
        for each in candidates:
            if self._failed(each):
                continue
            refused = self._refusal(each.to, each.options) if each.options is not None else None
            if each.sample:
                refused, each = refusal_of_sample(self.failed, each), replace(each, complete=True)
            if refused is None:
                kept[each.code] = each
                if each.options and each.to == self.to and "columns" not in each.options:
                    enough.append(each.options)
                continue
            uncertain.append(each)
            trial, refusal = refused
            if not depth or not isinstance(refusal, ZeroCopyError):
                continue
            following = _Composer(trial)
            if refusal.why in seen:
                unchanged += [other for other in following.candidates(refusal) if other.options is None]
                continue
            further = following.working(following.candidates(refusal), [], seen | {refusal.why}, depth - 1)
            further = [other for other in further if not self._failed(other)]
            planned = [other for other in further if other.options is not None][:2]
            # A statement, such as a setting of JAX, can be the only fix of what follows an option.
            changed = (each.options or {}).items()
            changes = any(not same(self.options.get(name), value) for name, value in changed)
            statements = [other for other in further if other.has_statement] if changes else []
            expressions = [other for other in further if other.options is None and not other.has_statement]
            for other in planned or statements[:1] or expressions[:1]:
                if any(includes(other.options or {}, options) for options in enough):
                    continue
                later.append("" if each.sample else refusal.why)  # the object itself lacks this obstacle
                effect = self._effects(each, other)
                other = other.after(each) if each.sample else other
                kept[other.code] = replace(other, effect=effect, complete=True)
        if enough or isinstance(self.description, Source):
            later.clear()  # for one array, a fix that is not planned, such as a global setting, may suffice
        if later:  # an expression of a column removes only an obstacle of this error
            of_column = [each for each in kept.values() if each.options is None and not each.complete]
            return [each for each in kept.values() if each not in of_column or each.has_statement]
        is_last = depth == _DEPTH and self.failed.refuse is None
        return list(kept.values()) or ((unchanged or uncertain) if is_last else [])

    def _failed(self, each: Candidate) -> bool:
        """Whether a candidate is the call that failed."""
        given, options = self._with({}), each.options
        if options is None or (each.to, options.keys()) != (self.to, given.keys()):
            return False
        return includes(options, given)

    def _refusal(self, to: str, options: dict[str, object]) -> tuple[Call, Exception] | None:
        """Return the call with other options and its error; None if its plan has no error or is unknown."""
        refuse, read = self.failed.refuse, getattr(self.description, "read", None)
        if read is not None or (self.description is None and refuse is None):
            return None
        try:
            trial = Call(self.obj, to, options, for_explain=refuse is not None)
        except Exception as error:  # options can be invalid too
            if not is_error(error):
                raise
            return self.failed, without_cycles(error)
        trial.description, trial.refuse, trial.is_small = self.description, refuse, self.failed.is_small
        return refusal(trial)

    def _is_refused(self, fix: Fix) -> bool:
        return fix.source == "{x}" and self._refusal(fix.to or self.to, self._with(fix.options)) is not None

    def _with(self, changes: dict[str, Any]) -> dict[str, Any]:
        """Return the call's options with `changes`, but without None and options that need another one."""
        given = self.options | changes
        needless = () if given.get("lists") == "pad" else ("pad_value", "max_length")
        return {name: value for name, value in given.items() if value is not None and name not in needless}

    # -- which fixes apply ----------------------------------------------------

    def usable(self, label: Label, fixes: Sequence[Fix]) -> list[Fix]:
        """Return the fixes that the target, the options and the object's framework have."""
        if label and not self._label(label):  # the columns of one matrix
            label = ()
            fixes = [_of_matrix(fix) for fix in fixes]
        framework = self.framework
        if label and isinstance(self.obj, dict):
            framework = _framework(self.obj.get(label[0]))
        general = not label or isinstance(self.obj, dict)
        obj = self.obj if not label else self.obj.get(label[0]) if isinstance(self.obj, dict) else None
        own = [for_framework(self._within_dtype(fix), framework, general) for fix in fixes]
        resolved = [f for f in own if f and has_attributes(obj, f) and not (label and f.shortens)]
        kept = [fix for fix in resolved if self.accepts(fix) and self._rebuilds(label, fix)]
        # Python objects of one column are not the table that was asked for.
        objects = all(fix.alone and "{array}" not in fix.source for fix in kept)
        if self.options.get("layout") is None or not objects:
            return kept
        # Masks and encoded columns need a dict of columns.
        by_column = [replace(fix, options={**fix.options, "layout": "columns"}) for fix in resolved]
        return [fix for fix in by_column if self.accepts(fix) and self._rebuilds(label, fix)]

    def _within_dtype(self, fix: Fix) -> Fix:
        """Return a cast as the option that replaces ``dtype=``, if that can: it would undo the cast."""
        name, _, kind = fix.action.partition(":")
        option = Fix(options={"dtype": kind}, effect=fix.effect)
        is_other = type(given := self.options.get("dtype")) is str and given != kind
        return option if name == "cast" and is_other and not self._is_refused(option) else fix

    def _label(self, label: Label) -> Label:
        return () if isinstance(self.description, Source) else label  # columns of one tensor

    def accepts(self, fix: Fix) -> bool:
        """Whether `convert` accepts the fix's options for this target."""
        if "." in fix.to and fix.to.partition(".")[0] != self.target.name.partition(".")[0]:
            return False  # a form of another framework
        if 'zc.convert({x}, "numpy"' in fix.source and "encode" in self.options:
            return False  # the inner call would refuse what is encoded
        if self.failed.refuse is not None and "copy=True" in fix.source:
            return False  # the guard would refuse the inner call
        given = {name: value for name, value in fix.options.items() if value is not None}
        if fix.options and not given and fix.source == "{x}":
            return any(name in self.options for name in fix.options)  # leaves an option out
        layout = given.get("layout", self.options.get("layout") if "layout" not in fix.options else None)
        table = self.target.tables and (self.target.kind == "table" or layout is None)
        for name, value in given.items():
            if (name, value) == ("dtype", "bool8") and not self.target.packs_booleans:
                return False
            if name not in NAMES or (table and name in ("nulls", "encode")):
                return False
            if name == "layout" and self.target.kind == "table":
                return False
            if layout not in (None, "columns") and (name == "encode" or (name, value) == ("nulls", "mask")):
                return False  # one array holds neither masks nor encoded columns
        return True

    def other_columns(self, labels: Iterable[Label], values_refused: bool) -> list[Fix]:
        """Return the fix that leaves the refused columns out, if other columns remain."""
        refused = {label[0] for label in labels if label}
        table = self.description
        if table is None and type(self.obj) is dict and refused and self.obj.keys() > refused:
            source = items_of_dict([x for x in self.obj if x not in refused])
            return [Fix(source, effect="leaves the others out")] if source else []
        if not refused or table is None or isinstance(table, Source) or table.single:
            return []
        if table.read is not None and values_refused:
            return []  # a query is read as a whole
        # Labels of rows are not columns that the caller chose.
        own = table.labels[: len(table.labels) - (0 if self.options.get("index") is True else table.index)]
        kept = [x for x in self.options.get("columns", own) if x not in refused]
        if not kept or len(kept) > MAX_ITEMS or len({*kept}) < len(kept):
            return []
        if self.cast is not None and self.cast.record is not None:  # its fields would not be the columns
            effect = "leaves the others out, and the fields have the columns' own types"
            return [Fix(options={"columns": kept, "dtype": None}, effect=effect)]
        return [Fix(options={"columns": kept}, effect="leaves the others out")]

    def _rebuilds(self, label: Label, fix: Fix) -> bool:
        """Whether a column with that label can be replaced in the object, if the fix changes it."""
        if fix.source == "{x}" or (not label and ("{array}" in fix.source or "enumerate({x}." in fix.source)):
            return True  # new names are those of the whole table
        if not label:  # an expression of one array does not apply to a table
            return self.description is None or isinstance(self.description, Source) or self.description.single
        if fix.alone:
            return self._column(label) is not None
        return self._column(label) is not None and self._replaced("x", label, "x") is not None

    def resolved(self, reason: Reason) -> Reason:
        """Return a reason of a plan with the fixes that apply, and their text."""
        if not reason.fixes:
            return reason
        # The columns of one matrix.
        source = self.description if isinstance(self.description, Source) else None
        by_column = source is not None and self.target.kind == "table" and source.view.ndim > 1
        fixes = [_of_matrix(fix) if by_column else fix for fix in reason.fixes]
        general = source is not None or getattr(self.description, "single", False)
        # In a table, a type is that of one column.
        cast = [f for f in fixes if "dtype" in f.options and (general or type(f.options["dtype"]) is not str)]
        fixes = [fix for fix in fixes if fix not in cast or not self._is_refused(fix)]
        resolved = (for_framework(fix, self.framework, general) for fix in fixes)
        usable = [fix for fix in resolved if fix is not None and self.accepts(fix)]
        usable = [fix for fix in usable if not general or has_attributes(self.obj, fix)]
        # Two actions of a framework can have one expression: the first of them is kept.
        kept = list({(f.source, f.before, f.to, repr(f.options)): f for f in usable[::-1]}.values())[::-1]
        if self.unwrap:  # "{x}" alone, for fixes by options, is the caller's object too
            kept = [fix if fix.source == "{x}" else fix.of(self.unwrap) for fix in kept]
        # The text that a reason makes of its fixes names actions, which no user can call.
        own = "" if kept or reason.remedy == "; or ".join(map(str, reason.fixes)) else reason.remedy
        if by_column:  # the expressions are of the matrix: a plan would name a column in them
            own = "; or ".join(map(str, kept)) or own
        return Reason(reason.why, own, code=reason.code, fixes=kept)

    # -- code -----------------------------------------------------------------

    def _casts_by_column(self) -> bool:
        """Whether a type of one column leaves the types of the others as the caller chose them."""
        return isinstance(self.options.get("dtype", {}), dict)

    def _width(self) -> int:
        """Return the number of the columns to convert."""
        if self.description is None or isinstance(self.description, Source):
            return 1
        return len(self.options.get("columns", self.description.labels))

    def call(self, chosen: Sequence[tuple[Label, Fix]]) -> list[Candidate]:
        """Return one call with all of the fixes; empty if they contradict each other."""
        options: dict[str, Any] = {}
        to, before, applied = self.to, list[str](), dict[tuple[Label, str], str]()
        nulls = self.options.get("nulls")
        given_nulls = nulls if isinstance(nulls, dict) else {}  # policies of other columns, which remain
        for of_column, fix in chosen:
            label = self._label(of_column)
            for name, value in fix.options.items():
                if label and (name, value) == ("nulls", None):
                    continue  # other columns can have nulls
                if name == "nulls" and label and (len(chosen) > 1 or given_nulls or value == "drop"):
                    value = {**options.get(name, given_nulls), label[0]: value}
                elif name == "dtype" and label and type(value) is str and self._casts_by_column():
                    value = {**options.get(name, self.options.get(name, {})), label[0]: value}
                elif options.get(name, value) != value:
                    return []
                options[name] = value
            to = fix.to or to
            before += [fix.before] if fix.before and fix.before not in before else []
            if fix.alone:
                return self._alone([(self._label(each), other) for each, other in chosen])
            if fix.source == "{x}" or (label, fix.source) in applied:
                continue
            applied[label, fix.source] = fix.sample
        if isinstance(self.obj, dict) and len(applied) > MAX_ITEMS and not self._all_items(applied):
            return []
        source, sample = self._argument([*applied]), ""
        if applied and not before and are_plain(label for label, _ in applied):
            if self.failed.is_small and getattr(self.description, "read", None) is None:
                sample = source
            elif all(applied.values()):
                sample = self._argument([(label, text) for (label, _), text in applied.items()])
        for name, least in (("nulls", 1), ("dtype", self._width())):  # one policy or type for all columns
            values: dict[Hashable, Any] = given if isinstance(given := options.get(name), dict) else {}
            # One policy for all columns would also apply to NaN in the others.
            by_column = name == "nulls" and (given_nulls or "drop" in values.values())
            if not by_column and len(values) >= least and len({*map(repr, values.values())}) == 1:
                options[name] = next(iter(values.values()))
        merged = self._with(options)
        if "copy" in self.options and "copy" not in merged:
            merged["copy"] = None  # shown, because it replaces the value that was passed
        texts = {name: as_code(name, value) for name, value in merged.items()}
        if any(texts.get(name) == name for name in options):
            return []  # a new value has no literal
        arguments = "".join([f", {name}={text}" for name, text in texts.items()])
        code = "; ".join([*before, f"zc.convert({source}, {as_code('to', to)}{arguments})"])
        effects = dict.fromkeys([fix.effect for _, fix in chosen if fix.effect])
        effect = ", ".join([x for x in effects if not [y for y in effects if y.startswith(f"{x}, ")]])
        plain = source == "x" and not before
        given = {name: value for name, value in merged.items() if value is not None}
        own = given if plain else None
        return [Candidate(with_imports(code), effect, to, own, bool(before), source, sample, given)]

    def _argument(self, changes: Sequence[tuple[Label, str]]) -> str:
        """Return the expression of the object with changes to it and its columns."""
        source, columns = "x", dict[Label, str]()
        if len(changes) > _MOST_ITEMS and self._all_items(changes):
            return f"{{key: {changes[0][1].format(x='value')} for key, value in x.items()}}"
        for label, change in changes:
            if label:
                columns[label] = change.format(x=columns.get(label) or self._column(label))
            else:
                source = change.format(x=source)
        for label, value in columns.items():
            source = self._replaced(source, label, value) or source
        return source

    def _all_items(self, changes: Iterable[tuple[Label, str]]) -> bool:
        """Whether changes are one expression for each item of a dict."""
        labels, expressions = zip(*changes, strict=True)
        return (
            type(self.obj) is dict and [*labels] == [(key,) for key in self.obj] and len({*expressions}) == 1
        )

    def _alone(self, chosen: Sequence[tuple[Label, Fix]]) -> list[Candidate]:
        """Return the expression of one fix, or a dict of the expressions of several columns."""
        codes, places = {}, dict[Label, str]()
        alone = {label for label, fix in chosen if fix.alone}
        for label, fix in chosen:  # a change that the expression of the same column needs
            if label in alone and not fix.alone and not fix.options and fix.source != "{x}":
                places[label] = fix.source.format(x=places.get(label) or self._column(label))
        chosen = [(label, fix) for label, fix in chosen if label not in places or fix.alone]
        for label, fix in chosen:
            place = places.get(label) or self._column(label)
            names = ("nulls", "lists", "pad_value", "max_length") if label else ("dtype", *TABLE_NAMES)
            given = {name: self.options[name] for name in names if name in self.options}
            if given.get("nulls") == "mask":
                given["nulls"] = 0  # one array has no mask
            if label and isinstance(policies := given.get("nulls"), dict):
                given["nulls"] = policies.get(label[0])
            given = {name: value for name, value in given.items() if value is not None}
            if fix.to and "encode" in self.options:  # encoded columns are not arrays
                dense = Fix(to=fix.to, effect=f"keeps them in arrays of {fix.to}")
                return self.call([(label, dense) for label, _ in chosen])
            array = f"zc.convert({place}, {as_code('to', fix.to)}{arguments(given)})"
            codes[label] = fix.source.format(x=place, array=array)
        if len(codes) > MAX_ITEMS or not all(fix.alone for _, fix in chosen):
            return []
        code, *others = codes.values()
        if others:
            code = "{" + ", ".join(f"{label[0]!r}: {each}" for label, each in codes.items() if label) + "}"
        effects = dict.fromkeys(fix.effect for _, fix in chosen if fix.effect)
        return [Candidate(with_imports(code), ", ".join(effects))]

    def _effects(self, first: Candidate, second: Candidate) -> str:
        """Return both effects, or the second alone if its call replaces each option that the first adds."""
        before, after = first.options or {}, second.options or {}
        added = {name: value for name, value in before.items() if not same(self.options.get(name), value)}
        # Not == alone: an array compares elementwise with another value.
        kept = not added or any(same(after.get(name), value) for name, value in added.items())
        return ", ".join(dict.fromkeys(filter(None, [first.effect if kept else "", second.effect])))

    def _column(self, label: Label) -> str | None:
        """Return the expression of a column, or None if the object's framework has no such expression."""
        if not label:
            return "x"
        return f"x[{label[0]!r}]" if isinstance(self.obj, dict) else self._action("column", "x", label)

    def _replaced(self, source: str, label: Label, value: str) -> str | None:
        if source.startswith("{**"):
            return f"{source[:-1]}, {label[0]!r}: {value}}}"
        if isinstance(self.obj, dict):
            return f"{{**{source}, {label[0]!r}: {value}}}"
        return self._action("replace", source, label, value)

    def _action(self, action: str, source: str, label: Label, value: str = "") -> str | None:
        template = self.framework.actions.get(action) if self.framework is not None else None
        name = str(label[0])
        table = self.description
        if template is None or not name.isprintable() or {*name} & {*"'\"\\"}:
            return None
        replacing = self.framework.actions.get("replace") if self.framework is not None else None
        if replacing is not None and not has_attributes(self.obj, replacing):
            return None  # levels of an index of pandas are not read as columns
        if "**{" in template.source and not isinstance(label[0], str):
            return None  # keywords are text
        if table is not None and not isinstance(table, Source):
            labels = list(table.labels)
            if label[0] not in labels[: len(labels) - table.index] or labels.count(label[0]) > 1:
                return None  # row labels, and columns that a name does not identify
        # A source that a template names twice would double with each column.
        return template.source.format(x=source, table="x", label=repr(label[0]), name=name, value=value)


def _of_matrix(fix: Fix) -> Fix:
    """Return a fix of an array as that of a matrix, whose columns become those of a table."""
    if fix.action.startswith("pairs:"):
        sample = f"{fix.sample}.reshape(len({{x}}[:2]), -1)" if fix.sample else ""
        return replace(fix, source=f"{fix.source}.reshape(len({{x}}), -1)", sample=sample)
    return _BY_COLUMN if fix.action == "contiguous" else fix


def _framework(obj: object) -> Framework | None:
    return registry.by_type(type(obj))
