"""Fixes of messages work when pasted: each succeeds, or names the next reason."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

for framework in ("jax", "torch", "tensorflow", "pyarrow", "pandas", "polars", "duckdb"):
    pytest.importorskip(framework)
fix_cases = pytest.importorskip("helpers.fix_cases")  # it needs pyarrow

SOURCES = ("pyarrow", "pandas", "polars", "duckdb", "nanoarrow", "objects")
TARGETS = ("torch", "numpy", "pandas", "polars", "duckdb")


@pytest.fixture(autouse=True)
def _default_settings() -> Iterator[None]:
    """Run with JAX's defaults, as a new user does."""
    import jax

    jax.config.update("jax_enable_x64", False)
    yield
    fix_cases.restore()
    jax.config.update("jax_enable_x64", True)


def test_the_fixes_of_arrays_work_when_pasted() -> None:
    _, problems = fix_cases.walk(fix_cases.array_cases())
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("source", SOURCES)
def test_the_fixes_of_tables_work_when_pasted(source: str, to: str) -> None:
    _, problems = fix_cases.walk(fix_cases.table_cases(source, to))
    assert not problems, "\n".join(problems)
