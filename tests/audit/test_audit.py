"""The audit: programs run as without it, what it counts, and its reports."""

from __future__ import annotations

import copy
import inspect
import json
import os
import pickle
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from helpers import audit_plugin
from helpers.audit_programs import audited, run_code

import zerocopy as zc
from zerocopy import forks, registry
from zerocopy.audit import Audit, AuditRow, audit
from zerocopy.audit.hook import AuditHook
from zerocopy.audit.wrapper import Wrapper
from zerocopy.framework import hook_of

torch = pytest.importorskip("torch")


def attributes() -> dict[tuple[str, str], Any]:
    """Return the attributes that an audit replaces, in all imported frameworks."""
    calls = [
        call
        for framework in registry.known()
        if framework.has_hook("audit") and forks.is_imported(framework.name)
        for call in hook_of(framework, AuditHook).calls()
    ]
    return {(repr(call.owner), call.attribute): vars(call.owner).get(call.attribute) for call in calls}


# -- installing and restoring ----------------------------------------------------------


def test_everything_is_restored() -> None:
    before, finders = attributes(), list(sys.meta_path)
    with audit():
        during = attributes()
        assert all(during[key] is not value for key, value in before.items())
    after = attributes()
    assert before
    assert all(after[key] is value for key, value in before.items())
    assert sys.meta_path == finders


def test_everything_is_restored_after_an_exception() -> None:
    before = attributes()
    report, names = Audit(), {"torch": torch, "x": np.zeros(1024)}
    with pytest.raises(KeyError), report:
        run_code("torch.tensor(x)\nraise KeyError\n", names)
    after = attributes()
    assert all(after[key] is value for key, value in before.items())
    assert len(report.rows) == 1


def test_the_signature_and_the_errors_are_those_of_a_function() -> None:
    assert str(inspect.signature(audit)) == "(min_bytes: 'int' = 1024) -> 'Audit'"
    with pytest.raises(TypeError, match=r"^audit\(\) got an unexpected keyword argument 'bytes'"):
        audit(bytes=1)  # type: ignore[call-arg]


def test_types_are_never_replaced() -> None:
    names = ("Tensor", "FloatTensor", "Size", "dtype")
    before = [getattr(torch, name) for name in names]
    with audit():
        assert [getattr(torch, name) for name in names] == before
        assert isinstance(torch.tensor([1.0]), torch.Tensor)
        assert not any(isinstance(value, type) for value in attributes().values())


def test_nested_audits_each_have_their_rows() -> None:
    x = np.zeros(1024)
    names = {"torch": torch, "x": x}
    with audit() as outer:
        run_code("torch.tensor(x)\n", names)
        with audit(10_000) as inner:
            run_code("torch.tensor(x)\n", names)
        run_code("torch.tensor(x)\n", names)
    assert [sum(row.counted for row in each.rows) for each in (outer, inner)] == [3, 0]
    assert not isinstance(torch.tensor, Wrapper)


def test_one_audit_twice_adds_up() -> None:
    report, x = Audit(), np.zeros(1024)
    for _ in range(2):
        with report:
            torch.tensor(x)
    assert [row.counted for row in report.rows] == [2]


def test_program_that_replaces_a_function_keeps_its_own() -> None:
    code = """
old = torch.tensor
def mine(*args, **options):
    return old(*args, **options)
torch.tensor = mine
result = torch.tensor(x)
"""
    names = {"torch": torch, "x": np.zeros(1024)}
    original = torch.tensor
    try:
        report = audited(code, names)
        assert torch.tensor is names["mine"]
        assert [(row.line, row.function) for row in report.rows] == [(4, "mine")]
        assert torch.tensor(np.zeros(3)).shape == (3,)
        assert audited("result = torch.tensor(x)\n", names).rows
        assert torch.tensor is names["mine"]
    finally:
        torch.tensor = original


