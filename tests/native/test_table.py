"""The table of routes. Programs run in subprocesses, because the table is one for the process."""

from __future__ import annotations

import pytest
from helpers.native_core import require_core
from helpers.native_programs import check

require_core()


def test_text_is_found_interned_or_not_and_other_targets_by_identity(run_python):
    check(
        run_python,
        """
import types
targets = ["spam", "spam eggs", types.ModuleType("spam"), Kind, np.ndarray, 12345678901, (1, 2)]
targets += ["x" * 5000, "\\u1234"]
for i, to in enumerate(targets):
    assert core.set_route(to, Kind, answer(i))
for i, to in enumerate(targets):
    assert convert(obj, to) == convert(obj, to=to) == convert(obj=obj, to=to) == i
for text in ("spam", "spam eggs", "\\u1234"):
    copy = "".join(list(text))
    assert copy is not text or len(text) < 2
    assert convert(obj, copy) == targets.index(text)
for other in ("spa", (1, 2, 3), types.ModuleType("spam"), int("12345678901"), None, 0, object()):
    assert convert(obj, other) == "python"
class Text(str): pass
assert convert(obj, Text("spam")) == "python"
class Raises(str):
    __eq__ = __hash__ = None
assert convert(obj, Raises("spam")) == "python"
""",
    )


def test_types_are_exact(run_python):
    check(
        run_python,
        """
class Sub(Kind): pass
core.set_route("a", Kind, answer(1))
assert convert(Sub(), "a") == "python"
sub = Sub()
sub.__class__ = Kind
assert convert(sub, "a") == 1
class Liar:
    @property
    def __class__(self): return Kind
assert convert(Liar(), "a") == "python"
""",
    )


def test_bypassed_routes_are_found_again(run_python):
    check(
        run_python,
        """
first, second = answer(1), answer(2)
routes, tree = core.Routes("a"), core.TreeRoute("a")
core.set_route("a", Kind, first)
core.set_route("a", Kind, first, copy=True, columns=["x"])
for _ in range(2):
    core.bypass_routes(True)
    assert convert(obj, "a") == convert(obj, "a", copy=True, columns=["x"]) == "python"
    assert routes.get(Kind) is core.Routes("a", copy=True, columns=["x"]).get(Kind) is None
    try:
        tree([obj])
    except BufferError:
        pass
    else:
        raise AssertionError("a tree has found the route of its leaf")
    core.set_route("a", Kind, second)  # a key that exists keeps its route
    core.set_route("b", Kind, second)
    assert convert(obj, "b") == "python"
    core.bypass_routes(False)
    assert routes[Kind] is first and convert(obj, "b") == 2
    assert convert(obj, "a") == convert(obj, "a", copy=True, columns=["x"]) == 1 and tree([obj]) == [1]
core.bypass_routes(True)
core.clear_routes()
core.set_route("b", Kind, first)
core.bypass_routes(False)
assert routes.get(Kind) is None and convert(obj, "b") == 1
core.clear_routes()
assert convert(obj, "b") == "python"
""",
    )


def test_each_combination_of_options_has_its_own_route(run_python):
    check(
        run_python,
        """
import itertools
flags, devices, dtypes = (None, False, True), (None, "cpu", (1, 0)), (None, "float32", np.float32)
keys = list(itertools.product(flags, flags, devices, dtypes))
for i, (copy, writable, device, dtype) in enumerate(keys):
    assert core.set_route("a", Kind, answer(i), copy, writable, device=device, dtype=dtype)
for i, (copy, writable, device, dtype) in enumerate(keys):
    assert convert(obj, "a", copy=copy, writable=writable, device=device, dtype=dtype) == i
for bad in (0, 1, "False", np.False_, ..., obj):
    for name in ("copy", "writable"):
        assert convert(obj, "a", **{name: bad}) == "python"
        try:
            core.set_route("a", Kind, answer(0), **{name: bad})
        except ValueError:
            continue
        raise AssertionError(bad)
""",
    )


