"""``Call``: one call of ``convert`` or ``explain``, and the description of its object."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from zerocopy import registry
from zerocopy._engine.containers import is_container
from zerocopy._engine.options import TABLE_NAMES
from zerocopy.describe import describe, describe_columns
from zerocopy.errors import UnsupportedConversionError, ZeroCopyError
from zerocopy.framework import Framework
from zerocopy.source import Source, type_name


class Call:
    """One call: the object, the target, the options, and the object's description once it is made.

    Every message of the call uses that description; the object is not described again.
    """

    __slots__ = ("description", "obj", "options", "to")

    def __init__(self, obj: Any, to: Any, options: dict[str, Any]) -> None:
        self.obj, self.to, self.options = obj, to, options
        self.description: Any = None  # a Source or a Table; None before describe()

    @property
    def table_options(self) -> dict[str, Any]:
        """The options that are for tables."""
        return {name: value for name, value in self.options.items() if name in TABLE_NAMES}

    @property
    def subject(self) -> str:
        """The object for messages: its type, with its dtype and shape if it is described."""
        return type_name(self.obj) if self.description is None else summarize(self.description)

    def __str__(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"convert({self.subject}, to={self.to!r}{options})"

    def is_tree(self) -> bool:
        """Whether the object is a container that is converted leaf by leaf, and not a table.

        A dict is a table if the target has tables or an option is for tables. A dict of tables is
        a container of them, and so is a dict of lists if the target has arrays.
        """
        if not is_container(self.obj):
            return False
        if not isinstance(self.obj, dict):
            return True
        target = registry.by_name(self.to)
        if not target.tables and not self.table_options:
            return True
        if target.kind != "table" and any(_is_plain_container(value) for value in self.obj.values()):
            return True
        with self.translated_errors():
            self.description = describe_columns(self.obj)
        return self.description is None

    def describe(self, target: Framework) -> Any:
        """Describe the object, unless `is_tree` did, and return the `Source` or `Table`."""
        if self.description is None:
            with self.translated_errors():
                self.description = describe(self.obj, self.options.get("index"), target.tables)
        return self.description

    @contextmanager
    def translated_errors(self) -> Iterator[None]:
        """Turn exceptions of frameworks and producers into zerocopy's own (promise P9)."""
        try:
            yield
        except (ZeroCopyError, MemoryError):
            raise
        except RecursionError as error:
            raise UnsupportedConversionError(
                "",
                "its types are nested deeper than Python's recursion limit",
                "flatten it, or raise the limit with sys.setrecursionlimit",
                code="nested-too-deep",
            ) from error
        except Exception as error:
            name = registry.out_of_memory(error)
            if name is not None:
                raise self.out_of_memory(name, error) from error
            raise UnsupportedConversionError(
                "",
                f"describing it raised {type(error).__name__}: {error}",
                "see the cause above; please report it if zerocopy should check for it",
                code="producer-raised",
            ) from error

    def out_of_memory(self, name: str, error: Exception) -> MemoryError:
        """Return Python's error for a framework's own out-of-memory error."""
        return MemoryError(
            f"{self}: {name} could not allocate memory ({type(error).__name__}).\n"
            "  To fix: free memory that is no longer needed, or convert in parts"
        )


def summarize(description: Any) -> str:
    """Return a short text for a `Source` or `Table`: type, dtype, shape.

    Examples
    --------
    >>> import numpy as np
    >>> summarize(describe(np.zeros((2, 3), "f4")))
    'numpy.ndarray float32 (2, 3)'
    """
    if isinstance(description, Source):
        return f"{description.name} {description.view.dtype} {description.view.shape}"
    field = description.columns[0].field if description.single else None
    text = description.name if field is None else f"{description.name} {field}"
    return f"{text} {description.shape}" if description.read is None else str(text)


def _is_plain_container(value: Any) -> bool:
    if not is_container(value):
        return False
    from zerocopy.tables.result import Masked

    return not isinstance(value, Masked)
