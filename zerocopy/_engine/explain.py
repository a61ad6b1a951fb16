"""``explain``: what ``convert`` would do, and why."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from zerocopy import registry
from zerocopy._engine.containers import is_container, made_again, map_leaves, written
from zerocopy._engine.planner import is_table, known, make, words
from zerocopy.errors import Reason, UnknownFrameworkError, ZeroCopyError
from zerocopy.plan import Plan


def explain(
    obj: Any,
    to: Any,
    *,
    device: Any = None,
    copy: bool | None = None,
    stream: Any = None,
    writable: bool | None = None,
    layout: str | None = None,
    columns: Sequence[Hashable] | None = None,
    nulls: Any = None,
    encode: bool | None = None,
    names: Sequence[str] | None = None,
    index: bool | None = None,
) -> Plan:
    """Say how :func:`zerocopy.convert` would convert an object; convert nothing.

    Parameters
    ----------
    obj : object
        What would be converted.
    to : str or module
        The target.
    device, copy, stream, writable, layout, columns, nulls, encode, names, index : optional
        The options of :func:`zerocopy.convert`, which has their types and what they mean.

    Returns
    -------
    Plan
        It aliases nothing, and keeps `obj` alive. For a refusal, one with ``possible`` False and
        the error that ``convert`` would raise.

    Raises
    ------
    UnknownFrameworkError
        `to` names nothing known.
    ValueError, TypeError
        An option has a value that it does not take, or is not known.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> print(zc.explain(memoryview(b"abcd"), to="numpy"))
    memoryview uint8 (4,) -> numpy: zero-copy (buffer)
    >>> print(zc.explain("abcd", to="numpy"))
    str -> numpy: refused
      why: str is no array and speaks no protocol
      fix: pass an array: something with __dlpack__, __cuda_array_interface__, \
__array_interface__, __arrow_c_array__ or the buffer protocol
    """
    options = {"device": device, "copy": copy, "stream": stream, "writable": writable}
    options |= {"layout": layout, "columns": columns, "nulls": nulls, "encode": encode}
    options = known("explain", options | {"names": names, "index": index})
    if is_container(obj) and not is_table(obj, to, options):
        return _container(obj, to, options)
    try:
        plan = make(obj, to, **options)
    except UnknownFrameworkError:
        raise
    except ZeroCopyError as error:
        return _refused(obj, to, error)
    return plan


def _refused(obj: Any, to: Any, error: ZeroCopyError) -> Plan:
    """Return the plan of a conversion that raises `error`."""
    return Plan(
        words(obj),
        str(to),
        possible=False,
        reasons=(Reason(error.why, error.remedy),),
        error=error,
    )


def _container(obj: Any, to: Any, options: dict[str, Any]) -> Plan:
    """Return the plan of a container: those of its leaves, summed up."""
    leaves: dict[str, Plan] = {}

    def leaf(value: Any, path: Any) -> None:
        leaves[written(path)] = explain(value, to, **options)

    try:
        registry.by_name(to)  # of an empty container nothing else would ask for it
        map_leaves(obj, leaf, made_again)
    except UnknownFrameworkError:
        raise
    except ZeroCopyError as error:
        return _refused(obj, to, error)
    errors = [plan.error for plan in leaves.values() if plan.error is not None]
    copied = sum(plan.copied_bytes for plan in leaves.values())
    shares = any(plan.zero_copy for plan in leaves.values())
    return Plan(
        f"{type(obj).__qualname__} of {len(leaves)}",
        str(to),
        possible=not errors,
        zero_copy=not errors and shares and copied == 0,
        copied_bytes=0 if errors else copied,
        error=errors[0] if errors else None,
        leaves=leaves,
        steps=("each leaf on its own",),
    )
