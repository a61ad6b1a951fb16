"""Reasons, refusals and lists of devices that several frameworks share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from zerocopy.device import Device
from zerocopy.dtype import SUBBYTE_NAMES, DType, to_numpy
from zerocopy.errors import DeviceError, Fix, LossyConversionError, Reason, UnsupportedConversionError
from zerocopy.framework import refuse_dtype, refuse_ndim
from zerocopy.strided_view import MAX_NDIM, StridedView

if TYPE_CHECKING:
    from zerocopy.protocols.arrow_schema import Field


def changed(source: str, effect: str = "", **parts: Any) -> Fix:
    """Return a fix whose call is planned with the first two elements of the object."""
    return Fix(source, effect, sample=source.replace("{x}", "{x}[:2]"), **parts)


#: A new row-major array, aligned to 64 bytes.
_ALIGN = Fix(action="align", effect="allocates it at a multiple of 64 bytes")
COPIED = Fix('zc.convert({x}, "numpy", copy=True)', "copies it once", action="copy:item")
MISALIGNED = Reason("the memory is not aligned to its item size", code="misaligned", fixes=[COPIED])
FRACTIONAL_STRIDES = Reason(
    "a stride is not a multiple of the item size (a field of a packed record)",
    code="misaligned",
    fixes=[COPIED],
)
UNSAFE_FOR_KERNELS = Reason(
    "the memory is not aligned to its item size, and CUDA kernels fault on such memory",
    "align the record where it is created: numpy.dtype(..., align=True)",
    code="misaligned",
)


#: A row-major array, for targets that support no other layout.
CONTIGUOUS = Fix("numpy.ascontiguousarray({x})", "makes it row-major once", action="contiguous")


ON_HOST = Fix(options={"device": "cpu"})


def pairs(dtype: DType) -> list[Fix]:
    """Return fixes for a dtype that a target lacks: pairs of floats for complex ones, else a cast."""
    if not dtype.name.startswith("complex"):
        wide = dtype.wider
        casts = [Fix(options={"dtype": wide}), Fix(action=f"cast:{wide}", effect="casts it")]
        return casts if wide else []
    half = f"float{dtype.bits // 2}"
    # dtype= of the call that failed is given to the inner call: the outer one would undo the pairs.
    source = f'numpy.expand_dims(zc.convert({{x}}, "numpy", dtype="{dtype.name}"), -1).view("{half}")'
    return [changed(source, f"gives pairs of {half}", options={"dtype": None}, action=f"pairs:{dtype.name}")]


def byte_order(dtype: Any) -> Reason:
    """Return the reason to copy an array of NumPy whose bytes are swapped."""
    why = f"the byte order ({dtype.str}) is not native, and only NumPy supports that"
    fixes = [Fix("{x}.astype({x}.dtype.newbyteorder('='))", "swaps the bytes once")]
    return Reason(why, code="byte-order", fixes=fixes)


#: For targets that have Arrow's type for booleans in bytes.
BOOL8 = Fix(options={"dtype": "bool8"}, effect="aliases the bytes")


def packed_bits(target: str) -> Reason:
    """Return the reason to copy booleans for a target that stores bits."""
    as_bytes = changed("zc.convert({x}, 'numpy').view('uint8')", "is aliased as bytes", action="bytes")
    return Reason(f"{target} packs booleans into bits", code="packed-bits", fixes=[BOOL8, as_bytes])


def element_reasons(view: StridedView) -> list[Reason]:
    """Return why memory must be copied for a target that reads whole elements at multiples of their size."""
    reasons = []
    if view.has_fractional_strides:
        reasons.append(FRACTIONAL_STRIDES)
    if not view.is_aligned(view.dtype.itemsize):
        reasons.append(MISALIGNED)
    return reasons


def misaligned(target: str, view: StridedView, multiple: int) -> Reason:
    """Return the reason to copy memory that does not start at a multiple of some bytes."""
    return Reason(
        f"{target} requires memory aligned to {multiple} bytes, but the address is "
        f"{view.ptr % multiple} bytes off",
        code="misaligned",
        fixes=(_ALIGN, replace(COPIED, action="copy")),
    )


def layout(target: str, required: str) -> Reason:
    """Return the reason to copy memory that is not in the only layout that a target accepts."""
    return Reason(
        f"{target} requires {required}",
        code="not-contiguous",
        fixes=[CONTIGUOUS],
    )


def check_numpy(target: str, view: StridedView) -> None:
    """Refuse memory that ndarrays cannot describe."""
    if to_numpy(view.dtype) is None:
        remedy = "pip install ml_dtypes, which adds it to NumPy" if view.dtype.lanes == 1 else ""
        raise refuse_dtype(target, view.dtype, remedy)
    if view.ndim > MAX_NDIM:
        raise refuse_ndim(target, view, MAX_NDIM)


def refuse_extended_dtype(target: str, dtype: DType) -> UnsupportedConversionError:
    """Return the error for a dtype that NumPy lacks without ``ml_dtypes``, or that it stores unpacked."""
    in_ml_dtypes = dtype.name not in SUBBYTE_NAMES and dtype.lanes == 1
    return refuse_dtype(
        target, dtype, "pip install ml_dtypes, which adds it to NumPy" if in_ml_dtypes else ""
    )


def refuse_source(name: str, reason: Reason) -> UnsupportedConversionError:
    """Return the error for an object without memory that another framework can read."""
    return UnsupportedConversionError(
        f"convert({name})", reason.why, reason.remedy, code=reason.code, fixes=reason.fixes
    )


def refuse_dense(
    arrays: str, make: str, view: StridedView, names: Collection[str]
) -> UnsupportedConversionError:
    """Return the error of a framework of sparse arrays for dense ones; `make` makes one of an ndarray."""
    values = "{array}" if view.ndim else "{array}.reshape(1)"
    values += "" if view.dtype.name in names else ".astype('float32')"
    effect = "finds the elements that are not zero"
    fix = Fix(f"{make}({values})", effect, to="numpy", alone=True)
    why = f"{arrays} are sparse, and the source is dense"
    if view.dtype.name == "complex32":
        fix = Fix(action="cast:complex64", effect="casts it first")
        why += "; NumPy has no complex32"
    return UnsupportedConversionError("", why, code="dense", fixes=[fix])


def check_source(name: str, reason: Reason | None) -> None:
    """Refuse an object if there is a reason why no other framework can read its memory."""
    if reason is not None:
        raise refuse_source(name, reason)


def refuse_source_dtype(
    name: str, dtype: object, remedy: str = "", fixes: Sequence[Fix] = ()
) -> UnsupportedConversionError:
    """Return the error for a dtype that only the source's framework has."""
    why = f"{dtype} has no counterpart in other frameworks"
    return UnsupportedConversionError(f"convert({name})", why, remedy, code="missing-dtype", fixes=fixes)


