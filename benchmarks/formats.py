"""Numbers with units, as tables and pages show them."""

from __future__ import annotations

from math import floor, log10


def format_duration(nanoseconds: float) -> str:
    """Return a time with three digits.

    Examples
    --------
    >>> format_duration(1234), format_duration(12.3e6), format_duration(430)
    ('1.23 us', '12.3 ms', '430 ns')
    """
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if nanoseconds >= size:
            scaled = nanoseconds / size
            return f"{scaled:.{2 if scaled < 10 else 1 if scaled < 100 else 0}f} {unit}"
    return f"{nanoseconds:.0f} ns"


def format_quantity(value: float, unit: str) -> str:
    """Return a value with its unit.

    Examples
    --------
    >>> format_quantity(-12.3, "ns"), format_quantity(2048, "bytes")
    ('-12 ns', '2.0 KiB')
    >>> format_quantity(0.456, "x"), format_quantity(0.00123, "x")
    ('0.46x', '0.0012x')
    """
    if unit == "x":
        return f"{value:.2g}x" if 0 < abs(value) < 0.1 else f"{value:.2f}x"
    if unit == "bytes":
        for name, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
            if abs(value) >= size:
                return f"{value / size:.1f} {name}"
        return f"{value:.0f} B"
    if unit == "ns":
        return f"{value:.0f} ns" if abs(value) < 1e4 else format_duration(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g} {unit}".strip()


def format_speedup(speedup: float) -> str:
    """Return a speed-up with two digits.

    Examples
    --------
    >>> format_speedup(1449.3), format_speedup(4.0), format_speedup(1.02), format_speedup(0.69)
    ('1,400x faster', '4.0x faster', '1.0x', '1.4x slower')
    """
    times = max(speedup, 1 / speedup)
    if times < 1.05:
        return "1.0x"
    digits = 1 - floor(log10(times))
    text = f"{round(times, digits):,.{max(digits, 0)}f}x"
    return f"{text} {'faster' if speedup > 1 else 'slower'}"
