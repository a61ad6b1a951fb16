"""``dtype=`` for lists and objects changes the type, and neither the values nor the masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import zerocopy as zc

pa = pytest.importorskip("pyarrow")

INT32 = pa.int32()
#: Rows of lists: with and without nulls, null items, empty lists and items of a null row.
LISTS: dict[str, Any] = {
    "same length": pa.array([[1, 2], [3, 4]], pa.list_(INT32)),
    "null row": pa.array([[1, 2], None, [3, 4]], pa.list_(INT32)),
    "null item": pa.array([[1, 2], [None, 4]], pa.list_(INT32)),
    "null row and item": pa.array([[1, 2], None, [None, 4]], pa.large_list(INT32)),
    "different lengths": pa.array([[1, 2], [], [3, 4, 5]], pa.list_(INT32)),
    "different lengths, nulls": pa.array([[1, 2], None, [], [None, 4, 5]], pa.list_(INT32)),
    "fixed size": pa.array([[1, 2], [3, 4]], pa.list_(INT32, 2)),
    "fixed size, nulls": pa.array([[1, 2], [None, 4], None], pa.list_(INT32, 2)),
    "views": pa.array([[1, 2], None, [3, None]], pa.list_view(INT32)),
    "several chunks": pa.chunked_array([[[1, None]], [], [None, [3, 4]]], pa.list_(INT32)),
    "slice": pa.array([[9, 9, 9], [1, 2], None, [3, None], [7]], pa.list_(INT32))[1:4],
    "no rows": pa.array([], pa.list_(INT32)),
    "items below a null row": pa.FixedSizeListArray.from_arrays(
        pa.array([1, 2, 2**31 - 1, 2**31 - 1], INT32), 2, mask=pa.array([False, True])
    ),
}


def _result(call: Any) -> Any:
    try:
        return call()
    except zc.ZeroCopyError as error:
        return error


@pytest.mark.parametrize("nulls", ["mask", 0, 7, None])
@pytest.mark.parametrize("lists", ["dense", "pad"])
@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.parametrize("target", ["numpy", "torch"])
def test_casts_change_the_type_of_lists_alone(target: str, kind: str, lists: str, nulls: Any) -> None:
    pytest.importorskip(target)
    options = {"lists": lists, "nulls": nulls, **({"pad_value": -1} if lists == "pad" else {})}
    x = pa.table({"a": LISTS[kind]})
    plain = _result(lambda: zc.convert(x, target, **options)["a"])
    cast = _result(lambda: zc.convert(x, target, dtype="int16", **options)["a"])
    if isinstance(plain, Exception):
        assert cast.code == plain.code
        return
    assert not isinstance(cast, Exception), cast
    assert zc.explain(x, target, dtype="int16", **options).zero_copy is False
    assert str((cast.values if nulls == "mask" else cast).dtype).endswith("int16")
    if nulls != "mask":
        assert cast.tolist() == plain.tolist()
        return
    assert cast.mask.tolist() == plain.mask.tolist()
    hidden = np.asarray(plain.mask)
    old, new = np.asarray(plain.values), np.asarray(cast.values)
    hidden = hidden.reshape(hidden.shape + (1,) * (old.ndim - hidden.ndim)) & np.ones(old.shape, bool)
    assert new[~hidden].tolist() == old[~hidden].tolist()


def test_padding_keeps_its_value_in_a_cast_with_masks() -> None:
    x = pa.table({"a": LISTS["different lengths"]})
    values, mask = zc.convert(x, "numpy", lists="pad", pad_value=-1, nulls="mask", dtype="float64")["a"]
    assert values.tolist() == [[1, 2, -1], [-1, -1, -1], [3, 4, 5]]
    assert mask.tolist() == [[False, False, True], [True, True, True], [False, False, False]]


def test_nan_fills_null_items_of_integers_that_are_cast_to_floats() -> None:
    x = pa.table({"a": LISTS["null row and item"]})
    values = zc.convert(x, "numpy", nulls="nan", dtype="float32")["a"]
    np.testing.assert_array_equal(values, np.array([[1, 2], [np.nan, np.nan], [np.nan, 4]], "f4"))


OBJECTS = {
    "booleans": [True, False],
    "booleans with None": [True, None],
    "integers": [1, 2],
    "lists": [[1, 2], [3, 4]],
    "arrays": [np.array([1, 2]), np.array([3, 4])],
}


@pytest.mark.parametrize("kind", OBJECTS)
def test_objects_with_encode_are_cast_as_arrows_columns(kind: str) -> None:
    pd = pytest.importorskip("pandas")
    options: dict[str, Any] = {"encode": True, "nulls": 0, "dtype": "float64", "lists": "pad"}
    objects = pd.DataFrame({"a": pd.Series(OBJECTS[kind], dtype=object)})
    made = zc.convert(objects, "numpy", **options)["a"]
    expected = zc.convert(zc.convert(objects, "pyarrow"), "numpy", **options)["a"]
    assert made.dtype == expected.dtype == np.float64
    assert made.tolist() == expected.tolist()
    (batch,) = zc.loader(objects, "numpy", **options)
    assert (batch["a"].dtype, batch["a"].tolist()) == (np.float64, made.tolist())


@pytest.mark.parametrize("codes", ["uint8", "uint16", "uint32", "int8", "int32"])
@pytest.mark.parametrize("target", ["numpy", "torch"])
def test_nulls_of_codes_become_minus_one(target: str, codes: str) -> None:
    pytest.importorskip(target)
    kind = pa.dictionary(getattr(pa, codes)(), pa.string())
    for values in (["a", None, "b"], ["a", "b", "a"]):
        x = pa.table({"a": pa.array(values).dictionary_encode().cast(kind)})
        result = zc.convert(x, target, encode=True, nulls=-1)["a"]
        assert [-1 if v is None else ["a", "b"].index(v) for v in values] == result.values.tolist()
        assert str(result.values.dtype).rpartition(".")[2].startswith("int")
        aliases = zc.explain(x, target, encode=True, nulls=-1).zero_copy
        assert aliases is (codes.startswith("int") and None not in values)


def test_the_fix_for_nulls_of_codes_works_when_pasted() -> None:
    pl = pytest.importorskip("polars")
    x = pl.DataFrame({"a": pl.Series(["a", None], dtype=pl.Categorical)})
    with pytest.raises(zc.ZeroCopyError) as error:
        zc.convert(x, "numpy", encode=True)
    (call,) = [call for call in error.value.calls if "nulls=-1" in call]
    assert eval(call, {"zc": zc, "x": x})["a"].values.tolist()[1] == -1
