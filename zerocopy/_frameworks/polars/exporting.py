"""The compiled exporter of whole frames."""

from __future__ import annotations

from typing import Any

from zerocopy._native import core


def table_exporter(cls: Any) -> Any:
    """Return the compiled exporter of ``polars.DataFrame``; None without the compiled core."""
    return None if core is None else core.TableExporter(cls.__arrow_c_stream__, check=_check)


def _check(frame: Any) -> None:
    """Raise for a frame that the export of a stream would change."""
    if {*frame.n_chunks("all")} != {1}:
        raise ValueError("the export of a stream would join the chunks, also those of the frame")
    if "\0" in "".join(frame.columns):
        raise ValueError("a name has a zero byte, at which the C data interface would cut it")
