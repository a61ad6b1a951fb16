"""Hugging Face datasets: the format "zerocopy", whose rows are those of ``zerocopy.convert``."""

from __future__ import annotations

from typing import Any

from zerocopy import registry
from zerocopy._engine.convert import convert
from zerocopy.errors import OptionError, UnsupportedConversionError
from zerocopy.framework import version_numbers
from zerocopy.tables.result import first_row


def install() -> str:
    """Let ``data.with_format("zerocopy", to="torch")`` of Hugging Face datasets return rows by ``convert``.

    Its other arguments are options of :func:`zerocopy.convert`. Without ``encode=``, text is a list.

    Returns
    -------
    str
        The name of the format.

    Raises
    ------
    FrameworkNotInstalledError, UnsupportedConversionError
        datasets is not installed, or has a version whose formats are not known.
    """
    types, names = _formats()
    types[_NAME], names[_NAME] = _Formatter, _NAME
    return _NAME


def uninstall() -> None:
    """Remove the format."""
    for known in _formats():
        known.pop(_NAME, None)


class _Name(str):
    """The name of the format. Unpickling a data set that has it, as a worker does, installs the format."""

    def __reduce__(self) -> tuple[Any, ...]:
        return install, ()


_NAME = _Name("zerocopy")


def _formats() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the formats of datasets by name, and the names by their aliases; neither has a public name."""
    datasets = registry.by_name("datasets").module()
    if version_numbers(datasets.__version__)[0] not in (4, 5):
        why = f"datasets {datasets.__version__} is not known"
        fix = 'use zc.dataset(data, to="torch"); or zc.convert(data.with_format("arrow")[:8], "torch")'
        raise UnsupportedConversionError("install()", why, fix)
    return datasets.formatting._FORMAT_TYPES, datasets.formatting._FORMAT_TYPES_ALIASES


class _Formatter:
    def __init__(self, to: Any = None, features: Any = None, **options: Any) -> None:
        if to is None:
            why = "to= is missing, and a streaming data set cannot pass it"
            raise OptionError("with_format()", why, 'pass to="torch"; or use zc.loader(data, to="torch")')
        self.features, self._to, self._options = features, to, options

    def __call__(self, table: Any, query_type: str) -> Any:
        texts = {}
        for name, kind in zip(table.column_names, map(str, table.schema.types), strict=True):
            if "encode" not in self._options and kind.removeprefix("large_") in ("string", "binary"):
                texts[name] = table[name].to_pylist()
        # datasets makes a chunk of each row.
        rest = table.drop_columns([*texts]).combine_chunks()
        batch = (convert(rest, self._to, **self._options) if rest.num_columns else {}) | texts
        if query_type == "column":
            return batch[table.column_names[0]]
        return first_row(batch) if query_type == "row" else batch
