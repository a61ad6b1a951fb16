"""``out=``: the values are copied into an existing array of the target."""

import inspect

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from helpers import cuda_stubs, cudf_stubs
from helpers.frameworks import HOST
from helpers.pasting import pasted

import zerocopy as zc
from zerocopy import registry
from zerocopy.errors import ZeroCopyError

X = np.arange(6, dtype=np.float32).reshape(2, 3)
WRITABLE = [
    name for name in HOST if registry.by_name(name).kind == "tensor" and registry.by_name(name).mutable
]
IMMUTABLE = [name for name in HOST if name not in WRITABLE and registry.by_name(name).kind == "tensor"]


def fresh(to, values=None):
    """Return an array of the framework whose memory can be written, of zeros."""
    return zc.convert(np.zeros_like(X) if values is None else values, to, copy=True)


def values(array):
    return zc.convert(array, "numpy").tolist()


@pytest.mark.parametrize("source", HOST)
@pytest.mark.parametrize("to", WRITABLE)
def test_every_framework_fills_every_writable_one(source, to):
    x, out = zc.convert(X, source), fresh(to)
    if registry.by_name(source).kind == "table":
        x, out = zc.convert(X[0].copy(), source), fresh(to, np.zeros(3, np.float32))
    address, expected = zc.view(out).ptr, values(x)
    plan = zc.explain(x, to, out=out)
    assert (plan.possible, plan.zero_copy, plan.copied_bytes) == (True, False, zc.view(out).nbytes)
    assert not np.any(values(out)), "explain writes nothing"
    assert zc.convert(x, to, out=out) is out
    assert (values(out), zc.view(out).ptr) == (expected, address)
    assert zc.convert(x, out, out=out, copy=True) is out


@pytest.mark.parametrize("to", IMMUTABLE)
def test_immutable_arrays_are_refused(to):
    check(X, to, zc.convert(X, to), "immutable")


def check(x, to, out, why, **options):
    """Check that the call is refused, that nothing was written, and that each fix works."""
    before = np.array(values(out)) if registry.by_type(type(out)) is registry.by_name("numpy") else None
    plan = zc.explain(x, to, out=out, **options)
    with pytest.raises(ZeroCopyError, match=why) as caught:
        zc.convert(x, to, out=out, **options)
    assert (plan.possible, plan.error.why) == (False, caught.value.why)
    assert caught.value.calls
    if before is not None:
        assert np.array_equal(values(out), before)
    for code in caught.value.calls:
        pasted(code, {"zc": zc, "x": x, "out": out})
    return caught.value


def overlapping():
    return np.lib.stride_tricks.as_strided(np.zeros(4, np.float32), (2, 3), (4, 4))


def read_only():
    out = np.zeros_like(X)
    out.flags.writeable = False
    return out


CASES = {
    "shape": (lambda: np.zeros((3, 2), np.float32), {}, r"out= has shape \(3, 2\), and the values have"),
    "broadcast": (lambda: np.zeros((4, 2, 3), np.float32), {}, "out= has shape"),
    "dtype": (lambda: np.zeros((2, 3)), {}, "out= is float64, and the values are float32"),
    "dtype after a cast": (lambda: np.zeros_like(X), {"dtype": "int64"}, "out= is float32, and"),
    "copy": (lambda: np.zeros_like(X), {"copy": False}, "copy=False forbids a copy"),
    "read-only": (read_only, {}, "out= is read-only"),
    "itself": (lambda: X, {}, "share memory"),
    "a part": (lambda: X[::-1], {}, "share memory"),
    "overlapping": (overlapping, {}, "several elements of out= have the same address"),
    "table option": (lambda: np.zeros_like(X), {"layout": "matrix"}, "layout= does not apply"),
    "writable": (lambda: np.zeros_like(X), {"writable": True}, "writable= does not apply"),
    "dates": (lambda: np.zeros((2, 3), "M8[s]"), {}, "out= (has dates|cannot be written)"),
    "records": (lambda: np.zeros((2, 3), "f4,f4"), {}, "out= (has dates|cannot be written)"),
    "list": (lambda: [0, 0], {}, "which is not an array of numpy"),
    "memoryview": (lambda: memoryview(bytearray(24)), {}, "which is not an array of numpy"),
    "frame": (lambda: pd.DataFrame({"a": [1.0]}), {}, "which is not an array of numpy"),
}  # fmt: skip


