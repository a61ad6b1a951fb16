"""An object is described at most once per call of ``convert`` or ``explain``, failing calls included."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from helpers.arrays import sample
from helpers.box_framework import Box, Boxes

import zerocopy as zc
from zerocopy.errors import Reason
from zerocopy.framework import HOST, Framework, Source, Table, TensorColumn
from zerocopy.strided_view import StridedView


class CountedBoxes(Boxes):
    """A tensor framework that counts the descriptions of each object."""

    root_modules = (Box.__module__.partition(".")[0],)

    def __init__(self) -> None:
        self.descriptions: Counter[int] = Counter()

    def source(self, obj: Any) -> Source:
        self.descriptions[id(obj)] += 1
        return super().source(obj)


class RefusedBoxes(CountedBoxes):
    """A framework that describes its objects but refuses to convert them."""

    def source(self, obj: Any) -> Source:
        source = super().source(obj)
        source.refusal = Reason("it is sealed", "open it", code="sealed")
        return source


class FailingBoxes(CountedBoxes):
    """A framework that fails to describe its objects."""

    def source(self, obj: Any) -> Source:
        super().source(obj)
        raise RuntimeError("the lid is stuck")


class CopiedBoxes(CountedBoxes):
    """A framework whose memory must be copied."""

    def source(self, obj: Any) -> Source:
        source = super().source(obj)
        source.reasons = [Reason("it is wrapped", "unwrap it", code="wrapped")]
        return source


class Sheet:
    """A table of NumPy columns."""

    def __init__(self, **columns: np.ndarray) -> None:
        self.columns = columns


class CountedSheets(Framework):
    """A table framework that counts the descriptions of each table."""

    name = "sheets"
    kind = "table"
    root_modules = (__name__.partition(".")[0],)

    def __init__(self) -> None:
        self.descriptions: Counter[int] = Counter()

    def module(self) -> Any:
        return None

    def installed(self) -> bool:
        return True

    def owns(self, cls: type) -> bool:
        return issubclass(cls, Sheet)

    def table(self, obj: Any, index: bool | None = None) -> Table:
        self.descriptions[id(obj)] += 1
        columns = [TensorColumn(_host_source(array)) for array in obj.columns.values()]
        return Table(
            "sheets.Sheet", list(obj.columns), columns, len(next(iter(obj.columns.values()))), obj=obj
        )


def _host_source(array: np.ndarray) -> Source:
    dtype = zc.view(array).dtype
    return Source(
        "numpy.ndarray",
        StridedView(array.ctypes.data, array.shape, array.strides, dtype, HOST, False, array),
        lambda: array,
    )


class RefusingTarget(Framework):
    """A target that supports no dtype."""

    name = "refusing_target"

    def module(self) -> Any:
        return None

    def copy_reasons(self, view: StridedView) -> list[Reason]:
        raise zc.UnsupportedConversionError("", f"it has no {view.dtype}", "use numpy", code="missing-dtype")


def outcome(function: Any, *arguments: Any, **options: Any) -> str:
    """Call ``convert`` or ``explain``; return ``"converted"``, ``"possible"``, or the error's class."""
    try:
        result = function(*arguments, **options)
    except zc.ZeroCopyError as error:
        return type(error).__name__
    if isinstance(result, zc.Plan):
        return "possible" if result.possible else type(result.error).__name__
    return "converted"


CASES = {
    "success": (CountedBoxes, "numpy", {}, None),
    "copy=True": (CountedBoxes, "numpy", {"copy": True}, None),
    "refusal by the target": (CountedBoxes, "refusing_target", {}, "UnsupportedConversionError"),
    "refusal by the source": (RefusedBoxes, "numpy", {}, "UnsupportedConversionError"),
    "failing description": (FailingBoxes, "numpy", {}, "UnsupportedConversionError"),
    "copy=False": (CopiedBoxes, "numpy", {"copy": False}, "CopyRequiredError"),
    "no such device": (CountedBoxes, "numpy", {"device": "cuda"}, "DeviceError"),
    "option for tables": (CountedBoxes, "numpy", {"nulls": 0}, "UnsupportedConversionError"),
    "its own framework": (CountedBoxes, "boxes", {}, None),
    "a column of a table target": (CountedBoxes, "pyarrow", {}, None),
}


def expect_outcome(function: Any, error: str | None) -> str:
    return error or ("possible" if function is zc.explain else "converted")


@pytest.mark.parametrize("function", [zc.convert, zc.explain], ids=["convert", "explain"])
@pytest.mark.parametrize("case", CASES)
def test_array_is_described_once(function: Any, case: str) -> None:
    framework_class, target, options, error = CASES[case]
    if target == "pyarrow":
        pytest.importorskip("pyarrow")
    framework, box = framework_class(), Box(sample("f4", (16,)))
    zc.register(framework)
    zc.register(RefusingTarget())
    assert outcome(function, box, target, **options) == expect_outcome(function, error)
    assert framework.descriptions[id(box)] <= 1
    if target != "boxes":  # convert() returns an object of the target without describing it
        assert framework.descriptions[id(box)] == 1


