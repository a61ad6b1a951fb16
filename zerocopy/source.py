"""``Source``: the memory of one object, and its exports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from zerocopy.dtype import DType
from zerocopy.errors import Fix, Reason, UnsupportedConversionError
from zerocopy.strided_view import StridedView

Array = np.ndarray[Any, Any]

#: Forms in which memory passes from a fast exporter to a fast importer.
#: ``native``: with the compiled core, an ``Exporter`` or ``Importer`` (C objects) instead of a function. The
#: memory of an exporter may be on a CUDA device; an importer takes host memory.
#: ``native_device``: with the compiled core, an ``Importer`` of memory on CUDA devices.
#: ``native_table``: with the compiled core, a ``TableExporter``, through Arrow's C data interface.
#: ``native_column``: the same for a column, a table of it alone.
#: ``ndarray``: an aliasing ndarray with any strides, read-only if the memory is immutable.
#: ``host_copy``: a new ndarray, copied from a device; the exporter waits for the copy, and returns None for
#: an object on the host.
#: ``device_copy``: a function of a device, or of None for the current one. It returns an importer that copies
#: ndarrays to the device, or None. When the importer returns, the caller may change the ndarray.
#: ``nonnumeric``: an importer of NumPy's arrays of text, dates and objects; it returns None for arrays that
#: need a plan.
#: ``handle``: any object, which has a route of its own; the exporter of a handle of shared memory opens it.
#: ``columns``: for a table, pairs of a name and a column, which has its own route: ``export(table, index)``
#: takes the call's ``index=``, and the columns of an importer are 1-dimensional ndarrays.
#: ``matrix``: for a table whose values lie in one matrix of numbers, an ndarray with one column for each of
#: the table's; an importer takes the names too.
#: ``hub``: for a table or a column of numbers, booleans, text and dates that is not empty, a triple: None or
#: the column's name; an object that exports Arrow data, for a column as one array; and the
#: ``pyarrow.Schema`` of a table of one array, or None if the importer must read it. Names in tables are
#: unique and not empty. ``export(obj, target)`` takes the target: it may keep no metadata, or read no views.
#: If ``nan_is_null`` of the framework is True, it also takes the ``layout=`` of a call with ``nulls=``, and
#: whether NaN is null. Numbers may then have nulls, and it raises for columns that may be one matrix already.
FORMS = (
    "native", "native_device", "native_table", "native_column", "ndarray", "host_copy", "device_copy",
    "nonnumeric", "handle", "columns", "matrix", "hub",
)  # fmt: skip


@dataclass(slots=True, eq=False)
class Source:
    """One object as its framework describes it: its memory, and how to export it.

    Attributes
    ----------
    name : str
        The object's type, for messages: ``"torch.Tensor"``.
    view : StridedView
        The memory that a consumer would alias. If there are `reasons`, the shape, dtype
        and device that the copy will have.
    host : callable
        ``host() -> ndarray`` in ``view.dtype.storage``: an alias of host memory
        if there are no `reasons`, otherwise a copy with the right values.
        Not called for device memory; otherwise it can be called several times.
    protocol : str
        The protocol that exports the memory: ``"buffer"``, ``"dlpack"``, ``"cai"``, ...
    reasons : sequence of Reason
        Why the memory does not hold the values (a lazy conjugate, chunks,
        packed bits): every target then needs a copy.
    refusal : Reason, optional
        Why no other framework may import the memory. Its own framework can still
        copy it, also to another device.
    framework : Framework or None
        None for an object known by its protocols alone.
    obj : object
        The object itself.
    to_host : callable, optional
        ``to_host(stream) -> ndarray``: copies device memory to the host and waits for the copy.
    producer : object, optional
        For device memory: an object with DLPack or the CUDA Array Interface.
    contiguous : callable, optional
        ``contiguous() -> object``: returns a new row-major copy on the same device.
    writer : callable, optional
        For values that are computed: ``writer() -> write``, and ``write(start, out)`` writes rows from
        row `start` on into `out`, so that a larger copy needs no copy of each part.
    column_names : callable, optional
        ``column_names() -> list``: names of the columns of an array of one or two dimensions that becomes a
        table; None for the default names.
    row_labels : callable, optional
        ``row_labels() -> object``: the labels that a table of the array has with ``index=True``.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> array = np.arange(3.0)
    >>> source = zc.Source("mine.Array", zc.view(array), host=lambda: array)
    >>> source.view.shape, source.protocol, source.reasons
    ((3,), 'buffer', ())
    """

    name: str
    view: StridedView
    host: Callable[[], Array]
    protocol: str = "buffer"
    reasons: Sequence[Reason] = ()
    refusal: Reason | None = None
    framework: Any = None
    obj: Any = None
    to_host: Callable[[int | None], Array] | None = None
    producer: Any = None
    contiguous: Callable[[], Any] | None = None
    writer: Callable[[], Callable[[int, Array], None]] | None = None
    column_names: Callable[[], list[Any] | None] | None = None
    row_labels: Callable[[], Any] | None = None

    @property
    def summary(self) -> str:
        """The type, dtype and shape, for messages."""
        return f"{self.name} {self.view.dtype.name} {self.view.shape}"

    def check_copy(self) -> None:
        """Raise if this machine cannot copy the memory: plans call it, so that ``explain`` agrees."""
        check = getattr(self.to_host, "check", None)
        if check is not None:
            check()


class HostCopy:
    """``Source.to_host`` with `check`, which raises if this machine cannot copy the memory."""

    __slots__ = ("_load", "check")

    def __init__(self, load: Callable[[int | None], Array], check: Callable[[], None]) -> None:
        self._load = load
        self.check: Callable[[], None] = check

    def __call__(self, stream: int | None) -> Array:
        return self._load(stream)


def type_name(obj: Any) -> str:
    """Return the name of an object's type for messages, with its module unless it is built in.

    Examples
    --------
    >>> type_name([]), type_name(np.zeros(3))
    ('list', 'numpy.ndarray')
    """
    cls = type(obj)
    module = getattr(cls, "__module__", "builtins")  # types that C code creates can lack it
    return cls.__qualname__ if module == "builtins" else f"{module}.{cls.__qualname__}"


def lacking(framework: str, hook: str) -> UnsupportedConversionError:
    """Return the error for a hook that a framework's class does not implement."""
    return UnsupportedConversionError(
        repr(framework),
        f"its Framework class does not implement {hook}()",
        "implement it: docs/adding-a-framework.md describes each hook",
        code="missing-hook",
    )


