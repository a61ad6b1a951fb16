"""``Built`` and ``Case``: one hostile input, and the conversion that it is given to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np


@dataclass(slots=True)
class Built:
    """One input: the object, its memory, and the values that a conversion must return if it succeeds."""

    obj: Any
    text: str  #: what the input is, for the report
    watched: list[np.ndarray] = field(default_factory=list)  #: memory that no conversion may change
    expected: np.ndarray | None = None  #: None if the values are not defined
    rows: list[Any] | None = None  #: the same for a column: Python values
    target: str = ""  #: the only target; any if empty
    once: bool = False  #: whether the object can be read only once
    plain: bool = False  #: whether only default options keep the values
    options: dict[str, Any] = field(default_factory=dict)  #: options of the call that the input needs
    verify: Callable[[Any], str] | None = (
        None  #: returns how a result differs, with options too; "" if it does not
    )
    allocations: Any = None  #: objects whose memory the input has; the input itself by default


@dataclass(slots=True)
class Case:
    """One conversion: ``convert(build().obj, to, **options)``."""

    seed: int
    family: str
    build: Callable[[], Built]  #: each call returns an equal, new input
    to: Any
    options: dict[str, Any]
    odd_options: bool  #: whether ``ValueError`` and ``TypeError`` for options are allowed
    refused: bool = False  #: whether the call is a file that is loaded first


#: Families by name: each builds one input from a generator of random numbers.
Family = Callable[[Random], Built]

#: Objects whose memory C structs refer to; they live as long as the process.
KEPT: list[Any] = []


def keep(obj: Any) -> Any:
    """Keep an object alive until the process ends, and return it."""
    KEPT.append(obj)
    return obj


def memory(rng: Random, nbytes: int) -> np.ndarray:
    """Return real bytes at an address that is aligned to 64 bytes, with small random numbers in them."""
    raw = keep(np.zeros(nbytes + 128, np.uint8))
    start = -raw.ctypes.data % 64
    block = raw[start : start + nbytes]
    block[:] = np.frombuffer(rng.randbytes(nbytes), np.uint8) & 0x3F
    return block
