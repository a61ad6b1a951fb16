"""Tables for notebooks: valid, escaped, without scripts, and in the colours of the page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

import zerocopy as zc
from zerocopy.formatting import html
from zerocopy.loading.explain import LoaderPlan
from zerocopy.loading.stats import Skipped
from zerocopy.pairs.check import Matrix
from zerocopy.pool.host import HostFigures, HostStats
from zerocopy.pool.stats import Stats
from zerocopy.registry import Frameworks

EVIL = "<script>alert('x')</script>&\""


class Elements(HTMLParser):
    """Collects the elements, the attributes and the text; checks that tags are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += attrs
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def objects() -> Iterator[tuple[str, Any, str]]:
    """Yield a name, an object and a text that its tables have."""
    x = np.arange(6, dtype="f4").reshape(2, 3)
    tree = {EVIL: x, "epoch": 3}
    yield "plan", zc.explain(x[:, ::-1], "numpy", copy=True), "copies 24 bytes"
    yield "zero-copy", zc.explain(x, "numpy", copy=False), "zero-copy"
    yield "container", zc.explain(tree, "numpy", leaves="keep"), "kept unchanged"
    yield "refused", zc.explain({EVIL: x, "n": None}, "numpy"), 'leaves="keep"'
    with zc.install_pool(host="off") as pool:
        yield "pool", pool, "Frameworks"
        yield "report", pool.report(), "Frameworks"
        yield "process's stats", pool.stats(), "current bytes"
        yield "stats of no mode", pool.host_stats(), "Host memory"
    stats = Stats(1 << 20, 2 << 20, None, 3, None, None)
    yield "pool's stats", stats, "not counted"
    yield "host memory", HostFigures({EVIL: HostStats(1, None, 3)}), "not counted"
    info = zc.FrameworkInfo(EVIL, "tensor", False, None, (EVIL,), f"pip install {EVIL}")
    yield "frameworks", Frameworks({EVIL: info}), EVIL
    yield "installed frameworks", zc.frameworks(), np.__version__
    pool.close()
    loader = zc.loader({EVIL: x, "late": np.array([True, False])}, to="numpy", batch_size=1, shuffle=True)
    yield "loader's plan", loader.explain(), "rows of a window to columns"
    yield "loader's plan in order", zc.loader(x, to="numpy").explain(), "aliased"
    yield "loader's stats before a batch", loader.stats(), "No batch has been delivered."
    list(loader)
    yield "loader's stats", loader.stats()._replace(skipped=(Skipped(EVIL, 1, 2, EVIL),)), "row group"
    yield "matrix", zc.check_pairs({EVIL: x}, frameworks=["numpy"]), "Every promise held"


@pytest.mark.parametrize(("obj", "text"), [pytest.param(o, t, id=n) for n, o, t in objects()])
def test_tables_are_valid_escaped_and_plain(obj: Any, text: str) -> None:
    elements = Elements(obj._repr_html_())
    assert text in elements.text
    assert set(elements.names) <= {"table", "caption", "thead", "tbody", "tr", "th", "td"}
    assert elements.names.count("caption") == elements.names.count("table")
    assert {name for name, _ in elements.attributes} <= {"style", "scope"}
    assert {value for name, value in elements.attributes if name == "scope"} <= {"row", "col"}
    colours = re.findall(r"(?:color|background)[^;]*", " ".join(v or "" for _, v in elements.attributes))
    # Without colours of their own, tables have the contrast of the notebook's theme.
    assert set(colours) <= {"color:inherit"}
    assert not any("http" in (value or "") for _, value in elements.attributes)
    if isinstance(obj, (zc.Plan, Matrix, LoaderPlan)) and EVIL in str(obj):
        assert EVIL in elements.text


def test_cells_are_escaped() -> None:
    text = html.table(EVIL, [(EVIL, EVIL)], (EVIL, EVIL))
    assert "<script" not in text
    assert Elements(text).text == EVIL * 5