def refuse_column(
    why: str, remedy: str = "", code: str = "missing-dtype", fixes: Sequence[Fix] = ()
) -> UnsupportedConversionError:
    """Return the error for a column that the target cannot hold; the caller adds the column's name."""
    return UnsupportedConversionError("", why, remedy, code=code, fixes=fixes)


def refuse_type(
    target: str, field: Field, remedy: str, detail: str = "", action: str = ""
) -> UnsupportedConversionError:
    """Return the error for a column of an Arrow type that the target lacks.

    `action` has names of `Framework.actions`, separated by spaces, which replace the remedy.
    """
    why = f"it is {field}{detail}, which {target} lacks"
    effect = "rounds to floats" if action == "cast:float64" else ""
    fixes = [Fix(action=name, effect=effect, alone=name == "objects") for name in action.split()]
    return refuse_column(why, "" if fixes else remedy, fixes=fixes)


def refuse_range(count: int, field: Field, target: str) -> LossyConversionError:
    """Return the error for dates, times or durations that the target would change."""
    why = f"it is {field} with {count:,} value{'s' if count > 1 else ''} outside the range of {target}"
    return LossyConversionError("", why, "drop or clip those values first", code="out-of-range")


def check_unique(labels: Iterable[Hashable], target: str) -> None:
    """Refuse names that several columns have."""
    from zerocopy.tables.labels import RENAME, duplicates, listed  # arrays have no labels

    if twice := duplicates(labels):
        why = f"several columns are called {listed(twice)}, and {target} requires unique names"
        raise refuse_column(why, code="duplicate-names", fixes=[RENAME])


def check_utf8(labels: Iterable[Hashable], target: str) -> None:
    """Refuse names with a lone surrogate, for a target whose names are UTF-8."""
    for label in map(str, labels):
        if not label.isascii() and any("\ud800" <= letter <= "\udfff" for letter in label):
            why = f"the name {label!r} contains a lone surrogate, and {target} stores names as UTF-8"
            raise refuse_column(why, "rename it", code="column-name")


def check_nul(labels: Iterable[Hashable], target: str) -> None:
    """Refuse names with a NUL, for a target that reads them as C strings."""
    if cut := [label for label in labels if "\0" in str(label)]:
        why = f"the name {cut[0]!r} contains a NUL, at which {target} would cut it"
        raise refuse_column(why, "rename it", code="nul-in-name")


def check_index(target: str, device: Device, count: int, why: str, remedy: str) -> None:
    """Refuse a CUDA device that is not one of `count`; `why` and `remedy` are for a count of 0."""
    if not count:
        asked = f"to={target!r}, device={str(device)!r}"
        raise DeviceError(asked, why, remedy, code="other-device", fixes=[ON_HOST])
    if device.id >= count:
        raise refuse_index(target, device, count)


def refuse_table(name: str) -> UnsupportedConversionError:
    """Return the error for a table where one array is required."""
    return UnsupportedConversionError(
        f"convert({name})",
        "a table is not one array",
        "pick a column, or convert it to a dict of them",
        code="not-an-array",
    )


def refuse_index(target: str, device: Device, count: int) -> DeviceError:
    """Return the error for a CUDA device whose index is not below `count`, those that a target sees."""
    return DeviceError(
        f"to={target!r}, device={str(device)!r}",
        f"{target} sees {count} CUDA device{'' if count == 1 else 's'}",
        f"choose one of: {', '.join(f'cuda:{i}' for i in range(count))}" if count else "check nvidia-smi",
        code="other-device",
        fixes=[Fix(options={"device": "cuda:0"})] if count else [],
    )


def cuda_devices(count: Callable[[], int]) -> list[str]:
    """Return the names of the devices; `count` asks the framework, which starts CUDA.

    After a call of ``cuInit``, forked children of the process cannot use CUDA (CUDA C++ Programming Guide,
    "Initialization"). So the framework is asked only if CUDA has started, and otherwise NVML. Without NVML
    the number is not known: the list is then ``["cuda"]``.
    """
    from zerocopy.pool import gpus  # here, because only lists of devices need them
    from zerocopy.protocols import cuda_driver

    if cuda_driver.is_started():
        number: int | None = count()
    else:
        number = 0 if cuda_driver.driver() is None else gpus.count()
    return ["cuda"] if number is None else [f"cuda:{i}" for i in range(number)]
