"""The types that get a serializer, and the objects of them that frames hold unchanged.

All other objects are serialized as Ray does without zerocopy: tensors with gradients, with
attributes or on a device, sharded and weakly typed JAX arrays, columns of Python objects.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


def _always(obj: Any) -> bool:
    return True


def _itself(obj: Any) -> Any:
    return obj


def _no_extras(obj: Any) -> Any:
    return None


@dataclass(frozen=True, slots=True)
class Carried:
    """Types of one framework that are sent as frames.

    Attributes
    ----------
    types : callable
        Returns the types, once the framework is imported; each type is registered alone, as Ray does
        not look for the types of bases.
    is_plain : callable
        Whether frames hold an object with all its properties.
    prepare : callable
        Returns the object to split into frames.
    extras : callable
        Properties that frames do not hold, as a picklable object; None without any.
    restore : callable, optional
        Returns an object with such properties.
    """

    types: Callable[[], list[type]]
    is_plain: Callable[[Any], bool] = _always
    prepare: Callable[[Any], Any] = _itself
    extras: Callable[[Any], Any] = _no_extras
    restore: Callable[[Any, Any], Any] | None = None


def _torch_types() -> list[type]:
    return [sys.modules["torch"].Tensor]


def _is_plain_tensor(tensor: Any) -> bool:
    torch = sys.modules["torch"]
    return (
        tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and not (tensor.requires_grad or tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
        and not (tensor.__dict__ or tensor._backward_hooks or any(getattr(tensor, "names", ())))
        # An expanded tensor is smaller than its values.
        and (0 not in tensor.stride() or tensor.numel() <= 1)
    )


def _jax_types() -> list[type]:
    # Defined in jaxlib. Creating an array to get its type would start JAX's backend.
    array = getattr(sys.modules.get("jax._src.array"), "ArrayImpl", None)
    return [] if array is None else [array]


def _is_plain_jax(array: Any) -> bool:
    # With several devices an imported array stays on its device; an unpickled one does not.
    return not array.weak_type and sys.modules["jax"].device_count() == 1


def _tensorflow_types() -> list[type]:
    eager = getattr(sys.modules.get("tensorflow.python.framework.ops"), "EagerTensor", None)
    return [] if eager is None else [eager]


def _polars_types() -> list[type]:
    polars = sys.modules["polars"]
    return [polars.DataFrame, polars.Series]


def _is_series(obj: Any) -> bool:
    return isinstance(obj, sys.modules["polars"].Series)


def _as_data_frame(obj: Any) -> Any:
    """Return a series as a frame: Arrow has the name and the type Enum in the schema of a table only."""
    return obj.to_frame() if _is_series(obj) else obj


def _polars_extras(obj: Any) -> Any:
    """Return whether it is a series, and which columns are sorted; Arrow has neither."""
    single = _is_series(obj)
    order = {}
    for i, column in enumerate([obj] if single else obj.get_columns()):
        flags = column.flags
        if flags["SORTED_ASC"] or flags["SORTED_DESC"]:
            order[i] = flags["SORTED_DESC"]
    return (single, order) if single or order else None


def _restore_polars(frame: Any, extras: Any) -> Any:
    single, order = extras
    if order:
        frame = frame.with_columns(
            frame.to_series(i).set_sorted(descending=descending) for i, descending in order.items()
        )
    return frame.to_series(0) if single else frame


def _pyarrow_types() -> list[type]:
    # pyarrow sends the whole memory of a slice (ray#29814, ray#22310). Ray has its own way for tables.
    pyarrow = sys.modules["pyarrow"]
    return [pyarrow.RecordBatch, pyarrow.ChunkedArray, *_subclasses(pyarrow.Array)]


def _subclasses(cls: type) -> Iterator[type]:
    child: type
    for child in cls.__subclasses__():
        if child.__module__ == cls.__module__:  # not those of extension types
            yield child
            yield from _subclasses(child)


#: By the module whose import they wait for.
CARRIED: dict[str, Carried] = {
    "torch": Carried(_torch_types, _is_plain_tensor),
    "jax": Carried(_jax_types, _is_plain_jax),
    "tensorflow": Carried(_tensorflow_types),
    "polars": Carried(_polars_types, prepare=_as_data_frame, extras=_polars_extras, restore=_restore_polars),
    "pyarrow": Carried(_pyarrow_types),
}
