"""Ragged arrays among Arrow, awkward, torch and TensorFlow: values and offsets are aliased."""

from __future__ import annotations

import gc
import weakref
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from helpers.pasting import pasted

import zerocopy as zc
from zerocopy.protocols.array_interface import aligned_copy

pa = pytest.importorskip("pyarrow")

ROWS = [[0.0, 1.0, 2.0], [], [3.0, 4.0, 5.0, 6.0], [7.0]]
DEEP = [[[1.0], [2.0, 3.0]], [], [[4.0, 5.0, 6.0]]]
FRAMEWORKS = ("awkward", "pyarrow", "tensorflow", "torch")
NESTED = ("awkward", "pyarrow", "tensorflow")  # torch has one ragged dimension
PAIRS = [(a, b) for a in FRAMEWORKS for b in FRAMEWORKS if a != b]
pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")


def parts(dtype: str = "float32", offsets: str = "int64") -> tuple[Any, Any]:
    """Return values and offsets of ROWS at addresses that every framework aliases."""
    return aligned_copy(np.arange(8, dtype=dtype)), aligned_copy(np.array([0, 3, 3, 7, 8], offsets))


def build(framework: str, values: Any, *levels: Any) -> Any:
    """Return a ragged array of a framework over NumPy arrays, without zerocopy's ragged layouts."""
    pytest.importorskip(framework)
    if framework == "awkward":
        import awkward as ak

        content = ak.contents.NumpyArray(values)
        for offsets in reversed(levels):
            content = ak.contents.ListOffsetArray(ak.index.Index(offsets), content)
        return ak.Array(content)
    if framework == "torch":
        import torch

        return torch.nested.nested_tensor_from_jagged(torch.from_numpy(values), torch.from_numpy(levels[0]))
    if framework == "tensorflow":
        import tensorflow as tf

        tensors = [zc.convert(level, "tensorflow") for level in levels]
        return tf.RaggedTensor.from_nested_row_splits(
            zc.convert(values, "tensorflow"), tensors, validate=False
        )
    array = zc.convert(values, "pyarrow.FixedShapeTensorArray" if values.ndim > 1 else "pyarrow.Array")
    for offsets in reversed(levels):  # not from_arrays, which checks the last offset
        kind = pa.list_ if offsets.dtype == np.int32 else pa.large_list
        buffers = [None, pa.py_buffer(offsets)]
        array = pa.Array.from_buffers(kind(array.type), len(offsets) - 1, buffers, children=[array])
    return array


def rows(x: Any) -> Any:
    """Return the values of a ragged array as lists."""
    if isinstance(x, (pa.Array, pa.ChunkedArray)):
        return x.to_pylist()
    if hasattr(x, "to_list"):
        return x.to_list()
    return [row.tolist() for row in x.unbind()]


def buffers(x: Any) -> tuple[Any, Any]:
    """Return the values and the outermost offsets of an array, each an object that zerocopy describes."""
    if isinstance(x, pa.Array):
        return x.values, x.offsets
    if hasattr(x, "layout") and hasattr(x.layout, "content"):
        return x.layout.content.data, x.layout.offsets.data
    if hasattr(x, "flat_values"):
        return x.flat_values, x.row_splits
    return x.values(), x.offsets()


@pytest.mark.parametrize("offsets", ["int32", "int64"])
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_values_and_offsets_are_aliased(source: str, target: str, offsets: str) -> None:
    pytest.importorskip(target)
    memory = parts(offsets=offsets)
    x = build(source, *memory)
    plan = zc.explain(x, target)
    for _ in range(3):  # the second and third conversion take the fast path
        y = zc.convert(x, target, copy=False) if _ == 0 else zc.convert(x, target)
        assert rows(y) == ROWS
        assert plan.zero_copy
        assert zc.shares_memory(x, y)
        for mine, theirs in zip(buffers(y), memory, strict=True):
            assert zc.view(mine).ptr == zc.view(theirs).ptr
            assert zc.view(mine).dtype == zc.view(theirs).dtype
    memory[0][0] = 50
    assert rows(y)[0][0] == 50  # a write to the source shows in the result
    assert list(plan.leaves) == [".values", ".offsets"]
    assert plan.copied_bytes == 0


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_routes_are_kept(source: str, target: str) -> None:
    from zerocopy._engine import routes

    pytest.importorskip(target)
    routes.clear()
    x = build(source, *parts())
    zc.convert(x, target)
    kept = routes.routes_of(target, {}).get(type(x))
    if source == "pyarrow":  # a route would convert columns of tables, which stay columns
        assert kept is None
        with pytest.raises(zc.UnsupportedConversionError):
            zc.convert(pa.table({"x": x}), "torch")
        return
    assert rows(kept(x)) == ROWS


