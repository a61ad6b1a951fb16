"""Structured arrays of any layout against NumPy: columns, tables of every framework, and records again.

``python -m tests.helpers.record_arrays --count 1000 --seed 0`` checks more; a finding names its seed. With
``ZEROCOPY_HOSTILE_SEED=random``, as each night, half of the seeds are new in each run.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.record_arrays import check, same
from helpers.seeds import seeds_of_part

import zerocopy as zc

COUNT, PARTS = 120, 8

#: Seeds that found bugs: aliased columns as records of another layout, U0 from text, units in other units,
#: times next to complex numbers in a record of a record.
FOUND = [777077, 777930, 1, 6383, 33, 37, 66, 222, 237, 249, 251, 275, 307, 366]


@pytest.mark.parametrize("part", range(PARTS))
def test_generated_records_are_their_columns_and_back(part: int) -> None:
    for name in ("torch", "pyarrow", "polars", "pandas"):
        pytest.importorskip(name)
    for seed in seeds_of_part(part, PARTS, COUNT):
        print(f"seed {seed}")
        check(seed)


@pytest.mark.parametrize("seed", FOUND)
def test_seeds_that_found_bugs(seed: int) -> None:
    for name in ("torch", "pyarrow", "polars", "pandas"):
        pytest.importorskip(name)
    check(seed)


#: Types of records for columns of these types, which are neighbours in one array or alone.
RECORDS = {
    "offset": ({"a": "f8"}, {"names": ["a"], "formats": ["f8"], "offsets": [4], "itemsize": 12}),
    "padding": ({"a": "f8"}, {"names": ["a"], "formats": ["f8"], "offsets": [0], "itemsize": 16}),
    "byte order": ({"a": "i4"}, [("a", ">i4")]),
    "date of another byte order": ({"a": "M8[ms]"}, [("a", ">M8[ms]")]),
    "type of the same size": ({"a": "i4"}, [("a", "f8")]),
    "narrower": ({"a": "i4"}, [("a", "i8")]),
    "reversed": ({"a": "f8", "b": "f8"}, [("b", "f8"), ("a", "f8")]),
    "reversed offsets": (
        {"a": "f8", "b": "f8"},
        {"names": ["a", "b"], "formats": ["f8", "f8"], "offsets": [8, 0]},
    ),
    "unit": ({"a": "M8[s]"}, [("a", "M8[ms]")]),
    "the same": ({"a": "f8", "b": "f8"}, [("a", "f8"), ("b", "f8")]),
}


def _columns(types: dict[str, str], count: int) -> dict[str, Any]:
    """Return columns that are neighbours in one array, so that they are records of the packed type."""
    memory = np.zeros(count, list(types.items()))
    for place, name in enumerate(types):
        memory[name] = (np.arange(count) + 10 * place + 1).astype(types[name])
    return {name: memory[name] for name in types}


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize("count", [1, 2, 100])
@pytest.mark.parametrize("source", ["numpy", "torch", "pyarrow", "pandas"])
def test_columns_become_records_of_the_layout_that_is_asked_for(source: str, count: int, name: str) -> None:
    """Only records of the packed type have the bytes of the columns, and may alias them."""
    types, wanted = RECORDS[name]
    dtype = np.dtype(wanted)
    columns: Any = _columns(types, count)
    expected = {label: column.copy() for label, column in columns.items()}
    if source != "numpy":
        pytest.importorskip(source)
        if source == "torch" and "M8" in str(types):
            pytest.skip("tensors have no dates")
        columns = zc.convert(columns, source)
    plan = zc.explain(columns, "numpy", layout="records", dtype=dtype)
    records = zc.convert(columns, "numpy", layout="records", dtype=dtype)
    assert records.dtype == dtype
    for label, column in expected.items():
        assert same(records[label].astype(column.dtype), column)
    if source == "numpy":
        assert plan.zero_copy == any(np.shares_memory(records, column) for column in columns.values())
        assert plan.zero_copy == (name == "the same")
    assert zc.convert(columns, "numpy", layout="records", dtype=dtype).tolist() == records.tolist()


@pytest.mark.parametrize("target", ["numpy", "pyarrow", "polars", "pandas"])
@pytest.mark.parametrize(
    ("kind", "wanted"),
    [("m8[ms]", "m8[s]"), ("M8[ms]", "M8[D]"), ("M8[ns]", ">M8[s]"), ("i4", ("i4", (2,)))],
)
def test_explain_refuses_types_that_cannot_hold_the_columns(target: str, kind: str, wanted: Any) -> None:
    pytest.importorskip(target)
    table = zc.convert({"a": np.arange(3).astype(kind), "b": np.arange(3)}, target)
    dtype = np.dtype([("b", "i8"), ("a", *(wanted if isinstance(wanted, tuple) else (wanted,)))])
    plan = zc.explain(table, "numpy", layout="records", dtype=dtype)
    assert not plan.possible
    with pytest.raises(zc.ZeroCopyError) as error:
        zc.convert(table, "numpy", layout="records", dtype=dtype)
    assert error.value.code in ("lossy-cast", "shape-mismatch")


@pytest.mark.parametrize("kind", ["U0", "S0"])
def test_text_of_width_0_has_no_bytes(kind: str) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table({"a": ["", ""], "b": [1, 2]})
    records = zc.convert(table, "numpy", layout="records", dtype=np.dtype([("a", kind), ("b", "i8")]))
    assert records.tolist() == [
        (np.zeros(1, [("a", kind)])["a"][0], 1),
        (np.zeros(1, [("a", kind)])["a"][0], 2),
    ]
    with pytest.raises(zc.LossyConversionError):
        zc.convert(
            pyarrow.table({"a": ["x"]}),
            "numpy",
            layout="records",
            dtype=np.dtype([("a", kind), ("b", "i8")])[["a"]],
        )
