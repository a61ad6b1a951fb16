"""``AuditHook``: the calls of a framework that may copy, and the properties of their results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class CopyCall:
    """One function, method, property or constructor that may copy the memory of its argument.

    Attributes
    ----------
    owner : object
        Module or class whose attribute is replaced while an audit runs.
    attribute : str
        Name of that attribute: a function or a property, never a class.
    label : str
        Name of the call in the report: ``"torch.tensor"``.
    to : str
        Framework of the result.
    form : str
        How a line of code calls it: ``"function"``, ``"method"``, ``"property"``, or ``"constructor"``
        for an ``__init__``, whose result is its first argument.
    keyword : str
        Name of the argument that is converted, if the caller passes it by name.
    position : int
        Index of that argument in the call of the attribute, with ``self``.
    """

    owner: Any
    attribute: str
    label: str
    to: str
    form: str = "function"
    keyword: str = ""
    position: int = 0

    def source(self, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Return the argument that is converted, or None."""
        if len(args) > self.position:
            return args[self.position]
        return options.get(self.keyword)


class AuditHook:
    """Base class of the frameworks' classes `Audit`."""

    def calls(self) -> list[CopyCall]:
        """Return the calls of the framework, which is imported."""
        return []

    def tracing(self) -> list[Callable[[], bool]]:
        """Return functions that return whether a compiler of the framework traces the program."""
        return []

    def adopt(self, original: Any, wrapper: Any) -> None:
        """Let the framework treat `wrapper`, which is never freed, as `original`."""

    def traits(self, obj: Any) -> dict[str, str]:
        """Return the properties that two results must have in common to be interchangeable."""
        if isinstance(obj, dict):
            traits = {"type": "dict", "keys": repr(list(obj))}
            return traits | {
                f"{name} of {key!r}": text
                for key, value in obj.items()
                for name, text in self.traits(value).items()
            }
        names = ("dtype", "shape", "device")
        traits = {name: str(getattr(obj, name)) for name in names if hasattr(obj, name)}
        return {"type": f"{type(obj).__module__}.{type(obj).__qualname__}", **traits}
