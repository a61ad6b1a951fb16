"""``record``: the table, its forms, and its life."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from helpers.monitor_recorders import recorder_of, row

import zerocopy as zc
from zerocopy.errors import MonitorStateError, OptionError
from zerocopy.monitor.conversion import COUNT_FIELDS, limited, sum_rows
from zerocopy.monitor.report import Recording, text_table

COPIED = row(
    7,
    calls=3,
    copied_calls=1,
    refused_calls=1,
    copied_bytes=4 << 20,
    aliased_bytes=36 << 20,
    why="the columns lie in several chunks, and a tensor has one block of memory",
    fix="df.rechunk()",
)
REFUSED = row(9, aliased_calls=0, refused_calls=1, aliased_bytes=0, why="text", fix="encode=True")


def finished(*rows: object) -> Recording:
    with Recording(recorder=recorder_of(*rows)) as recording:
        pass
    return recording


def test_rows_are_sorted_by_copied_bytes_then_refusals() -> None:
    assert finished(row(), REFUSED, COPIED).rows == [COPIED, REFUSED, row()]


def test_rows_in_the_order_of_time() -> None:
    rows = [row(line, seconds=seconds) for line, seconds in enumerate((None, 1.0, 0.5, 2.0))]
    recording = finished(*rows)
    assert [each.seconds for each in recording] == [None, 1.0, 0.5, 2.0]  # equal bytes: as they came
    recording.order = "time"
    assert [each.seconds for each in recording] == [2.0, 1.0, 0.5, None]
    assert str(recording).index("2.0 s") < str(recording).index("1.0 s")
    assert recording.to_arrow()["seconds"].to_pylist() == [2.0, 1.0, 0.5, None]
    assert [each["seconds"] for each in recording.as_dict()["rows"]] == [2.0, 1.0, 0.5, None]
    assert zc.monitor.record(order="time").order == "time"
    for wrong in ("calls", None, []):
        with pytest.raises(OptionError, match="pass order='bytes' or order='time'"):
            zc.monitor.record(order=wrong)  # type: ignore[arg-type]


def test_figures_that_were_not_measured_are_named_in_text_and_html() -> None:
    partly, unknown = (
        row(7, calls=3, unmeasured_calls=1),
        row(8, aliased_bytes=0, unmeasured_calls=1, seconds=None),
    )
    recording = finished(partly, unknown)
    for text in (str(recording), recording._repr_html_()):
        assert "not measured: the bytes of 1 of 3 calls" in text
        assert "not measured: the bytes of 1 of 1 call, the time" in text
        assert "+?" in text
    line = next(line for line in str(recording).split("\n") if "train.py:8" in line)
    assert "0 B" not in line
    assert line.split()[-3:] == ["?", "?", "?"]


def test_limited_rows_have_those_that_took_longest() -> None:
    rows = [row(line, copied_bytes=1000 - line, seconds=float(line)) for line in range(20)]
    shown, others = limited(rows, 6)
    assert [each.line for each in shown] == [0, 1, 2, 17, 18, 19, 0]
    assert (others, shown[-1].calls) == (14, sum(each.calls for each in rows[3:17]))


def test_text_has_the_summary_and_each_reason_with_its_fix() -> None:
    lines = str(finished(row(), COPIED)).splitlines()
    assert lines[0] == "4 calls: 36.0 MiB aliased, 4 MiB copied, 1 refused, in 2.0 ms"
    assert lines[2].split() == ["call", "site", "conversion", "calls", "aliased", "copied", "time"]
    assert lines[3].startswith("a/train.py:7 main")
    assert lines[4].startswith("  why: the columns")
    assert "  fix: df.rechunk()" in lines


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_lines_are_not_longer_than_the_terminal(width: int) -> None:
    long = replace(
        COPIED, file="/a" * 80 + "/a_long_name_of_a_program.py", function="Trainer.fit.<locals>.step" * 2,
        source="tensorflow.python.framework.ops.EagerTensor", calls=10**9, why="word " * 60,
    )  # fmt: skip
    text = text_table([long, COPIED, row()], width)
    assert max(map(len, text.splitlines())) <= max(width, 60)
    assert "->\N{NO-BREAK SPACE}" not in text


def test_text_without_call_sites_has_neither_places_nor_times() -> None:
    plain = replace(row(), file="", line=0, function="", seconds=None)
    text = str(finished(plain))
    assert text.startswith("1 call: 8 B aliased, 0 B copied\n")
    assert "call site" not in text
    assert "time" not in text


def test_text_has_30_rows_at_most() -> None:
    recording = finished(*(row(line) for line in range(100)))
    assert str(recording).endswith("and 70 more rows: see .rows")
    assert len(recording) == len(list(recording)) == 100


@pytest.mark.hazard("robustness#names-that-control-the-terminal")
def test_names_cannot_control_the_terminal() -> None:
    hostile = replace(COPIED, file="/a/\x1b[2J\n.py", function="\x07", why="a\x1b]0;b", fix="\x9b")
    text = str(finished(hostile))
    assert all(c.isprintable() or c == "\n" for c in text)
    assert "<script" not in finished(replace(COPIED, why="<script>"))._repr_html_()


def test_nothing_recorded() -> None:
    recording = finished()
    assert (str(recording), recording.rows, bool(recording)) == ("no conversions", [], True)
    assert "no conversions" in recording._repr_html_()
    assert recording.to_arrow().num_rows == 0 if pytest.importorskip("pyarrow") else True


def test_arrow_table_has_units_and_types() -> None:
    pa = pytest.importorskip("pyarrow")
    table = finished(COPIED, replace(row(), seconds=None)).to_arrow()
    assert table.schema.field("seconds").metadata == {b"unit": b"seconds"}
    assert table.schema.field("copied_bytes").type == pa.int64()
    assert table["seconds"].to_pylist() == [0.001, None]


def test_dict_has_json_types() -> None:
    result = finished(COPIED).as_dict()
    assert result["totals"]["copied_bytes"] == result["rows"][0]["copied_bytes"] == 4 << 20


def test_exception_in_the_block_leaves_the_rows() -> None:
    recorder = recorder_of(COPIED)
    recording = Recording(recorder=recorder)
    during = []

    def fail() -> None:
        with recording:
            during.extend(recording.rows)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert during == [COPIED]
    assert recording.rows == [COPIED]
    assert recorder.running == 0


def test_a_recording_may_run_again_but_not_in_itself() -> None:
    recording = Recording(recorder=recorder_of(COPIED))
    with recording, pytest.raises(MonitorStateError, match="call record"):
        recording.__enter__()
    with recording:
        assert recording.rows == [COPIED]


def test_limited_rows_keep_the_sums() -> None:
    rows = [row(line, copied_bytes=line) for line in range(20)]
    shown, others = limited(rows, 5)
    assert (len(shown), others) == (6, 15)
    before, after = sum_rows(rows), sum_rows(shown)
    assert [getattr(before, name) for name in COUNT_FIELDS] == [getattr(after, name) for name in COUNT_FIELDS]
    assert after.seconds == pytest.approx(before.seconds)


def test_conversions_of_threads_and_nested_blocks_are_recorded() -> None:
    pytest.importorskip("zerocopy.monitor.recorder")
    np = pytest.importorskip("numpy")

    def work() -> None:
        for _ in range(10):
            zc.convert(np.arange(3.0), to="numpy", copy=True)

    with zc.monitor.record() as outer:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with zc.monitor.record() as inner:
            work()
    assert (outer.totals.calls, outer.totals.copied_bytes) == (50, 1200)
    assert (inner.totals.calls, inner.totals.copied_bytes) == (10, 240)
    assert [each.function for each in inner] == [work.__qualname__]


def test_a_path_is_shortened_before_a_name_is_broken() -> None:
    long = replace(
        row(40), file="/home/u/docs/examples/monitored_flights.py", source="polars.DataFrame", calls=24,
        copied_bytes=905_242_624, seconds=0.979,
    )  # fmt: skip
    assert "\nmonitored_flights.py:40" in text_table([long], 80)
    assert "\nexamples/monitored_flights.py:40" in text_table([long], 140)
