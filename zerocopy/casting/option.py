"""The option ``dtype=``: the objects that name a dtype, and the option of one call and of each leaf."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Any

import numpy as np

from zerocopy import registry
from zerocopy.dtype import ALL, BOOL8, DType, by_name, from_numpy
from zerocopy.errors import Fix, OptionError
from zerocopy.errors.invalid_option import invalid_value, nearest

#: Names that frameworks use for types of NumPy; NumPy knows the others, such as "f4" and "double".
_ALIASES = {"boolean": "bool", "half": "float16"}


def parse_dtype(spec: Any) -> DType:
    """Return the type that `spec` names.

    Parameters
    ----------
    spec : object
        A standard name, a :class:`DType`, a NumPy dtype or type, Python's ``bool``, ``int``, ``float``
        or ``complex``, or a dtype of a framework: one that :meth:`Framework.parse_dtype` knows, that has
        a NumPy dtype as ``.dtype`` or ``.as_numpy_dtype``, or whose name or text is a standard name.

    Raises
    ------
    OptionError
        It names no number or boolean type; the message has the nearest names.

    Examples
    --------
    >>> import numpy as np
    >>> [parse_dtype(spec).name for spec in ("bfloat16", np.float32, np.dtype("i2"), "f8", bool)]
    ['bfloat16', 'float32', 'int16', 'float64', 'bool']
    """
    if isinstance(spec, DType):
        return spec
    parsed = _of_name(spec) if isinstance(spec, str) else _of_object(spec)
    if parsed is None:
        import difflib  # here, because it takes 1 ms

        names = [dtype.name for dtype in (*ALL, BOOL8)]
        near = difflib.get_close_matches(str(spec).lower(), names, n=3, cutoff=0.6)
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "pass a name such as 'float32'"
        raise invalid_value("dtype", spec, f"dtype: {spec!r} is not the dtype of numbers or booleans", hint)
    return parsed


def plain_type(dtype: DType) -> DType:
    """Return bool for bool8, which is the same type wherever booleans are bytes; other types unchanged."""
    return by_name("bool") if dtype is BOOL8 else dtype


def standard_type(key: object) -> DType | None:
    """Return the type that a key of a mapping names, by its standard name only; None for labels.

    A label such as ``"b"`` or ``"double"`` must not name NumPy's type of that name.
    """
    try:
        return by_name(key) if isinstance(key, str) else plain_type(parse_dtype(key))
    except (KeyError, ValueError):
        return None


def _of_name(name: str) -> DType | None:
    """Return the type with a name, such as ``"float32"``, ``"torch.float32"``, ``"Float32"`` or ``"f4"``."""
    plain = name.rpartition(".")[2].lower()
    plain = _ALIASES.get(plain, plain)
    if plain == BOOL8.name:
        return BOOL8
    try:
        return by_name(plain)
    except KeyError:
        # Other letters are deprecated, or name text and dates.
        return (
            _of_numpy(name if len(name) == 1 else plain)
            if len(plain) != 1 or name in "?bhilqBHILQefdFD"
            else None
        )


def _of_object(spec: Any) -> DType | None:
    if isinstance(spec, np.dtype):
        return _of_numpy(spec)
    if isinstance(spec, type) and issubclass(spec, (bool, int, float, complex, np.generic)):
        return _of_numpy(spec)
    cls = spec if isinstance(spec, type) else type(spec)
    for framework in registry.by_root(cls):
        parsed = framework.parse_dtype(spec)
        if parsed is not None:
            return parsed
    for attribute in ("dtype", "as_numpy_dtype", "numpy_dtype"):
        inner = getattr(spec, attribute, None)
        if isinstance(inner, np.dtype) or (isinstance(inner, type) and issubclass(inner, np.generic)):
            return _of_numpy(inner)
    names = (getattr(spec, "name", None), getattr(spec, "__name__", None), str(spec))
    return next((parsed for n in names if isinstance(n, str) and (parsed := _of_name(n))), None)


def _of_numpy(spec: Any) -> DType | None:
    """Return the type of an object that NumPy takes as a dtype, in native byte order."""
    try:
        dtype = np.dtype(spec)
    except (TypeError, ValueError):
        return None
    return from_numpy(dtype if dtype.isnative else dtype.newbyteorder("="))


class DTypeOption:
    """The option ``dtype=``, parsed: one type for all values, or types by source type or by label.

    Parameters
    ----------
    spec : object
        What `parse_dtype` takes, or a mapping from types or labels of columns to it.
    packs_booleans : bool
        Whether the target stores booleans in bits, so that bool8 is a type of its own.

    Attributes
    ----------
    one : DType or None
        The one type for all values; None for a mapping.
    record : numpy.dtype or None
        The type of records, with fields; its fields of numbers are types by label.
    checks : list of callable
        One for each cast that can fail; ``explain`` calls them, and ``convert`` checks while it casts.
    """

    __slots__ = ("_entries", "_labels", "checks", "one", "record")

    def __init__(self, spec: Any, packs_booleans: bool = False) -> None:
        self.one: DType | None = None
        self._entries: dict[Hashable, tuple[DType | None, DType]] = {}
        self._labels: frozenset[Hashable] = frozenset()
        self.checks: list[Callable[[], None]] = []
        self.record: np.dtype[Any] | None = _record(spec)
        if self.record is not None:
            spec = {name: field for name in self.record.names or () if _is_number(field := self.record[name])}
        parse = parse_dtype if packs_booleans else lambda spec: plain_type(parse_dtype(spec))
        if not isinstance(spec, Mapping):
            self.one = parse(spec)
            return
        for key, value in spec.items():
            self._entries[key] = (standard_type(key), parse(value))

    @property
    def has_bool8(self) -> bool:
        """Whether bool8 is requested from a target that has it."""
        return BOOL8 in (self.one, *(new for _, new in self._entries.values()))

    def without_checks(self) -> DTypeOption:
        """Return a copy that checks may hold: with them it would be a reference cycle."""
        option = DTypeOption.__new__(DTypeOption)  # takes 0.25 us, copy.copy 2.6
        option.one, option.record, option.checks = self.one, self.record, []
        option._entries, option._labels = self._entries, self._labels
        return option

    def bind(self, labels: Collection[Hashable] | None) -> None:
        """Set the labels of the object's columns, none for an array; None if they are not known yet.

        Raises
        ------
        OptionError
            A key of the mapping is neither a type nor one of the labels.
        """
        self._labels = frozenset(labels or ())
        for key, (old, _) in self._entries.items():
            if labels is not None and old is None and key not in self._labels and self.record is None:
                raise self._unknown_key(key, labels)

    def _unknown_key(self, key: Hashable, labels: Collection[Hashable]) -> OptionError:
        """Return the error for a key that is neither a type nor a label; it has the nearest of both."""
        listed = ", ".join(map(repr, list(labels)[:8])) + (", ..." if len(labels) > 8 else "")
        columns = f", nor one of the columns {listed}" if labels else ""
        near = nearest(key, [*(x for x in labels if isinstance(x, str)), *(dtype.name for dtype in ALL)])
        names = {_text(other, kind): new.name for other, (kind, new) in self._entries.items()}
        fixes = [Fix(options={"dtype": {near if k == key else k: new for k, new in names.items()}})]
        why = f"dtype: the key {key!r} is not the name of a dtype{columns}"
        return OptionError("", why, fixes=[*(fixes if near else []), self.without(key)])

    def named(self, label: Hashable) -> bool:
        """Whether the caller chose a type for the column with this label."""
        return label in self._entries and label in self._labels

    def new_type(self, old: DType, label: Hashable = None) -> DType | None:
        """Return the type that values of the type `old` are cast to; None to leave them alone."""
        if self.one is not None:
            new: DType | None = self.one
        elif self.named(label):
            new = self._entries[label][1]
        else:
            entries = ((key, *types) for key, types in self._entries.items() if key not in self._labels)
            plain = plain_type(old)
            new = next((new for _, key_type, new in entries if key_type is plain), None)
        return None if new is old else new

    def without(self, label: Hashable) -> Fix:
        """Return the option that keeps the type of the column `label`."""
        names = {_text(key, kind): new.name for key, (kind, new) in self._entries.items() if key != label}
        return Fix(options={"dtype": names or None}, effect="keeps its type")

    def fix(self, label: Hashable, old: DType, wider: DType) -> Fix:
        """Return the option that casts values of the type `old` in a column to `wider`."""
        if self.one is not None:
            return Fix(options={"dtype": wider.name}, effect="holds it")
        names: dict[Hashable, str] = {}
        for key, (key_type, new) in self._entries.items():
            same = old is key_type and not self.named(label)
            names[_text(key, key_type)] = wider.name if same else new.name
        if self.named(label):
            names[label] = wider.name
        return Fix(options={"dtype": names}, effect="holds it")


def _record(spec: Any) -> np.dtype[Any] | None:
    """Return a structured dtype, or the one that a list of fields describes; None for other types."""
    if isinstance(spec, list):
        try:
            spec = np.dtype(spec)
        except (TypeError, ValueError):
            return None  # the caller refuses it, like any object that does not name a type
    return spec if isinstance(spec, np.dtype) and spec.names else None


def _is_number(dtype: np.dtype[Any]) -> bool:
    return from_numpy(dtype.newbyteorder("=")) is not None


def _text(key: Hashable, key_type: DType | None) -> Hashable:
    """Return a key that can be pasted: a type's name instead of a framework's object."""
    return key if key_type is None or isinstance(key, str) else key_type.name


def leaf_options(
    options: dict[str, Any], keys: Callable[[], set[Hashable]]
) -> Callable[[Any], dict[str, Any]]:
    """Return a function from a leaf's path to the options of its conversion.

    Parameters
    ----------
    options : dict
        The options of the call.
    keys : callable
        Returns all keys and positions in the container.

    Returns
    -------
    callable
        The innermost key on the path that the mapping has gives the leaf's dtype. Otherwise the leaf has
        the entries of the mapping that are not keys of the container.
    """
    spec = options.get("dtype")
    if not isinstance(spec, Mapping):
        return lambda path: options
    named = {key for key in spec if key in keys()}
    if not named:
        return lambda path: options
    plain = {name: value for name, value in options.items() if name != "dtype"}
    others = {key: value for key, value in spec.items() if key not in named}
    rest = {**plain, "dtype": others} if others else plain

    def of_leaf(path: Any) -> dict[str, Any]:
        while path is not None:
            key, path = path
            if key in named:
                return {**plain, "dtype": spec[key]}
        return rest

    return of_leaf
