"""NumPy: arrays in host memory, and the form in which other frameworks exchange host memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zerocopy.device import HOST, Device
from zerocopy.dtype import DType, from_numpy, to_numpy
from zerocopy.errors import LossyConversionError, Reason, UnsupportedConversionError
from zerocopy.framework import Framework, identity, refuse_dtype, refuse_ndim
from zerocopy.protocols.array_interface import address
from zerocopy.source import Array, Source
from zerocopy.strided_view import StridedView
from zerocopy.tables.column import Table


class NumPy(Framework):
    """ndarrays, memmaps, masked arrays without masked elements, and scalars."""

    name = "numpy"
    root_modules = ("numpy",)
    distribution = "numpy"
    marks_readonly = True
    has_datetime64 = True
    has_records = True

    def owns(self, cls: type) -> bool:
        import numpy as np

        return issubclass(cls, (np.ndarray, np.generic))

    def is_native(self, obj: Any) -> bool:
        import numpy as np

        return isinstance(obj, np.ndarray)  # a NumPy scalar is not an array

    # -- source ---------------------------------------------------------------

    def source(self, obj: Any) -> Source:
        import numpy as np

        name = f"numpy.{type(obj).__name__}"
        if isinstance(obj, np.generic):
            return self._scalar(obj, name)
        if isinstance(obj, np.ma.MaskedArray):
            # numpy.ma exports its data through every protocol without the mask (numpy/numpy#26669).
            hidden = int(np.count_nonzero(np.ma.getmaskarray(obj)))  # type: ignore[no-untyped-call]
            if hidden:
                raise LossyConversionError(
                    f"convert({name})",
                    f"{hidden} of {obj.size} elements are masked, and the target has no mask",
                    "x.filled(value) gives them a value, x.compressed() drops them, x.data ignores the mask",
                    code="masked",
                )
        # ndarray.view, since a subclass may override view() (Numba's managed and mapped arrays).
        array = np.ndarray.view(obj, np.ndarray) if type(obj) is not np.ndarray else obj
        # StringDType has no byte order: newbyteorder() raises.
        native = array.dtype if array.dtype.isnative else array.dtype.newbyteorder("=")
        dtype = _dtype(native, name)
        reasons = []
        if not array.dtype.isnative:
            reasons.append(
                Reason(
                    f"the bytes are in the other order ({array.dtype.str}), which no other framework has",
                    "swap the bytes once, after reading: x.astype(x.dtype.newbyteorder('='))",
                    code="byte-order",
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

        from zerocopy._frameworks.numpy import records

        if not isinstance(obj, np.ndarray):
            return None
        return records.records_table(obj, f"numpy.{type(obj).__name__}")

    def _scalar(self, obj: Any, name: str) -> Source:
        """Describe a scalar, whose bytes are inside an immutable Python object."""
        import numpy as np

        array = np.asarray(obj)
        dtype = _dtype(array.dtype, name)
        view = StridedView(address(array), (), (), dtype, HOST, True, array)
        remedy = "pass numpy.asarray(x), which copies it"
        why = Reason("a NumPy scalar is a value and not an array", remedy, code="not-an-array")
        return Source(name, view, lambda: array.view(dtype.storage), "buffer", [why])

    def fast_exporters(self, cls: type) -> dict[str, Callable[[Any], Any]]:
        import numpy as np

        # Exactly these types: a subclass may add meaning to its bytes (a mask, units).
        return {"ndarray": identity} if cls in (np.ndarray, np.memmap) else {}

    # -- target ---------------------------------------------------------------

    def copy_reasons(self, view: StridedView) -> list[Reason]:
        if to_numpy(view.dtype) is None:
            known = view.dtype.lanes == 1
            raise refuse_dtype(
                "numpy", view.dtype, "pip install ml_dtypes, which adds it to NumPy" if known else ""
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
    """Return the standard type of a native NumPy dtype, or refuse it with a remedy."""
    standard = from_numpy(dtype)
    if standard is not None:
        return standard
    remedies = {
        "M": "view it as integers, x.view('int64'), and keep the unit separately",
        "m": "view it as integers, x.view('int64'), and keep the unit separately",
        "S": "view its bytes: x.view('uint8').reshape(*x.shape, -1)",
        "U": "view its code points: x.view('uint32').reshape(*x.shape, -1)",
        "T": "encode the strings as numbers first; pyarrow.array(x) holds strings",
        "O": "convert the objects to numbers first, if they are numbers: x.astype('float64')",
        "V": "pick a field, x['name'], or flatten it, x.ravel(): records in one dimension are a table",
        "g": "cast it: x.astype('float64')",
        "G": "cast it: x.astype('complex128')",
    }
    # DLPack has neither dates nor text (dlpack.h, DLDataTypeCode).
    key = dtype.char if dtype.char in "gG" else dtype.kind
    why = f"tensors have no counterpart of {dtype}"
    remedy = remedies.get(key, "cast it to a number")
    raise UnsupportedConversionError(f"convert({name})", why, remedy, code="missing-dtype")


FRAMEWORK = NumPy()
