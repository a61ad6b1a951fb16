"""Sparse arrays between every pair of frameworks that have them: parts, flags, refusals."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from helpers.pasting import pasted
from helpers.tiers import sample_size, sampled

import zerocopy as zc
from zerocopy import registry
from zerocopy.framework import hook_of
from zerocopy.sparse_ragged.hook import CompoundHook
from zerocopy.sparse_ragged.sparse import COMPRESSED, SparseLayout

sp = pytest.importorskip("scipy.sparse")

#: Frameworks with sparse arrays that are installed here.
SPARSE = [
    f.name
    for f in registry.known()
    if f.installed()
    and f.has_hook("compound")
    and f.device_kinds[0] == "cpu"
    and hook_of(f, CompoundHook).accepts(SparseLayout("coo", (1, 1)))
]
FORMATS = ("csr", "csc", "bsr", "coo")
DTYPES = ("float32", "float64", "int32", "int64", "bool", "complex64")


def sample(form: str, dtype: str = "float32", index: str = "int64") -> Any:
    """Return a canonical SciPy array of shape (6, 8) with 9 elements, whose index arrays have one type."""
    rng = np.random.default_rng(5)
    dense = np.zeros((6, 8), dtype)
    places = rng.permutation(48)[:9]
    dense.flat[places] = np.arange(1, 10).astype(dtype)
    array = sp.csr_array(dense).asformat(form)
    array.sum_duplicates()
    if form == "coo":
        array.coords = tuple(indices.astype(index) for indices in array.coords)
    else:
        array.indices, array.indptr = array.indices.astype(index), array.indptr.astype(index)
    return array


def source_of(name: str, form: str, dtype: str = "float32", index: str = "int64") -> Any:
    """Return the sample as an array of a framework."""
    try:
        return zc.convert(sample(form, dtype, index), to=name)
    except zc.ZeroCopyError as error:
        pytest.skip(f"{name} cannot hold it: {error.why}")


def dense(array: Any) -> np.ndarray:
    """Return the elements of a sparse array of any framework, by the framework's own function."""
    for method in ("toarray", "to_dense", "todense"):
        if hasattr(array, method):
            return np.asarray(getattr(array, method)())
    import tensorflow as tf

    return tf.sparse.to_dense(tf.sparse.reorder(array)).numpy()


PAIRS = [(source, target) for source in SPARSE for target in SPARSE]


@pytest.mark.parametrize("copy", [None, True, False])
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_every_pair_keeps_the_elements(source: str, target: str, form: str, copy: bool | None) -> None:
    x = source_of(source, form)
    expected = dense(sample(form))
    plan = zc.explain(x, target, copy=copy)
    if not plan.possible:
        with pytest.raises(type(plan.error)) as caught:
            zc.convert(x, to=target, copy=copy)
        assert str(caught.value) == str(plan.error)
        assert caught.value.remedy
        assert copy is False or "no" in caught.value.why
        return
    for _ in range(2):  # the slow path, then the route that it keeps
        result = zc.convert(x, to=target, copy=copy)
        assert registry.by_type(type(result)).name == target
        np.testing.assert_array_equal(dense(result), expected)
        assert zc.shares_memory(x, result) == plan.shares_memory
        if copy is True:
            assert not zc.shares_memory(x, result)
        if copy is False:
            assert plan.zero_copy
    assert (plan.copied_bytes == 0) == plan.zero_copy


