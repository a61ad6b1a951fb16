"""The public ``loader``."""

from __future__ import annotations

from typing import Any

from zerocopy.loading.dataset import Stream
from zerocopy.loading.loader import Loader
from zerocopy.loading.options import LoaderOptions
from zerocopy.loading.sources.opening import open_source


def loader(source: Any, to: Any, *, batch: int = 8192, **options: Any) -> Loader:
    """Return an iterable of the batches of files, tables, queries, streams or arrays."""
    checked = LoaderOptions(to, batch, **options)
    opened = open_source(source, checked)
    if isinstance(opened, Stream) or opened.schema is not None:
        content = opened.schema.empty_table()
    else:
        content = {name: array[:0] for name, array in opened.read(0).items()}
    return Loader(opened, checked, content)
