"""Binary tables of FITS files, as astropy reads them: against astropy's own columns."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.tiers import runs_all

import zerocopy as zc

fits = pytest.importorskip("astropy.io.fits")

# astropy warns of deliberately unusual files when their columns are read.
pytestmark = pytest.mark.filterwarnings("ignore::astropy.utils.exceptions.AstropyUserWarning")

FILES = sorted((Path(fits.__file__).parent / "tests" / "data").glob("*.fits"))


def tables(source: Any) -> Iterator[tuple[int, Any]]:
    """Yield each table of a file, including those of compressed images and random groups."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of deliberately unusual files
        with fits.open(source, disable_image_compression=True) as file:
            for number, hdu in enumerate(file):
                if getattr(hdu, "data", None) is not None and hdu.data.dtype.names is not None:
                    yield number, hdu


def all_tables() -> list[tuple[Path, int]]:
    listed = []
    for path in FILES:
        try:
            listed += [(path, number) for number, _ in tables(path)]
        except OSError:
            continue  # two files are deliberately invalid
    return listed


TABLES = all_tables()
ids = [f"{path.stem}-{number}" for path, number in TABLES]


def opened(path: Path, wanted: int) -> Any:
    return next(hdu.data for number, hdu in tables(path) if number == wanted)


def shown(data: Any, name: str) -> np.ndarray:
    """Return a column's values as astropy converts them, text as bytes."""
    column = np.asarray(data[name])
    if column.dtype.kind != "U":
        return column
    # astropy decodes the bytes of the file, which have this width.
    text: np.ndarray = np.char.encode(column, "ascii")
    return text.astype(f"S{max(1, data.dtype[name].base.itemsize)}")


def variable(data: Any) -> list[str]:
    """Return the columns of variable-length arrays: the rows store their positions in the file's heap."""
    return [name for name in data.dtype.names if np.asarray(data[name]).dtype == object]


def same(column: np.ndarray, expected: np.ndarray) -> bool:
    """Compare bit for bit in native byte order; text without trailing blanks, which astropy strips."""
    if expected.dtype.kind == "S":
        return bool((np.char.rstrip(column) == np.char.rstrip(expected)).all())
    native = expected.astype(expected.dtype.newbyteorder("="))
    return column.dtype == native.dtype and column.tobytes() == native.tobytes()


def agree(data: Any, columns: dict[str, Any]) -> None:
    for name, column in columns.items():
        expected = shown(data, name)
        assert column.shape == expected.shape, name
        assert column.dtype.isnative, name
        assert same(column, expected), name


def test_files_with_tables_exist() -> None:
    assert len(TABLES) > 20
    assert any(variable(opened(*table)) for table in TABLES)


@pytest.mark.parametrize(("path", "number"), TABLES, ids=ids)
def test_columns_equal_astropys(path: Path, number: int, implementation: str) -> None:
    if implementation == "numba" and not runs_all():
        return  # it compiles a loop for each column: test_kernels.py has record types for it
    data = opened(path, number)
    refused = variable(data)
    for name in refused:
        with pytest.raises(zc.UnsupportedConversionError, match=f"'{name}' holds Python objects"):
            zc.aos_to_soa(data, fields=[name])
    if refused:
        with pytest.raises(zc.UnsupportedConversionError, match="holds Python objects"):
            zc.aos_to_soa(data)
    names = [name for name in data.dtype.names if name not in refused]
    columns = zc.aos_to_soa(data, fields=names if refused else None)
    assert list(columns) == names
    agree(data, columns)
    for part in (data[::2], data[::-1], data[:0]):
        agree(part, zc.aos_to_soa(part, fields=names))
    again = zc.aos_to_soa(data, fields=names, out=columns)
    assert all(again[name] is columns[name] for name in names)
    agree(data, again)


@pytest.mark.parametrize(("path", "number"), TABLES, ids=ids)
def test_arrow_columns_equal_astropys(path: Path, number: int) -> None:
    data = opened(path, number)
    table = zc.convert(data, "pyarrow")
    assert table.column_names == list(data.dtype.names)
    assert table.num_rows == len(data)
    for name in table.column_names:
        if name in variable(data):
            expected = [np.asarray(row).tolist() for row in data[name]]
            assert table[name].to_pylist() == expected
            continue
        expected = shown(data, name)
        if expected.dtype.kind == "S":
            # Fixed-width binary, which the file pads.
            flat = [value.rstrip(b"\0 ") for value in leaves(table[name].to_pylist())]
            assert flat == np.char.rstrip(expected).reshape(-1).tolist(), name
        else:
            assert np.array_equal(
                np.array(table[name].to_pylist(), expected.dtype).reshape(expected.shape),
                expected,
                equal_nan=expected.dtype.kind == "f",
            ), name


def leaves(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list):
            yield from leaves(value)
        else:
            yield value


# -- every column format -------------------------------------------------------------

ROWS = 300


