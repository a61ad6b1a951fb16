"""Hazards of TensorFlow in current versions: each test shows the hazard, or that zerocopy guards against it.

If TensorFlow fixes a hazard, the test that shows it fails, and the guard can be removed.
Code that can crash the process runs in a subprocess.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import zerocopy as zc

tf = pytest.importorskip("tensorflow")


@pytest.mark.hazard("tensorflow#export-of-strings")
def test_tensorflow_crashes_when_it_exports_strings(run_warm) -> None:
    process = run_warm("import tensorflow as tf; tf.experimental.dlpack.to_dlpack(tf.constant(['a']))")
    assert process.returncode < 0  # a signal


@pytest.mark.hazard("tensorflow#misaligned-memory")
def test_tensorflow_crashes_on_misaligned_memory(run_warm) -> None:
    process = run_warm(
        """
        import numpy as np, tensorflow as tf
        raw = np.zeros(4 * 1001 + 64, np.uint8)
        start = -raw.ctypes.data % 64 + 4
        x = raw[start:start + 4000].view(np.float32)
        t = tf.experimental.dlpack.from_dlpack(x.__dlpack__())
        print(tf.reduce_sum(tf.reshape(t, (10, 100)), axis=0)[0].numpy(), (t + 1)[0].numpy())
        print(tf.linalg.matmul(tf.reshape(t, (10, 100)), tf.reshape(t, (100, 10)))[0, 0].numpy())
        """
    )
    assert process.returncode < 0  # a signal


@pytest.mark.hazard("tensorflow#export-of-strings", "tensorflow#misaligned-memory")
def test_tensorflow_hazards_are_guarded(run_warm) -> None:
    process = run_warm(
        """
        import numpy as np, tensorflow as tf, zerocopy as zc
        from zerocopy.protocols.array_interface import aligned_empty
        for _ in range(2):
            for target in ("numpy", "torch", "jax", "pyarrow"):
                try: zc.convert(tf.constant(["a", "b"]), to=target)
                except zc.UnsupportedConversionError as error: assert "string" in str(error)
                else: raise AssertionError(target)
                zc.convert(tf.constant([1.0]), to=target)  # the fast path exists now
        base = aligned_empty((1001,), np.dtype(np.float32)); base[:] = 1
        import torch
        for _ in range(2):
            for x in (base[1:], torch.from_numpy(base)[1:]):
                assert not zc.explain(x, "tensorflow").zero_copy
                t = zc.convert(x, to="tensorflow")
                product = tf.linalg.matmul(tf.reshape(t, (10, 100)), tf.reshape(t, (100, 10)))
                assert float(tf.reduce_sum(product)) == 10000
                try: zc.convert(x, to="tensorflow", copy=False)
                except zc.CopyRequiredError as error: assert "64" in str(error)
                else: raise AssertionError
            zc.convert(base, to="tensorflow"); zc.convert(torch.from_numpy(base), to="tensorflow")
        """
    )
    assert process.returncode == 0, process.stderr


@pytest.mark.hazard("tensorflow#immutable-tensors-exported-as-writable")
def test_tensorflow_exports_immutable_memory_as_writable() -> None:
    assert tf.constant([1.0]).__array__().flags.writeable
    assert tf.constant([1.0], tf.bfloat16).__array__().flags.writeable
    for dtype in (tf.float32, tf.bfloat16):
        x = tf.constant([1.0, 2.0], dtype)
        for _ in range(2):
            assert not zc.convert(x, to="numpy").flags.writeable
        assert zc.explain(x, "numpy").zero_copy


@pytest.mark.hazard("tensorflow#objects-without-dense-numbers")
@pytest.mark.parametrize(
    "make",
    [
        lambda: tf.ragged.constant([[1], [2, 3]]),
        lambda: tf.sparse.from_dense([[0, 1]]),
        lambda: tf.constant(["a"]),
        lambda: tf.io.parse_tensor(tf.io.serialize_tensor(tf.constant(["b"])), tf.string),
    ],
)
def test_ragged_sparse_and_string_tensors_are_refused(make) -> None:
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.convert(make(), to="numpy")
    assert caught.value.remedy


@pytest.mark.hazard("tensorflow#objects-without-dense-numbers")
@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("string", lambda: tf.constant(["a"])),
        ("resource", lambda: tf.Variable([1.0]).handle),
        ("variant", lambda: tf.raw_ops.TensorListReserve(element_shape=[2], num_elements=1, element_dtype=1)),
    ],
)
def test_tensors_without_numbers_are_refused_by_their_type(name: str, make) -> None:
    tensor = make()
    for target in ("numpy", "torch"):
        with pytest.raises(zc.UnsupportedConversionError, match=f"{name} has no counterpart"):
            zc.convert(tensor, target)


@pytest.mark.hazard("tensorflow#objects-without-dense-numbers")
def test_symbolic_tensors_are_refused() -> None:
    @tf.function
    def traced(x):
        with pytest.raises(zc.UnsupportedConversionError, match="symbolic"):
            zc.convert(x, to="numpy")
        return x

    traced(tf.constant([1.0]))


@zc.accepts(to="tensorflow")
def _branches(x: Any) -> Any:
    if tf.reduce_sum(x) > 0:  # a condition that autograph must transform
        return x + 1
    return x - 1


@zc.accepts(to="numpy")
def _in_numpy(x: Any) -> Any:
    return x


def _not_transformed(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the functions, other than those of this file, that autograph reports as not transformed."""
    names = re.findall(r"could not transform <function (\S+)", caplog.text)
    return [name for name in names if not name.startswith(("test_", "_branches", "_in_numpy", "<lambda>"))]


