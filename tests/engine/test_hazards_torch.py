"""Hazards of torch in current versions: each test shows the hazard, or that zerocopy guards against it.

If torch fixes a hazard, the test that shows it fails, and the guard can be removed.
Code that can crash the process runs in a subprocess.
"""

from __future__ import annotations

import signal
import warnings

import numpy as np
import pytest
from helpers.arrays import sample
from helpers.frameworks import host_frameworks

import zerocopy as zc
from zerocopy._engine.convert import convert_slowly
from zerocopy.framework import version_numbers

torch = pytest.importorskip("torch")


@pytest.mark.hazard("torch#negative-strides")
def test_torch_aborts_on_negative_strides(run_warm) -> None:
    process = run_warm("import numpy as np, torch; torch.from_dlpack(np.arange(4.)[::-1])")
    if version_numbers(torch.__version__) >= (2, 14):
        assert "RuntimeError: Storage size calculation overflowed" in process.stderr
    else:
        assert process.returncode < 0  # a signal


@pytest.mark.hazard("torch#negative-strides")
@pytest.mark.parametrize("twice", [False, True])
def test_negative_strides_reach_torch_as_a_copy(run_warm, twice: bool) -> None:
    process = run_warm(
        f"""
        import numpy as np, zerocopy as zc
        if {twice}: zc.convert(np.arange(4.), to="torch")  # the fast path exists now
        x = np.arange(6.)[::-1]
        class Only:
            def __dlpack__(self, **k): return x.__dlpack__(**k)
            def __dlpack_device__(self): return (1, 0)
        for source in (x, Only(), x.reshape(2, 3)[:, ::-1]):
            plan = zc.explain(source, "torch")
            assert not plan.zero_copy and "negative" in plan.reasons[0].why, plan
            assert zc.convert(source, to="torch").numpy().tolist() == np.asarray(zc.view(source)).tolist()
            try: zc.convert(source, to="torch", copy=False)
            except zc.CopyRequiredError: pass
            else: raise AssertionError
        """
    )
    assert process.returncode == 0, process.stderr


@pytest.mark.hazard("torch#lazy-negation")
def test_torch_exports_sign_flipped_negative_views() -> None:
    x = torch.tensor([1 + 2j, 3 - 4j]).conj().imag
    assert x.is_neg()
    exported = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x))
    assert exported.tolist() == [-v for v in x.tolist()]


@pytest.mark.hazard("torch#lazy-negation", "robustness#exchange-api-of-torch")
@pytest.mark.parametrize("target", ["numpy", "jax", "tensorflow", "pyarrow"])
@pytest.mark.parametrize("lazy", [lambda z: z.conj(), lambda z: z.conj().imag])
def test_lazy_bits_are_resolved(target: str, lazy) -> None:
    x = lazy(torch.tensor([1 + 2j, 3 - 4j]))
    plan = zc.explain(x, target)
    if not plan.possible:
        assert "complex" in plan.reasons[0].why
        return
    assert not plan.zero_copy
    assert "lazily" in plan.reasons[0].why
    assert zc.convert(zc.convert(x, to=target), to="numpy").tolist() == x.tolist()
    with pytest.raises(zc.CopyRequiredError, match="lazily"):
        zc.convert(x, to=target, copy=False)
    assert not zc.shares_memory(x, zc.convert(x, to=target))


@pytest.mark.hazard("torch#gradients", "robustness#exchange-api-of-torch")
@pytest.mark.parametrize(
    "make", [lambda: torch.ones(3, requires_grad=True), lambda: torch.nn.Parameter(torch.ones(3))]
)
def test_gradients_are_refused_and_detach_is_the_remedy(make) -> None:
    x = make()
    zc.convert(x.detach(), to="numpy")
    for copy in (None, True, False):
        with pytest.raises(zc.UnsupportedConversionError, match=r"detach\(\)"):
            zc.convert(x, to="numpy", copy=copy)
    assert zc.shares_memory(x.detach(), zc.convert(x.detach(), to="numpy"))
    assert zc.convert(x, to="torch") is x
    assert zc.convert(x, to="torch", copy=True).requires_grad


