"""Errors of conversions in the terms of the loader that makes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from zerocopy._engine.target import text
from zerocopy.errors import ZeroCopyError
from zerocopy.loading.options import LoaderOptions

_CALL, _LOADER = "zc.convert(x, ", "zc.loader(source, "
#: ``encode=True`` means bytes for ``convert``, and codes for ``loader``.
_BYTES, _CODES = "gives its bytes with their offsets", "gives codes of its words"


@contextmanager
def in_terms_of_loader(options: LoaderOptions) -> Iterator[None]:
    """Rewrite errors of conversions to name the call of ``loader``, and fixes as calls of ``loader``."""
    try:
        yield
    except ZeroCopyError as error:
        if error.asked.startswith("convert("):
            _rewrite(error, options)
        raise


def _rewrite(error: ZeroCopyError, options: LoaderOptions) -> None:
    """Replace calls of ``convert`` by calls of ``loader``; leave out fixes that need the table itself."""
    dropped = [code for code in error.calls if _CALL not in code]
    parts = [part for part in error.remedy.split("; or ") if not part.startswith(tuple(dropped))]
    remedy = "; or ".join(parts).replace(_CALL, _LOADER).replace(_BYTES, _CODES)
    error.calls = tuple(code.replace(_CALL, _LOADER) for code in error.calls if code not in dropped)
    passed = "".join(f", {name}={value!r}" for name, value in options.conversion.items())
    error.with_context(asked=f"loader(source, to={text(options.to)}{passed})", remedy=remedy)
