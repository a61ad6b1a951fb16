"""``Recorder``: call sites, reasons, several recorders, threads, forks and limits."""

from __future__ import annotations

import gc
import inspect
import os
import sys
import threading
from typing import Any

import numpy as np
import pytest
from helpers.free_threaded import with_gil
from helpers.recorded_calls import record, recording

import zerocopy as zc
from zerocopy._engine import recording as hook
from zerocopy.monitor import recorder as module
from zerocopy.monitor.recorder import Recorder

SOURCE = bytearray(64)


def one(rows: list[Any]) -> Any:
    assert len(rows) == 1, rows
    return rows[0]


# -- call sites --------------------------------------------------------------------


def test_a_call_site_is_the_line_that_calls() -> None:
    with recording(sites=True) as recorder:
        for _ in range(3):
            zc.convert(memoryview(SOURCE), "numpy")
        zc.convert(
            memoryview(SOURCE),
            "numpy",
        )
    rows = recorder.rows()
    assert sorted(row.calls for row in rows) == [1, 3]
    assert {row.file for row in rows} == {__file__}
    line = test_a_call_site_is_the_line_that_calls.__code__.co_firstlineno
    assert {row.line - line for row in rows} == {3, 4}
    assert {row.function for row in rows} == {"test_a_call_site_is_the_line_that_calls"}
    assert all(row.seconds > 0 for row in rows)


def test_two_calls_in_one_line_are_one_row() -> None:
    with recording(sites=True) as recorder:
        _ = zc.convert(memoryview(SOURCE), "numpy"), zc.convert(memoryview(SOURCE), "numpy")
    assert one(recorder.rows()).calls == 2


def test_zerocopys_own_calls_belong_to_the_callers_line() -> None:
    convert = zc.converter(memoryview(SOURCE), "numpy")
    with recording(sites=True) as recorder:
        for _ in range(3):
            convert(memoryview(SOURCE))
    row = one(recorder.rows())
    assert (row.calls, row.file, row.aliased_bytes) == (3, __file__, 3 * 64)


def test_executed_code_has_the_name_of_its_file() -> None:
    code = "\n\nzc.convert(memoryview(SOURCE), 'numpy')"
    with recording(sites=True) as recorder:
        for name in ("<stdin>", "/tmp/ipykernel_1/1.py"):
            exec(compile(code, name, "exec"), {"zc": zc, "SOURCE": SOURCE})
    assert {(row.file, row.line, row.function) for row in recorder.rows()} == {
        ("<stdin>", 3, "<module>"),
        ("/tmp/ipykernel_1/1.py", 3, "<module>"),
    }


def test_a_thread_that_only_converts_has_no_site() -> None:
    with recording(sites=True) as recorder:
        thread = threading.Thread(target=zc.convert, args=(memoryview(SOURCE), "numpy"))
        thread.start()
        thread.join()
    row = one(recorder.rows())
    assert (row.file, row.line, row.calls) == ("", 0, 1)


def test_a_thread_of_the_loader_is_named() -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"x": np.arange(1000.0)})
    with recording(sites=True) as recorder:
        batches = list(zc.loader(table, "numpy", batch_size=100))
    assert len(batches) == 10
    assert {row.file for row in recorder.rows()} <= {__file__, ""}
    assert {row.function for row in recorder.rows() if not row.file} <= {"zerocopy.loader"}


def test_more_sites_than_the_limit_are_one_row_without_a_file() -> None:
    array = memoryview(SOURCE)
    line = "convert(array, 'numpy')\n"
    with recording(sites=True) as recorder:
        for number in range(50):
            exec(compile(line * 100, f"<cell {number}>", "exec"), {"convert": zc.convert, "array": array})
    rows = recorder.rows()
    assert sum(row.calls for row in rows) == 5000
    (rest,) = [row for row in rows if not row.file]
    assert len(rows) == 4096 + 1
    assert rest.calls == 5000 - 4096


