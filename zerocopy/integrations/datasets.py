"""Hugging Face datasets: the format "zerocopy", whose rows are those of ``zerocopy.convert``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from zerocopy import registry
from zerocopy._engine.convert import convert
from zerocopy._engine.target import is_named, of_object, resolve
from zerocopy.errors import OptionError
from zerocopy.tables.result import first_row


def install() -> str:
    """Let ``data.with_format("zerocopy", to="torch")`` of Hugging Face datasets return rows by ``convert``.

    Its other arguments are options of :func:`zerocopy.convert`. Without ``encode=``, text is a list. Without
    ``copy=`` and ``writable=``, a batch has its own memory.

    Returns
    -------
    str
        The name of the format.

    Raises
    ------
    FrameworkNotInstalledError, UnsupportedConversionError
        datasets is not installed, or has a version whose formats are not known.
    """
    types, names = cast(Any, registry.by_name("datasets")).formats()
    types[_NAME], names[_NAME] = _Formatter, _NAME
    return _NAME


def uninstall() -> None:
    """Remove the format."""
    for known in cast(Any, registry.by_name("datasets")).formats():
        known.pop(_NAME, None)


class _Name(str):
    """The name of the format. Unpickling a data set that has it, as a worker does, installs the format."""

    def __reduce__(self) -> tuple[Any, ...]:
        return install, ()


_NAME = _Name("zerocopy")


class _Formatter:
    def __init__(self, to: Any = None, features: Any = None, **options: Any) -> None:
        if to is None:
            why = "to= is missing, and a streaming data set cannot pass it"
            raise OptionError("with_format()", why, 'pass to="torch"; or use zc.loader(data, to="torch")')
        if not is_named(to):
            to, options = of_object(to, None, options)
        _refuse_other_results(to, options)
        # Batches of datasets are the caller's own, and torch would write to read-only memory.
        own = {} if {"copy", "writable"} & options.keys() else {"writable": True}
        self.features, self._to, self._options = features, to, own | options

    def __call__(self, table: Any, query_type: str) -> Any:
        texts = {}
        for name, kind in zip(table.column_names, map(str, table.schema.types), strict=True):
            if "encode" not in self._options and kind.removeprefix("large_") in ("string", "binary"):
                texts[name] = table[name].to_pylist()
        # datasets makes a chunk of each row.
        rest = table.drop_columns([*texts]).combine_chunks()
        parts = (convert(rest, self._to, **self._options) if rest.num_columns else {}) | texts
        batch = {name: parts[name] for name in table.column_names}
        if query_type == "column":
            return batch[table.column_names[0]]
        return first_row(batch) if query_type == "row" else batch


def _refuse_other_results(to: Any, options: dict[str, Any]) -> None:
    """Refuse targets and options whose result is not a dict of columns with all rows."""
    name, layout, nulls = resolve(to).name, options.get("layout"), options.get("nulls")
    if resolve(to).kind not in ("tensor", "compound"):
        asked, fix = f"to={name!r}", f'to="torch"; or use zc.convert(data, "{name}")'
    elif layout not in (None, "columns"):
        asked, fix = f"{layout=}", f'layout="columns"; or use zc.dataset(data, to="{name}", layout="matrix")'
    elif "drop" in map(str, nulls.values() if isinstance(nulls, Mapping) else [nulls]):
        asked, fix = f"{nulls=}", f'nulls="mask"; or use zc.loader(data, to="{name}", nulls="drop")'
    else:
        return
    why = "the format has a dict of tensors by column, with all rows"
    raise OptionError(f"with_format({asked})", why, f"pass {fix}")
