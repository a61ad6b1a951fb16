"""Hazards of torch in current versions: each test shows the hazard, or that zerocopy guards against it.

If torch fixes a hazard, the test that shows it fails, and the guard can be removed.
Code that can crash the process runs in a subprocess.
"""

from __future__ import annotations

import warnings

import pytest
from helpers.arrays import sample

import zerocopy as zc
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
    assert "would change the source" in plan.warnings[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch warns at its first import of such memory
        zc.convert(x, to="torch")
    safe = zc.convert(x, to="torch", writable=True)
    safe[0] = 99
    assert memory[0] != 99


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
