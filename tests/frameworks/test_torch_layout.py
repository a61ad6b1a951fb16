"""Versions of torch that the compiled core does not support: there is no compiled exporter or importer."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from zerocopy._frameworks.torch import native  # noqa: E402 - after the skip


@pytest.mark.parametrize("value", [0, 2**64 - 1])
def test_without_unique_offsets_there_is_no_layout(value: int) -> None:
    assert native._find_layout(torch, lambda address: value) is None


@pytest.mark.parametrize("version", ["2.8.1", "3.0.0"])
def test_unknown_versions_of_torch_have_no_compiled_functions(version: str) -> None:
    other = SimpleNamespace(__version__=version, Tensor=torch.Tensor)
    assert native.exporter(other) is None
    assert native.importer(other) is None
