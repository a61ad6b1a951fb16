"""Calls of PyTorch that copy: ``torch.tensor`` always, ``as_tensor`` and ``asarray`` for some arguments."""

from __future__ import annotations

from typing import Any

from zerocopy import registry
from zerocopy.audit.hook import AuditHook, CopyCall


class TorchAudit(AuditHook):
    """``torch.from_numpy`` and ``torch.from_dlpack`` alias or raise, and so are not listed."""

    def calls(self) -> list[CopyCall]:
        torch = registry.by_name("torch").module()
        keywords = {"tensor": "data", "as_tensor": "data", "asarray": "obj"}
        return [
            CopyCall(torch, name, f"torch.{name}", "torch", keyword=keyword)
            for name, keyword in keywords.items()
        ]

    def traits(self, obj: Any) -> dict[str, str]:
        traits = super().traits(obj)
        return traits if isinstance(obj, dict) else {**traits, "requires_grad": str(obj.requires_grad)}
