"""JAX arrays as sources: the private and the public export give equal capsules."""

from __future__ import annotations

import numpy as np
import pytest

import zerocopy as zc
from zerocopy import registry

jax = pytest.importorskip("jax")

ARRAYS = {
    "vector": lambda: jax.numpy.arange(5, dtype="float32"),
    "matrix": lambda: jax.numpy.ones((3, 4), "int32"),
    "scalar": lambda: jax.numpy.float32(2.5) + 0,
    "empty": lambda: jax.numpy.zeros((0, 3), "float32"),
    "transposed import": lambda: jax.dlpack.from_dlpack(np.asfortranarray(np.ones((16, 16), "f4"))),
    "bfloat16": lambda: jax.numpy.ones(7, "bfloat16"),
    "bool": lambda: jax.numpy.array([True, False]),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_the_public_and_the_private_capsule_describe_the_same_memory(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from zerocopy._frameworks.jax import capsules

    array = ARRAYS[name]()
    if jax.devices()[0].platform != "cpu":
        pytest.skip("the private export is for hosts only")
    capsules.to_capsule()
    private = zc.view(array)
    monkeypatch.setattr(capsules, "_export", None)
    monkeypatch.setattr(capsules, "_only_host", lambda: False)
    public = zc.view(array)
    for attribute in ("ptr", "shape", "strides", "dtype", "device", "readonly"):
        assert getattr(private, attribute) == getattr(public, attribute)
    assert private.readonly


def test_the_exporter_of_another_version_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    from zerocopy._frameworks.jax import capsules

    def refuses(array: object) -> object:
        raise TypeError("another signature")

    monkeypatch.setattr(capsules, "_export", refuses)
    array = jax.numpy.arange(5)
    assert zc.shares_memory(array, zc.convert(array, "numpy", copy=False))


def test_a_deleted_array_is_refused_with_an_error_of_zerocopy() -> None:
    array = jax.numpy.arange(5)
    array.delete()
    plan = zc.explain(array, "numpy")
    assert not plan.possible
    assert "deleted" in plan.error.why


def test_source_can_be_imported_several_times() -> None:
    source = registry.by_name("jax").source(jax.numpy.arange(5))
    assert source.host() is source.host()
    assert not source.host().flags.writeable
