"""``forbid_copies``: each planted copy is found at its line, before it is made, and no alias is."""

from __future__ import annotations

import asyncio
import logging
import threading
import traceback
import warnings
from collections import namedtuple
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.arrays import bits, sample
from helpers.audit_programs import AVOIDABLE, NOT_AVOIDABLE, run_code
from helpers.tiers import sampled

import zerocopy as zc
from zerocopy import registry
from zerocopy._engine import recording
from zerocopy.audit import audit, wrapper

ALSO = ("numpy", "torch", "jax", "tensorflow", "pandas", "polars", "pyarrow")
X = np.arange(1024.0)
REVERSED = X[::-1]


def refusal(call: Callable[[], object], over: int = 0, **options: Any) -> zc.CopyRequiredError | None:
    """Return the error of a guarded call; None if it is allowed, or raises another error."""
    with suppress(zc.ZeroCopyError):
        try:
            with zc.forbid_copies(over, **options):
                call()
        except zc.CopyRequiredError as error:
            return error
    return None


def is_off() -> bool:
    return not recording.entries.get() and recording.counters is None and not wrapper.LISTENERS


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    assert is_off()


# -- the sample package ----------------------------------------------------------------------


def planted() -> Any:
    for name in (*ALSO, "scipy"):
        pytest.importorskip(name)
    from helpers import planted_copies

    return planted_copies


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_each_planted_copy_raises_at_its_line() -> None:
    package = planted()
    assert len(package.CASES) >= 40
    for function, line in package.marked_lines():
        objects = package.make()
        with pytest.raises(zc.CopyRequiredError) as raised, zc.forbid_copies(also=ALSO):
            function(objects)
        frames = traceback.extract_tb(raised.tb)
        own = [frame.lineno for frame in frames if Path(frame.filename) == Path(package.__file__)]
        assert own == [line], (function.__name__, raised.value)
        ours = {Path(frame.filename).name for frame in frames if "/zerocopy/" in frame.filename}
        assert not ours or function in (package.accepts, package.bridge), function.__name__
        assert "To fix: " in str(raised.value)
        assert raised.value.code != "other", function.__name__


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_warnings_have_exactly_the_planted_lines() -> None:
    package = planted()
    objects = package.make()
    # Torch calls the bridge's function: the first line outside of zerocopy is torch's.
    marked = [(function, line) for function, line in package.marked_lines() if function is not package.bridge]
    with warnings.catch_warnings(record=True) as caught, zc.forbid_copies(also=ALSO, action="warn"):
        warnings.simplefilter("always", RuntimeWarning)
        for function, _ in marked:
            function(objects)
    lines = [each.lineno for each in caught if each.category is RuntimeWarning]
    assert lines == [line for _, line in marked]
    assert {each.filename for each in caught if each.category is RuntimeWarning} == {package.__file__}


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_calls_that_the_audit_knows() -> None:
    package = planted()
    from helpers.audit_programs import argument, modules

    del package
    cases = [(code, kind, "avoidable", fix) for code, kind, fix in AVOIDABLE]
    cases += [(code, kind, expected, "") for code, kind, expected in NOT_AVOIDABLE if expected]
    for code, kind, expected, fix in cases:
        if kind != "torch" and code in ("jnp.asarray(x)", "x.to_jax()"):
            continue  # depends on JAX's version
        names = {**modules(code), "x": argument(kind)}
        error = refusal(lambda code=code, names=names: run_code(f"{code}\n", names), also=ALSO)
        assert (error is None) == (expected == "alias"), code
        if error is not None:
            assert fix in error.remedy
            assert (error.asked, error.code) == (code, "call-copies")


# -- the plan --------------------------------------------------------------------------------

