"""Errors of invalid calls (P9): the class, the message in three parts, and pickling."""

from __future__ import annotations

import inspect
import pickle
import re

import numpy as np
import pytest
from helpers.arrays import sample
from helpers.frameworks import HOST

import zerocopy as zc
from zerocopy import errors
from zerocopy.errors.tracebacks import public

ALL_ERRORS = [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, zc.ZeroCopyError)]


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (zc.errors.UnknownFrameworkError, LookupError),
        (zc.FrameworkNotInstalledError, ImportError),
        (zc.UnsupportedConversionError, TypeError),
        (zc.CopyRequiredError, BufferError),
        (zc.CopyRequiredError, ValueError),
        (zc.LossyConversionError, ValueError),
        (zc.DeviceError, RuntimeError),
    ],
)
def test_errors_derive_from_builtin_errors(error: type, builtin: type) -> None:
    assert issubclass(error, builtin)
    assert issubclass(error, zc.ZeroCopyError)


@pytest.mark.parametrize("error", ALL_ERRORS)
def test_errors_survive_pickling(error: type) -> None:
    original = error("asked", "why", "remedy")
    unpickled = pickle.loads(pickle.dumps(original))
    assert (type(unpickled), str(unpickled), unpickled.why) == (error, str(original), "why")
    assert unpickled.code == original.code == error.code


def test_errors_survive_pickling_beside_dask(run_python) -> None:
    """Importing distributed installs tblib's reducers for all exceptions."""
    pytest.importorskip("distributed")
    completed = run_python(
        """
        import pickle, distributed, tblib.pickling_support, zerocopy as zc
        errors = [each for name, each in vars(zc.errors).items() if name.endswith("Error")]
        tblib.pickling_support.install()
        assert len(errors) > 15
        for cls in errors:
            unpickled = pickle.loads(pickle.dumps(cls("asked", "why", "remedy")))
            assert (type(unpickled), unpickled.why, unpickled.remedy) == (cls, "why", "remedy"), cls
        """
    )
    assert completed.returncode == 0, completed.stderr


@pytest.mark.parametrize("error", ALL_ERRORS)
def test_context_and_code_survive_pickling(error: type) -> None:
    original = error("asked", "why", "remedy")
    original.code = "given-code"
    assert original.with_context(asked="asked later", remedy="another remedy") is original
    unpickled = pickle.loads(pickle.dumps(original))
    for each in (original, unpickled):
        assert type(each) is error
        assert (each.asked, each.why, each.remedy) == ("asked later", "why", "another remedy")
        assert each.args == ("asked later", "why", "another remedy")
        assert each.code == "given-code"
        assert str(each) == "asked later: why.\n  To fix: another remedy"
        assert each.reason == zc.Reason("why", "another remedy", code="given-code")


def test_sizes_of_a_pool_limit_survive_pickling() -> None:
    original = zc.errors.PoolLimitError("asked", "why", requested=3, in_use=2, limit=4, source="limit=")
    unpickled = pickle.loads(pickle.dumps(original.with_context(why="why else")))
    assert (unpickled.why, unpickled.source) == ("why else", "limit=")
    assert (unpickled.requested, unpickled.in_use, unpickled.limit) == (3, 2, 4)


def test_context_replaces_only_given_parts() -> None:
    error = zc.UnsupportedConversionError("asked", "why", "remedy", code="given-code")
    assert str(error.with_context(why="")) == "asked: .\n  To fix: remedy"
    assert str(error.with_context(asked="", why="why", remedy="")) == "why."
    assert error.code == "given-code"


def test_each_error_class_has_its_own_code() -> None:
    codes = [error.__dict__.get("code") for error in ALL_ERRORS]
    assert len(set(codes)) == len(ALL_ERRORS)
    for code in codes:
        assert re.fullmatch("[a-z]+(-[a-z]+)*", code), code


def test_code_of_a_reason_has_a_default() -> None:
    reason = zc.Reason("why")
    assert (reason.why, reason.remedy, reason.code) == ("why", "", "other")
    assert pickle.loads(pickle.dumps(zc.Reason("why", code="given-code"))).code == "given-code"
    with pytest.raises(TypeError):
        zc.Reason("why", "remedy", "code")  # keyword only


def test_plans_survive_pickling() -> None:
    for x in (sample("f4"), "text", [sample("f4")]):
        original = zc.explain(x, "numpy")
        unpickled = pickle.loads(pickle.dumps(original))
        assert str(unpickled) == str(original)
        assert unpickled.run is None


