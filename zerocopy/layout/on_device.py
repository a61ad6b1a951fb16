"""Records and columns in the memory of a CUDA device: what the public functions say to its kernels."""

from __future__ import annotations

from typing import Any


def aos_to_soa(records: Any, *, fields: Any, out: Any, copy: Any, dtype: Any, stream: Any) -> dict[str, Any]:
    raise NotImplementedError


def soa_to_aos(columns: Any, dtype: Any, *, out: Any, copy: Any, stream: Any) -> Any:
    raise NotImplementedError
