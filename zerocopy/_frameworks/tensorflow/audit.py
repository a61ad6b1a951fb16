"""Calls of TensorFlow that copy: from arrays of other frameworks, and to NumPy."""

from __future__ import annotations

from zerocopy import registry
from zerocopy.audit.hook import AuditHook, CopyCall


class Audit(AuditHook):
    """``tf.constant``, ``tf.convert_to_tensor``, and ``numpy()`` of eager tensors."""

    def calls(self) -> list[CopyCall]:
        tf = registry.by_name("tensorflow").module()
        calls = [
            CopyCall(tf, "constant", "tf.constant", "tensorflow", keyword="value"),
            CopyCall(tf, "convert_to_tensor", "tf.convert_to_tensor", "tensorflow", keyword="value"),
        ]
        eager = getattr(getattr(tf, "__internal__", None), "EagerTensor", None)
        if eager is not None:  # a semi-public name
            calls.append(CopyCall(eager, "numpy", "tf.Tensor.numpy", "numpy", "method"))
        return calls