def _autograph_works() -> bool:
    try:
        tf.autograph.to_graph(lambda x: x)
    except Exception:  # noqa: BLE001 - TensorFlow 2.21 raises ConversionError on Python 3.13, which is not public
        return False
    return True


CONVERTER = zc.converter(np.zeros(1, "float32"), "numpy")

#: Refusals inside ``tf.function``, of functions in Python and in C.
REFUSING = {
    "convert": lambda x: zc.convert(x, to="numpy"),
    "convert with options": lambda x: zc.convert(x, to="numpy", copy=True),
    "a Converter": lambda x: CONVERTER(x),
    "share": zc.share,
    "accepts": lambda x: _in_numpy(x),
}


@pytest.mark.hazard("tensorflow#autograph-and-errors-without-frames")
@pytest.mark.parametrize("name", REFUSING)
def test_autograph_keeps_refusals_and_prints_nothing(name: str, caplog: pytest.LogCaptureFixture) -> None:
    refuses = REFUSING[name]
    caught = []

    @tf.function
    def traced(x):
        try:
            refuses(x)
        except Exception as error:  # noqa: BLE001 - autograph raised IndexError
            caught.append(error)
        return x

    traced(tf.constant([1.0]))
    assert all(isinstance(each, zc.ZeroCopyError) for each in caught), caught
    assert caught
    assert not _not_transformed(caplog)


@pytest.mark.hazard("tensorflow#autograph-and-errors-without-frames")
@pytest.mark.parametrize("name", REFUSING)
def test_errors_of_a_traced_function_contain_the_refusal(name: str) -> None:
    with pytest.raises(Exception, match="it is symbolic and has no values"):
        tf.function(REFUSING[name])(tf.constant([1.0]))


@pytest.mark.hazard("tensorflow#autograph-and-errors-without-frames")
@pytest.mark.skipif(not _autograph_works(), reason="autograph transforms no function on this Python")
def test_autograph_transforms_a_function_that_accepts_arrays(caplog: pytest.LogCaptureFixture) -> None:
    traced = tf.function(lambda x: _branches(x))
    assert [traced(tf.constant([x])).numpy().tolist() for x in (1.0, -1.0)] == [[2.0], [-2.0]]
    assert not _not_transformed(caplog)


@pytest.mark.hazard("tensorflow#objects-without-dense-numbers")
def test_tensorflow_variables_are_read() -> None:
    x = tf.Variable([1.0, 2.0])
    assert zc.convert(x, to="numpy").tolist() == [1, 2]
    assert zc.explain(x, "numpy").zero_copy == zc.shares_memory(x, zc.convert(x, to="numpy"))


@pytest.mark.hazard("tensorflow#quantized-tensors")
@pytest.mark.parametrize("name", ["qint8", "quint8", "qint16", "quint16", "qint32"])
@pytest.mark.parametrize("target", ["numpy", "torch", "jax"])
def test_quantized_tensors_are_refused_before_and_after_other_tensors(name: str, target: str) -> None:
    """NumPy gets their codes as integers, without a sign that they are codes."""
    pytest.importorskip(target)
    quantized = tf.bitcast(tf.constant([1, 2], name.removeprefix("q")), name)
    assert quantized._numpy_internal().dtype.name == name.removeprefix("q")
    integers = tf.constant([1, 2], name.removeprefix("q"))
    for _ in range(3):
        assert zc.view(zc.convert(integers, target)).shape == (2,)
        with pytest.raises(zc.UnsupportedConversionError) as caught:
            zc.convert(quantized, target)
        assert caught.value.code == "missing-dtype"
        assert not zc.explain(quantized, target).possible


@pytest.mark.hazard("tensorflow#gradients-through-other-frameworks")
def test_gradients_end_where_tensors_leave_tensorflow() -> None:
    """As with ``x.numpy()``, the gradient is None."""
    x = tf.constant([1.0, 2.0])
    for leave in (lambda x: x.numpy(), lambda x: zc.convert(x, to="numpy")):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(zc.convert(leave(x), to="tensorflow") * 3)
        assert tape.gradient(y, x) is None
        with tf.autodiff.ForwardAccumulator(x, tf.ones(2)) as forward:
            y = zc.convert(leave(x), to="tensorflow") * 3
        assert forward.jvp(y) is None
