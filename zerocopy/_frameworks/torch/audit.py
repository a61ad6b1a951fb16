"""Calls of PyTorch that copy: ``torch.tensor`` always, ``as_tensor`` and ``asarray`` for some arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zerocopy import registry
from zerocopy.audit.hook import AuditHook, CopyCall


class Audit(AuditHook):
    """``torch.from_numpy`` and ``torch.from_dlpack`` alias or raise, so they are not listed."""

    def calls(self) -> list[CopyCall]:
        torch = registry.by_name("torch").module()
        keywords = {"tensor": "data", "as_tensor": "data", "asarray": "obj"}
        return [
            CopyCall(torch, name, f"torch.{name}", "torch", keyword=keyword)
            for name, keyword in keywords.items()
        ]

    def tracing(self) -> list[Callable[[], bool]]:
        """Return a function that ``torch.compile`` evaluates to True while it traces."""
        return [registry.by_name("torch").module().compiler.is_compiling]

    def adopt(self, original: Any, wrapper: Any) -> None:
        """Register a wrapper with ``torch.jit.script``, which knows its functions by their ``id``."""
        from torch.jit import _builtins

        # Private; without these functions, torch.jit.script refuses programs under an audit.
        find, register = (getattr(_builtins, name, None) for name in ("_find_builtin", "_register_builtin"))
        if find is not None and register is not None and (operator := find(original)) is not None:
            register(wrapper, operator)

    def traits(self, obj: Any) -> dict[str, str]:
        traits = super().traits(obj)
        return traits if isinstance(obj, dict) else {**traits, "requires_grad": str(obj.requires_grad)}
