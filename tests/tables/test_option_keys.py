"""Keys of the dicts of ``encode=``, ``nulls=`` and ``dtype=``: labels of columns, for columns and tables."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from helpers.pasting import pasted

import zerocopy as zc

WORDS = ["Oslo", "Bern"]
TEXTS = {
    "pandas": pd.Series(WORDS, name="city"),
    "pandas.Index": pd.Index(WORDS, name="city"),
    "pandas without a name": pd.Series(WORDS),
    "pandas with a number as name": pd.Series(WORDS, name=0),
    "polars": pl.Series("city", WORDS),
    "polars without a name": pl.Series(WORDS),
    "pyarrow": pa.array(WORDS),
    "pyarrow chunks": pa.chunked_array([WORDS]),
    "numpy": np.array(WORDS),
    "DataFrame": pd.DataFrame({"city": WORDS}),
    "dict": {"city": np.array(WORDS)},
}
NUMBERS = {
    "pandas": pd.Series([1.0], name="km"),
    "polars": pl.Series("km", [1.0]),
    "pyarrow": pa.array([1, 2]),
    "frame": pl.DataFrame({"km": [1]}),
}


def _explain(x, to, **options):
    plan = zc.explain(x, to, **options)
    raise plan.error if not plan.possible else AssertionError(plan)


@pytest.mark.parametrize("call", [zc.convert, _explain])
@pytest.mark.parametrize(
    "options", [{"encode": {"town": WORDS}}, {"encode": {"town": False}}, {"nulls": {"town": 0}}]
)
@pytest.mark.parametrize("x", TEXTS.values(), ids=TEXTS)
def test_a_key_that_no_column_has_is_refused(x, options, call):
    with pytest.raises(
        zc.UnsupportedConversionError, match=f"{next(iter(options))}= has the key 'town'"
    ) as caught:
        call(x, "numpy", **({"encode": True} | options))
    for code in caught.value.calls:
        assert pasted(code, {"zc": zc, "x": x}) is not None


@pytest.mark.parametrize("call", [zc.convert, _explain])
@pytest.mark.parametrize("options", [{"nulls": {"m": 0}}, {"dtype": {"m": "float32"}}])
@pytest.mark.parametrize("x", NUMBERS.values(), ids=NUMBERS)
def test_a_key_is_refused_for_numbers_without_nulls(x, options, call):
    with pytest.raises((zc.UnsupportedConversionError, ValueError), match="the key 'm'"):
        call(x, "numpy", **options)


@pytest.mark.parametrize("x", TEXTS.values(), ids=TEXTS)
def test_the_fix_names_the_column_and_keeps_the_words(x):
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.convert(x, "numpy", encode={"citi": WORDS})
    result = pasted(caught.value.calls[0], {"zc": zc, "x": x})
    codes = result if isinstance(result, zc.Encoded) else result["city"]
    assert codes.values.tolist() == [0, 1]


def test_keys_of_other_columns_stay_in_the_fix():
    x = pa.table({"km": [1, None], "n": [1, 2]})
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.convert(x, "numpy", nulls={"km": 0, "m": 5})
    result = pasted(caught.value.calls[0], {"zc": zc, "x": x})
    assert result["km"].tolist() == [1, 0]
