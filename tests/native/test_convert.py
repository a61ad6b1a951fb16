"""The compiled ``convert``: its arguments, errors of routes, and the slow path."""

from __future__ import annotations

import pytest
from helpers.native_core import require_core
from helpers.native_programs import check

require_core()


def test_other_arguments_reach_python_unchanged(run_python):
    check(
        run_python,
        """
core.set_route("a", Kind, answer(1))
cases = [((), {}), ((obj,), {}), ((obj, "a", 3), {}), ((obj, "a", None, None), {}), ((), {"to": "a"})]
cases += [((obj,), {"obj": obj}), ((obj, "a"), {"to": "a"}), ((obj, "a"), {"obj": obj})]
cases += [((obj,), {"too": "a"})]
cases += [((obj, "a"), {"layout": "matrix"}), ((obj, "a"), {"": 1}), ((obj, "a"), {"copy": 2})]
cases += [((obj, "a"), {"copy": True, "nulls": None}), ((obj, "b"), {}), ((None, None), {}), ((3, "a"), {})]
for args, keywords in cases:
    asked.clear()
    assert convert(*args, **keywords) == "python"
    assert asked == [(args, keywords)], (args, keywords, asked)
""",
    )


def test_names_that_are_not_interned_and_values_of_none(run_python):
    check(
        run_python,
        """
core.set_route("a", Kind, answer(1))
core.set_route("a", Kind, answer(2), copy=False)
fresh = lambda text: "".join(list(text))
assert convert(obj, "a", copy=None, writable=None, device=None, dtype=None) == 1
assert convert(obj, **{"to": "a", "copy": False}) == 2
asked.clear()
for keywords in ({fresh("copy"): False}, {fresh("to"): "a"}):
    args = (obj,) if "to" in keywords else (obj, "a")
    assert convert(*args, **keywords) in (1, 2, "python")
for args, keywords in asked:
    assert args[0] is obj
class Name(str): pass
assert convert(obj, "a", **{Name("copy"): False}) in (2, "python")
""",
    )


def test_a_failing_route_reaches_the_slow_path_with_its_error_and_the_options(run_python):
    check(
        run_python,
        """
def fails(x):
    raise error
for error in (ValueError("v"), MemoryError(), KeyboardInterrupt(), SystemExit(3), GeneratorExit()):
    core.clear_routes()
    core.set_route("a", Kind, core.CallRoute(fails))
    core.set_route("a", Kind, core.CallRoute(fails), copy=True, dtype="float32")
    asked.clear()
    assert convert(obj, "a") == "slow"
    assert asked == [(obj, "a", {}, error)]
    assert error.__traceback__ is not None and error.__traceback__.tb_frame.f_code.co_name == "fails"
    asked.clear()
    assert convert(obj, "a", writable=None, dtype="float32", copy=True) == "slow"
    assert asked == [(obj, "a", {"copy": True, "dtype": "float32"}, error)]
core.clear_routes()
exporter = core.CapsuleExporter(lambda x: None)
core.set_route("a", Kind, core.MemoryRoute(exporter, core.NDArrayImporter(), True, True))
asked.clear()
assert convert(obj, "a") == "slow" and asked == [(obj, "a", {}, None)]
""",
    )


def test_errors_of_the_slow_path_pass_and_no_reference_is_lost(run_python):
    check(
        run_python,
        """
def python(*args, **keywords): raise LookupError("python")
def slow(*args): raise ArithmeticError("slow")
convert = core.make_convert(python, slow, {})
def fails(x): raise ValueError
core.set_route("a", Kind, core.CallRoute(fails))
core.set_route("same", Kind, core.IdentityRoute())
to, options = "a", {"copy": None}
def call(expected, *args, **keywords):
    try:
        convert(*args, **keywords)
    except expected:
        return
    raise AssertionError
def counts():
    return [sys.getrefcount(x) for x in (obj, to, None, True, options, Kind)]
for _ in range(100):
    call(ArithmeticError, obj, to); call(LookupError, obj, "b"); call(LookupError, obj, to, x=3)
gc.collect()
before = counts()
for _ in range(5000):
    call(ArithmeticError, obj, to); call(ArithmeticError, obj, to, **options)
    call(LookupError, obj, "b"); call(LookupError, obj, to, x=3); call(LookupError)
    convert(obj, "same"); convert(obj=obj, to="same", copy=None)
gc.collect()
assert all(abs(a - b) < 50 for a, b in zip(counts(), before)), (counts(), before)
""",
    )


def test_make_convert(run_python):
    check(
        run_python,
        """
assert convert.__doc__ == "doc" and convert.__name__ == "convert" and convert.__module__ == "zerocopy"
for args in ((), (slow,), (slow, 3), (slow, {}, None)):
    try:
        core.make_convert(python, *args)
    except TypeError:
        continue
    raise AssertionError(args)
class Bound:
    convert = convert
method = Bound().convert
assert method.__self__.convert == method and Bound.convert is convert
def replaces(*args, **keywords):
    core.make_convert(lambda *args: 3, slow, {})
    gc.collect()
    return replaces.__name__
convert = core.make_convert(replaces, slow, {})
assert convert(obj, "b") == "replaces" and convert(obj, "b") == 3
""",
    )


@pytest.mark.hazard("robustness#second-interpreter")
def test_a_second_interpreter_uses_python_alone(run_python):
    check(
        run_python,
        """
try:
    import _xxsubinterpreters as interpreters
except ImportError:
    import _interpreters as interpreters
other = interpreters.create()
code = '''
try:
    from zerocopy._native import _core
except ImportError:
    pass  # raised by the core, or by NumPy before
else:
    raise AssertionError
'''
try:
    interpreters.run_string(other, code)
except Exception as error:
    assert "AssertionError" not in str(error), error  # NumPy may refuse in its own way
interpreters.destroy(other)
assert convert(obj, "b") == "python"
""",
    )
