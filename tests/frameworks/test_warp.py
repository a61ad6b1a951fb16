"""Warp arrays: aliases both ways, vectors and matrices, and the hazards that the guards prevent."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from helpers.arrays import sample

import zerocopy as zc

wp = pytest.importorskip("warp")

from zerocopy._frameworks.warp import FRAMEWORK  # noqa: E402

FRAMEWORK.module()  # initialises Warp without its banner


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("view", [np.s_[::-1], np.s_[:, ::2], np.s_[1:, ::-1]])
def test_strided_arrays_are_aliased(view: object) -> None:
    array = sample("f8", (4, 6))[view]
    x = zc.convert(array, to="warp", copy=False)
    assert x.strides == array.strides
    assert np.array_equal(wp.clone(x).numpy(), array)
    back = zc.convert(x, to="numpy", copy=False)
    assert (back.ctypes.data, back.strides) == (array.ctypes.data, array.strides)


@pytest.mark.parametrize(
    ("dtype", "inner"), [("vec3", (3,)), ("mat33", (3, 3)), ("quat", (4,)), ("transform", (7,))]
)
def test_components_of_vectors_are_the_last_dimensions(dtype: str, inner: tuple[int, ...]) -> None:
    x = wp.zeros(5, dtype=getattr(wp, dtype), device="cpu")
    result = zc.convert(x, to="numpy", copy=False)
    assert (result.shape, result.dtype, result.ctypes.data) == ((5, *inner), np.float32, x.ptr)
    result[2] = 3
    assert (x.numpy()[2] == 3).all()
    fresh = zc.convert(x, to="warp", copy=True)
    assert fresh.dtype is x.dtype
    assert fresh.ptr != x.ptr


def test_an_array_as_vectors_aliases_a_result() -> None:
    array = sample("f4", (5, 3))
    x = zc.convert(array, to="warp")
    vectors = wp.array(ptr=x.ptr, shape=(5,), dtype=wp.vec3, device="cpu")
    assert np.array_equal(vectors.numpy(), array)


@pytest.mark.hazard("other-frameworks#bfloat16-in-warp")
def test_bfloat16_has_the_interface_of_uint16_and_keeps_its_dtype() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = wp.array([1.5, -2.0], dtype=wp.bfloat16, device="cpu")
    assert np.asarray(x).dtype == np.uint16  # the hazard
    for _ in range(2):
        result = zc.convert(x, to="numpy")
        assert (result.dtype, result.tolist()) == (np.dtype(ml_dtypes.bfloat16), [1.5, -2.0])
    back = zc.convert(result, to="warp", copy=False)
    assert (back.dtype, back.ptr) == (wp.bfloat16, x.ptr)


def test_arrays_have_one_to_four_dimensions() -> None:
    assert wp.array(np.array(3.0), dtype=wp.float64, copy=False, device="cpu").shape == (1,)  # the hazard
    with pytest.raises(zc.UnsupportedConversionError, match="at least one dimension") as caught:
        zc.convert(np.array(3.0), to="warp")
    assert caught.value.code == "too-few-dimensions"
    with pytest.raises(zc.UnsupportedConversionError, match="5 dimensions and warp supports at most 4"):
        zc.convert(np.zeros((1,) * 5), to="warp")


@pytest.mark.hazard("other-frameworks#strides-of-2-gib-in-warp")
def test_strides_of_2_gib_are_copied_or_refused() -> None:
    memory = np.empty((2, 2**28 + 16))  # not touched, except the first elements
    memory[:, 0] = 1, 2
    assert zc.convert(zc.convert(memory[:, :4], to="warp"), to="numpy")[:, 0].tolist() == [1, 2]
    for _ in range(2):
        assert not zc.explain(memory[:, :4], "warp").zero_copy
        with pytest.raises(zc.UnsupportedConversionError, match="32-bit") as caught:
            zc.convert(memory, to="warp")
        assert caught.value.code == "too-many-elements"
    with pytest.raises(zc.UnsupportedConversionError, match="32-bit"):
        zc.convert(np.empty(2**31, "u1"), to="warp")


@pytest.mark.skipif(sys.platform != "linux", reason="the exit status of a signal")
def test_a_kernel_truncates_strides_of_2_gib(tmp_path) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "kernel.py"
    file.write_text(
        "import warp as wp, numpy as np\n"
        "@wp.kernel\n"
        "def first(x: wp.array(dtype=wp.float64, ndim=2), out: wp.array(dtype=wp.float64)):\n"
        "    out[wp.tid()] = x[wp.tid(), 0]\n"
        "memory = np.empty((2, 2**28 + 16)); memory[:, 0] = 1, 2\n"
        "x = wp.array(memory, dtype=wp.float64, copy=False, device='cpu')\n"
        "out = wp.zeros(2, dtype=wp.float64, device='cpu')\n"
        "wp.launch(first, dim=2, inputs=[x, out], device='cpu')\n"
        "assert out.numpy().tolist() == [1, 2]\n"
    )
    ended = subprocess.run([sys.executable, str(file)], capture_output=True, timeout=200)
    assert ended.returncode != 0


def test_structures_and_indexed_arrays_have_a_fix() -> None:
    @wp.struct
    class Pair:
        a: wp.float32
        b: wp.int32

    pairs = wp.zeros(3, dtype=Pair, device="cpu")
    with pytest.raises(zc.UnsupportedConversionError, match=r"x\.numpy\(\)"):
        zc.convert(pairs, to="torch")
    assert zc.convert(pairs.numpy(), to="numpy")["a"].tolist() == [0, 0, 0]
    chosen = wp.array([0, 2], dtype=wp.int32, device="cpu")
    indexed = wp.array([1.0, 2.0, 3.0], dtype=wp.float32, device="cpu")[chosen]
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.convert(indexed, to="numpy")
    assert caught.value.code == "not-strided"
    assert zc.convert(indexed.contiguous(), "numpy").tolist() == [1, 3]


def test_annotations_and_handles_are_refused() -> None:
    for x in (wp.array(dtype=wp.float32), wp.zeros(2, dtype=wp.handle, device="cpu")):
        for _ in range(2):
            with pytest.raises(zc.UnsupportedConversionError):
                zc.convert(x, to="numpy")


def test_complex_numbers_are_refused_with_pairs() -> None:
    with pytest.raises(zc.UnsupportedConversionError, match="gives pairs of float32"):
        zc.convert(np.ones(3, "c8"), to="warp")


def test_a_conversion_prints_no_banner_and_keeps_the_log_level() -> None:
    loud = run("import warp; warp.init()")
    assert "Warp " in loud.stdout  # the version, the devices and the kernel cache
    code = (
        "import numpy as np, zerocopy as zc; zc.convert(np.zeros(3), to='warp');"
        "import warp; print(warp.config.log_level == warp.LOG_INFO)"
    )
    quiet = run(code)
    assert (quiet.returncode, quiet.stdout) == (0, "True\n"), quiet.stderr


def test_targets_by_module_and_type() -> None:
    array = sample("f4", (3,))
    for to in (wp, wp.array, "warp", "warp.array"):
        assert isinstance(zc.convert(array, to=to), wp.array)
