"""The hook for recorders: routes are bypassed with one, kept for later, and results are the same."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.arrays import sample
from helpers.recorded_calls import recording

import zerocopy as zc
from zerocopy._engine import recording as hook, routes
from zerocopy.monitor.recorder import Counters

CONVERT = zc.convert and sys.modules["zerocopy._engine.convert"]  # which `zc.convert` loads


def cases() -> list[tuple[Any, str, dict[str, Any]]]:
    """Return objects with their targets and options; with the core, each has a route."""
    pa = pytest.importorskip("pyarrow")
    pytest.importorskip("polars")
    table, arrays = pa.table({"x": np.arange(4.0)}), {"x": np.arange(4.0)}
    return [
        (np.arange(4.0), "numpy", {}),
        (np.arange(4.0), "pyarrow", {}),
        (np.arange(4.0), "numpy", {"copy": True}),
        (np.arange(4.0), "numpy", {"writable": True}),
        (np.arange(4.0), "numpy", {"dtype": "float64", "copy": True}),
        (pa.array([1.0]), "numpy", {}),
        (pa.array([1.0]), "numpy", {"writable": True}),
        (table, "numpy", {}),
        (table, "numpy", {"columns": ["x"]}),
        (table, "numpy", {"layout": "matrix"}),
        (table, "polars", {}),
        ([np.arange(4.0)], "numpy", {}),
        (arrays, "numpy", {"copy": True}),
        (arrays, "polars", {}),
        (np.zeros((3, 2)), "polars", {"names": ["a", "b"]}),
        (zc.share(np.arange(100_000.0)), "numpy", {}),
    ]


def routes_by_case(chosen: list[tuple[Any, str, dict[str, Any]]]) -> list[Any]:
    return [routes.routes_of(to, options).get(type(obj)) for obj, to, options in chosen]


def test_routes_are_bypassed_while_conversions_are_recorded_and_live_again_afterwards() -> None:
    chosen = cases()
    routes.clear()
    functions = zc.convert, CONVERT.convert_in_python, CONVERT.convert_in_python.__code__
    for obj, to, options in chosen * 2:
        zc.convert(obj, to, **options)
    before = routes_by_case(chosen)
    assert any(before)
    for _ in range(2):
        with recording() as outer:
            assert not any(routes_by_case(chosen))
            with recording():
                for obj, to, options in chosen:
                    zc.convert(obj, to, **options)
            assert not any(routes_by_case(chosen))
        assert sum(row.calls for row in outer.rows()) == len(chosen)
        assert all(now is then for now, then in zip(routes_by_case(chosen), before, strict=True))
    assert (zc.convert, CONVERT.convert_in_python, CONVERT.convert_in_python.__code__) == functions


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


def test_no_route_that_is_composed_while_a_recorder_comes_serves_its_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compose, array = routes.compose_route, np.arange(3)
    with recording() as outer:
        outer.stop()

        def interrupted(*arguments: Any) -> Any:
            route = compose(*arguments)
            outer.start()
            return route

        routes.clear()
        monkeypatch.setattr(routes, "compose_route", interrupted)
        zc.convert(array, "numpy")
        monkeypatch.setattr(routes, "compose_route", compose)
        for _ in range(2):
            zc.convert(array, "numpy")
        assert routes.routes_of("numpy", {}).get(np.ndarray) is None
        assert sum(row.calls for row in outer.rows()) == 2
    zc.convert(array, "numpy")
    assert routes.routes_of("numpy", {}).get(np.ndarray) is not None


def test_routes_that_are_dropped_while_conversions_are_recorded_stay_dropped() -> None:
    zc.convert(np.arange(3), "numpy")
    with recording():
        routes.clear()  # as a new framework does
    assert routes.routes_of("numpy", {}).get(np.ndarray) is None


def callers() -> dict[str, tuple[Callable[[Any], Any], Any, int, int]]:
    """Return functions that convert an array, an argument, and the calls and copied bytes of two calls."""
    buffer = memoryview(bytearray(64))
    to_numpy, copying = zc.converter(buffer, "numpy"), zc.converter(buffer, "numpy", copy=True)
    with recording():
        made_meanwhile = zc.converter(buffer, "numpy")
    accepting = zc.accepts("numpy")(lambda x, y: x)
    return {
        "convert": (lambda x: zc.convert(x, "numpy"), buffer, 2, 0),
        "copy": (lambda x: zc.convert(x, "numpy", copy=True), buffer, 2, 128),
        "converter": (to_numpy, buffer, 2, 0),
        "copying converter": (copying, buffer, 2, 128),
        "converter of a recording": (made_meanwhile, buffer, 2, 0),
        "accepts": (lambda x: accepting(x, y=x), buffer, 4, 0),
        "list": (lambda x: zc.convert(x, "numpy", copy=True), [buffer, buffer], 2, 256),
        "dict": (lambda x: zc.convert(x, "numpy"), {"a": buffer, "b": [buffer]}, 2, 0),
        "handle": (lambda x: zc.convert(x, "numpy"), zc.share(np.arange(100_000.0)), 2, 0),
    }


@pytest.mark.parametrize("caller", callers())
def test_every_caller_is_recorded_also_by_a_thread_that_ran_before(caller: str) -> None:
    call, argument, calls, copied = callers()[caller]
    call(argument), call(argument)
    turn, done = threading.Event(), threading.Event()

    def work() -> None:
        call(argument)
        done.set()
        turn.wait(60)
        call(argument)

    worker = threading.Thread(target=work)
    worker.start()
    assert done.wait(60)
    with recording() as recorder:
        call(argument)
        turn.set()
        worker.join()
    call(argument)
    rows = recorder.rows()
    assert (sum(row.calls for row in rows), sum(row.copied_bytes for row in rows)) == (calls, copied)


def test_figures_are_equal_with_and_without_the_core(run_python: Any) -> None:
    program = """
    import numpy as np, zerocopy as zc
    buffer, array = memoryview(bytearray(64)), np.arange(8.0)
    copying = zc.converter(buffer, "numpy", copy=True)
    accepting = zc.accepts("numpy")(lambda x, y: x)
    def calls():
        zc.convert(buffer, "numpy"), zc.convert(array, "numpy"), copying(buffer), accepting(buffer, y=array)
        zc.convert(array, "numpy", dtype="float32"), zc.convert(array[::-2], "numpy", copy=True)
        zc.convert({"a": [buffer, array], "b": buffer}, "numpy"), zc.convert([array], "numpy")
        zc.convert(array[:0], "numpy", copy=True), zc.convert(b"12", "numpy", writable=True)
        for refused in ("text", [array, object()]):
            try: zc.convert(refused, "numpy")
            except zc.ZeroCopyError: pass
    for sites in (True, False):
        calls()
        with zc.monitor.record(sites=sites) as recorded:
            for _ in range(3): calls()
        for row in sorted(recorded.as_dict()["rows"], key=str):
            assert (row.pop("seconds") is not None) == sites
            print(row)
    """
    with_core, without = run_python(program), run_python(program, ZEROCOPY_NATIVE="0")
    assert (with_core.returncode, without.returncode) == (0, 0), with_core.stderr + without.stderr
    assert with_core.stdout.count("\n") > 10
    assert with_core.stdout == without.stdout


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


def test_a_target_whose_class_raises_is_refused_as_without_a_recorder() -> None:
    class Raises:
        @property
        def __class__(self):
            raise KeyError("class")

    with recording() as recorder, pytest.raises(zc.errors.UnknownFrameworkError):
        zc.convert(np.arange(3), Raises())
    assert [row.refused_calls for row in recorder.rows()] == [1]


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
        for number in range(Counters.MAX_PAIRS + known):
            with pytest.raises(zc.UnsupportedConversionError):
                zc.convert(type(f"Type{number}", (), {})(), "numpy")
    rows = recorder.rows()
    assert len(rows) == Counters.MAX_PAIRS + 1
    assert {row.calls for row in rows if (row.source, row.target) == Counters.OTHERS} == {known}
