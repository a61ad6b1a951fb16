"""Calls of JAX that copy arrays of other frameworks."""

from __future__ import annotations

from zerocopy import registry
from zerocopy.audit.hook import AuditHook, CopyCall


class Audit(AuditHook):
    """``jnp.array`` always copies; ``jnp.asarray`` and ``jax.device_put`` copy some arguments."""

    def calls(self) -> list[CopyCall]:
        jax = registry.by_name("jax").module()
        return [
            CopyCall(jax.numpy, "array", "jnp.array", "jax", keyword="object"),
            CopyCall(jax.numpy, "asarray", "jnp.asarray", "jax", keyword="a"),
            CopyCall(jax, "device_put", "jax.device_put", "jax", keyword="x"),
        ]