def test_without_sites_there_is_one_row_a_pair() -> None:
    with recording(sites=False) as recorder:
        zc.convert(memoryview(SOURCE), "numpy")
        zc.convert(memoryview(SOURCE), "numpy")
    row = one(recorder.rows())
    assert (row.file, row.line, row.function, row.seconds) == ("", 0, "", None)
    assert (row.source, row.target, row.calls, row.aliased_bytes) == ("memoryview", "numpy", 2, 128)


# -- reasons -----------------------------------------------------------------------


def test_copies_by_a_route_have_the_reason_of_explain() -> None:
    pytest.importorskip("torch")
    array = np.frombuffer(bytearray(257), "f4", 64, 1)
    plan = zc.explain(array, "torch")
    with recording():
        zc.convert(array, "torch")  # makes the route
        with recording(sites=True) as recorder:
            for _ in range(5):
                zc.convert(array, "torch")
    row = one(recorder.rows())
    (reason,) = plan.reasons
    assert (row.why, row.fix, row.code) == (reason.why, reason.remedy, reason.code)
    assert (row.calls, row.copied_calls, row.copied_bytes) == (5, 5, 5 * 256)


def test_a_tables_reason_names_the_column() -> None:
    pytest.importorskip("polars")
    columns = {"a": np.zeros(4), "b": np.array([True, False, True, False])}
    _, rows = record(lambda: zc.convert(columns, "polars"), sites=True)
    row = one(rows)
    assert row.why.startswith("at ['b']: ")
    assert (row.aliased_bytes, row.copied_bytes > 0, row.copied_calls) == (32, True, 1)


@pytest.mark.parametrize("nested", [False, True])
def test_a_tables_fix_names_the_column(nested: bool) -> None:
    pa, pl = pytest.importorskip("pyarrow"), pytest.importorskip("polars")
    flags = pa.chunked_array([[True], [False]])
    tables: dict[str, tuple[Any, str]] = {
        "pyarrow": (pa.table({"a": [1.0, 2.0], "b": flags}), "numpy"),
        "polars": (pl.concat([pl.DataFrame({"a": [n]}) for n in (1.0, 2.0)], rechunk=False), "torch"),
        "arrays": ([{"b": np.zeros(3, ">f4")}], "torch"),
        "flags": ([{"b": np.array([True, False])}], "polars"),
    }
    for table, to in tables.values():
        obj = [table] if nested else table
        _, rows = record(lambda obj=obj, to=to: zc.convert(obj, to), sites=True)
        row, plan = one(rows), zc.explain(obj, to)
        assert row.fix
        assert f"  fix: {row.fix}" in [line[-len(row.fix) - 7 :] for line in str(plan).splitlines()]
        column = "['b']" if row.why.rpartition("['b']")[1] else "['a']"
        inner = "[0]" * (nested + isinstance(table, list))
        assert f"x{inner}{column}" in row.fix


def test_reasons_are_sampled_at_powers_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    explained = []
    with recording() as recorder:
        plan, fixes = hook.functions
        monkeypatch.setattr(hook, "functions", (lambda *a, **k: explained.append(1) or plan(*a, **k), fixes))
        array = np.arange(4.0)
        for _ in range(100):
            zc.convert([array], "numpy", copy=True)  # an array's own plan has the reason
            zc.convert(array, "numpy", copy=True)
    rows = {row.source: row for row in recorder.rows()}
    for row in rows.values():
        assert (row.copied_calls, row.code) == (100, "copy-requested")
    assert rows.keys() == {"list", "numpy.ndarray"}
    assert len(explained) == 7  # at the copies 1, 2, 4, 8, 16, 32 and 64


def test_an_error_in_explain_does_not_reach_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("broken")

    array = np.arange(4.0)
    with recording() as recorder:
        monkeypatch.setattr(hook, "functions", (broken, broken))
        results = [zc.convert(array, "numpy", copy=True) for _ in range(4)]
    assert all(result.tolist() == array.tolist() for result in results)
    row = one(recorder.rows())
    assert (row.copied_calls, row.why) == (4, "")