@pytest.mark.parametrize(("source", "target"), [*PAIRS, *((a, a) for a in FRAMEWORKS)])
def test_copies_never_alias(source: str, target: str) -> None:
    pytest.importorskip(target)
    x = build(source, *parts())
    y = zc.convert(x, target, copy=True)
    assert rows(y) == ROWS
    assert not zc.shares_memory(x, y)
    assert not zc.explain(x, target, copy=True).zero_copy
    if source == target:
        assert zc.convert(x, target) is x
        assert zc.explain(x, target).zero_copy


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_values_with_dense_dimensions_and_casts(source: str, target: str) -> None:
    pytest.importorskip(target)
    values, offsets = aligned_copy(np.arange(16, dtype="float32").reshape(8, 2)), parts()[1]
    y = zc.convert(build(source, values, offsets), target, copy=False)
    expected = [values[i:j].tolist() for i, j in pairwise(offsets)]
    if target == "pyarrow":
        converted = [[item.to_numpy_ndarray().tolist() for item in row] if row else [] for row in _tensors(y)]
        converted = [items[0] if items else [] for items in converted]
        assert converted == expected
    else:
        assert rows(y) == expected
    wide = zc.convert(build(source, *parts()), target, dtype="float64")
    assert zc.view(buffers(wide)[0]).dtype.name == "float64"
    assert rows(wide) == ROWS


def _tensors(y: Any) -> list[list[Any]]:
    """Return each list of a column of lists of tensors, as an array of tensors; none for an empty list."""
    steps = y.offsets.to_pylist()
    return [[y.values[i:j]] if j > i else [] for i, j in pairwise(steps)]


@pytest.mark.parametrize("source", NESTED)
@pytest.mark.parametrize("target", FRAMEWORKS)
def test_nested_lists(source: str, target: str) -> None:
    pytest.importorskip(target)
    values = aligned_copy(np.arange(1.0, 7.0))
    levels = aligned_copy(np.array([0, 2, 2, 3])), aligned_copy(np.array([0, 1, 3, 6]))
    x = build(source, values, *levels)
    if target == "torch":
        with pytest.raises(zc.UnsupportedConversionError, match="1 ragged dimension") as caught:
            zc.convert(x, target)
        assert caught.value.code == "too-many-dimensions"
        call = caught.value.calls[0].partition(" joins")[0]
        import pyarrow.compute

        names = {"x": x, "zc": zc, "pyarrow": pyarrow}
        if source == "awkward":
            import awkward

            names["awkward"] = awkward
        assert rows(pasted(call, names)) == [[1.0], [2.0, 3.0], [4.0, 5.0, 6.0]]
        return
    y = zc.convert(x, target)
    assert rows(y) == DEEP
    if source != target:
        plan = zc.explain(x, target)
        assert plan.zero_copy
        assert list(plan.leaves) == [".values", ".offsets[0]", ".offsets[1]"]
        assert rows(zc.convert(zc.convert(y, target, copy=True), source)) == DEEP


@pytest.mark.hazard("producers#offsets-of-slices")
@pytest.mark.parametrize("source", ["awkward", "pyarrow"])
@pytest.mark.parametrize("target", FRAMEWORKS)
def test_slices_start_at_any_offset(source: str, target: str) -> None:
    pytest.importorskip(target)
    x = build(source, *parts())[1:]
    if source == target:
        assert zc.convert(x, target) is x
        return
    y = zc.convert(x, target)
    plan = zc.explain(x, target)
    assert rows(y) == rows(x) == ROWS[1:]
    if target in ("awkward", "pyarrow"):
        assert zc.shares_memory(x, y)
        return
    # Offsets from 0 are new; the values start in the middle of an allocation, which torch aliases.
    assert [reason.code for reason in plan.leaves[".offsets"].reasons] == ["offset-start"]
    assert not plan.zero_copy
    with pytest.raises(zc.CopyRequiredError) as caught:
        zc.convert(x, target, copy=False)
    if target == "torch":
        assert plan.copied_bytes == 32
        assert zc.view(y.values()).ptr == zc.view(buffers(x)[0]).ptr + 12
        assert caught.value.code == "offset-start"


@pytest.mark.parametrize("source", NESTED)
@pytest.mark.parametrize("target", NESTED)
def test_slices_of_nested_lists(source: str, target: str) -> None:
    pytest.importorskip(target)
    values = aligned_copy(np.arange(1.0, 7.0))
    x = build(source, values, np.array([0, 2, 2, 3]), np.array([0, 1, 3, 6]))[1:]
    assert rows(zc.convert(x, target)) == DEEP[1:]


