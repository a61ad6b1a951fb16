"""RecordedRoute and the counters of the compiled core, without frameworks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from helpers.interruptions import raise_by_signal
from helpers.native_core import aligned_empty, core, exported, keep_capsule, memory_route, require_core
from helpers.native_programs import check
from helpers.versions import numpy_capsule

require_core()

PAIR = ("a", "b")


@pytest.fixture(autouse=True)
def _recorded() -> Iterator[None]:
    core.start_recording("/no/such/package/", ())
    yield
    core.stop_recording()
    assert core.outcome() == (0, 0, 0, False)


def route_of(inner: Any, samples: list[Any] | None = None) -> Any:
    return core.RecordedRoute(inner, PAIR, lambda *arguments: (samples or []).append(arguments))


def counts() -> tuple[int, ...]:
    """Return the counts of the only entry."""
    entries = core.recorded()
    assert len(entries) == 1, entries
    return entries[0][3]


def from_function(function: Any) -> Any:
    return core.RecordedRoute(core.CallRoute(function), PAIR, lambda *arguments: None)


def memory(**options: Any) -> Any:
    return memory_route(core.NDArrayExporter(), core.NDArrayImporter(), owned=False, **options)


def test_an_alias_and_a_copy() -> None:
    array = np.arange(6.0)
    assert np.shares_memory(route_of(memory())(array), array)
    assert counts() == (1, 0, 0, 0, 0, 48, 0, 0, 0)
    samples: list[Any] = []
    copying = core.RecordedRoute(memory(copy=True), PAIR, lambda *arguments: samples.append(arguments))
    for _ in range(5):
        assert not np.shares_memory(copying(array), array)
    assert counts() == (1, 5, 0, 0, 0, 48, 240, 0, 0)
    assert [(arguments[0] is array, *arguments[1:]) for arguments in samples] == [(True, None, -1)] * 3


def test_an_identity_route_is_unchanged() -> None:
    obj = object()
    assert route_of(core.IdentityRoute())(obj) is obj
    assert counts() == (0, 0, 1, 0, 0, 0, 0, 0, 0)


def test_a_route_that_fails_records_nothing() -> None:
    def fails(obj: Any) -> None:
        core.add_bytes(5, 6)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        from_function(fails)(1)
    assert core.recorded() == []


def test_a_fallback_starts_without_the_bytes_of_the_route() -> None:
    def function(capsule: Any) -> None:
        core.add_bytes(1000, 1000)
        raise RuntimeError("the importer fails after it has counted")

    importer = core.CapsuleImporter(function, dtypes=[(2, 64)], alignment=1, layout="compact", arguments=())

    def fallback(obj: Any) -> str:
        core.add_bytes(0, 3)
        return "made"

    inner = memory_route(core.NDArrayExporter(), importer, fallback=fallback)
    assert route_of(inner)(np.arange(3.0)) == "made"
    assert counts() == (0, 1, 0, 0, 0, 0, 3, 0, 0)


def test_nested_routes_add_to_the_outer_one() -> None:
    inner = route_of(memory())
    arrays = [np.arange(2.0), np.arange(3.0)]

    def outer(obj: Any) -> Any:
        with pytest.raises(ZeroDivisionError):
            from_function(lambda _: core.add_bytes(9, 9) or 1 / 0)(0)
        assert core.outcome()[0] == 1
        return [inner(array) for array in obj]

    from_function(outer)(arrays)
    assert counts() == (1, 0, 0, 0, 0, 40, 0, 0, 0)


def test_an_error_of_the_sample_is_dropped_but_not_an_interrupt() -> None:
    array = np.arange(4.0)
    for error, reaches in ((ValueError, False), (KeyboardInterrupt, True), (TimeoutError, True)):

        def sample(*arguments: Any, error: Any = error) -> None:
            if error is TimeoutError:
                raise_by_signal(error())
            raise error

        core.stop_recording()
        core.start_recording("/no/such/package/", ())
        route = core.RecordedRoute(memory(copy=True), PAIR, sample)
        if reaches:
            with pytest.raises(error):
                route(array)
        else:
            assert route(array).tolist() == array.tolist()
        assert core.outcome() == (0, 0, 0, False)


def test_calls_after_the_end_are_not_recorded() -> None:
    route = route_of(memory())
    core.stop_recording()
    assert route(np.arange(3.0)).tolist() == [0, 1, 2]
    assert core.recorded() == []
    core.reset_records()
    core.stop_recording()


def test_stopping_inside_a_call() -> None:
    def stops(obj: Any) -> str:
        core.stop_recording()
        return "made"

    assert from_function(stops)(1) == "made"
    assert core.recorded() == []


def test_sites_are_the_callers_instructions() -> None:
    core.set_sites(True)
    route = route_of(memory())
    array = np.arange(3.0)
    route(array), route(array)
    entries = core.recorded()
    assert len(entries) == 2
    code = test_sites_are_the_callers_instructions.__code__
    assert {entry[0] for entry in entries} == {code}
    assert all(entry[3][8] > 0 for entry in entries)  # nanoseconds
    core.set_sites(False)
    route(array)
    assert len(core.recorded()) == 3


def test_frames_of_the_package_and_of_threads_are_skipped() -> None:
    route, array = route_of(memory()), np.arange(3.0)
    core.set_sites(True)
    core.start_recording(__file__, ())
    route(array)
    core.start_recording("/", ("<",))
    route(array)
    sites = {entry[:2] for entry in core.recorded()}
    assert len(sites) == 2
    assert any(instruction == -1 for _, instruction in sites)
    core.start_recording("no/such/package/", ("/", "<"))
    route(array)
    assert (None, -1) in {entry[:2] for entry in core.recorded()}


def test_more_entries_than_the_limit_keep_the_sum() -> None:
    core.set_sites(True)
    array, route = np.arange(1.0), route_of(memory())
    text = "route(array)\n" * 100
    for number in range(60):
        exec(compile(text, f"<cell {number}>", "exec"), {"route": route, "array": array})
    entries = core.recorded()
    assert len(entries) == 4096 + 1
    assert sum(entry[3][0] for entry in entries) == 6000


def test_more_pairs_than_the_limit_are_dropped() -> None:
    routes = [core.RecordedRoute(core.IdentityRoute(), (str(i), "b"), print) for i in range(7500)]
    for route in routes:
        route(1)
    assert len(core.recorded()) == 7168


def test_counts_start_again_in_a_forked_child() -> None:
    route_of(memory())(np.arange(3.0))
    core.reset_records()
    assert counts() == (0,) * 9


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 4)])
@pytest.mark.parametrize("dtype", ["u1", "f8", "c16"])
def test_bytes_of_a_capsule(shape: tuple[int, ...], dtype: str) -> None:
    array = np.zeros(shape, dtype)
    assert core.capsule_bytes(array.__dlpack__()) == array.nbytes
    assert core.capsule_bytes(numpy_capsule(array, max_version=(1, 0))) == array.nbytes


def test_wrong_arguments_are_refused() -> None:
    got: list[Any] = []
    memory_route(core.NDArrayExporter(), keep_capsule(got))(aligned_empty((2,), np.dtype("f8")))
    for function, arguments in (
        (core.RecordedRoute, (print, PAIR, print)),
        (core.RecordedRoute, (core.IdentityRoute(), "ab", print)),
        (core.add_bytes, (1,)),
        (core.add_bytes, ("a", "b")),
        (core.set_outcome, ()),
        (core.record_call, (1, 2, 3)),
        (core.start_recording, (1, ())),
        (core.start_recording, ("a", (1,))),
    ):
        with pytest.raises(TypeError):
            function(*arguments)
    with pytest.raises(ValueError, match="unconsumed DLPack capsule"):
        core.capsule_bytes(1)
    consumed = np.from_dlpack(
        type("P", (), {"__dlpack__": lambda s, **k: got[0], "__dlpack_device__": lambda s: (1, 0)})()
    )
    assert consumed.nbytes == 16
    with pytest.raises(ValueError, match="unconsumed DLPack capsule"):
        core.capsule_bytes(got[0])
    assert exported(np.zeros(3)).deleted == 0


@pytest.mark.hazard("robustness#half-built-containers")
def test_the_garbage_collector_sees_no_half_built_entries(run_python) -> None:
    """A collection that starts while the list is built runs callbacks, which may read all objects."""
    check(
        run_python,
        """
core.start_recording("/no/such/package/", ())
for i in range(300):
    core.RecordedRoute(core.IdentityRoute(), ("a", str(i)), print)(0)
def read(phase, info):
    for container in gc.get_objects(generation=0):
        if type(container) in (list, tuple):
            [item for item in container]
gc.callbacks.append(read)
gc.set_threshold(5)
assert len(core.recorded()) == 300
""",
    )
