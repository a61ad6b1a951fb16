"""No output has a character that controls a terminal or reorders text, whatever names it contains."""

from __future__ import annotations

import ast
import io
import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers.monitor_samples import card, cards, process, sample
from helpers.paths import ROOT

import zerocopy as zc
from zerocopy.audit.forbid import CopyGuard
from zerocopy.formatting import printable
from zerocopy.monitor.conversion import ConversionRow
from zerocopy.monitor.report import Snapshot, html_table, text_table
from zerocopy.monitor.sample import Sample
from zerocopy.monitor.writes import Write

#: An escape sequence that clears the screen, BEL, CSI as one byte, CR, bidirectional marks, a lone surrogate.
HOSTILE = "a\x1b[2J\x07\x9b\r\u202e\u2066\u2028\udc80b"


def check(text: str) -> None:
    """Check that a text shows `HOSTILE` and has no character of it that is not printable."""
    assert not [c for c in text if c != "\n" and not c.isprintable()]
    assert "x1b[2J" in text, text


def hostile(value: Any) -> Any:
    """Return data with `HOSTILE` in all its texts, and in the keys that programs choose."""
    if isinstance(value, str):
        return value + HOSTILE
    if isinstance(value, (list, tuple)):
        return type(value)(map(hostile, value))
    if isinstance(value, dict):
        chosen = {key for part in ("devices", "host", "frameworks") for key in value.get(part, ())}
        return {
            key: {hostile(name): hostile(each) for name, each in inner.items()}
            if isinstance(inner, dict) and chosen & inner.keys()
            else hostile(inner)
            for key, inner in value.items()
        }
    return value


SAMPLE: Sample = {**hostile(sample(process(), gpus=cards(card(lost="lost")))), "problems": [HOSTILE]}
ROWS = [ConversionRow(**row) for row in SAMPLE["processes"][0]["conversions"]]
Unknown = type(HOSTILE.replace("\udc80", ""), (), {"__module__": HOSTILE})


class Raising:
    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **_: Any) -> Any:
        raise ValueError(HOSTILE)


@pytest.mark.parametrize(
    ("obj", "to", "options"),
    [
        pytest.param(Unknown(), "numpy", {}, id="type"),
        pytest.param(np.zeros(2), HOSTILE, {}, id="target"),
        pytest.param(Raising(), "numpy", {}, id="exception"),
        pytest.param({HOSTILE: np.zeros(2)[::-1]}, "numpy", {"copy": False, "dtype": "float32"}, id="label"),
        pytest.param(np.zeros(2), "numpy", {HOSTILE: True}, id="option"),
    ],
)
def test_errors_and_plans(obj: Any, to: str, options: dict[str, Any]) -> None:
    with pytest.raises((zc.ZeroCopyError, TypeError)) as raised:
        zc.convert(obj, to, **options)
    check(str(raised.value))
    if isinstance(raised.value, zc.ZeroCopyError):
        assert str(raised.value.reason).isprintable()
    if to == "numpy" and isinstance(raised.value, zc.ZeroCopyError):
        plan = zc.explain(obj, to, **options)
        check(str(plan))
        check(plan._repr_html_())
        assert repr(plan).isprintable()


