"""Texts of plans, of their copies, and of reasons."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import numpy as np
import pytest

import zerocopy as zc
from zerocopy.errors import Fix, Reason
from zerocopy.plan import Plan


def misaligned() -> np.ndarray:
    return np.zeros(9, "u1")[1:].view("f4")


CASES = {
    "copied": lambda: zc.explain(misaligned(), "numpy", copy=True),
    "with a fix": lambda: zc.explain(misaligned(), "pyarrow"),
    "refused": lambda: zc.explain(misaligned(), "pyarrow", copy=False),
    "not an array": lambda: zc.explain("text", "numpy"),
    "leaves": lambda: zc.explain({"a": misaligned(), "b": np.array([True])}, "pyarrow"),
    "container": lambda: zc.explain([misaligned(), "text"], "pyarrow", copy=False),
}


@pytest.fixture(params=CASES)
def plan(request: pytest.FixtureRequest) -> Plan:
    if request.param in ("with a fix", "refused", "leaves", "container"):
        pytest.importorskip("pyarrow")
    return CASES[request.param]()


def texts(plan: Plan) -> list[object]:
    own = [str(plan), plan.reasons, plan.error and (str(plan.error), plan.error.calls, plan.error.code)]
    return own + [texts(leaf) for leaf in plan.leaves.values()]


@pytest.mark.parametrize(
    "same",
    [
        lambda plan: pickle.loads(pickle.dumps(plan)),
        copy.copy,
        dataclasses.replace,
        lambda plan: Plan(**{f.name: getattr(plan, f.name) for f in dataclasses.fields(plan)}),
    ],
    ids=["pickle", "copy", "replace", "fields"],
)
def test_a_copy_of_a_plan_has_the_same_texts(plan: Plan, same) -> None:
    assert texts(same(plan)) == texts(plan)


def test_a_plan_has_no_other_attributes() -> None:
    plan = zc.explain(misaligned(), "numpy", copy=True)
    with pytest.raises(AttributeError, match="no attribute 'reason'"):
        plan.reason  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'rmedy'"):
        Reason("why").rmedy  # noqa: B018


def test_reasons_are_equal_whether_or_not_their_remedy_was_read() -> None:
    unread, read = (Reason("why", code="other", fixes=[Fix("{x}.copy()", "copies")]) for _ in range(2))
    assert read.remedy == "x.copy() copies"
    assert unread == read
    assert hash(unread) == hash(read)
    fresh = Reason("why", fixes=[Fix("{x}.copy()", "copies")])
    assert pickle.loads(pickle.dumps(fresh)) == read
    assert repr(copy.copy(fresh)) == repr(read)
    assert dataclasses.replace(fresh, fixes=()) == Reason("why")