def test_ctrl_c_in_explain_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    array = np.arange(4.0)
    with recording() as recorder:
        zc.convert([array], "numpy", copy=True)
        monkeypatch.setattr(hook, "functions", (interrupted, interrupted))
        with pytest.raises(KeyboardInterrupt):
            zc.convert([array], "numpy", copy=True)
        assert zc.convert([array], "numpy", copy=True)[0].tolist() == array.tolist()
    assert one(recorder.rows()).calls == 3  # the next call is not part of the one that ended
    assert hook.counters is None


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("calls", [1, 5])
def test_aliases_that_are_read_slowly_are_marked(nested: bool, calls: int) -> None:
    pytest.importorskip("torch")
    gaps, dense = np.zeros((64, 64))[:, ::2], np.zeros((64, 64))
    with recording(sites=True) as recorder:
        for _ in range(calls):
            zc.convert({"x": dense} if nested else dense, "torch")
            zc.convert({"x": gaps} if nested else gaps, "torch")
            zc.convert({"x": gaps} if nested else gaps, "torch", copy=True)
    plain, marked, copied = sorted(recorder.rows(), key=lambda row: row.line)
    assert (plain.why, plain.code) == ("", "")
    assert marked.code == "strided-alias"
    assert "strided alias: torch" in marked.why
    assert "copy=True" in marked.fix
    assert (marked.aliased_calls, marked.copied_bytes) == (calls, 0)
    assert copied.code == "copy-requested"


def test_a_site_that_copies_too_has_the_reason_of_the_copy() -> None:
    pytest.importorskip("torch")
    with recording() as recorder:
        for x in (np.zeros((64, 64))[:, ::2], np.zeros((64, 64))[::-1], np.zeros((64, 64))[:, ::2]):
            zc.convert(x, "torch")
    assert one(recorder.rows()).code == "negative-strides"


# -- refusals ----------------------------------------------------------------------


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Raising:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **_: Any) -> Any:
        raise self.error


@pytest.mark.parametrize(
    ("obj", "to", "options", "code"),
    [
        ("text", "numpy", {}, "not-an-array"),
        (np.zeros(3), "no-such-framework", {}, "unknown-framework"),
        (np.zeros(3), None, {}, "unknown-framework"),
        (np.zeros(3), [], {}, "unknown-framework"),
        (np.array([300]), "numpy", {"dtype": "uint8"}, None),
        (np.zeros(3), "numpy", {"copy": 1}, "option-value"),
        (np.zeros(3), "numpy", {"no_such_option": 1}, ""),
        (Raising(ValueError("x")), "numpy", {}, "producer-raised"),
        (Raising(Unprintable()), "numpy", {}, None),
    ],
    ids=[
        "text",
        "no framework",
        "None",
        "list",
        "lossy",
        "invalid copy",
        "no option",
        "producer",
        "unprintable",
    ],
)
def test_refusals_have_the_errors_reason(
    obj: Any, to: Any, options: dict[str, Any], code: str | None
) -> None:
    error, rows = record(lambda: zc.convert(obj, to, **options), sites=True)
    assert isinstance(error, Exception)
    row = one(rows)
    assert (row.calls, row.refused_calls, row.aliased_bytes, row.copied_bytes) == (1, 1, 0, 0)
    assert row.file == __file__
    assert row.why
    if isinstance(error, zc.ZeroCopyError):
        assert (row.why, row.fix, row.code) == (error.why, error.remedy, error.code)
    assert code is None or row.code == code


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError])
def test_requests_to_end_reach_the_caller(error: type[BaseException]) -> None:
    with recording() as recorder:
        for _ in range(2):
            with pytest.raises(error):
                zc.convert(Raising(error()), "numpy")
        zc.convert(memoryview(SOURCE), "numpy")
    calls = {row.source: (row.calls, row.refused_calls) for row in recorder.rows()}
    assert calls["memoryview"] == (1, 0)


# -- what belongs to one call ------------------------------------------------------