@pytest.mark.parametrize("source", FRAMEWORKS)
@pytest.mark.parametrize("target", FRAMEWORKS)
@pytest.mark.parametrize("lists", [0, 2])
def test_empty_arrays(source: str, target: str, lists: int) -> None:
    pytest.importorskip(target)
    x = build(source, np.zeros(0, "float32"), np.zeros(lists + 1, "int64"))
    y = zc.convert(x, target)
    assert (rows(y) if lists or target != "torch" else []) == [[]] * lists
    assert len(buffers(y)[1]) == lists + 1
    assert zc.explain(x, target).zero_copy == zc.shares_memory(x, y)


@pytest.mark.hazard("producers#invalid-offsets")
@pytest.mark.parametrize("source", FRAMEWORKS)
@pytest.mark.parametrize("target", FRAMEWORKS)
@pytest.mark.parametrize("bad", [[0, 7, 3, 8], [0, 3, 3, 50], [-1, 3, 4, 8], [0, 2**40, 3, 8]], ids=str)
def test_invalid_offsets_are_refused(source: str, target: str, bad: list[int]) -> None:
    pytest.importorskip(target)
    if source == target:
        pytest.skip("returned unchanged")
    offsets = aligned_copy(np.array([0, 3, 3, 8]))
    x = build(source, parts()[0], offsets)
    offsets[:] = bad  # afterwards: pyarrow and awkward refuse some of them
    warm = build(source, *parts())
    for _ in range(2):  # on the slow path, and on the fast path of a valid array of this type
        for options in ({}, {"validate": "full"}, {"copy": True}):
            with pytest.raises(zc.UnsupportedConversionError) as caught:
                zc.convert(x, target, **options)
            assert caught.value.code == "invalid-offsets"
            assert not zc.explain(x, target, **options).possible
        zc.convert(warm, target)
    assert offsets.tolist() == bad  # the source is unchanged


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_validate_checks_own_arrays_too(framework: str) -> None:
    x = build(framework, parts()[0], aligned_copy(np.array([0, 7, 3, 8])))
    with pytest.raises(zc.ZeroCopyError):
        zc.convert(x, framework, validate="full")


@pytest.mark.hazard("producers#invalid-offsets")
@pytest.mark.parametrize("offsets", [np.array([0, 7, 3, 8]), np.array([0, 3, 3, 50])], ids=str)
def test_tensorflow_reads_wrong_rows_through_invalid_offsets(offsets: Any) -> None:
    """The hazard: the rows of the result are not those of the values, without an error."""
    pytest.importorskip("tensorflow")
    x = build("tensorflow", parts()[0], offsets)
    assert sum(len(row) for row in x.to_list()) != offsets[-1]


@pytest.mark.hazard("producers#invalid-offsets")
def test_awkward_reads_outside_its_memory_through_invalid_offsets(run_warm: Any) -> None:
    """The hazard: a reduction takes any offset. It ends the process, or with awkward 2.4 it may not."""
    pytest.importorskip("awkward")
    code = """
        import awkward as ak, numpy as np
        content = ak.contents.NumpyArray(np.arange(8.0))
        lists = ak.contents.ListOffsetArray(ak.index.Index(np.array([0, 10_000_000_000, 3, 8])), content)
        print(ak.sum(ak.Array(lists), axis=1))
    """
    assert run_warm(code).returncode <= 0  # a signal, or no error


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_results_keep_the_memory_alive(source: str, target: str) -> None:
    pytest.importorskip(target)
    memory = parts()
    freed = weakref.ref(memory[0])
    x = build(source, *memory)
    del memory
    y = zc.convert(x, target)
    del x
    gc.collect()
    _ = [np.ones(8, "float32") for _ in range(100)]
    assert rows(y) == ROWS
    del y
    gc.collect()
    assert freed() is None or source == "tensorflow"  # TensorFlow frees memory later


