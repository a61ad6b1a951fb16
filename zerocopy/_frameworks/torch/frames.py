"""torch tensors as frames."""

from __future__ import annotations

from typing import Any

from zerocopy.frames.hook import FramesHook


class Frames(FramesHook):
    """Plain tensors in host memory; torch pickles others itself."""

    def types(self) -> tuple[type, ...]:
        import torch

        return (torch.Tensor,)

    def keeps_all(self, obj: Any) -> bool:
        import torch

        from zerocopy._frameworks.torch import dtypes

        if obj.layout is not torch.strided or obj.device.type != "cpu" or obj.requires_grad:
            return False
        if obj.is_conj() or obj.is_neg() or obj.is_quantized or obj.is_nested or obj.__dict__:
            return False
        # DLPack describes torch.uint4 and its like as uint8, so that they would come back as uint8.
        if obj.dtype not in dtypes(torch):
            return False
        if getattr(obj, "has_names", bool)():  # torch 2.13 no longer has named dimensions
            return False
        # An expanded tensor repeats its memory, which torch's own pickle sends once.
        return bool(obj.numel() * obj.element_size() <= obj.untyped_storage().nbytes())
