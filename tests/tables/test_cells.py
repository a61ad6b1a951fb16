"""Objects whose cells are arrays or lists of numbers of one length: one tensor, and Arrow's lists."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from helpers.pasting import pasted

import zerocopy as zc

pa, pd = pytest.importorskip("pyarrow"), pytest.importorskip("pandas")

VECTOR = np.arange(3, dtype="f4")


def objects(*cells: Any) -> Any:
    return np.fromiter(cells, object, len(cells))


def series(*cells: Any) -> Any:
    return pd.Series(objects(*cells))


MAKE = pytest.mark.parametrize("make", [series, objects], ids=["pandas", "numpy"])


@MAKE
@pytest.mark.parametrize(
    "cells",
    [
        [VECTOR, VECTOR + 1],
        [VECTOR[::-1], np.arange(6, dtype="f4")[::2]],
        [np.ones((2, 3), "i2"), np.zeros((2, 3), "i2").T.copy().T],
        [np.array([True, False])],
        [np.array([1j, 2])] * 3,
        [np.empty(0, "f8")] * 2,
        [[1, 2], [3, 4]],
        [[1, 2], (3.5, 4)],
        [[[1], [2]], [[3], [4]]],
    ],
    ids=str,
)
def test_cells_of_one_shape_are_one_tensor(make: Callable[..., Any], cells: list[Any]) -> None:
    expected = np.stack(cells)
    column = make(*cells)
    plan = zc.explain(column, "torch")
    result = zc.convert(column, "torch").numpy()
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(result, expected)
    assert (plan.zero_copy, plan.copied_bytes) == (False, expected.nbytes)
    assert len(plan.reasons) == (expected.size > 0) or expected.size == 0
    assert not zc.shares_memory(column, result)
    if expected.size:
        assert "become dimensions of one tensor" in plan.reasons[0].why
        assert not any(np.shares_memory(result, cell) for cell in cells)
        with pytest.raises(zc.CopyRequiredError, match="separate objects"):
            zc.convert(column, "torch", copy=False)


def test_types_of_ml_dtypes_are_stacked() -> None:
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    cells = [np.array([1.5, 2], bfloat16), np.array([-1, 0.5], bfloat16)]
    result = zc.convert(series(*cells), "numpy")
    assert (result.dtype, result.tolist()) == (bfloat16, [[1.5, 2], [-1, 0.5]])


def test_tables_have_tensors_and_their_matrix() -> None:
    frame = pd.DataFrame({"emb": series(VECTOR, VECTOR + 1), "y": [1, 2]})
    batch = zc.convert(frame, "torch")
    assert (batch["emb"].shape, batch["y"].shape) == ((2, 3), (2,))
    matrix = zc.convert(frame[["emb"]], "numpy", layout="matrix")
    np.testing.assert_array_equal(matrix, np.stack(frame["emb"]))
    assert zc.convert(frame["emb"], "numpy", dtype="float64").dtype == np.float64
    assert zc.convert(frame, "numpy", layout="records")["emb"].shape == (2, 3)
    with pytest.raises(zc.UnsupportedConversionError, match="column of tensors"):
        zc.convert(frame, "numpy", layout="matrix")


def test_an_array_of_objects_is_numpys_own() -> None:
    column = objects(VECTOR, VECTOR)
    assert zc.convert(column, "numpy") is column
    assert zc.explain(column, "numpy").zero_copy


@MAKE
def test_missing_cells_are_nulls_of_rows(make: Callable[..., Any]) -> None:
    column = make(None, VECTOR, float("nan"), VECTOR + 1, pd.NA)
    with pytest.raises(zc.LossyConversionError, match="3 nulls in 5 rows") as caught:
        zc.convert(column, "numpy", dtype="float32")
    for call in caught.value.calls:
        pasted(call, {"x": column, "zc": zc})
    masked = zc.convert(column, "torch", nulls="mask")
    assert masked.mask.tolist() == [True, False, True, False, True]
    np.testing.assert_array_equal(masked.values.numpy()[[1, 3]], [VECTOR, VECTOR + 1])
    assert not zc.shares_memory(column, masked.mask)
    assert not zc.explain(column, "torch", nulls="mask").shares_memory
    filled = zc.convert(column, "torch", nulls=7)
    np.testing.assert_array_equal(filled.numpy(), [[7] * 3, VECTOR, [7] * 3, VECTOR + 1, [7] * 3])
    assert zc.convert(make([1, 2], None), "torch", nulls=0).tolist() == [[1, 2], [0, 0]]


@MAKE
@pytest.mark.parametrize(
    ("cells", "why"),
    [
        ([VECTOR, VECTOR, VECTOR[:2]], r"shape: row 2 has \(2,\), and row 0 has \(3,\)"),
        ([None, VECTOR, VECTOR[:2]], r"shape: row 2 has \(2,\), and row 1 has \(3,\)"),
        ([VECTOR, VECTOR.astype("f8")], "dtype: row 1 has float64, and row 0 has float32"),
        ([VECTOR, np.ones((1, 3), "f4")], r"row 1 has \(1, 3\)"),
        ([[1, 2], [3, 4], [5]], "length: row 2 has 1, and row 0 has 2"),
        ([[1, 2], [True, 4]], "booleans among numbers"),
        ([[1, 2**63], [1, 2]], "int64 cannot hold"),
    ],
    ids=lambda value: value if isinstance(value, str) else "cells",
)
def test_the_first_row_that_differs_is_named(make: Callable[..., Any], cells: Any, why: str) -> None:
    column = make(*cells)
    with pytest.raises(zc.UnsupportedConversionError, match=why) as caught:
        zc.convert(column, "torch")
    assert caught.value.calls
    for call in caught.value.calls:
        if cells[0] is not None:  # a fix of this obstacle leaves the nulls
            pasted(call, {"x": column, "zc": zc})
    plan = zc.explain(column, "torch")
    assert plan.error is not None
    assert plan.error.calls == caught.value.calls
    frame = pd.DataFrame({"a": column, "b": range(len(cells))})
    with pytest.raises(zc.UnsupportedConversionError, match=f"column 'a': .*{why}"):
        zc.convert(frame, "torch")
    assert zc.convert(frame, "torch", columns=["b"])["b"].tolist() == [*range(len(cells))]


@MAKE
@pytest.mark.parametrize("cells", [[VECTOR, VECTOR[:2], None], [[0.0, 1, 2], [0.0, 1], None]], ids=str)
def test_cells_of_different_lengths_are_padded_or_ragged(make: Callable[..., Any], cells: Any) -> None:
    column = make(*cells)
    padded = zc.convert(column, "torch", lists="pad", pad_value=9, nulls=7)
    assert padded.tolist() == [[0, 1, 2], [0, 1, 9], [7, 7, 7]]
    values, mask = zc.convert(column, "numpy", lists="pad", max_length=2, nulls="mask")
    assert (values[:2].tolist(), mask.tolist()) == ([[0, 1]] * 2, [[False] * 2] * 2 + [[True] * 2])
    frame = pd.DataFrame({"a": column[:2], "b": [1, 2]})
    ragged = zc.convert(frame, "numpy", lists="ragged")["a"]
    assert (ragged.values.tolist(), ragged.offsets.tolist()) == ([0, 1, 2, 0, 1], [0, 3, 5])
    assert zc.explain(frame, "numpy", lists="pad").copied_bytes
    with pytest.raises(zc.CopyRequiredError):
        zc.convert(frame, "numpy", lists="ragged", copy=False)


def test_cells_of_one_length_keep_their_dtype_when_padded() -> None:
    cube = series(np.ones((2, 3), "i2"), np.zeros((2, 3), "i2"))
    assert zc.convert(cube, "numpy", lists="pad").shape == (2, 2, 3)
    assert zc.convert(series(VECTOR, VECTOR[:2]), "numpy", lists="pad").dtype == VECTOR.dtype
    assert zc.convert(pd.Series([1.0, 2.0]), "numpy", lists="pad").tolist() == [1, 2]


@pytest.mark.parametrize(
    "cells",
    [["a", VECTOR], [3.0, VECTOR], [VECTOR, "a"], [["a"], ["b"]], [{}, {}], [[1, None], [2, 3]]],
    ids=str,
)
def test_other_objects_are_refused_as_before(cells: Any) -> None:
    with pytest.raises(zc.UnsupportedConversionError, match="Python objects"):
        zc.convert(series(*cells), "torch")


def test_arrow_gets_the_lists_that_pyarrow_makes() -> None:
    """The fast path and ``pyarrow.array`` give the same type, the same values and the same nulls."""
    generator = np.random.default_rng(3)
    choose = random.Random(3)
    for _ in range(150):
        dtype = choose.choice(["?", "b", "B", "h", "H", "i", "I", "q", "Q", "e", "f", "d"])
        count = choose.randint(1, 6)
        lengths = [choose.randint(0, 4)] * count if choose.random() < 0.5 else generator.integers(0, 5, count)
        cells: list[Any] = [(generator.random(length) * 100).astype(dtype) for length in lengths]
        if dtype in "efd" and len(cells[0]):
            cells[0][0] = np.nan
        if choose.random() < 0.5:
            cells.insert(choose.randint(0, count), choose.choice([None, pd.NA, float("nan")]))
        plain = [cell if isinstance(cell, np.ndarray) else None for cell in cells]
        expected = pa.array(plain, from_pandas=False)
        result = zc.convert(series(*cells), "pyarrow")
        assert result.type == expected.type
        assert result.null_count == expected.null_count
        result.validate(full=True)
        for got, wanted in zip(result.to_pylist(), expected.to_pylist(), strict=True):
            np.testing.assert_equal(got, wanted)


def test_lists_of_python_numbers_become_arrows_lists() -> None:
    cells = [[1, 2], None, [3], []]
    assert zc.convert(series(*cells), "pyarrow").to_pylist() == cells
    with pytest.raises(zc.ZeroCopyError):
        zc.convert(series([1, 2.5], [2**53 + 1]), "pyarrow")


def test_no_cell_is_read_element_by_element(monkeypatch: pytest.MonkeyPatch) -> None:
    """With pyarrow's objects, 20,000 rows of 768 numbers took 32 s."""
    from zerocopy.tables import object_column

    monkeypatch.setattr(object_column, "_alike", lambda *_: pytest.fail("compared one by one"))
    column = series(*[VECTOR] * 100)
    zc.convert(column, "torch")
    zc.convert(column, "pyarrow")
    zc.convert(column, "torch", encode=True)
    zc.convert(series(*[[1.0, 2.0]] * 100), "pyarrow")
    with pytest.raises(zc.UnsupportedConversionError, match="row 1 has float64"):
        zc.convert(series(VECTOR, VECTOR.astype("f8")), "torch")


