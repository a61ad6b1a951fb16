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
MODULES = {"consumer": ["consumer"], "producer": ["dlpack", "arrow", "interfaces"]}

CASES: dict[str, Case] = {}


class Case(NamedTuple):
    """A case: its `run` raises `Violation`, `Skip` or nothing.

    The name of its last argument says what it takes: ``make`` and ``consume`` are the target, a callable, and
    ``x`` is a new object of a producer.
    """

    id: str
    side: str
    protocol: str
    severity: str
    clause: str
    run: partial[None]

    @property
    def takes_object(self) -> bool:
        code = self.run.func.__code__
        return code.co_varnames[code.co_argcount - 1] == "x"


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
            run = partial(function, *[protocol] * bool(protocols))
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


def refused(action: Callable[[], Any], *expected: type[BaseException]) -> bool:
    """Whether an action raises one of some errors; another error is a violation."""
    try:
        action()
    except expected:
        return True
    except Exception as error:
        names = " or ".join(each.__name__ for each in expected)
        text = f"it raises {type(error).__name__} instead of {names}: {error}"
        raise Violation(text, "wrong error class") from error
    return False


def made(make: Any, protocol: str) -> Any:
    """Return a new object of the producer; skip the case if it lacks the protocol."""
    x = make()
    if protocol == "buffer" and refused(lambda: memoryview(x), TypeError, BufferError):
        raise Skip("no buffer")
    if protocol != "buffer" and not hasattr(x, f"__{protocol}__"):
        raise Skip(f"no __{protocol}__")
    return x
