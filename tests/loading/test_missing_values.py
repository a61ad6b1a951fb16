"""NaN of pandas is missing for ``nulls=`` in the loader, as in ``convert``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import zerocopy as zc

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

FRAME = pd.DataFrame(
    {
        "a": [1.0, np.nan, 3.0, np.nan, 5.0],
        "f": np.array([np.nan, 2, 3, 4, 5], "f4"),
        "i": pd.array([1, None, 3, 4, 5], "Int64"),
        "n": [1, 2, 3, 4, 5],
    }
)
SOURCES: dict[str, Any] = {
    "frame": FRAME,
    "sliced": pd.concat([FRAME, FRAME]).iloc[2:7],
    "dict": {name: FRAME[name] for name in ("a", "f", "n")},
    "arrow": FRAME.convert_dtypes(dtype_backend="pyarrow"),
}


def arrays(result: Any) -> list[np.ndarray[Any, Any]]:
    """Return the arrays of a result; values under a mask are 0."""
    if isinstance(result, dict):
        return [array for part in result.values() for array in arrays(part)]
    if isinstance(result, zc.Masked):
        return [np.where(result.mask, 0, result.values), np.asarray(result.mask)]
    return [np.asarray(result)]


POLICIES: list[Any] = [0, -1, "mask", {"a": 7, "f": 5, "i": 1}, {"a": "mask", "f": 1, "i": 0}]


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("nulls", POLICIES, ids=str)
@pytest.mark.parametrize(
    "options", [{}, {"shuffle": True}, {"layout": "matrix", "dtype": "float64"}], ids=str
)
def test_batches_have_the_values_of_convert(kind: str, nulls: Any, options: dict[str, Any]) -> None:
    source = SOURCES[kind]
    conversion = {name: value for name, value in options.items() if name != "shuffle"}
    try:
        whole = zc.convert(source, "numpy", nulls=nulls, **conversion)
    except zc.ZeroCopyError:
        with pytest.raises(zc.ZeroCopyError):
            list(zc.loader(source, to="numpy", batch_size=2, nulls=nulls, **options))
        return
    batches = list(zc.loader(source, to="numpy", batch_size=2, nulls=nulls, **options))
    joined = [np.concatenate(parts) for parts in zip(*map(arrays, batches), strict=True)]
    expected = arrays(whole)
    if options.get("shuffle"):
        orders = [np.concatenate([arrays(each["n"])[0] for each in some]) for some in (batches, [whole])]
        joined = [array[np.argsort(orders[0])] for array in joined]
        expected = [array[np.argsort(orders[1])] for array in expected]
    for array, other in zip(joined, expected, strict=True):
        np.testing.assert_array_equal(array, other)


def test_nan_without_nulls_stays() -> None:
    for nulls in (None, "nan"):
        batch = next(iter(zc.loader(FRAME[["a", "n"]], to="numpy", nulls=nulls)))
        assert np.isnan(batch["a"]).tolist() == [False, True, False, True, False]


def test_labels_that_are_not_text() -> None:
    frame = pd.DataFrame({1: [1.0, np.nan]})
    assert next(iter(zc.loader(frame, to="numpy", nulls=0)))["1"].tolist() == [1, 0]
    assert next(iter(zc.loader(frame, to="numpy", nulls={"1": 4})))["1"].tolist() == [1, 4]
