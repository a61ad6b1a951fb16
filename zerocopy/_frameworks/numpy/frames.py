"""NumPy arrays as frames: those that NumPy itself would copy into the pickle."""

from __future__ import annotations

from typing import Any

import numpy as np

from zerocopy.frames.hook import FramesHook


class Frames(FramesHook):
    """NumPy pickles row-major and column-major arrays out of band, and copies others."""

    def types(self) -> tuple[type, ...]:
        return (np.ndarray,)

    def keeps_all(self, obj: Any) -> bool:
        dtype = obj.dtype
        if obj.flags.forc or dtype.hasobject:
            return False
        return dtype.fields is None and dtype.metadata is None
