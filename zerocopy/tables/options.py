"""Checks of the options for tables, and the policy for columns of lists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from zerocopy.errors.invalid_option import invalid_value
from zerocopy.request import MatrixOrder

if TYPE_CHECKING:
    from zerocopy.errors import OptionError
    from zerocopy.request import Request
    from zerocopy.tables.lists import Lists

_LISTS = ("dense", "pad", "ragged", "variable")
_LAYOUTS = ("columns", "matrix", "records")


def check(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options for tables that a caller passed, with labels of columns as tuples.

    Raises
    ------
    OptionError
        An option has an invalid value, or needs another one.
    """
    checked = dict(options)
    layout = options.get("layout")
    is_known = isinstance(layout, MatrixOrder) or (isinstance(layout, str) and layout in _LAYOUTS)
    if layout is not None and not is_known:
        raise _not_one_of("layout", layout, _LAYOUTS)
    for name in options.keys() & {"columns", "names"}:
        value = options[name]
        try:
            checked[name] = tuple(value) if _is_list(value) else []  # has no hash either
            hash(checked[name])
        except TypeError:
            hint = f"pass {name}=[{value!r}]" if isinstance(value, str) else "pass one list of names"
            raise invalid_value(name, value, f"{name} must be a list of names", hint) from None
    if "encode" in options:
        checked["encode"] = encode = plain_encoding(options["encode"])
        if encode is not True:
            _check_encode(encode)
    if not options.keys().isdisjoint(("lists", "pad_value", "max_length")):
        _check_lists(options)
    index = options.get("index")
    if not (index is None or isinstance(index, bool) or _is_list(index)):
        why = "index must be True, False, None or the labels of the rows in order"
        raise invalid_value("index", index, why, "pass index=True, or leave it out")
    if "nulls" in options:
        from zerocopy.tables import nulls

        given = options["nulls"]
        for value in given.values() if isinstance(given, dict) else [given]:
            nulls.parse(value, None)
    return checked


def is_encoding(value: object) -> bool:
    """Whether a value of ``encode=`` is valid, by its type: 0 equals False, arrays compare elementwise."""
    is_text = isinstance(value, str) and value in ("codes", "bytes")
    return value is None or isinstance(value, (bool, Mapping)) or is_text


def plain_encoding(value: object) -> object:
    """Return a value of ``encode=`` in which True replaces ``"codes"``, also in a dict by column."""
    if isinstance(value, Mapping):
        return {label: plain_encoding(choice) for label, choice in value.items()}
    return True if isinstance(value, str) and value == "codes" else value


def is_encoded(request: Request) -> bool:
    """Whether types that tensors lack become numbers."""
    return request.encode is not None and request.encode is not False


def list_policy(request: Request) -> Lists:
    """Return the policy for columns of lists: lists of one length are tensors, but for ``encode=``."""
    from zerocopy.tables.lists import Lists

    if request.lists is None:
        return Lists("refuse" if is_encoded(request) else "dense")
    pad = request.pad_value.item() if isinstance(request.pad_value, np.generic) else request.pad_value
    return Lists(request.lists, 0 if pad is None else pad, request.max_length)


def _check_encode(encode: object) -> None:
    if not is_encoding(encode):
        hint = "pass words by the column's name: encode={name: words}" if _is_list(encode) else ""
        why = "encode must be 'codes' or True, 'bytes', False or a dict of words"
        raise invalid_value("encode", encode, why, hint or 'pass encode="codes"', ["codes", "bytes"])
    for key, words in encode.items() if isinstance(encode, Mapping) else ():
        if isinstance(words, Iterator):
            why = f"encode[{key!r}] must be a list of words, not an iterator, which can be read only once"
            raise invalid_value("encode", encode, why, "pass list(words)")


def _check_lists(options: Mapping[str, Any]) -> None:
    lists, pad, length = (options.get(name) for name in ("lists", "pad_value", "max_length"))
    if lists is not None and not (isinstance(lists, str) and lists in _LISTS):
        raise _not_one_of("lists", lists, _LISTS)
    for name, value in (("pad_value", pad), ("max_length", length)):
        if value is not None and lists != "pad":
            why = f'{name} applies only to lists="pad"; pass both'
            raise invalid_value(name, value, why, f'pass lists="pad", or leave {name}= out')
    if length is not None and (isinstance(length, bool) or not isinstance(length, int) or length < 0):
        why = "max_length must be an int of at least 0"
        raise invalid_value("max_length", length, why, "pass an int, such as max_length=512")
    if pad is not None and not isinstance(pad, (int, float, complex, np.generic)):
        raise invalid_value("pad_value", pad, "pad_value must be a number or a bool", "pass pad_value=0")


def _not_one_of(name: str, value: object, choices: Sequence[str]) -> OptionError:
    listed = ", ".join(map(repr, choices))
    return invalid_value(name, value, f"{name} must be one of {listed}", f"pass one of {listed}", choices)


def _is_list(value: object) -> bool:
    # An iterator can be read once, by explain or by convert. A set has no order.
    return hasattr(value, "__iter__") and not isinstance(value, (str, bytes, Iterator, set, frozenset))
