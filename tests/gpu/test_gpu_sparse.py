"""Sparse matrices of CuPy: to and from SciPy by transfers, to and from torch without a copy."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from helpers.gpu_arrays import MARKS, have

import zerocopy as zc

sp = pytest.importorskip("scipy.sparse")
pytestmark = [
    *(MARKS if isinstance(MARKS, list) else [MARKS]),
    pytest.mark.skipif(not have("cupy"), reason="CuPy is not installed"),
]
FORMATS = ("csr", "csc", "coo")


def sample(form: str):
    array = sp.csr_array(np.diag(np.arange(1, 7, dtype="f4"))).asformat(form)
    array.sum_duplicates()
    return array


def parts(matrix) -> list:
    names = ("data", "row", "col") if matrix.format == "coo" else ("data", "indices", "indptr")
    return [getattr(matrix, name) for name in names]


@pytest.mark.parametrize("form", FORMATS)
def test_scipy_arrays_are_transferred_and_back(form: str) -> None:
    x = sample(form)
    plan = zc.explain(x, "cupy")
    assert plan.copied_bytes == x.data.nbytes + sum(
        a.nbytes for a in (x.coords if form == "coo" else (x.indices, x.indptr))
    )
    y = zc.convert(x, to="cupy")
    assert type(y).__name__ == f"{form}_matrix"
    assert y.shape == x.shape
    back = zc.convert(y, to="scipy")
    assert back.has_canonical_format
    np.testing.assert_array_equal(back.toarray(), x.toarray())
    with pytest.raises(zc.CopyRequiredError):
        zc.convert(x, to="cupy", copy=False)


def test_wide_indices_are_cast_with_a_check() -> None:
    x = sample("csr")
    x.indices, x.indptr = x.indices.astype("i8"), x.indptr.astype("i8")
    assert "index-dtype" in {reason.code for reason in zc.explain(x, "cupy").reasons}
    assert [part.dtype for part in parts(zc.convert(x, to="cupy"))] == ["float32", "int32", "int32"]


def test_sparse_matrices_are_refused_by_dense_targets() -> None:
    y = zc.convert(sample("csr"), to="cupy")
    with pytest.raises(zc.UnsupportedConversionError, match="sparse") as caught:
        zc.convert(y, to="numpy")
    assert "x.toarray()" in caught.value.remedy


@pytest.mark.parametrize("form", ["csr", "csc"])
def test_cupy_and_torch_share_all_three_arrays(form: str) -> None:
    torch = importlib.import_module("torch")
    y = zc.convert(sample(form), to="cupy")
    assert zc.explain(y, "torch").zero_copy
    t = zc.convert(y, to="torch", copy=False)
    assert t.values().data_ptr() == y.data.data.ptr
    back = zc.convert(t, to="cupy", copy=False)
    assert [part.data.ptr for part in parts(back)] == [part.data.ptr for part in parts(y)]
    y.data[0] = 9
    torch.cuda.synchronize()
    assert zc.convert(t.values(), to="numpy").tolist() == [9, 2, 3, 4, 5, 6]
