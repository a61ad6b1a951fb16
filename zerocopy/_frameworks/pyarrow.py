"""pyarrow arrays and tensors: immutable columns, one-dimensional unless they are tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from zerocopy.device import HOST, Device
from zerocopy.dtype import DType, by_name, from_numpy
from zerocopy.errors import DeviceError, LossyConversionError, Reason, UnsupportedConversionError
from zerocopy.framework import Array, Framework, Source, refuse_dtype, refuse_ndim
from zerocopy.protocols.array_interface import address, tidy_strides
from zerocopy.strided import StridedView

_MAX_NDIM = 32
_NUMBERS = (
    *(f"int{bits}" for bits in (8, 16, 32, 64)),
    *(f"uint{bits}" for bits in (8, 16, 32, 64)),
    *(f"float{bits}" for bits in (16, 32, 64)),
)
_FORMS = ("Array", "Tensor", "FixedShapeTensorArray")


class PyArrow(Framework):
    """``pyarrow.Array`` for one dimension, ``pyarrow.Tensor`` for any other number.

    ``to="pyarrow.Tensor"``, ``"pyarrow.Array"`` and
    ``"pyarrow.FixedShapeTensorArray"`` (a column of tensors) name a form.
    """

    name = "pyarrow"
    roots = ("pyarrow",)
    distribution = "pyarrow"
    mutable = False

    def __init__(self, form: str | None = None) -> None:
        self.form = form

    def variant(self, form: str) -> Framework | None:
        return PyArrow(form) if form in _FORMS else None

    def owns(self, cls: type) -> bool:
        pa = self.module()
        return issubclass(cls, (pa.Array, pa.Tensor, pa.ChunkedArray, pa.Scalar, pa.Table, pa.RecordBatch))

    def is_native(self, obj: Any) -> bool:
        pa = self.module()
        if self.form is not None:
            exact: bool = isinstance(obj, getattr(pa, self.form))
            return exact
        return True

    # -- source ---------------------------------------------------------------

    def source(self, obj: Any) -> Source:
        pa = self.module()
        name = f"pyarrow.{type(obj).__name__}"
        if isinstance(obj, pa.Tensor):
            return _tensor(obj, name)
        if isinstance(obj, (pa.Table, pa.RecordBatch)):
            raise UnsupportedConversionError(
                f"convert({name})",
                "a table is not one tensor",
                "convert its columns: {n: convert(c, to=...) for n, c in zip(x.column_names, x.columns)}",
            )
        if isinstance(obj, pa.Scalar):
            raise UnsupportedConversionError(
                f"convert({name})", "a scalar is a value and no array", "pass x.as_py(), or an array of it"
            )
        if isinstance(obj, pa.ChunkedArray):
            return _chunked(pa, obj, name)
        return _array(pa, obj, name)

    def exports(self, cls: type) -> dict[str, Callable[[Any], Any]]:
        import numpy as np

        pa = self.module()
        if cls is pa.Tensor:
            return {"ndarray": cls.to_numpy}  # type: ignore[attr-defined]  # keeps read-only
        # One class a type: these hold plain numbers, and their exporter refuses nulls.
        if cls not in {getattr(pa, f"{t}Array") for t in _CLASS_NAMES} or not _marks_immutable(pa):
            return {}

        def versioned(array: Any) -> Any:
            # Without max_version pyarrow warns, which costs a microsecond.
            return array.__dlpack__(max_version=(1, 0))

        return {"versioned": versioned, "readonly": np.from_dlpack, "ndarray": np.from_dlpack}

    # -- target ---------------------------------------------------------------

    def reasons(self, view: StridedView) -> list[Reason]:
        form = self._form(view.ndim)
        flat = view.dtype.name == "bool" and form == "Array"
        if view.dtype.name not in _NUMBERS and not flat:
            remedy = ""
            if view.dtype.name == "bool":
                remedy = "view it as bytes, x.view('uint8'), or flatten it: a flat one becomes bool8"
            elif view.dtype.name.startswith("complex"):
                half = f"float{view.dtype.bits // 2}"
                remedy = (
                    f"make pairs of {half} of it: x.view('{half}').reshape(*x.shape, 2) of a contiguous "
                    "NumPy array, torch.view_as_real(x) of a tensor"
                )
            raise refuse_dtype(f"pyarrow.{form}", view.dtype, remedy)
        if flat and not hasattr(self.module(), "bool8"):
            raise refuse_dtype("pyarrow", view.dtype, "pip install 'pyarrow>=18', which has bool8")
        if form == "Array" and view.ndim != 1:
            raise UnsupportedConversionError(
                "to='pyarrow.Array'",
                f"the array has {view.ndim} dimensions and a pyarrow.Array has one",
                "ask for pyarrow.Tensor or pyarrow.FixedShapeTensorArray, or flatten it",
            )
        if form == "FixedShapeTensorArray" and (view.ndim < 2 or 0 in view.shape):
            raise UnsupportedConversionError(
                "to='pyarrow.FixedShapeTensorArray'",
                f"a column of tensors needs two dimensions or more, none of size 0; this has {view.shape}",
                "ask for pyarrow.Tensor",
            )
        if view.ndim > _MAX_NDIM:
            raise refuse_ndim("pyarrow", view, _MAX_NDIM)
        reasons = []
        if form == "Tensor":
            if view.has_negative_strides:
                reasons.append(Reason("pyarrow.Tensor has no negative strides", "copy it at its source"))
            if view.has_fractional_strides:
                reasons.append(
                    Reason("a stride is no multiple of the item size", "align the record it is a field of")
                )
        elif not view.c_contiguous:
            reasons.append(
                Reason(
                    f"pyarrow.{form} takes memory without gaps only",
                    "ask for pyarrow.Tensor, which has strides, or make it contiguous at its source",
                )
            )
        if not view.is_aligned(view.dtype.itemsize):
            # Arrow's kernels load whole elements; the format asks for 8 bytes at least
            # (Columnar Format, "Buffer Alignment and Padding").
            reasons.append(Reason("the memory is not aligned to its item size", "copy it at its source"))
        return reasons

    def _form(self, ndim: int) -> str:
        return self.form or ("Array" if ndim == 1 else "Tensor")

    def from_host(self, array: Array, dtype: DType, device: Device, stream: int | None) -> Any:
        pa = self.module()
        form = self._form(array.ndim)
        if form == "Tensor":
            return pa.Tensor.from_numpy(tidy_strides(array))
        if form == "FixedShapeTensorArray":
            return pa.FixedShapeTensorArray.from_numpy_ndarray(array)
        storage = pa.int8() if dtype.name == "bool" else pa.from_numpy_dtype(array.dtype)
        plain = array.view("int8") if dtype.name == "bool" else array
        column = pa.Array.from_buffers(storage, array.size, [None, pa.py_buffer(plain)], null_count=0)
        if dtype.name == "bool":  # Arrow's own booleans are bits; bool8 is NumPy's byte
            return pa.ExtensionArray.from_storage(pa.bool8(), column)
        return column

    def imports(self) -> dict[str, Callable[[Any], Any]]:
        pa = self.module()
        if self.form is not None or not hasattr(pa.Array, "from_dlpack"):
            return {}
        flat, tensor = pa.Array.from_dlpack, pa.Tensor.from_dlpack

        refused = pa.ArrowInvalid

        def ndarray(array: Any) -> Any:
            if not array.flags.aligned:
                raise BufferError("not aligned to its item size")
            try:
                return flat(array)  # refuses gaps, reversals, booleans, other dimensions
            except refused:
                if array.ndim == 1 or not array.flags.c_contiguous:
                    raise
                return tensor(array)

        return {"ndarray": ndarray}


# The classes of plain numbers.
_CLASS_NAMES = (
    *(f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)),
    *("HalfFloat", "Float", "Double"),
)


def _marks_immutable(pa: Any) -> bool:
    """Whether this pyarrow exports versioned capsules, which say that Arrow is immutable."""
    import inspect

    return "max_version" in inspect.signature(pa.Array.__dlpack__).parameters


def _array(pa: Any, array: Any, name: str) -> Source:
    if not array.is_cpu:
        raise DeviceError(
            f"convert({name})", "the array is not in host memory", "bring it to the host: x.copy_to(...)"
        )
    if array.null_count:
        raise LossyConversionError(
            f"convert({name})",
            f"{array.null_count} of {len(array)} values null, and tensors have no nulls",
            "fill them, x.fill_null(0), or drop them, x.drop_null()",
        )
    if isinstance(array, pa.FixedShapeTensorArray):
        return _keep(_tensor(array.to_tensor(), name), array)
    kind = array.type
    if pa.types.is_boolean(kind):
        return _bits(pa, array, name)
    if hasattr(pa, "bool8") and kind == pa.bool8():
        return _column(array.storage, "bool", name)
    dtype = _NAMES.get(str(kind))
    if dtype is None:
        raise UnsupportedConversionError(
            f"convert({name})", f"tensors have no counterpart of Arrow's {kind}", _remedy(pa, kind)
        )
    return _column(array, dtype, name)


def _column(array: Any, dtype_name: str, name: str) -> Source:
    dtype = by_name(dtype_name)
    data = array.buffers()[1]
    # Buffers belong to the whole parent: a slice is an offset into them.
    ptr = (data.address if data is not None else 0) + array.offset * dtype.itemsize
    view = StridedView(ptr, (len(array),), (dtype.itemsize,), dtype, HOST, True, array)
    return Source(name, view, view.numpy, "arrow-buffer")


def _bits(pa: Any, array: Any, name: str) -> Source:
    """Arrow packs booleans eight to a byte: nobody else does."""
    import numpy as np

    dtype = by_name("bool")
    view = StridedView(0, (len(array),), (1,), dtype, HOST, True, array)
    why = Reason("Arrow packs booleans into bits", "keep them as bool8 in Arrow: x.cast(pyarrow.bool8())")

    def host() -> Array:
        return np.asarray(array.to_numpy(zero_copy_only=False), dtype=np.bool_)

    return Source(name, view, host, "arrow-buffer", [why])


def _chunked(pa: Any, chunked: Any, name: str) -> Source:
    if chunked.num_chunks == 1:
        source = _array(pa, chunked.chunk(0), name)
        source.name = name
        return source
    if chunked.null_count:
        raise LossyConversionError(
            f"convert({name})",
            f"{chunked.null_count} of {len(chunked)} values null, and tensors have no nulls",
            "fill them, x.fill_null(0), or drop them, x.drop_null()",
        )
    empty = pa.array([], type=chunked.type)
    like = _array(pa, empty, name)
    view = replace(like.view, ptr=0, shape=(len(chunked),), owner=chunked)
    why = Reason(
        f"it lies in {chunked.num_chunks} chunks", "convert the chunks one by one, or x.combine_chunks() once"
    )

    def host() -> Array:
        whole = chunked.combine_chunks() if chunked.num_chunks else empty
        return _array(pa, whole, name).host()

    return Source(name, view, host, "arrow-buffer", [why])


def _tensor(tensor: Any, name: str) -> Source:
    array = tensor.to_numpy()
    array.flags.writeable = array.flags.writeable and tensor.is_mutable
    dtype = from_numpy(array.dtype)
    if dtype is None:
        raise UnsupportedConversionError(
            f"convert({name})", f"tensors have no counterpart of {array.dtype}", "cast it first"
        )
    view = StridedView(
        address(array), array.shape, array.strides, dtype, HOST, not array.flags.writeable, array
    )
    return Source(name, view, lambda: array, "arrow-buffer")


def _keep(source: Source, owner: Any) -> Source:
    """Keep a derived tensor's source alive by the array that it came from."""
    source.view = replace(source.view, owner=(source.view.owner, owner), readonly=True)
    return source


_NAMES = {"halffloat": "float16", "float": "float32", "double": "float64"} | {
    name: name for name in _NUMBERS if "int" in name
}


def _remedy(pa: Any, kind: Any) -> str:
    types = pa.types
    if types.is_temporal(kind):
        return f"take the integers and keep the unit beside them: x.view('int{kind.bit_width}')"
    if types.is_dictionary(kind):
        return "convert its codes, x.indices, and keep x.dictionary beside them"
    if types.is_decimal(kind):
        return "cast it: x.cast('float64')"
    if types.is_nested(kind):
        return "convert its parts: x.flatten(), x.field(i), or make it a FixedShapeTensorArray"
    return "encode it as numbers first, for instance with x.dictionary_encode().indices"


FRAMEWORK = PyArrow()