def reports() -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield names and functions that return texts of the package in which names are hostile."""
    snapshot = Snapshot(ROWS, SAMPLE["processes"][0])
    yield "text", lambda: text_table(ROWS, 80)
    yield "html", lambda: html_table(HOSTILE, ROWS)
    yield "snapshot", lambda: str(snapshot)
    yield "snapshot in a notebook", snapshot._repr_html_
    if find_spec("prometheus_client"):
        yield "prometheus", prometheus
    yield "csv", csv
    yield "holders", holders
    yield "audit", lambda: audit().text(every=True)
    yield "audit in a notebook", lambda: audit()._repr_html_()
    yield "conformance", conformance
    yield "pool", lambda: str(pool())
    yield "pool in a notebook", lambda: pool()._repr_html_()
    yield "loader", lambda: str(zc.loader({HOSTILE: np.zeros(8)}, "numpy", batch_size=4).explain())
    matrix = zc.check_pairs({HOSTILE: np.zeros(4)}, frameworks=["numpy"])
    yield "matrix", lambda: str(matrix)
    yield "matrix in a notebook", matrix._repr_html_


def conformance() -> str:
    from zerocopy.testing.report import Finding, Report

    finding = Finding("dlpack.device", "crash", "dlpack", HOSTILE, "DLPack", HOSTILE)
    return str(Report(HOSTILE, "producer", (finding,), (), {HOSTILE: HOSTILE}))


def prometheus() -> str:
    from zerocopy.monitor.prometheus import exposition

    text = exposition(SAMPLE)
    assert text.encode()
    return text.replace("\\\\", "\\")


def csv() -> str:
    from zerocopy.monitor.csv_file import CsvFile, select

    reading, writing = os.pipe()
    file = CsvFile(f"/dev/fd/{writing}", select("index,name,uuid"))
    file.write(SAMPLE)
    file.close()
    os.close(writing)
    with open(reading, encoding="utf-8", newline="") as pipe:
        return pipe.read()


def holders() -> str:
    from zerocopy.monitor.holders import Holder, Holders

    holder = Holder(7, HOSTILE, "x", (f"/dev/{HOSTILE}",), True, 1, "", False)
    return str(Holders((holder,), 1, 0, (), (HOSTILE,)))


def audit() -> Any:
    from zerocopy.audit.recorder import AuditRow
    from zerocopy.audit.report import Audit

    names = [HOSTILE, 1, HOSTILE, HOSTILE, "avoidable", HOSTILE, HOSTILE]
    row = AuditRow(*names, 1, 1, 1, 8, 0.1, HOSTILE, HOSTILE)
    return type("Hostile", (Audit,), {"all_rows": [row]})()


def pool() -> Any:
    from zerocopy.pool.hook import Attachment, Status
    from zerocopy.pool.report import Report

    row = Attachment(HOSTILE, Status.TOO_LATE, HOSTILE, HOSTILE)
    check(str(row))
    return Report("none", "auto", [HOSTILE], [HOSTILE], [row], [HOSTILE])


def representations() -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield the names of methods of the package that return text, and a text of each with hostile names."""
    from zerocopy.loading.dataset import Group
    from zerocopy.pool.pool import Pool
    from zerocopy.pool.stats import Leak
    from zerocopy.registry import FrameworkInfo, Frameworks
    from zerocopy.shared.objects import Shared
    from zerocopy.tables.result import Encoded
    from zerocopy.weights.mapping import Weights

    memory = SimpleNamespace(closed=False, missing_device=None)
    hostile = {
        "kind": HOSTILE,
        "devices": (0,),
        "_host": (),
        "_memory": memory,
        "__init__": lambda self: None,
    }
    yield "weights/mapping.py Weights", lambda: repr(Weights({}, {}, HOSTILE, {}, [HOSTILE], zc.open_weights))
    yield "pool/pool.py Pool", lambda: repr(type("Hostile", (Pool,), hostile)())
    names = {
        "framework": HOSTILE,
        "closed": False,
        "nbytes": 1,
        "__init__": lambda self: None,
        "__del__": lambda self: None,
    }
    yield "shared/objects.py Shared", lambda: repr(type("Hostile", (Shared,), names)())
    yield "pool/stats.py Leak", lambda: str(Leak(1, 0, None, HOSTILE, HOSTILE))
    yield "tables/result.py Encoded", lambda: repr(Encoded(HOSTILE, Text()))
    yield (
        "_engine/converter.py Converter",
        lambda: repr(zc.converter(np.zeros(2), "numpy", dtype={HOSTILE: "f4"})),
    )
    yield "loading/loader.py Loader", loader
    yield "loading/map_style.py MapDataset", data_set
    yield "audit/forbid.py CopyGuard", lambda: repr(CopyGuard(0, [], HOSTILE))
    yield "loading/dataset.py Group", lambda: str(Group(1, HOSTILE))
    write = Write(HOSTILE, 1, HOSTILE, HOSTILE, HOSTILE, 8, HOSTILE, ((0, 8),), ((0, 1),))
    yield "monitor/writes.py Write", lambda: str(write)
    info = FrameworkInfo(HOSTILE, "tensor", True, HOSTILE, (HOSTILE,), HOSTILE)
    yield "registry.py Frameworks", lambda: repr(Frameworks({HOSTILE: info}))