def test_equal_values_of_options_find_the_route_and_others_do_not(run_python):
    check(
        run_python,
        """
class Device:
    def __init__(self, number): self.number = number
    def __eq__(self, other): return type(other) is Device and other.number == self.number
    def __hash__(self): return hash(self.number)
values = {
    "columns": [["a", "b"], ["b", "a"], ["a"], [1], [2, "a"], []],
    "layout": ["matrix", "columns"],
    "index": [True, False],
    "device": [Device(1), Device(2), (1, 0), (2, 0), 1, True, 1.0],
    "dtype": [np.dtype("f4"), np.dtype("i4"), float, "f4"],
}
cases = [(name, value) for name, each in values.items() for value in each]
for i, (name, value) in enumerate(cases):
    assert core.set_route("a", Kind, answer(i), **{name: value})
import copy
for i, (name, value) in enumerate(cases):
    equal = copy.deepcopy(value) if type(value) is not str else "".join(list(value))
    assert convert(obj, "a", **{name: equal}) == i, (name, value)
    assert core.Routes("a", **{name: equal})[Kind](obj) == i
    assert convert(obj, "b", **{name: equal}) == "python"
assert convert(obj, "a", columns=("a", "b")) == 0
others = {
    "columns": [[True], [1.0], [("a",)], ["a", "b", "c"], {"a": 1}, iter(["a"]), "a"],
    "device": [(True, 0), {}],
    "dtype": [{"a": "f4"}],
    "layout": [b"matrix", np.zeros(2)],
    "index": [0, [1, 2], np.zeros(2), "a"],
}
for name, each in others.items():
    for other in each:
        assert convert(obj, "a", **{name: other}) == "python", (name, other)
assert convert(obj, "a", columns=["a"], layout="matrix") == "python"
core.clear_routes()
assert core.set_route("a", Kind, answer(7), columns=["b", "a"]) and convert(obj, "a", columns=list("ba")) == 7
""",
    )


def test_leaves_are_kept_by_the_route_and_other_values_are_checked_in_python(run_python):
    check(
        run_python,
        """
core.set_route("a", Kind, answer(1))
core.set_route("a", Kind, answer(2), copy=True)
assert convert(obj, "a", leaves="keep") == convert(obj, "a", leaves=None) == 1
assert convert(obj, "a", leaves="keep", copy=True) == 2
for other in ("error", "kept", 1, True, ["keep"]):
    assert convert(obj, "a", leaves=other) == "python"
""",
    )


def test_values_that_cannot_be_compared_have_no_routes(run_python):
    check(
        run_python,
        """
class Raises:
    def __init__(self, error): self.error = error
    def __hash__(self): raise self.error
for bad in ({}, [["a"]], Raises(ZeroDivisionError())):
    assert not core.set_route("a", Kind, answer(1), device=bad, columns=["a"])
    assert convert(obj, "a", device=bad) == "python"
    try:
        core.Routes("a", device=bad)
    except LookupError:
        continue
    raise AssertionError(bad)
for call in (lambda x: convert(obj, "a", device=x), lambda x: core.Routes("a", dtype=x)):
    try:
        call(Raises(KeyboardInterrupt()))
    except KeyboardInterrupt:
        continue
    raise AssertionError(call)
""",
    )


def test_the_number_of_values_is_bounded(run_python):
    check(
        run_python,
        """
first = core.Routes("a", columns=["column 0"], dtype=float)
stored, lost = [], []
for i in range(3000):
    # The slots near the hash, which addresses determine, can be taken.
    if core.set_route("a", Kind, answer(i), columns=[f"column {i}"], dtype=float):
        stored.append(i)
        assert convert(obj, "a", columns=[f"column {i}"], dtype=float) == i
    lost.append(sum(convert(obj, "a", columns=[f"column {j}"], dtype=float) != j for j in stored[-9:]))
assert len(stored) > 2900 and 0 < sum(map(bool, lost)) < 100, "all routes are dropped now and then"
assert first.get(Kind) is None
core.clear_routes()
core.set_route("a", Kind, answer("again"), columns=["column 0"], dtype=float)
assert first[Kind](obj) == "again", "the view finds the equal values"
""",
    )


