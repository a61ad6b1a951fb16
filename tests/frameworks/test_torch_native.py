"""The compiled exporter and importer of torch: the offsets in a tensor, and the supported versions."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from zerocopy._frameworks.torch import native  # noqa: E402 - after the skip
from zerocopy._native import core  # noqa: E402

pytestmark = pytest.mark.skipif(core is None, reason="needs the compiled core")


def word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


def test_offsets_are_those_of_the_fields() -> None:
    layout = native.find_layout(torch)
    if layout is None:
        pytest.skip("this torch has no unique offsets")
    plain, lazy, with_grad = torch.zeros(2), torch.ones(2, dtype=torch.cfloat).conj(), torch.zeros(2)
    with_grad.requires_grad_()
    impls = [word(id(tensor) + layout["impl_offset"]) for tensor in (plain, lazy, with_grad)]
    keys = [word(impl + layout["key_offset"]) for impl in impls]
    assert keys == [torch._C._dispatch_keys(tensor).raw_repr() for tensor in (plain, lazy, with_grad)]
    assert keys[0] in layout["keys"]
    assert keys[1] not in layout["keys"]
    assert word(impls[0] + layout["meta_offset"]) == 0
    assert word(impls[2] + layout["meta_offset"]) != 0


@pytest.mark.parametrize("value", [0, 2**64 - 1])
def test_without_unique_offsets_there_is_no_layout(value: int) -> None:
    assert native._find_layout(torch, lambda address: value) is None


@pytest.mark.parametrize("version", ["2.8.1", "3.0.0"])
def test_unknown_versions_of_torch_have_no_compiled_functions(version: str) -> None:
    other = SimpleNamespace(__version__=version, Tensor=torch.Tensor)
    assert native.exporter(other) is None
    assert native.importer(other) is None