# -- Arrow -----------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["awkward", "tensorflow", "torch"])
def test_arrow_chunks_views_and_nulls(target: str) -> None:
    pytest.importorskip(target)
    one = pa.chunked_array([pa.array(ROWS)])
    assert zc.explain(one, target).leaves[".offsets"].copied_bytes == 0
    assert rows(zc.convert(one, target)) == ROWS
    two = pa.chunked_array([pa.array(ROWS[:2]), pa.array(ROWS[2:])])
    views = pa.array(ROWS, pa.list_view(pa.float64()))
    for x, code in ((two, "chunks"), (views, "list-views")):
        plan = zc.explain(x, target)
        y = zc.convert(x, target)
        assert rows(y) == ROWS
        assert plan.copied_bytes == 8 * 8 + (5 * 8 if x is views else 5 * 4)
        assert [reason.code for reason in plan.reasons] == [code]
        assert not plan.zero_copy
        assert not zc.shares_memory(x, y)
        with pytest.raises(zc.CopyRequiredError) as copied:
            zc.convert(x, target, copy=False)
        assert copied.value.code == code
    for nulls in (pa.array([[1.0], None]), pa.array([[1.0], [None]])):
        with pytest.raises(zc.UnsupportedConversionError, match="null") as caught:
            zc.convert(nulls, target)
        assert caught.value.code == "nulls"
        for call in caught.value.calls:
            result = pasted(call.partition('")')[0] + '")', {"x": nulls, "zc": zc, "pyarrow": pa})
            assert rows(result)[0] == [1.0]


def test_booleans_are_unpacked() -> None:
    x = pa.array([[True, False], [True]])
    pytest.importorskip("torch")
    plan = zc.explain(x, "torch")
    assert [row.tolist() for row in zc.convert(x, "torch").unbind()] == [[True, False], [True]]
    assert plan.leaves[".values"].copied_bytes == 3


def test_other_lists_are_columns_as_before() -> None:
    pytest.importorskip("torch")
    for x in (pa.array([["a"]]), pa.array([[{"a": 1}]]), pa.array([[("a", 1)]], pa.map_("string", "int8"))):
        with pytest.raises(zc.UnsupportedConversionError):
            zc.convert(x, "torch")
    assert isinstance(zc.convert(pa.array([[1, 2]]), "torch", encode=True), zc.Encoded)
    assert isinstance(zc.convert(pa.array(ROWS), "numpy", encode=True), zc.Encoded)


# -- torch -----------------------------------------------------------------------------


def test_nested_tensors_without_plain_offsets_are_refused() -> None:
    torch = pytest.importorskip("torch")
    base = torch.arange(20.0).reshape(4, 5)
    gaps = torch.nested.narrow(
        base, 1, torch.tensor([0, 1, 0, 2]), torch.tensor([2, 3, 1, 2]), layout=torch.jagged
    )
    with pytest.raises(zc.UnsupportedConversionError, match="gaps") as caught:
        zc.convert(gaps, "pyarrow")
    assert "x.contiguous()" in caught.value.remedy
    assert rows(zc.convert(gaps.contiguous(), "pyarrow")) == rows(gaps)
    dense = torch.zeros(8, 2)
    nested = torch.nested.nested_tensor_from_jagged(dense, torch.tensor([0, 3, 8]))
    with pytest.raises(zc.UnsupportedConversionError, match="second"):
        zc.convert(nested.transpose(1, 2), "pyarrow")
    grads = torch.nested.nested_tensor_from_jagged(dense.clone().requires_grad_(), torch.tensor([0, 3, 8]))
    with pytest.raises(zc.UnsupportedConversionError, match="grad") as caught:
        zc.convert(grads, "pyarrow")
    assert caught.value.code == "requires-grad"
    assert zc.shares_memory(zc.convert(grads.detach(), "pyarrow"), grads.values().detach())


def test_dense_targets_have_fixes_that_work() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("awkward")
    import awkward

    for framework in FRAMEWORKS:
        x = build(framework, *parts()) if framework != "tensorflow" else None
        if x is None:
            continue
        with pytest.raises(zc.UnsupportedConversionError) as caught:
            zc.convert(x, "numpy")
        assert caught.value.calls
        for call in caught.value.calls:
            code = call.rpartition(")")[0] + ")"
            pasted(code, {"x": x, "zc": zc, "awkward": awkward, "torch": torch})


@pytest.mark.hazard("producers#list-views-in-order")
def test_list_views_in_any_order_are_copied_in_order() -> None:
    pytest.importorskip("awkward")
    steps, sizes = pa.array([4, 0, 1], pa.int32()), pa.array([2, 3, 1], pa.int32())
    x = pa.ListViewArray.from_arrays(steps, sizes, pa.array(np.arange(6.0)))
    assert rows(zc.convert(x, "awkward")) == x.to_pylist() == [[4, 5], [0, 1, 2], [1]]
    outer = pa.ListArray.from_arrays(pa.array([0, 1, 3], pa.int32()), x)
    assert rows(zc.convert(outer, "awkward")) == outer.to_pylist()
    bad = pa.ListViewArray.from_arrays(steps, pa.array([2, 3, 100], pa.int32()), pa.array(np.arange(6.0)))
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.convert(bad, "awkward")
    assert caught.value.code == "invalid-offsets"
