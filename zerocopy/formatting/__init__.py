"""Numbers with units, and names of files and frameworks, as text; `html` makes tables for notebooks."""

from __future__ import annotations


def printable(text: str, keep: str = "") -> str:
    """Return text with unprintable characters escaped, except those in `keep`.

    Names come from files and programs: a line feed would break a grid, an escape sequence would control
    the terminal, and a bidirectional character would reorder what follows it.
    """
    if text.isprintable():
        return text
    escaped = {
        ord(c): c.encode("unicode_escape").decode("ascii")
        for c in {*text}.difference(keep)
        if not c.isprintable()
    }
    return text.translate(escaped)


def shown(value: object) -> str:
    """Return the representation of a value as one line of at most 200 printable characters."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"
    try:
        text = printable(" ".join(map(str.strip, repr(value).splitlines())))
    except Exception:  # noqa: BLE001 - the object's own, or that of an integer of more than 4300 digits
        return f"<{type(value).__qualname__}>"
    return text if len(text) <= 200 else f"{text[:197]}..."


def format_bytes(count: int) -> str:
    """Return a number of bytes with its unit; a rounded number has one digit after the point.

    Examples
    --------
    >>> [format_bytes(n) for n in (0, 96, 1536, 4 << 20, (4 << 20) + 1, 1 << 50)]
    ['0 B', '96 B', '1.5 KiB', '4 MiB', '4.0 MiB', '1024 TiB']
    """
    size = float(count)
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while abs(size) >= 1023.95 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return f"{size:.0f} {units[0]}" if size.is_integer() else f"{size:.1f} {units[0]}"


def format_seconds(seconds: float) -> str:
    """Return a duration with its unit.

    Examples
    --------
    >>> [format_seconds(s) for s in (0.0, 3.2e-7, 0.0031, 0.25, 12.0, 3600.0)]
    ['0 s', '320 ns', '3.1 ms', '250 ms', '12 s', '3,600 s']
    """
    if seconds <= 0:
        return "0 s"
    for unit, factor in (("ns", 1e9), ("us", 1e6), ("ms", 1e3), ("s", 1.0)):
        value = seconds * factor
        if value < 999.5 or unit == "s":
            return f"{value:.1f} {unit}" if value < 9.95 and unit != "ns" else f"{value:,.0f} {unit}"
    raise AssertionError


def format_count(count: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun; the plural adds "s" unless it is given.

    Examples
    --------
    >>> format_count(1, "call"), format_count(1200, "call"), format_count(2, "process", "processes")
    ('1 call', '1,200 calls', '2 processes')
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