@pytest.mark.parametrize(
    "x",
    ["text", None, 3, 2.5, (i for i in ()), {1, 2}, object(), lambda: 0, np.float32, type, ...],
    ids=lambda x: type(x).__name__ + ("_type" if isinstance(x, type) else ""),
)
@pytest.mark.parametrize("target", HOST)
def test_objects_that_are_not_arrays_are_refused(x: object, target: str) -> None:
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.convert(x, to=target)
    assert "no array" in caught.value.why
    assert caught.value.remedy
    assert f"to='{target}'" in str(caught.value)
    assert "Traceback" not in str(caught.value)
    assert not zc.explain(x, target).possible


def test_error_for_nested_lists_names_the_leaf_and_the_fix() -> None:
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.convert([[1, 2], [3, "4"]], to="numpy")
    assert "[1][1]" in caught.value.why
    assert 'leaves="keep"' in caught.value.remedy


@pytest.mark.parametrize(
    ("name", "near"), [("troch", "torch"), ("nunpy", "numpy"), ("Torch", "torch"), ("pyarow", "pyarrow")]
)
def test_error_for_unknown_targets_names_similar_ones(name: str, near: str) -> None:
    for call in (zc.convert, zc.explain):
        with pytest.raises(zc.errors.UnknownFrameworkError, match=near):
            call(sample("f4"), name)


@pytest.mark.parametrize("name", ["", None, 3, [], "..", "numpy.", "numpy.Nonsense", ".torch"])
def test_targets_that_are_not_names_are_refused(name: object) -> None:
    with pytest.raises(zc.errors.UnknownFrameworkError):
        zc.convert(sample("f4"), to=name)


def test_error_for_a_missing_framework_has_the_pip_command() -> None:
    class Absent(zc.Framework):
        name, distribution = "absent_framework", "absent-framework[all]"

    zc.register(Absent())
    with pytest.raises(zc.FrameworkNotInstalledError, match=r"pip install absent-framework\[all\]") as caught:
        zc.convert(sample("f4"), to="absent_framework")
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)
    assert not zc.explain(sample("f4"), "absent_framework").possible
    assert not zc.frameworks()["absent_framework"].installed


def test_failing_import_of_a_framework_is_reported(tmp_path, monkeypatch) -> None:
    (tmp_path / "broken_framework.py").write_text("import no_such_thing")
    monkeypatch.syspath_prepend(tmp_path)

    class Broken(zc.Framework):
        name = "broken_framework"

    zc.register(Broken())
    with pytest.raises(zc.FrameworkNotInstalledError, match="no_such_thing"):
        zc.convert(sample("f4"), to="broken_framework")


@pytest.mark.parametrize("device", ["cuba", "cpu:x", "cuda:-1", 3, (1, 2, 3), ("a", "b"), object()])
@pytest.mark.parametrize("target", HOST)
def test_invalid_devices_are_refused(device: object, target: str) -> None:
    with pytest.raises(zc.DeviceError) as caught:
        zc.convert(sample("f4"), to=target, device=device)
    assert caught.value.remedy


@pytest.mark.parametrize("target", HOST)
def test_absent_devices_are_refused(target: str) -> None:
    with pytest.raises(zc.DeviceError):
        zc.convert(sample("f4"), to=target, device="cuda:63")
    with pytest.raises(zc.DeviceError):
        zc.convert(sample("f4"), to=target, device="metal")


@pytest.mark.parametrize("stream", [0, -2, True, "1", object()])
def test_invalid_streams_are_refused_on_the_host(stream: object) -> None:
    with pytest.raises(zc.DeviceError):
        zc.convert(sample("f4"), to="numpy", stream=stream, copy=True)


@pytest.mark.parametrize("options", [{"copy": "no"}, {"copy": 2}, {"writable": "yes"}])
def test_invalid_option_values_are_refused(options: dict) -> None:
    with pytest.raises(ValueError, match="True, False or None"):
        zc.convert(sample("f4"), to="numpy", **options)


@pytest.mark.parametrize("target", HOST)
def test_too_many_dimensions_are_refused(target: str) -> None:
    torch = pytest.importorskip("torch")
    x = torch.ones((1,) * 70)
    if target == "torch":
        assert zc.convert(x, to=target) is x
        return
    with pytest.raises(zc.ZeroCopyError, match="dimensions"):
        zc.convert(x, to=target)


def test_copy_required_error_lists_the_reasons() -> None:
    torch = pytest.importorskip("torch")
    x = torch.arange(4.0).to(torch.complex64).conj()[::2]
    with pytest.raises(zc.CopyRequiredError) as caught:
        zc.convert(x, to="numpy", copy=False)
    assert "lazily conjugated" in caught.value.why
    assert "copy=None" in caught.value.remedy


