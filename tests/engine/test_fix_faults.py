"""A failure while fixes are composed leaves the refusal unchanged; no fix repeats the call that failed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from helpers.tiers import sampled

import zerocopy as zc
from zerocopy import registry
from zerocopy._engine.call_text import arguments
from zerocopy.errors import Fix, UnsupportedConversionError

pytest.importorskip("pyarrow")
pytest.importorskip("jax")
fix_cases = pytest.importorskip("helpers.fix_cases")  # it needs pyarrow


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    """Restore the setting of JAX that other tests have, after fixes that change it."""
    import jax

    x64 = jax.config.jax_enable_x64
    yield
    jax.config.update("jax_enable_x64", x64)


class Refusing(zc.Framework):
    """A framework that refuses each array, with fixes that a test chooses."""

    name, root_modules = "refusing", ("refusing",)
    fixes: tuple[Fix, ...] = ()

    def module(self) -> Any:
        return itertools

    def copy_reasons(self, view: Any) -> list[zc.Reason]:
        raise UnsupportedConversionError("", "the array is refused", fixes=self.fixes)


class RaisingAttribute(np.ndarray):
    @property
    def broken(self) -> Any:
        raise RuntimeError("the property raised")


def error_of(x: Any, fixes: tuple[Fix, ...], **options: Any) -> zc.ZeroCopyError:
    framework = Refusing()
    framework.fixes = fixes
    zc.register(framework)
    with pytest.raises(zc.ZeroCopyError, match="the array is refused") as caught:
        zc.convert(x, "refusing", **options)
    plan = zc.explain(x, "refusing", **options)
    assert plan.error is not None
    assert plan.error.calls == caught.value.calls
    return caught.value


@pytest.mark.parametrize(
    "fix",
    [Fix(options={"dtype": "int129"}), Fix(to="absent.form"), Fix(options={"lists": 3}), Fix("{x}.broken")],
    ids=str,
)
def test_an_error_while_fixes_are_composed_does_not_replace_the_refusal(fix: Fix) -> None:
    x = np.zeros(3).view(RaisingAttribute)
    assert isinstance(error_of(x, (fix,)), UnsupportedConversionError)


@pytest.mark.parametrize(
    "options",
    [{"dtype": "float32"}, {"copy": True}, {"dtype": np.dtype("f4"), "copy": None}, {"writable": False}],
    ids=str,
)
def test_the_call_that_failed_is_not_offered_as_a_fix(options: dict[str, Any]) -> None:
    x = np.zeros(3)
    assert error_of(x, (Fix(options=options),), **options).calls == ()
    calls = error_of(x, (Fix(options=options), Fix("{x}.copy()")), **options).calls
    assert all("x.copy()" in call for call in calls)


def test_a_fix_that_the_first_refusal_stops_has_no_second_form() -> None:
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", False)  # its default; the fixture restores the setting
    with pytest.raises(zc.LossyConversionError) as caught:
        zc.convert(np.array([2**40, 1]), "jax")  # int32 does not hold the values
    assert caught.value.remedy.count("zc.convert") == 1


@pytest.mark.parametrize(
    "to", [f.name for f in registry.known() if f.installed() and "cpu" in f.device_kinds]
)
def test_no_fix_of_a_frame_is_the_call_that_failed(to: str) -> None:
    frames = [{"x": [["a"], ["b"]], "n": [1, None]}, {"x": ["a", None], "n": [{"k": 1}, {"k": 2}]}]
    import pyarrow as pa

    lists, encode, layout = (
        (None, "pad", "dense", "ragged"),
        (None, True, "bytes"),
        (None, "matrix", "records"),
    )
    names = ("lists", "encode", "layout")
    for frame, *values in sampled(3, frames, lists, encode, layout, first=len(to)):
        options = {n: v for n, v in zip(names, values, strict=True) if v is not None}
        error = fix_cases.attempt(lambda f=frame, o=options: zc.convert(pa.table(f), to, **o))
        assert error is None or f'zc.convert(x, "{to}"{arguments(options)})' not in error.calls


@pytest.mark.parametrize("target", ["scipy", "sparse"])
@pytest.mark.parametrize("layout", [None, "matrix", "columns"])
@pytest.mark.parametrize("source", ["pandas", "pyarrow", "polars", "dict"])
def test_the_fix_of_dense_columns_makes_sparse_arrays(source: str, layout: str | None, target: str) -> None:
    pytest.importorskip(target)
    columns = {"a": np.array([0.0, 2.0]), "b": np.array([0.0, 3.0])}
    x = columns if source == "dict" else zc.convert(columns, source)
    options = {} if layout is None else {"layout": layout}
    error = fix_cases.attempt(lambda: zc.convert(x, target, **options))
    result = fix_cases.paste(error.calls[0], x, fix_cases.Recorder())
    arrays = [result] if not isinstance(result, dict) else list(result.values())
    assert sum(array.nnz for array in arrays) in (1, 2)  # a dict of arrays is refused at its first leaf
    assert {array.dtype for array in arrays} == {np.dtype("f8")}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "complex32", "complex64", "bool", "float8_e5m2"])
@pytest.mark.parametrize("shape", [(), (2,), (2, 2), (1, 2, 2)], ids=str)
def test_the_fixes_of_dense_types_make_sparse_arrays(dtype: str, shape: tuple[int, ...]) -> None:
    torch, sp = pytest.importorskip("torch"), pytest.importorskip("scipy.sparse")
    x = (
        torch.ones(shape)
        .to(torch.complex64 if dtype == "complex32" else torch.float32)
        .to(getattr(torch, dtype))
    )
    recorder = fix_cases.Recorder()
    error = fix_cases.attempt(lambda: zc.convert(x, "scipy"))
    if dtype == "complex32":
        (code,) = error.calls
        error = fix_cases.attempt(lambda: fix_cases.paste(code, x, recorder))
        x = recorder.obj
    array = fix_cases.paste(error.calls[0], x, recorder)
    assert sp.issparse(array)
    assert array.nnz == x.numel()


def test_objects_without_arrays_have_fixes_that_work() -> None:
    """Each was refused without a call, or with one that raised."""
    _, problems = fix_cases.walk(
        case
        for module, noun in [
            ("awkward", "union"),
            ("sparse", "DOK"),
            ("astropy", "time"),
            ("xarray", "dataset of text"),
            ("torch", "complex half"),
            ("builtins", "array method of text"),
            ("builtins", "array method of dates"),
        ]
        for case in fix_cases.object_cases(module, ("numpy", "polars"))
        if case.name == f"{module} {noun}"
    )
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("name", ["PIL", "pil", "Pillow", "h5py", "zarr"])
def test_a_name_of_a_source_has_no_other_name_as_fix(name: str) -> None:
    with pytest.raises(zc.errors.UnknownFrameworkError, match="is a source and not a target") as caught:
        zc.convert(np.zeros((2, 2), "u1"), name)
    assert "did you mean" not in str(caught.value)


def test_the_code_that_makes_an_object_of_a_source_works() -> None:
    pytest.importorskip("PIL")
    with pytest.raises(zc.errors.UnknownFrameworkError) as caught:
        zc.convert(np.zeros((2, 3), "u1"), "PIL")
    code = caught.value.remedy.partition(" makes one")[0]
    assert fix_cases.paste(code, np.zeros((2, 3), "u1"), fix_cases.Recorder()).size == (3, 2)


@pytest.mark.parametrize("source", ["polars", "pyarrow"])
@pytest.mark.parametrize("width", [1, 2, 3])
def test_the_fix_of_chunks_of_a_matrix_changes_what_is_copied(source: str, width: int) -> None:
    """Combined columns are still in separate memory, so that only a matrix of one column is aliased."""
    import pyarrow as pa

    part = {f"c{i}": [1.0, 2.0] for i in range(width)}
    x = zc.convert(pa.concat_tables([pa.table(part)] * 2), source)
    (reason,) = zc.explain(x, "torch", layout="matrix").reasons
    assert reason.code == "chunks"
    combines = "chunk" in reason.remedy
    assert combines == (width == 1)
    if combines:
        packed = x.rechunk() if source == "polars" else x.combine_chunks()
        assert zc.explain(packed, "torch", layout="matrix").zero_copy


@pytest.mark.parametrize("frame", [{"a": [1.0, 2.0], "b": [1, 2]}, {"a": ["x", "y"], "b": [1, 2]}], ids=str)
def test_the_fixes_of_a_step_are_steps(frame: dict[str, Any]) -> None:
    pytest.importorskip("sklearn")
    import pandas as pd

    from zerocopy.integrations.sklearn import MoveTo

    x = pd.DataFrame(frame)
    with pytest.raises(zc.ZeroCopyError) as caught:
        MoveTo("numpy").fit_transform(x)
    steps = [call for call in caught.value.calls if "MoveTo(" in call]
    assert steps
    assert all(call in caught.value.remedy for call in caught.value.calls)
    for call in steps:
        result = fix_cases.paste(call, x, fix_cases.Recorder())
        assert len(result) in (1, 2)
