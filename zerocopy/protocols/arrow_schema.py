"""Arrow types in the C data interface: ``struct ArrowSchema``, its format strings and its metadata.

See "The ArrowSchema structure" and "Data type description -- format strings" in Arrow's C data
interface.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from zerocopy.dtype import by_name
from zerocopy.errors import UnsupportedConversionError
from zerocopy.protocols.arrow_format import MAX_DEPTH, MAX_FIELDS, check_type, read_metadata
from zerocopy.protocols.exporter_errors import malformed

SCHEMA = b"arrow_schema"

# A private prototype, for the reason in zerocopy.protocols.dlpack.
_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def pointer(capsule: Any, name: bytes) -> int:
    """Return the address in a capsule; ValueError if it has another name, as a consumed capsule has."""
    address: int = _get_pointer(capsule, name)
    return address


#: Standard dtype names of the primitive types.
NUMBERS = {
    "c": "int8",
    "C": "uint8",
    "s": "int16",
    "S": "uint16",
    "i": "int32",
    "I": "uint32",
    "l": "int64",
    "L": "uint64",
    "e": "float16",
    "f": "float32",
    "g": "float64",
}
_FORMATS = {name: code for code, name in NUMBERS.items()} | {"bool": "b", "bool8": "c"}

#: Types without parameters: their kind, and pyarrow's name.
_PLAIN = {
    "n": ("null", "null"),
    "b": ("bool", "bool"),
    "z": ("binary", "binary"),
    "Z": ("binary", "large_binary"),
    "u": ("string", "string"),
    "U": ("string", "large_string"),
    "vz": ("binary_view", "binary_view"),
    "vu": ("string_view", "string_view"),
    "tdD": ("date", "date32[day]"),
    "tdm": ("date", "date64[ms]"),
    "tiM": ("interval", "month_interval"),
    "tiD": ("interval", "day_time_interval"),
    "tin": ("interval", "month_day_nano_interval"),
    "+l": ("list", "list"),
    "+L": ("list", "large_list"),
    "+vl": ("list_view", "list_view"),
    "+vL": ("list_view", "large_list_view"),
    "+s": ("struct", "struct"),
    "+m": ("map", "map"),
    "+r": ("run_end_encoded", "run_end_encoded"),
}
_UNITS = {"s": "s", "m": "ms", "u": "us", "n": "ns", "D": "D"}

#: Number of buffers by kind, if not 2 (Columnar Format, "Buffer Listing for Each Layout"). View
#: types have one more for each block of text.
_BUFFERS = {
    "null": 0,
    "struct": 1,
    "fixed_list": 1,
    "string": 3,
    "binary": 3,
    "list_view": 3,
    "string_view": 3,
    "binary_view": 3,
    "union": 1,
    "run_end_encoded": 0,
}

_ORDERED, _NULLABLE = 1, 2


class ArrowSchema(ctypes.Structure):
    """``struct ArrowSchema``."""


ArrowSchema._fields_ = (
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_void_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.POINTER(ctypes.POINTER(ArrowSchema))),
    ("dictionary", ctypes.POINTER(ArrowSchema)),
    ("release", ctypes.c_void_p),
    ("private_data", ctypes.c_void_p),
)


@dataclass(frozen=True, slots=True)
class Field:
    """The name and type of a column or a child; it does not refer to the producer.

    Attributes
    ----------
    format : str
        The type's format string: ``"l"`` is int64.
    name : str
    nullable, ordered : bool
        The schema's flags; `ordered` is a dictionary's.
    metadata : dict of bytes to bytes
    children : tuple of Field
    dictionary : Field or None
        The type of the values; `format` is then that of the codes.

    Examples
    --------
    >>> str(Field("tsu:UTC", "t")), Field("tsu:UTC", "t").unit
    ('timestamp[us, tz=UTC]', 'us')
    """

    format: str
    name: str = ""
    nullable: bool = True
    ordered: bool = False
    metadata: dict[bytes, bytes] = field(default_factory=dict)
    children: tuple[Field, ...] = ()
    dictionary: Field | None = None
    #: Whether the schema's name is not NULL. Arrow's C++ library refuses children without names.
    named: bool = field(default=True, compare=False, repr=False)
    #: The family of types: ``"number"``, ``"timestamp"``, ``"list"``, ``"dictionary"``, ...
    kind: str = field(init=False, repr=False, compare=False)
    #: The name of the extension type, or "".
    extension: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Computed once, because a plan reads them ten times a column.
        name = self.metadata.get(b"ARROW:extension:name", b"") if self.metadata else b""
        object.__setattr__(self, "kind", self._kind())
        object.__setattr__(self, "extension", name.decode(errors="replace"))

    @classmethod
    def of(cls, dtype: str, name: str = "") -> Field:
        """Return the field of a dtype of numbers or booleans; of bool8, Arrow's booleans in bytes.

        Raises
        ------
        KeyError
            Arrow has no such type.
        """
        metadata = {b"ARROW:extension:name": b"arrow.bool8"} if dtype == "bool8" else {}
        return cls(_FORMATS[dtype], name, metadata=metadata)

    def _kind(self) -> str:
        if self.dictionary is not None:
            return "dictionary"
        if self.format in NUMBERS:
            return "number"
        if self.format in _PLAIN:
            return _PLAIN[self.format][0]
        for start, kind in _PARAMETRIC.items():
            if self.format.startswith(start):
                return kind
        return "unknown"  # a type outside the standard, such as polars' int128

    def walk(self) -> Iterator[Field]:
        """Yield the type and all types inside it."""
        yield self
        for child in (*self.children, *([self.dictionary] if self.dictionary is not None else ())):
            yield from child.walk()

    @property
    def storage(self) -> Field:
        """The field without its extension type."""
        return replace(self, metadata={})

    @property
    def is_series(self) -> bool:
        """Whether it is one column; a plain struct is a table."""
        return self.kind != "struct" or bool(self.extension)

    @property
    def dtype(self) -> str:
        """The standard dtype of the value buffer, or "" if its elements are not numbers."""
        kind = self.kind
        if kind in ("number", "dictionary"):
            return NUMBERS.get(self.format, "")
        if kind in ("date", "time", "timestamp", "duration", "decimal"):
            return {4: "int32", 8: "int64"}.get(self.width, "")
        return ""

    @property
    def width(self) -> int:
        """Bytes of one element of the value buffer; 0 if elements have no fixed width."""
        if self.format in NUMBERS:
            return by_name(NUMBERS[self.format]).itemsize
        kind = self.kind
        if kind == "decimal":
            parts = self.format[2:].split(",")
            return int(parts[2]) // 8 if len(parts) > 2 else 16
        if kind == "fixed_binary":
            return int(self.format[2:])
        if kind in ("timestamp", "duration"):
            return 8
        return _WIDTHS.get(self.format, 0)

    @property
    def unit(self) -> str:
        """The unit of a date, time or duration: ``"s"``, ``"ms"``, ``"us"``, ``"ns"``, ``"D"``, or ""."""
        if self.kind in ("date", "time", "timestamp", "duration"):
            return "ms" if self.format == "tdm" else _UNITS[self.format[2]]
        return ""

    @property
    def timezone(self) -> str:
        """The time zone of a timestamp, or ""."""
        return self.format[4:] if self.kind == "timestamp" else ""

    @property
    def scale(self) -> int:
        """Digits of a decimal after the decimal point."""
        return int(self.format[2:].split(",")[1])

    @property
    def list_size(self) -> int:
        """Elements in each list of a fixed-size list."""
        return int(self.format[3:])

    @property
    def wide(self) -> bool:
        """Whether offsets have 64 bits: the ``large_`` types."""
        return self.format in ("Z", "U", "+L", "+vL")

    @property
    def buffers(self) -> int:
        """Number of buffers; a minimum for view types."""
        if self.kind == "union":
            return 2 if self.format.startswith("+ud") else 1
        return _BUFFERS.get(self.kind, 2)

    def __str__(self) -> str:
        name = self._name()
        return f"extension<{self.extension}[{name}]>" if self.extension else name

    def _name(self) -> str:
        kind = self.kind
        if kind == "dictionary":
            codes = NUMBERS.get(self.format, self.format)
            return f"dictionary<values={self.dictionary}, indices={codes}>"
        if kind == "number":
            return {"e": "halffloat", "f": "float", "g": "double"}.get(self.format, NUMBERS[self.format])
        if kind == "struct":
            return f"struct<{', '.join(f'{c.name}: {c}' for c in self.children)}>"
        inner = ", ".join(map(str, self.children))
        if self.format in _PLAIN:
            name = _PLAIN[self.format][1]
            return f"{name}<{inner}>" if inner else name
        if kind == "timestamp":
            zone = f", tz={self.timezone}" if self.timezone else ""
            return f"timestamp[{self.unit}{zone}]"
        if kind == "time":
            return f"time{self.width * 8}[{self.unit}]"
        if kind == "duration":
            return f"duration[{self.unit}]"
        if kind == "decimal":
            return f"decimal{self.width * 8}({', '.join(self.format[2:].split(',')[:2])})"
        if kind == "fixed_binary":
            return f"fixed_size_binary[{self.width}]"
        if kind == "fixed_list":
            return f"fixed_size_list<{inner}>[{self.list_size}]"
        return f"union<{inner}>" if kind == "union" else self.format


_PARAMETRIC = {
    "d:": "decimal",
    "w:": "fixed_binary",
    "tt": "time",
    "ts": "timestamp",
    "tD": "duration",
    "+w:": "fixed_list",
    "+ud:": "union",
    "+us:": "union",
}
_WIDTHS = {"tdD": 4, "tdm": 8, "tts": 4, "ttm": 4, "ttu": 8, "ttn": 8, "tiM": 4, "tiD": 8, "tin": 16}


def read_schema(capsule: Any) -> Field:
    """Read an ``arrow_schema`` capsule.

    Raises
    ------
    ValueError
        The object is not such a capsule, or it was released already.
    UnsupportedConversionError
        As `read_struct`.
    """
    schema = ArrowSchema.from_address(pointer(capsule, SCHEMA))
    return read_struct(schema)


def read_struct(schema: ArrowSchema) -> Field:
    """Read a ``struct ArrowSchema`` with its children.

    Raises
    ------
    ValueError
        It was released already.
    UnsupportedConversionError
        It violates the specification, or exceeds the limits of :mod:`zerocopy.protocols.arrow_format`.
    """
    return _read(schema, 0, iter(range(MAX_FIELDS)))


def _read(schema: ArrowSchema, depth: int, budget: Iterator[int]) -> Field:
    """Read one level; `budget` is used up after `MAX_FIELDS` types, which may share their structs."""
    if not schema.release:
        raise ValueError("the schema was released already")
    if depth > MAX_DEPTH:
        raise UnsupportedConversionError(
            "",
            f"its types are nested deeper than {MAX_DEPTH} levels, the limit of Arrow's C++ library",
            "flatten it",
            code="nested-too-deep",
        )
    count = schema.n_children
    if next(budget, None) is None or not 0 <= count <= MAX_FIELDS:
        raise malformed("", f"the schema has more than {MAX_FIELDS:,} types, or {count:,} children")
    if count and not (schema.children and all(bool(schema.children[i]) for i in range(count))):
        raise malformed("", "the schema has children that are NULL")
    try:
        format, name = (schema.format or b"").decode(), (schema.name or b"").decode()
    except UnicodeDecodeError as error:
        raise malformed("", f"a format or name in the schema is not UTF-8: {error}") from error
    field = Field(
        format,
        name,
        bool(schema.flags & _NULLABLE),
        bool(schema.flags & _ORDERED),
        read_metadata(schema.metadata),
        tuple(_read(schema.children[i].contents, depth + 1, budget) for i in range(count)),
        _read(schema.dictionary.contents, depth + 1, budget) if schema.dictionary else None,
        schema.name is not None,
    )
    inner = [child.format for child in field.children]
    check_type(format, field.kind, inner, field.dictionary is not None, field.extension)
    if field.kind == "map" and len(field.children[0].children) != 2:
        raise malformed(
            "", f"the entries of its map have {len(field.children[0].children)} fields, and not 2"
        )
    return field
