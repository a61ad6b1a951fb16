"""``check``: run one case and compare ``convert`` with ``explain``, with its values and with its promises."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import zerocopy as zc
from helpers.hostile.case import Built, Case
from helpers.hostile.generate import TENSORS
from helpers.hostile.values import bits, read_all, rows
from helpers.storage_extent import check_extents
from zerocopy.cli import datasets

#: Errors that a call may raise for its options.
_OPTION_ERRORS = (ValueError, TypeError)
#: Codes of errors that blame the producer.
_BLAMES = ("consumed", "producer-raised", "invalid-producer")
_KEEP_VALUES = {"copy", "writable", "device"}


@dataclass(slots=True)
class Outcome:
    """The result of one case: ``"converted"``, ``"refused"``, ``"option"`` or ``"finding"``."""

    kind: str
    detail: str = ""


class Finding(Exception):
    """A broken promise."""


def check(case: Case) -> Outcome:
    """Run a case."""
    text = ""
    try:
        built = case.build()
        text = built.text
        case.options |= built.options
        case.to = built.target or case.to
        if case.family == "file":
            return _check_file(case, built)
        return _check_call(case, built)
    except Finding as finding:
        return Outcome("finding", f"{finding} [{describe(case, text)}]")


def describe(case: Case, text: str = "") -> str:
    """Return the call of a case on one line."""
    return f"convert(<{text or case.build().text}>, to={case.to!r}, **{case.options!r})"


def _check_file(case: Case, built: Built) -> Outcome:
    try:
        data = datasets.read(built.obj)  # as the child process of the command does
    except datasets.DataError as error:
        if "\n" in str(error):
            raise Finding(f"the message has several lines: {error}") from error
        return Outcome("refused", "DataError")
    except BaseException as error:
        raise Finding(f"load raised {type(error).__name__}: {error}") from error
    finally:
        Path(built.obj).unlink(missing_ok=True)
    kinds = []
    for obj in (*data.arrays.values(), *data.columns.values()):
        loaded = Built(obj, f"{built.text}: {getattr(obj, 'dtype', getattr(obj, 'type', ''))}")
        case.build = lambda loaded=loaded: loaded
        kinds.append(_check_call(case, loaded).kind)
    return Outcome(next((k for k in ("option", "refused") if k in kinds), "converted"))


def _check_call(case: Case, built: Built) -> Outcome:
    before = [block.copy() for block in built.watched]
    possible, plan = _explain(case, built)
    built = built if not built.once else case.build()
    if built.watched and not before:
        before = [block.copy() for block in built.watched]
    result, error = _convert(case, built)
    if isinstance(possible, MemoryError) and isinstance(error, (MemoryError, zc.ZeroCopyError)):
        return Outcome("refused", "MemoryError")
    if plan is None:  # an option error, which convert must raise too
        if error is None or type(error) is not type(possible):
            raise Finding(f"explain raised {possible!r}, convert gave {error or type(result)!r}")
        return Outcome("option", type(error).__name__)
    if isinstance(error, MemoryError):
        return Outcome("refused", "MemoryError")
    if error is not None and not isinstance(error, zc.ZeroCopyError):
        raise Finding(f"convert raised {type(error).__name__}: {error}; plan: {plan}")
    if plan.possible and error is not None and plan.steps[:1] == ("read it",):
        return Outcome("refused", str(getattr(error, "code", "")))  # explain reads no stream
    if plan.possible != (error is None):
        shown = "" if error is None else f"{getattr(error, 'code', '')}: {error}"
        raise Finding(f"explain.possible is {plan.possible}, convert: {shown or 'succeeded'}; plan: {plan}")
    for block, old in zip(built.watched, before, strict=True):
        if not built.once and block.tobytes() != old.tobytes():
            raise Finding("the source's memory changed")
    if error is not None:
        code = str(getattr(error, "code", ""))
        if code in _BLAMES and built.expected is not None:
            raise Finding(f"a valid producer is refused: {code}: {error}")
        return Outcome("refused", code)
    _check_result(case, built, plan, result)
    return Outcome("converted")


def _explain(case: Case, built: Built) -> tuple[Any, Any]:
    """Return the plan; or the option error, and None."""
    try:
        plan = zc.explain(built.obj, case.to, **case.options)
        str(plan), repr(plan)
        return plan.possible, plan
    except (zc.errors.UnknownFrameworkError, *_OPTION_ERRORS) as error:
        allowed = isinstance(error, zc.errors.UnknownFrameworkError) or case.odd_options or _is_layout(case)
        named = (zc.errors.UnknownFrameworkError, zc.errors.OptionError)
        if isinstance(error, zc.ZeroCopyError) and not isinstance(error, named):
            raise Finding(f"explain raised {type(error).__name__}: {error}") from error
        if not allowed:
            raise Finding(f"explain raised {type(error).__name__}: {error}") from error
        return error, None
    except MemoryError as error:
        return error, None
    except BaseException as error:
        raise Finding(f"explain raised {type(error).__name__}: {error}") from error


def _is_layout(case: Case) -> bool:
    """Whether the options contradict each other or the object, which is an error of the call."""
    return bool(case.options.keys() & {"layout", "names", "columns", "index", "nulls", "encode"})


def _convert(case: Case, built: Built) -> tuple[Any, Any]:
    try:
        result = zc.convert(built.obj, case.to, **case.options)
    except Exception as error:  # noqa: BLE001 - the caller checks its class
        str(error)
        return None, error
    except BaseException as error:
        raise Finding(f"convert raised {type(error).__name__}: {error}") from error
    return result, None


def _check_result(case: Case, built: Built, plan: Any, result: Any) -> None:
    read_all(result)
    if not built.once:
        shares = _shares(built.obj, result)
        planned = plan.shares_memory  # None if it depends on how the target copies a column
        if None not in (shares, planned) and shares != planned:
            raise Finding(f"shares_memory is {shares}, and {planned} in the plan: {plan}")
        if shares and case.options.get("copy") is True:
            raise Finding("copy=True aliases")
        if shares is False and case.options.get("copy") is False and plan.copied_bytes:
            raise Finding(f"copy=False copied; plan: {plan}")
    if not built.once:
        try:
            check_extents(built.obj if built.allocations is None else built.allocations, result)
        except AssertionError as error:
            raise Finding(str(error)) from error
    _check_values(case, built, result)
    if (not case.options or built.verify is not None) and not built.once:
        again, error = _convert(case, built)  # the fast path, if the type has one
        if error is not None:
            raise Finding(f"the second call raised {type(error).__name__}: {error}")
        read_all(again)
        _check_values(case, built, again)


def _shares(obj: Any, result: Any) -> bool | None:
    try:
        return bool(zc.shares_memory(obj, result))
    except zc.ZeroCopyError:
        return None
    except BaseException as error:
        raise Finding(f"shares_memory raised {type(error).__name__}: {error}") from error


def _check_values(case: Case, built: Built, result: Any) -> None:
    if built.verify is not None:
        try:
            difference = built.verify(result)
        except BaseException as error:  # polars' panics too
            raise Finding(f"reading the result raised {type(error).__name__}: {error}") from error
        if difference:
            raise Finding(difference)
    if case.options.keys() - _KEEP_VALUES - built.options.keys():
        return
    if built.expected is not None and case.to in (*TENSORS, "pyarrow.Tensor"):
        expected = built.expected
        values = bits(result)
        native = expected.astype(expected.dtype.newbyteorder("="), copy=False)
        if values is not None and values != np.ascontiguousarray(native).tobytes():
            raise Finding(f"the values differ: {result!r}, expected {expected!r}")
        if tuple(getattr(result, "shape", expected.shape)) != expected.shape:
            raise Finding(f"the shape is {result.shape}, expected {expected.shape}")
    if built.rows is not None:
        result_rows = rows(result)
        if result_rows is not None and result_rows != built.rows:
            raise Finding(f"the rows differ: {result_rows!r}, expected {built.rows!r}")


with contextlib.suppress(ImportError):
    import jax

    jax.config.update("jax_enable_x64", True)
