"""The signature of functions that take the options of ``convert``, and the checks of a call's options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import Parameter, Signature
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from zerocopy.request import NAMES, ONE_CALL, ConvertOptions, MatrixOrder

if TYPE_CHECKING:  # the known names are literals, so that type checkers report misspelled names
    from zerocopy._engine.signatures import (
        Like as Like,
        ResultT as ResultT,
        TableLike as TableLike,
        TableT as TableT,
        Target as Target,
    )
else:
    Target, Like = str | ModuleType | type[Any], Any
    # The types of an array's and of a table's result. The stub gives them the default Any (PEP 696).
    ResultT, TableT = TypeVar("ResultT"), TypeVar("TableT")

#: The texts that options of every conversion accept.
_CHOICES = {"leaves": ("keep", "error"), "validate": ("full",), "order": ("C", "F")}

_TYPES = get_type_hints(ConvertOptions)
_POSITIONAL = Parameter.POSITIONAL_OR_KEYWORD

#: For ``help()`` and ``inspect.signature``: functions take the options as one dictionary.
SIGNATURE = Signature(
    [Parameter("obj", _POSITIONAL, annotation=Any), Parameter("to", _POSITIONAL, annotation=Target | Like)]
    + [Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=_TYPES[name]) for name in NAMES],
    return_annotation=Any,
)


def attributes_of(function: object) -> dict[str, Any]:
    """Return the attributes of a function that takes the options, for its compiled form."""
    annotations = {name: parameter.annotation for name, parameter in SIGNATURE.parameters.items()}
    return {
        **{name: getattr(function, name) for name in ("__doc__", "__module__", "__name__", "__qualname__")},
        "__annotations__": annotations | {"return": SIGNATURE.return_annotation},
        "__signature__": SIGNATURE,
    }


def check_options(function: str, options: Mapping[str, object], own: Sequence[str] = ()) -> dict[str, Any]:
    """Return the options that are not None; `own` has other options of the function, for messages.

    ``order=`` becomes a part of ``layout=``.

    Raises
    ------
    TypeError
        A name is not an option, as Python raises for unknown keywords.
    OptionError
        ``copy`` or ``writable`` is not True, False or None, ``leaves``, ``validate`` or ``order`` is not one
        of its texts or None, or ``order`` was passed without ``layout="matrix"``.
    """
    from zerocopy.errors.invalid_option import invalid_value, unknown_option

    takes_all = function in ("convert", "explain")
    names = NAMES if takes_all else tuple(name for name in NAMES if name not in ONE_CALL)
    for name in options:
        if name not in names:
            raise TypeError(unknown_option(function, name, (*own, *names)))
    for name in ("copy", "writable"):
        value = options.get(name)
        if not (value is None or value is True or value is False):  # 0 == False, but is neither
            remedy = f"pass {name}=True, or leave it out"
            raise invalid_value(name, value, f"{name} must be True, False or None", remedy)
    for name, choices in _CHOICES.items():
        value = options.get(name)
        if value is not None and not (isinstance(value, str) and value in choices):
            valid = " or ".join([*map(repr, choices), "None"])
            raise invalid_value(name, value, f"{name} must be {valid}", choices=choices)
    given = {name: value for name, value in options.items() if value is not None}
    if given.get("leaves") == "error":
        del given["leaves"]  # the default
    if isinstance(layout := given.get("layout"), str):
        given["layout"] = str.__str__(layout)  # a member of a StrEnum has another hash
    if order := given.pop("order", None):
        if given.get("layout") != "matrix":
            why = 'order applies only to layout="matrix"; pass both'
            raise invalid_value("order", order, why, f'pass layout="matrix", order="{order}"')
        given["layout"] = MatrixOrder(order)
    return given
