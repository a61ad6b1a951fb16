"""The context manager of JAX that turns 64-bit types on or off."""

from __future__ import annotations

from contextlib import AbstractContextManager


def enable_x64(on: bool) -> AbstractContextManager[None]:
    """Turn 64-bit types of JAX on or off in this thread."""
    import jax
    import jax.experimental

    # JAX 0.8 and later have it in the main namespace, and deprecate the other name.
    return jax.enable_x64(on) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64(on)
