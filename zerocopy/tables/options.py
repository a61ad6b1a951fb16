"""``Options`` and ``Request``: the caller's options for the conversion of a table."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from zerocopy import handover
from zerocopy.errors.invalid_option import invalid_value

if TYPE_CHECKING:
    from zerocopy.casting.option import DTypeOption
    from zerocopy.errors import OptionError
    from zerocopy.tables.lists import Lists

_LISTS = ("dense", "pad", "ragged", "variable")
_LAYOUTS = ("columns", "matrix", "matrix:C", "matrix:F", "records")


def is_encoding(value: Any) -> bool:
    """Whether a value of ``encode=`` is valid, by its type: 0 equals False, arrays compare elementwise."""
    return (
        value is None or isinstance(value, (bool, Mapping)) or (isinstance(value, str) and value == "bytes")
    )


@dataclass(frozen=True, slots=True)
class Options:
    """The options of ``convert`` that apply to tables, checked; None if the caller did not pass one."""

    layout: str | None = None
    columns: Sequence[Hashable] | None = None
    nulls: Any = None
    encode: bool | str | Mapping[Hashable, Any] | None = None
    lists: str | None = None
    pad: Any = None
    max_length: int | None = None
    names: Sequence[str] | None = None
    index: Any = None
    connection: Any = None
    #: The options that the caller passed, by name.
    explicit: Mapping[str, Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.layout is not None and not (isinstance(self.layout, str) and self.layout in _LAYOUTS):
            raise _not_one_of("layout", self.layout, _LAYOUTS)
        for name in ("columns", "names"):
            value = getattr(self, name)
            if value is not None and not _is_list(value):
                hint = f"pass {name}=[{value!r}]" if isinstance(value, str) else ""
                raise invalid_value(name, value, f"{name} must be a list of names", hint)
            if value is not None:
                object.__setattr__(self, name, tuple(value))
        if not is_encoding(self.encode):
            hint = "pass words by the column's name: encode={name: words}" if _is_list(self.encode) else ""
            why = "encode must be True, False, 'bytes' or a dict of words"
            raise invalid_value("encode", self.encode, why, hint or "pass encode=True", ["bytes"])
        for key, words in self.encode.items() if isinstance(self.encode, Mapping) else ():
            if isinstance(words, Iterator):
                why = f"encode[{key!r}] must be a list of words, not an iterator, which can be read only once"
                raise invalid_value("encode", self.encode, why, "pass list(words)")
        self._check_lists()
        if not (self.index is None or isinstance(self.index, bool) or _is_list(self.index)):
            why = "index must be True, False, None or the labels of the rows"
            raise invalid_value("index", self.index, why, "pass index=True, or leave it out")
        if self.nulls is not None:
            from zerocopy.tables import nulls

            for value in self.nulls.values() if isinstance(self.nulls, dict) else [self.nulls]:
                nulls.parse(value, None)
        given = {name: value for name in NAMES if (value := getattr(self, name)) is not None}
        object.__setattr__(self, "explicit", given)

    def _check_lists(self) -> None:
        if self.lists is not None and not (isinstance(self.lists, str) and self.lists in _LISTS):
            raise _not_one_of("lists", self.lists, _LISTS)
        for name in ("pad", "max_length"):
            if getattr(self, name) is not None and self.lists != "pad":
                why = f'{name} applies only to lists="pad"; pass both'
                raise invalid_value(name, getattr(self, name), why, f'pass lists="pad", or leave {name}= out')
        length = self.max_length
        if length is not None and (isinstance(length, bool) or not isinstance(length, int) or length < 0):
            why = "max_length must be an int of at least 0"
            raise invalid_value("max_length", length, why, "pass an int, such as max_length=512")
        if self.pad is not None and not isinstance(self.pad, (int, float, complex, np.generic)):
            raise invalid_value(
                "pad", self.pad, "pad must be a number or a bool", "pass a number, such as pad=0"
            )

    @property
    def list_policy(self) -> Lists:
        """The policy for columns of lists: lists of one length are tensors, but for ``encode=``."""
        from zerocopy.tables.lists import Lists

        if self.lists is None:
            return Lists("refuse" if self.is_encoded else "dense")
        pad = self.pad.item() if isinstance(self.pad, np.generic) else self.pad
        return Lists(self.lists, 0 if pad is None else pad, self.max_length)

    @property
    def is_encoded(self) -> bool:
        """Whether types that tensors lack become numbers."""
        return self.encode is not None and self.encode is not False

    @property
    def of_target(self) -> dict[str, Any]:
        """The options for frameworks that list them in ``Framework.options``, by name."""
        labels = None if isinstance(self.index, bool) else self.index
        given = {"index": labels, "connection": self.connection}
        return {name: value for name, value in given.items() if value is not None}

    @property
    def for_tables_only(self) -> bool:
        """Whether the options have no effect on arrays and single columns."""
        return self.explicit.keys() == {"layout"} and self.layout != "records"


def _not_one_of(name: str, value: Any, choices: Sequence[str]) -> OptionError:
    listed = ", ".join(map(repr, choices))
    return invalid_value(name, value, f"{name} must be one of {listed}", f"pass one of {listed}", choices)


def _is_list(value: Any) -> bool:
    # An iterator can be read once, by explain or by convert.
    return hasattr(value, "__iter__") and not isinstance(value, (str, bytes, Iterator))


NAMES = tuple(each.name for each in fields(Options) if each.init)
#: Default options, built once because validation costs time.
DEFAULTS = Options()


@lru_cache(maxsize=16)
def of_layout(layout: str) -> Options:
    """Return the options of a call that passes ``layout=`` alone."""
    return Options(layout)


@dataclass(slots=True, kw_only=True)
class Request(handover.Request):
    """One conversion of a table: the request for each of its arrays, and the options for tables.

    Attributes
    ----------
    options : Options
        The options for tables.
    validate : bool
        Whether the content of Arrow columns is checked (``validate="full"``).
    cast : DTypeOption or None
        The option ``dtype=``.
    reports : bool
        Whether the plan is for ``explain``, and describes each column.
    """

    options: Options
    validate: bool = False
    cast: DTypeOption | None = None
    reports: bool = True
    #: The option ``nulls=`` if it has ``"drop"``, which the nulls of `options` then lack.
    drop: Any = None
