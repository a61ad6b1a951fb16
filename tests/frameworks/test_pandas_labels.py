"""Labels of pandas that are not plain strings: kept, restored from Arrow, or reported as strings."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import zerocopy as zc

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
pytest.importorskip("nanoarrow")
from helpers.table_cases import TABLES  # noqa: E402

_MOMENTS = st.datetimes(datetime.datetime(1700, 1, 1), datetime.datetime(2200, 1, 1))
_ZONES = st.sampled_from([None, "UTC", "Europe/Paris"])
_SCALARS = st.one_of(
    st.sampled_from(["", "a", "1", "nan", "None", "__index_level_0__", "__index_level_1__", "(1, 'a')"]),
    st.none(),
    st.booleans(),
    st.integers(-3, 2**70),
    st.sampled_from([0.5, float("nan"), float("inf"), 1e300]),
    st.decimals(allow_nan=False, allow_infinity=False, places=2),
    st.binary(max_size=3),
    st.dates(),
    st.timedeltas(),
    _MOMENTS,
    st.builds(
        lambda moment, zone: pd.Timestamp(moment).tz_localize("UTC").tz_convert(zone), _MOMENTS, _ZONES
    ),
    st.builds(pd.Timedelta, st.integers(-(2**50), 2**50)),
    st.just(pd.NaT),
    st.builds(lambda year: pd.Period(str(year), "Y"), st.integers(1900, 2100)),
    st.builds(lambda left: pd.Interval(left, left + 1), st.integers(0, 9)),
    st.sampled_from([np.int64(5), np.float32(0.25)]),
)
LABELS = st.one_of(_SCALARS, st.tuples(_SCALARS, _SCALARS))


def objects(labels: list[Any], name: Any = None) -> Any:
    """Return labels as an index that keeps them as they are."""
    values = np.fromiter(labels, object, len(labels))
    return pd.Index(values, dtype=object, name=name, tupleize_cols=False)


def texts(labels: Any) -> list[str]:
    """Return labels with their types, to compare NaN, and True with 1."""
    return [f"{type(label).__name__} {label!r}" for label in labels]


def same(left: Any, right: Any) -> None:
    """Compare two frames and all their labels and names."""
    assert texts(left.columns.tolist()) == texts(right.columns.tolist())
    assert left.columns.dtype == right.columns.dtype
    assert texts(left.columns.names) == texts(right.columns.names)
    assert texts(left.index.names) == texts(right.index.names)
    assert left.to_numpy().tolist() == right.to_numpy().tolist()
    assert texts(left.index.tolist()) == texts(right.index.tolist())


@settings(deadline=None, max_examples=200, derandomize=True)
@given(
    st.lists(LABELS, min_size=1, max_size=4), LABELS, LABELS, st.sampled_from(["none", "named", "unnamed"])
)
def test_odd_labels_survive_arrow(labels: list[Any], name: Any, of_labels: Any, index: str) -> None:
    frame = pd.DataFrame(np.arange(2.0 * len(labels)).reshape(2, -1), columns=objects(labels))
    frame.columns.name = of_labels
    if index:
        frame.index = pd.Index([5, 6], name=name if index == "named" else None)
    for via in ("pyarrow", "nanoarrow"):
        there = zc.convert(frame, via)
        same(zc.convert(there, "pandas"), frame)
    there = zc.convert(frame, "pyarrow")
    assert there.column_names[: len(labels)] == [str(label) for label in labels]
    same(zc.convert(frame, "pandas", copy=True), frame)


TYPED = {
    "seconds": pd.DatetimeIndex(["2020-01-01", "2021-01-01"]).as_unit("s"),
    "zone": pd.DatetimeIndex(["2020-01-01", "2021-01-01"], tz="Europe/Berlin"),
    "durations": pd.timedelta_range("1s", periods=2),
    "periods": pd.period_range("2020", periods=2, freq="M"),
    "intervals": pd.interval_range(0, 2),
    "nullable": pd.Index([1, 2], dtype="Int64"),
    "small": pd.Index([1, 2], dtype="uint8"),
    "bools": pd.Index([True, False]),
    "text with NaN": pd.Index(["a", None]),
    "levels": pd.MultiIndex.from_tuples([("a", decimal.Decimal(1)), ("b", None)], names=[6, None]),
}


@pytest.mark.parametrize("labels", TYPED.values(), ids=TYPED)
def test_labels_of_one_type_keep_their_type(labels: Any) -> None:
    frame = pd.DataFrame([[1.5, 2.5]], columns=labels)
    back = zc.convert(zc.convert(frame, "pyarrow"), "pandas")
    assert type(back.columns) is type(frame.columns)
    same(back, frame)


#: Tables whose labels are any objects.
ANY_LABELS = ("cudf", "pylibcudf", "pandas", "xarray")


@pytest.mark.parametrize("target", [name for name in TABLES if name not in ANY_LABELS])
def test_labels_that_become_strings_are_reported(target: str) -> None:
    for source in (pd.DataFrame([[1.0, 2.0]], columns=[6, "a"]), {6: np.ones(2), "a": np.ones(2)}):
        plan = zc.explain(source, target)
        assert any("names are strings, and 6 becomes a string" in warning for warning in plan.warnings)
    plan = zc.explain(pd.DataFrame({"a": [1.0]}, index=pd.Index([2], name=6)), target)
    assert any("names are strings, and 6 becomes a string" in warning for warning in plan.warnings)
    plan = zc.explain({"a": np.ones(2)}, target)
    assert not any("names are strings" in warning for warning in plan.warnings)


def test_records_report_labels_that_become_strings() -> None:
    plan = zc.explain({6: np.ones(2)}, "numpy", layout="records")
    assert "numpy: names are strings, and 6 becomes a string" in plan.warnings
    assert zc.convert({6: np.ones(2)}, "numpy", layout="records").dtype.names == ("6",)


def test_labels_of_unknown_types_stay_strings_and_are_reported() -> None:
    label = frozenset([1])
    there = zc.convert(pd.DataFrame([[1.0, 2.0]], columns=[label, "a"]), "pyarrow")
    assert zc.convert(there, "pandas").columns.tolist() == [str(label), "a"]
    warnings = zc.explain(there, "pandas").warnings
    assert "labels of type frozenset became strings, and stay strings" in warnings


@pytest.mark.parametrize(
    "labels", [[None, "a"], [1, None], [True, 2], [(1, "a"), (2, "b")], [float("nan"), "a"]]
)
def test_keys_of_a_dict_become_the_same_labels(labels: list[Any]) -> None:
    frame = zc.convert({label: np.arange(2.0) for label in labels}, "pandas")
    assert texts(frame.columns.tolist()) == texts(labels)
    back = zc.convert(frame, "numpy")
    assert texts(back) == texts(labels)


def test_selection_finds_odd_labels() -> None:
    labels = [float("nan"), decimal.Decimal("1.5"), None, (1, "a")]
    frame = pd.DataFrame([[1.0, 2.0, 3.0, 4.0]], columns=objects(labels))
    for i, label in enumerate(labels):
        chosen = zc.convert(frame, "numpy", columns=[label])
        assert next(iter(chosen.values())).tolist() == [i + 1.0]
    twice = pd.DataFrame([[1.0, 2.0]], columns=[float("nan"), float("nan")])
    with pytest.raises(zc.UnsupportedConversionError, match="several columns are called 'nan'"):
        zc.convert(twice, "numpy", nulls=0)


def test_fields_of_one_name_keep_their_labels_in_any_order() -> None:
    frame = pd.DataFrame([[1.0, 2.0, 3.0]], columns=objects([1, "1", 2]))
    there = zc.convert(frame, "pyarrow")
    moved = there.select([2, 0, 1])
    assert texts(zc.convert(moved, "pandas").columns.tolist()) == texts([2, 1, "1"])
    one = there.select([1])  # ambiguous: it could be either
    assert zc.convert(one, "pandas").columns.tolist() == ["1"]


def test_schemas_that_pyarrow_wrote_keep_their_labels() -> None:
    frame = pd.DataFrame({"a": [1.0], "__index_level_0__": [2.0]}, index=pd.Index([7]))
    plain = frame[["a"]]
    same(zc.convert(pa.Table.from_pandas(plain), "pandas"), plain)
    named = plain.rename_axis(index="k")
    same(zc.convert(pa.Table.from_pandas(named), "pandas"), named)