def every_format() -> bytes:
    """Return a file with each format: scaled, unsigned, logical, with dimensions."""
    rng = np.random.default_rng(9)
    n, column = ROWS, fits.Column
    words = np.array(["a", "bc d", "", "efghi"])[rng.integers(0, 4, n)]
    columns = [
        column("u2", "I", bzero=2**15, array=rng.integers(0, 2**16, n).astype("u2")),
        column("u4", "J", bzero=2**31, array=rng.integers(0, 2**32, n).astype("u4")),
        column("u8", "K", bzero=2**63, array=rng.integers(0, 2**64, n, "u8")),
        column("i1", "B", bzero=-128, array=rng.integers(-128, 128, n).astype("i1")),
        column("scaled", "I", array=rng.integers(-99, 99, n).astype("i2")),
        column("pairs", "2I", bzero=2**15, array=rng.integers(0, 2**16, (n, 2)).astype("u2")),
        column("flag", "L", array=rng.integers(0, 2, n).astype(bool)),
        column("flags", "3L", array=rng.integers(0, 2, (n, 3)).astype(bool)),
        column("bits", "11X", array=rng.integers(0, 2, (n, 11)).astype(bool)),
        column("c", "C", array=rng.random(n) * 1j),
        column("m", "2M", array=rng.random((n, 2)) * 1j),
        column("text", "5A", array=words),
        column("texts", "10A", dim="(5,2)", array=np.stack([words, words[::-1]], 1)),
        column("image", "6E", dim="(3,2)", array=rng.random((n, 2, 3))),
        column("byte", "B", array=rng.integers(0, 256, n).astype("u1")),
        column("null", "J", null=-99, array=rng.integers(-99, -90, n)),
        column("d", "D", array=np.where(rng.random(n) < 0.2, np.nan, 1.5)),
    ]
    hdu = fits.BinTableHDU.from_columns(columns)
    # astropy cannot write floats as scaled integers, so the header is changed afterwards.
    hdu.header["XSCAL5"], hdu.header["XZERO5"] = 0.5, 10.0
    file = io.BytesIO()
    fits.HDUList([fits.PrimaryHDU(), hdu]).writeto(file)
    return file.getvalue().replace(b"XSCAL5", b"TSCAL5").replace(b"XZERO5", b"TZERO5")


EVERY = every_format()


@pytest.mark.parametrize("options", [{}, {"uint": False}, {"character_as_bytes": True}], ids=str)
def test_every_format_equals_astropys_columns(options: dict[str, bool], implementation: str) -> None:
    with fits.open(io.BytesIO(EVERY), **options) as file:
        data = file[1].data
        for part in (data, data[::3], data[::-1], data[:1]):
            columns = zc.aos_to_soa(part)
            assert list(columns) == list(data.dtype.names)
            agree(part, columns)
        kinds = {name: column.dtype for name, column in zc.aos_to_soa(data).items()}
    assert kinds["scaled"] == np.float64
    assert kinds["u8"] == (np.uint64 if options.get("uint", True) else np.float64)
    assert (kinds["flag"], kinds["bits"], kinds["texts"], kinds["null"]) == (bool, bool, "S5", "i4")


def test_converted_fields_need_a_copy() -> None:
    with fits.open(io.BytesIO(EVERY)) as file:
        data = file[1].data
        for name in ("scaled", "u4", "flag", "bits"):
            with pytest.raises(zc.CopyRequiredError, match=f"converts the values of field '{name}'"):
                zc.aos_to_soa(data, fields=[name], copy=False)
        with pytest.raises(zc.CopyRequiredError, match="'d' is not in native byte order"):
            zc.aos_to_soa(data, fields=["d"], copy=False)
        views = zc.aos_to_soa(data, fields=["byte", "text"], copy=False)
        assert np.shares_memory(views["byte"], data.view(np.ndarray))
        assert same(views["text"], shown(data, "text"))


def test_every_format_converts_to_tables() -> None:
    with fits.open(io.BytesIO(EVERY)) as file:
        data = file[1].data
        names = [name for name in data.dtype.names if name not in ("c", "m")]  # Arrow has no complex numbers
        table = zc.convert(data, "pyarrow", columns=names)
        for name in names:
            if data.dtype[name].base.kind != "S":
                values = np.array(table[name].to_pylist())
                assert np.array_equal(values, np.asarray(data[name]), equal_nan=name == "d"), name
        tensors = zc.convert(data, "torch", columns=["scaled", "pairs", "bits", "c", "image"])
        for name, tensor in tensors.items():
            assert np.array_equal(tensor.numpy(), np.asarray(data[name])), name


def test_astropy_reads_records_of_soa_to_aos() -> None:
    """With big-endian types too."""
    with fits.open(io.BytesIO(EVERY)) as file:
        data = file[1].data
        names = ["c", "m", "text", "image", "byte", "null", "d"]
        columns = zc.aos_to_soa(data, fields=names)
        rows = zc.soa_to_aos(columns, np.dtype([(name, data.dtype[name]) for name in names]))
        again = fits.BinTableHDU(rows).data
        agree(again, {name: columns[name] for name in names})
        assert zc.aos_to_soa(rows)["d"].tobytes() == columns["d"].tobytes()
