"""JAX arrays as sources."""

from __future__ import annotations

import pytest

import zerocopy as zc
from zerocopy import registry

jax = pytest.importorskip("jax")


def test_a_deleted_array_is_refused_with_an_error_of_zerocopy() -> None:
    array = jax.numpy.arange(5)
    array.delete()
    plan = zc.explain(array, "numpy")
    assert not plan.possible
    assert "deleted" in plan.error.why
    assert plan.error.code == "no-memory"


def test_source_can_be_imported_several_times() -> None:
    source = registry.by_name("jax").source(jax.numpy.arange(5))
    assert source.host() is source.host()
    assert not source.host().flags.writeable
