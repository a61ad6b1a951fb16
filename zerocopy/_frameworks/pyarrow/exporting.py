"""Fast exporters and importers of pyarrow's arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from zerocopy._native import core
from zerocopy.dtype import by_name


def without_nulls(from_dlpack: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return an exporter to NumPy that refuses nulls before NumPy asks for the memory.

    pyarrow's ``__dlpack__`` raises TypeError for nulls, upon which NumPy calls it without
    ``max_version``: pyarrow warns that such capsules are deprecated.
    """

    def export(array: Any) -> Any:
        if array.null_count:
            raise ValueError("it has nulls: the slow path refuses them")
        return from_dlpack(array)

    return export


def native_exporter(cls: type) -> Any:
    """Return the compiled exporter of a class of numeric arrays; None without the compiled core."""
    if core is None:
        return None
    # pyarrow's exporter refuses nulls. Without max_version it warns, which takes a microsecond.
    return core.CapsuleExporter(cls.__dlpack__, keywords={"max_version": (1, 0)}, readonly=True)  # type: ignore[attr-defined]


def native_importer(pa: Any, names: Iterable[str]) -> Any:
    """Return the compiled importer of 1-dimensional arrays; None without the compiled core.

    ``Array._import_from_c`` is the Arrow C data interface by addresses, which pyarrow documents for
    integrations in C; ``Array.from_buffers`` takes 1.5 times as long.
    """
    import_ = getattr(pa.Array, "_import_from_c", None)
    if core is None or import_ is None:
        return None
    types = {(by_name(name).code, by_name(name).bits): getattr(pa, name)() for name in names}
    return core.ArrowImporter(import_, types)
