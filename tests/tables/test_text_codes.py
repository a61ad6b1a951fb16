"""``encode=`` of ``convert``: codes of text and of given words, as in the loader."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from helpers.frameworks import HOST
from helpers.pasting import pasted

import zerocopy as zc
from zerocopy import registry
from zerocopy.errors import CopyRequiredError, LossyConversionError, UnsupportedConversionError

CITIES = ["Oslo", "Bern", None, "Rome", "Bern", "Zürich", ""]
WORDS = ["", "Bern", "Oslo", "Rome", "Zürich"]
CODES = [2, 1, -1, 3, 1, 4, 0]
TEXT = {"string": pa.string(), "large_string": pa.large_string(), "string_view": pa.string_view()}
#: Frameworks whose results are tensors for ``encode=``.
TENSORS = [name for name in HOST if registry.by_name(name).kind == "tensor"]


def _arrow(kind, chunks=1):
    whole = pa.chunked_array([CITIES]).cast(TEXT[kind])
    return whole if chunks == 1 else pa.chunked_array([whole.slice(0, 3).chunk(0), whole.slice(3).chunk(0)])


def _sources():
    for kind in TEXT:
        yield f"pyarrow {kind}", pa.table({"city": _arrow(kind)})
        yield f"pyarrow {kind}, 2 chunks", pa.table({"city": _arrow(kind, chunks=2)})
        yield f"pyarrow {kind}, sliced", pa.table({"city": pa.concat_arrays(
            [pa.array(["cut"]).cast(TEXT[kind]), _arrow(kind).chunk(0)])}).slice(1)  # fmt: skip
    yield "pandas objects", pd.DataFrame({"city": np.array(CITIES, object)})
    yield "pandas str", pd.DataFrame({"city": pd.Series(CITIES, dtype="str")})
    yield "pandas Arrow", pa.table({"city": CITIES}).to_pandas(types_mapper=pd.ArrowDtype)
    yield "polars", pl.DataFrame({"city": CITIES})
    yield "dict", {"city": pa.array(CITIES)}


SOURCES = dict(_sources())


def _values(tensor):
    return zc.convert(tensor, "numpy").tolist()


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_codes_are_those_of_the_loader(source):
    result = zc.convert(source, "numpy", encode=True, nulls=-1)["city"]
    table = pa.table(source) if isinstance(source, dict) else source
    (batch,) = zc.loader(table, "numpy", batch_size=64, encode=True, nulls=-1)
    assert type(result) is type(batch["city"])
    assert type(result.categories) is type(batch["city"].categories)
    assert result.values.dtype == batch["city"].values.dtype == np.int32
    assert result.values.tolist() == batch["city"].values.tolist() == CODES
    assert result.categories.to_pylist() == batch["city"].categories.to_pylist() == WORDS
    assert result.to_pylist() == CITIES


@pytest.mark.parametrize("to", TENSORS)
def test_every_framework_has_codes_and_explain_says_that_they_are_copies(to):
    table = pa.table({"city": CITIES[:2]})
    plan = zc.explain(table, to, encode=True)
    result = zc.convert(table, to, encode=True)
    assert (plan.possible, plan.zero_copy) == (True, False)
    assert plan.copied_bytes == 2 * 4 + 8 + 3 * 4  # codes, words and their offsets
    assert any(reason.code == "computed-codes" for leaf in plan.leaves.values() for reason in leaf.reasons)
    assert not zc.shares_memory(table, result["city"].values)
    assert _values(result["city"].values) == [1, 0]


@pytest.mark.parametrize("options", [{"encode": True}, {"encode": {"city": WORDS}}], ids=repr)
@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_without_a_copy_codes_are_refused_and_the_fix_works(source, options):
    with pytest.raises(zc.ZeroCopyError) as caught:
        zc.convert(source, "numpy", copy=False, nulls=-1, **options)
    assert caught.value.why == zc.explain(source, "numpy", copy=False, nulls=-1, **options).error.why
    for code in caught.value.calls:
        assert pasted(code, {"zc": zc, "x": source}) is not None


def test_bytes_of_text_are_aliases():
    table = pa.table({"city": CITIES[:2]})
    with pytest.raises(CopyRequiredError) as caught:
        zc.convert(table, "numpy", copy=False, encode=True)
    assert caught.value.calls[0] == 'zc.convert(x, "numpy", copy=False, encode="bytes")'
    result = zc.convert(table, "numpy", copy=False, encode="bytes")["city"]
    assert bytes(result.values) == b"OsloBern"
    assert zc.shares_memory(table, result.values)
    assert zc.explain(table, "numpy", encode="bytes").zero_copy


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
@pytest.mark.parametrize(
    "form", [list, np.array, pa.array, lambda words: pa.chunked_array([words[:2], words[2:]])]
)
def test_given_words_are_numbered_in_their_order(source, form):
    words = WORDS[::-1]
    result = zc.convert(source, "numpy", encode={"city": form(words)}, nulls=-1)["city"]
    assert result.categories.to_pylist() == words
    assert result.to_pylist() == CITIES


def test_given_words_are_copied():
    words = pa.array(["Bern", "Oslo"])
    table = pa.table({"city": ["Oslo"], "n": [700]})
    numbers = np.array([5, 700])
    result = zc.convert(table, "numpy", encode={"city": words, "n": numbers})
    assert not zc.shares_memory(words, result["city"].categories.values)
    assert not zc.shares_memory(numbers, result["n"].categories)
    assert (result["n"].values.tolist(), result["n"].categories.tolist()) == ([1], [5, 700])


@pytest.mark.parametrize(
    ("encode", "error"),
    [
        ({"city": ["Bern"]}, LossyConversionError),
        ({"city": ["Bern", "Bern"]}, UnsupportedConversionError),
        ({"city": ["Bern", None]}, UnsupportedConversionError),
        ({"city": "Bern"}, UnsupportedConversionError),
        ({"city": 3}, UnsupportedConversionError),
        ({"City": True}, UnsupportedConversionError),
        ({"day": ["Bern"]}, UnsupportedConversionError),
        ({"n": ["Bern"]}, UnsupportedConversionError),
    ],
    ids=repr,
)
def test_refused_words_and_their_fixes(encode, error):
    x = pa.table({"city": ["Oslo"], "day": pa.array([1], pa.date32()), "n": [1]})
    with pytest.raises(error) as caught:
        zc.convert(x, "torch", encode=encode)
    assert zc.explain(x, "torch", encode=encode).error.why == caught.value.why
    assert caught.value.calls
    for code in caught.value.calls:
        assert pasted(code, {"zc": zc, "x": x})


@pytest.mark.parametrize("encode", ["codes", {"city": "codes"}, {"n": "codes"}], ids=str)
def test_codes_is_true_in_words(encode):
    table = pa.table({"city": CITIES, "n": range(len(CITIES))})
    for result in (
        zc.convert(table, "numpy", encode=encode, nulls=-1),
        *zc.loader(table, "numpy", batch_size=64, encode=encode, nulls=-1),
    ):
        assert repr(result) == repr(zc.convert(table, "numpy", encode=True, nulls=-1))


def test_an_invalid_value_of_the_option():
    with pytest.raises(ValueError, match="encode must be 'codes' or True, 'bytes', False or a dict of words"):
        zc.convert(pa.table({"city": ["Oslo"]}), "torch", encode="words")


def test_categories_keep_their_words_and_false_gives_their_values():
    column = pa.array(["b", "a", None]).dictionary_encode()
    x = pa.table({"c": column})
    assert zc.convert(x, "numpy", encode=True, nulls=-1)["c"].categories.to_pylist() == ["b", "a"]
    assert zc.convert(x, "numpy", encode={"c": ["a", "b"]}, nulls=-1)["c"].values.tolist() == [1, 0, -1]
    masked = zc.convert(x, "numpy", encode={"c": False}, nulls="mask")["c"]
    assert masked.mask.tolist() == [False, False, True]
    assert masked.values.to_pylist()[:2] == ["b", "a"]
    assert not zc.explain(x, "numpy", encode={"c": False}, nulls="mask").zero_copy


def test_one_column_and_its_mask():
    x = pl.Series("city", CITIES)
    masked = zc.convert(x, "torch", encode=True, nulls="mask")
    assert masked.mask.tolist() == [city is None for city in CITIES]
    assert masked.values.categories.to_pylist() == WORDS
    assert zc.convert(np.array(["b", "a"]), "torch", encode=True).values.tolist() == [1, 0]
    with pytest.raises(LossyConversionError) as caught:
        zc.convert(x, "torch", encode=True)
    assert "nulls=-1" in str(caught.value)  # the code 0 is that of a word


@pytest.mark.parametrize("to", ["numpy", "torch"])
def test_rows_that_are_absent_or_null(to):
    for x in (pa.table({"c": pa.array([], pa.string())}), pa.table({"c": pa.array([None], pa.string())})):
        result = zc.convert(x, to, encode=True, nulls=-1)["c"]
        assert (_values(result.values), result.categories.to_pylist()) == ([-1] * len(x), [])


def test_decorated_functions_plans_and_streams_have_codes():
    x = pa.table({"city": CITIES[:2]})

    @zc.accepts("torch", encode={"city": WORDS})
    def codes(batch):
        return batch["city"].values.tolist()

    assert codes(x) == [2, 1]
    converter = zc.converter(x.schema, "torch", encode={"city": WORDS})
    assert [converter(x)["city"].values.tolist() for _ in range(2)] == [[2, 1], [2, 1]]
    assert zc.convert(x.to_reader(), "torch", encode=True)["city"].values.tolist() == [1, 0]


def test_invalid_text_is_refused_before_arrow_reads_it():
    offsets, text = np.array([0, 900, 2], np.int32), np.array([97, 98], np.uint8)
    x = pa.Array.from_buffers(pa.string(), 2, [None, pa.py_buffer(offsets), pa.py_buffer(text)])
    with pytest.raises(UnsupportedConversionError, match="its content is invalid"):
        zc.convert(x, "numpy", encode=True)


def test_a_matrix_refuses_text():
    x = pa.table({"city": ["Oslo"], "n": [1]})
    with pytest.raises(UnsupportedConversionError) as caught:
        zc.convert(x, "torch", layout="matrix", encode=True)
    for code in caught.value.calls:
        assert pasted(code, {"zc": zc, "x": x}) is not None


@pytest.mark.parametrize("words", [[3.9, 4.0], [3.5, 4.0, 3]])
def test_words_are_not_truncated(words: list[float]) -> None:
    with pytest.raises(zc.UnsupportedConversionError, match="words of type int64"):
        zc.convert(pa.table({"a": [3, 4, 3]}), "numpy", encode={"a": words})


@pytest.mark.parametrize("option", [0, 1, 0.0, np.False_, np.array(True)])
def test_numbers_are_not_taken_for_booleans(option: object) -> None:
    for call in (zc.convert, zc.explain):
        with pytest.raises(ValueError, match="encode"):
            call(pa.array(["a", "b"]), "numpy", encode=option)


@pytest.mark.parametrize("codes", [[0, 5], [-1, 0], [2**31 - 1, None]], ids=str)
def test_codes_outside_the_dictionary_are_refused_as_invalid_content(codes):
    column = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(["a", "b"]), safe=False)
    for call in (
        lambda: zc.convert(pa.table({"c": column}), "numpy", encode={"c": ["a", "b"]}),
        lambda: list(zc.loader(pa.table({"c": column}), "numpy", batch_size=2, encode={"c": ["a", "b"]})),
        lambda: list(zc.loader(pa.table({"c": column}), "numpy", batch_size=2, encode=True)),
    ):
        with pytest.raises(zc.ZeroCopyError, match="invalid") as caught:
            call()
        assert "please report" not in str(caught.value)


def test_types_without_a_lookup_have_no_words():
    table = pa.table({"h": pa.array([1.0, 2.0], pa.float16())})
    with pytest.raises(UnsupportedConversionError, match="type halffloat, whose values Arrow cannot look up"):
        zc.convert(table, "numpy", encode={"h": np.array([1.0, 2.0], "f2")})


def test_iterators_are_refused_because_explain_would_consume_them():
    frame = pd.DataFrame({"s": ["a", "b"], "x": [1.0, 2.0]})
    for options in ({"encode": {"s": iter(["a", "b"])}}, {"columns": iter(["x"])}, {"index": iter([0, 1])}):
        with pytest.raises(ValueError, match=f"{next(iter(options))}.* must be .*list|labels"):
            zc.convert(frame, "torch", **options)


def test_encoded_columns_are_converted_part_by_part():
    x = zc.convert(pd.DataFrame({"s": ["a", "b"]}), "numpy", encode=True)["s"]
    assert zc.convert(x, "torch").to_pylist() == ["a", "b"]
    with pytest.raises(UnsupportedConversionError, match=r"x\.values is one of them"):
        zc.view(x)
