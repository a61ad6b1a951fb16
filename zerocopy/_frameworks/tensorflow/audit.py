"""Calls of TensorFlow that copy: from arrays of other frameworks, and to NumPy."""

from __future__ import annotations

from zerocopy import registry
from zerocopy.audit.hook import AuditHook, CopyCall


class TensorFlowAudit(AuditHook):
    """``tf.constant``, ``tf.convert_to_tensor``, and ``numpy()`` of eager tensors."""

    def calls(self) -> list[CopyCall]:
        tf = registry.by_name("tensorflow").module()
        eager = tf.__internal__.EagerTensor
        return [
            CopyCall(tf, "constant", "tf.constant", "tensorflow", keyword="value"),
            CopyCall(tf, "convert_to_tensor", "tf.convert_to_tensor", "tensorflow", keyword="value"),
            CopyCall(eager, "numpy", "tf.Tensor.numpy", "numpy", "method"),
        ]
