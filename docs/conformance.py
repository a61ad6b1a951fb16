"""Writes docs/conformance.md from docs/conformance.json: what `zerocopy.testing` finds in the frameworks.

``python docs/conformance.py > docs/conformance.md`` writes the page. With ``run [SIDE:NAME ...]`` it checks
the producers and consumers that are installed, and replaces their results in the file: run it in each
environment. They are in tests/helpers/conformance_producers.py and conformance_consumers.py.
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

RESULTS = Path(__file__).with_suffix(".json")
MODULES = {"producer": conformance_producers, "consumer": conformance_consumers}
CHECKS = {"producer": testing.check_producer, "consumer": testing.check_consumer}
INTRODUCTION = """# Conformance of the frameworks

`zerocopy.testing` checked these producers and consumers; the findings are below the tables.
[Test your own](testing.md) describes the cases. A cell is **no** if the case has a finding, and - if the case
does not apply: the object refuses what the case needs, or does not have it.

The page is generated: `python docs/conformance.py run` in each environment, then
`python docs/conformance.py > docs/conformance.md`.
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
        parts += [f"## {title}\n", *tables(reports[side])]
    for side, title in (("producer", "Findings of producers"), ("consumer", "Findings of consumers")):
        parts.append(f"## {title}\n")
        parts += ["\n".join(findings(*each)) for each in sorted(reports[side].items()) if each[1]["findings"]]
    parts += ["## Versions\n", *versions([*reports["producer"].values(), *reports["consumer"].values()])]
    return "\n".join(parts)


def tables(reports: dict[str, Any]) -> list[str]:
    """Return a table for each protocol: a row for each producer or consumer that has it."""
    cases = list(dict.fromkeys(case for report in reports.values() for case in report["cases"]))
    parts = []
    for protocol in dict.fromkeys(case.partition(".")[0] for case in cases):
        columns = [case for case in cases if case.partition(".")[0] == protocol]
        rows = []
        for name, report in sorted(reports.items()):
            cells = [cell(report["cases"].get(case, "skipped")) for case in columns]
            if set(cells) != {"-"}:
                rows.append(f"| `{name}` | {' | '.join(cells)} |")
        if rows:
            head = f"| | {' | '.join(case.partition('.')[2].replace('_', ' ') for case in columns)} |"
            parts += [f"### {protocol}\n", head, "|---" * (len(columns) + 1) + "|", *rows, ""]
    return parts


def cell(status: str) -> str:
    return {"passed": "yes", "failed": "**no**"}.get(status, "-")


def findings(name: str, report: dict[str, Any]) -> list[str]:
    """Return a section: a line for each severity and text, with its cases."""
    cases: dict[tuple[str, str], list[str]] = {}
    for each in report["findings"]:
        what = each["what"].replace("`", "'").replace("|", "/")
        cases.setdefault((each["severity"], what), []).append(f"`{each['case']}`")
    lines = [f"- {severity}, {', '.join(names)}: `{what}`" for (severity, what), names in cases.items()]
    return [f"### {name}\n", *lines, ""]


def versions(reports: list[dict[str, Any]]) -> list[str]:
    lines = {
        f"| {package} | {version} |" for report in reports for package, version in report["versions"].items()
    }
    return ["| package | version |", "|---|---|", *sorted(lines), ""]


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        run(sys.argv[2:])
    else:
        sys.stdout.write(page(json.loads(RESULTS.read_text("utf-8"))))