@pytest.mark.parametrize("function", [zc.convert, zc.explain], ids=["convert", "explain"])
@pytest.mark.parametrize(
    ("target", "options", "error"),
    [
        ("numpy", {}, None),
        ("numpy", {"layout": "matrix"}, None),
        ("numpy", {"layout": "matrix", "copy": False}, "CopyRequiredError"),
        ("numpy", {"columns": ["absent"]}, "UnsupportedConversionError"),
        ("numpy", {"device": "cuda"}, "DeviceError"),
        ("numpy", {"names": ["a", "b"]}, "UnsupportedConversionError"),
        ("refusing_target", {}, "UnsupportedConversionError"),
        ("pyarrow", {}, None),
    ],
    ids=lambda value: str(value),
)
def test_table_is_described_once(function: Any, target: str, options: dict, error: str | None) -> None:
    if target == "pyarrow":
        pytest.importorskip("pyarrow")
    framework, sheet = CountedSheets(), Sheet(a=sample("f4", (16,)), b=sample("f4", (16,)))
    zc.register(framework)
    zc.register(RefusingTarget())
    assert outcome(function, sheet, target, **options) == expect_outcome(function, error)
    assert framework.descriptions == {id(sheet): 1}


@pytest.mark.parametrize("function", [zc.convert, zc.explain], ids=["convert", "explain"])
@pytest.mark.parametrize(
    ("framework_class", "target", "options", "error"),
    [
        (CountedBoxes, "numpy", {}, None),
        (CountedBoxes, "pyarrow", {}, None),
        (CountedBoxes, "numpy", {"layout": "matrix"}, None),
        (CountedBoxes, "numpy", {"layout": "matrix", "copy": False}, "CopyRequiredError"),
        (CountedBoxes, "pyarrow", {"columns": ["absent"]}, "UnsupportedConversionError"),
        (CountedBoxes, "refusing_target", {}, "UnsupportedConversionError"),
        (RefusedBoxes, "pyarrow", {}, "UnsupportedConversionError"),
        (RefusedBoxes, "numpy", {}, "UnsupportedConversionError"),
        (FailingBoxes, "pyarrow", {}, "UnsupportedConversionError"),
        (FailingBoxes, "numpy", {}, "UnsupportedConversionError"),
        (CopiedBoxes, "pyarrow", {"copy": False}, "CopyRequiredError"),
        (CopiedBoxes, "numpy", {"copy": False}, "CopyRequiredError"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_values_of_a_dict_are_described_once_each(
    function: Any, framework_class: type[CountedBoxes], target: str, options: dict, error: str | None
) -> None:
    if target == "pyarrow":
        pytest.importorskip("pyarrow")
    framework = framework_class()
    zc.register(framework)
    zc.register(RefusingTarget())
    columns = {"a": Box(sample("f4", (16,))), "b": Box(sample("f4", (16,)))}
    assert outcome(function, columns, target, **options) == expect_outcome(function, error)
    assert framework.descriptions
    assert max(framework.descriptions.values()) == 1
    if error is None:
        assert framework.descriptions.keys() == {id(box) for box in columns.values()}


@pytest.mark.parametrize("function", [zc.convert, zc.explain], ids=["convert", "explain"])
@pytest.mark.parametrize(("options", "error"), [({}, None), ({"device": "cuda"}, "DeviceError")], ids=str)
def test_leaves_of_a_list_are_described_once_each(function: Any, options: dict, error: str | None) -> None:
    framework = CountedBoxes()
    zc.register(framework)
    leaves = [Box(sample("f4", (16,))), [Box(sample("f4", (16,)))]]
    assert outcome(function, leaves, "numpy", **options) == expect_outcome(function, error)
    assert max(framework.descriptions.values()) == 1


@pytest.mark.parametrize("function", [zc.convert, zc.explain], ids=["convert", "explain"])
@pytest.mark.parametrize(
    "target",
    [
        "numpy",
        pytest.param(
            "pyarrow",
            marks=pytest.mark.xfail(
                reason="describe_columns() describes values before it finds a table among them", strict=True
            ),
        ),
    ],
)
def test_values_of_a_dict_of_tables_are_described_once_each(function: Any, target: str) -> None:
    pytest.importorskip(target)
    framework = CountedSheets()
    zc.register(framework)
    sheets = {name: Sheet(a=sample("f4", (16,))) for name in ("first", "second")}
    assert outcome(function, sheets, target) == expect_outcome(function, None)
    assert framework.descriptions == {id(sheet): 1 for sheet in sheets.values()}
