"""The public ``loader``."""

from __future__ import annotations

from typing import Any

from zerocopy.loading.dictionaries import encode_source
from zerocopy.loading.encoded import empty_content
from zerocopy.loading.loader import Loader
from zerocopy.loading.options import LoaderOptions
from zerocopy.loading.sources.opening import open_source


def loader(source: Any, to: Any, *, batch: int = 8192, **options: Any) -> Loader:
    """Return an iterable of the batches of files, tables, queries, streams or arrays."""
    checked = LoaderOptions(to, batch, **options)
    opened = encode_source(open_source(source, checked), checked)
    return Loader(opened, checked, empty_content(opened))