def test_routes_change_with_the_table(run_python):
    check(
        run_python,
        """
routes = core.Routes("spam", copy=True, columns=["a"])
for i in range(3):
    assert routes.get(Kind) is None and routes.get(3) is None
    try:
        routes[Kind]
    except KeyError as error:
        assert error.args == (Kind,)
    core.set_route("spam", Kind, answer(i), copy=True, columns=("a",))
    assert routes[Kind](obj) == routes.get(Kind)(obj) == i
    core.clear_routes()
for wrong in ((), ("a", 3), ("a", None, 0)):
    try:
        core.Routes(*wrong)
    except (TypeError, ValueError):
        continue
    raise AssertionError(wrong)
core.clear_values()
assert routes.get(Kind) is None
""",
    )


def test_a_key_keeps_its_first_route_and_the_table_holds_its_arguments(run_python):
    check(
        run_python,
        """
import weakref
assert core.set_route("a", Kind, answer(1)) and core.set_route("a", Kind, answer(2))
assert convert(obj, "a") == 1
class Target: pass
class Temporary: pass
to, device = Target(), Target()
watched = [weakref.ref(x) for x in (to, device, Temporary)]
core.set_route(to, Temporary, answer(3), device=device)
del to, device, Temporary
gc.collect()
assert all(reference() is not None for reference in watched)
""",
    )


def test_a_full_table_refuses_routes_and_finds_the_rest(run_python):
    check(
        run_python,
        """
kept, full = [], 0
route = answer(7)
targets = [f"target {i}" for i in range(6000)]
for to in targets:
    if core.set_route(to, Kind, route):
        kept.append(to)
    else:
        full += 1
assert 0 < full and 1000 < len(kept) <= 2048, (full, len(kept))
known = set(kept)
for to in targets:
    assert convert(obj, to) == (7 if to in known else "python"), to
core.clear_routes()
assert all(convert(obj, to) == "python" for to in kept[:50])
assert core.set_route(kept[0], Kind, route) and convert(obj, kept[0]) == 7
""",
    )


@pytest.mark.parametrize("distance", [16, 96, 1024, 4096])
def test_targets_at_equal_distances_reach_all_slots(run_python, distance):
    # Allocators give out addresses at equal distances, such as 96 bytes under AddressSanitizer.
    check(
        run_python,
        f"""
names = [f"target {{i}}" for i in range(400_000)]
first = id(names[0])
targets = [name for name in names if (id(name) - first) % {distance} == 0][:1024]
assert len(targets) == 1024, len(targets)
kept = [to for to in targets if core.set_route(to, Kind, answer(7))]
assert len(kept) > 900, len(kept)
assert all(convert(obj, to) == 7 for to in kept)
""",
    )


@pytest.mark.hazard("robustness#routes-that-are-dropped")
def test_the_table_is_cleared_while_a_route_runs_and_while_threads_read(run_python):
    check(
        run_python,
        """
def clears(x):
    core.clear_routes()
    gc.collect()
    return x
core.set_route("a", Kind, core.CallRoute(clears))
assert convert(obj, "a") is obj
assert convert(obj, "a") == "python"

sys.setswitchinterval(1e-5)
stop, wrong = threading.Event(), []
def read():
    while not stop.is_set():
        result = convert(obj, "b")
        if result not in ("python", 5):
            wrong.append(result)
        asked.clear()
threads = [threading.Thread(target=read) for _ in range(4)]
for thread in threads:
    thread.start()
for _ in range(300):
    core.set_route("b", Kind, answer(5))
    core.clear_routes()
stop.set()
for thread in threads:
    thread.join()
assert not wrong
""",
    )


def test_wrong_arguments_of_set_route(run_python):
    check(
        run_python,
        """
for args in ((), ("a",), ("a", Kind), ("a", 3, answer(1)), ("a", Kind, len), ("a", Kind, None)):
    try:
        core.set_route(*args)
    except TypeError:
        continue
    raise AssertionError(args)
""",
    )