def test_errors_do_not_show_the_failed_route_lookup() -> None:
    import traceback

    try:
        zc.convert("text", to="numpy")
    except zc.ZeroCopyError as error:
        shown = "".join(traceback.format_exception(error))
    assert "KeyError" not in shown


def test_the_exception_that_the_caller_handles_stays_in_the_chain() -> None:
    handled = None
    try:
        raise OSError("a reader of text failed")
    except OSError as error:
        handled = error
        with pytest.raises(zc.UnsupportedConversionError) as caught:
            zc.convert("text", to="numpy")
    assert caught.value.__context__ is handled


@pytest.mark.parametrize("target", HOST)
def test_too_many_dimensions_are_refused_on_the_fast_path(target: str) -> None:
    """The fast path, which exists after the first call, must refuse the same arrays."""
    torch = pytest.importorskip("torch")
    zc.convert(torch.ones(64), to=target)
    test_too_many_dimensions_are_refused(target)


def test_nested_structs_are_encoded_and_too_deep_ones_are_refused() -> None:
    pa = pytest.importorskip("pyarrow")
    deep = pa.array([1])
    for _ in range(40):  # work that doubles with each level would not finish
        deep = pa.StructArray.from_arrays([deep], ["x"])
    inner = zc.convert(deep, to="numpy", encode=True)
    for _ in range(40):
        inner = inner.values["x"]
    assert inner.tolist() == [1]
    for _ in range(600):
        deep = pa.StructArray.from_arrays([deep], ["x"])
    with pytest.raises(zc.UnsupportedConversionError, match="nested deeper"):
        zc.convert(deep, to="numpy", encode=True)


class Undescribable:
    """A producer that counts how often it is described, and always raises."""

    calls = 0

    def __dlpack_device__(self) -> tuple[int, int]:
        type(self).calls += 1
        raise RuntimeError("cannot be described")

    def __dlpack__(self, **_: object) -> object:
        raise RuntimeError("cannot be described")


INVALID_TABLE_OPTIONS = [
    {"layout": "x"},
    {"columns": "abc"},
    {"nulls": "bad"},
    {"encode": 2},
    {"names": 3},
    {"index": "x"},
    {"copy": 0},
    {"writable": "no"},
]


@pytest.mark.parametrize("options", INVALID_TABLE_OPTIONS, ids=str)
@pytest.mark.parametrize("call", [zc.convert, zc.explain], ids=["convert", "explain"])
def test_invalid_option_is_a_value_error_before_the_object_is_described(call, options: dict) -> None:
    cyclic: list = [np.zeros(2)]
    cyclic.append(cyclic)
    Undescribable.calls = 0
    for obj in (Undescribable(), [1, 2], {1, 2}, cyclic, {"a": Undescribable()}):
        with pytest.raises(ValueError, match=next(iter(options))) as caught:
            call(obj, to="numpy", **options)
        assert isinstance(caught.value, zc.errors.OptionError)
    assert Undescribable.calls == 0


def test_missing_table_framework_is_reported_before_the_columns_of_a_dict() -> None:
    class Missing(zc.Framework):
        name, kind = "missing_tables", "table"

    zc.register(Missing())
    with pytest.raises(zc.FrameworkNotInstalledError, match="convert"):
        zc.convert({"a": np.zeros(3), "b": np.zeros(4)}, to="missing_tables")


def _functions_with_options() -> list[str]:
    functions = {name: getattr(zc, name) for name in zc.__all__ if inspect.isfunction(getattr(zc, name))}
    functions |= {name: getattr(zc, name) for name in ("convert", "explain")}  # compiled, with the core
    return [
        name
        for name, function in functions.items()
        if any(p.kind is p.KEYWORD_ONLY for p in inspect.signature(function).parameters.values())
    ]


@pytest.mark.parametrize("name", _functions_with_options())
def test_a_misspelled_option_is_answered_with_the_right_one(name: str) -> None:
    parameters = list(inspect.signature(getattr(zc, name)).parameters.values())
    option = next(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)
    needed = [p.name for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    values = ["numpy" if each == "to" else np.zeros(1) for each in needed]
    with pytest.raises((TypeError, zc.errors.OptionError), match=f"did you mean '{option}'"):
        getattr(zc, name)(*values, **{f"{option}_": 1})


def test_an_error_inside_a_function_keeps_its_message() -> None:
    @public
    def function(x: object, *, option: int = 0) -> None:
        str.upper("a", option=option)

    with pytest.raises(TypeError, match=r"^str.upper\(\) takes no keyword arguments$"):
        function(1, option=2)
