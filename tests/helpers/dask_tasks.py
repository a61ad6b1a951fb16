"""Tasks that tests run in Dask's workers: they make objects, and describe the arguments that they get."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np


def values(nbytes: int) -> np.ndarray:
    """Return float32 values, 0 to 96 in turn."""
    return (np.arange(nbytes // 4) % 97).astype("f4")


def make(framework: str, nbytes: int) -> Any:
    """Return an array of a framework, or a table of three columns, of about `nbytes`."""
    if framework in ("pyarrow", "pandas", "polars"):
        columns = {name: values(nbytes // 3) for name in "abc"}
        module = importlib.import_module(framework)
        return module.table(columns) if framework == "pyarrow" else module.DataFrame(columns)
    array = values(nbytes)
    if framework == "numpy":
        return array
    if framework == "torch":
        return importlib.import_module("torch").from_numpy(array)
    if framework == "jax":
        return importlib.import_module("jax.numpy").array(array)
    return importlib.import_module("tensorflow").constant(array)


def frames_of(obj: Any) -> list[np.ndarray]:
    """Return the memory of an object."""
    from zerocopy.frames import to_frames

    return [frame for frame in to_frames(obj).frames if frame.nbytes]


def describe(obj: Any) -> dict[str, Any]:
    """Return an object's types, its sum, and whether its memory is mapped from another process."""
    from zerocopy.shared.reading import Mapping, addresses

    frames = frames_of(obj)
    owners = []
    for frame in frames:
        start = frame.__array_interface__["data"][0]
        owners.append(isinstance(addresses.find(start, start + frame.nbytes), Mapping))
    return {
        "type": type(obj).__name__,
        "dtype": str(
            next(getattr(obj, name) for name in ("dtype", "dtypes", "schema") if hasattr(obj, name))
        ),
        "sum": float(sum(frame.view("f4").sum(dtype="f8") for frame in frames)),
        "mapped": bool(owners) and all(owners),
        "any mapped": any(owners),
        "writable": getattr(getattr(obj, "flags", None), "writeable", None),
    }


def write(obj: Any) -> float:
    """Write to an argument, which Dask forbids, and return its first element."""
    obj[:] = -1
    return float(obj[0])


def first(obj: Any) -> float:
    return float(obj[0])


def process_id(*_: Any) -> int:
    import os

    return os.getpid()