@pytest.mark.parametrize(("out", "options", "why"), CASES.values(), ids=CASES)
def test_what_cannot_be_filled(out, options, why):
    before = X.copy()
    check(X, "numpy", out(), why, **options)
    assert np.array_equal(before, X)


def test_the_fix_of_a_dtype_casts():
    out = np.zeros((2, 3))
    error = check(X, "numpy", out, "out= is float64")
    assert error.calls[0] == 'zc.convert(x, "numpy", out=out, dtype="float64")'
    assert out.tolist() == X.tolist()


def test_a_value_that_the_dtype_cannot_hold_leaves_out_as_it_is():
    out = np.zeros(2, np.uint8)
    with pytest.raises(zc.LossyConversionError):
        zc.convert(np.array([1, 300]), "numpy", out=out, dtype="uint8")
    assert out.tolist() == [0, 0]


TABLES = [pa.table({"a": [1.0]}), pd.DataFrame({"a": [1.0]}), {"a": X}, [X, X], "text"]


@pytest.mark.parametrize("x", [*TABLES, pl.LazyFrame({"a": [1]})], ids=lambda x: type(x).__name__)
def test_tables_and_containers_are_refused(x):
    out = np.zeros_like(X)
    plan = zc.explain(x, "numpy", out=out)
    with pytest.raises(ZeroCopyError) as caught:
        zc.convert(x, "numpy", out=out)
    assert (plan.possible, plan.error.why) == (False, caught.value.why)
    assert caught.value.remedy
    assert not out.any()


@pytest.mark.parametrize("options", [{}, {"layout": "matrix"}], ids=str)
@pytest.mark.parametrize("x", [pa.table({"a": [1.0], "b": [2.0]}), pd.DataFrame({"a": [1.0], "b": [2.0]})])
def test_the_first_fix_of_a_table_copies_its_matrix(x, options):
    out = np.zeros((1, 2))
    with pytest.raises(ZeroCopyError) as caught:
        zc.convert(x, "numpy", out=out, **options)
    exec(caught.value.calls[0], {"zc": zc, "x": x, "out": out})
    assert out.tolist() == [[1.0, 2.0]]


def test_columns_strides_and_sizes():
    for x in (pl.Series([1.0, 2.0]), pd.Series([1.0, 2.0]), pa.chunked_array([[1.0], [2.0]])):
        out = np.zeros((2, 5))
        assert zc.convert(x, "numpy", out=out[:, 3]).tolist() == [1.0, 2.0]
        assert out[:, 3].tolist() == [1.0, 2.0]
        assert out.sum() == 3
    for shape in ((), (0,), (2, 0, 3), (1,)):
        x, out = np.ones(shape, np.float32), np.zeros(shape, np.float32)
        assert zc.convert(x, "numpy", out=out) is out
        assert out.tolist() == x.tolist()
    with pytest.raises(ZeroCopyError, match="null"):
        zc.convert(pa.array([1.0, None]), "numpy", out=np.zeros(2))