@pytest.mark.hazard("producers#constructors-of-scipy")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("form", COMPRESSED)
def test_scipy_and_torch_share_all_three_arrays(form: str, index: str, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    x = sample(form, dtype, index)
    plan = zc.explain(x, "torch")
    assert plan.zero_copy
    assert plan.aliased_bytes == x.data.nbytes + x.indices.nbytes + x.indptr.nbytes
    t = zc.convert(x, to="torch", copy=False)
    pointers, indices = (t.ccol_indices, t.row_indices) if form == "csc" else (t.crow_indices, t.col_indices)
    assert t.layout is getattr(torch, f"sparse_{form}")
    assert t.values().data_ptr() == x.data.ctypes.data
    assert indices().data_ptr() == x.indices.ctypes.data
    assert pointers().data_ptr() == x.indptr.ctypes.data
    back = zc.convert(t, to="scipy", copy=False)
    assert type(back) is getattr(sp, f"{form}_array")
    assert back.data.ctypes.data == x.data.ctypes.data
    x.data[0] = 0
    np.testing.assert_array_equal(back.toarray(), x.toarray())
    np.testing.assert_array_equal(dense(t), x.toarray())


def test_coordinates_of_torch_are_rows_of_one_array_in_scipy_and_alias_back() -> None:
    torch = pytest.importorskip("torch")
    t = torch.eye(4).to_sparse_coo()
    x = zc.convert(t, to="scipy", copy=False)
    assert [indices.ctypes.data for indices in x.coords] == [row.data_ptr() for row in t.indices()]
    assert x.has_canonical_format
    again = zc.convert(x, to="torch", copy=False)
    assert again.is_coalesced()
    assert again.indices().data_ptr() == t.indices().data_ptr()


def test_separate_coordinates_are_joined_with_a_reason() -> None:
    pytest.importorskip("torch")
    x = sample("coo")
    plan = zc.explain(x, "torch")
    assert [reason.code for reason in plan.reasons] == ["separate-coordinates"]
    assert plan.copied_bytes == sum(indices.nbytes for indices in x.coords)
    with pytest.raises(zc.CopyRequiredError, match="coordinates"):
        zc.convert(x, to="torch", copy=False)


@pytest.mark.parametrize("form", FORMATS)
def test_index_types_that_differ_are_cast_with_a_reason(form: str) -> None:
    pytest.importorskip("torch")
    x = sample(form, index="int32")
    if form != "coo":
        x.indptr = x.indptr.astype("int64")
    plan = zc.explain(x, "torch")
    expected = {"separate-coordinates"} if form == "coo" else {"index-dtype"}
    assert {reason.code for reason in plan.reasons} == expected
    result = zc.convert(x, to="torch")
    np.testing.assert_array_equal(dense(result), x.toarray())


def test_jax_without_64_bits_casts_indices_that_fit_and_refuses_others(run_warm) -> None:
    pytest.importorskip("jax")
    process = run_warm(
        """
import numpy as np, scipy.sparse as sp, zerocopy as zc
x = sp.csr_array(np.eye(4, dtype="f4"))
x.indices, x.indptr = x.indices.astype("i8"), x.indptr.astype("i8")
y = zc.convert(x, to="jax")
assert str(y.indices.dtype) == "int32", y.indices.dtype
assert {r.code for r in zc.explain(x, "jax").reasons} >= {"index-dtype"}
wide = sp.csr_array((1, 2**40), dtype="f4")
wide.data, wide.indices, wide.indptr = np.ones(1, "f4"), np.array([2**39]), np.array([0, 1])
try:
    zc.convert(wide, to="jax")
except zc.LossyConversionError as error:
    assert "549755813888" in str(error), error
else:
    raise SystemExit("not refused")
"""
    )
    assert process.returncode == 0, process.stderr


@pytest.mark.parametrize("form", ["coo", "csr"])
def test_flags_of_jax_are_kept(form: str) -> None:
    pytest.importorskip("jax")
    x = sample(form, index="int32")
    x.sum_duplicates()
    y = zc.convert(x, to="jax")
    assert zc.convert(x, to="scipy", copy=True).has_canonical_format
    assert y.indices_sorted
    assert y.unique_indices
    assert zc.convert(y, to="scipy").has_canonical_format
    unsorted = sp.csr_array((np.ones(2, "f4"), np.array([1, 0], "i4"), np.array([0, 2], "i4")), shape=(1, 2))
    y = zc.convert(unsorted, to="jax")
    assert not y.indices_sorted
    assert not zc.convert(y, to="scipy").has_sorted_indices


@pytest.mark.hazard("producers#padding-of-jax")
def test_padding_of_jax_is_refused() -> None:
    pytest.importorskip("jax")
    from jax.experimental import sparse

    padded = sparse.BCOO.fromdense(np.eye(3, dtype="f4"), nse=5)
    assert int(padded.indices.max()) == 3  # the hazard: out of bounds for all other frameworks
    with pytest.raises(zc.UnsupportedConversionError, match="padding") as caught:
        zc.convert(padded, to="scipy")
    fixed = pasted(caught.value.calls[0], {"zc": zc, "x": padded})
    np.testing.assert_array_equal(fixed.toarray(), np.eye(3))


@pytest.mark.parametrize("form", ["BCOO", "BCSR"])
def test_negative_indices_of_jax_are_refused(form: str) -> None:
    jax = pytest.importorskip("jax")
    from jax.experimental import sparse

    x = sparse.BCOO((np.ones(2, "f4"), np.array([[0, -1], [1, 1]])), shape=(3, 3))
    if form == "BCSR":
        x = sparse.BCSR((np.ones(2, "f4"), np.array([-1, 1]), np.array([0, 1, 2, 2])), shape=(3, 3))
    assert x.todense()[0, 2] == 1  # JAX counts -1 from the end
    for to in set(SPARSE) - {"jax"}:
        with pytest.raises(zc.UnsupportedConversionError, match="negative") as caught:
            zc.convert(x, to)
        assert caught.value.code == "out-of-bounds"
        assert not zc.explain(x, to).possible
        fixed = pasted(caught.value.calls[0], {"zc": zc, "x": x, "jax": jax})
        np.testing.assert_array_equal(dense(fixed), x.todense())


@pytest.mark.parametrize("form", ["csr", "csc", "bsr"])
def test_row_pointers_outside_the_array_are_not_followed(run_warm, form: str) -> None:
    setup = f"""
        import mmap, os
        import numpy as np, scipy.sparse as sp
        import zerocopy as zc
        file = os.memfd_create("indices")
        os.ftruncate(file, 8192)
        pages = mmap.mmap(file, 8192)
        indices = np.frombuffer(pages, np.int32, 1024)
        indices[:] = np.arange(1024)
        os.ftruncate(file, 4096)  # reading after the indices ends the process
        x = sp.{form}_array(np.eye(3))
        shape = (1024, 1, 1) if {form!r} == "bsr" else 1024
        x.data, x.indices, x.indptr = np.ones(shape), indices, np.array([0, 10**6, 1024, 1024], np.int32)
        x.__dict__.pop("_has_canonical_format", None), x.__dict__.pop("_has_sorted_indices", None)
        """
    for flag in ("has_canonical_format", "has_sorted_indices")[: sample_size(2, 1)]:
        assert run_warm(setup + f"x.{flag}").returncode < 0  # the hazard
    attempts = f"""
        calls = [zc.convert, lambda x, to: zc.convert(x, to, validate="full"), lambda x, to: zc.view(x)]
        for to in {set(SPARSE) - {"scipy"}}:
            assert not zc.explain(x, to).possible
            for call in calls:
                try:
                    call(x, to)
                except zc.ZeroCopyError as error:
                    assert error.code in ("invalid-sparse", "sparse"), error.code
                else:
                    raise SystemExit(to)
        """
    done = run_warm(setup + attempts)
    assert done.returncode == 0, (done.returncode, done.stderr)


@pytest.mark.parametrize("target", sorted(set(SPARSE) - {"scipy"}))
@pytest.mark.parametrize("form", FORMATS)
def test_the_fast_path_keeps_the_rule_of_index_types(target: str, form: str) -> None:
    """The route that the first array leaves does not convert arrays whose indices have other types."""
    x = sample(form, index="int64")
    try:
        zc.convert(x, to=target)
    except zc.ZeroCopyError as error:
        pytest.skip(f"{target} cannot hold it: {error.why}")
    expected = x.toarray()
    for narrow in ("int8", "uint8", "int16", "uint32", "uint64", "int32"):
        for both in (True, False):
            y = sample(form, index="int64")
            if form == "coo":
                first, second = y.coords
                y.coords = first.astype(narrow), second.astype(narrow) if both else second
            else:
                y.indices = y.indices.astype(narrow)
                y.indptr = y.indptr.astype(narrow) if both else y.indptr
            result = zc.convert(y, target)
            np.testing.assert_array_equal(dense(result), expected)
            parts = hook_of(registry.by_name(target), CompoundHook).read(result)[1][1:]
            types = {zc.view(part).dtype.name for part in parts}
            assert types in ({"int32"}, {"int64"}), (narrow, both, types)


#: Each place is filled up to three times, in any order.
UNSORTED = {"csr": (4, 5), "csc": (4, 5), "bsr": (6, 8), "coo": (3, 4, 2)}


def unsorted(form: str, dtype: Any, repeated: bool) -> Any:
    """Return an array of SciPy with unsorted indices; with duplicates if `repeated`."""
    shape = UNSORTED[form]
    rng = np.random.default_rng(0)
    places = np.array(list(np.ndindex(*shape)))
    places = places[rng.permutation(len(places))[: 3 * len(places) // 4]]
    if form != "coo":
        places = places[np.argsort(places[:, 0 if form != "csc" else 1], kind="stable")]
    places = np.repeat(places, 3, axis=0) if repeated else places
    values = rng.integers(0, 100, len(places)).astype(dtype)
    if form == "coo":
        return sp.coo_array((values, tuple(places.T)), shape=shape)
    main, other = (1, 0) if form == "csc" else (0, 1)
    size = shape[main] if form != "bsr" else 3
    if form == "bsr":
        places = places[places[:, 0] < 3]
        places = places[places[:, 1] < 4]
        values = rng.integers(0, 100, (len(places), 2, 2)).astype(dtype)
    pointers = np.concatenate([[0], np.cumsum(np.bincount(places[:, main], minlength=size))])
    parts = (values, places[:, other].copy(), pointers)
    return getattr(sp, f"{form}_array")(parts, shape=shape)


@pytest.mark.hazard("producers#duplicates-in-torch")
@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.parametrize("dtype", ["uint8", "bool", "int64", "float64", "complex64"])
@pytest.mark.parametrize(
    ("target", "form"),
    [("torch", f) for f in ("csr", "csc", "bsr")] + [("sparse", f) for f in ("csr", "csc", "coo")],
)
def test_targets_that_need_order_get_sorted_and_summed_copies(
    target: str, form: str, dtype: str, repeated: bool
) -> None:
    """In the type of the array: 200 + 100 in uint8 is 44."""
    pytest.importorskip(target)
    x = unsorted(form, dtype, repeated)
    parts = [part.copy() for part in hook_of(registry.by_name("scipy"), CompoundHook).read(x)[1]]
    plan = zc.explain(x, target)
    result = zc.convert(x, target)
    expected = x.toarray()
    np.testing.assert_array_equal(dense(result), expected)
    back = zc.convert(result, "scipy", copy=False)
    assert back.has_canonical_format
    assert plan.reasons[0].code == "not-canonical"
    assert (plan.zero_copy, plan.shares_memory) == (False, zc.shares_memory(x, result))
    assert plan.leaves[".data"].copied_bytes == back.data.nbytes
    for part, before in zip(hook_of(registry.by_name("scipy"), CompoundHook).read(x)[1], parts, strict=True):
        np.testing.assert_array_equal(part, before)  # the source is untouched
    refused = zc.explain(x, target, copy=False)
    with pytest.raises(zc.CopyRequiredError, match="sorted and unique") as caught:
        zc.convert(x, target, copy=False)
    assert refused.error.code == caught.value.code == "not-canonical"
    if dtype == "uint8":
        np.testing.assert_array_equal(dense(zc.convert(x, target, dtype="int32")), expected)


def test_an_unsorted_array_with_invalid_pointers_is_refused() -> None:
    pytest.importorskip("torch")
    x = unsorted("csr", "float32", True)
    x.indptr[2] = 0
    with pytest.raises(zc.UnsupportedConversionError, match="indptr goes down"):
        zc.convert(x, "torch")


@pytest.mark.hazard("producers#duplicates-in-torch")
def test_torch_computes_other_values_with_duplicates() -> None:
    """The hazard behind the refusal: 1 and 2 in one place are 3 when dense, and 9 when squared."""
    torch = pytest.importorskip("torch")
    zc.convert(sample("csr"), to="torch")  # torch has given its warning
    parts = torch.tensor([0, 2]), torch.tensor([1, 1]), torch.tensor([1.0, 2.0])
    t = torch.sparse_csr_tensor(*parts, size=(1, 2), check_invariants=False)
    assert t.to_dense().tolist() == [[0, 3]]
    assert (t * t).to_dense().tolist() != [[0, 9]]


def test_explain_reports_order_and_duplicates() -> None:
    pytest.importorskip("tensorflow")
    coords = (np.array([1, 0, 0]), np.array([0, 1, 1]))
    x = sp.coo_array((np.ones(3, "f4"), coords), shape=(2, 2))
    warnings = zc.explain(x, "tensorflow").warnings
    assert any("not sorted" in line for line in warnings)
    assert any("duplicate" in line for line in warnings)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("bad", [-1, 99])
def test_indices_out_of_range_are_refused_by_full_validation(form: str, bad: int) -> None:
    pytest.importorskip("torch")
    x = sample(form)
    (x.coords[1] if form == "coo" else x.indices)[2] = bad
    with pytest.raises(zc.UnsupportedConversionError, match=f"index {bad} at") as caught:
        zc.convert(x, to="torch", validate="full")
    assert caught.value.code == "out-of-bounds"


@pytest.mark.parametrize("fault", ["short data", "short indptr", "last", "first", "falls"])
def test_parts_that_do_not_fit_are_refused(fault: str) -> None:
    pytest.importorskip("torch")
    x = sample("csr")
    zc.convert(x, to="torch")  # the route is kept, and checks too
    if fault == "short data":
        x.data = x.data[:-1]
    elif fault == "short indptr":
        x.indptr = x.indptr[:-1]
    elif fault == "last":
        x.indptr[-1] = 100
    elif fault == "first":
        x.indptr[0] = 1
    else:
        x.indptr[2] = 100
    options = {"validate": "full"} if fault == "falls" else {}
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.convert(x, to="torch", **options)
    assert caught.value.code == "invalid-sparse"
    assert not zc.explain(x, "torch", **options).possible


@pytest.mark.parametrize("name", SPARSE)
def test_dense_targets_refuse_with_a_call_that_works(name: str) -> None:
    x = source_of(name, "coo")
    with pytest.raises(zc.UnsupportedConversionError, match="sparse") as caught:
        zc.convert(x, to="numpy")
    names = {"zc": zc, "x": x, "numpy": np}
    if name == "tensorflow":
        import tensorflow

        names["tensorflow"] = tensorflow
    np.testing.assert_array_equal(pasted(caught.value.calls[0], names), sample("coo").toarray())


@pytest.mark.parametrize("name", ["scipy", "sparse"])
def test_dense_arrays_are_refused_with_a_call_that_works(name: str) -> None:
    module = pytest.importorskip(name)
    x = np.eye(3, dtype="f4")
    with pytest.raises(zc.UnsupportedConversionError, match="dense") as caught:
        zc.convert(x, to=name)
    made = pasted(
        caught.value.calls[0], {"scipy": __import__("scipy.sparse"), name: module, "x": x, "zc": zc}
    )
    np.testing.assert_array_equal(dense(made), x)


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_results_keep_the_memory_alive(source: str, target: str) -> None:
    x = source_of(source, "coo")
    expected = dense(x)
    try:
        result = zc.convert(x, to=target)
    except zc.ZeroCopyError as error:
        pytest.skip(error.why)
    del x
    gc.collect()
    np.testing.assert_array_equal(dense(result), expected)


def test_a_result_is_freed_with_its_source() -> None:
    pytest.importorskip("torch")
    x = sample("csr")
    watched = weakref.ref(x)
    result = zc.convert(x, to="torch")
    del x
    gc.collect()
    assert watched() is None or result is not None
    del result
    gc.collect()
    assert watched() is None


def test_dtype_casts_the_values_alone() -> None:
    pytest.importorskip("torch")
    x = sample("csr", "float64")
    t = zc.convert(x, to="torch", dtype="float32")
    assert str(t.dtype) == "torch.float32"
    assert t.col_indices().data_ptr() == x.indices.ctypes.data


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_requires_grad_is_refused_with_a_call_that_works() -> None:
    torch = pytest.importorskip("torch")
    t = torch.eye(3).to_sparse_csr().requires_grad_()
    with pytest.raises(zc.UnsupportedConversionError, match="requires grad") as caught:
        zc.convert(t, to="scipy")
    fixed = pasted(caught.value.calls[0], {"zc": zc, "x": t})
    np.testing.assert_array_equal(fixed.toarray(), np.eye(3))


def test_fill_values_other_than_zero_are_refused() -> None:
    sparse = pytest.importorskip("sparse")
    x = sparse.COO.from_numpy(np.array([[1.0, 2.0], [1.0, 1.0]]), fill_value=1.0)
    with pytest.raises(zc.UnsupportedConversionError, match=r"missing elements are 1\.0"):
        zc.convert(x, to="scipy")


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0), (2, 2)])
@pytest.mark.parametrize("form", FORMATS)
def test_arrays_without_elements(form: str, shape: tuple[int, int]) -> None:
    pytest.importorskip("torch")
    x = sp.csr_array(shape, dtype="f4").asformat(form)
    try:
        t = zc.convert(x, to="torch")
    except zc.UnsupportedConversionError:
        assert form == "bsr"  # SciPy's block size can be larger than the array
        return
    assert tuple(t.shape) == shape
    back = zc.convert(t, to="scipy")
    assert back.shape == shape
    assert back.nnz == 0


