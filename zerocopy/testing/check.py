"""`check_producer` and `check_consumer`: run the cases, and write the report."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from zerocopy.errors.invalid_option import invalid_value
from zerocopy.errors.tracebacks import public
from zerocopy.testing.cases import MODULES, SEVERITIES, cases_of
from zerocopy.testing.child import TargetError, run_cases
from zerocopy.testing.report import CaseResult, Finding, Report
from zerocopy.testing.script import script_of


@public
def check_producer(
    make: str | Callable[..., Any],
    protocols: Iterable[str] | None = None,
    *,
    allow: Mapping[str, str] | None = None,
    timeout: float = 60.0,
) -> Report:
    """Check the protocols of a producer against their standards, in child processes that may crash.

    Parameters
    ----------
    make : str or callable
        Returns a new array or table at each call, with the same values: an import string such as
        ``"mylib:make_array"``, or a callable. If it takes ``dtype=`` and ``shape=``, cases ask for other
        types and shapes, as ``make(dtype="float32", shape=(0, 3))``.
    protocols : str or iterable of str, optional
        Names of attributes without underscores, and ``"buffer"``. A protocol that is named and not offered
        is a finding. Default: the protocols that the object offers.
    allow : mapping of str to str, optional
        Cases whose findings are left out, each with the reason.
    timeout : float, default 60
        Seconds for one case; a case that takes longer is a finding.

    Returns
    -------
    Report
        What was found. It does not raise for findings.

    Raises
    ------
    OptionError
        `make` cannot be imported, raises, or returns an object with none of the protocols; a protocol has no
        case; a case of `allow` does not exist; or `timeout` is not a number of seconds.

    Examples
    --------
    >>> from zerocopy.testing import check_producer
    >>> report = check_producer("numpy:ndarray", protocols=["buffer"])  # doctest: +SKIP
    """
    return check("producer", make, protocols, allow, timeout)


@public
def check_consumer(
    consume: str | Callable[[Any], Any],
    protocols: Iterable[str] | None = None,
    *,
    read: str | Callable[[Any], Any] | None = None,
    allow: Mapping[str, str] | None = None,
    timeout: float = 60.0,
) -> Report:
    """Check how a function such as ``from_dlpack`` reads what producers export, and refuses what is wrong.

    Parameters
    ----------
    consume : str or callable
        Takes a producer and returns an array or a table: an import string or a callable.
    protocols, allow, timeout
        As for `check_producer`. Default: the protocols of which it takes a plain array or table.
    read : str or callable, optional
        Returns an array of NumPy of a result, or a list of rows. Default: ``numpy.asarray``,
        ``numpy.from_dlpack``, and methods such as ``to_pylist``.

    Returns
    -------
    Report
        What was found. It does not raise for findings.

    Raises
    ------
    OptionError
        `consume` or `read` cannot be imported; `consume` takes none of the protocols; or another argument is
        invalid, as for `check_producer`.

    Examples
    --------
    >>> from zerocopy.testing import check_consumer
    >>> report = check_consumer("numpy:from_dlpack", ["dlpack"])  # doctest: +SKIP
    """
    return check("consumer", consume, protocols, allow, timeout, read)


def check(side: str, target: Any, protocols: Any, allow: Any, timeout: Any, read: Any = None) -> Report:
    """Run the cases of one side."""
    function, option = f"check_{side}", "make" if side == "producer" else "consume"
    if not isinstance(timeout, int | float) or not 0 < timeout < 1e9:  # the system's clocks overflow above
        raise invalid_value("timeout", timeout, "timeout must be above 0 and below 1e9 s", function=function)
    known = [*dict.fromkeys(each.protocol for each in cases_of(side))]
    if protocols is not None:
        protocols = [protocols] if isinstance(protocols, str) else [*protocols]
        for name in protocols or [""]:  # no name is as wrong as an unknown one
            if name not in known:
                why = f"protocols must be names from {', '.join(known)}"
                raise invalid_value("protocols", name, why, choices=known, function=function)
    cases = [each for each in cases_of(side) if protocols is None or each.protocol in protocols]
    every = [each.id for known_side in MODULES for each in cases_of(known_side)]  # a file may be for both
    for name in allow or ():
        if name not in every:
            raise invalid_value(
                "allow", name, f"{name!r} is not the id of a case", "see the report's cases", every, function
            )
    targets = {option: target} if read is None else {option: target, "read": read}
    for name, value in targets.items():
        if refusal := _refusal_of(value):
            raise invalid_value(name, value, *refusal, function=function)
    try:
        outcomes, versions = run_cases([*targets.values()], side, [each.id for each in cases], timeout)
    except TargetError as error:
        remedy = "name a function or a class, and run it by itself to see the whole traceback"
        raise invalid_value(option, target, str(error), remedy, function=function) from None
    firsts = {each.protocol: outcomes[each.id] for each in reversed(cases)}
    reasons = ("no __", "no buffer", "it does not take")
    absent = [outcome for outcome in firsts.values() if outcome["text"].startswith(reasons)]
    if protocols is None and len(absent) == len(firsts):
        why = f"it {'offers' if side == 'producer' else 'takes'} none of {', '.join(reversed(firsts))}"
        remedy = "return an object with one of them"
        if side == "consumer":
            why += f"; {outcomes[cases[0].id]['text']}"
            remedy = "pass a function that takes one of them, or read= for its results"
        raise invalid_value(option, target, why, remedy, function=function)
    for outcome in absent if protocols is not None else ():
        text = f"the object has {outcome['text']}" if side == "producer" else outcome["text"]
        outcome.update(status="failed", text=text, severity="wrong value")
    name = target if isinstance(target, str) else getattr(target, "__qualname__", type(target).__name__)
    findings, results = [], []
    for each in cases:
        outcome = outcomes[each.id]
        status, reason = outcome["status"], outcome["text"]
        if status == "failed" and each.id in (allow or {}):
            status, reason = "allowed", f"{(allow or {})[each.id]}: {reason}"
        elif status == "failed":
            severity, text = outcome.get("severity") or each.severity, script_of(each, "" if read else name)
            findings.append(Finding(each.id, severity, each.protocol, reason, each.clause, text))
        results.append(CaseResult(each.id, each.protocol, status, reason))
    findings.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    return Report(name, side, tuple(findings), tuple(results), versions)


def _refusal_of(target: Any) -> tuple[str, str] | None:
    """Return why a target cannot be called in a child process, and the fix."""
    if isinstance(target, str):
        fix = f'write "{target.rstrip(":")}:name"'
        return None if target.partition(":")[2] else ("it has no name after the module", fix)
    if not callable(target):
        return f"{type(target).__qualname__!r} is not a function", "pass a function, such as the class"
    if not hasattr(os, "fork"):
        return "this system has no fork", 'pass an import string: "mylib:name"'
    return None


def read_allowed(path: str) -> dict[str, str]:
    """Return the cases that a TOML or a JSON file allows, with their reasons."""
    try:
        text = Path(path).read_text("utf-8")
        document: dict[str, Any] = json.loads(text) if path.endswith(".json") else tomllib.loads(text)
        return {name: str(reason) for name, reason in document.get("allow", document).items()}
    except (OSError, ValueError, AttributeError) as error:
        remedy = 'write lines such as "dlpack.device" = "reason"'
        raise invalid_value("allow", path, str(error), remedy) from error
