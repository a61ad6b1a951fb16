"""Types of containers: which objects are containers, their items, and how each type is rebuilt.

Types that optree or a framework registers as pytrees are containers too. optree's registrations come first,
then those of the frameworks in the order of their names. A library that is not imported has no registrations,
and is not imported here.
"""

from __future__ import annotations

import copy as copying
import sys
from collections import OrderedDict, UserDict, UserList, defaultdict, deque
from collections.abc import Callable, Hashable, Mapping, MutableMapping, MutableSequence, Sequence
from dataclasses import fields
from functools import cached_property, lru_cache
from inspect import getattr_static
from typing import Any

from zerocopy import registry
from zerocopy.errors import Fix, UnsupportedConversionError
from zerocopy.framework import Framework, hook_of
from zerocopy.protocols.exporter_errors import is_error
from zerocopy.protocols.producer import exports_arrays
from zerocopy.protocols.pytree_node import Attribute, Node, PytreesHook, one_level
from zerocopy.source import type_name

#: Types of containers, with their subclasses: a namedtuple is a tuple. Tests use ``issubclass`` of the
#: type, because ``isinstance`` reads ``__class__``, which proxies compute and which can raise.
CONTAINERS = (dict, list, tuple)

#: Types that frameworks own, so that one lookup recognises most leaves.
ARRAY_TYPES: set[type] = set()

_PACKAGE = __name__.removesuffix("_engine.container_types")
#: The most mappings inside a mapping, and the levels of them, that a fix names.
_MOST_INNER, _DEEPEST = 12, 2

registry.on_change(ARRAY_TYPES.clear)


def is_container(obj: object) -> bool:
    """Whether an object is converted leaf by leaf; an array or table never is."""
    cls = type(obj)
    if issubclass(cls, CONTAINERS):
        return cls in CONTAINERS or registry.by_type(cls) is None  # SciPy's DOK arrays are dicts
    return other_kind(obj) is not None


def is_mapping(obj: object) -> bool:
    """Whether a container has keys, as a dict has."""
    cls = type(obj)
    if issubclass(cls, CONTAINERS):
        return issubclass(cls, dict)
    kind = other_kind(obj)
    return kind in (_of_mapping, _of_handle) or (kind is _of_pytree and issubclass(cls, Mapping))


def is_plain_object(obj: object) -> bool:
    """Whether an object is neither an array, a table nor a container: text, None, a Python number."""
    cls = type(obj)
    if obj is None or issubclass(cls, str) or cls in (bool, int, float, complex):
        return True
    if issubclass(cls, CONTAINERS) or _has_array_type(obj):  # NumPy's scalars are arrays
        return False
    return not exports_arrays(obj) and other_kind(obj) is None


def _has_array_type(obj: object) -> bool:
    """Whether a framework, or zerocopy itself, owns the object's type."""
    cls = type(obj)
    if cls in ARRAY_TYPES:
        return True
    if registry.by_type(cls) is None:
        return str(cls.__module__).startswith(_PACKAGE)
    ARRAY_TYPES.add(cls)
    return True


def is_result(cls: type) -> bool:
    """Whether a type is `Masked` or `Encoded`: parts for tensor frameworks, a column for table frameworks."""
    return hasattr(cls, "__zerocopy_node__")


def items_of(obj: Any) -> list[tuple[Hashable, Any]]:
    """Return a container's keys and values; fields that are marked static are not among them."""
    try:
        if issubclass(type(obj), CONTAINERS):
            return [*(obj.items() if isinstance(obj, dict) else enumerate(obj))]
        kind = other_kind(obj)
        assert kind is not None
        if kind is _of_pytree:
            node = _flatten(obj)
            return list(zip(node.keys, node.children, strict=True))
        if kind is _of_variable:
            return [(Attribute("value"), obj.get_value())]
        if kind is _of_dataclass:
            return [(Attribute(name), getattr(obj, name)) for name in _array_fields(obj)]
        if kind is _of_handle and not issubclass(type(obj), Mapping):
            names = obj.keys()  # safe_open has no __iter__
            return [(name, obj.get_tensor(name)) for name in names]
        return [*(enumerate(obj) if kind is _of_sequence else obj.items())]
    except (MemoryError, RecursionError):
        raise
    except Exception as error:
        if not is_error(error):
            raise
        raise UnsupportedConversionError(
            f"convert({type(obj).__qualname__})",
            f"reading its items raised {type(error).__name__}: {error}",
            "pass a dict or list of them",
            code="producer-raised",
        ) from error


