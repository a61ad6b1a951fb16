"""One conversion under a recorder, compared with the plan of ``explain``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import zerocopy as zc
from zerocopy.monitor.conversion import ConversionRow
from zerocopy.monitor.recorder import Recorder


@contextmanager
def recording(sites: bool = False) -> Iterator[Recorder]:
    """Record the conversions of the block."""
    recorder = Recorder(sites)
    recorder.start()
    try:
        yield recorder
    finally:
        recorder.stop()


def record(function: Callable[[], Any], sites: bool = False) -> tuple[Any, list[ConversionRow]]:
    """Return the result, or the exception, of a function, and the rows of its conversions."""
    with recording(sites) as recorder:
        try:
            result = function()
        except (zc.ZeroCopyError, ValueError, TypeError, LookupError) as error:
            result = error
    return result, recorder.rows()


def check_agrees(x: Any, to: str, options: dict[str, Any]) -> Any:
    """Check that one call is recorded as ``explain`` describes it; return the result or the error."""
    case = type(x), to, options
    try:
        plan = zc.explain(x, to, **options)
    except (ValueError, TypeError) as error:
        plan = error
    result, rows = record(lambda: zc.convert(x, to, **options))
    assert [row.calls for row in rows] == [1], (case, rows)
    row = rows[0]
    recorded = (row.aliased_calls, row.copied_calls, row.unchanged_calls, row.refused_calls, row.empty_calls)
    assert sum(recorded) == 1, (case, row)
    if isinstance(result, Exception):
        assert row.refused_calls, (case, row)
        assert (row.aliased_bytes, row.copied_bytes) == (0, 0), (case, row)
        if isinstance(plan, zc.Plan):
            assert plan.error is not None, case
            assert isinstance(result, zc.ZeroCopyError), case
            assert (row.why, row.fix, row.code) == (result.why, result.remedy, result.code), case
        return result
    assert isinstance(plan, zc.Plan), (case, plan)
    assert plan.possible, (case, row, str(plan))
    if result is x:
        assert row.unchanged_calls, (case, row)
        assert (row.aliased_bytes, row.copied_bytes) == (0, 0), (case, row)
    elif plan.unread:
        assert row.unmeasured_calls, (case, row)
    else:
        wanted = plan.aliased_bytes, plan.copied_bytes
        assert (row.aliased_bytes, row.copied_bytes) == wanted, (case, row, str(plan))
        assert bool(row.copied_calls) == bool(plan.copied_bytes), (case, row)
        assert bool(row.aliased_calls) == bool(plan.aliased_bytes and not plan.copied_bytes), (case, row)
        if row.copied_calls and any(_reasons(plan)):
            assert row.why, (case, row, str(plan))
    return result


def _reasons(plan: zc.Plan) -> Iterator[Any]:
    yield from plan.reasons
    for leaf in plan.leaves.values():
        yield from _reasons(leaf)
