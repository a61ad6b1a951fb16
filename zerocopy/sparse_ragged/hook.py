"""``CompoundHook``: how a framework reads and builds arrays of several buffers; `CompoundArray`: an array."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from zerocopy import registry
from zerocopy.errors import Reason
from zerocopy.framework import Framework, hook_of
from zerocopy.source import type_name


class Layout(Protocol):
    """How the parts of one array belong together; `SparseLayout` and `RaggedLayout` are two."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parts, in their order: the attributes of messages and plans."""

    def summarize(self, name: str, parts: Sequence[Any]) -> str:
        """Return a short text for an array of type `name`: type, dtype, shape."""

    def check(self, parts: Sequence[Any]) -> None:
        """Raise `UnsupportedConversionError` if the parts do not fit together; in constant time."""

    def check_content(self, parts: Sequence[Any]) -> None:
        """Raise `UnsupportedConversionError` if a value of the parts is invalid; reads all indices."""

    def check_cast(self, parts: Sequence[Any]) -> None:
        """Raise `UnsupportedConversionError` if a cast of the stored values gives another array."""

    def warnings(self, parts: Sequence[Any]) -> tuple[str, ...]:
        """Return properties of the content that a consumer may not expect."""


@dataclass(slots=True, eq=False)
class Part:
    """One array of a compound array, as a target needs it.

    Attributes
    ----------
    obj : object
        The source's array.
    cast : str
        The dtype that the target needs; empty for the array's own.
    make : callable, optional
        ``make() -> array``: computes the target's form of the part with a copy of `nbytes` bytes.
    reason : Reason, optional
        Why the part is cast or computed.
    """

    obj: Any
    cast: str = ""
    make: Callable[[], Any] | None = None
    nbytes: int = 0
    reason: Reason | None = None


class CompoundHook:
    """Base class of the frameworks' classes `Compound`.

    Attributes
    ----------
    layout_type : type
        The layouts that it accepts; none by default.
    part_target : str
        The framework that holds the parts; empty for the hook's own framework.
    converts_own : bool
        Whether a compound array of the framework is converted to the framework itself, with copy=True for
        example, by its parts. False: the planner does it.

    Examples
    --------
    >>> CompoundHook().read(0) is None
    True
    """

    layout_type: type | tuple[()] = ()
    part_target: str = ""
    converts_own: bool = True

    def read(self, obj: Any) -> tuple[Any, tuple[Any, ...]] | None:
        """Return the layout of `obj`, an owned object, and its parts, which alias it; or None."""
        return None

    def reads(self, cls: type) -> bool:
        """Whether `read` can return a layout for objects of a type."""
        return True

    def accepts(self, layout: Any) -> bool:
        """Whether the framework has arrays of this layout, or `fit` raises the reason why it does not."""
        return isinstance(layout, self.layout_type)

    def value_types(self, layout: Any) -> frozenset[str] | None:
        """Return the names of the dtypes that values of a layout of `fit` can have; None for all."""
        return None

    def fit(self, layout: Any, parts: Sequence[Any]) -> tuple[Any, list[Part]]:
        """Return the layout and the parts that `build` takes.

        Raises
        ------
        UnsupportedConversionError
            The framework cannot hold the array.
        """
        return layout, [Part(part) for part in parts]

    def build(self, layout: Any, parts: Sequence[Any]) -> Any:
        """Return an array over `parts`, which are arrays of `part_target`; it aliases them.

        It raises if the layout is not one that `fit` returns: the fast path calls it without `fit`.
        """
        raise NotImplementedError


class CombinedHook(CompoundHook):
    """The hook of a framework with several kinds of arrays: the first of `hooks` that has the layout.

    Examples
    --------
    >>> CombinedHook().accepts(None)
    False
    """

    hooks: tuple[CompoundHook, ...] = ()

    def read(self, obj: Any) -> tuple[Any, tuple[Any, ...]] | None:
        for hook in self.hooks:
            described = hook.read(obj)
            if described is not None:
                return described
        return None

    def accepts(self, layout: Any) -> bool:
        return any(hook.accepts(layout) for hook in self.hooks)

    def value_types(self, layout: Any) -> frozenset[str] | None:
        return self._hook(layout).value_types(layout)

    def fit(self, layout: Any, parts: Sequence[Any]) -> tuple[Any, list[Part]]:
        return self._hook(layout).fit(layout, parts)

    def build(self, layout: Any, parts: Sequence[Any]) -> Any:
        return self._hook(layout).build(layout, parts)

    def _hook(self, layout: Any) -> CompoundHook:
        for hook in self.hooks:
            if hook.accepts(layout):
                return hook
        raise ValueError("no array of this layout")


@dataclass(slots=True, eq=False)
class CompoundArray:
    """A compound array and its target: their hooks, the layout and the parts."""

    name: str
    reader: CompoundHook
    builder: CompoundHook
    target: str  # of the parts
    has_tables: bool  # whether the source has tables
    layout: Layout
    parts: Sequence[Any]


def compound_of(obj: object, target: Framework, options: Mapping[str, Any]) -> CompoundArray | None:
    """Return the call's compound array and its target; None if the planner handles the call.

    Raises
    ------
    ZeroCopyError
        The parts do not fit together, or an option does not apply to them.
    """
    source = registry.by_type(type(obj))
    if source is None:
        return None
    reader, builder = hook_of(source, CompoundHook), hook_of(target, CompoundHook)
    is_kept = options.keys() <= {"copy", "stream", "leaves"} and options.get("copy") is not True
    if source is target and is_kept:
        return None  # returned unchanged
    if source.name == target.name and not builder.converts_own:
        return None
    described = reader.read(obj)
    if described is None or not builder.accepts(described[0]):
        return None
    layout, parts = described
    layout.check(parts)
    if "validate" in options:
        layout.check_content(parts)
    part_target = builder.part_target or target.name
    return CompoundArray(type_name(obj), reader, builder, part_target, source.tables, layout, parts)
