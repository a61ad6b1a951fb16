"""Structured arrays, dates, bytes and text of NumPy as tables and columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from helpers.layout_tables import POINTS, STRIDED, TABLES
from helpers.versions import text_of_numpy_2

import zerocopy as zc
from zerocopy.layout.aos_to_soa import aos_to_soa
from zerocopy.layout.soa_to_aos import soa_to_aos


def test_records_become_tensors() -> None:
    rows = np.zeros(
        9, [("y", "i8"), ("m", "f8", (2, 3)), ("c", "c8"), ("x", ">f4"), ("k", "?", (4,)), ("h", "M8[h]")]
    )
    rows["x"], rows["y"], rows["m"] = np.arange(9), np.arange(9) - 4, np.arange(54).reshape(9, 2, 3)
    result = zc.convert(rows, "torch", columns=["x", "y", "m", "c", "k"])
    for n, tensor in result.items():
        assert tuple(tensor.shape) == rows[n].shape
        assert np.array_equal(tensor.numpy(), rows[n])
        assert tensor.data_ptr() % 64 == 0
    with pytest.raises(zc.UnsupportedConversionError, match=r"column 'h' is timestamp"):
        zc.convert(rows, "torch")
    with pytest.raises(zc.CopyRequiredError, match="interleaved") as caught:
        zc.convert(rows[["x", "y"]], "torch", copy=False)
    assert "aos_to_soa(x)" in caught.value.remedy
    plan = zc.explain(rows[["x", "y"]], "torch")
    assert not plan.zero_copy
    assert plan.copied_bytes == 9 * 12
    alias = zc.convert(rows["m"], "torch", copy=False)
    assert alias.data_ptr() == rows["m"].ctypes.data
    matrix = zc.convert(rows[["x", "y"]].astype([("x", "f4"), ("y", "f4")]), "torch", layout="matrix")
    assert np.array_equal(matrix.numpy()[:, 1], rows["y"])


def test_records_to_tensors_import_no_pyarrow(run_python) -> None:
    completed = run_python(
        """
        import sys, numpy as np, torch, zerocopy as zc
        rows = np.zeros(3, [("x", "f4"), ("m", "f4", (2,)), ("n", [("y", "i4")])])
        zc.convert(rows, "torch", columns=["x", "m"])
        zc.convert(rows, "torch", encode=True)
        print("pyarrow" in sys.modules)
        """
    )
    assert completed.stdout.strip() == "False", completed.stderr


def test_records_of_other_shapes_and_masks_are_refused() -> None:
    rows = np.zeros((2, 3), [("x", "f4")])
    for x in (rows, np.zeros((), [("x", "f4")]), rows[0, 0]):
        with pytest.raises(zc.UnsupportedConversionError, match="no counterpart"):
            zc.convert(x, "torch")
        assert not zc.explain({"t": x}, "torch").possible
    masked = np.ma.masked_array(rows[0], mask=[(1,), (0,), (0,)])
    with pytest.raises(zc.LossyConversionError, match="1 of 3 elements are masked"):
        zc.convert(masked, "pyarrow")
    assert zc.convert(np.ma.masked_array(rows[0]), "pyarrow").num_rows == 3


def test_fields_that_arrow_lacks_are_named() -> None:
    rows = np.zeros(
        2,
        [("a", "i4"), ("c", "c8"), ("g", "g"), ("n", [("c", "c16")]), ("h", "m8[Y]"), ("o", [("p", object)])],
    )
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.convert(rows, "pyarrow")
    for message in (
        "column 'c'",
        "complex64",
        "column 'g'",
        "longdouble",
        "field 'c'",
        "column 'h'",
        "column 'o'",
    ):
        assert message in caught.value.why.replace("float128", "longdouble")
    assert "column 'a'" not in caught.value.why
    assert zc.convert(rows, "pyarrow", columns=["a"]).column_names == ["a"]


@pytest.mark.parametrize("target", TABLES)
def test_records_become_tables(target: str) -> None:
    rows = np.zeros(
        4,
        [
            ("x", ">i4"),
            ("s", "S3"),
            ("u", ">U4"),
            ("t", "M8[us]"),
            ("h", "M8[h]"),
            ("o", object),
            ("n", [("y", "f4")]),
        ],
    )
    rows["x"], rows["s"], rows["u"], rows["o"] = range(4), b"ab", "häß", ["a", None, "b", "c"]
    rows["t"], rows["h"], rows["n"]["y"] = np.array([1, "NaT", 3, 4], "M8[us]"), "2020-01-01T05", 0.5
    plan = zc.explain(rows, target)
    assert not plan.zero_copy
    assert all(leaf.copied_bytes for leaf in plan.leaves.values())
    table = zc.convert(zc.convert(rows, target), "pyarrow")
    assert table["x"].to_pylist() == [0, 1, 2, 3]
    assert table["s"].to_pylist() == [b"ab"] * 4
    assert table["u"].to_pylist() == ["häß"] * 4
    assert table["o"].to_pylist() == ["a", None, "b", "c"]
    assert table["t"].null_count == 1
    assert table["h"].to_pylist() == np.array(rows["h"], "M8[us]").tolist()
    assert table["n"].to_pylist() == [{"y": 0.5}] * 4


def test_unused_fields_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    from zerocopy._frameworks.numpy import columns as records

    calls = []

    def counted(records: np.ndarray, fields: list[str], copy: bool) -> dict[str, object]:
        calls.append(tuple(fields))
        return aos_to_soa(records, fields=fields, copy=copy)

    monkeypatch.setattr(records, "aos_to_soa", counted)
    rows = np.zeros(3, [("x", "f4"), ("y", "f4"), ("z", "f4")])
    zc.convert(rows, "pyarrow", columns=["z", "x"])
    zc.convert(rows, "numpy", layout="columns")
    zc.explain(rows, "torch")
    assert calls == [("z", "x"), ("x", "y", "z")]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("kind", ["M", "m"])
def test_dates_and_durations_are_aliased(unit: str, kind: str) -> None:
    x = np.array([5, -3, 0, 9], f"{kind}8[{unit}]")
    x[2] = "NaT"
    expected = pa.timestamp(unit) if kind == "M" else pa.duration(unit)
    result = zc.convert(x, "pyarrow", copy=False)
    assert result.type == expected
    assert result.buffers()[1].address == x.ctypes.data
    assert result.to_numpy(zero_copy_only=False).tobytes() == x.tobytes()
    assert result.null_count == 1
    assert zc.explain(x, "pyarrow").zero_copy
    for target in TABLES:
        table = zc.convert({"t": x, "n": np.arange(4)}, target)
        back = zc.convert(table, "pyarrow")["t"]
        assert back.null_count == 1
        assert back.drop_null().cast("int64").to_pylist() == [5, -3, 9] or unit == "s"
    encoded, mask = zc.convert(x, "torch", encode=True, nulls="mask")
    assert encoded.values.data_ptr() == x.ctypes.data
    assert mask.tolist() == [False, False, True, False]


@pytest.mark.parametrize("dtype", [">M8[us]", "M8[D]", "M8[h]", "M8[M]", "M8[10us]", "m8[D]", ">m8[s]"])
def test_other_units_are_copied(dtype: str) -> None:
    x = (
        np.array([1, 20, 300], "i8")
        .astype(np.dtype(dtype).newbyteorder("=").str.replace(">", "<"))
        .astype(dtype)
    )
    with pytest.raises(zc.CopyRequiredError):
        zc.convert(x, "pyarrow", copy=False)
    result = zc.convert(x, "pyarrow")
    assert np.array_equal(result.to_numpy(zero_copy_only=False).astype(x.dtype.newbyteorder("=")), x)
    assert result.type == pa.date32() if dtype == "M8[D]" else result.type != pa.date32()


def test_dates_out_of_range_are_refused() -> None:
    for x in (np.array([2**40], "M8[D]"), np.array([2**60], "M8[h]")):
        with pytest.raises(zc.UnsupportedConversionError, match="fit in"):
            zc.convert(x, "pyarrow")
    for x in (np.array([1], "M8[ps]"), np.array([1], "m8[M]")):
        with pytest.raises(zc.UnsupportedConversionError, match="lacks that unit"):
            zc.convert(x, "pyarrow")


def test_bytes_are_aliased_as_void_and_text_is_copied() -> None:
    x = np.array([b"ab", b"c"], "S4")
    with pytest.raises(zc.CopyRequiredError, match=r"x\.view\('V4'\)"):
        zc.convert(x, "pyarrow", copy=False)
    result = zc.convert(x.view("V4"), "pyarrow", copy=False)
    assert result.to_pylist() == [b"ab\0\0", b"c\0\0\0"]
    assert result.buffers()[1].address == x.ctypes.data
    strided = np.array([b"ab", b"c", b"d"], "S4")[::2]
    assert zc.convert(strided, "pyarrow").to_pylist() == [b"ab", b"d"]
    raw = zc.convert(strided, "torch", encode=True, copy=False).values
    assert raw.data_ptr() == strided.ctypes.data
    assert bytes(raw[1].tolist()) == b"d\0\0\0"
    texts = [np.array(["häß", ""]), np.array(["häß", ""], ">U3"), np.array(["häß", ""], object)]
    for text in [*texts, *text_of_numpy_2(["häß", ""])]:
        assert zc.convert(text, "pyarrow").to_pylist() == ["häß", ""]
        assert zc.convert({"x": text}, "pyarrow")["x"].to_pylist() == ["häß", ""]


@pytest.mark.parametrize("target", STRIDED)
def test_one_field_is_aliased(target: str) -> None:
    # Torch's strides are whole items: a field of a record of 17 bytes has no such stride.
    odd = np.zeros(50, [("a", "i1"), *POINTS])
    assert zc.explain(odd, target, columns=["y"]).zero_copy == (target == "numpy")
    assert zc.explain(odd, target, columns=["a"]).zero_copy
    rows = np.zeros(50, POINTS)
    seen = zc.convert(rows, target, columns=["y"])["y"]
    rows["y"][7] = 5
    assert seen[7] == 5
    assert zc.shares_memory(rows, seen)
    assert not zc.shares_memory(rows, zc.convert(rows, target, columns=["y"], copy=True))


@pytest.mark.parametrize("target", STRIDED)
def test_copy_false_aliases_all_fields(target: str) -> None:
    rows = np.zeros(50, POINTS)
    result = zc.convert(rows, target, copy=False, layout="columns")
    assert list(result) == ["x", "y", "z", "w"]
    assert all(zc.shares_memory(rows, column) for column in result.values())
    assert zc.explain(rows, target, copy=False, layout="columns").zero_copy
    # By default they are columns, from one pass over the records.
    assert not zc.explain(rows, target, layout="columns").zero_copy


def test_copy_false_is_refused_for_fields_that_need_a_copy() -> None:
    with pytest.raises(zc.CopyRequiredError, match="interleaved"):
        zc.convert(np.zeros(5, POINTS), "pyarrow", copy=False)
    with pytest.raises(zc.CopyRequiredError, match="interleaved"):
        zc.convert(np.zeros(5, [("a", ">i4"), ("b", "i4")]), "torch", copy=False)
    with pytest.raises(zc.CopyRequiredError):
        zc.convert(np.zeros(5, POINTS), "jax", copy=False)


def test_wide_records_are_not_copied() -> None:
    wide = np.zeros(2, [("image", "u1", (20_000_000,)), ("id", ">i4")])
    wide["id"] = [1, 2]
    wide["image"][1, -1] = 7
    columns = aos_to_soa(wide)
    assert columns["image"][1, -1] == 7
    assert columns["id"].tolist() == [1, 2]
    assert np.array_equal(soa_to_aos(columns, wide.dtype)["id"], [1, 2])


@pytest.mark.parametrize(("dtype", "code"), [("?", "packed-bits"), ("S3", "padded-bytes")])
def test_a_record_in_a_record_has_the_reasons_of_all_its_fields(dtype: str, code: str) -> None:
    records = np.zeros(3, [("a", [("x", dtype), ("y", "i4")]), ("b", "i4")])
    plan = zc.explain(records, "pyarrow").leaves["['a']"]
    assert [reason.code for reason in plan.reasons] == ["interleaved", code]
