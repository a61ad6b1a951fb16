"""Errors of conversions in the terms of the loader that makes them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager

from zerocopy._engine.fixes import arguments, rewrite
from zerocopy._engine.target import text
from zerocopy.errors import ZeroCopyError
from zerocopy.loading.options import LoaderOptions

#: The targets of conversions on the host.
_HOSTS = ("numpy", "pyarrow", "pyarrow.Table")
_CALL, _LOADER = "zc.convert(x, ", "zc.loader(source, "


@contextmanager
def in_terms_of_loader(options: LoaderOptions) -> Iterator[None]:
    """Rewrite errors of conversions to name the call of ``loader``, and fixes as calls of ``loader``."""
    try:
        yield
    except ZeroCopyError as error:
        if error.asked.startswith("convert("):
            _rewrite(error, options)
        raise


@contextmanager
def opening(options: LoaderOptions, source: str, is_whole: bool = True) -> Iterator[None]:
    """Rewrite errors of conversions on the host, which the caller did not ask for.

    The message names the call of ``loader`` and its target. If the object is the whole source, so do the
    fixes.
    """
    try:
        yield
    except ZeroCopyError as error:
        if error.asked.startswith("convert("):
            error.with_context(asked=f"loader({source}, to={text(options.to)})")
            if is_whole:
                # A list of arrays, such as the parts of a sparse one, is not a source.
                _drop(error, [code for code in error.calls if code.startswith("zc.convert([")])
                rewrite(error, lambda code: _with_passed(_as_loader(code, options), options))
        raise


def _as_loader(code: str, options: LoaderOptions) -> str:
    """Return a fix whose calls of ``convert`` are calls of ``loader``."""
    target = text(options.to).replace("'", '"')
    for host in _HOSTS:
        code = code.replace(f', "{host}"', f", {target}")
    return code.replace("zc.convert(", "zc.loader(")


def _rewrite(error: ZeroCopyError, options: LoaderOptions) -> None:
    """Replace calls of ``convert`` by calls of ``loader``; leave out fixes that need the table itself."""
    _drop(error, [code for code in error.calls if _CALL not in code])
    rewrite(error, lambda code: _with_passed(code.replace(_CALL, _LOADER), options))
    passed = "".join(f", {name}={value!r}" for name, value in options.passed.items())
    error.with_context(asked=f"loader(source, to={text(options.to)}{passed})")


def _with_passed(code: str, options: LoaderOptions) -> str:
    """Return a call of ``loader`` with the options that ``convert`` lacks, and the caller's columns."""
    if not code.endswith(")"):
        return code
    call = ast.parse(code).body[-1].value  # type: ignore[attr-defined]
    if not isinstance(call, ast.Call) or getattr(call.func, "attr", "") != "loader":
        return code
    there = {keyword.arg for keyword in call.keywords}
    missing = {
        name: value
        for name, value in options.passed.items()
        if name not in there and name not in options.conversion
    }
    return f"{code[:-1]}{arguments(missing)})"


def _drop(error: ZeroCopyError, calls: list[str]) -> None:
    """Leave out some of the fixes of an error."""
    parts = [part for part in error.remedy.split("; or ") if not part.startswith(tuple(calls))]
    error.with_context(remedy="; or ".join(parts))
    error.calls = tuple(code for code in error.calls if code not in calls)