def test_scipy_matrices_and_arrays_of_other_dimensions() -> None:
    pytest.importorskip("torch")
    matrix = sp.csr_matrix(np.eye(3))
    assert type(zc.convert(matrix, to="torch")).__name__ == "Tensor"
    line = sp.coo_array(np.array([0.0, 1.0, 0.0, 2.0]))
    t = zc.convert(line, to="torch")
    np.testing.assert_array_equal(dense(t), [0, 1, 0, 2])
    with pytest.raises(zc.UnsupportedConversionError, match="only SciPy has LIL"):
        zc.convert(sp.lil_array((2, 2)), to="torch")


# -- dtypes and shapes that a framework lacks: explain and convert agree ---------------------------


def same_outcome(x: Any, target: str, **options: Any) -> Any:
    """Check that the plan and the conversion agree; return the result, or None for a refusal."""
    plan = zc.explain(x, target, **options)
    for _ in range(2):  # the slow path, then the route that it keeps
        try:
            result = zc.convert(x, to=target, **options)
        except zc.ZeroCopyError as error:
            assert plan.error is not None, (target, options, error)  # noqa: PT017
            assert str(plan.error) == str(error)  # noqa: PT017
            assert error.code not in ("producer-raised", "target-raised"), error  # noqa: PT017
            result = None
        else:
            assert plan.possible, (target, options, plan.error)
            assert plan.shares_memory == zc.shares_memory(x, result), (target, options, str(plan))
            assert plan.zero_copy <= plan.shares_memory
    return result


