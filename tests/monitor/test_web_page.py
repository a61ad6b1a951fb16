"""The page in a real browser: headless Chromium, which Playwright drives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from helpers.chromium import CHROMIUM, launched
from helpers.monitor_samples import (
    HOSTILE,
    NO_GPU,
    SAMPLES,
    ChangingObserver,
    card,
    cards,
    lost_card,
    mig_card,
    unreadable_card,
)

pytest.importorskip("bokeh")
pytest.importorskip("playwright")

from zerocopy.monitor.sample import Sample
from zerocopy.monitor.web.server import Server, serve

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")

#: Milliseconds in which the page must show something, on a machine that runs other tests too.
WAIT = 30_000
GPUS = cards(card(), mig_card("1:0"), lost_card("2"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as chromium:
        yield chromium


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serve(ChangingObserver(GPUS, aliases_after=3), every=0.2) as made:
        yield made


class Opened:
    """A page of the monitor, and what the browser reported while it was open."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.errors: list[str] = []
        self.hosts: set[str] = set()
        page.set_default_timeout(WAIT)
        page.on("console", lambda text: self.errors.append(text.text) if text.type == "error" else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.hosts.add(request.url.split("/")[2]))
        page.on("websocket", lambda socket: self.hosts.add(socket.url.split("/")[2]))

    def text(self, *, contains: str) -> str:
        """Return the text of the page once it contains `contains`."""
        self.page.get_by_text(contains).first.wait_for(timeout=WAIT)
        # Bokeh's elements have documents of their own, which a locator enters and inner_text does not.
        return "\n".join(self.page.locator("h1, h2, p, th, td, span").all_inner_texts())

    def overflow(self) -> int:
        """Return by how many pixels the page is wider than the window."""
        return int(
            self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        )


@pytest.fixture
def open_page(browser: Any) -> Iterator[Any]:
    contexts = []

    def make(url: str, **options: Any) -> Opened:
        contexts.append(browser.new_context(**options))
        opened = Opened(contexts[-1].new_page())
        opened.page.goto(url)
        return opened

    yield make
    for context in contexts:
        context.close()


def test_the_line_that_copies_is_shown_with_its_fix(server: Server, open_page: Any) -> None:
    opened = open_page(server.url)
    text = opened.text(contains="train.py:42")
    assert "Fix (x is the object): x.rechunk() copies it into one" in text
    assert "polars.DataFrame -> torch" in text
    assert opened.errors == []
    assert opened.hosts == {f"127.0.0.1:{server.port}"}


def test_the_slowest_lines_come_first_on_their_page(server: Server, open_page: Any) -> None:
    opened = open_page(server.url + "conversions-by-time")
    text = opened.text(contains="train.py:42")
    assert "Call sites, longest time first" in text
    # The place of a line of code is one line of text, however wide the other columns are.
    places = opened.page.locator("td code")
    for _ in range(100):
        lines = set(places.evaluate_all("all => all.map(each => each.getClientRects().length)"))
        if 0 not in lines:  # a table that is drawn again has elements without a line
            break
        opened.page.wait_for_timeout(100)
    assert lines == {1}


def test_figures_change_while_the_page_is_open(server: Server, open_page: Any) -> None:
    opened = open_page(server.url + "conversions")
    opened.text(contains="train.py:42")
    row = opened.page.locator("tr", has_text="train.py:42").first
    before = row.inner_text()
    opened.page.wait_for_function(
        "([row, before]) => row.isConnected ? row.innerText !== before : true",
        arg=[row.element_handle(), before],
        timeout=WAIT,
    )
    assert opened.errors == []


@pytest.mark.hazard("robustness#markup-in-names")
def test_hostile_names_are_text(server: Server, open_page: Any) -> None:
    opened = open_page(server.url + "conversions")
    text = opened.text(contains="<lambda>")
    assert HOSTILE.rpartition("/")[2] in text
    assert r"column 'a & b' has nulls, and JAX has none: $$\frac{a}{b}$$" in text
    assert opened.hosts == {f"127.0.0.1:{server.port}"}  # Bokeh would load MathJax for TeX
    assert opened.errors == []


def test_a_wrong_token_shows_the_reason(server: Server, open_page: Any) -> None:
    opened = open_page(f"http://127.0.0.1:{server.port}/wrong/")
    opened.text(contains="403: the token in the address is missing or wrong")


class Fixed(ChangingObserver):
    """The same sample at every time."""

    def __init__(self, sample: Sample) -> None:
        super().__init__()
        self._sample = sample

    def read(self) -> Sample:
        self.newest = self._sample
        return self._sample


@pytest.mark.parametrize(
    ("name", "contains"),
    [
        ("no process", "No process is monitored. To monitor a program: zerocopy monitor --serve -- train.py"),
        pytest.param("no GPU", f"No GPU: {NO_GPU}", marks=pytest.mark.full),
        pytest.param("N/A", "N/A of N/A", marks=pytest.mark.full),
        pytest.param("lost", "it has fallen off the bus", marks=pytest.mark.full),
        ("ended", "Ended, with their last figures: train.py (process 100)"),
        pytest.param("nothing recorded", "no conversion was recorded yet", marks=pytest.mark.full),
    ],
)
def test_the_overview_says_what_is_missing(name: str, contains: str, open_page: Any) -> None:
    with serve(Fixed(SAMPLES[name]), every=0.5) as made:
        opened = open_page(made.url)
        opened.text(contains=contains)
        assert opened.errors == []


@pytest.mark.full
def test_gpu_pages_say_what_cannot_be_read(open_page: Any) -> None:
    with serve(ChangingObserver(cards(unreadable_card())), every=0.5) as made:
        opened = open_page(made.url + "nvlink-throughput")
        opened.text(contains="no GPU has an active NVLink")
        assert opened.errors == []