@pytest.mark.parametrize("name", ["torch", "jax", "tensorflow"])
def test_cells_that_are_tensors_are_one_tensor(name: str) -> None:
    make, pd = pytest.importorskip(name), pytest.importorskip("pandas")
    ones = {"torch": "ones", "jax": "numpy.ones", "tensorflow": "ones"}[name]
    for part in ones.split("."):
        make = getattr(make, part)
    column = pd.Series([make((2,)), None, make((2,))], dtype=object)
    values, mask = zc.convert(column, "numpy", nulls="mask")
    np.testing.assert_array_equal(values[[0, 2]], np.ones((2, 2)))
    assert mask.tolist() == [False, True, False]
    assert not zc.explain(column, "numpy", nulls="mask").zero_copy


def test_tensors_of_bfloat16_keep_their_type() -> None:
    torch, pd = pytest.importorskip("torch"), pytest.importorskip("pandas")
    pair = [torch.ones(2, dtype=torch.bfloat16)] * 2
    assert zc.convert(pd.Series(pair, dtype=object), "torch").dtype is torch.bfloat16


@pytest.mark.parametrize("fault", ["shape", "dtypes", "grad"])
def test_tensors_that_differ_or_have_a_graph_are_refused(fault: str) -> None:
    torch, pd = pytest.importorskip("torch"), pytest.importorskip("pandas")
    other = {"shape": torch.ones(3), "dtypes": torch.ones(2).int(), "grad": torch.ones(2, requires_grad=True)}
    column = pd.Series([torch.ones(2), other[fault]], dtype=object)
    with pytest.raises(zc.UnsupportedConversionError, match=fault) as caught:
        zc.convert(column, "torch")
    (call,) = caught.value.calls
    assert len(pasted(call, {"zc": zc, "x": column})) == 2


@pytest.mark.parametrize("options", [{}, {"layout": "matrix"}, {"dtype": "float32"}])
def test_an_object_column_without_rows_is_float64(options: dict[str, Any]) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": pd.Series([], dtype=object), "b": pd.Series([], dtype="f8")})
    assert zc.explain(frame, "numpy", **options).possible
    result = zc.convert(frame, "numpy", **options)
    if "layout" in options:
        assert result.shape == (0, 2)
    else:
        assert result["a"].dtype == options.get("dtype", "float64")
    assert zc.convert(frame, "pyarrow")["a"].type == "null"
    assert zc.convert(np.array([], object), "numpy").dtype == object


def test_objects_that_contain_themselves_are_refused() -> None:
    """pyarrow overflowed the stack, and a list that has itself twice took all memory."""
    twice, nested = list[Any](), dict[str, Any]()
    twice += [twice, twice]
    nested["a"] = nested
    for cell, target in product((twice, nested, objects(twice)), ("numpy", "pyarrow")):
        with pytest.raises(zc.ZeroCopyError):
            zc.convert(series(cell), target)