def odd_dtypes() -> list[np.dtype]:
    """Return dtypes that some framework of sparse or ragged arrays lacks."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    names = ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "int4")
    return [
        *(np.dtype(name) for name in ("f2", "g", "G", "M8[ns]", "m8[s]", "U3", "S3", "O")),
        *(np.dtype(getattr(ml_dtypes, name)) for name in names),
    ]


def with_dtype(name: str, form: str, dtype: np.dtype) -> Any:
    """Return a sparse array of SciPy or PyData's sparse over values of any dtype, without zerocopy."""
    values = np.arange(1, 4).astype("i8" if dtype.kind in "mMO" else "f4").astype(dtype)
    if name == "scipy":
        x = getattr(sp, f"{form}_array")(np.eye(3))
        x.data = values  # the constructor casts or refuses some of them
        return x
    sparse = pytest.importorskip("sparse")
    return sparse.COO(np.arange(3)[None].repeat(2, 0), values, shape=(3, 3))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("target", SPARSE)
@pytest.mark.parametrize(("source", "form"), [("scipy", "csr"), ("scipy", "coo"), ("sparse", "coo")])
def test_explain_agrees_for_every_dtype(source: str, form: str, target: str) -> None:
    warm = with_dtype(source, form, np.dtype("f4"))
    has_format = zc.explain(warm, target).possible
    for number, dtype in enumerate(odd_dtypes()):
        x = with_dtype(source, form, dtype)
        if has_format:
            zc.convert(warm, to=target)  # keeps a route, which must refuse the other dtypes
        calls = [{}, {"copy": True}, {"copy": False}, {"dtype": "float32"}]
        for (options,) in sampled(2, calls, first=number + len(form + target)):
            same_outcome(x, target, **options)
        error = zc.explain(x, target).error
        for call in error.calls if error is not None and has_format else ():
            if "jax_enable_x64" not in call:
                pasted(call, {"x": x, "zc": zc})
        if dtype.isbuiltin == 1 and dtype.char in "gGmMUSO" and source != target:
            assert error.code == "missing-dtype"
            assert bool(error.calls) == (dtype.kind in "mMfc"), (dtype, error)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support:UserWarning")
