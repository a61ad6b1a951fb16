"""Arrow streams that can be requested or read once: counted requests, and no silent loss of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from helpers.table_cases import TABLES, TENSORS
from helpers.tiers import sampled

import zerocopy as zc
from zerocopy import registry

pa = pytest.importorskip("pyarrow")


class Once:
    """A producer that hands out its one capsule and counts requests."""

    def __init__(self, source: Any) -> None:
        self._capsule = source.__arrow_c_stream__()
        self.requests = 0

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        self.requests += 1
        capsule, self._capsule = self._capsule, None
        if capsule is None:
            raise RuntimeError("the stream was requested twice")
        return capsule


class OnceWithSchema(Once):
    """The same, with a type that can be read without a request."""

    def __init__(self, source: Any) -> None:
        super().__init__(source)
        self._type = source.schema if hasattr(source, "schema") else source.type

    def __arrow_c_schema__(self) -> Any:
        return self._type.__arrow_c_schema__()


class Lending:
    """A producer that lends a reader, whose batches remain until one is read."""

    def __init__(self, source: Any) -> None:
        self.reader = source.to_reader()
        self.requests = 0

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        self.requests += 1
        return self.reader.__arrow_c_stream__(requested_schema)


_NUMBERS = pa.chunked_array([[1, 2], [3]])
_TEXT = pa.chunked_array([["a", None], ["c"]])
_FLAGS = pa.chunked_array([[True, False, True]])
_STRUCT = pa.array([{"x": 1}, {"x": 2}])
CONTENTS = {
    "numbers": _NUMBERS,
    "nulls": pa.chunked_array([[1, None, 3]]),
    "text": _TEXT,
    "booleans": _FLAGS,
    "lists": pa.chunked_array([[[1], [2, 3]]]),
    "table": pa.table({"a": [1.0, 2.0], "b": [3.0, 4.0]}),
    "mixed table": pa.table({"a": [1, 2], "b": ["x", None]}),
    "nested table": pa.table({"a": _STRUCT}),
    "table of chunks": pa.table({"a": _NUMBERS, "b": _TEXT}),
    "no rows": pa.table({"a": pa.array([], pa.int64())}),
}
FORMS = ["pyarrow.Table", "pyarrow.RecordBatch", "pyarrow.ChunkedArray", "pyarrow.Array", "polars.Series"]
OPTIONS: list[dict[str, Any]] = [
    *({}, {"copy": True}, {"copy": False}, {"writable": True}, {"columns": ["a"]}, {"columns": ["none"]}),
    *({"nulls": 0}, {"nulls": "mask"}, {"encode": True}, {"layout": "matrix"}, {"layout": "records"}),
    *({"index": False}, {"names": ["x"]}, {"device": "cpu"}),
]


def _targets() -> list[str]:
    chosen = [n for n in (*TABLES, *TENSORS) if set(registry.by_name(n).device_kinds) & {"cpu"}]
    return [n for n in chosen if n not in ("cudf", "pylibcudf", "tensorflow")] + FORMS


def _producers(source: Any) -> dict[str, Callable[[], Any]]:
    producers: dict[str, Callable[[], Any]] = {
        "once": lambda: Once(source),
        "once, with a schema": lambda: OnceWithSchema(source),
    }
    if isinstance(source, pa.Table):
        producers["a lent reader"] = lambda: Lending(source)
        producers["a reader"] = source.to_reader
    return producers


def _attempt(call: Callable[..., Any], *args: Any, **options: Any) -> Any:
    try:
        return call(*args, **options)
    except zc.ZeroCopyError as error:
        return error


@pytest.mark.hazard("producers#streams-requested-twice")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("to", _targets())
def test_a_stream_is_requested_once_and_its_rows_are_not_lost_silently(to: str, content: str) -> None:
    source = CONTENTS[content]
    first = list(CONTENTS).index(content) + list(_targets()).index(to)
    for options, (name, make) in sampled(3, OPTIONS, list(_producers(source).items()), first=first):
        case = (name, options)
        producer = make()
        plan = zc.explain(producer, to, **options)
        assert getattr(producer, "requests", 0) == 0, case
        result = _attempt(zc.convert, producer, to, **options)
        requests = getattr(producer, "requests", 0)
        assert requests <= 1, case
        if isinstance(result, zc.ZeroCopyError):
            assert result.code != "target-raised", (case, result)
            unread = requests == 0 and (not isinstance(producer, pa.RecordBatchReader) or _rows(producer))
            assert unread or not len(source) or "which many streams allow once" in result.why, (
                case,
                result,
            )
        else:
            assert plan.possible, case
        if not plan.possible and not isinstance(producer, pa.RecordBatchReader):
            assert requests == 0, case  # refused by type, before the stream was requested


def _rows(reader: Any) -> int:
    try:
        rows: int = reader.read_all().num_rows
    except pa.ArrowInvalid:
        return 0
    return rows


@pytest.mark.parametrize("to", ["pyarrow", "pandas", "polars", "numpy"])
def test_reader_of_a_chunked_array_converts(to: str) -> None:
    pytest.importorskip(to)
    result = zc.convert(Once(_NUMBERS), to)
    values = result.to_pylist() if to == "pyarrow" else list(result)
    assert [int(value) for value in values] == [1, 2, 3]


def test_refusal_by_type_leaves_a_lent_reader_unread() -> None:
    producer = Lending(CONTENTS["mixed table"])
    with pytest.raises(zc.UnsupportedConversionError, match="is string") as caught:
        zc.convert(producer, "numpy")
    assert "has been requested" in caught.value.why
    assert producer.reader.read_all().num_rows == 2


def test_two_requests_for_one_capsule_do_not_read_a_moved_stream() -> None:
    from zerocopy.protocols import arrow_c

    class Same:
        capsule = _NUMBERS.__arrow_c_stream__()

        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            return self.capsule

    first, second = arrow_c.Stream(Same()), arrow_c.Stream(Same())
    assert [chunk.length for chunk in first.batches()] == [2, 1]
    for read in (second.batches, second.__arrow_c_stream__, lambda: arrow_c.Stream(Same())):
        with pytest.raises(zc.UnsupportedConversionError) as caught:
            read()
        assert caught.value.code == "consumed"


def test_stream_without_a_schema_says_that_it_was_read_when_it_is_refused() -> None:
    producer = Once(CONTENTS["nulls"])
    assert zc.explain(producer, "numpy").unread
    with pytest.raises(zc.LossyConversionError, match="has been read") as caught:
        zc.convert(producer, "numpy")
    assert "which many streams allow once" in caught.value.why
    assert "nulls=" in caught.value.remedy


@pytest.mark.parametrize("to", ["polars", "pandas", "nanoarrow", "torch"])
def test_a_stream_that_fails_midway_has_to_be_opened_again(to: str) -> None:
    pytest.importorskip(to)
    batch = pa.record_batch({"x": [1.0]})

    def batches() -> Any:
        yield batch
        raise OSError("the disk is gone")

    with pytest.raises(zc.UnsupportedConversionError, match="the disk is gone") as caught:
        zc.convert(pa.RecordBatchReader.from_batches(batch.schema, batches()), to)
    assert str(caught.value).partition("To fix: ")[2].startswith("open the stream again")
