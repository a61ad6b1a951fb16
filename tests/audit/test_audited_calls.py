"""Each call that the audit wraps: named when it copies where ``convert`` aliases, and not otherwise."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from helpers.audit_programs import AVOIDABLE, MODULES, NOT_AVOIDABLE, argument, audited, modules
from helpers.paths import ROOT
from helpers.versions import require

import zerocopy as zc
from zerocopy import forks, registry
from zerocopy.audit.hook import AuditHook
from zerocopy.framework import hook_of

# torch.Tensor.__array__ has no parameter `copy`.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


def names_for(code: str, kind: str) -> dict[str, Any]:
    for each in (*MODULES.values(), kind.partition(".")[0]):
        short = [key for key, value in MODULES.items() if value == each]
        if each not in ("matrix", "dict") and (kind.startswith(each) or any(f"{s}." in code for s in short)):
            pytest.importorskip(each)
    return {**modules(code), "x": argument(kind), "zc": zc}


def host_values(obj: Any) -> Any:
    """Return the values of an array or table as lists."""
    return (
        zc.convert(obj, "numpy", copy=None)
        if not isinstance(obj, dict)
        else {key: host_values(value) for key, value in obj.items()}
    )


def assert_equal(a: Any, b: Any) -> None:
    a, b = host_values(a), host_values(b)
    assert type(a) is type(b)
    if isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            np.testing.assert_array_equal(a[key], b[key])
    else:
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("code", "kind", "fix"), AVOIDABLE, ids=lambda each: str(each))
def test_avoidable_copy_is_named_and_its_fix_aliases(code: str, kind: str, fix: str) -> None:
    if kind != "torch" and code in ("jnp.asarray(x)", "x.to_jax()"):
        require("jax", "0.10", "the copy of aligned memory by jnp.asarray")
    names = names_for(code, kind)
    report = audited(f"result = {code}\n", names)
    (row,) = report.rows
    assert (row.call, row.fix, row.line) == (code, fix, 1)
    assert (row.calls, row.checked, row.counted) == (1, 1, 1)
    assert row.bytes >= 16384
    exec(f"fixed = {row.fix}", names)
    assert type(names["fixed"]) is type(names["result"])
    assert_equal(names["fixed"], names["result"])
    assert not zc.shares_memory(names["x"], names["result"])
    assert zc.shares_memory(names["x"], names["fixed"])


@pytest.mark.parametrize(("code", "kind", "expected"), NOT_AVOIDABLE, ids=lambda each: str(each))
def test_other_calls_are_not_named(code: str, kind: str, expected: str) -> None:
    names = names_for(code, kind)
    report = audited(f"try: result = {code}\nexcept ValueError: pass\n", names)
    assert report.rows == []
    assert [row.kind for row in report.all_rows] == ([expected] if expected else [])
    for row in report.all_rows:
        assert row.fix == ""
        assert bool(row.why) == (row.kind == "needed")
        assert zc.shares_memory(names["x"], names["result"]) == (row.kind == "alias")


@pytest.mark.parametrize(("code", "kind"), [case[:2] for case in AVOIDABLE + NOT_AVOIDABLE])
def test_results_are_those_without_an_audit(code: str, kind: str) -> None:
    names = names_for(code, kind)
    if "[::-1]" in code or "requires_grad" in code:
        pytest.skip("torch refuses it, or the comparison")
    plain = eval(code, dict(names))
    audited(f"result = {code}\n", names)
    assert type(names["result"]) is type(plain)
    assert_equal(names["result"], plain)


def labels() -> set[str]:
    names = set()
    for framework in registry.known():
        if framework.has_hook("audit") and framework.installed() and forks.is_imported(framework.name):
            names |= {call.label for call in hook_of(framework, AuditHook).calls()}
    return names


def test_every_wrapped_call_has_a_case_and_a_row_in_the_docs() -> None:
    codes = [case[0] for case in AVOIDABLE + NOT_AVOIDABLE]
    page = (ROOT / "docs" / "audit.md").read_text(encoding="utf-8")
    for label in labels():
        name = label.rpartition(".")[2]
        assert any(re.search(rf"\b{name}\b", code) for code in codes), label
        assert f"`{label}`" in page, label


def test_every_hook_exists() -> None:
    for framework in registry.known():
        if framework.has_hook("audit"):
            assert type(hook_of(framework, AuditHook)) is not AuditHook


@pytest.mark.parametrize(
    ("code", "wrapped"),
    [("float(x[0])", "numpy"), ("torch.tensor([1.0, 2.0])", "numpy"), ("np.array([1, 2])", "numpy")],
)
def test_lists_and_numbers_are_not_arrays(code: str, wrapped: str) -> None:
    pytest.importorskip("torch")
    assert audited(f"{code}\n", names_for(code, wrapped), min_bytes=0).all_rows == []


def test_small_results_are_left_out() -> None:
    torch = pytest.importorskip("torch")
    x = np.zeros(127)
    names = {"torch": torch, "x": x}
    assert audited("torch.tensor(x)\n", names).all_rows == []
    assert [row.bytes for row in audited("torch.tensor(x)\n", names, min_bytes=1016).rows] == [1016]
    assert audited("torch.tensor(x[:0])\n", names, min_bytes=0).rows == []


def test_subclass_of_an_array() -> None:
    torch = pytest.importorskip("torch")

    class Mine(np.ndarray):
        __hash__ = None  # type: ignore[assignment]

    names = {"torch": torch, "x": np.arange(1024.0).view(Mine)}
    (row,) = audited("result = torch.tensor(x)\n", names).rows
    assert row.source.endswith("Mine")
    assert names["result"].sum() == names["x"].sum()


def test_calls_inside_other_calls_do_not_count() -> None:
    """An object whose ``__array__`` copies is not an array of a framework; the copy is its own."""
    torch = pytest.importorskip("torch")

    class Wrapped:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return np.array(torch.zeros(1024))

    assert audited("np.asarray(x)\n", {"np": np, "x": Wrapped()}).all_rows == []


def test_a_call_of_a_framework_is_not_named() -> None:
    """Only lines outside the frameworks are: they can be changed."""
    torch = pytest.importorskip("torch")
    code = "result = torch.tensor(x)\n"
    names = {"torch": torch, "x": np.zeros(1024), "__name__": "torch.utils.mine"}
    assert audited(code, names).all_rows == []
    names["__name__"] = "torchlike"
    assert len(audited(code, names).rows) == 1


def test_tracers_are_not_named() -> None:
    jax = pytest.importorskip("jax")
    code = "result = jax.jit(lambda v: jnp.asarray(v) + jnp.array(v))(x)\n"
    names = {"jax": jax, "jnp": jax.numpy, "x": argument("jax")}
    assert audited(code, names, min_bytes=0).all_rows == []
    np.testing.assert_array_equal(names["result"], 2 * np.asarray(names["x"]))