def refuse_dtype(
    target: str, dtype: DType, remedy: str = "", fixes: Sequence[Fix] = ()
) -> UnsupportedConversionError:
    """Return the error for a dtype that a target lacks, by default with a cast to a wider one."""
    if not fixes and not remedy:
        # The calls that the target refuses too are left out of the message.
        wide = dtype.wider
        fixes = [Fix(options={"dtype": name}) for name in _casts(dtype)]
        fixes += [Fix(action=f"cast:{wide}", effect="casts it")] if wide else []
    return UnsupportedConversionError(
        f"to={target!r}",
        f"{target} has no {dtype}",
        remedy or ("" if fixes else "leave it out, or convert its parts"),
        code="missing-dtype",
        fixes=fixes,
    )


def _casts(dtype: DType) -> list[str]:
    """Return types that may hold the values of a type that a target lacks, the best first."""
    if dtype.wider:
        return [dtype.wider]
    kind, bits = dtype.storage.kind, dtype.bits
    if not dtype.in_numpy or kind == "c":
        return []
    if kind == "f":
        return [name for name in ("float32", "float64") if name != dtype.name]
    wider = [f"int{size}" for size in (8, 16, 32, 64) if size > bits or kind == "b"]
    return [*(["uint8"] if kind == "b" else []), *wider] or ["int32"]


def refuse_ndim(target: str, view: StridedView, limit: int) -> UnsupportedConversionError:
    """Return the error for more dimensions than a target supports."""
    return UnsupportedConversionError(
        f"to={target!r}",
        f"the array has {view.ndim} dimensions and {target} supports at most {limit}",
        code="too-many-dimensions",
        fixes=[Fix("zc.convert({x}, 'numpy').reshape(-1)", "flattens it", action="flatten")],
    )


def identity(obj: Any) -> Any:
    """Return the argument: an exporter or importer for an object that already has the form."""
    return obj
