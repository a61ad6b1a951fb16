"""``cast_source``: a source whose values are cast when they are copied."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any

import numpy as np

from zerocopy import registry
from zerocopy.casting.option import DTypeOption, plain_type
from zerocopy.casting.values import always_fits, can_cast, cast_block, fitting, why_not
from zerocopy.dtype import DType, to_numpy
from zerocopy.errors import Fix, LossyConversionError, Reason, UnsupportedConversionError
from zerocopy.protocols.array_interface import aligned_empty
from zerocopy.source import Array, HostCopy, Source
from zerocopy.strided_view import contiguous_strides

#: Elements cast at a time: values, result and temporary arrays stay in the cache.
_BLOCK = 1 << 14


def cast_source(
    source: Source,
    new: DType,
    option: DTypeOption,
    label: Hashable = None,
    *,
    rows: bool = False,
    nulls: Callable[[], Array] | None = None,
    pieces: Callable[[], list[Array]] | None = None,
) -> Source:
    """Return a source of the same values in another type, which are copied when they are read.

    Between bool and bool8 the source keeps its memory.

    Parameters
    ----------
    source : Source
        The values.
    new : DType
        Their new type.
    option : DTypeOption
        The option of the call; its `checks` get one for this source.
    label : hashable, optional
        The column's label, for messages.
    rows : bool
        Whether the source is a column.
    nulls : callable, optional
        ``nulls() -> ndarray`` of bool, True for rows whose values are undefined: they become 0.
    pieces : callable, optional
        Returns the values as arrays that follow each other, if they are not one array.

    Raises
    ------
    UnsupportedConversionError
        One of the types cannot be cast.
    """
    old = source.view.dtype
    if plain_type(old) is plain_type(new):
        return replace(source, view=replace(source.view, dtype=new))
    for dtype in (old, new):
        _check(dtype, old, new)
    cast = _Cast(source, new, option, (label, rows), nulls, pieces)
    why = Reason(
        f"dtype= casts the values from {old} to {new}",
        code="dtype-requested",
        fixes=[Fix(options={"dtype": None}, effect=f"keeps {old}")],
    )
    shape = source.view.shape
    view = replace(source.view, ptr=0, strides=contiguous_strides(shape, new.itemsize), dtype=new)
    if not always_fits(old, new):
        option.checks.append(cast.check)
    result = replace(
        source, view=view, host=cast.host, reasons=(*source.reasons, why), writer=cast.writer, obj=view
    )
    if view.device.is_host:
        return result
    return replace(
        result, producer=None, to_host=HostCopy(cast.to_host, source.check_copy), contiguous=cast.on_device
    )


def _check(dtype: DType, old: DType, new: DType) -> None:
    if not can_cast(dtype):
        why = f"there is no cast from {old} to {new}"
        remedy = "cast it in the source's framework, and leave dtype out"
        # The type of complex32 in frameworks that can cast it.
        fixes = [Fix(action="cast:complex64", effect="casts it first")] if old.name == "complex32" else []
        raise UnsupportedConversionError("", why, remedy, code="missing-dtype", fixes=fixes)
    if to_numpy(dtype) is None:
        why = f"a cast from {old} to {new} needs NumPy's {dtype}, which ml_dtypes has"
        raise UnsupportedConversionError("", why, "pip install ml_dtypes", code="missing-dtype")


class _Cast:
    """One cast: the source of the values, and their new type."""

    def __init__(
        self,
        source: Source,
        new: DType,
        option: DTypeOption,
        place: tuple[Hashable, bool],
        nulls: Callable[[], Array] | None,
        pieces: Callable[[], list[Array]] | None,
    ) -> None:
        self._source, self._option, self._place = source, option.without_checks(), place
        self._new = plain_type(new)
        self._nulls, self._pieces = nulls, pieces
        self._old = source.view.dtype

    def host(self) -> Array:
        return self._copied(self._read(None))

    def to_host(self, stream: int | None) -> Array:
        return self._copied(self._read(stream))

    def check(self) -> None:
        """Cast block by block without keeping the results, for ``explain``."""
        for values, _, start, nulls in self._blocks(self._read(None), None):
            self._write(values, np.empty(values.shape, self._new.storage), start, nulls)

    def writer(self) -> Callable[[int, Array], None]:
        """Return ``write(start, out)``, which writes rows into `out` from row `start` on."""
        arrays, nulls = self._read(None), self._mask()
        ends = np.cumsum([len(array) for array in arrays])

        def write(start: int, out: Array) -> None:
            stop = start + len(out)
            for array, end in zip(arrays, ends, strict=True):
                first = end - len(array)
                low, high = max(start, first), min(stop, end)
                if low < high:
                    mask = None if nulls is None else nulls[low:high]
                    self._write(array[low - first : high - first], out[low - start : high - start], low, mask)

        return write

    def on_device(self) -> Any:
        """Return the values, cast on their device by a framework that can."""
        framework, obj = self._source.framework, self._source.obj
        if framework is None or not framework.can_cast:
            framework = registry.relay(self._source.view, cast=True)
            obj = framework.from_device(self._source, None)
        result, fits = framework.cast(obj, self._new)
        if not fits:
            self.check()  # on the host: it raises with the first value that does not fit
        return result

    # -- memory ---------------------------------------------------------------

    def _read(self, stream: int | None) -> list[Array]:
        if self._pieces is not None:
            return self._pieces()
        source = self._source
        if source.view.device.is_host:
            # host() consumes a producer's capsule, which `explain` must not.
            is_read = source.framework is None and source.protocol == "dlpack" and not source.reasons
            return [source.view.numpy() if is_read else source.host()]
        fetch = source.to_host
        if fetch is None:
            relay = registry.relay(source.view)
            fetch = relay.source(relay.from_device(source, None)).to_host
            assert fetch is not None
        return [fetch(stream)]

    def _mask(self) -> Array | None:
        return None if self._nulls is None else self._nulls()

    def _copied(self, arrays: list[Array]) -> Array:
        out = aligned_empty(self._source.view.shape, self._new.storage)
        for values, part, start, nulls in self._blocks(arrays, out):
            assert part is not None
            self._write(values, part, start, nulls)
        return out

    def _blocks(self, arrays: list[Array], out: Array | None) -> Any:
        """Yield blocks of the values, the same parts of `out`, the place of the first, and its nulls."""
        nulls, start = self._mask(), 0
        if nulls is None and all(array.flags.c_contiguous for array in arrays):
            arrays = [array.reshape(-1) for array in arrays]
            out = None if out is None else out.reshape(-1)
        for array in arrays:
            array = array.reshape(1) if array.ndim == 0 else array
            target = None if out is None else out.reshape(1) if out.ndim == 0 else out
            step = max(1, _BLOCK // max(1, array[:1].size))
            for low in range(0, len(array), step):
                values, place = (
                    array[low : low + step],
                    slice(start + low, start + min(low + step, len(array))),
                )
                part = None if target is None else target[place]
                yield values, part, place.start, None if nulls is None else nulls[place]
            start += len(array)

    def _write(self, values: Array, out: Array, start: int, nulls: Array | None) -> None:
        if nulls is not None and nulls.any():
            values = values.copy()
            values[nulls] = 0
        misfits = cast_block(values, out, self._old, self._new)
        if misfits is not None:
            first = np.unravel_index(int(np.argmax(misfits)), misfits.shape)
            raise self._refused(values[first], start, first)

    def _refused(self, stored: Any, start: int, index: tuple[Any, ...]) -> LossyConversionError:
        numpy = to_numpy(self._old)
        assert numpy is not None
        scalar = np.asarray(stored).view(numpy)
        value = (scalar if self._old.in_numpy else scalar.astype(np.float64)).item()
        position = (start + int(index[0]), *(int(i) for i in index[1:]))
        shape = self._source.view.shape
        if len(position) == 1 < len(shape):
            position = tuple(int(i) for i in np.unravel_index(position[0], shape))
        label, is_column = self._place
        at = "" if not shape else f" in row {position[0]}" if is_column else f" at {list(position)}"
        column = f"column {label!r}: " if is_column and label != "" else ""
        wider = fitting(scalar, self._old, self._new)
        return LossyConversionError(
            "",
            f"{column}dtype {self._new} cannot hold the value {value!r}{at}: it {why_not(value, self._new)}",
            code="lossy-cast",
            fixes=[self._option.fix(label, self._old, wider)],
        )
