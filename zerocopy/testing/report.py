"""The report of a check: findings, and the cases that ran, as text, JSON and JUnit's XML."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any
from xml.etree import ElementTree

from zerocopy.formatting import printable


@dataclass(frozen=True, slots=True)
class Finding:
    """A violation of a standard.

    Attributes
    ----------
    case : str
        The case that found it, as ``"dlpack.device"``.
    severity : str
        ``"crash"``, ``"use after free"``, ``"wrong value"``, ``"leak"``, ``"flag ignored"``,
        ``"version not negotiated"``, ``"wrong error class"``, or ``"optional"`` for a recommendation.
    protocol : str
        The protocol, named as its attribute: ``"arrow_c_array"``.
    what : str
        What happened; for a crash also the line.
    clause : str
        The standard, its section and its address.
    script : str
        A program that shows it, with the target, NumPy, ctypes, and for Arrow also readers of zerocopy.
    """

    case: str
    severity: str
    protocol: str
    what: str
    clause: str
    script: str


@dataclass(frozen=True, slots=True)
class CaseResult:
    """A case of a report: its `status` is ``"passed"``, ``"failed"``, ``"skipped"`` or ``"allowed"``.

    `reason` says why it was skipped or is allowed.
    """

    case: str
    protocol: str
    status: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """The findings and the cases of a check.

    Attributes
    ----------
    target : str
        The producer or the consumer, as an import string or a name.
    side : str
        ``"producer"`` or ``"consumer"``.
    findings : tuple of Finding
        The worst first, without those that the caller allows.
    cases : tuple of CaseResult
        Each case of the protocols that were asked for.
    versions : dict of str to str
        Versions of Python, of NumPy, of zerocopy and of the target's package.
    """

    target: str
    side: str
    findings: tuple[Finding, ...]
    cases: tuple[CaseResult, ...]
    versions: dict[str, str]

    @property
    def passed(self) -> bool:
        """Whether there is no finding but optional ones."""
        return all(finding.severity == "optional" for finding in self.findings)

    def to_json(self) -> str:
        """Return the report as a JSON document, with `passed`."""
        return json.dumps({"passed": self.passed, **asdict(self)}, indent=2)

    def to_junit(self) -> str:
        """Return the report as JUnit's XML, for services that show tests."""
        counts = Counter(result.status for result in self.cases)
        numbers = {"tests": str(len(self.cases)), "failures": str(counts["failed"])}
        numbers["skipped"] = str(counts["skipped"] + counts["allowed"])
        suite = ElementTree.Element("testsuite", {"name": f"zerocopy check {self.target}", **numbers})
        findings = {each.case: each for each in self.findings}
        for result in self.cases:
            element = ElementTree.SubElement(suite, "testcase", classname=result.protocol, name=result.case)
            if result.status == "failed":
                finding = findings[result.case]
                failure = ElementTree.SubElement(
                    element, "failure", type=finding.severity, message=finding.what
                )
                failure.text = printable(f"{finding.clause}\n\n{finding.script}", "\n")
            elif result.status != "passed":
                ElementTree.SubElement(element, "skipped", message=result.reason)
        for element in suite.iter():
            element.attrib = {name: printable(value, "\n") for name, value in element.attrib.items()}
        return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)

    def __str__(self) -> str:
        counts = Counter(result.status for result in self.cases)
        numbers = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        lines = [*_wrapped(f"{self.side} {self.target}: {numbers}"), *_wrapped(versions, "  ")]
        for title, findings in groupby(self.findings, lambda each: f"{each.severity}: {each.clause}"):
            lines += ["", *_wrapped(title)]
            for finding in findings:
                lines += [*_wrapped(finding.case, "  "), *_wrapped(" ".join(finding.what.split()), "    ", 3)]
        return "\n".join(lines)


def _wrapped(text: str, indent: str = "", max_lines: int | None = None) -> list[str]:
    """Return lines in which addresses are whole."""
    options: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False, "placeholder": " ..."}
    wrapper = textwrap.TextWrapper(80, indent, indent or "  ", max_lines=max_lines, **options)
    return [each for line in printable(text, "\n").splitlines() for each in wrapper.wrap(line)]