def test_torch_knows_that_its_tensor_was_written():
    torch = pytest.importorskip("torch")
    out = torch.zeros(2, 3)
    weights = torch.ones(2, 3, requires_grad=True)
    product = (weights * out).sum()
    zc.convert(X, "torch", out=out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()
    check(X, "torch", torch.zeros(2, 3, requires_grad=True), "out= cannot be written")
    halves = torch.zeros(2, 3, dtype=torch.bfloat16)
    assert zc.convert(X, "torch", out=halves, dtype="bfloat16") is halves
    assert halves.float().tolist() == X.tolist()


@pytest.mark.parametrize("to", ["cupy", "numba"])
def test_arrays_on_a_device(to, monkeypatch):
    cudf_stubs.install(monkeypatch)
    out = zc.convert(np.zeros_like(X), to)
    assert zc.explain(X, to, out=out).zero_copy is False
    for x in (X, zc.convert(X + 1, to)):
        expected = values(x)
        assert zc.convert(x, to, out=out) is out
        assert values(out) == expected
    for options in ({"device": "cpu"}, {"dtype": "float64"}):
        with pytest.raises(ZeroCopyError):
            zc.convert(X, to, out=out, **options)
    cuda_stubs.forget()


def test_functions_for_many_calls_do_not_take_it():
    out = np.zeros_like(X)
    for call in (lambda: zc.converter(X, "numpy", out=out), lambda: zc.accepts("numpy", out=out)):
        with pytest.raises(TypeError, match="unexpected keyword argument 'out'"):
            call()
    assert "out" not in inspect.signature(zc.converter).parameters
    assert "out" not in inspect.signature(zc.accepts).parameters
    assert "out" in inspect.signature(zc.convert).parameters


@pytest.mark.parametrize("code", [">i8", ">f2", ">f4", ">c8", ">u2"])
def test_values_of_another_byte_order_are_swapped(code: str) -> None:
    values = np.arange(3).astype(code)
    out = np.full(3, 7, values.dtype.newbyteorder("="))
    for source in (values, np.rec.fromarrays([values, values])["f0"], np.ma.array(values)):
        out[:] = 9
        assert zc.convert(source, "numpy", out=out) is out
        assert out.tolist() == [0, 1, 2]
        plan = zc.explain(source, "numpy", out=out)
        assert plan.copied_bytes == 2 * out.nbytes, "the swapped values, and those in out="


@pytest.mark.hazard("torch#tensors-that-change-their-memory")
def test_tensors_that_torch_cannot_write_are_refused() -> None:
    torch = pytest.importorskip("torch")
    with torch.inference_mode():
        inference = torch.zeros(3)
    freed, small = torch.zeros(3), torch.zeros(3)
    freed.untyped_storage().resize_(0)  # as FSDP does
    small.untyped_storage().resize_(8)
    for out in (inference, torch._efficientzerotensor(3), freed, small):
        assert not zc.explain(np.ones(3, "f4"), "torch", out=out).possible
        with pytest.raises(zc.UnsupportedConversionError, match="out= cannot be written"):
            zc.convert(np.ones(3, "f4"), "torch", out=out)


def test_a_tensor_that_is_filled_does_not_join_the_graph_of_the_source() -> None:
    torch = pytest.importorskip("torch")
    weights, out = torch.ones(4, requires_grad=True), torch.zeros(4)
    for _ in range(2):
        assert zc.convert(weights, "torch", out=out) is out
        assert not out.requires_grad


def test_an_array_without_a_text_is_named_by_its_type() -> None:
    torch = pytest.importorskip("torch")
    for out in (torch.zeros(3, dtype=torch.uint8).view(torch.bits8), [0] * 1000):
        with pytest.raises(zc.UnsupportedConversionError, match="out="):
            zc.convert(np.ones(3), "torch", out=out)


def test_columns_of_table_frameworks_are_refused_with_the_reason() -> None:
    pandas = pytest.importorskip("pandas")
    with pytest.raises(zc.UnsupportedConversionError, match="not columns or tables of pandas"):
        zc.convert(np.ones(3), "pandas", out=pandas.Series(np.zeros(3)))


def test_memory_of_out_that_the_exporter_frees_is_not_written() -> None:
    torch = pytest.importorskip("torch")
    out = torch.zeros(1000)

    class Frees:
        """An array whose export frees the storage of ``out``."""

        def __init__(self) -> None:
            self.array = np.ones(1000, "f4")

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

        def __dlpack__(self, **options: object) -> object:
            out.untyped_storage().resize_(0)
            return self.array.__dlpack__(**options)

    with pytest.raises(zc.UnsupportedConversionError, match="out="):
        zc.convert(Frees(), "torch", out=out)