def test_imported_function_outlives_the_audit() -> None:
    names: dict[str, Any] = {"x": np.zeros(1024)}
    report = audited("from torch import tensor as make\nmake(x)\n", names)
    assert [row.fix for row in report.rows] == ['zc.convert(x, to="torch")']
    assert names["make"](np.ones(2)).tolist() == [1, 1]
    assert len(report.rows) == 1
    assert report.rows[0].calls == 1


def test_frameworks_imported_later_are_wrapped(run_python) -> None:
    completed = run_python(
        """
        import sys
        from zerocopy.audit import audit
        import numpy as np
        import importlib.util
        with audit() as report:
            assert "torch" not in sys.modules
            assert importlib.util.find_spec("torch") is not None  # it imports nothing
            from torch import tensor
            import torch
            loader, spec = torch.__loader__, torch.__spec__
            tensor(np.zeros(1024))
        assert loader is spec.loader and "exec_module" not in vars(loader)
        assert torch.tensor is tensor.__wrapped__
        print(len(report.rows), "jax" in sys.modules)
        """
    )
    assert (completed.returncode, completed.stdout) == (0, "1 False\n"), completed.stderr


@pytest.mark.full
def test_import_that_fails_is_tried_again(run_python, tmp_path) -> None:
    """The program sees the error of its framework, and an import that succeeds later is wrapped."""
    (tmp_path / "polars.py").write_text("raise RuntimeError('broken')\n")
    completed = run_python(
        f"""
        import sys
        from zerocopy.audit import audit
        with audit() as report:
            sys.path.insert(0, {str(tmp_path)!r})
            try: import polars
            except RuntimeError as error: print(error)
            sys.path.remove({str(tmp_path)!r})
            sys.path_importer_cache.clear()
            import polars, numpy, torch
            polars.Series("a", numpy.arange(1000.0)).to_torch()
        print(len(report.rows))
        """
    )
    assert (completed.returncode, completed.stdout) == (0, "broken\n1\n"), completed.stderr


def test_import_zerocopy_audit_loads_no_framework(run_python) -> None:
    completed = run_python("import zerocopy.audit, sys; print('torch' in sys.modules, 'rich' in sys.modules)")
    assert completed.stdout == "False False\n"


def test_framework_of_a_plugin_lists_its_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boxes", audit_plugin)
    zc.register(audit_plugin.AuditedBoxes())
    original = audit_plugin.boxed
    report = audited("result = boxes.boxed(x)\n", {"boxes": audit_plugin, "x": np.zeros(1024)})
    assert [(row.call, row.fix) for row in report.rows] == [("boxes.boxed(x)", 'zc.convert(x, to="boxes")')]
    assert audit_plugin.boxed is original


# -- the wrapped functions -----------------------------------------------------------------


def test_wrapped_functions_look_like_the_originals() -> None:
    pd = pytest.importorskip("pandas")
    original, shape = torch.tensor, inspect.signature(pd.DataFrame)
    method = pd.DataFrame.to_numpy
    with audit():
        wrapped = torch.tensor
        assert wrapped == original
        assert original == wrapped
        assert {original: 1}[wrapped] == 1
        assert wrapped != torch.as_tensor
        for name in ("__name__", "__doc__", "__module__", "__qualname__"):
            assert getattr(wrapped, name) == getattr(original, name)
        assert repr(wrapped) == repr(original)
        assert inspect.signature(pd.DataFrame) == shape
        assert inspect.signature(pd.DataFrame.to_numpy) == inspect.signature(method)
        assert pd.DataFrame.values.__doc__

        class Holder:
            make = torch.tensor

        assert Holder().make([1.0]).tolist() == [1.0]  # a built-in function is not bound


def test_wrapped_functions_can_be_pickled_and_copied() -> None:
    original = torch.tensor
    with audit():
        data = pickle.dumps([torch.tensor, np.array])
        assert copy.deepcopy(torch.tensor) is torch.tensor
        assert pickle.loads(data)[0] is torch.tensor
    assert pickle.loads(data) == [original, np.array]


