"""No message, reason or plan has a placeholder of a fix that is not filled."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import zerocopy as zc

pa = pytest.importorskip("pyarrow")

PLACEHOLDER = re.compile(r"\{(x|array|type|label|name|value|table)\}")
OBJECTS: dict[str, Callable[[], Any]] = {
    "array": lambda: np.eye(2),
    "0-d": lambda: np.array(1.0),
    "half": lambda: np.ones(2, "f2"),
    "text": lambda: np.array(["a"]),
    "leaf": lambda: {"w": {"v": np.eye(2)}, "s": "text"},
    "list": lambda: [np.eye(2), [np.ones(2)]],
    "dict of columns": lambda: {"a": np.ones(2), "b": np.ones(2)},
    "table": lambda: pa.table({"a": [1.0, None], "b": ["x", "y"]}),
    "column": lambda: pa.chunked_array([[1.0], [2.0]]),
    "booleans": lambda: pa.array([True, None]),
}
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"copy": False},
    {"layout": "matrix"},
    {"encode": True},
    {"nulls": 0},
)


def texts(x: Any, to: str, options: dict[str, Any]) -> Iterator[str]:
    """Yield all text that a user can read about one conversion."""
    plan = zc.explain(x, to, **options)
    for each in (plan, *plan.leaves.values()):
        yield str(each)
        yield from (f"{reason} {reason.remedy}" for reason in each.reasons)
        yield from () if each.error is None else _of_error(each.error)
    makers: list[Callable[[], Any]] = [
        lambda: zc.convert(x, to, **options),
        lambda: list(zc.loader(x, to, **{k: v for k, v in options.items() if k != "copy"})),
        lambda: zc.accepts(to, **options)(lambda value: value)(x),
    ]
    for make in makers:
        try:
            make()
        except zc.ZeroCopyError as error:
            yield from _of_error(error)
        except TypeError:  # an option that the function does not have
            continue


def _of_error(error: zc.ZeroCopyError) -> Iterator[str]:
    yield from (str(error), repr(error), error.remedy, *error.calls, str(error.reason))
    yield from (f"{reason} {reason.remedy}" for reason in error.columns.values())


@pytest.mark.parametrize("to", ["scipy", "sparse", "numpy", "polars", "torch"])
@pytest.mark.parametrize("noun", OBJECTS)
def test_no_placeholder_of_a_fix_is_shown(noun: str, to: str) -> None:
    pytest.importorskip(to)
    for options in OPTIONS:
        for text in texts(OBJECTS[noun](), to, options):
            assert not PLACEHOLDER.search(text), text
