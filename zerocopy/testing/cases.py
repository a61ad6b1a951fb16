"""The registry of cases: a case is a function that raises `Violation` if its target breaks a standard.

The script of a finding is made of the source of its case and of what it uses (`zerocopy.testing.script`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

#: What a finding means for a user, the worst first. "optional": the standard recommends it.
SEVERITIES = ["crash", "use after free", "wrong value", "leak", "flag ignored", "version not negotiated"]
SEVERITIES += ["wrong error class", "optional"]

#: Each protocol is named as its attribute ``__dlpack__``, but for the buffer protocol.
PROTOCOLS = ["dlpack", "dlpack_c_exchange_api", "arrow_c_array", "arrow_c_stream", "arrow_c_device_array"]
PROTOCOLS += ["array_interface", "cuda_array_interface", "buffer"]

#: Modules that register cases, by the side that they check.
MODULES: dict[str, list[str]] = {"consumer": ["consumer"]}
MODULES["producer"] = ["dlpack", "exchange_api", "arrow", "interfaces"]

CASES: dict[str, Case] = {}


class Case(NamedTuple):
    """A case: its `run` takes the target, a callable, and raises `Violation`, `Skip` or nothing."""

    id: str
    side: str
    protocol: str
    severity: str
    clause: str
    run: Callable[..., None]


class Violation(AssertionError):
    """The target breaks a standard: a text, and a severity if it is not that of the case."""


class Skip(Exception):
    """The case does not apply to the target."""


def case(
    id: str, severity: str, clause: str, side: str = "producer", protocols: Iterable[str] = ()
) -> Callable[[Any], Any]:
    """Register a function as the case ``"protocol.name"``; a crash has a severity of its own.

    With `protocols`, it is a case ``name`` of each, and takes the name of the protocol first.
    """
    ids = [f"{protocol}.{id}" for protocol in protocols] or [id]

    def register(function: Callable[..., None]) -> Callable[..., None]:
        for name in ids:
            protocol = name.partition(".")[0]
            assert name not in CASES and severity in SEVERITIES and protocol in PROTOCOLS, name  # noqa: PT018
            run = partial(function, protocol) if protocols else function
            CASES[name] = Case(name, side, protocol, severity, clause, run)
        return function

    return register


def cases_of(side: str) -> list[Case]:
    """Return the cases of producers or of consumers, in the order of their files."""
    for module in MODULES[side]:
        import_module(f"zerocopy.testing.{module}")
    return [each for each in CASES.values() if each.side == side]


def check(condition: object, text: str, *severity: str) -> None:
    if not condition:
        raise Violation(text, *severity)


def require(condition: object, text: str) -> None:
    """Refuse a malformed capsule or struct, whatever the case looks for."""
    check(condition, text, "wrong value")
