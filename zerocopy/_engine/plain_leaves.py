"""Where the calls of a leaf's error apply: to the leaf, or to a container of Python objects as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zerocopy._engine import target
from zerocopy._engine.container_types import is_container, is_plain_object, items_of
from zerocopy._engine.fixes import arguments, as_code, relocate, with_imports
from zerocopy.errors import ZeroCopyError

#: The maximum length of the expression of a container with arrays in place of its numbers.
_LONGEST = 300
#: The maximum number of levels of containers that are searched for numbers.
_DEEPEST = 4


def locate(error: ZeroCopyError, leaf: Any, path: str, of_container: Callable[[], dict[str, str]]) -> None:
    """Let the calls of a leaf's error convert the container ``x``, or name the leaf by its path in ``x``.

    `of_container` returns the result of `container_calls`; it is called if the leaf is a Python object.
    """
    if error.code == "not-an-array" and is_plain_object(leaf):
        calls = of_container()
        error.calls = tuple(calls)
        error.with_context(remedy="; or ".join(f"{code} {effect}" for code, effect in calls.items()))
    else:
        relocate(error, path)


def container_calls(obj: Any, to: Any, options: dict[str, Any]) -> dict[str, str]:
    """Return the calls, with their effects, that convert a container with Python objects as leaves."""
    named = to if isinstance(to, str) else target.resolve(to).name
    end = f", {as_code('to', named)}{arguments(options)}"
    keep = f'{end}, leaves="keep"'
    keeping = {f"zc.convert(x{keep})": "keeps it unchanged"}
    kinds: set[str] = set()
    source = _with_arrays(obj, "x", kinds, 0)
    if source == "x" or len(source) > _LONGEST:
        return keeping
    code = f"zc.convert({source}{keep if 'others' in kinds else end})"
    arrays = {with_imports(code): "makes arrays of its numbers"}
    return arrays | keeping if "lists" in kinds else keeping | arrays


def _with_arrays(obj: Any, code: str, kinds: set[str], depth: int) -> str:
    """Return code for a container with arrays in place of its numbers and lists of numbers.

    `kinds` receives "lists" if one is replaced, and "others" if Python objects remain.
    """
    shape = _shape(obj)
    if shape is not None:
        if shape:
            kinds.add("lists")
        return f"numpy.asarray({code})"
    if type(obj) in (list, tuple) and obj and all(_shape(item) for item in obj):  # of several lengths
        kinds.add("lists")
        each = f"numpy.asarray(item) for item in {code}"
        return f"[{each}]" if type(obj) is list else f"tuple({each})"
    if type(obj) is dict and depth < _DEEPEST:
        changed = ""
        for key, value in obj.items():
            item = f"{code}[{key!r}]"
            new = _with_arrays(value, item, kinds, depth + 1)
            if not as_code("", key):
                kinds.add("others")  # the key has no literal
            elif new != item:
                changed += f", {key!r}: {new}"
        return f"{{**{code}{changed}}}" if changed else code
    if is_plain_object(obj) or (is_container(obj) and _has_plain(obj, depth)):
        kinds.add("others")
    return code


def _has_plain(obj: Any, depth: int) -> bool:
    """Whether a container has a leaf that is a Python object, or is too deep to know."""
    return depth >= _DEEPEST or any(
        is_plain_object(item) or (is_container(item) and _has_plain(item, depth + 1))
        for _, item in items_of(obj)
    )


def _shape(obj: Any) -> tuple[int, ...] | None:
    """Return the shape of a number, or of lists of numbers of one shape; None for another object."""
    if type(obj) in (bool, int, float, complex):
        return ()
    if type(obj) not in (list, tuple) or not obj:
        return None
    first = _shape(obj[0])
    if first is None or any(_shape(item) != first for item in obj):
        return None
    return (len(obj), *first)