class Text:
    def __repr__(self) -> str:
        return HOSTILE


def data_set() -> str:
    made: Any = zc.dataset(np.zeros(8), "numpy")
    made._name = HOSTILE
    return repr(made)


def loader() -> str:
    made = zc.loader(np.zeros(8), "numpy", batch_size=4)
    made._source.name = HOSTILE
    return repr(made)


@pytest.mark.parametrize("text", [pytest.param(make, id=name) for name, make in representations()])
def test_representations(text: Callable[[], str]) -> None:
    check(text())


#: Methods whose texts have no names of others, are checked above, or are parts of texts that are.
WITHOUT_NAMES = {
    "_engine/planner.py Call",
    "audit/report.py Audit",
    "audit/wrapper.py Wrapper",
    "pairs/check.py Matrix",
    "channels/channel.py Channel",
    "device.py Device",
    "dtype.py DType",
    "errors/base.py Fix",
    "errors/base.py Reason",
    "errors/base.py ZeroCopyError",
    "loading/dataset.py Place",
    "loading/explain.py LoaderPlan",
    "loading/stats.py LoaderStats",
    "monitor/holders.py Holders",
    "monitor/report.py Snapshot",
    "monitor/report.py Recording",
    "monitor/report.py ConversionReport",
    "monitor/run_directory.py FileName",
    "plan.py Plan",
    "testing/report.py Report",
    "pool/hook.py Attachment",
    "pool/limits.py Limit",
    "pool/report.py Report",
    "pool/settings.py Settings",
    "pool/stats.py Stats",
    "protocols/arrow_schema.py Field",
    "request.py MatrixOrder",
    "strided_view.py StridedView",
}


def test_every_representation_is_checked() -> None:
    representing = set()
    for path in (ROOT / "zerocopy").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            body = node.body if isinstance(node, ast.ClassDef) else []
            if {getattr(each, "name", "") for each in body} & {"__repr__", "__str__"}:
                assert isinstance(node, ast.ClassDef)
                representing.add(f"{path.relative_to(ROOT / 'zerocopy').as_posix()} {node.name}")
    assert representing == WITHOUT_NAMES | {name for name, _ in representations()}


@pytest.mark.parametrize("text", [pytest.param(make, id=name) for name, make in reports()])
def test_reports(text: Callable[[], str]) -> None:
    check(text())


def test_the_terminal() -> None:
    pytest.importorskip("rich")
    from rich.console import Console, Group
    from rich.table import Table
    from rich.text import Text

    from zerocopy.cli.monitor.view import final_report, report, screen
    from zerocopy.cli.terminal import Output, Printable

    table = Table()
    table.add_row(Text(HOSTILE), HOSTILE)
    for plain in (True, False):
        file = io.StringIO()
        out = Output(file)
        out.plain, out.console = plain, Console(file=file, force_terminal=not plain, width=200)
        out.show(Text(HOSTILE, "bold"), "", table, *report(SAMPLE, 200, HOSTILE))
        out.show(*final_report(SAMPLE, 200, HOSTILE))
        out.console.print(Printable(Group(*screen(SAMPLE, 200, 60, HOSTILE))))
        text = file.getvalue()
        assert "\\x1b[2J" in text
        assert not {*"\x07\x9b\r\u202e\u2066\u2028\udc80"} & {*text}
        assert "\x1b[2J" not in text


def test_the_page() -> None:
    pytest.importorskip("bokeh")
    from zerocopy.monitor.observer import rates
    from zerocopy.monitor.web.pages import PAGES, ChartView
    from zerocopy.monitor.web.parts import Chart

    sample = {**SAMPLE, "rates": rates(SAMPLE, SAMPLE)}
    shown = ""
    for part in {part for page in PAGES for part in page.parts if not isinstance(part, Chart)}:
        shown += part.html(sample)
    for chart in [part for page in PAGES for part in page.parts if isinstance(part, Chart)]:
        view = ChartView(chart)
        view.update([sample])
        shown += view._head.text
    check(shown)


def test_what_is_kept_and_that_a_second_pass_changes_nothing() -> None:
    assert printable("é 東 \\x1b\n", "\n") == "é 東 \\x1b\n"
    assert printable(printable(HOSTILE)) == printable(HOSTILE)