def test_gcxs_refuses_dtypes_that_its_compiled_functions_lack() -> None:
    """Hazard: the constructor of GCXS runs functions of Numba, which lacks float16."""
    sparse = pytest.importorskip("sparse")
    torch = pytest.importorskip("torch")
    x = with_dtype("scipy", "csr", np.dtype("f2"))
    with pytest.raises(Exception, match="float16"):
        sparse.GCXS((x.data, x.indices, x.indptr), shape=x.shape, compressed_axes=(0,)) @ np.ones((3, 3))
    for source in (x, torch.eye(3, dtype=torch.float16).to_sparse_csr()):
        with pytest.raises(zc.UnsupportedConversionError, match="sparse has no float16") as caught:
            zc.convert(source, to="sparse")
        assert caught.value.code == "missing-dtype"
        for call in caught.value.calls:
            result = pasted(call, {"x": source, "zc": zc, "torch": torch})
            values = [1, 2, 3] if source is x else [1, 1, 1]
            np.testing.assert_array_equal(dense(result), np.diag(values))
    coo = zc.convert(with_dtype("scipy", "coo", np.dtype("f2")), to="sparse")
    assert (coo.dtype, coo.todense().diagonal().tolist()) == ("f2", [1, 2, 3])  # COO compiles nothing


