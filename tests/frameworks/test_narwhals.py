"""narwhals: frames and series are converted as the native objects that they wrap, not by Arrow streams."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.pasting import pasted

import zerocopy as zc

nw, pd, pl = (pytest.importorskip(name) for name in ("narwhals", "pandas", "polars"))
stable = pytest.importorskip("narwhals.stable.v2")


@pytest.mark.parametrize("module", [nw, stable])
@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
def test_nan_stays_nan(module: Any, make: Any) -> None:
    frame = module.from_native(make({"x": [1.0, np.nan]}))
    assert np.isnan(zc.convert(frame, "numpy")["x"][1])
    assert np.isnan(zc.convert(frame["x"], "numpy")[1])
    assert zc.convert(frame, "pyarrow")["x"].null_count == 0
    (batch,) = zc.loader(frame, to="numpy")
    assert np.isnan(batch["x"][1])


@pytest.mark.hazard("producers#narwhals-turns-nan-into-null")
def test_the_stream_of_a_frame_over_pandas_turns_nan_into_null() -> None:
    pa = pytest.importorskip("pyarrow")
    assert pa.table(nw.from_native(pd.DataFrame({"x": [np.nan]})))["x"].null_count == 1


def test_a_frame_is_aliased_as_its_native_one() -> None:
    frame = nw.from_native(pl.DataFrame({"x": [1.0, 2.0]}))
    result = zc.convert(frame, "numpy", copy=False)
    assert zc.explain(frame, "numpy").zero_copy
    assert zc.shares_memory(frame, result)
    assert zc.shares_memory(frame["x"], result["x"])
    assert zc.convert({"a": frame["x"]}, "pyarrow")["a"].to_pylist() == [1.0, 2.0]


def test_a_fix_names_the_native_object() -> None:
    lazy = nw.from_native(pl.LazyFrame({"x": [1.0, 2.0]}))
    for target in (lazy, [lazy]):
        with pytest.raises(zc.UnsupportedConversionError, match="has not run") as caught:
            zc.convert(target, "numpy")
        (call,) = caught.value.calls
        assert ".to_native().collect()" in call
    assert zc.explain(lazy, "numpy").error.calls == ('zc.convert(x.to_native().collect(), "numpy")',)
    assert pasted('zc.convert(x.to_native().collect(), "numpy")', {"zc": zc, "x": lazy})["x"].tolist() == [
        1,
        2,
    ]


def test_a_reason_names_the_native_object() -> None:
    chunks = pl.concat([pl.Series([1.0]), pl.Series([2.0])], rechunk=False)
    (reason,) = zc.explain(nw.from_native(chunks, series_only=True), "numpy").reasons
    assert "{x}.to_native().rechunk()" in [fix.source for fix in reason.fixes]


def test_narwhals_is_not_a_target() -> None:
    assert "narwhals" not in zc.frameworks()
