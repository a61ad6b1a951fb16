"""Datasets of files are read by a fix, whose call removes what the values are refused for too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.pasting import pasted

import zerocopy as zc


def problems_of(make: Callable[[], Any], to: str, **options: Any) -> list[str]:
    """Return the calls of a refusal that do not work by themselves; none if it is not refused."""
    pytest.importorskip(to)
    plan = zc.explain(make(), to, **options)
    if plan.error is None:
        return []
    problems = [] if plan.error.calls else [f"no call: {plan.error}"]
    for code in plan.error.calls:
        try:
            pasted(code, {"x": make(), "zc": zc})
        except Exception as raised:  # noqa: BLE001
            problems.append(f"{code}: {raised}")
    return problems


@pytest.mark.parametrize("to", ["torch", "numpy", "polars"])
@pytest.mark.parametrize("kind", ["text", "fixed text", "dates", "records", "big-endian"])
@pytest.mark.parametrize("options", [{}, {"copy": False}, {"encode": True}], ids=str)
def test_the_fixes_of_datasets_of_files_remove_both_obstacles(
    kind: str, options: dict[str, Any], to: str
) -> None:
    h5py = pytest.importorskip("h5py")
    file = h5py.File.in_memory()
    seconds = np.arange(3).astype("M8[s]")
    values = {
        "text": ["a", "bb"],
        "fixed text": np.array([b"a", b"bb"]),
        "dates": seconds.astype(h5py.opaque_dtype(seconds.dtype)),
        "records": np.zeros(2, [("a", "f4"), ("b", "S3")]),
        "big-endian": np.ones(2, ">f4"),
    }
    file["x"] = values[kind]
    if kind == "records" and to == "torch" and "copy" in options:
        return  # the fields that remain lie between those of the records, which two rows do not show
    assert not problems_of(lambda: file["x"], to, **options)


@pytest.mark.parametrize("to", ["torch", "numpy", "polars"])
@pytest.mark.parametrize("kind", ["text", "fixed text", "dates", "durations", "records"])
@pytest.mark.parametrize("options", [{}, {"copy": False}, {"encode": True}], ids=str)
def test_the_fixes_of_arrays_of_zarr_remove_both_obstacles(
    kind: str, options: dict[str, Any], to: str
) -> None:
    zarr = pytest.importorskip("zarr")
    values = {
        "text": np.array(["a", "bb"], np.dtypes.StringDType()),
        "fixed text": np.array(["a", "bb"]),
        "dates": np.arange(3).astype("M8[s]"),
        "durations": np.arange(3).astype("m8[s]"),
        "records": np.zeros(2, [("a", "f4"), ("b", "i4")]),
    }[kind]
    x = zarr.create_array({}, shape=values.shape, dtype=values.dtype, zarr_format=2)
    x[:] = values
    assert not problems_of(lambda: x, to, **options)