def without_dimensions(name: str, count: int) -> Any:
    """Return a COO array of shape () with `count` elements, without zerocopy."""
    if name == "sparse":
        sparse = pytest.importorskip("sparse")
        return sparse.COO(np.zeros((0, count), int), np.full(count, 5, "f4"), shape=())
    if name == "torch":
        torch = pytest.importorskip("torch")
        return torch.sparse_coo_tensor(
            torch.zeros((0, count), dtype=torch.int64), torch.full((count,), 5.0), ()
        )
    sparse = pytest.importorskip("jax.experimental.sparse")
    return sparse.BCOO((np.full(count, 5, "f4"), np.zeros((count, 0), "i4")), shape=())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("target", SPARSE)
@pytest.mark.parametrize("source", ["sparse", "torch", "jax"])
def test_explain_agrees_for_arrays_without_dimensions(source: str, target: str, count: int) -> None:
    x = without_dimensions(source, count)
    for options in ({}, {"copy": True}, {"copy": False}, {"validate": "full"}, {"dtype": "float64"}):
        result = same_outcome(x, target, **options)
        if result is not None and target != "tensorflow":
            assert tuple(result.shape) == ()
            assert float(dense(result)) == 5 * count
    if target == "scipy":
        with pytest.raises(zc.UnsupportedConversionError, match="one dimension or more") as caught:
            zc.convert(x, to="scipy")
        (call,) = caught.value.calls
        assert pasted(call, {"x": x, "zc": zc}).toarray().tolist() == [5.0 * count]


@pytest.mark.parametrize("target", SPARSE)
def test_an_own_array_without_bytes_shares_none(target: str) -> None:
    for shape in ((3,), (3, 3)):
        try:
            x = zc.convert(sp.coo_array(shape, dtype="f4"), to=target)
        except zc.ZeroCopyError:
            continue
        for options in ({}, {"copy": False}, {"copy": True}):
            same_outcome(x, target, **options)