def rebuild(obj: object, keys: list[object], values: list[object]) -> object:
    """Return a container of the same type with other values."""
    if type(obj) is dict:
        return dict(zip(keys, values, strict=True))
    if type(obj) is list:
        return values
    try:
        if isinstance(obj, CONTAINERS):
            return _of_builtin(obj, keys, values)
        kind = other_kind(obj)
        assert kind is not None
        return kind(obj, keys, values)
    except (MemoryError, RecursionError):
        raise
    except Exception as error:
        if not is_error(error):
            raise  # the type's constructor did not raise it
        remedy, fixes = _plain_form(obj)
        raise UnsupportedConversionError(
            f"convert({type(obj).__qualname__})",
            f"a {type(obj).__qualname__} cannot be rebuilt from its items: {error}",
            remedy,
            code="container-type",
            fixes=fixes,
        ) from error


def _plain_form(obj: object) -> tuple[str, Sequence[Fix]]:
    """Return the remedy and the fixes for a container that cannot be rebuilt."""
    if is_mapping(obj):
        code = _plain_mapping(obj, "\0").replace("{", "{{").replace("}", "}}")
        return "", [Fix(code.replace("\0", "{x}"), "converts it as a dict")]
    if isinstance(obj, CONTAINERS) or other_kind(obj) is _of_sequence:
        return "", [Fix("list({x})", "converts it as a list")]
    return "pass a dict of its attributes", ()


def _plain_mapping(obj: object, code: str, depth: int = 0) -> str:
    """Return code that makes a dict of a mapping, and of those in it, such as the groups of an HDF5 file."""
    inner = [
        (key, value)
        for key, value in items_of(obj)
        if type(key) in (str, int) and type(value) is not dict and is_mapping(value)
    ]
    # Links in a file can lead back to it, and a long call does not help.
    if not inner or len(inner) > _MOST_INNER or depth == _DEEPEST:
        return f"dict({code})"
    parts = (f"{key!r}: {_plain_mapping(value, f'{code}[{key!r}]', depth + 1)}" for key, value in inner)
    return f"{{**{code}, {', '.join(parts)}}}"


def _of_builtin(obj: Any, keys: list[object], values: list[object]) -> object:
    same: object
    if isinstance(obj, dict):
        same = copying.copy(obj)  # keeps a defaultdict's factory and an OrderedDict's type
        for key, value in zip(keys, values, strict=True):  # a Counter's update() adds
            same[key] = value
    elif isinstance(obj, list):
        same = copying.copy(obj)
        same[:] = values
    else:
        same = type(obj)(*values) if hasattr(obj, "_fields") else type(obj)(values)
    if type(obj) not in _UNCHANGING:
        items = items_of(same)
        if [key for key, _ in items] != keys or not all(
            _is_kept(item, value) for (_, item), value in zip(items, values, strict=True)
        ):
            raise TypeError("its methods change the items")
    return same


#: Types of the standard library that store items as they are passed.
_UNCHANGING = frozenset((OrderedDict, defaultdict, tuple))

#: Types of leaves that no library registers; None is a leaf here, unlike in optree and JAX.
_PLAIN = frozenset((type(None), bool, int, float, complex, str, bytes, type))

# -- other types ------------------------------------------------------------------------

_Rebuild = Callable[[object, list[Any], list[object]], object]


