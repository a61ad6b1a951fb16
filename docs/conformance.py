"""Writes docs/conformance.md from docs/conformance.json: what `zerocopy.testing` finds in the frameworks.

``python docs/conformance.py > docs/conformance.md`` writes the page. With ``run [NAME ...]`` it checks
the producers and consumers that are installed, and replaces their results in the file: run it in each
environment. The producers are in tests/helpers/conformance_producers.py.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from helpers import conformance_producers  # noqa: E402

from zerocopy import testing  # noqa: E402

RESULTS = Path(__file__).with_suffix(".json")
PRODUCERS = "helpers.conformance_producers"
#: Functions of consumers, by the package that has them.
CONSUMERS = {
    "numpy": ["numpy:from_dlpack", "numpy:asarray"],
    "torch": ["torch:from_dlpack", "torch:asarray"],
    "jax": ["jax.dlpack:from_dlpack", "jax.numpy:asarray"],
    "tensorflow": ["tensorflow.experimental.dlpack:from_dlpack"],
    "pyarrow": ["pyarrow:array", "pyarrow:table"],
    "polars": ["polars:DataFrame", "polars:Series"],
    "pandas": ["pandas.DataFrame:from_arrow"],
    "nanoarrow": ["nanoarrow:Array"],
    "tvm_ffi": ["tvm_ffi:from_dlpack"],
    "paddle": ["paddle:from_dlpack"],
    "warp": ["warp:from_dlpack"],
    "mlx": ["mlx.core:array"],
}
INTRODUCTION = """# Conformance of the frameworks

`zerocopy.testing` checked these producers and consumers; the [findings](#findings) are below the tables.
[Test your own](testing.md) describes the cases. A cell is **no** if the case has a finding, and - if the case
does not apply: the object refuses what the case needs, or does not have it.

The page is generated: `python docs/conformance.py run` in each environment, then
`python docs/conformance.py > docs/conformance.md`.
"""


def run(names: list[str]) -> None:
    """Check what is installed, and replace its results in the file."""
    reports: dict[str, Any] = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    makers = [name for name, value in vars(conformance_producers).items() if callable(value)]
    for name in [each for each in makers if "_" in each and each in (names or makers)]:
        try:
            save(reports, name, testing.check_producer(f"{PRODUCERS}:{name}", timeout=120))
        except ValueError as error:
            print(name, "is not checked:", str(error).splitlines()[0], file=sys.stderr)
    for package, targets in CONSUMERS.items() if hasattr(testing, "check_consumer") else ():
        for target in targets if find_spec(package) else ():
            if not names or target in names:
                save(reports, target, testing.check_consumer(target, timeout=120))


def save(reports: dict[str, Any], name: str, report: testing.Report) -> None:
    """Write a report without scripts, reasons and paths."""
    document = asdict(report)
    for finding in document["findings"]:
        what = re.sub(r'"[^"]*?/((site-packages|lib/python[\d.]+)/)?([^/"]*)", ', r'"\3", ', finding["what"])
        what = re.sub(r"0x[0-9a-f]{6,}", "0x...", " ".join(what.split()))
        finding["what"] = what if len(what) < 240 else f"{what[:236]} ..."
        del finding["script"]
    document["cases"] = {case["case"]: case["status"] for case in document["cases"]}
    document["versions"].pop("zerocopy", None)
    reports[name] = document
    RESULTS.write_text(json.dumps(dict(sorted(reports.items())), indent=1) + "\n", encoding="utf-8")
    print(report, file=sys.stderr)


def page(reports: dict[str, Any]) -> str:
    """Return the page."""
    parts = [INTRODUCTION]
    for side, title in (("producer", "Producers"), ("consumer", "Consumers")):
        mine = {name: report for name, report in reports.items() if report["side"] == side}
        if mine:
            parts += [f"## {title}\n", *tables(mine)]
    parts.append("## Findings\n")
    parts += ["\n".join(findings(name, report)) for name, report in reports.items() if report["findings"]]
    parts += ["## Versions\n", *versions(reports)]
    return "\n".join(parts)


def tables(reports: dict[str, Any]) -> list[str]:
    """Return a table for each protocol: a row for each producer or consumer that has it."""
    cases = list(dict.fromkeys(case for report in reports.values() for case in report["cases"]))
    parts = []
    for protocol in dict.fromkeys(case.partition(".")[0] for case in cases):
        columns = [case for case in cases if case.partition(".")[0] == protocol]
        rows = []
        for name, report in reports.items():
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
    lines = [f"### {name}\n"]
    for each in report["findings"]:
        what = each["what"].replace("`", "'").replace("|", "/")
        lines.append(f"- {each['severity']}, `{each['case']}`: `{what}`")
    return [*lines, ""]


def versions(reports: dict[str, Any]) -> list[str]:
    lines = {
        f"| {package} | {version} |"
        for report in reports.values()
        for package, version in report["versions"].items()
    }
    return ["| package | version |", "|---|---|", *sorted(lines), ""]


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        run(sys.argv[2:])
    else:
        sys.stdout.write(page(json.loads(RESULTS.read_text("utf-8"))))
