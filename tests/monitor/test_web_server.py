"""The page's server without a browser: who may read it, what it sends, and how it starts and ends."""

from __future__ import annotations

import http.client
import math
import re
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import urlsplit

import pytest
from helpers.monitor_samples import HOSTILE, ROWS, SAMPLES, ChangingObserver, process, sample

pytest.importorskip("bokeh")

from zerocopy.errors import MonitorFileError, ZeroCopyError
from zerocopy.monitor.conversion import as_dict
from zerocopy.monitor.sample import Sample
from zerocopy.monitor.web import contents
from zerocopy.monitor.web.access import HEADERS
from zerocopy.monitor.web.pages import PAGES, ChartView, applications, points
from zerocopy.monitor.web.parts import Chart
from zerocopy.monitor.web.server import Server, serve


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serve(ChangingObserver(), every=0.2) as made:
        yield made


def get(server: Server, path: str, **headers: str) -> tuple[int, http.client.HTTPMessage, str]:
    """Return the status, the headers and the text of a response."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return response.status, response.headers, response.read().decode()
    finally:
        connection.close()


def prefix(server: Server) -> str:
    """Return the path of the overview: ``/TOKEN/``."""
    return urlsplit(server.url).path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.title)
def test_each_page_is_sent(server: Server, page) -> None:
    status, _, text = get(server, prefix(server) + page.path)
    assert status == 200
    assert f"zerocopy monitor: {page.title}" in text
    assert 'aria-current="page"' in text


def test_figures_that_were_not_measured_are_named_on_the_pages() -> None:
    unknown = replace(ROWS[1], aliased_bytes=0, unmeasured_calls=1000, seconds=None)
    shown = sample(process(conversions=[as_dict(row) for row in (ROWS[0], unknown)]))
    for table in (contents.SITES, contents.SLOW_SITES, contents.WORST_SITES):
        rows = table.html(shown).split("<tr")
        number = next(number for number, row in enumerate(rows) if "data.py:7" in row)
        assert rows[number].count(">?<") == 4
        assert "0 B" not in rows[number]
        assert "Not measured: the bytes of 1,000 of 1,000 calls, the time." in rows[number + 1]
    (totals,) = contents.TOTALS.lines(shown)
    assert "1,000 not measured" in totals


def test_token_is_long_random_and_in_the_address() -> None:
    with serve(ChangingObserver()) as one, serve(ChangingObserver()) as other:
        assert len(prefix(one)) > 40
        assert prefix(one) != prefix(other)
        assert one.address == "127.0.0.1"


@pytest.mark.parametrize("path", ["autoload.js", "metadata", "pool/autoload.js", "pool/metadata"])
def test_handlers_for_pages_of_other_sites_are_off(server: Server, path: str) -> None:
    assert get(server, prefix(server) + path)[0] == 403


def test_requests_are_not_logged(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG"):
        get(server, prefix(server) + "absent")
        get(server, "/wrong/")
    assert prefix(server).strip("/") not in caplog.text
    assert caplog.text == ""


REFUSED = [
    "/",
    "/wrong/",
    "//",
    "/static/js/bokeh.min.js",
    "/conversions",
    "/ws",
    "/wrong/ws",
    "/metrics",
    "/favicon.ico",
    "*",
]


@pytest.mark.hazard("robustness#other-users-and-sites")
@pytest.mark.parametrize("path", REFUSED)
def test_a_request_without_the_token_is_refused(server: Server, path: str) -> None:
    status, _, text = get(server, path)
    assert status in (400, 403)  # 400: not a path
    assert prefix(server).strip("/") not in text
    assert "train.py" not in text


def test_a_part_of_the_token_is_refused(server: Server) -> None:
    assert get(server, prefix(server)[:-2] + "/")[0] == 403
    assert get(server, prefix(server)[:-1] + "x/")[0] == 403


#: The headers of a request for the websocket.
UPGRADE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    "Sec-WebSocket-Protocol": "bokeh, x",
}


@pytest.mark.hazard("robustness#invalid-host-headers", "robustness#other-users-and-sites")
@pytest.mark.parametrize("origin", ["http://example.org", "http://localhost:PORT", "null", "http://["])
def test_pages_of_other_origins_are_refused(server: Server, origin: str) -> None:
    headers = {"Origin": origin.replace("PORT", str(server.port))}  # another name is another origin
    assert get(server, prefix(server), **headers)[0] == 403
    assert get(server, prefix(server) + "ws", **UPGRADE, **headers)[0] == 403
    assert get(server, prefix(server), Origin=f"http://127.0.0.1:{server.port}")[0] == 200


@pytest.mark.hazard("robustness#invalid-host-headers", "robustness#dns-rebinding")
@pytest.mark.parametrize("host", ["example.org", "example.org:80", "127.0.0.1.example.org", "[abc", ""])
def test_other_host_names_are_refused(server: Server, host: str) -> None:
    # A site can let its name resolve to 127.0.0.1, and then read the answer (DNS rebinding).
    assert get(server, prefix(server), Host=host)[0] in (400, 403)


@pytest.mark.parametrize("host", ["localhost", "localhost:9999", "127.0.0.1", "[::1]:8000"])
def test_names_of_this_machine_are_accepted(server: Server, host: str) -> None:
    assert get(server, prefix(server), Host=host)[0] == 200  # through a tunnel the port is another


@pytest.mark.hazard("robustness#token-in-a-referrer")
def test_each_response_has_the_security_headers(server: Server) -> None:
    script = "static/js/bokeh.min.js"
    for path in ("/wrong/", *(prefix(server) + name for name in ("", script, "metrics", "none"))):
        headers = get(server, path)[1]
        expected = dict(HEADERS)
        if path.endswith(".js"):
            expected["Cache-Control"] = "private, max-age=3600"  # the same bytes in each session
        assert {name: headers[name] for name in HEADERS} == expected
        assert headers["Server"] is None


@pytest.mark.hazard("robustness#token-in-a-referrer")
@pytest.mark.parametrize("setting", ["", "cdn", "inline"])
def test_no_resource_is_of_another_host(
    setting: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    if setting:
        monkeypatch.setenv("BOKEH_RESOURCES", setting)
    text = get(server, prefix(server))[2]
    scripts = re.findall('<script[^>]* src="([^"]*)"', text)
    assert [script.partition("?")[0] for script in scripts] == [
        f"{prefix(server)}static/js/{name}.min.js" for name in ("bokeh", "bokeh-widgets")
    ]
    for script in scripts:
        assert get(server, script)[0] == 200
    assert re.findall(' href="(?!\\./)([^"]*)"', text) == ["data:,"]


@pytest.mark.parametrize("method", ["POST", "PUT", "OPTIONS", "ABSENT"])
def test_other_requests_are_refused(server: Server, method: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request(method, prefix(server))
    assert connection.getresponse().status == 405
    connection.close()


def test_metrics_are_prometheus_text(server: Server) -> None:
    status, headers, text = get(server, prefix(server) + "metrics")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert "zerocopy_copied_bytes_total" in text


def test_hostile_text_is_escaped(server: Server) -> None:
    # In the page's script it is JSON within a string, whose "<" Bokeh escapes.
    assert HOSTILE not in get(server, prefix(server) + "conversions")[2]


def test_a_port_in_use_is_refused_with_what_to_do(server: Server) -> None:
    with pytest.raises(MonitorFileError) as raised:
        serve(ChangingObserver(), port=server.port)
    assert raised.value.code == "port-in-use"
    assert "0 for a free one" in str(raised.value)
    assert isinstance(raised.value, ZeroCopyError)
    assert isinstance(raised.value, OSError)


@pytest.mark.parametrize(
    ("address", "port", "code"),
    [
        ("192.0.2.1", 0, "cannot-serve"),
        ("no such name", 0, "unknown-address"),
        ("127.0.0.1", 70_000, "cannot-serve"),
    ],
)
def test_addresses_that_are_not_this_machines_are_refused(address: str, port: int, code: str) -> None:
    with pytest.raises(MonitorFileError) as raised:
        serve(ChangingObserver(), port=port, address=address)
    assert raised.value.code == code


def test_close_frees_the_port_and_ends_the_threads() -> None:
    before = set(threading.enumerate())
    made = serve(ChangingObserver(), every=0.1)
    get(made, prefix(made))
    made.close()
    made.close()
    assert {thread.name for thread in set(threading.enumerate()) - before} == set()
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", made.port))


def test_an_observer_that_raises_is_reported_to_the_caller() -> None:
    class Broken(ChangingObserver):
        def read(self) -> Sample:
            raise RuntimeError("no sample")

    with pytest.raises(RuntimeError, match="no sample"):
        serve(Broken())


def test_samples_are_read_once_for_all_pages() -> None:
    observer = ChangingObserver()
    with serve(observer, every=30) as made:
        for page in PAGES[:4]:
            get(made, prefix(made) + page.path)
    assert len(observer.history) == 1


@pytest.mark.parametrize("name", SAMPLES)
def test_parts_of_the_memory_are_the_memory_of_the_gpus(name: str) -> None:
    sample = SAMPLES[name]
    parts = contents.MEMORY_SPLIT.values(sample)
    total = sum(card["memory_total"] or 0 for card in sample["cards"]["cards"])
    assert sum(value or 0 for value in parts.values()) == total


def test_loaders_of_one_name_are_summed() -> None:
    depths = contents.DEPTH.values(sample(process(100), process(101)))
    assert depths == {"flights.parquet -> torch": 2}


def test_a_long_history_has_a_bounded_number_of_points() -> None:
    observer = ChangingObserver()
    history = [observer.read() for _ in range(1000)]
    chosen = points(history, history[-1])
    assert len(chosen) <= 151
    assert chosen[-1] is history[-1]


def test_a_page_begins_with_the_first_sample() -> None:
    observer = ChangingObserver()
    application = applications(observer, 1.0)["/conversions"]
    assert "train.py:42" not in str(application.create_document().to_json())
    observer.read()
    assert "train.py:42" in str(application.create_document().to_json())


def test_a_page_without_a_sample_is_sent() -> None:
    observer = ChangingObserver()
    with serve(observer, samples=False) as made:
        assert get(made, prefix(made))[0] == 200
        assert get(made, prefix(made) + "metrics")[2] == ""
        observer.read()
        assert "train.py" in get(made, prefix(made) + "metrics")[2]


def drawn(chart: Chart, samples: list[Sample]) -> ChartView:
    view = ChartView(chart)
    view.update(samples)
    return view


def test_a_chart_has_a_new_figure_if_its_labels_change_and_else_new_data() -> None:
    observer = ChangingObserver()
    samples = [observer.read() for _ in range(3)]
    values = {sample["time"]: {"a": 1.0, "b": None} for sample in samples[:2]}
    values[samples[2]["time"]] = {"a": 3.0, "c": 2.0}
    view = drawn(Chart("a", lambda shown: values[shown["time"]], "count"), samples[:1])
    figure = view.model.children[1]
    view.update(samples[:2])
    assert view.model.children[1] is figure
    data = figure.renderers[0].data_source.data
    assert (data["time"], data["y0"]) == ([sample["time"] * 1000 for sample in samples[:2]], [1.0, 1.0])
    assert all(map(math.isnan, data["y1"]))  # a gap in the line
    view.update(samples)
    assert len(view.model.children[1].renderers) == 3
