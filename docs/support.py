"""Write the tables of docs/support.md and docs/version-guards.md: ``python docs/support.py``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from zerocopy._frameworks._private import uses
from zerocopy.cli.support import table, tested
from zerocopy.framework import version_numbers
from zerocopy.integrations import ENGINES

PAGES = [Path(__file__).with_name(name) for name in ("support.md", "version-guards.md")]
ABSENT = "No run with these is recorded:"
#: Engines with the name of their package in the table; flight is a part of pyarrow.
_ENGINES = {"flight": "pyarrow", "torch DataLoader": "torch"}


def with_tables(page: str) -> str:
    """Return the text of a page with the rows of its tables."""
    tables = {
        "Python": _pythons(),
        "framework": _frameworks(),
        "engine": _engines(),
        "run": _runs(),
        "package": _guards(),
        "private names": _private_names(),
    }
    for first, rows in tables.items():
        body = "".join(f"| {' | '.join(row)} |\n" for row in rows)
        head = rf"(\| {first} \|.*\n\|[-|]+\n)(\|.*\n)*"
        page = re.sub(head, lambda match, body=body: match[1] + body, page)
    absent: dict[str, list[str]] = {}
    for name, row in table()["frameworks"].items():
        if not tested(name):
            absent.setdefault(row["note"], []).append(f"`{name}`")
    reasons = "; ".join(f"{', '.join(names)} ({note})" for note, names in absent.items())
    return re.sub(rf"^{ABSENT}.*$", f"{ABSENT} {reasons}.", page, flags=re.MULTILINE)


def _pythons() -> Iterator[list[str]]:
    for python, row in table()["pythons"].items():
        runs = {run["python"] for run in table()["runs"].values() if _minor(run["python"]) == python}
        year, _, month = row["released"].partition("-")
        until = f"{int(year) + 3}-{month}"
        yield [python, row["released"], until, ", ".join(sorted(runs)) or "no", row.get("note", "")]


def _frameworks() -> Iterator[list[str]]:
    for name, row in table()["frameworks"].items():
        if tested(name):
            newer = [f"{version} for `{extra}`" for extra, version in row.get("extras", {}).items()]
            oldest = ", ".join([row.get("oldest", ""), *newer])
            yield [name, oldest, *_tested(name), row.get("note", "")]


def _engines() -> Iterator[list[str]]:
    for name, _, _, oldest in ENGINES:
        yield [name, oldest, *_tested(_ENGINES.get(name, name))]


def _tested(name: str) -> list[str]:
    """Return the tested versions, and the Pythons."""
    versions = tested(name)
    runs = {run for names in versions.values() for run in names}
    pythons = {_minor(table()["runs"][run]["python"]) for run in runs}
    in_order = sorted(pythons, key=lambda each: (version_numbers(each), each))
    return [", ".join(versions), ", ".join(in_order)]


def _runs() -> Iterator[list[str]]:
    for name, row in table()["runs"].items():
        yield [name, row["python"], row["system"], row["tests"]]


def _guards() -> Iterator[list[str]]:
    for guard in table()["guards"]:
        both = guard["both"]
        sides = f"`{both.rpartition(':')[2]}`" if isinstance(both, str) else f"runs {', '.join(both)}"
        yield [guard["package"], guard["versions"], guard["effect"], f"`{guard['file']}`", sides]


def _private_names() -> Iterator[list[str]]:
    for name, use in uses().items():
        module = name.rpartition(".")[0].removeprefix("zerocopy.")
        yield [f"`{use.names}`", use.package, use.versions, use.gain, f"`{module}`"]


def _minor(python: str) -> str:
    """Return "3.14t" for "3.14.0t": the minor version, with the mark of free-threaded builds."""
    return ".".join(map(str, version_numbers(python)[:2])) + ("t" if python.endswith("t") else "")


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(with_tables(path.read_text(encoding="utf-8")), encoding="utf-8")
