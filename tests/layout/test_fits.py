"""Binary tables of FITS files, as astropy reads them: against astropy's own columns."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zerocopy as zc
from zerocopy.layout import transposition

fits = pytest.importorskip("astropy.io.fits")

# What astropy says of files that are odd on purpose, when their columns are looked at.
pytestmark = pytest.mark.filterwarnings("ignore::astropy.utils.exceptions.AstropyUserWarning")

FILES = sorted((Path(fits.__file__).parent / "tests" / "data").glob("*.fits"))


def tables(source: Any) -> Iterator[tuple[int, Any]]:
    """Each table of a file: those of compressed images and random groups too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of files that are odd on purpose
        with fits.open(source, disable_image_compression=True) as file:
            for number, hdu in enumerate(file):
                if getattr(hdu, "data", None) is not None and hdu.data.dtype.names is not None:
                    yield number, hdu


def found() -> list[tuple[Path, int]]:
    made = []
    for path in FILES:
        try:
            made += [(path, number) for number, _ in tables(path)]
        except OSError:
            continue  # two are no FITS files, for the tests of that
    return made


TABLES = found()
ids = [f"{path.stem}-{number}" for path, number in TABLES]


def opened(path: Path, wanted: int) -> Any:
    return next(hdu.data for number, hdu in tables(path) if number == wanted)


def shown(data: Any, name: str) -> np.ndarray:
    """A column as astropy gives it, text as bytes."""
    column = np.asarray(data[name])
    if column.dtype.kind != "U":
        return column
    # Decoded from the bytes of the file, and of their width.
    text: np.ndarray = np.char.encode(column, "ascii")
    return text.astype(f"S{max(1, data.dtype[name].base.itemsize)}")


def variable(data: Any) -> list[str]:
    """The columns of arrays of variable length: the rows hold where they lie in the file's heap."""
    return [name for name in data.dtype.names if np.asarray(data[name]).dtype == object]


def same(column: np.ndarray, expected: np.ndarray) -> bool:
    """Bit for bit in native order; of text but for the blanks at its end, which astropy strips."""
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


@pytest.fixture(params=["kernels", "numpy"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways: files of tests are so small that all of them would go NumPy's."""
    monkeypatch.setattr(transposition, "MIN_KERNEL_BYTES", 0 if request.param == "kernels" else 1 << 60)


def test_there_are_tables() -> None:
    assert len(TABLES) > 20
    assert any(variable(opened(*table)) for table in TABLES)


@pytest.mark.parametrize(("path", "number"), TABLES, ids=ids)
def test_columns_are_astropys(path: Path, number: int, way: None) -> None:
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
def test_columns_in_arrow_are_astropys(path: Path, number: int) -> None:
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
            # Binary: of a fixed width, to which the file pads them.
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


# -- all that a column can be -------------------------------------------------------------

ROWS = 300


def every_format() -> bytes:
    """A file with each format, scaled, unsigned, logical, with dimensions."""
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
    # astropy writes no floats as scaled integers: so the header says it afterwards.
    hdu.header["XSCAL5"], hdu.header["XZERO5"] = 0.5, 10.0
    file = io.BytesIO()
    fits.HDUList([fits.PrimaryHDU(), hdu]).writeto(file)
    return file.getvalue().replace(b"XSCAL5", b"TSCAL5").replace(b"XZERO5", b"TZERO5")


EVERY = every_format()


@pytest.mark.parametrize("options", [{}, {"uint": False}, {"character_as_bytes": True}], ids=str)
def test_every_format(options: dict[str, bool], way: None) -> None:
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


def test_what_is_shown_otherwise_is_no_view() -> None:
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


def test_every_format_in_tables() -> None:
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


def test_columns_are_the_rows_of_a_new_table() -> None:
    """What soa_to_aos makes astropy takes, with big-endian types too."""
    with fits.open(io.BytesIO(EVERY)) as file:
        data = file[1].data
        names = ["c", "m", "text", "image", "byte", "null", "d"]
        columns = zc.aos_to_soa(data, fields=names)
        rows = zc.soa_to_aos(columns, np.dtype([(name, data.dtype[name]) for name in names]))
        again = fits.BinTableHDU(rows).data
        agree(again, {name: columns[name] for name in names})
        assert zc.aos_to_soa(rows)["d"].tobytes() == columns["d"].tobytes()
