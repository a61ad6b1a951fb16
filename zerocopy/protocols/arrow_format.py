"""Format strings and metadata of the Arrow C data interface, read strictly and within limits.

See "Data type description -- format strings" and "ArrowSchema.metadata" in the specification.
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Sequence

from zerocopy.protocols.exporter_errors import malformed

#: Levels of nested types, as in Arrow's C++ library (cpp/src/arrow/c/bridge.cc, kMaxImportRecursionLevel).
MAX_DEPTH = 64
#: Types in one schema, so that a wrong count ends in an error instead of a read of billions of pointers.
MAX_FIELDS = 1 << 20
MAX_METADATA = 64 << 20  # bytes
_INT32_MAX = (1 << 31) - 1

# [0-9] and not \d or int(), which take the digits of all scripts, underscores and signs.
_PARAMETRIC = tuple(
    (start, re.compile(pattern))
    for start, pattern in (
        ("w:", r"w:([0-9]{1,10})"),
        ("+w:", r"\+w:([0-9]{1,10})"),
        ("d:", r"d:([0-9]{1,2}),(-?[0-9]{1,10})(?:,([0-9]{1,3}))?"),
        ("+ud:", r"\+ud:((?:[0-9]{1,3}(?:,[0-9]{1,3})*)?)"),
        ("+us:", r"\+us:((?:[0-9]{1,3}(?:,[0-9]{1,3})*)?)"),
        ("td", r"td[Dm]"),
        ("tt", r"tt[smun]"),
        ("ts", r"ts[smun]:.*"),
        ("tD", r"tD[smun]"),
        ("ti", r"ti[MDn]"),
    )
)
#: Most decimal digits of each width in bits (Columnar Format, "Decimal").
_DIGITS = {32: 9, 64: 18, 128: 38, 256: 76}

_CHILDREN = {"list": 1, "list_view": 1, "fixed_list": 1, "map": 1, "run_end_encoded": 2}
_INTEGERS = ("c", "C", "s", "S", "i", "I", "l", "L")
_RUN_ENDS = ("s", "i", "l")

#: Formats of the storage of canonical extension types ("Canonical Extension Types").
_STORAGE = {
    "arrow.bool8": ("c",),
    "arrow.uuid": ("w:16",),
    "arrow.json": ("u", "U", "vu"),
    "arrow.variable_shape_tensor": ("+s",),
}


def is_valid(format: str) -> bool:
    """Whether a format string has the parameters that its type requires; True for types that are unknown."""
    for start, pattern in _PARAMETRIC:
        if format.startswith(start):
            match = pattern.fullmatch(format)
            return match is not None and _in_range(start, match.groups())
    return bool(format)


def _in_range(start: str, groups: Sequence[str | None]) -> bool:
    if start in ("w:", "+w:"):
        return int(groups[0] or 0) <= _INT32_MAX
    if start == "d:":
        limit = _DIGITS.get(int(groups[2] or 128), 0)
        return 1 <= int(groups[0] or 0) <= limit and abs(int(groups[1] or 0)) <= _INT32_MAX
    if start in ("+ud:", "+us:"):
        ids = [int(number) for number in (groups[0] or "").split(",") if number]
        return len({*ids}) == len(ids) and all(number <= 127 for number in ids)
    return True


def check_type(format: str, kind: str, children: Sequence[str], has_dictionary: bool, extension: str) -> None:
    """Refuse a type whose format, children, dictionary and extension do not belong together.

    `children` are the formats of the children.

    Raises
    ------
    UnsupportedConversionError
        They violate the specification.
    """
    # Producers' own types begin with an underscore: polars' int128 is "_pli128".
    if not is_valid(format) or (kind == "unknown" and format[0] != "_"):
        raise malformed("", f"format {format!r} is not one of Arrow's")
    if has_dictionary:
        if format not in _INTEGERS:
            raise malformed(
                "", f"the codes of its dictionary have format {format!r}, which is not an integer"
            )
        if extension in _STORAGE or extension == "arrow.fixed_shape_tensor":
            raise malformed("", f"the extension type {extension} has a dictionary as storage")
        return
    if kind == "union":
        expected = len([number for number in format.partition(":")[2].split(",") if number])
    elif kind in ("struct", "unknown"):
        expected = len(children)
    else:
        expected = _CHILDREN.get(kind, 0)
    if len(children) != expected:
        raise malformed("", f"format {format!r} has {expected} children, and the schema has {len(children)}")
    if kind == "map" and children[0] != "+s":
        raise malformed("", f"the entries of its map have format {children[0]!r}, and not '+s'")
    if kind == "run_end_encoded" and children[0] not in _RUN_ENDS:
        raise malformed("", f"its run ends have format {children[0]!r}, which is not int16, int32 or int64")
    allowed = _STORAGE.get(extension)
    wrong = extension == "arrow.fixed_shape_tensor" and kind != "fixed_list"
    if wrong or (allowed is not None and format not in allowed):
        raise malformed("", f"the extension type {extension} has storage of format {format!r}")


def read_metadata(address: int | None) -> dict[bytes, bytes]:
    """Return the key-value pairs at an address; at most `MAX_METADATA` bytes are read.

    Raises
    ------
    UnsupportedConversionError
        A number or a length is negative, or the sum exceeds the limit.
    """
    if not address:
        return {}
    position = address

    def take(count: int) -> bytes:
        nonlocal position
        if count < 0 or position + count - address > MAX_METADATA:
            limit = f"at most {MAX_METADATA:,} bytes of it are read"
            raise malformed("", f"the schema's metadata has a length of {count:,} bytes, and {limit}")
        taken = ctypes.string_at(position, count)
        position += count
        return taken

    def number() -> int:
        value: int = struct.unpack("=i", take(4))[0]
        return value

    pairs = number()
    if not 0 <= pairs <= MAX_METADATA // 8:  # a pair has two lengths of 4 bytes
        raise malformed("", f"the schema's metadata has {pairs:,} pairs")
    metadata = {}
    for _ in range(pairs):
        key = take(number())
        metadata[key] = take(number())
    return metadata