def other_kind(obj: object) -> _Rebuild | None:
    """Return how to rebuild a container that is not a dict, list or tuple; None for other objects."""
    cls = type(obj)
    if is_result(cls):
        return _of_pytree
    if cls in _PLAIN or _has_array_type(obj):
        return None
    kind: _Rebuild
    if _is_pytree(obj):
        kind = _of_pytree
    elif hasattr(cls, "__dataclass_fields__"):
        kind = _of_dataclass
    elif _is_handle(cls):
        kind = _of_handle
    elif issubclass(cls, Mapping):
        kind = _of_mapping
    elif issubclass(cls, MutableSequence):
        kind = _of_sequence
    elif hasattr(cls, "__jax_array__") and hasattr(cls, "get_value") and hasattr(cls, "replace"):
        kind = _of_variable  # such as the values of flax.nnx.State
    else:
        return None
    return None if exports_arrays(obj) else kind


def _of_pytree(obj: object, _: list[object], values: list[object]) -> object:
    same = _flatten(obj).rebuild(values)
    kept = _flatten(same).children
    if len(kept) != len(values) or not all(map(_is_kept, kept, values)):
        raise TypeError(f"it does not hold {_types_of(values)}")
    return same


def check_target(obj: object, name: str) -> None:
    """Refuse a pytree whose type cannot hold arrays of the target `name`."""
    if other_kind(obj) is not _of_pytree:
        return
    node = _flatten(obj)
    if node.framework not in ("", name):
        raise UnsupportedConversionError(
            f"convert({type(obj).__qualname__})",
            f"a {type(obj).__qualname__} holds arrays of {node.framework} only",
            code="container-type",
            fixes=node.fixes,
        )


def _types_of(values: list[object]) -> str:
    """Return the names of the types of values, for messages."""
    return " or ".join(dict.fromkeys(type_name(value) for value in values))


def _array_fields(obj: Any) -> list[str]:
    """Return the names of a dataclass's fields that are set and not marked static.

    The marks are those of ``jax.tree_util.register_dataclass`` and ``flax.struct``.
    """
    return [
        field.name
        for field in fields(obj)
        if not field.metadata.get("static", False)
        and field.metadata.get("pytree_node", True)
        and hasattr(obj, field.name)
    ]


def _of_dataclass(obj: Any, keys: list[str], values: list[object]) -> object:
    """Return a copy without its constructor, which may validate, or accept other arguments."""
    same = object.__new__(type(obj))
    for name, value in getattr(obj, "__dict__", {}).items():
        # Values that were computed from the source's arrays are computed again.
        if not isinstance(getattr_static(type(obj), name, None), cached_property):
            same.__dict__[name] = value
    for field in fields(obj):
        if hasattr(obj, field.name):  # static fields, which can be slots
            object.__setattr__(same, field.name, getattr(obj, field.name))
    for name, value in zip(keys, values, strict=True):
        object.__setattr__(same, name, value)  # a frozen class refuses setattr()
    return same


def _of_mapping(obj: Any, keys: list[object], values: list[object]) -> object:
    items = dict(zip(keys, values, strict=True))
    if isinstance(obj, UserDict):
        same = copying.copy(obj)
        same.data = items
        return same
    # Not a copy with other items: a copy of an unknown type can share the source's storage.
    same = type(obj)(items)  # type: ignore[call-arg]
    if list(same) != keys or not all(_is_kept(same[key], value) for key, value in items.items()):
        raise TypeError("its constructor changes the items")
    return same


def _is_handle(cls: type) -> bool:
    """Whether objects of a type read arrays from an open file: NumPy's ``NpzFile``, or ``safe_open``."""
    if issubclass(cls, Mapping):
        return hasattr(cls, "close") and not issubclass(cls, MutableMapping)
    return hasattr(cls, "get_tensor") and hasattr(cls, "keys") and hasattr(cls, "__exit__")


