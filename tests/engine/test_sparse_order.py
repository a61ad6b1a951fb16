"""Sparse arrays whose framework says that their indices are sorted, and they are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import fix_cases

import zerocopy as zc

sp = pytest.importorskip("scipy.sparse")
pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")

UNSORTED = {(2, 0): 1.0, (0, 1): 2.0, (1, 2): 3.0}


def of_dok() -> Any:
    """Return COO of SciPy that is marked as canonical, in the order in which a DOK got its elements."""
    dok = sp.dok_array((3, 3))
    for place, value in UNSORTED.items():
        dok[place] = value
    coo = dok.tocoo()
    assert coo.coords[0].tolist() == [2, 0, 1]
    return coo


def of_torch() -> Any:
    """Return CSR of torch with unsorted columns, as its product of two CSR tensors can have."""
    torch = pytest.importorskip("torch")
    rows, columns, values = torch.tensor([0, 3, 4]), torch.tensor([0, 2, 1, 2]), torch.arange(1.0, 5)
    return torch.sparse_csr_tensor(rows, columns, values, (2, 3), check_invariants=False)


def dense(array: Any) -> np.ndarray:
    for method in ("toarray", "todense", "to_dense"):
        if hasattr(array, method):
            return np.asarray(getattr(array, method)())
    raise TypeError(type(array))


@pytest.mark.parametrize("make", [of_dok, of_torch])
@pytest.mark.parametrize("target", ["scipy", "torch", "jax", "sparse"])
def test_unsorted_indices_are_not_taken_for_sorted(make: Any, target: str) -> None:
    pytest.importorskip(target)
    x = make()
    expected = dense(x)
    options = {} if target != "jax" else {"dtype": "float32"}
    plan = zc.explain(x, target, **options)
    assert plan.possible
    if type(x).__module__.partition(".")[0] != target:
        texts = [*plan.warnings, *(reason.why for reason in plan.reasons)]
        assert any("not sorted" in text for text in texts)
    result = zc.convert(x, target, **options)
    np.testing.assert_array_equal(dense(result), expected)
    if target == "torch" and str(result.layout) == "torch.sparse_coo":
        assert not result.is_coalesced()
        np.testing.assert_array_equal(result.to_sparse_csr().to_dense().numpy(), expected)
    if target == "scipy":
        result = result.tocsr()
        result.sort_indices()
        assert (np.diff(result.indices[: result.indptr[1]]) > 0).all()
        np.testing.assert_array_equal(result.toarray(), expected)


def test_products_of_torch_convert_to_sparse() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("sparse")
    rng = torch.Generator().manual_seed(0)
    a = torch.rand(6, 6, generator=rng) * (torch.rand(6, 6, generator=rng) < 0.5)
    product = a.to_sparse_csr() @ a.to_sparse_csr()
    np.testing.assert_allclose(zc.convert(product, "sparse").todense(), product.to_dense().numpy())


def test_a_copy_of_a_frameworks_own_array_keeps_its_order() -> None:
    x = of_torch()
    copied = zc.convert(x, "torch", copy=True)
    assert copied.col_indices().tolist() == x.col_indices().tolist()
    assert copied.values().data_ptr() != x.values().data_ptr()


@pytest.mark.parametrize("shape", [(4, 3, 2), (5,)])
def test_the_fix_for_unsorted_coordinates_of_scipy_works(shape: tuple[int, ...]) -> None:
    pytest.importorskip("sparse")
    count = int(np.prod(shape))
    places = np.unravel_index(np.arange(count)[::-2], shape)
    x = sp.coo_array((np.arange(1.0, len(places[0]) + 1), places), shape)
    with pytest.raises(zc.CopyRequiredError, match="not sorted"):
        zc.convert(x, "sparse", copy=False)
    fix = next(fix for fix in zc.explain(x, "sparse").reasons[0].fixes)
    np.testing.assert_array_equal(zc.convert(x, "sparse").todense(), x.toarray())
    code = f"import numpy, sparse; zc.convert({fix.source.format(x='x')}, 'sparse')"
    result = fix_cases.paste(code, x, fix_cases.Recorder())
    np.testing.assert_array_equal(result.todense(), x.toarray())


@pytest.mark.parametrize("target", ["numpy", "torch", "jax", "tensorflow", "pandas", "pyarrow", "sparse"])
@pytest.mark.parametrize("kind", ["dok_array", "dok_matrix"])
@pytest.mark.parametrize("filled", [False, True])
def test_dok_arrays_are_not_converted_as_dicts(target: str, kind: str, filled: bool) -> None:
    pytest.importorskip(target)
    x = getattr(sp, kind)((2, 3), dtype="f4")
    if filled:
        x[1, 2] = 1.0
    assert not zc.explain(x, target).possible
    with pytest.raises(zc.UnsupportedConversionError, match=r"only SciPy has DOK|it is sparse") as raised:
        zc.convert(x, target)
    assert raised.value.code == "sparse"


@pytest.mark.parametrize("kind", ["BCOO", "BCSR", "COO", "CSR", "CSC"])
def test_the_fixes_for_sparse_arrays_of_jax_have_all_parts(kind: str) -> None:
    jax = pytest.importorskip("jax")
    from jax.experimental import sparse

    x = getattr(sparse, kind).fromdense(jax.numpy.eye(3, dtype="float32"))
    with pytest.raises(zc.UnsupportedConversionError, match="it is sparse") as raised:
        zc.convert(x, "numpy")
    whole, parts = (fix_cases.paste(call, x, fix_cases.Recorder()) for call in raised.value.calls)
    assert whole.tolist() == np.eye(3).tolist()
    assert len(parts) == (2 if kind == "BCOO" else 3)
    assert all(type(part) is np.ndarray for part in parts)


@pytest.mark.parametrize("target", ["sparse", "jax"])
def test_the_fixes_for_formats_of_torch_work(target: str) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip(target)
    plain = torch.arange(24.0).reshape(4, 6) % 3
    for x in (plain.to_sparse_bsr((2, 2)), plain.to_sparse_csc()):
        error = fix_cases.attempt(lambda x=x: zc.convert(x, target))
        for call in error.calls if error else ():
            result = fix_cases.paste(call, x, fix_cases.Recorder())
            np.testing.assert_array_equal(dense(result), plain.numpy())


@pytest.mark.parametrize("target", ["scipy", "torch", "jax", "sparse", "tensorflow"])
@pytest.mark.parametrize("length", [1, 3])
def test_csr_arrays_of_one_dimension_are_refused(target: str, length: int) -> None:
    pytest.importorskip(target)
    x = sp.csr_array(np.arange(1.0, length + 1))
    if len(x.shape) == 2:
        pytest.skip("this SciPy has no CSR arrays of one dimension")
    assert not zc.explain(x, target, copy=True).possible
    with pytest.raises(zc.UnsupportedConversionError, match="only SciPy has CSR arrays of one dimension"):
        zc.convert(x, target, copy=True)


def _with_duplicates(source: str, form: str) -> Any:
    """Return uint8 200 + 100 in one place, which is 44."""
    values = np.array([200, 100], "u1")
    if source == "scipy":
        x = sp.coo_array((values, ([0, 0], [1, 1])), (2, 2))
        return x if form == "coo" else sp.csr_array((values, [1, 1], [0, 2, 2]), (2, 2))
    if source == "torch":
        torch = pytest.importorskip("torch")
        places, pointers = torch.tensor([[0, 0], [1, 1]]), torch.tensor([0, 2, 2])
        if form == "coo":
            return torch.sparse_coo_tensor(places, torch.tensor(values), (2, 2), check_invariants=False)
        return torch.sparse_csr_tensor(
            pointers, places[1], torch.tensor(values), (2, 2), check_invariants=False
        )
    jax, sparse = pytest.importorskip("jax"), pytest.importorskip("jax.experimental.sparse")
    return sparse.BCOO((jax.numpy.asarray(values), jax.numpy.array([[0, 1], [0, 1]])), shape=(2, 2))


@pytest.mark.hazard("producers#sums-of-duplicates")
@pytest.mark.parametrize(
    ("source", "form"),
    [("scipy", "coo"), ("scipy", "csr"), ("torch", "coo"), ("torch", "csr"), ("jax", "coo")],
)
@pytest.mark.parametrize("target", ["scipy", "torch", "jax", "sparse", "tensorflow"])
def test_values_are_not_cast_before_duplicates_are_added_up(source: str, form: str, target: str) -> None:
    pytest.importorskip(target)
    x = _with_duplicates(source, form)
    expected = dense(zc.convert(x, "scipy")).astype("int32")
    assert expected.max() == 44
    plan = zc.explain(x, target, dtype="int32")
    if plan.possible:  # a copy that is summed first
        assert plan.reasons[0].code == "not-canonical"
        np.testing.assert_array_equal(dense(zc.convert(x, target, dtype="int32")), expected)
        return
    with pytest.raises(zc.UnsupportedConversionError) as raised:
        zc.convert(x, target, dtype="int32")
    assert not plan.possible
    if "duplicate" not in raised.value.why:
        return  # the target needs another format, or unique indices in any case
    result = fix_cases.paste(raised.value.calls[0], x, fix_cases.Recorder())
    if target != "tensorflow":
        np.testing.assert_array_equal(dense(result), expected)
