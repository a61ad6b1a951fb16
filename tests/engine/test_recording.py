"""The hook for recorders: routes are the plain ones without a recorder, and results are the same with one."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from helpers.arrays import sample
from helpers.frameworks import HOST
from helpers.option_cases import OPTIONS, outcome, variants
from helpers.recorded_calls import recording

import zerocopy as zc
from zerocopy._engine import recording as hook, routes
from zerocopy._native import core

CONVERT = sys.modules["zerocopy._engine.convert"]


def kinds_of_routes() -> dict[str, Any]:
    """Convert several objects, and return the kinds of their routes: types, and codes of functions."""
    pa = pytest.importorskip("pyarrow")
    pytest.importorskip("polars")
    routes.clear()
    table = pa.table({"x": np.arange(4.0)})
    cases: list[tuple[Any, str, dict[str, Any]]] = [
        (np.arange(4.0), "numpy", {}),
        (np.arange(4.0), "pyarrow", {}),
        (np.arange(4.0), "numpy", {"copy": True}),
        (np.arange(4.0), "numpy", {"writable": True}),
        (pa.array([1.0]), "numpy", {}),
        (pa.array([1.0]), "numpy", {"writable": True}),
        (table, "numpy", {}),
        (table, "numpy", {"columns": ["x"]}),
        (table, "polars", {}),
        ([np.arange(4.0)], "numpy", {}),
    ]
    kinds: dict[str, Any] = {}
    for number, (obj, to, options) in enumerate(cases):
        for _ in range(2):
            zc.convert(obj, to, **options)
        if not isinstance(obj, list):
            route = routes.routes_of(to, options).get(type(obj))
            kinds[str(number)] = getattr(route, "__code__", type(route))
    return kinds


def test_routes_are_the_plain_ones_before_and_after_recording() -> None:
    functions = zc.convert, CONVERT.convert_in_python, CONVERT.convert_in_python.__code__
    before = kinds_of_routes()
    with recording():
        during = kinds_of_routes()
    assert kinds_of_routes() == before
    assert (zc.convert, CONVERT.convert_in_python, CONVERT.convert_in_python.__code__) == functions
    present = [name for name, kind in before.items() if kind is not type(None)]
    assert all(during[name] is not before[name] for name in present)
    # Without the core, only the slow path counts conversions.
    recorded = type(None) if core is None else core.RecordedRoute
    assert {during[name] for name in present} == {recorded}
    if core is not None:
        assert core.RecordedRoute not in before.values()


def test_plain_routes_run_no_code_of_the_hook() -> None:
    array, calls = np.arange(4.0), []

    def trace(frame: Any, event: str, arg: Any) -> None:
        if event == "call" and frame.f_code.co_filename == hook.__file__:
            calls.append(frame.f_code.co_name)

    routes.clear()
    sys.setprofile(trace)
    try:
        for options in ({}, {"copy": True}):
            for _ in range(2):
                zc.convert(array, "numpy", **options)
    finally:
        sys.setprofile(None)
    assert calls == []


def test_a_route_that_was_composed_while_a_recorder_came_or_went_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compose = routes.compose
    # Without the core, no route is composed while a recorder is set.
    for starts in (True, False) if core is not None else (True,):
        with recording() as outer:
            if starts:
                outer.stop()
            change = outer.start if starts else outer.stop

            def interrupted(*arguments: Any, change: Any = change) -> Any:
                route = compose(*arguments)
                change()
                return route

            routes.clear()
            monkeypatch.setattr(routes, "compose", interrupted)
            zc.convert(np.arange(3), "numpy")
            monkeypatch.setattr(routes, "compose", compose)
            assert routes.routes_of("numpy", {}).get(np.ndarray) is None
            zc.convert(np.arange(3), "numpy")
            # The first call too, if its route was wrapped by then.
            assert sum(row.calls for row in outer.rows()) in ((1, 2) if starts else (0,))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("to", HOST)
def test_results_are_those_without_a_recorder(to: str) -> None:
    warm = sample("f4", (64,))
    arrays = variants().values()
    for options in ({}, *OPTIONS[:2], {"writable": False}):
        routes.clear()
        plain = [outcome(x, to, options) for x in (warm, *arrays)]
        with recording():
            for _ in range(2):
                assert [outcome(x, to, options) for x in (warm, *arrays)] == plain


def test_a_leaf_that_fails_adds_no_bytes() -> None:
    """The route of the first leaf runs, then the tree's fails and the slow path starts again."""
    pytest.importorskip("torch")
    good, odd = sample("f4", (16,)), sample("f4", (16,))[::-1]
    zc.convert(odd, "torch")
    with recording() as recorder:
        for _ in range(3):
            zc.convert([good, odd], "torch")
    (row,) = recorder.rows()
    assert (row.calls, row.copied_calls, row.aliased_bytes, row.copied_bytes) == (3, 3, 3 * 64, 3 * 64)


def test_a_tree_that_is_refused_adds_no_bytes() -> None:
    pytest.importorskip("torch")
    with recording() as recorder:
        for _ in range(3):
            with pytest.raises(zc.UnsupportedConversionError):
                zc.convert([sample("f4", (16,)), "text"], "torch")
    (row,) = recorder.rows()
    assert (row.calls, row.refused_calls, row.aliased_bytes) == (3, 3, 0)
    assert row.why.startswith("at [1]: ")


def test_many_types_share_one_pair() -> None:
    known = 256
    with recording() as recorder:
        for number in range(hook.MAX_PAIRS + known):
            with pytest.raises(zc.UnsupportedConversionError):
                zc.convert(type(f"Type{number}", (), {})(), "numpy")
    rows = recorder.rows()
    assert len(rows) == hook.MAX_PAIRS + 1
    assert {row.calls for row in rows if (row.source, row.target) == hook.OTHERS} == {known}
