"""Arguments and results as a flat list of arrays, and what remains of their containers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from zerocopy import registry
from zerocopy._engine.container_types import CONTAINERS, is_container, items_of, rebuild
from zerocopy.errors import Fix, UnsupportedConversionError
from zerocopy.framework import Framework
from zerocopy.source import type_name

#: Types of arguments that are passed on unchanged; the others are checked.
_PLAIN = frozenset((str, bytes, bool, int, float, complex, type(None), slice, range))


class _Array:
    """Mark of an array's place in a skeleton."""


class _Container:
    """A container in a skeleton: the original, its keys, and the skeletons of its items."""

    __slots__ = ("items", "keys", "original")

    def __init__(self, original: Any, keys: list[Any], items: list[Any]) -> None:
        self.original, self.keys, self.items = original, keys, items


ARRAY = _Array()


class Arguments:
    """Takes the arrays of one framework out of the arguments of a call."""

    __slots__ = ("asked", "framework")
    _role = "arguments"

    def __init__(self, framework: Framework, asked: str) -> None:
        self.framework, self.asked = framework, asked

    def flatten(self, obj: Any, arrays: list[Any], parents: tuple[int, ...] = ()) -> Any:
        """Append the arrays in `obj` to `arrays`, and return the structure without them.

        Raises
        ------
        UnsupportedConversionError
            It contains an array of another framework, or a container that holds itself.
        """
        cls = type(obj)
        if cls in _PLAIN:
            return obj
        if not issubclass(cls, CONTAINERS):
            owner = registry.by_type(cls)
            if owner is self.framework:
                arrays.append(obj)
                return ARRAY
            if owner is not None:
                raise self._foreign(obj, owner)
            if not is_container(obj):
                return obj
        return self._flatten_items(obj, arrays, parents)

    def _flatten_items(self, obj: Any, arrays: list[Any], parents: tuple[int, ...]) -> _Container:
        if id(obj) in parents:
            raise UnsupportedConversionError(
                self.asked,
                f"a {type_name(obj)} among its {self._role} holds itself",
                "pass a tree of containers",
                code="cyclic-container",
            )
        pairs, inner = items_of(obj), (*parents, id(obj))
        items = [self.flatten(value, arrays, inner) for _, value in pairs]
        return _Container(obj, [key for key, _ in pairs], items)

    def _foreign(self, obj: Any, owner: Framework) -> UnsupportedConversionError:
        name = self.framework.name
        return UnsupportedConversionError(
            self.asked,
            f"an argument is an array of {owner.name}; the function takes arrays of {name}",
            fixes=[Fix(f'zc.convert({{x}}, to="{name}")', "converts it", alone=True)],
            code="foreign-argument",
        )


class Results(Arguments):
    """Takes the arrays of one framework out of the result of a function."""

    __slots__ = ()
    _role = "results"

    def flatten(self, obj: Any, arrays: list[Any], parents: tuple[int, ...] = ()) -> Any:
        """As `Arguments.flatten`; all leaves are arrays of the framework or None."""
        cls = type(obj)
        if obj is None:
            return None
        if not issubclass(cls, CONTAINERS):
            if registry.by_type(cls) is self.framework:
                arrays.append(obj)
                return ARRAY
            if not is_container(obj):
                name = self.framework.name
                raise UnsupportedConversionError(
                    self.asked,
                    f"the function returned {type_name(obj)}, which is not an array of {name}",
                    f"return arrays of {name}, None, or containers of these",
                    code="result-not-an-array",
                )
        return self._flatten_items(obj, arrays, parents)


def unflatten(skeleton: Any, arrays: Sequence[Any]) -> Any:
    """Return a skeleton with `arrays` in their places."""
    return _fill(skeleton, iter(arrays))


def _fill(skeleton: Any, arrays: Iterator[Any]) -> Any:
    if skeleton is ARRAY:
        return next(arrays)
    if type(skeleton) is not _Container:
        return skeleton
    return rebuild(skeleton.original, skeleton.keys, [_fill(item, arrays) for item in skeleton.items])
