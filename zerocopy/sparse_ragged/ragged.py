"""``RaggedLayout``: how the parts of a ragged array, lists of different lengths, belong together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from zerocopy.describe import describe_array
from zerocopy.errors import Fix, Reason, UnsupportedConversionError
from zerocopy.source import Array
from zerocopy.sparse_ragged.hook import Part
from zerocopy.strided_view import StridedView

#: Offsets read at a time: the temporary arrays of the check stay in the processor's cache.
_BLOCK = 1 << 16


class RaggedLayout(NamedTuple):
    """The layout of a ragged array: values, then the offsets of each level, the outermost first.

    List ``i`` of a level holds the items from ``offsets[i]`` to ``offsets[i + 1]`` of the next level, and
    of the values in the last level. Values can have more dimensions, which are dense.

    Attributes
    ----------
    depth : int
        The number of ragged dimensions; 1 for lists of numbers.
    length : int
        The number of lists in the outermost level.
    packed : Reason, optional
        Why the source has no such parts, so that `CompoundHook.read` computed them.
    is_checked : bool
        Whether no offsets go down: `check_content` has read them.
    own_levels : int
        With `packed`: how many levels, from the outermost, have the source's own offsets.

    Examples
    --------
    >>> RaggedLayout(1, 3).names, RaggedLayout(2, 3).names
    (('values', 'offsets'), ('values', 'offsets[0]', 'offsets[1]'))
    """

    depth: int
    length: int
    packed: Reason | None = None
    is_checked: bool = False
    own_levels: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        if self.depth == 1:
            return ("values", "offsets")
        return ("values", *(f"offsets[{level}]" for level in range(self.depth)))

    def summarize(self, name: str, parts: Sequence[Any]) -> str:
        view = describe_array(parts[0]).view
        shape = ", ".join([f"{self.length:,}", *["*"] * self.depth, *map(str, view.shape[1:])])
        count = view.shape[0]
        return f"{name} {view.dtype.name} ({shape}) with {count:,} value{'s' if count != 1 else ''}"

    def check(self, parts: Sequence[Any]) -> None:
        values, *levels = parts
        limits = [*(len(offsets) - 1 for offsets in levels[1:]), len(values)]
        items = ["lists"] * (self.depth - 1) + ["values"]
        for name, part, limit, item in zip(self.names[1:], levels, limits, items, strict=True):
            offsets = as_numpy(part)
            if offsets.ndim != 1 or not len(offsets):
                raise _invalid(f"its {name} have shape {offsets.shape}, and n lists need n + 1 offsets")
            first, last = int(offsets[0]), int(offsets[-1])
            if not 0 <= first <= last <= limit:
                raise _invalid(f"its {name} go from {first:,} to {last:,}, and it has {limit:,} {item}")

    def check_content(self, parts: Sequence[Any]) -> None:
        if self.is_checked:
            return
        for name, part in zip(self.names[1:], parts[1:], strict=True):
            at = first_fall(as_numpy(part))
            if at is not None:
                raise _invalid(f"its {name} go down at [{at}]")

    def check_cast(self, parts: Sequence[Any]) -> None:
        return None

    def warnings(self, parts: Sequence[Any]) -> tuple[str, ...]:
        return ()


def first_fall(offsets: Array) -> int | None:
    """Return the first index whose offset is less than the one before it; None if there is none.

    Examples
    --------
    >>> first_fall(np.array([0, 2, 2])), first_fall(np.array([0, 7, 3, 10]))
    (None, 2)
    """
    for start in range(0, len(offsets) - 1, _BLOCK):
        block = offsets[start : start + _BLOCK + 1]
        falls = block[1:] < block[:-1]
        if falls.any():
            return start + int(falls.argmax()) + 1
    return None


def ragged_parts(
    target: str,
    layout: RaggedLayout,
    parts: Sequence[Any],
    allowed: Sequence[str],
    *,
    from_zero: bool = False,
    same_type: bool = False,
    max_depth: int | None = None,
) -> tuple[RaggedLayout, list[Part]]:
    """Return the layout and the parts as a target needs them, after a check of all offsets.

    The check runs for every conversion: kernels of all targets read outside the values, or crash, if an
    offset goes down. It reads 8 bytes for each list.

    Parameters
    ----------
    target : str
        The target, for reasons.
    layout, parts
        The source's.
    allowed : sequence of str
        The types of offsets that the target has, the preferred one first.
    from_zero : bool
        Whether the target needs offsets that start at 0 and end with the last value.
    same_type : bool
        Whether the offsets of all levels need one type.
    max_depth : int, optional
        How many ragged dimensions the target has.

    Raises
    ------
    UnsupportedConversionError
        The target has fewer ragged dimensions, or offsets go down.
    """
    if max_depth is not None and layout.depth > max_depth:
        raise UnsupportedConversionError(
            f"to={target!r}",
            f"{target} has {max_depth} ragged dimension{'s' if max_depth > 1 else ''}, "
            f"and the array has {layout.depth}",
            code="too-many-dimensions",
            fixes=[Fix(action="join-lists", effect="joins the lists of the outermost two")],
        )
    layout.check_content(parts)
    values, levels = (parts[0], [Part(part) for part in parts[1:]])
    if from_zero:
        values, levels = _from_zero(target, values, levels)
    types = [describe_array(level.obj).view.dtype.name for level in levels]
    common = "" if not same_type or len(set(types)) == 1 else "int64"
    for level, own in zip(levels, types, strict=True):
        needed = common or (own if own in allowed else allowed[0])
        if own != needed:
            _cast(target, level, own, needed)
    made = [Part(values), *levels]
    if layout.packed is not None:
        for part in (made[0], *levels[layout.own_levels :]):
            part.make = part.make or partial(_itself, part.obj)
            part.nbytes, part.reason = as_numpy(part.obj).nbytes, layout.packed
    return layout._replace(packed=None, is_checked=True), made


def _from_zero(target: str, values: Any, levels: list[Part]) -> tuple[Any, list[Part]]:
    """Return values and offsets; the first offset is 0, and the last is the number of values."""
    made = []
    start, stop = 0, len(levels[0].obj) - 1
    for level in levels:
        own = level.obj if stop - start == len(level.obj) - 1 else level.obj[start : stop + 1]
        offsets = as_numpy(own)
        start, stop = int(offsets[0]), int(offsets[-1])
        part = Part(own)
        if start:
            why = f"its offsets start at {start:,}, and {target} needs 0"
            part.make, part.nbytes = partial(np.subtract, offsets, offsets[0]), offsets.nbytes
            part.reason = Reason(why, code="offset-start")
        made.append(part)
    return (values if stop - start == len(values) else values[start:stop]), made


def _cast(target: str, level: Part, own: str, needed: str) -> None:
    """Let the offsets of a level be cast."""
    why = f"{target} needs offsets of type {needed}, and these are {own}"
    level.reason = level.reason or Reason(why, f"store the offsets as {needed}", code="offset-dtype")
    if level.make is None:
        level.cast = needed
    else:
        level.make = partial(_made_as, level.make, needed)
        level.nbytes = level.nbytes // np.dtype(own).itemsize * np.dtype(needed).itemsize


def _made_as(make: Any, dtype: str) -> Any:
    return make().astype(dtype)


def _itself(obj: Any) -> Any:
    return obj


def check_built(layout: RaggedLayout, parts: Sequence[Any], from_zero: bool = False) -> None:
    """Check the parts that a target's `CompoundHook.build` gets; the fast path calls it without `fit`.

    Raises
    ------
    ValueError
        The parts need `fit`.
    UnsupportedConversionError
        Offsets go down.
    """
    if layout.is_checked:
        return
    if layout.packed is not None:
        raise ValueError("the parts are copies, which fit() declares")
    layout.check_content(parts)
    if from_zero:
        limits = [*(len(part) - 1 for part in parts[2:]), len(parts[0])]
        for part, limit in zip(parts[1:], limits, strict=True):
            offsets = as_numpy(part)
            if offsets[0] != 0 or offsets[-1] != limit:
                raise ValueError("the offsets do not start at 0: fit() changes them")


def as_numpy(part: Any) -> Array:
    """Return offsets in host memory, for checks; an alias of host memory."""
    if type(part) is np.ndarray:
        return part
    source = describe_array(part)
    if source.view.device.is_host or source.to_host is None:
        return source.host()
    return source.to_host(None)


def view_of(part: Any) -> StridedView:
    """Return the address and layout of a part, for hooks."""
    return describe_array(part).view


def _invalid(why: str) -> UnsupportedConversionError:
    return UnsupportedConversionError(
        "", why, "build it from offsets that never go down", code="invalid-offsets"
    )
