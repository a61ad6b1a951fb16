"""NumPy: host memory, and the form in which host memory passes between frameworks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zerocopy.device import HOST, Device
from zerocopy.dtype import DType, from_numpy, to_numpy
from zerocopy.errors import LossyConversionError, Reason, UnsupportedConversionError
from zerocopy.framework import Array, Framework, Source, identity, refuse_dtype, refuse_ndim
from zerocopy.protocols.array_interface import address
from zerocopy.strided_view import StridedView
from zerocopy.tables.column import Table


class NumPy(Framework):
    """ndarrays, memmaps, masked arrays without masked elements, and scalars."""

    name = "numpy"
    root_modules = ("numpy",)
    distribution = "numpy"
    marks_readonly = True
    has_datetime64 = True

    def owns(self, cls: type) -> bool:
        import numpy as np

        return issubclass(cls, (np.ndarray, np.generic))

    def is_native(self, obj: Any) -> bool:
        import numpy as np

        return isinstance(obj, np.ndarray)  # a scalar is NumPy's, and no array

    # -- source ---------------------------------------------------------------

    def source(self, obj: Any) -> Source:
        import numpy as np

        name = f"numpy.{type(obj).__name__}"
        if isinstance(obj, np.generic):
            return self._scalar(obj, name)
        if isinstance(obj, np.ma.MaskedArray):
            # numpy.ma exports its data through every protocol and says nothing of
            # the mask (numpy/numpy#26669).
            hidden = int(np.count_nonzero(np.ma.getmaskarray(obj)))  # type: ignore[no-untyped-call]
            if hidden:
                raise LossyConversionError(
                    f"convert({name})",
                    f"{hidden} of {obj.size} elements masked, and the target has no mask",
                    "x.filled(value) gives them a value, x.compressed() drops them, x.data ignores the mask",
                )
        # NumPy's own view: a subclass may have another one (Numba's managed and mapped arrays).
        array = np.ndarray.view(obj, np.ndarray) if type(obj) is not np.ndarray else obj
        # Only where it is needed: StringDType has no byte order, and raises.
        native = array.dtype if array.dtype.isnative else array.dtype.newbyteorder("=")
        dtype = _dtype(native, name)
        reasons = []
        if not array.dtype.isnative:
            reasons.append(
                Reason(
                    f"the bytes are in the other order ({array.dtype.str}), which no other framework has",
                    "swap once, where the data are read: x.astype(x.dtype.newbyteorder('='))",
                )
            )

        def host() -> Array:
            fixed = array.astype(native) if reasons else array
            return fixed if dtype.in_numpy else fixed.view(dtype.storage)

        view = StridedView(
            address(array), array.shape, array.strides, dtype, HOST, not array.flags.writeable, array
        )
        return Source(name, view, host, "buffer", reasons)

    def table(self, obj: Any, index: bool | None = None) -> Table | None:
        import numpy as np

        from zerocopy.tables import record_column

        if not isinstance(obj, np.ndarray):
            return None
        return record_column.table(obj, f"numpy.{type(obj).__name__}")

    def _scalar(self, obj: Any, name: str) -> Source:
        """A scalar is a value: its bytes lie inside a Python object that must not change."""
        import numpy as np

        array = np.asarray(obj)
        dtype = _dtype(array.dtype, name)
        view = StridedView(address(array), (), (), dtype, HOST, True, array)
        why = Reason("a NumPy scalar is a value and no array", "pass numpy.asarray(x), which copies it")
        return Source(name, view, lambda: array.view(dtype.storage), "buffer", [why])

    def fast_exporters(self, cls: type) -> dict[str, Callable[[Any], Any]]:
        import numpy as np

        # Exactly these: a subclass may mean more than its bytes say (a mask, units).
        return {"ndarray": identity} if cls in (np.ndarray, np.memmap) else {}

    # -- target ---------------------------------------------------------------

    def copy_reasons(self, view: StridedView) -> list[Reason]:
        if to_numpy(view.dtype) is None:
            known = view.dtype.lanes == 1
            raise refuse_dtype(
                "numpy",
                view.dtype,
                "pip install ml_dtypes, which adds it to NumPy" if known else "",
            )
        if view.ndim > _max_ndim():
            raise refuse_ndim("numpy", view, _max_ndim())
        return []

    def from_host(self, array: Array, dtype: DType, device: Device, stream: int | None) -> Any:
        if dtype.in_numpy:
            return array
        extended = to_numpy(dtype)
        assert extended is not None
        return array.view(extended)

    def fast_importers(self) -> dict[str, Callable[[Any], Any]]:
        return {"ndarray": identity}


def _max_ndim() -> int:
    import numpy as np

    return 64 if int(np.__version__.partition(".")[0]) >= 2 else 32


def _dtype(dtype: Any, name: str) -> DType:
    """Return the standard type of a native NumPy dtype, or refuse it with what helps."""
    found = from_numpy(dtype)
    if found is not None:
        return found
    remedy = {
        "M": "view it as integers, x.view('int64'), and keep the unit beside it",
        "m": "view it as integers, x.view('int64'), and keep the unit beside it",
        "S": "view its bytes: x.view('uint8').reshape(*x.shape, -1)",
        "U": "view its code points: x.view('uint32').reshape(*x.shape, -1)",
        "T": "encode the strings as numbers first; pyarrow.array(x) holds strings",
        "O": "make numbers of the objects first, if they are: x.astype('float64')",
        "V": "pick a field, x['name'], or flatten it, x.ravel(): records in one dimension are a table",
        "g": "cast it: x.astype('float64')",
        "G": "cast it: x.astype('complex128')",
    }
    # DLPack has neither dates nor text (dlpack.h, DLDataTypeCode).
    key = dtype.char if dtype.char in "gG" else dtype.kind
    raise UnsupportedConversionError(
        f"convert({name})",
        f"tensors have no counterpart of {dtype}",
        remedy.get(key, "cast it to a number"),
    )


FRAMEWORK = NumPy()