OPTIONS: list[dict[str, Any]] = [{}, {"copy": True}, {"writable": True}, {"dtype": "float64"}]
HOST = [
    name
    for name, info in registry.frameworks().items()
    if info.installed and "cpu" in registry.by_name(name).device_kinds
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("to", HOST)
def test_the_guard_raises_where_explain_copies_more(to: str) -> None:
    forms = [sample("f4", (64,)), sample("f8", (8, 8)), sample("i8", (64,))[::-1], sample("?", (64,))]
    for source, form, options in sampled(5, HOST, forms, OPTIONS, first=HOST.index(to)):
        try:
            x = zc.convert(form, source)
            plan = zc.explain(x, to, **options)
        except (zc.ZeroCopyError, RuntimeError, TypeError):
            continue
        before = bits(form)
        for over in (0, plan.copied_bytes, max(plan.copied_bytes - 1, 0)):
            error = refusal(lambda x=x, given=options: zc.convert(x, to, **given), over)
            assert (error is not None) == (plan.copied_bytes > over), (source, to, form.dtype, options, over)
            assert error is None or f"copies {plan.copied_bytes:,} bytes" in error.why
        assert bits(form) == before


class Exporter:
    """A producer that counts its exports."""

    def __init__(self) -> None:
        self.exports = 0

    def __dlpack__(self, **options: Any) -> Any:
        self.exports += 1
        assert self.exports == 1, "a producer with one capsule"
        return REVERSED[::-1].__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def test_error_comes_before_the_copy() -> None:
    out = np.zeros(1024)
    with pytest.raises(zc.CopyRequiredError, match="out= was passed"), zc.forbid_copies():
        zc.convert(X, "numpy", out=out)
    assert not out.any()
    producer = Exporter()
    with zc.forbid_copies():
        assert zc.convert(producer, "numpy")[1] == 1
    assert producer.exports == 1


def test_text_of_the_error() -> None:
    pytest.importorskip("torch")
    with pytest.raises(zc.CopyRequiredError) as raised, zc.forbid_copies("1 KiB"):
        zc.convert({"a": REVERSED}, "torch")
    assert str(raised.value) == (
        "convert(dict, to='torch'): it copies 8,192 bytes, and forbid_copies allows 1,024: at ['a']: torch "
        "does not support negative strides.\n  To fix: import numpy; "
        "zc.convert({**x, 'a': numpy.ascontiguousarray(x['a'])}, \"torch\") makes it row-major once; or "
        "zc.forbid_copies(over=8192) allows it"
    )
    with pytest.raises(zc.CopyRequiredError, match="copy=True was passed") as raised, zc.forbid_copies():
        zc.convert(X, "numpy", copy=True)
    assert raised.value.code == "copy-requested"
    assert 'zc.convert(x, "numpy", copy=None) leaves copy=True out' in raised.value.remedy


def test_bytes_are_those_of_the_whole_call() -> None:
    columns = dict.fromkeys("abcd", REVERSED)
    for obj in (columns, list(columns.values())):
        with pytest.raises(zc.CopyRequiredError), zc.forbid_copies(4 * X.nbytes - 1):
            zc.convert(obj, "torch")
        with zc.forbid_copies(4 * X.nbytes):
            zc.convert(obj, "torch")


def test_parts_and_leaves_are_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    with zc.forbid_copies(X.nbytes, action="log"):
        zc.convert([REVERSED] * 3, "torch")
    assert [f"copies {3 * X.nbytes:,} bytes" in record.getMessage() for record in caplog.records] == [True]
    sparse = pytest.importorskip("scipy.sparse")
    with zc.forbid_copies(action="log"):
        zc.convert(sparse.csr_array(np.eye(9)), "torch", copy=True)
    assert len(caplog.records) == 2


def test_all_leaves_are_counted_before_the_first_is_converted(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    for obj in ({"small": REVERSED[:8], "large": REVERSED}, [{"a": REVERSED[:8]}, (REVERSED,)]):
        error = refusal(lambda obj=obj: zc.convert(obj, "torch"), X.nbytes)
        assert error is not None
        assert error.remedy.endswith(f"zc.forbid_copies(over={X.nbytes + 64}) allows it")
        assert refusal(lambda obj=obj: zc.convert(obj, "torch"), X.nbytes + 64) is None
    np.savez(tmp_path / "x.npz", a=X, b=X)
    for options in ({}, {"copy": True}):
        read = lambda options=options: zc.convert(np.load(tmp_path / "x.npz"), "torch", **options)  # noqa: E731
        error = refusal(read, 2 * X.nbytes - 1)
        assert error is not None
        assert f"it copies {2 * X.nbytes:,} bytes" in error.why
        assert refusal(read, 2 * X.nbytes) is None


def tables() -> dict[str, Any]:
    pl = pytest.importorskip("polars")
    columns = {"f": [1.0, 2.0], "i": [1, 2], "b": [True, False], "n": [1, None]}
    frame = pl.DataFrame(columns)
    pa = pytest.importorskip("pyarrow")
    chunks = pa.table({"a": pa.chunked_array([[1.0, 2.0], [3.0]]), "b": pa.array([1.0, None, 2.0])})
    misaligned = np.frombuffer(bytes(8 * 100 + 1), "u1")[1:].view("f8")
    own = {"P": namedtuple("P", "a b"), "m": misaligned, "chunks": chunks}
    return own | {
        "numbers": frame.select("f", "i"),
        "booleans": frame.select("b", "i"),
        "nulls": frame[["n"]],
    }


#: Objects, options and the number of calls that avoid the copy.
WITH_FIXES: list[tuple[str, dict[str, Any], int]] = [
    ("x", {"dtype": "float32"}, 1),
    ("x[::-1]", {"dtype": "float32"}, 1),
    ("x", {"copy": True}, 1),
    ("x[::-1]", {"copy": True}, 1),
    ("x[::-1]", {"copy": True, "dtype": "float32"}, 1),
    ("{'a': x, 'b': x[::-1]}", {"copy": True}, 1),
    ("{'a': x, 'b': x[::-1]}", {"dtype": "float32"}, 1),
    ("{'a': x, 'b': x[::-1]}", {"dtype": {"a": "float32"}}, 1),
    ("{'a': x, 'b': x[::-1]}", {}, 2),
    ("{'a': x, 'b': {'c': x[::-1]}}", {}, 2),
    ("[x, x[::-1]]", {}, 1),
    ("(x, x[::-1])", {}, 1),
    ("P(x, x[::-1])", {}, 1),
    ("{'a': {'b': x[::-1]}, 'c': {'d': m}}", {}, 1),
    ("{'a': x[::-1], 'c': m}", {}, 1),
    ("m", {}, 1),
    ("{'a': x.astype('>f8'), 'b': x[::-1]}", {"dtype": "float32"}, 1),
    ("{i: x[::-1] for i in range(300)}", {}, 1),
    ("{i: [x, x[::-1]][i > 0] for i in range(300)}", {}, 1),
    ("{'a': x, 'b': 'text'}", {"copy": True, "leaves": "keep"}, 1),
    ("chunks", {"nulls": "nan"}, 0),
    ("{'a': {'c': x}}", {"dtype": "float32"}, 1),
    ("[x, x[::-1]]", {"dtype": "float32"}, 0),
    ("[x, x]", {"copy": True}, 1),
    ("numbers", {"dtype": "float32"}, 1),
    ("numbers", {"copy": True}, 1),
    ("numbers", {"writable": True}, 1),
    ("numbers", {"layout": "matrix", "dtype": "float32"}, 1),
    ("booleans", {}, 2),
    ("booleans", {"copy": True}, 1),
    ("nulls", {"nulls": 0}, 0),
]


@pytest.mark.parametrize(("source", "options", "count"), WITH_FIXES)
def test_fixes_work_when_pasted_under_the_guard(source: str, options: dict[str, Any], count: int) -> None:
    pytest.importorskip("torch")
    x = eval(source, {"x": X} | tables())
    error = refusal(lambda: zc.convert(x, "torch", **options))
    assert error is not None
    assert len(error.calls) == count, error
    assert len(str(error)) < 600
    for code in error.calls:
        assert code in error.remedy
        *statements, call = code.split("; ")
        names = {"zc": zc, "x": x}
        exec("; ".join(statements), names)
        with zc.forbid_copies():
            eval(call, names)


@pytest.mark.parametrize("to", ["pyarrow", "polars", "pandas"])
@pytest.mark.parametrize("dtype", ["f8", "M8[D]"])
def test_fixes_of_one_array_work_under_the_guard_for_tables(to: str, dtype: str) -> None:
    pytest.importorskip(to)
    x = np.frombuffer(bytes(8 * 100 + 1), "u1")[1:].view("f8") if dtype == "f8" else np.zeros(9, dtype)
    error = refusal(lambda: zc.convert(x, to))
    if error is None:
        assert (to, dtype) == ("pandas", "M8[D]")
        return
    assert error.calls
    for code in error.calls:
        with zc.forbid_copies():
            eval(code, {"zc": zc, "x": x})


def test_other_errors_are_those_without_a_guard() -> None:
    for call in (lambda: zc.convert("text", "numpy"), lambda: zc.convert(X, "numpy", dtype="what")):
        with pytest.raises((zc.ZeroCopyError, TypeError)) as plain:
            call()
        with pytest.raises(type(plain.value)) as guarded, zc.forbid_copies():
            call()
        assert str(guarded.value) == str(plain.value)


def test_weights(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    path = tmp_path / "m.safetensors"
    zc.save({"a": X, "b": X.astype("f4")}, path)
    weights = zc.open_weights(path, "torch", dtype="float32")
    with zc.forbid_copies():
        assert weights["b"].shape == (1024,)
        with pytest.raises(zc.CopyRequiredError, match=r"open_weights.*copies 4,096 bytes") as raised:
            weights["a"]
        assert "copies where a copy is needed" not in raised.value.remedy


SOURCES_OF_LOADERS: dict[str, Callable[[Path], Any]] = {
    "table": lambda path: columns_that_copy(),
    "dict": lambda path: {"reversed": np.arange(999.0)[::-1], "swapped": np.arange(999).astype(">i4")},
    "parquet": lambda path: str(path),
    "reader": lambda path: columns_that_copy().to_reader(),
}


def columns_that_copy() -> Any:
    pa = pytest.importorskip("pyarrow")
    rows = range(999)
    flags, words = [i % 3 == 0 for i in rows], [f"{i}" for i in rows]
    columns = {"flag": flags, "hole": [i or None for i in rows], "word": words}
    return pa.table({**columns, "list": [[i] * (i % 3) for i in rows]})


@pytest.mark.parametrize("options", [{}, {"shuffle": True}, {"dtype": "float32"}, {"layout": "matrix"}])
@pytest.mark.parametrize("source", SOURCES_OF_LOADERS)
def test_the_work_of_a_loader_is_not_guarded(source: str, options: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    pq.write_table(columns_that_copy(), path, row_group_size=150)
    given, of_table = SOURCES_OF_LOADERS[source](path), {"encode": "bytes", "nulls": 0, "lists": "pad"}
    if options.get("layout"):
        of_table, options = {"nulls": 0}, {**options, "dtype": "float64", "columns": ["flag", "hole"]}
        options |= {"columns": None} if source == "dict" else {}
    elif "dtype" in options:
        options = {"dtype": {"int64": "float32"}}
    options |= of_table if source != "dict" else {}
    with zc.forbid_copies():
        batches = [*zc.loader(given, to="torch", batch_size=100, **options)]
        assert len(batches) == 10
        assert not copies(), "the block guards the program's own conversions"
        if source != "reader" and "shuffle" not in options:
            assert len(zc.dataset(given, to="torch", **options)[[5, 3]]) >= 2
    with zc.forbid_copies():
        import pyarrow as pa

        assert pa.table(zc.loader(path, to="numpy", columns=["flag"], batch_size=100)).num_rows == 999


# -- actions ----------------------------------------------------------------------------------


def test_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "zerocopy"), zc.forbid_copies(action="log"):
        assert zc.convert(REVERSED, "torch")[0] == 1023
    (record,) = caplog.records
    assert record.getMessage().startswith(f"{__file__}:")
    assert "it copies 8,192 bytes" in record.getMessage()


def test_a_warning_that_is_an_error_stops_the_copy() -> None:
    with pytest.raises(RuntimeWarning, match="it copies"), zc.forbid_copies(action="warn"):
        zc.convert(REVERSED, "torch")


@pytest.mark.parametrize(
    "options",
    [{"over": -1}, {"over": "1M"}, {"over": None}, {"also": "duckdb"}, {"action": "rase"}, {"also": [3]}],
)
def test_invalid_options(options: dict[str, Any]) -> None:
    with pytest.raises(zc.ZeroCopyError):
        zc.forbid_copies(**options)
    with pytest.raises(zc.errors.UnknownFrameworkError):
        zc.forbid_copies(also="troch")


# -- contexts ---------------------------------------------------------------------------------


def copies(call: Callable[[], object] = lambda: zc.convert(REVERSED, "torch")) -> bool:
    """Whether a copy is allowed here."""
    try:
        call()
    except zc.CopyRequiredError:
        return False
    return True


def test_threads_have_guards_of_their_own() -> None:
    entered, leave = threading.Event(), threading.Event()

    def guarded() -> list[bool]:
        with zc.forbid_copies():
            entered.set()
            leave.wait(60)
            return [copies(), copies(lambda: zc.convert(X, "torch"))]

    with ThreadPoolExecutor(2) as pool:
        other = pool.submit(guarded)
        entered.wait(60)
        assert copies()
        assert pool.submit(copies).result()
        with zc.forbid_copies():
            assert pool.submit(copies).result(), "a thread of the pool has a context of its own"
            assert not pool.submit(copy_context().run, copies).result()
        leave.set()
        assert other.result() == [False, True]


def test_tasks_have_guards_of_their_own() -> None:
    async def worker(over: int | None, barrier: asyncio.Barrier) -> bool:
        if over is None:
            await barrier.wait()
            return copies()
        with zc.forbid_copies(over):
            await barrier.wait()
            result = copies()
            await barrier.wait()
            return result

    async def main() -> None:
        barrier = asyncio.Barrier(3)
        first, second = worker(0, barrier), worker(1 << 20, barrier)
        third = asyncio.create_task(worker(None, barrier))
        tasks = [asyncio.create_task(each) for each in (first, second)]
        assert await third
        await barrier.wait()
        assert [await each for each in tasks] == [False, True]
        with zc.forbid_copies():
            later = asyncio.Event()

            async def outlives() -> bool:
                await later.wait()
                return copies()

            inner, outer = asyncio.create_task(asyncio.to_thread(copies)), asyncio.create_task(outlives())
            assert not await inner, "to_thread copies the context"
        with zc.forbid_copies(1 << 20):  # conversions are still recorded
            later.set()
            assert await outer, "the block has ended"
        assert copies()

    asyncio.run(main())


def test_nested_guards_all_apply(caplog: pytest.LogCaptureFixture) -> None:
    with zc.forbid_copies():
        with zc.forbid_copies(1 << 20):
            assert not copies()
        assert not copies()
    with zc.forbid_copies(1 << 20):
        with zc.forbid_copies():
            assert not copies()
        assert copies()
    with zc.forbid_copies(), zc.forbid_copies(action="log"):
        assert not copies()
    assert len(caplog.records) == 1, "the inner guard logs, then the outer one raises"


def test_calls_of_frameworks_and_nested_guards(caplog: pytest.LogCaptureFixture) -> None:
    torch = pytest.importorskip("torch")
    call = lambda: torch.tensor(X)  # noqa: E731
    with zc.forbid_copies(also="torch"), audit() as report, zc.forbid_copies(also="torch", action="log"):
        assert not copies(call)
        assert copies(lambda: np.array(X)), "of one framework"
    assert len(caplog.records) == 1
    assert len(report.rows) == 1
    with zc.forbid_copies(also="torch"), zc.monitor.record() as recorded, ThreadPoolExecutor(1) as pool:
        assert pool.submit(copies, call).result()
        assert not copies(call)
        assert copies(lambda: torch.as_tensor(X))
    assert len(recorded) == 0, "the checks are not conversions of the program"


def test_one_guard_is_entered_again() -> None:
    guard = zc.forbid_copies(also="torch")
    for _ in range(2):
        with guard:
            with guard:
                assert not copies()
            assert not copies()
        assert copies()
        assert is_off()


def test_a_task_that_outlives_its_block_is_not_guarded_by_a_later_block_of_the_same_guard() -> None:
    guard = zc.forbid_copies()

    async def main() -> None:
        later = asyncio.Event()

        async def outlives() -> tuple[bool, bool]:
            await later.wait()
            with guard:
                inside = copies()
            return inside, copies()

        with guard:
            context = copy_context()
            task = asyncio.create_task(outlives())
            assert not context.run(copies)
            await asyncio.sleep(0)
        with guard:
            later.set()
            assert await task == (False, True)
            assert context.run(copies)
            assert not copies()

    asyncio.run(main())


def test_guards_of_generators() -> None:
    def generator() -> Iterator[bool]:
        with zc.forbid_copies():
            yield copies()
            yield copies()

    first, second = generator(), generator()
    assert not next(first)
    assert not copies(), "a generator runs in the context of its caller"
    assert not next(second)
    first.close()
    assert not copies()
    second.close()
    assert copies()
    third = generator()
    copy_context().run(next, third)
    assert copies(), "it was entered in another context"
    third.close()


def test_exceptions_leave_no_guard() -> None:
    with pytest.raises(KeyError), zc.forbid_copies(also=["torch"]):
        raise KeyError
    assert is_off()
    assert copies()


def test_a_decorator_guards_each_call() -> None:
    guarded = zc.forbid_copies()(copies)
    assert not guarded()
    assert copies()

    async def coroutine() -> None: ...

    with pytest.raises(TypeError, match="write `with` in its body"):
        zc.forbid_copies()(coroutine)


def test_an_error_of_explain_leaves_the_result_and_the_error_of_the_copy(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    torch = pytest.importorskip("torch")

    def explain(*_: object) -> None:
        raise RuntimeError("planted")

    call = lambda: torch.asarray(X, copy=True)  # noqa: E731
    error = refusal(call, also="torch")
    assert error is not None
    assert "aliases, if its result can replace this one; or" in error.remedy
    monkeypatch.setattr("zerocopy.audit.check.explain", explain)
    error = refusal(call, also="torch")
    assert error is not None
    assert (error.code, error.remedy) == ("call-copies", "zc.forbid_copies(over=8192) allows it")
    with zc.forbid_copies(also="torch", action="log"):
        assert call()[5] == 5
    assert "the reason is not known" in caplog.text


def test_texts() -> None:
    assert repr(zc.forbid_copies(8, also="torch")) == "forbid_copies(over=8, also=['torch'], action='raise')"
    with pytest.raises(zc.errors.UnknownFrameworkError, match=r"^also='pytorch': "):
        zc.forbid_copies(also="pytorch")


def test_the_fix_names_the_conversion_that_aliases_with_other_types() -> None:
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"a": X, "b": X})
    with pytest.raises(zc.errors.CopyRequiredError) as raised, zc.forbid_copies(also="torch"):
        frame.to_torch()
    assert 'zc.convert(frame, to="torch") aliases, if its result can replace' in raised.value.remedy


def test_recordings_and_guards() -> None:
    with zc.monitor.record() as recorded:
        with zc.forbid_copies():
            assert not copies()
            zc.convert(X, "torch")
        copies()
    rows = sorted(recorded, key=lambda row: row.refused_calls + 2 * row.copied_calls)
    assert [(row.aliased_calls, row.refused_calls, row.copied_calls) for row in rows] == [
        (1, 0, 0),
        (0, 1, 1),
    ]
    assert recorded.totals.copied_bytes == X.nbytes


def test_only_a_guard_leaves_the_reason_of_an_earlier_copy() -> None:
    pytest.importorskip("torch")

    class Producer:
        text = "no data"

        def __array__(self, *_: object, **__: object) -> Any:
            raise ValueError(self.text)

    producer = Producer()
    with zc.monitor.record() as recorded:
        for producer.text in ("no data", "the rule and forbid_copies allows none"):
            with suppress(zc.ZeroCopyError):
                zc.convert(producer, "numpy")
    assert "allows none" in recorded.rows[0].why
    with zc.monitor.record() as recorded:
        for guard in (zc.forbid_copies(1 << 20), zc.forbid_copies()):
            with guard, suppress(zc.CopyRequiredError):
                zc.convert(REVERSED, "torch")
    assert recorded.rows[0].why == "torch does not support negative strides"


def test_conversions_take_their_routes_again() -> None:
    from zerocopy._engine import routes

    with zc.forbid_copies():
        zc.convert(X, "torch")
        assert routes.routes_of("torch", {}).get(np.ndarray) is None
    zc.convert(X, "torch")
    assert routes.routes_of("torch", {}).get(np.ndarray) is not None


@pytest.mark.parametrize("fails", ["zerocopy.audit.wrapper.add", "zerocopy.monitor.recorder.Recorder.start"])
def test_a_block_that_cannot_begin_leaves_no_guard(monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    from zerocopy._engine import recording
    from zerocopy.audit import wrapper

    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(fails, fail)
    before = [*wrapper.LISTENERS]
    with pytest.raises(MemoryError), zc.forbid_copies(also="torch"):
        pass
    assert recording.counters is None
    assert [*wrapper.LISTENERS] == before
