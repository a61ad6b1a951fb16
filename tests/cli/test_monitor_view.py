"""The text of samples: what fits on a screen, and the report."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from helpers.monitor_samples import ROWS, SAMPLES, ChangingObserver, card, cards, loader, process, sample

pytest.importorskip("rich")
from rich.console import Console, Group

from zerocopy.cli.monitor.view import final_report, report, screen
from zerocopy.monitor.conversion import as_dict
from zerocopy.monitor.sample import Sample


def text_of(lines: list[object], width: int = 80) -> str:
    """Return the lines as rich prints them."""
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=False, color_system=None)
    console.print(Group(*lines))  # type: ignore[arg-type]
    return file.getvalue()


def screen_text(shown: Sample, width: int = 80, height: int = 24) -> str:
    return text_of(screen(shown, width, height, "title"), width)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [(80, 24), (40, 10), (200, 60), (20, 3)])
@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample_fits(name: str, size: tuple[int, int]) -> None:
    lines = screen_text(SAMPLES[name], *size).split("\n")[:-1]
    assert len(lines) <= size[1]
    assert max(map(len, lines)) <= size[0]


@pytest.mark.parametrize(("width", "drawn"), [(60, 60), (80, 80), (200, 120)])
def test_the_bar_of_a_memory_fills_the_line(width: int, drawn: int) -> None:
    (bar,) = [line for line in screen_text(SAMPLES["1 GPU"], width).split("\n") if line.endswith("]")]
    assert len(bar) == drawn


def test_the_call_site_that_copies_most_comes_first_with_its_fix() -> None:
    observer = ChangingObserver(gpus=cards(card()))
    observer.read()
    text = text_of(screen(observer.read(), 80, 24, "title"))  # type: ignore[arg-type]
    assert "copied 36.0 MiB/s" in text
    assert re.search(r"train\.py:42 train +polars\.DataFrame +\d", text)
    site = text.index("train.py:42")
    assert site < text.index("fix: x.rechunk()") < text.index("data.py:7")
    assert "# pool used 20 GiB  = pool free 12 GiB  + outside pool 8 GiB" in text


def test_the_order_of_time_shows_times_and_the_slowest_line_first() -> None:
    slow = replace(ROWS[1], seconds=3.5)
    for order, first in (("bytes", "train.py:42"), ("time", "data.py:7")):
        shown = sample(process(conversions=[as_dict(row) for row in (ROWS[0], slow)]))
        shown["order"] = order
        for lines in (screen(shown, 80, 24, "title"), report(shown, 80, "title")):
            text = text_of(lines)  # type: ignore[arg-type]
            assert min(["train.py:42", "data.py:7"], key=text.index) == first
            assert max(map(len, text.split("\n"))) <= 80
        assert "3.5 s" in screen_text(shown)


def test_bytes_that_were_not_measured_are_not_zero() -> None:
    unknown = replace(ROWS[1], aliased_bytes=0, aliased_calls=0, empty_calls=1000, unmeasured_calls=1000)
    partly = replace(ROWS[0], unmeasured_calls=3)
    shown = sample(process(conversions=[as_dict(row) for row in (partly, unknown)]))
    for text in (screen_text(shown), text_of(report(shown, 80, "title"))):  # type: ignore[arg-type]
        first, note, *_, last, last_note = [
            line for line in text.split("\n") if re.search(r"\.py:|measured:", line)
        ]
        assert first.split()[-2:][-1] in ("GiB+?", "ms") or "GiB+?" in first
        assert note.strip() == "not measured: the bytes of 3 of 40 calls"
        assert "0 B" not in last
        assert last.count("?") == 2
        assert last_note.strip() == "not measured: the bytes of 1,000 of 1,000 calls"


def test_without_a_process_the_screen_says_how_to_monitor_one() -> None:
    text = screen_text(SAMPLES["no process"])
    assert "zerocopy monitor -- script.py" in text
    assert "ZEROCOPY_MONITOR=1 python script.py" in text


def test_without_a_gpu_the_screen_says_why() -> None:
    assert "GPUs        none: the NVIDIA driver is not installed" in screen_text(SAMPLES["no GPU"])


def test_many_of_each_leave_room_for_conversions() -> None:
    many = sample(
        *(process(pid, loaders=[loader(), loader()]) for pid in range(100, 150)),
        gpus=cards(*(card(str(index)) for index in range(16))),
    )
    many["problems"] = [f"problem {number}" for number in range(50)]
    text = screen_text(many)
    assert "train.py:42" in text
    assert "more GPUs" in text
    assert "more processes" in text


def test_rows_that_do_not_fit_are_counted() -> None:
    rows = [as_dict(replace(ROWS[1], line=line)) for line in range(100)]
    text = screen_text(sample(process(conversions=rows)))
    shown = text.count("data.py:")
    assert shown > 2
    assert f"and {100 - shown} more call sites" in text


def test_names_of_files_do_not_control_the_terminal() -> None:
    row = replace(ROWS[0], file="\x1b[2J\n.py", function="\x1b]0;", why="\x1b[31m", fix="\r")
    shown = sample(
        process(conversions=[as_dict(row)], loaders=[loader(name="\x1b[1m", bottleneck="\x1b[0m")])
    )
    shown["processes"][0]["process"]["program"] = "\x1b[H"
    shown["problems"] = ["\x1b[H"]
    for text in (
        screen_text(shown),
        text_of(report(shown, 80, "title")),  # type: ignore[arg-type]
        text_of(final_report(shown, 80, "title")),  # type: ignore[arg-type]
    ):
        assert "\x1b" not in text
        assert "\r" not in text


def test_names_are_not_markup() -> None:
    row = replace(ROWS[0], function="[bold]f[/bold]")
    assert "[bold]f[/bold]" in text_of(
        report(sample(process(conversions=[as_dict(row)])), 120, "title"),  # type: ignore[arg-type]
        120,
    )


@pytest.mark.parametrize("name", SAMPLES)
def test_the_report_is_wrapped_not_cut(name: str) -> None:
    text = text_of(report(SAMPLES[name], 80, "title"))  # type: ignore[arg-type]
    assert max(map(len, text.split("\n"))) <= 80
    assert "…" not in text
    assert ("fix: x.rechunk()" in text) == bool(
        SAMPLES[name]["processes"] and SAMPLES[name]["processes"][0]["conversions"]
    )


def test_a_memory_that_cannot_be_divided_has_the_reason_in_the_report() -> None:
    text = text_of(report(SAMPLES["2 GPUs"], 80, "title"))  # type: ignore[arg-type]
    assert "o others 20 GiB  ? not divided 40 GiB" in text
    assert "CUDA_VISIBLE_DEVICES" in text


def test_the_final_report_of_a_program_without_records_says_so() -> None:
    text = text_of(final_report(SAMPLES["no process"], 80, "title"))  # type: ignore[arg-type]
    assert "nothing was recorded" in text