@pytest.mark.hazard("torch#writes-to-immutable-memory")
@pytest.mark.parametrize("framework", ["numpy", "jax", "tensorflow", "pyarrow"])
def test_plan_warns_that_torch_can_write_to_immutable_memory(framework: str) -> None:
    memory = sample("f4", (64,))
    x = zc.convert(memory, to=framework)
    if framework == "numpy":
        memory.flags.writeable = False
    plan = zc.explain(x, "torch")
    assert plan.zero_copy
    assert "changes the source, or ends the process" in plan.warnings[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch warns at its first import of such memory
        zc.convert(x, to="torch")
    safe = zc.convert(x, to="torch", writable=True)
    safe[0] = 99
    assert memory[0] != 99


@pytest.mark.hazard("torch#writes-to-immutable-memory")
@pytest.mark.parametrize("writable", [None, True])
def test_write_to_a_read_only_mapping_ends_the_process(run_warm, tmp_path, writable: bool | None) -> None:
    np.save(tmp_path / "x.npy", np.zeros(4096))
    process = run_warm(
        f"""
        import numpy as np, zerocopy as zc
        x = np.load({str(tmp_path / "x.npy")!r}, mmap_mode="r")
        zc.convert(x, "torch", writable={writable})[0] = 1
        """
    )
    assert process.returncode == (0 if writable else -signal.SIGSEGV)


@pytest.mark.hazard("torch#tensors-without-plain-memory")
@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: torch.ones(3).to_sparse(), "sparse"),
        (lambda: torch.empty(3, device="meta"), "meta"),
        (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "nested"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_torch_tensors_without_strided_memory_are_refused(make, why: str) -> None:
    zc.convert(torch.ones(3), to="numpy")
    for target in ("numpy", "pyarrow"):
        with pytest.raises(zc.UnsupportedConversionError, match=why):
            zc.convert(make(), to=target)


@pytest.mark.hazard("torch#tensors-without-plain-memory")
@pytest.mark.filterwarnings("ignore")
def test_quantized_tensors_are_refused() -> None:
    x = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
    with pytest.raises(zc.UnsupportedConversionError, match="dequantize"):
        zc.convert(x, to="numpy")


@pytest.mark.hazard("torch#tensors-without-plain-memory")
def test_torch_subclasses_are_aliased_or_refused() -> None:
    class Named(torch.Tensor):
        pass

    x = torch.arange(4.0).as_subclass(Named)
    assert zc.shares_memory(x, zc.convert(x, to="numpy"))

    class Wrapper(torch.Tensor):
        @staticmethod
        def __new__(cls, inner):
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            raise NotImplementedError

    with pytest.raises(zc.UnsupportedConversionError, match="overrides"):
        zc.convert(Wrapper(torch.ones(3)), to="numpy")


@pytest.mark.hazard("torch#tensors-without-plain-memory")
def test_tensors_inside_vmap_are_refused() -> None:
    def traced(x):
        with pytest.raises(zc.UnsupportedConversionError):
            zc.convert(x, to="numpy")
        return x

    torch.func.vmap(traced)(torch.ones(2, 3))


def cut(tensor, nbytes):
    """Return a tensor after a change of its storage's size, which torch does not check."""
    tensor.untyped_storage().resize_(nbytes)
    return tensor


#: Tensors whose last element lies behind the end of their storage.
CUT = {
    "freed": lambda: cut(torch.arange(64.0), 0),
    "one byte": lambda: cut(torch.arange(64.0), 255),
    "offset": lambda: cut(torch.arange(64.0)[32:], 128),
    "transposed": lambda: cut(torch.arange(64.0).reshape(8, 8).T, 252),
    "repeated": lambda: cut(torch.arange(64.0)[60:61].expand(5), 240),
    "0-d": lambda: cut(torch.arange(64.0)[63], 252),
    "bfloat16": lambda: cut(torch.ones(64, dtype=torch.bfloat16), 127),
    "complex": lambda: cut(torch.ones(64, dtype=torch.complex64), 511),
    "lazy": lambda: cut(torch.ones(64, dtype=torch.complex64), 8).conj(),
    "parameter": lambda: cut(torch.nn.Parameter(torch.arange(64.0), requires_grad=False), 0),
}
#: Tensors whose elements all lie within it, some exactly.
WHOLE = {
    "exact": lambda: cut(torch.arange(64.0)[:8], 32),
    "larger": lambda: cut(torch.arange(8.0), 4096),
    "offset": lambda: cut(torch.arange(64.0)[8:16:2], 60),
    "empty": lambda: cut(torch.arange(64.0)[60:60], 0),
    "repeated": lambda: cut(torch.arange(64.0)[:1].expand(500), 4),
}
CALLS = {
    "convert": lambda x, to: zc.convert(x, to),
    "copy=True": lambda x, to: zc.convert(x, to, copy=True),
    "convert_slowly": lambda x, to: convert_slowly(x, to, {}),
    "dict": lambda x, to: zc.convert({"a": x}, to),
    "list": lambda x, to: zc.convert([torch.ones(3), x], to),
    "converter": lambda x, to: zc.converter(torch.ones(x.shape, dtype=x.dtype), to)(x),
    "view": lambda x, to: zc.view(x),
    "share": lambda x, to: zc.share(x),
    "accepts": lambda x, to: zc.accepts(to)(lambda y: y)(x),
    "dtype": lambda x, to: zc.convert(x, to, dtype="float64"),
}


@pytest.mark.hazard("torch#storage-cut-under-an-alias")
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", CUT)
@pytest.mark.parametrize("to", [name for name in host_frameworks() if name != "torch"])
def test_a_tensor_behind_the_end_of_its_storage_is_refused(to: str, name: str, call: str) -> None:
    whole = torch.ones(3)
    for _ in range(2):  # the route of its type exists then
        CALLS["copy=True"](whole, to)
        with pytest.raises(zc.ZeroCopyError) as error:
            CALLS[call](CUT[name](), to)
        # A target can lack the dtype, or the number of dimensions.
        other = name in ("bfloat16", "complex", "lazy", "0-d", "transposed")
        assert error.value.code == "no-memory" or other
    plan = zc.explain(CUT[name](), to)
    assert not plan.possible
    assert not plan.zero_copy


@pytest.mark.hazard("torch#storage-cut-under-an-alias")
@pytest.mark.parametrize("name", CUT)
def test_torch_itself_gets_the_tensor_but_not_a_copy_of_memory_that_is_gone(name: str) -> None:
    x = CUT[name]()
    assert zc.convert(x, "torch") is x
    assert zc.explain(x, "torch").zero_copy
    for options in ({"copy": True}, {"dtype": "float64"}):
        assert not zc.explain(x, "torch", **options).possible
        with pytest.raises(zc.ZeroCopyError):
            zc.convert(x, "torch", **options)


@pytest.mark.hazard("torch#storage-cut-under-an-alias")
@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("to", ["numpy", "jax", "pyarrow"])
def test_a_storage_of_another_size_that_holds_the_tensor_is_aliased(to: str, name: str) -> None:
    for _ in range(2):
        x = WHOLE[name]()
        if name == "exact":
            x = x.clone()[:8]
        plan = zc.explain(x, to)
        result = zc.convert(x, to)
        assert zc.convert(result, "numpy").tolist() == x.tolist()
        assert plan.zero_copy == zc.shares_memory(x, result)


@pytest.mark.hazard("torch#gradients")
def test_a_tangent_of_forward_mode_is_refused_and_detach_is_the_remedy() -> None:
    forward = torch.autograd.forward_ad
    base = torch.arange(12.0)
    zc.convert(base[2:], "numpy")  # of views, whose metadata has no tangent
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch uses its own torch.jit
        forward._maybe_load_decompositions()
    with forward.dual_level():
        dual = forward.make_dual(torch.ones(3), torch.ones(3))
        for x in (dual, dual * 2, dual[1:], dual.reshape(3, 1)):
            assert forward.unpack_dual(x).tangent is not None
            for to in host_frameworks():
                if to == "torch":
                    assert zc.convert(x, to) is x
                    continue
                assert not zc.explain(x, to).possible
                for call in (zc.convert, lambda x, to: convert_slowly(x, to, {})):
                    with pytest.raises(zc.UnsupportedConversionError, match=r"tangent.*\s.*detach\(\)"):
                        call(x, to)
            assert zc.shares_memory(x, zc.convert(x.detach(), "numpy"))
            with pytest.raises(zc.UnsupportedConversionError, match="tangent"):
                zc.convert({"a": x}, "numpy")
        assert zc.shares_memory(base[2:], zc.convert(base[2:], "numpy"))
    assert zc.convert(dual, "numpy").tolist() == [1, 1, 1]


def misaligned(offset: int, count: int, dtype=torch.complex128):
    """Return a tensor at an address `offset` bytes behind a multiple of 64."""
    block = np.zeros(16 * count + 128, "u1")
    start = -block.ctypes.data % 64 + offset
    tensor = torch.frombuffer(memoryview(block)[start:], dtype=dtype, count=count)
    torch.view_as_real(tensor).copy_(torch.arange(2.0 * count).reshape(count, 2) + 1)
    return tensor


@pytest.mark.hazard("torch#misaligned-complex128-tensors")
def test_torch_crashes_when_it_copies_misaligned_complex_numbers(run_warm) -> None:
    process = run_warm(
        "import torch; torch.frombuffer(bytearray(200), dtype=torch.complex128, count=9, offset=1).clone()"
    )
    assert process.returncode < 0  # a signal


@pytest.mark.hazard("torch#misaligned-complex128-tensors")
@pytest.mark.parametrize(
    "form", ["plain", "strided", "transposed", "conjugated", "negated", "gradient", "0-d"]
)
@pytest.mark.parametrize("offset", [1, 8])
def test_misaligned_complex_numbers_are_copied(form: str, offset: int) -> None:
    make = {
        "plain": lambda: misaligned(offset, 9),
        "strided": lambda: misaligned(offset, 9)[::2],
        "transposed": lambda: misaligned(offset, 6).reshape(2, 3).T,
        "conjugated": lambda: misaligned(offset, 9).conj(),
        "negated": lambda: torch._neg_view(misaligned(offset, 9)),
        "gradient": lambda: misaligned(offset, 9).requires_grad_(),
        "0-d": lambda: misaligned(offset, 1)[0],
    }[form]
    tensor = make()
    plain = torch.view_as_real(tensor.detach().conj() if form == "conjugated" else tensor.detach())
    values = plain.numpy().view("c16")[..., 0] if form != "negated" else -misaligned(offset, 9).numpy()
    expected = values.conj() if form == "conjugated" else values
    for to, options in [
        ("torch", {"copy": True}),
        ("torch", {"dtype": "complex64"}),
        ("numpy", {"copy": True}),
        ("tensorflow", {}),
        ("torch", {"out": torch.zeros(expected.shape, dtype=torch.complex128)}),
    ]:
        if not zc.explain(tensor, to, **options).possible:
            assert form in {"gradient", "conjugated", "negated"}
            continue
        result = zc.convert(tensor, to, **options)
        assert np.array_equal(
            np.asarray(zc.convert(result.detach() if to == "torch" else result, "numpy")), expected
        )
    refused = "not aligned|lazily"
    with pytest.raises(zc.UnsupportedConversionError, match=refused):
        zc.convert(np.ones(expected.shape, "c16"), "torch", out=make().detach())
