"""Numbers, bytes and times as short texts."""

from __future__ import annotations


def format_bytes(count: int) -> str:
    """Return a number of bytes with its unit.

    Examples
    --------
    >>> [format_bytes(n) for n in (0, 96, 4 << 20, 1 << 40)]
    ['0 B', '96 B', '4.0 MiB', '1.0 TiB']
    """
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1023.95:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"


def format_seconds(seconds: float) -> str:
    """Return a time with its unit.

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


def format_count(count: int, noun: str) -> str:
    """Return a number with its noun.

    Examples
    --------
    >>> format_count(1, "call"), format_count(1200, "call")
    ('1 call', '1,200 calls')
    """
    return f"{count:,} {noun}{'s' * (count != 1)}"


def printable(text: str) -> str:
    """Return text with unprintable characters escaped: names of files may control a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
