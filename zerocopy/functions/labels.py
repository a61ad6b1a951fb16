"""Labels of the caller's array for results of the same shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zerocopy import registry
from zerocopy._engine.container_types import is_container, is_plain_object
from zerocopy._engine.containers import format_path, map_leaves
from zerocopy._engine.convert import convert
from zerocopy.describe import describe
from zerocopy.errors import ZeroCopyError
from zerocopy.framework import Framework
from zerocopy.source import Source


def framework_of(cls: type) -> Framework | None:
    """Return the framework that owns a type, if it is a target of ``convert``."""
    framework = registry.by_type(cls)
    return None if framework is None or registry.find(framework.name) is None else framework


def has_labels(cls: type) -> bool:
    """Whether objects of a type can have labels: those of frameworks with tables."""
    framework = framework_of(cls)
    return framework is not None and framework.tables


def labelled(result: Any, to: Any, options: Mapping[str, Any], caller: Any) -> Any:
    """Return a converted result; arrays of the shape of `caller`, an array or table, get its labels."""
    if is_container(result):

        def leaf(value: Any, path: Any) -> Any:
            if type(value) is bytes or is_plain_object(value):
                return value
            try:
                return labelled(value, to, options, caller)
            except ZeroCopyError as error:
                raise error.with_context(why=f"at {format_path(path)}: {error.why}") from error.__cause__

        return map_leaves(result, leaf, to=to)
    converted = convert(result, to, **options, **_names_for(result, caller))
    framework = registry.by_type(type(caller))
    if converted is result or framework is None or not framework.owns(type(converted)):
        return converted
    return framework.labelled(converted, caller)


def _names_for(result: Any, table: Any) -> dict[str, Any]:
    """Return the option ``names=`` for a matrix of the shape of a table."""
    shape = tuple(getattr(result, "shape", ()))
    if len(shape) != 2 or registry.by_type(type(result)) is None:
        return {}
    described = describe(table, False)
    if isinstance(described, Source) or described.single or described.shape != shape:
        return {}
    labels = list(described.labels)
    unique = len({*labels}) == len(labels) and all(type(label) is str for label in labels)
    return {"names": labels} if unique else {}
