"""JAX arrays as frames."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from zerocopy.frames.hook import FramesHook


class Frames(FramesHook):
    """Arrays on one CPU device; JAX pickles others itself."""

    def types(self) -> tuple[type, ...]:
        # ArrayImpl has no public name. Creating an array to read its type would start JAX's devices.
        with suppress(ImportError):
            from jax._src.array import ArrayImpl

            return (ArrayImpl,)
        return ()

    def keeps_all(self, obj: Any) -> bool:
        if obj.is_deleted() or obj.weak_type or not obj.is_fully_addressable:
            return False
        devices = obj.devices()
        return len(devices) == 1 and next(iter(devices)).platform == "cpu"