def test_exceptions_are_those_of_the_framework() -> None:
    with pytest.raises(RuntimeError, match="Could not infer dtype") as plain:
        torch.tensor(object())
    with audit() as report, pytest.raises(RuntimeError, match="Could not infer dtype") as audited_error:
        torch.tensor(object())
    assert type(audited_error.value) is type(plain.value)
    assert audited_error.value.__cause__ is None
    assert audited_error.value.__context__ is None
    assert report.all_rows == []


@pytest.mark.parametrize(
    "argument",
    [
        "object()",
        "(i for i in 'ab')",
        "None",
        "[[1], [2, 3]]",
        "{1: 2}",
        "Bad()",
        "'text'",
        "np.array([None])",
    ],
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of Python 3.13, for torch
def test_arguments_of_any_type(argument: str) -> None:
    """Generators, unhashable objects and those that raise are passed on: the outcome is the same."""

    class Bad:
        __hash__ = None  # type: ignore[assignment]

        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(name)

    def outcome() -> Any:
        value = eval(argument, {"Bad": Bad, "np": np})
        try:
            return repr(torch.as_tensor(value))
        except Exception as error:  # noqa: BLE001 - the outcome of any argument
            return type(error), str(error).partition(" object at ")[0]

    plain = outcome()
    with audit(0) as report:
        assert outcome() == plain
    assert report.rows == []


def test_compilers_trace_the_originals() -> None:
    jit = pytest.importorskip("numba").njit
    code = """
def scripted(v: torch.Tensor):
    return v + torch.tensor([2.0]) + torch.as_tensor(3.0)
script = torch.jit.script(scripted)(torch.ones(3))
traced = torch.jit.trace(lambda v: v + torch.tensor([2.0]), torch.ones(3))(torch.ones(3))
mapped = torch.func.vmap(lambda v: torch.as_tensor(v) * torch.tensor([2.0]))(torch.ones(3, 2))
compiled = torch.compile(lambda v: v + torch.tensor([2.0]), backend="eager", fullgraph=True)(torch.ones(3))
jitted = jit(lambda v: np.array([1.0, 2.0]) + np.asarray(v)[:2])(np.ones(3))
"""
    names = {"torch": torch, "np": np, "jit": jit, "__name__": "program"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert audited(code, names, min_bytes=0).rows == []
    assert names["script"].tolist() == [6, 6, 6]
    assert names["traced"].tolist() == names["compiled"].tolist() == [3, 3, 3]
    assert names["mapped"].tolist() == [[2, 2]] * 3
    assert names["jitted"].tolist() == [2, 3]


def test_array_function_protocol() -> None:
    class Like:
        def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
            return function == original, function == np.array

    original = np.array
    with audit():
        assert np.array([1], like=Like()) == (True, True)


# -- counting ------------------------------------------------------------------------------


def test_later_calls_of_a_line_are_sampled() -> None:
    code = "for _ in range(100):\n    torch.tensor(x)\n"
    report = audited(code, {"torch": torch, "x": np.zeros(1024)})
    (row,) = report.rows
    assert (row.calls, row.checked, row.counted) == (100, 21, 21)  # 16, and 32, 48, 64, 80, 96
    assert row.bytes == 21 * 8192
    assert report.as_dict()["avoidable_calls"] == 21


def test_calls_of_one_line_have_rows_of_their_own() -> None:
    code = "result = torch.tensor(x), torch.tensor(y[0])\n"
    names = {"torch": torch, "x": np.zeros(1024), "y": [np.zeros(2048)]}
    rows = audited(code, names).rows
    assert [row.call for row in rows] == ["torch.tensor(y[0])", "torch.tensor(x)"]


def test_recursion_and_generators() -> None:
    code = """
def deep(n):
    return torch.tensor(x) + deep(n - 1) if n else 0
def each():
    for _ in range(3):
        yield torch.tensor(x)
result = deep(5), list(each())
"""
    rows = audited(code, {"torch": torch, "x": np.zeros(1024)}).rows
    assert {(row.function, row.counted) for row in rows} == {("deep", 5), ("each", 3)}


def test_threads() -> None:
    code = "def make(_):\n    return torch.tensor(x)\n"
    names: dict[str, Any] = {"torch": torch, "x": np.zeros(1024)}
    run_code(code, names)
    with audit() as report, ThreadPoolExecutor(4) as pool:
        results = list(pool.map(names["make"], range(64)))
    assert len(results) == 64
    (row,) = report.rows
    assert (row.calls, row.checked, row.counted) == (64, 19, 19)


def test_audits_that_begin_and_end_in_threads() -> None:
    before, x, errors = attributes(), np.zeros(1024), []

    def work() -> None:
        for _ in range(20):
            with audit() as report:
                torch.tensor(x)
            if not report.rows:
                errors.append(report)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    after = attributes()
    assert not errors
    assert all(after[key] is value for key, value in before.items())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_child_process_runs_as_without_an_audit() -> None:
    with audit() as report:
        child = os.fork()
        if not child:
            os._exit(0 if torch.tensor(np.ones(1024)).sum() == 1024 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert report.rows == []


def test_expressions_in_the_fix() -> None:
    x = np.zeros((4, 1024))
    names = {"torch": torch, "zc": zc, "x": x, "data": {"a": [x]}}
    long = " + ".join(["x"] * 40)
    cases = {
        "torch.tensor(data['a'][0])": "data['a'][0]",
        "torch.tensor(\n    x[1]\n)": "x[1]",
        "'é', torch.tensor(x)": "x",
        "torch.tensor(x + 1)": "x + 1",
        "torch.tensor(*[x])": "x",
        "list(map(torch.tensor, [x]))": "x",
        f"torch.tensor({long})": "x",
        "(lambda z: torch.tensor(z))(x)": "z",
        "[torch.tensor(row) for row in x]": "row",
    }
    for code, text in cases.items():
        rows = audited(f"result = {code}\n", names).rows
        assert {row.fix for row in rows} == {f'zc.convert({text}, to="torch")'}, code


@pytest.mark.parametrize(("code", "framework"), [("torch.tensor(x)", "numpy"), ("x.to_torch()", "polars")])
def test_code_without_source_text(code: str, framework: str) -> None:
    names = {"torch": torch, "x": zc.convert(np.zeros(1024), framework)}
    with audit() as report:
        exec(code, names)
    assert [(row.call, row.fix) for row in report.rows] == [(code, 'zc.convert(x, to="torch")')]


# -- reports -------------------------------------------------------------------------------


def test_empty_report() -> None:
    with audit() as report:
        pass
    assert str(report) == "No call copied where zerocopy.convert would alias."
    assert report.rows == []
    assert report.as_dict()["avoidable_bytes"] == 0
    assert report.to_arrow().num_rows == 0


def test_json_arrow_and_html() -> None:
    pytest.importorskip("pyarrow")
    report = audited(
        "y = '<b>'; torch.tensor(x); torch.as_tensor(x)\n", {"torch": torch, "x": np.zeros(1024)}
    )
    document = json.loads(json.dumps(report.as_dict(every=True), allow_nan=False))
    assert (document["avoidable_bytes"], document["avoidable_calls"]) == (8192, 1)
    assert [row["kind"] for row in document["rows"]] == ["avoidable", "alias"]
    table = report.to_arrow()
    assert table.column("bytes").to_pylist() == [8192, 8192]
    assert table.schema.names == list(AuditRow.__slots__)
    html = report._repr_html_()
    assert "zc.convert(x, to=&quot;torch&quot;)" in html
    assert "8 KiB" in repr(report)
