"""Write the index by symptom in docs/hazards.md: ``python docs/hazard_index.py``.

A hazard is a heading with a line ``Symptom: ... With zerocopy: ...``, or a row of a table with an anchor. Its
name is its page and its anchor: ``torch#negative-strides``. Tests name theirs with the marker ``hazard``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).parent
PAGE = DOCS / "hazards.md"
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
#: Symptoms of the pages, with the headings of the index.
SYMPTOMS = {
    "crash": "The process ends",
    "wrong values": "Values are wrong, without an error",
    "unexpected write": "A write changes other data",
    "silent copy": "Memory is copied without notice",
    "hang": "The program waits",
    "error": "An error is raised for valid data",
}
LINE = re.compile(r"^Symptom: ([a-z, ]+)\. With zerocopy: (.+)\.$")
UPSTREAM = re.compile(r" \(\[[^\]]+\]\([^)]+\)(?:, \[[^\]]+\]\([^)]+\))*\)")
ROW = re.compile(r'^\| <a id="([\w-]+)"></a>(.+?) \|(?: ([a-z, ]+) \|)? (.+) \|$')


class Hazard(NamedTuple):
    """One problem. Those of docs/robustness.md, inside zerocopy, have no symptoms."""

    page: str
    anchor: str
    section: str
    text: str
    symptoms: list[str]
    guard: str

    @property
    def name(self) -> str:
        """The name in the markers of tests."""
        return f"{self.page}#{self.anchor}"

    @property
    def link(self) -> str:
        """The section in which it is, from docs/."""
        return f"hazards/{self.page}.md#{slug(self.section)}"


def hazards() -> Iterator[Hazard]:
    """Yield the hazards of the pages, in the order of docs/hazards.md; then those inside zerocopy."""
    inside = DOCS / "robustness.md"
    listed = re.findall(r"\]\((hazards/[\w-]+\.md)\)", PAGE.read_text(encoding="utf-8"))
    for file in [*(DOCS / page for page in listed), inside]:
        page, title = file.stem, ""
        for line in FENCE.sub("", file.read_text(encoding="utf-8")).splitlines():
            if line.startswith("#"):
                title = line.lstrip("# ")
            elif match := LINE.match(line):
                yield Hazard(page, slug(title), title, title, match[1].split(", "), match[2])
            elif match := ROW.match(line):
                symptoms = match[3].split(", ") if match[3] else []
                yield Hazard(page, match[1], title, match[2], symptoms, match[4])


def slug(title: str) -> str:
    """Return the anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-")


def with_index(page: str) -> str:
    """Return the text of the page with the index after its marker."""
    listed = list(hazards())
    parts = [page.partition("<!-- index -->")[0] + "<!-- index -->"]
    for symptom, heading in SYMPTOMS.items():
        groups: dict[str, list[str]] = {}
        for hazard in listed:
            if symptom in hazard.symptoms:
                group, text = entry(hazard)
                groups.setdefault(group, []).append(text)
        lines = [f"- {group}: {'; '.join(texts)}." for group, texts in groups.items()]
        parts.append("\n".join([f"## {heading}", "", *lines]))
    return "\n\n".join(parts) + "\n"


def entry(hazard: Hazard) -> tuple[str, str]:
    """Return the group of a hazard and its text: its heading, or its row up to the first colon or semicolon.

    The group is a framework with a page of its own, or the section of a page about several.
    """
    title = (DOCS / "hazards" / f"{hazard.page}.md").read_text(encoding="utf-8").splitlines()[0]
    page = title.removeprefix("# Hazards of ")
    text = re.split("[:;] ", re.sub(UPSTREAM, "", hazard.text))[0].replace("](../", "](")
    if hazard.text != hazard.section and " " in page:
        return f"[{hazard.section}]({hazard.link})", text
    return page[0].upper() + page[1:] if " " in page else page, f"[{text}]({hazard.link})"


if __name__ == "__main__":
    PAGE.write_text(with_index(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