class Converting:
    """A producer whose method converts another array."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **_: Any) -> Any:
        zc.convert(memoryview(bytes(1000)), "numpy", copy=True)
        return self.array.__dlpack__()


def test_conversions_in_protocol_methods_belong_to_the_outer_call() -> None:
    with recording(sites=True) as recorder:
        for _ in range(3):
            zc.convert(Converting(np.zeros(4)), "numpy")
    row = one(recorder.rows())
    assert (row.calls, row.aliased_bytes, row.copied_bytes) == (3, 3 * 32, 0)


def test_streams_are_unmeasured_and_read_once() -> None:
    pa = pytest.importorskip("pyarrow")
    with recording() as recorder:
        for _ in range(2):
            batch = pa.record_batch({"x": np.arange(4.0)})
            reader = pa.RecordBatchReader.from_batches(batch.schema, [batch])
            assert zc.convert(reader, "numpy")["x"].tolist() == [0, 1, 2, 3]
    row = one(recorder.rows())
    assert (row.calls, row.unmeasured_calls, row.aliased_bytes, row.copied_bytes) == (2, 2, 0, 0)


def test_an_opened_handle_counts_its_memory() -> None:
    shared = zc.share(np.zeros(100_000))
    with recording() as recorder:
        for to in ("numpy", "numpy"):
            zc.convert(shared, to)
    row = one(recorder.rows())
    assert (row.aliased_calls, row.aliased_bytes) == (2, 2 * 800_000)


@pytest.mark.parametrize("before", [True, False])
def test_converters_are_counted_whenever_they_were_made(before: bool) -> None:
    array = memoryview(SOURCE)
    convert = zc.converter(array, "numpy", copy=True) if before else None
    if convert is not None:
        convert(array)
    with recording() as recorder:
        convert = convert or zc.converter(array, "numpy", copy=True)
        for _ in range(4):
            convert(array)
    convert(array)
    assert (one(recorder.rows()).copied_calls, recorder.rows()[0].copied_bytes) == (4, 256)


# -- several recorders -------------------------------------------------------------


def test_each_recorder_has_its_own_difference() -> None:
    array = memoryview(SOURCE)
    with recording(sites=True) as outer:
        zc.convert(array, "numpy")
        with recording(sites=False) as inner:
            zc.convert(array, "numpy", copy=True)
        zc.convert(array, "numpy")
        (inside,) = inner.rows()
        assert (inside.calls, inside.copied_bytes, inside.seconds) == (1, 64, None)
    assert sum(row.calls for row in outer.rows()) == 3
    assert len(outer.rows()) == 3
    assert inner.rows() == [inside]


def test_sites_are_recorded_while_one_recorder_wants_them() -> None:
    array = memoryview(SOURCE)
    with recording(sites=False) as outer:
        zc.convert(array, "numpy")
        with recording(sites=True) as inner:
            zc.convert(array, "numpy")
        zc.convert(array, "numpy")
    assert one(inner.rows()).file == __file__
    assert (one(outer.rows()).calls, one(outer.rows()).file) == (3, "")


def test_start_and_stop_can_be_repeated() -> None:
    recorder = Recorder()
    assert recorder.rows() == []
    recorder.stop()
    for _ in range(2):
        recorder.start()
        recorder.start()
        zc.convert(memoryview(SOURCE), "numpy")
        assert one(recorder.rows()).calls == 1
        recorder.stop()
        recorder.stop()
        zc.convert(memoryview(SOURCE), "numpy")
        assert one(recorder.rows()).calls == 1
    assert hook.counters is None


def test_rows_are_sorted_by_copied_bytes_then_calls() -> None:
    with recording(sites=True) as recorder:
        zc.convert(bytes(8), "numpy")
        for _ in range(2):
            zc.convert(bytes(8), "numpy")
        zc.convert(bytes(8), "numpy", copy=True)
        zc.convert(bytes(80), "numpy", copy=True)
    assert [(row.copied_bytes, row.calls) for row in recorder.rows()] == [(80, 1), (8, 1), (0, 2), (0, 1)]


# -- leaks, threads and forks ------------------------------------------------------


@with_gil("old tables of routes are kept, because other threads may read them")
def test_starting_and_stopping_leaks_nothing() -> None:
    array, convert = memoryview(SOURCE), zc.convert  # many reads of the attribute import all public names

    def cycle() -> None:
        with recording(sites=True) as recorder:
            convert(array, "numpy", copy=True)
        recorder.rows()

    for _ in range(10):
        cycle()
    gc.collect()
    objects, blocks = len(gc.get_objects()), sys.getallocatedblocks()
    references = sys.getrefcount(cycle.__code__), sys.getrefcount(SOURCE)
    for _ in range(1000):
        cycle()
    gc.collect()
    assert len(gc.get_objects()) - objects < 100
    assert sys.getallocatedblocks() - blocks < 500
    assert (sys.getrefcount(cycle.__code__), sys.getrefcount(SOURCE)) == references


def test_threads_count_exactly() -> None:
    threads, calls = 4, 1000
    ready = threading.Barrier(threads)

    def work() -> None:
        ready.wait(60)
        for i in range(calls):
            zc.convert(SOURCES[i % 2], "numpy", copy=i % 4 == 0 or None)

    SOURCES = [memoryview(SOURCE), np.arange(8)]
    with recording(sites=True) as recorder:
        workers = [threading.Thread(target=work) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    rows = {row.source: row for row in recorder.rows()}
    assert rows["memoryview"].calls == rows["numpy.ndarray"].calls == threads * calls // 2
    assert rows["memoryview"].copied_bytes == threads * calls // 4 * 64
    assert rows["memoryview"].aliased_bytes == threads * calls // 4 * 64
    assert rows["numpy.ndarray"].unchanged_calls == threads * calls // 2


def test_recorders_come_and_go_while_threads_convert() -> None:
    stop = threading.Event()
    errors: list[BaseException] = []

    def work() -> None:
        array = np.arange(6.0)[::-1]
        try:
            while not stop.is_set():
                assert zc.convert(array, "numpy", copy=True).tolist() == [5, 4, 3, 2, 1, 0]
                assert zc.convert([memoryview(SOURCE)], "numpy")[0].nbytes == 64
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for i in range(200):
        with recording(sites=i % 2 == 0) as recorder:
            recorder.rows()
    stop.set()
    for worker in workers:
        worker.join()
    assert not errors
    assert hook.counters is None


def test_stopping_during_a_call_of_another_thread() -> None:
    entered, go = threading.Event(), threading.Event()

    class Slow(Converting):
        def __dlpack__(self, **options: Any) -> Any:
            entered.set()
            go.wait(60)
            return super().__dlpack__(**options)

    results: list[Any] = []
    recorder = Recorder()
    recorder.start()
    worker = threading.Thread(target=lambda: results.append(zc.convert(Slow(np.zeros(4)), "numpy")))
    worker.start()
    assert entered.wait(60)
    recorder.stop()
    go.set()
    worker.join()
    assert results[0].nbytes == 32
    assert recorder.rows() == []
    with recording() as later:
        zc.convert(memoryview(SOURCE), "numpy")
    assert one(later.rows()).calls == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore")
def test_a_forked_child_counts_from_zero(run_python) -> None:
    process = run_python(
        """
        import os, zerocopy as zc
        from zerocopy.monitor.recorder import Recorder
        recorder = Recorder()
        recorder.start()
        for _ in range(5): zc.convert(memoryview(bytes(8)), "numpy")
        child = os.fork()
        count = 0 if child else 2
        for _ in range(count): zc.convert(memoryview(bytes(8)), "numpy")
        calls = sum(row.calls for row in recorder.rows())
        if not child: os._exit(10 + calls)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(status, calls)
        """
    )
    assert (process.returncode, process.stdout.strip()) == (0, "12 5"), process.stderr


def test_rows_name_parts_of_zerocopy_without_a_caller() -> None:
    assert module.place_of(inspect.unwrap(zc.shares_memory).__code__, -1) == ("", 0, "zerocopy._engine")
    assert module.place_of(None, -1) == ("", 0, "")
