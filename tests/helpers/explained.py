"""The check of promise P3: `explain` describes what `convert` does."""

from __future__ import annotations

import pickle
from typing import Any

import zerocopy as zc


def agree(x: Any, to: str, **options: Any) -> None:
    """Check a plan against the conversion that it describes."""
    case = (to, options)
    plan = zc.explain(x, to, **options)
    try:
        result = zc.convert(x, to, **options)
    except zc.ZeroCopyError as error:
        assert not plan.possible, (case, error)  # noqa: PT017
        assert plan.error is not None
        assert (plan.error.code, type(plan.error)) == (error.code, type(error)), case  # noqa: PT017
        return
    assert plan.possible, (case, plan.reasons, x)
    try:
        shares = zc.shares_memory(x, result)
    except zc.UnsupportedConversionError as error:
        # A relation or a stream has no memory, and a nanoarrow array of null structs is not a table.
        assert error.code in ("unread", "nulls"), case  # noqa: PT017
        return
    assert plan.shares_memory in (None, shares), (case, str(plan))
    assert shares or not plan.aliased_bytes, (case, str(plan))
    assert pickle.loads(pickle.dumps(plan)).aliased_bytes == plan.aliased_bytes
    if plan.zero_copy:
        assert shares, case
    if options.get("copy") is True:
        assert not shares, case
    if not plan.leaves and not plan.partial:
        assert plan.zero_copy == shares, (case, str(plan))
