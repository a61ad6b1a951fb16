"""The values of ``install_pool``'s options: each read as people write it, or refused."""

from __future__ import annotations

import difflib
import numbers
import operator
import os
import re
from collections.abc import Iterable
from typing import Any

from zerocopy.device import CUDA, Device
from zerocopy.errors import PoolOptionError
from zerocopy.pool.kinds import KINDS
from zerocopy.pool.sizes import show_value

TRUE, FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
NONE = "none"  # how no framework at all is written down
_DEVICE = re.compile(r"\s*(?:([0-9]{1,10})|cuda(?::([0-9]{1,10}))?)\s*")


def nearest(name: Any, known: Iterable[str]) -> str:
    """Return the remedy for a name that is not known: the nearest ones, and all."""
    near = difflib.get_close_matches(str(name).lower(), list(known), n=2, cutoff=0.5)
    hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    return f"{hint}there are: {', '.join(known)}"


def read_kind(kind: Any) -> str:
    """Return a kind of :data:`zerocopy.pool.kinds.KINDS`, under its shortest name."""
    found = kind.lower() if isinstance(kind, str) else None
    if found is None or found not in KINDS:
        from zerocopy.pool import host

        hint = " (an allocator is passed as allocator=)" if hasattr(kind, "allocate") else ""
        kinds = [name for name in KINDS if name != "custom"]  # which is what allocator= makes
        near = nearest(kind, kinds) if found is not None else f"there are: {', '.join(kinds)}"
        if found in host.MODES:
            near = f'that is a mode of host memory: host="{found}"'
        raise PoolOptionError(f"kind={show_value(kind)}", "no such kind of pool" + hint, near)
    return "rmm" if found == "rmm:pool" else found


def read_flag(value: Any, name: str) -> bool:
    """Return yes or no, of 0 and 1 and of words too."""
    if isinstance(value, str) and value.lower() in TRUE + FALSE:
        return value.lower() in TRUE
    try:
        known = value in (True, False)  # 0 and 1 too, and NumPy's
    except (TypeError, ValueError, RuntimeError):  # an array, which is neither
        known = False
    if not known:
        raise PoolOptionError(
            f"{name}={show_value(value)}", "it is yes or no", f"write {name}=True or {name}=False"
        )
    return bool(value)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise PoolOptionError(f"fraction={text!r}", "it is no number", "write it as 0.5") from error


def read_fraction(value: Any) -> float | None:
    """Return a part of a card's total."""
    if value is None:
        return None
    number: Any = _number(value) if isinstance(value, str) else value
    # numbers.Real has NumPy's scalars, which are no floats, and fractions.
    real = isinstance(number, numbers.Real) and not isinstance(number, bool)
    if not real or not 0 < number <= 1:
        raise PoolOptionError(
            f"fraction={show_value(value)}",
            "it is the part of the card's total memory: more than 0, at most 1",
            "write it as 0.5",
        )
    return float(number)


def device_number(value: Any) -> int | None:
    """Return the number of a device as people name it; None for what names none.

    Examples
    --------
    >>> device_number(1), device_number("cuda:1"), device_number("1"), device_number(b"1")
    (1, 1, 1, None)
    """
    if isinstance(value, Device):
        value = value.id if value.type in (CUDA, "cuda") else None
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        # Text, and what shows itself as such: torch.device("cuda:0").
        match = _DEVICE.fullmatch(str(value)) if not isinstance(value, bytes) else None
        number = int(match[1] or match[2] or 0) if match is not None else None
    # A device is an int of C to CUDA.
    return number if number is not None and 0 <= number < 2**31 else None


def read_devices(value: Any) -> tuple[int, ...] | None:
    """Return the numbers of one device or of several, in the order in which they are named."""
    if value is None:
        return None
    whole = device_number(value)
    if whole is not None:
        return (whole,)
    if isinstance(value, str):
        given: list[Any] = re.split("[+,]", value)
    else:
        given = list(value) if _several(value) else [value]
    found = [device_number(each) for each in given]
    read = tuple(each for each in found if each is not None)
    if len(read) < len(found):
        raise PoolOptionError(
            f"devices={show_value(value)}",
            "a device is a number, from 0 on, as CUDA counts them",
            "write 0, [0, 1] or 'cuda:0'",
        )
    if not read or len(set(read)) < len(read):
        raise PoolOptionError(
            f"devices={show_value(value)}", "none, or one twice", "write 0 or [0, 1]; leave it out for all"
        )
    return read


def _several(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, bytearray, Device))


def read_frameworks(value: Any) -> tuple[str, ...] | None:
    """Return the names of frameworks that can take memory from a pool, in the order of their hooks."""
    if value is None:
        return None
    from zerocopy.pool import hook

    known = hook.names()
    if isinstance(value, str):
        given: list[Any] = [] if value == NONE else re.split("[+,]", value)
    else:
        given = list(value) if _several(value) else [value]
    names = [each.strip() if isinstance(each, str) else each for each in given]
    for name in names:
        if not isinstance(name, str) or name not in known:
            raise PoolOptionError(
                f"frameworks={show_value(value)}",
                f"{show_value(name)} takes no memory from a pool",
                nearest(show_value(name), known),
            )
    return tuple(name for name in known if name in names)


def read_log(value: Any) -> str | None:
    """Return a path as text."""
    if value is None:
        return None
    try:
        path = os.fsdecode(value)
    except TypeError:
        path = ""
    if not path or "\0" in path:
        raise PoolOptionError(f"log={show_value(value)}", "it is no path of a file", 'write log="pool.csv"')
    return path


def read_host(value: Any) -> str:
    """Return the names of modes of host memory, in their order, joined by ``+``; ``"off"`` for none."""
    from zerocopy.pool import host

    text = "off" if value is None or value is False else value
    if isinstance(text, (list, tuple)) and all(isinstance(name, str) for name in text):
        text = "+".join(text)
    if not isinstance(text, str):
        raise PoolOptionError(f"host={show_value(value)}", "it is the name of a mode", 'write host="aligned"')
    return "+".join(mode.name for mode in host.parse(text)) or "off"
