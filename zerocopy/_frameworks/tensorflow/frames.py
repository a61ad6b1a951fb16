"""TensorFlow's tensors as frames."""

from __future__ import annotations

from typing import Any

from zerocopy.frames.hook import FramesHook


class Frames(FramesHook):
    """Eager tensors in host memory; TensorFlow pickles others itself."""

    def types(self) -> tuple[type, ...]:
        import tensorflow as tf

        # Creating a tensor to read its type would start TensorFlow's devices.
        eager = getattr(tf.__internal__, "EagerTensor", None)
        return () if eager is None else (eager,)

    def keeps_all(self, obj: Any) -> bool:
        return bool(obj.dtype.is_numpy_compatible and obj.device.endswith("CPU:0"))
