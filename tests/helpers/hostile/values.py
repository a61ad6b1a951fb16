"""The values of results, read by their own frameworks."""

from __future__ import annotations

from typing import Any

import numpy as np

from zerocopy.protocols.exporter_errors import ignored_errors


def bits(x: Any) -> bytes | None:
    """Return the bytes of a tensor's values in row-major order; None for other objects."""
    module = type(x).__module__.partition(".")[0]
    if module == "torch":
        import torch

        plain = (
            x.detach().resolve_conj().resolve_neg().reshape(-1).clone(memory_format=torch.contiguous_format)
        )
        return plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b""
    if module in ("jaxlib", "jax"):
        return np.asarray(x).tobytes()
    if module == "tensorflow":
        return bytes(np.asarray(x.numpy()).tobytes())
    if module == "pyarrow" and hasattr(x, "to_numpy") and type(x).__name__ == "Tensor":
        return bytes(x.to_numpy().tobytes())
    if not isinstance(x, np.ndarray) or isinstance(x, np.ma.MaskedArray) or x.dtype.kind in "OT":
        return None
    return x.astype(x.dtype.newbyteorder("="), copy=False).tobytes()


def rows(x: Any) -> list[Any] | None:
    """Return a column's Python values; None for other objects."""
    module, name = type(x).__module__.partition(".")[0], type(x).__name__
    if module in ("pyarrow", "nanoarrow") and hasattr(x, "to_pylist"):
        return list(x.to_pylist()) if "Array" in name else None
    if module == "polars" and name == "Series":
        return list(x.to_list())
    if isinstance(x, np.ndarray) and x.ndim == 1 and x.dtype.kind in "iub":
        return x.tolist()
    return None


def read_all(x: Any, depth: int = 0) -> None:
    """Read every value, so that wrong memory shows; errors of the framework itself are allowed."""
    # By the type, because the property __class__ of a subclass can raise, and so can its methods.
    if issubclass(type(x), dict):
        x = list(dict.values(x))
    if issubclass(type(x), (list, tuple)) and depth < 5:
        base = list if issubclass(type(x), list) else tuple
        for item in list(base.__iter__(x))[:20]:
            read_all(item, depth + 1)
        return
    # The framework refuses to show some values, such as a time zone that does not exist.
    with ignored_errors():  # panics of polars too, for dates that Python lacks
        _read(x)


def _read(x: Any) -> None:
    module = type(x).__module__.partition(".")[0]
    if module in ("torch", "jaxlib", "jax", "tensorflow", "numpy"):
        bits(x)
    elif module in ("pyarrow", "nanoarrow") and hasattr(x, "to_pylist"):
        x.to_pylist()
    elif module == "polars":
        x.rows() if hasattr(x, "rows") else x.to_list()
    elif module == "pandas":
        # pyarrow aborts at list views in lists: "cannot construct ChunkedArray from empty vector".
        if "list_view" not in str(getattr(x, "dtype", None) or list(x.dtypes)):
            x.to_numpy(dtype=object)
    elif module in ("duckdb", "_duckdb"):
        x.fetchall()
    else:
        repr(x)
