"""``soa_to_aos(aos_to_soa(records))`` gives the records again, or an error: fields and rows of size 0."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import zerocopy as zc

FORMATS: dict[str, object] = {
    "S0": "S0",
    "U0": "U0",
    "V0": "V0",
    "S3": "S3",
    "U2": "U2",
    "V5": "V5",
    "f4": "f4",
    ">i2": ">i2",
    "no values": ("f4", (0,)),
    "2 by 0": ("i4", (2, 0)),
    "nested S0": [("a", "S0"), ("b", "i4")],
    "nested": [("a", "f8"), ("b", "U1", (2,))],
}
SHAPES = [(0,), (1,), (3,), (0, 2), (2, 0), (2, 3), (1, 1), (2, 1, 2)]


def record_dtype(formats: tuple[str, ...]) -> np.dtype:
    fields = [(f"f{i}", FORMATS[name]) for i, name in enumerate(formats)]
    return np.dtype({"names": [n for n, _ in fields], "formats": [np.dtype(f) for _, f in fields]})


def filled(dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """Return records whose bytes are all different from zero where that is a valid value."""
    records = np.zeros(shape, dtype)
    for i, name in enumerate(dtype.names or ()):
        if dtype[name].kind in "if":
            records[name] = i + 1
    return records


def has_empty_items(dtype: np.dtype) -> bool:
    if dtype.names is not None:
        return any(has_empty_items(dtype[name]) for name in dtype.names)
    return dtype.base.itemsize == 0


@pytest.mark.parametrize("copy", [None, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_records_come_back_or_are_refused(shape: tuple[int, ...], copy: bool | None) -> None:
    for formats in (*((name,) for name in FORMATS), *itertools.permutations(FORMATS, 2)):
        dtype = record_dtype(formats)
        records = filled(dtype, shape)
        columns = zc.aos_to_soa(records, copy=copy)
        if len(shape) > 1 and has_empty_items(dtype):
            with pytest.raises(zc.UnsupportedConversionError, match="NumPy has no such field"):
                zc.soa_to_aos(columns)
            continue
        back = zc.soa_to_aos(columns)
        assert back.shape == shape[:1]  # other dimensions are those of the fields
        again = zc.aos_to_soa(back)
        assert same(columns, again), (formats, shape)


def same(a: dict, b: dict) -> bool:
    return a.keys() == b.keys() and all(
        same(a[name], b[name])
        if isinstance(a[name], dict)
        else a[name].shape == b[name].shape
        and a[name].dtype == b[name].dtype
        and bool((a[name] == b[name]).all())
        for name in a
    )


@pytest.mark.parametrize("kind", ["S", "U", "V"])
def test_fix_for_items_without_bytes_works(kind: str) -> None:
    columns = dict(zc.aos_to_soa(np.zeros((2, 3), [("x", f"{kind}0"), ("y", "f4")])))
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.soa_to_aos(columns)
    fix = str(caught.value).partition("To fix: ")[2].partition(" gives")[0]
    exec(fix, {"columns": columns})
    assert zc.soa_to_aos(columns).shape == (2,)


def test_rows_too_large_for_a_field_are_refused() -> None:
    column = np.broadcast_to(np.float64(0), (1, 1 << 29))
    with pytest.raises(zc.UnsupportedConversionError, match="NumPy has no such field"):
        zc.soa_to_aos({"x": column})
