"""The conversion of dicts, lists and tuples in the core."""

from __future__ import annotations

import pytest
from helpers.native_core import require_core
from helpers.native_programs import check

require_core()

TREES = """
tree = core.TreeRoute("a")
class Leaf:
    def __init__(self, value): self.value = value
core.set_route("a", Leaf, core.CallRoute(lambda leaf: leaf.value() if callable(leaf.value) else leaf.value))
core.set_route("a", Kind, core.IdentityRoute())
def refused(x, error=BufferError):
    try:
        tree(x)
    except error:
        return True
    return False
L = Leaf
"""


def test_containers_are_rebuilt_in_order(run_python):
    check(
        run_python,
        TREES
        + """
source = {"b": L(1), "a": [L(2), (L(3), obj, {"x": L(4), 5: L(6)})], (7, 8): {}, None: [], frozenset(): ()}
result = tree(source)
assert result == {"b": 1, "a": [2, (3, obj, {"x": 4, 5: 6})], (7, 8): {}, None: [], frozenset(): ()}, result
assert list(result) == list(source) and result["a"] is not source["a"]
assert type(source["b"]) is L and source["a"][0].value == 2
""",
    )


def test_other_containers_and_unknown_leaves_fail_the_whole_tree(run_python):
    check(
        run_python,
        TREES
        + """
import collections
class D(dict): pass
class T(tuple): pass
class S(list): pass
Point = collections.namedtuple("Point", "x y")
ordered = collections.OrderedDict(a=L(1))
for other in (D(a=L(1)), T([L(1)]), S([L(1)]), Point(L(1), L(2)), ordered, None, "x", {1}):
    for around in (lambda x: [x], lambda x: (L(1), x), lambda x: {"a": L(1), "b": {"c": x}}):
        assert refused(around(other)), other
assert tree((L(1), 3, {"a": 4.5})) == (1, 3, {"a": 4.5})  # numbers among arrays are kept
for other in (3, None, "x", D(a=L(1))):
    try:
        tree([other])
    except BufferError:
        continue
    raise AssertionError(other)
""",
    )


def test_deep_and_cyclic_containers_raise_and_return(run_python):
    check(
        run_python,
        TREES
        + """
for wrap in (lambda x: [x], lambda x: (x,), lambda x: {"a": x}, lambda x: [L(1), x, L(2)]):
    x = L(1)
    for _ in range(100):
        x = wrap(x)
    tree(x)
    for _ in range(200_000):
        x = wrap(x)
    assert refused(x, RecursionError)
    x = None
cycle = []
cycle.append(cycle)
assert refused(cycle, RecursionError)
loop = {}
loop["x"] = (L(1), [loop])
assert refused(loop, RecursionError)
assert tree([L(1)]) == [1]
""",
    )


@pytest.mark.hazard("robustness#containers-that-change")
def test_a_leafs_code_changes_the_containers(run_python):
    check(
        run_python,
        TREES
        + """
def clears(target):
    def run():
        if type(target[0]) is dict:
            target[0].clear()
        else:
            del target[0][:]
        gc.collect()
        return 1
    return run
def grows(target):
    def run():
        for i in range(100):
            target[0][f"new {i}"] = L(0)
        return 1
    return run
for make in (lambda leaf: [leaf, L(2), [L(3)]], lambda leaf: {"a": leaf, "b": L(2), "c": [L(3)]}):
    target = [None]
    target[0] = make(L(clears(target)))
    result = tree(target[0])
    assert result in ([1, 2, [3]], {"a": 1, "b": 2, "c": [3]}), result
target = [None]
target[0] = {"a": L(grows(target)), "b": L(2)}
assert tree(target[0]) == {"a": 1, "b": 2}
def replaces():
    core.clear_routes()
    gc.collect()
    return 1
assert refused([L(replaces), obj]) or True
""",
    )


@pytest.mark.hazard("robustness#containers-that-change")
def test_keys_with_an_unstable_hash_or_that_raise(run_python):
    check(
        run_python,
        TREES
        + """
class Key:
    count = 0
    def __hash__(self):
        Key.count += 1
        return Key.count
assert refused({Key(): L(1), "b": L(2)})
class Raises:
    bad = False
    def __hash__(self):
        if self.bad: raise ZeroDivisionError
        return 1
key = Raises()
source = {key: L(1)}
Raises.bad = True
assert refused(source, ZeroDivisionError)
class Equal:
    def __hash__(self): return 1
    def __eq__(self, other):
        other_keys.clear()
        return False
other_keys = {}
other_keys |= {Equal(): L(1)}
""",
    )


def test_a_failing_leaf_drops_the_partial_result(run_python):
    check(
        run_python,
        TREES
        + """
import weakref
class Result: pass
made = []
def makes():
    result = Result()
    made.append(weakref.ref(result))
    return result
def raises():
    raise KeyboardInterrupt
for tail in (L(raises), "x"):
    mapping = {"a": L(makes), "b": {"c": tail}}
    for source in ([L(makes), L(makes), tail], (L(makes), [L(makes), tail]), mapping):
        assert refused(source, (KeyboardInterrupt, BufferError))
gc.collect()
assert len(made) == 10 and all(reference() is None for reference in made), made
""",
    )


def test_options_choose_the_leaves_routes_and_arguments_are_checked(run_python):
    check(
        run_python,
        TREES
        + """
core.set_route("a", Leaf, answer("copied"), copy=True)
core.set_route("a", Leaf, answer("not writable"), writable=False)
assert core.TreeRoute("a", True)([L(1)]) == ["copied"]
assert core.TreeRoute("a", copy=True)([L(1)]) == ["copied"]
assert core.TreeRoute("a", writable=False)([L(1)]) == ["not writable"]
assert core.TreeRoute("".join("a"), None, False)([L(1)]) == ["not writable"]
for args in ((), ("a", 3), ("a", None, "x"), ("a", None, None, None)):
    try:
        core.TreeRoute(*args)
    except (TypeError, ValueError):
        continue
    raise AssertionError(args)
core.set_route("a", dict, tree)
core.set_route("a", list, tree)
assert convert([{"x": L(1)}], "a") == [{"x": 1}] and convert({"x": [L(1)]}, to="a") == {"x": [1]}
assert convert([3], "a") == "slow"
""",
    )


@pytest.mark.hazard("robustness#half-built-containers")
def test_a_leafs_code_reads_all_objects(run_python):
    """As memory profilers do in another thread: the collector knows the results that are being built."""
    check(
        run_python,
        TREES
        + """
def reads():
    for container in gc.get_objects():
        if type(container) in (list, tuple, dict):
            [item for item in container]
    return 1
for count in (1, 3, 8, 9, 100):
    leaves = [L(reads)] * min(count, 10) + [L(2)] * (count - 10)
    expected = [1] * min(count, 10) + [2] * (count - 10)
    assert tree(leaves) == expected and tree(tuple(leaves)) == tuple(expected)
    assert tree([{"x": leaves}, (leaves,)]) == [{"x": expected}, (expected,)]
""",
    )