def is_handle(obj: object) -> bool:
    """Whether a container is an open file of arrays."""
    return other_kind(obj) is _of_handle


def _of_handle(_: object, keys: list[object], values: list[object]) -> object:
    return dict(zip(keys, values, strict=True))  # the file cannot hold other arrays


def _of_sequence(obj: Any, _: list[object], values: list[object]) -> object:
    if isinstance(obj, UserList):
        same = copying.copy(obj)
        same.data = values
        return same
    if isinstance(obj, deque):
        return type(obj)(values, obj.maxlen)
    same = type(obj)(values)  # type: ignore[call-arg]
    if not all(map(_is_kept, same, values)) or len(same) != len(values):
        raise TypeError("its constructor changes the items")
    return same


def _of_variable(obj: Any, _: list[object], values: list[object]) -> object:
    same = obj.replace(values[0])
    if not _is_kept(same.get_value(), values[0]):
        raise TypeError("its constructor changes the items")
    return same


def _is_kept(stored: object, value: object) -> bool:
    """Whether a new container returns an item as it was passed; inner containers may be rebuilt."""
    if stored is value or (type(stored) is type(value) and type(value) in _PLAIN and stored == value):
        return True
    if type(stored) is not type(value) or not is_container(value):
        return False
    theirs, ours = items_of(stored), items_of(value)
    return len(theirs) == len(ours) and all(
        key == name and _is_kept(one, other) for (key, one), (name, other) in zip(theirs, ours, strict=True)
    )


# -- registered pytrees ------------------------------------------------------------------

#: Types with a registration. A registration can come later, so that other types are not remembered.
_registered: set[type] = set()

registry.on_change(_registered.clear)


def _is_pytree(obj: object) -> bool:
    """Whether the type of an object is registered as a pytree."""
    cls = type(obj)
    if cls in _registered:
        return True
    try:
        if _node_of(obj) is None:
            return False
    except (MemoryError, RecursionError):
        raise
    except Exception as error:
        if not is_error(error):
            raise
        return True  # the registered function failed; _flatten() raises its error again
    _registered.add(cls)
    return True


def _flatten(obj: object) -> Node:
    """Return the keys and children of a registered pytree, and how it is rebuilt."""
    node = _node_of(obj)
    if node is None:
        _registered.discard(type(obj))
        raise LookupError("its type is not registered as a pytree any more")
    return node


def _node_of(obj: object) -> Node | None:
    """Return one level of a pytree; None if its type is not registered."""
    if is_result(type(obj)):
        return obj.__zerocopy_node__()  # type: ignore[attr-defined, no-any-return]
    optree = sys.modules.get("optree")
    node: Node | None
    if getattr(optree, "tree_unflatten", None) is not None:  # None while another thread imports it
        node = _optree_node(optree, obj)
        if node is not None:
            return node
    for framework in _with_pytrees():
        if registry.is_imported(framework.name):
            node = hook_of(framework, PytreesHook).flatten(obj)
            if node is not None:
                return node
    return None


@lru_cache(maxsize=1)
def _with_pytrees() -> list[Framework]:
    return [framework for framework in registry.known() if framework.has_hook("pytrees")]


registry.on_change(_with_pytrees.cache_clear)


def _optree_node(optree: Any, obj: Any) -> Node | None:
    registration = getattr(optree.register_pytree_node, "get", None)  # not in old versions
    if registration is None or registration(type(obj)) is None:
        return None
    accessors, children, treespec = optree.tree_flatten_with_accessor(
        obj, is_leaf=one_level(), none_is_leaf=True
    )
    keys = [_key(accessor[0]) for accessor in accessors]
    return Node(keys, children, lambda values: optree.tree_unflatten(treespec, values))


def _key(entry: Any) -> object:
    """Return the key of an entry of optree: an attribute's name as `Attribute`."""
    name = getattr(entry, "name", None)
    return entry.entry if name is None else Attribute(name)
