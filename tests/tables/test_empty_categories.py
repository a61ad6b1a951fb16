"""Categories without values: each code is null, in every source of dictionaries and on every route."""

from __future__ import annotations

from typing import Any

import pytest

import zerocopy as zc

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
pl = pytest.importorskip("polars")


def _dictionary(index: Any, words: Any, codes: list[int | None]) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(codes, index), words)


COLUMNS = {
    "pandas": lambda: pd.Series(pd.Categorical([None, None])),
    "pandas of objects": lambda: pd.Series(
        pd.Categorical([None, None], categories=pd.Index([], dtype=object))
    ),
    "pandas of text": lambda: pd.Series(pd.Categorical([None, None], categories=pd.Index([], dtype="str"))),
    "pandas, ordered": lambda: pd.Series(pd.Categorical([None, None], categories=[], ordered=True)),
    "pandas index": lambda: pd.CategoricalIndex([None, None], categories=pd.Index([], dtype=object)),
    "pandas frame": lambda: pd.DataFrame(
        {"a": pd.Categorical([None] * 2, categories=pd.Index([], dtype=object))}
    ),
    "Arrow": lambda: _dictionary(pa.int8(), pa.nulls(0), [None, None]),
    "Arrow, unsigned": lambda: _dictionary(pa.uint16(), pa.nulls(0), [None, None]),
    "Arrow, sliced": lambda: _dictionary(pa.int32(), pa.nulls(0), [None, None, None]).slice(1),
    "Arrow, chunks": lambda: pa.chunked_array([_dictionary(pa.int8(), pa.nulls(0), [None])] * 2),
    "Arrow table": lambda: pa.table({"a": _dictionary(pa.int8(), pa.nulls(0), [None, None])}),
    "polars Categorical": lambda: pl.Series([None, None], dtype=pl.Categorical),
    "polars Enum": lambda: pl.DataFrame({"a": pl.Series([None, None], dtype=pl.Enum([]))}),
}


def _rows(made: Any) -> Any:
    made = made["a"] if isinstance(made, dict) else made
    return made.to_pylist()


@pytest.mark.parametrize("to", ["numpy", "torch"])
@pytest.mark.parametrize("name", COLUMNS)
def test_codes_are_all_null(name: str, to: str) -> None:
    pytest.importorskip(to)
    source = COLUMNS[name]()
    for nulls in ("mask", -1):
        plan = zc.explain(source, to, encode=True, nulls=nulls)
        assert plan.possible
        for _ in range(2):
            assert _rows(zc.convert(source, to, encode=True, nulls=nulls)) == [None, None]
        converter = zc.converter(source, to, encode=True, nulls=nulls)
        assert _rows(converter(COLUMNS[name]())) == [None, None]
    with pytest.raises(zc.LossyConversionError) as refusal:
        zc.convert(source, to, encode=True)
    fix = str(refusal.value).partition("To fix: ")[2].partition(" gives")[0]
    assert _rows(eval(fix, {"zc": zc, "x": source})) == [None, None]


@pytest.mark.parametrize("name", COLUMNS)
def test_rows_without_values_need_no_option(name: str) -> None:
    source = COLUMNS[name]()[:0] if name != "Arrow table" else COLUMNS[name]().slice(0, 0)
    assert _rows(zc.convert(source, "numpy", encode=True)) == []


@pytest.mark.parametrize("name", ["pandas frame", "Arrow table", "polars Enum"])
def test_the_loader_gives_null_codes(name: str) -> None:
    for batch in zc.loader(COLUMNS[name](), "numpy", batch_size=1, encode=True, nulls="mask"):
        assert _rows(batch) == [None]


def test_codes_of_null_words_are_null_too() -> None:
    source = _dictionary(pa.int8(), pa.nulls(2), [1, None, 0])
    assert _rows(zc.convert(source, "numpy", encode=True, nulls="mask")) == [None] * 3
    with pytest.raises(zc.LossyConversionError) as refusal:
        zc.convert(source, "numpy", encode=True)
    fix = str(refusal.value).partition("To fix: ")[2].partition(" gives")[0]
    assert _rows(eval(fix, {"zc": zc, "x": source})) == [None] * 3
