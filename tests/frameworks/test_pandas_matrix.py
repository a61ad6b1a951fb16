"""Frames of one block as one matrix: the route gives what the plan gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import zerocopy as zc
from zerocopy._frameworks.pandas.columns import matrix, one_block, plain

pd = pytest.importorskip("pandas")


def _frame(values: Any, **options: Any) -> Any:
    return pd.DataFrame(values, **options)


def _frames() -> dict[str, Any]:
    values = np.arange(12.0).reshape(4, 3)
    plain = _frame(values, columns=list("abc"))
    other = _frame({"a": [1.0, 2.0], "b": [3.0, np.nan]})
    with_attribute = _frame(values)
    with_attribute["d"] = 1.0
    return {
        "a matrix": plain,
        "column-major": _frame(np.asfortranarray(values)),
        "its own copy": plain.copy(),
        "columns in another order": plain[["c", "a"]],
        "a slice of rows": plain.iloc[1:3].reset_index(drop=True),
        "every second column": plain.iloc[:, ::2],
        "NaN": other,
        "integers": _frame({"a": [1, 2], "b": [3, 4]}),
        "booleans": _frame({"a": [True, False], "b": [False, False]}),
        "no rows": plain.iloc[:0],
        "no columns": plain[[]],
        "one column": plain[["b"]],
        "two labels alike": _frame(values, columns=["a", "a", "b"]),
        "labels of numbers": _frame(values),
        "two blocks of one type": with_attribute,
        "two types": _frame({"a": [1, 2], "b": [1.5, 2.5]}),
        "text": _frame({"a": ["x", "y"]}),
        "times": _frame({"a": pd.to_datetime(["2020-01-01", "2021-01-01"])}),
        "objects": _frame({"a": [1, None]}, dtype=object),
        "nullable": _frame({"a": [1, 2]}, dtype="Int64"),
        "Arrow": _frame({"a": [1, 2]}).convert_dtypes(dtype_backend="pyarrow"),
        "reversed rows": plain.iloc[::-1].reset_index(drop=True),
        "one row": plain.iloc[:1],
        "equal rows in one place": _frame(np.broadcast_to(np.arange(3.0), (4, 3)), copy=False),
        "an index": plain.set_axis(list("wxyz")),
        "a named index": plain.rename_axis("row"),
    }


@pytest.mark.parametrize("to", ["numpy", "torch", "jax"])
@pytest.mark.parametrize("layout", ["columns", "records"])
def test_another_layout_does_not_take_the_route_of_matrices(to: str, layout: str) -> None:
    pytest.importorskip(to)
    for values in (np.zeros((2, 3), "f4"), np.asfortranarray(np.zeros((2, 3), "f4")), np.zeros((2, 1), "f4")):
        results = []
        for _ in range(3):
            try:
                result = zc.convert(_frame(values, copy=False), to, layout=layout)
            except zc.ZeroCopyError as error:
                results.append(error.code)
            else:
                results.append((type(result), getattr(result, "dtype", None), list(result)))
        assert (results[0][0] is dict) == (layout == "columns")
        assert str(results[1]) == str(results[2]) == str(results[0])


def test_a_write_to_the_frame_does_not_reach_a_matrix_unseen() -> None:
    """pandas writes in place to a block that no other frame shares; the alias is read-only on our side."""
    frame = _frame(np.zeros((3, 2)), columns=["a", "b"])
    for _ in range(2):
        matrix = zc.convert(frame, "numpy", layout="matrix")
        assert not matrix.flags.writeable
        assert zc.shares_memory(matrix, frame["b"].to_numpy(copy=False))
    kept = zc.convert(frame, "numpy", layout="matrix", copy=True)
    frame.iloc[0, 0] = 7
    assert kept[0, 0] == 0


def test_the_private_block_is_the_memory_of_the_public_call() -> None:
    """`one_block` reads the manager of blocks, which is private, for frames and for series."""
    compared = 0
    for name, frame in _frames().items():
        objects = [(frame, matrix), *[(frame.iloc[:, i], plain) for i in range(frame.shape[1])]]
        for obj, export in objects:
            try:
                array = None if one_block(obj) is None else export(obj)
            except (ValueError, TypeError):
                continue
            if array is None:
                continue
            public = obj.to_numpy(copy=False)
            # pandas 3.0 marks series without rows as writable.
            ours, theirs = array.__array_interface__, public.__array_interface__
            assert {**ours, "data": ours["data"][0]} == {**theirs, "data": theirs["data"][0]}, name
            assert not array.flags.writeable
            compared += 1
    assert compared >= 40
