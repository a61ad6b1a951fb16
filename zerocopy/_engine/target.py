"""The framework that the argument ``to`` names: as text, as a module, as a type or by an object."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import reduce
from types import ModuleType
from typing import Any

from zerocopy import registry
from zerocopy.describe import translated_errors
from zerocopy.errors import UnknownFrameworkError, ZeroCopyError
from zerocopy.framework import Framework, hook_of
from zerocopy.source import type_name


def resolve(to: object, obj: object = None) -> Framework:
    """Return the framework that ``to`` names.

    Parameters
    ----------
    to : str, module or type
        ``"torch"``, ``torch``, ``torch.Tensor``, ``"torch.Tensor"``, ``jax.numpy``.
    obj : object, optional
        The first argument of the call, to recognise swapped arguments.

    Raises
    ------
    UnknownFrameworkError
        It names none; the remedy is the right call if the arguments were swapped.

    Examples
    --------
    >>> import numpy as np
    >>> resolve(np).name, resolve(np.ndarray).name, resolve("numpy.ndarray").name
    ('numpy', 'numpy', 'numpy')
    """
    if not is_named(to):
        raise _not_a_target(to, obj)
    framework = _find(to)
    if framework is not None:
        return framework
    if isinstance(to, type):
        why = "it is not a type that convert makes"
        owner = _owner(to)
        remedy = f"pass to={owner.name!r}" if owner is not None else registry.suggest(text(to))
        raise UnknownFrameworkError(f"to={text(to)}", why, remedy)
    return registry.by_name(text(to).strip("'"))  # raises, with the nearest names


def is_named(to: object) -> bool:
    """Whether ``to`` is a name, a module or a type, and not an object of the target."""
    return issubclass(type(to), (str, ModuleType, type))  # not isinstance, which reads __class__


def of_object(to: object, obj: object, options: Mapping[str, object]) -> tuple[Any, dict[str, Any]]:
    """Return the name of the framework of an object passed as ``to``, and the options with its device."""
    framework = registry.target_of(type(to))
    if framework is None or (is_named(obj) and _find(obj)):
        raise _not_a_target(to, obj)
    own = _of_type(type(to))
    # The type of a table selects one of several forms. A tensor's name reuses the routes of ``to="torch"``.
    named = framework.name if own is None or own.kind == "tensor" else type(to)
    given = dict(options)
    if given.get("device") is None and framework.device_kinds != ("cpu",):
        device = device_of(framework, to)
        given |= {} if device is None else {"device": device}
    return named, given


def _not_a_target(to: object, obj: object) -> UnknownFrameworkError:
    if is_named(obj) and _find(obj) is not None:
        remedy = f"the object comes first: zc.convert(x, {text(obj)})"
        return UnknownFrameworkError(f"to={_short(to)}", "the arguments are swapped", remedy)
    why = "it is not a name, a module, a type or an object of a framework"
    return UnknownFrameworkError(f"to={_short(to)}", why, registry.suggest(""))


def device_of(framework: Framework, obj: object) -> str | None:
    """Return the device of a framework's object as the option ``device=``; None without a single device."""
    try:
        with translated_errors(f"to={_short(obj)}".__str__):
            table = framework.table(obj)
            columns = None if table is None else table.columns
            devices = {framework.source(obj).view.device} if columns is None else {c.device for c in columns}
    except ZeroCopyError:
        return None  # several buffers or devices
    if len(devices) != 1:
        return None
    device = devices.pop()
    return device.kind if device.is_host else f"{device.kind}:{device.id}"


def may_be_compound(cls: type, target: Framework) -> bool:
    """Whether objects of a type can be arrays of several buffers, and the target has such arrays."""
    source = registry.by_type(cls) if target.has_hook("compound") else None
    if source is None or not source.has_hook("compound"):
        return False
    from zerocopy.sparse_ragged.hook import CompoundHook

    return hook_of(source, CompoundHook).reads(cls)


def text(to: object) -> str:
    """Return ``to`` as it is written in a call.

    Examples
    --------
    >>> import numpy as np
    >>> text("numpy"), text(np), text(np.ndarray)
    ("'numpy'", 'numpy', 'numpy.ndarray')
    """
    if isinstance(to, ModuleType):
        return to.__name__
    if isinstance(to, type):
        return type_of(to)
    return repr(to) if isinstance(to, str) else _short(to)


def type_of(cls: type) -> str:
    """Return a type's name: in the top-level module, in that of its framework, or where it is defined."""
    top, name = cls.__module__.partition(".")[0], _name(cls)
    if cls.__module__ == "builtins":
        return name
    if getattr(sys.modules.get(top), name, None) is cls:
        return f"{top}.{name}"
    for framework in registry.by_root(cls):
        module: object = sys.modules.get(framework.name)
        for path in framework.types:  # "utils.StridedMemoryView", which is defined in a private module
            if reduce(_part, path.split("."), module) is cls:
                return f"{framework.name}.{path}"
    return f"{cls.__module__}.{name}"


def _part(whole: object, name: str) -> object:
    return getattr(whole, name, None)


def _name(cls: type) -> str:
    return cls.__name__.rpartition(".")[2]  # jax.Array is called "jaxlib._jax.Array"


def _short(to: object) -> str:
    shown = repr(to) if type(to) in (int, float, bool, type(None)) else ""
    return shown or f"<{type_name(to)}>"


def _find(to: object) -> Framework | None:
    if isinstance(to, str):
        framework = registry.find(to)
        if framework is not None or "." not in to:
            return framework
        names = to.split(".")
        for count in range(1, len(names)):
            if (owner := registry.find(".".join(names[:count]))) is not None:
                return owner if ".".join(names[count:]) in owner.types else None
        return None
    if isinstance(to, ModuleType):
        return registry.find(to) or _find(to.__name__)
    return _of_type(to) if isinstance(to, type) else None


def _of_type(cls: type) -> Framework | None:
    """Return the framework that makes objects of a type, in the form that the type names."""
    framework = _owner(cls)
    if framework is None:
        return None
    name = _name(cls)
    variant = framework.variant(name)
    if variant is not None:
        return variant if getattr(framework.module(), name, None) is cls else None
    if framework.types:
        return framework if name in [path.rpartition(".")[2] for path in framework.types] else None
    # A plugin that lists neither types nor forms has one kind of object.
    one_kind = not framework.forms and type(framework).variant is Framework.variant
    return framework if one_kind else None


def _owner(cls: type) -> Framework | None:
    """Return the framework of a type, if it is imported: a type that a user passes exists."""
    for framework in registry.by_root(cls):
        if framework.kind == "source" or framework.name not in sys.modules:
            continue
        try:
            if framework.owns(cls):
                return framework
        except ZeroCopyError:
            continue  # the framework is too old
    return None
