"""The page of conversions."""

from __future__ import annotations

from typing import Any

from benchmarks.pages.words import added, best, goals, ratio, table, time

TITLE = "Benchmarks"
ABOUT = "What a conversion costs, beside the calls that people write by hand."


def body(data: dict[str, Any]) -> list[str]:
    """Return the parts of the page after its head."""
    return [goals(data, _WHY), _pairs(data), _sizes(data), _calls(data)]


_WHY = """
Where a goal is missed, and why:

- `torch -> tensorflow`: the documented call checks nothing. It exports a tensor that
  requires grad, and one that is lazily conjugated or negated, whose memory holds other
  values. The checks of these and of the alignment, without which TensorFlow aborts, are
  most of the difference.
- `numpy -> tensorflow`: the same check of the alignment.
- `tensorflow -> numpy`: `__array__` hands out immutable memory as writable; ours is marked
  read-only, which takes one call more.
- The rest of what `convert` adds is two dictionary lookups and one or two Python calls
  around the framework's own. Below that only compiled code goes.
"""


def _pairs(data: dict[str, Any]) -> str:
    rows = []
    for case in data["sections"]["conversion/pairs"]:
        ours, documented = best(case, "ours"), best(case, "documented")
        hand = best(case, "documented", "idiom")
        rows.append(
            [
                case["name"],
                ratio(ours, documented),
                added(ours, hand),
                time(ours),
                time(documented),
                f"{time(hand)} `{hand['label']}`" if hand else "-",
            ]
        )
    heads = ["pair", "to the documented call", "to the fastest by hand", "zerocopy", "documented", "by hand"]
    return "\n## Pairs: 1,000 elements of float32, default options\n\n" + table(heads, rows)


def _sizes(data: dict[str, Any]) -> str:
    cases = data["sections"]["conversion/sizes"]
    labels = [entry["label"] for entry in cases[0]["entries"]]
    rows = [[case["name"], *(time(entry) for entry in case["entries"])] for case in cases]
    return "\n## Cost against size\n\nFlat, since nothing is copied.\n\n" + table(["pair", *labels], rows)


def _calls(data: dict[str, Any]) -> str:
    rows = [
        [case["name"], f"`{entry['label']}`", time(entry)]
        for case in data["sections"]["conversion/calls"]
        for entry in case["entries"]
    ]
    rows += [["", f"`{e['label']}`", time(e)] for e in data["sections"]["conversion/import"][0]["entries"]]
    return "\n## Other calls\n\n" + table(["pair", "what", "time"], rows)
