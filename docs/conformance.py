"""Writes docs/conformance.md from docs/conformance.json: what `zerocopy.testing` finds in the frameworks.

``python docs/conformance.py > docs/conformance.md`` writes the page. With ``run [SIDE:NAME ...]`` it checks
the producers and consumers that are installed, and replaces their results in the file: run it in each
environment. They are in tests/helpers/conformance_producers.py and conformance_consumers.py.
``python docs/conformance.py cases`` writes the list of the cases at the end of docs/testing.md.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from helpers import conformance_consumers, conformance_producers  # noqa: E402

from zerocopy import testing  # noqa: E402
from zerocopy.testing import consumer  # noqa: E402
from zerocopy.testing.cases import cases_of  # noqa: E402

RESULTS = Path(__file__).with_suffix(".json")
TESTING = Path(__file__).with_name("testing.md")
MODULES = {"producer": conformance_producers, "consumer": conformance_consumers}
CHECKS = {"producer": testing.check_producer, "consumer": testing.check_consumer}
INTRODUCTION = """# Conformance of the frameworks

`zerocopy.testing` checked these producers and consumers: [the cases](testing.md#the-cases).
A number counts the cases that apply: the object has what the case needs, and does not refuse it.
`docs/conformance.json` has the result of each case. A row of several wrong values quotes the first one.
"""


def makers(module: ModuleType) -> list[str]:
    """Return the names of a module's own functions."""
    return [
        name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__
    ]


def run(names: list[str]) -> None:
    """Check what is installed, and replace its results in the file."""
    reports: dict[str, Any] = {"producer": {}, "consumer": {}}
    if RESULTS.exists():
        reports = json.loads(RESULTS.read_text("utf-8"))
    for side, module in MODULES.items():
        for name in makers(module):
            if names and f"{side}:{name}" not in names and side not in names:
                continue
            try:
                report = CHECKS[side](f"{module.__name__}:{name}", timeout=120)
            except ValueError as error:
                print(name, "is not checked:", str(error).splitlines()[0], file=sys.stderr)
                continue
            reports[side][name] = document_of(report)
            RESULTS.write_text(json.dumps(reports, indent=1, sort_keys=True) + "\n", encoding="utf-8")
            print(report, file=sys.stderr)


def document_of(report: testing.Report) -> dict[str, Any]:
    """Return a report without scripts, reasons and paths."""
    document = asdict(report)
    for finding in document["findings"]:
        what = re.sub(r'"[^"]*?/((site-packages|lib/python[\d.]+)/)?([^/"]*)", ', r'"\3", ', finding["what"])
        what = re.sub(r"0x[0-9a-f]{6,}", "0x...", " ".join(what.split()))
        finding["what"] = what if len(what) < 240 else f"{what[:236]} ..."
        del finding["script"]
    document["cases"] = {case["case"]: case["status"] for case in document["cases"]}
    document["versions"].pop("zerocopy", None)
    return {name: document[name] for name in ("cases", "findings", "versions")}


def page(reports: dict[str, Any]) -> str:
    """Return the page."""
    parts = [INTRODUCTION]
    for side, title in (("producer", "Producers"), ("consumer", "Consumers")):
        parts += [f"## {title}\n", *table(reports[side]), f"### Findings in {title.lower()}\n"]
        parts += findings(side, reports[side])
    tested = {
        f"{package} {version}"
        for side in reports.values()
        for report in side.values()
        for package, version in report["versions"].items()
    }
    return "\n".join([*parts, "## Versions\n", f"{', '.join(sorted(tested, key=str.lower))}.\n"])


def table(reports: dict[str, Any]) -> list[str]:
    """Return a row for each protocol: the objects that pass its cases, with their number, and the others."""
    names: dict[str, dict[bool, list[str]]] = {}
    for name, report in sorted(reports.items()):
        protocols: dict[str, list[str]] = {}
        for case, status in report["cases"].items():
            if status != "skipped":
                protocols.setdefault(case.partition(".")[0], []).append(status)
        for protocol, statuses in protocols.items():
            passed = statuses.count("passed")
            count = f"{passed}" if passed == len(statuses) else f"{passed} of {len(statuses)}"
            both = names.setdefault(protocol, {True: [], False: []})
            both[passed == len(statuses)].append(f"`{name}` {count}")
    rows = [
        f"| {protocol} | {', '.join(both[True])} | {', '.join(both[False])} |"
        for protocol, both in sorted(names.items())
    ]
    return ["| protocol | passed all cases | passed some |", "|---|---|---|", *rows, ""]


def findings(side: str, reports: dict[str, Any]) -> list[str]:
    """Return a row for each severity and text, with its objects and cases; wrong results are one text."""
    cases: dict[tuple[str, str], dict[str, None]] = {}
    names: dict[tuple[str, str], dict[str, None]] = {}
    texts: dict[tuple[str, str], str] = {}
    for name, report in sorted(reports.items()):
        for each in report["findings"]:
            what = each["what"].replace("`", "'").replace("|", "/")
            what = re.sub(r"\[+([^,\]]*, [^,\]]*), [^()]*?(?=\)|$)", r"[\1, ...]", what)  # long values
            kind = f"{name} {each['case'].partition('.')[0]}" if what.startswith("it returns (") else what
            key = each["severity"], kind
            texts.setdefault(key, what)
            names.setdefault(key, {})[f"`{name}`"] = None
            cases.setdefault(key, {})[f"`{each['case']}`"] = None
    rows = [
        f"| {', '.join(names[key])} | {key[0]} | {', '.join(cases[key])} | `{what}` |"
        for key, what in texts.items()
    ]
    return [f"| {side} | severity | cases | observed |", "|---|---|---|---|", *rows, ""]


def with_cases(text: str) -> str:
    """Return docs/testing.md with the cases: those of producers by their docstrings."""
    producers: dict[Any, list[str]] = {}
    for each in cases_of("producer"):
        property_ = (each.run.func.__doc__ or "").partition("\n")[0].replace("``", "`").removesuffix(".")
        producers.setdefault((property_, each.severity), []).append(f"`{each.id}`")
    rows = ["| case of a producer | property | severity |", "|---|---|---|"]
    rows += [f"| {', '.join(names)} | {' | '.join(key)} |" for key, names in producers.items()]
    rows += ["", "| cases of a consumer | accepted | accepted or refused | refused |", "|---|---|---|---|"]
    for protocol, cases in consumer.CASES.items():
        cells: dict[str, list[str]] = {"": [], "may_refuse": [], "forbidden": []}
        for name, changes in cases.items():
            cells[next((key for key in ("forbidden", "may_refuse") if key in changes), "")].append(name)
        rows.append(f"| `{protocol}.consume-...` | {' | '.join(map(', '.join, cells.values()))} |")
    return "\n".join([text.partition("| case of a producer")[0].rstrip(), "", *rows, ""])


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        run(sys.argv[2:])
    elif sys.argv[1:2] == ["cases"]:
        TESTING.write_text(with_cases(TESTING.read_text("utf-8")), encoding="utf-8")
    else:
        sys.stdout.write(page(json.loads(RESULTS.read_text("utf-8"))))
