"""The table of routes. Programs run in subprocesses, because the table is one for the process."""

from __future__ import annotations

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
