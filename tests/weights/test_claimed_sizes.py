"""Sizes that a file claims are compared with the size of the file before memory is reserved."""

from __future__ import annotations

import io
import json
import pickle
import struct
import tracemalloc
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.tiers import sampled
from helpers.weight_files import check, file_of, gguf_bytes, safetensors_bytes, text

import zerocopy as zc

LARGE = 2**40
#: Dtypes of 0 bytes, with such fields, and of several bytes.
ELEMENTS = (
    *("'|S0'", "'<U0'", "'|V0'", "[]", "[('a', '|S0')]", "[('a', '<U0'), ('b', '|V0')]", "[('a', [])]"),
    *("[('a', '<f4', (0,))]", f"[('a', '<f4', (0, {LARGE}))]", "('<f4', (0,))", "('<f4', (2,))"),
    *(f"[('a', '|V0', ({2**30},)), ('b', '|u1')]", f"[('a', [('b', '|S0', ({2**30},)), ('c', '|u1')])]"),
    *("'<f4'", "'|S1'", "'<M8[s]'", f"'|V{2**31 - 1}'", "[('a', '<f4'), ('b', '|S0')]"),
)
SHAPES = (
    "(3,)",
    "()",
    f"({LARGE},)",
    f"(2, {LARGE})",
    f"(0, {LARGE})",
    f"(0, {2**62})",
    f"({2**63},)",
    "(-1,)",
)


def npy(descr: str, shape: str, data: bytes = b"", fortran: bool = False) -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}}}".encode()
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + data


def npz(data: bytes, compression: int = zipfile.ZIP_STORED, copies: int = 1) -> bytes:
    """Return an archive with `copies` entries that share one member's bytes."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        archive.writestr("x.npy", data)
        first = archive.infolist()[0]
        for number in range(1, copies):
            entry = zipfile.ZipInfo(f"x{number}.npy")
            for name in ("compress_type", "CRC", "compress_size", "file_size", "header_offset"):
                setattr(entry, name, getattr(first, name))
            archive.filelist.append(entry)
            archive.NameToInfo[entry.filename] = entry
    return stream.getvalue()


def patched(data: bytes, magic: bytes, offset: int, form: str, *values: int) -> bytes:
    """Return a zip archive with fields replaced at an offset in the record that begins with `magic`."""
    changed = bytearray(data)
    struct.pack_into("<" + form, changed, data.rindex(magic) + offset, *values)
    return bytes(changed)


def arrays() -> Iterator[tuple[str, str, bytes]]:
    """Yield files with headers of NumPy: name, suffix and bytes."""
    for descr in ELEMENTS:
        for shape in SHAPES:
            for fortran in (False, True):
                data = npy(descr, shape, bytes(60), fortran)
                yield f"npy {descr} {shape}", ".npy", data
                yield f"npz {descr} {shape}", ".npz", npz(data)
                yield f"deflated {descr} {shape}", ".npz", npz(data, zipfile.ZIP_DEFLATED)
            exact = npy(descr, shape)
            yield f"npy without data {descr} {shape}", ".npy", exact
            yield f"npz without data {descr} {shape}", ".npz", npz(exact)


def others() -> Iterator[tuple[str, str, bytes]]:
    """Yield files whose other fields claim too much."""
    valid = npz(npy("'|u1'", "(100,)", bytes(100)))
    huge = npz(npy("'|u1'", f"({2**31},)"))
    for form, at in (("II", 20), ("I", 24)):
        values = (2**31 + 80,) * len(form)
        yield f"sizes of a member {form}", ".npz", patched(huge, b"PK\1\2", at, form, *values)
    yield "size of the directory", ".npz", patched(valid, b"PK\5\6", 12, "I", 2**31)
    yield "directory of zip64", ".npz", patched(valid, b"PK\5\6", 12, "II", 2**32 - 1, 2**32 - 1)
    yield "header beyond the member", ".npz", npz(b"\x93NUMPY\2\0" + struct.pack("<I", 2**32 - 1) + b" " * 99)
    many = npy("'|u1'", f"({1 << 20},)", bytes(1 << 20))
    yield "members that overlap", ".npz", npz(many, copies=400)
    for length in (2**31, 2**62, 2**64 - 1):
        yield f"safetensors header {length}", ".safetensors", struct.pack("<Q", length) + b"{}"
    for shape in ([LARGE], [0, LARGE], [0, 2**62, 2**62], [2**63], [-1]):
        for offsets in ([0, 0], [0, LARGE], [LARGE, LARGE]):
            entry = {"dtype": "U8", "shape": shape, "data_offsets": offsets}
            yield f"safetensors {shape} {offsets}", ".safetensors", file_of({"x": entry})
    for count in (2**31, 2**62, 2**64 - 1):
        number = struct.pack("<Q", count)
        yield f"gguf tensors {count}", ".gguf", b"GGUF" + struct.pack("<I", 3) + number + bytes(8)
        yield f"gguf pairs {count}", ".gguf", b"GGUF" + struct.pack("<I", 3) + bytes(8) + number + bytes(64)
        for value in (struct.pack("<I", 8), struct.pack("<II", 9, 0), struct.pack("<II", 9, 8)):
            yield f"gguf value {value!r} {count}", ".gguf", gguf_bytes({}, {"k": value + number + bytes(64)})
        yield f"gguf name {count}", ".gguf", b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + number
        tensor = text("x") + struct.pack("<IQIQ", 1, count, 0, 0)
        yield f"gguf shape {count}", ".gguf", b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + tensor + bytes(64)
    yield "index", ".index.json", json.dumps({"weight_map": {"x": "x" * 1000}}).encode()


HEADERS, OTHERS = list(arrays()), list(others())


@pytest.mark.hazard("untrusted-data#headers-of-weights")
@pytest.mark.parametrize("suffix", [".npy", ".npz", ".safetensors", ".gguf", ".index.json"])
def test_nothing_beyond_the_file_is_reserved(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x{suffix}"
    cases = OTHERS + [header for (header,) in sampled(9, HEADERS)]
    cases = [case for case in cases if case[1] == suffix]
    path.write_bytes(cases[0][2])
    check(path)  # imports
    for name, _, data in cases:
        path.write_bytes(data)
        tracemalloc.start()
        try:
            for copy in (None, True):
                try:
                    read = zc.open_weights(path, copy=copy).read()
                except (zc.errors.ReadError, zc.UnsupportedConversionError):  # copies of 2-D text
                    read = {}
                assert sum(array.nbytes for array in read.values()) <= len(data), name
                assert all(array.itemsize or not array.size for array in read.values()), name
            assert tracemalloc.get_traced_memory()[1] < 40 * len(data) + 400_000, name
        finally:
            tracemalloc.stop()


@pytest.mark.hazard("untrusted-data#headers-of-weights")
@pytest.mark.parametrize("descr", ["'|S0'", "'<U0'", "'|V0'", "[]", "[('a', '|S0')]", "[('a', '<f4', (0,))]"])
@pytest.mark.parametrize("shape", ["(3,)", "()", f"({LARGE},)"])
def test_elements_of_0_bytes_are_refused(tmp_path: Path, descr: str, shape: str) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(npy(descr, shape))
    with pytest.raises(zc.errors.ReadError, match="elements of 0 bytes"):
        zc.open_weights(path)
    archive = tmp_path / "y.npz"
    archive.write_bytes(npz(path.read_bytes()))
    weights = zc.open_weights(archive)
    with pytest.raises(zc.errors.ReadError, match="elements of 0 bytes"):
        weights["x"]


@pytest.mark.parametrize("descr", ["S0", "U0", "V0", [], [("a", "S0")]])
def test_empty_arrays_keep_their_type(tmp_path: Path, descr: Any) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.ndarray((0, 2), descr))
    loaded = zc.open_weights(path)
    assert (loaded["x"].dtype, loaded["x"].shape) == (loaded.tensors["x"].dtype, (0, 2))
    assert loaded["x"].dtype == np.dtype(descr)


def test_a_field_of_0_bytes_is_read(tmp_path: Path) -> None:
    expected = np.array([(b"", 1), (b"", 2)], [("a", "S0"), ("b", "i4")])
    np.save(tmp_path / "x.npy", expected)
    assert zc.open_weights(tmp_path / "x.npy")["x"].tolist() == expected.tolist()


# -- limits ------------------------------------------------------------------------------


def wide(count: int) -> np.ndarray:
    return np.zeros(2, [(f"column_{number}", "f4") for number in range(count)])


def large_header(path: Path, suffix: str) -> Path:
    """Write a file whose header has more than 10,000 bytes."""
    path = path / f"x{suffix}"
    if suffix == ".npy":
        np.save(path, wide(600))
    elif suffix == ".npz":
        np.savez_compressed(path, x=wide(600))
    elif suffix == ".safetensors":
        path.write_bytes(safetensors_bytes({"x": np.arange(3)}, {"note": "n" * 20_000}))
    elif suffix == ".gguf":
        value = struct.pack("<I", 8) + text("n" * 20_000)
        path.write_bytes(gguf_bytes({"x": ((3,), 27, np.arange(3).tobytes())}, {"note": value}))
    else:
        (path.parent / "shard.safetensors").write_bytes(safetensors_bytes({"x": np.arange(3)}))
        content = {"metadata": {"note": "n" * 20_000}, "weight_map": {"x": "shard.safetensors"}}
        path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".safetensors", ".gguf", ".index.json"])
def test_the_error_of_a_long_header_names_the_option_that_reads_it(tmp_path: Path, suffix: str) -> None:
    path = large_header(tmp_path, suffix)
    limit = {} if suffix in (".npy", ".npz") else {"max_header": 10_000}
    with pytest.raises(zc.errors.ReadError, match="more than the limit of 10,000") as caught:
        zc.open_weights(str(path), **limit)
    assert caught.value.code == "header-limit"
    call = caught.value.remedy.partition(" reads it")[0]
    weights = eval(call, {"zc": zc})
    assert len(weights["x"]) in (2, 3)
    again = pickle.loads(pickle.dumps(weights))
    assert again["x"].tolist() == weights["x"].tolist()


def test_the_error_of_a_shard_loads_the_index(tmp_path: Path) -> None:
    shard = large_header(tmp_path, ".safetensors")
    index = tmp_path / "m.index.json"
    index.write_text(json.dumps({"weight_map": {"x": shard.name}}))
    with pytest.raises(zc.errors.ReadError, match="more than the limit") as caught:
        zc.open_weights(str(index), max_header=1000)
    weights = eval(caught.value.remedy.partition(" reads it")[0], {"zc": zc})
    assert weights["x"].tolist() == [0, 1, 2]
    assert weights._paths == (str(index),)


def test_the_loader_reads_what_load_was_allowed_to_read(tmp_path: Path) -> None:
    path = large_header(tmp_path, ".npy")
    with pytest.raises(zc.errors.ReadError, match="max_header") as caught:
        zc.loader(str(path), "numpy", batch_size=2)
    weights = eval(caught.value.remedy.partition(" reads it")[0], {"zc": zc})
    (batch,) = zc.loader(weights["x"], "numpy", batch_size=2)
    assert len(batch) == 600


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "1"])
def test_a_limit_is_a_number_of_bytes(tmp_path: Path, value: Any) -> None:
    np.save(tmp_path / "x.npy", np.arange(3))
    with pytest.raises(ValueError, match="max_header") as caught:
        zc.open_weights(tmp_path / "x.npy", max_header=value)
    assert isinstance(caught.value, zc.ZeroCopyError)


@pytest.mark.parametrize("ndim", [33, 64])
def test_arrays_have_as_many_dimensions_as_numpy_permits(tmp_path: Path, ndim: int) -> None:
    try:
        expected = np.ones((1,) * ndim, "f4")
    except ValueError:
        pytest.skip("NumPy 1 has at most 32 dimensions")
    np.save(tmp_path / "x.npy", expected)
    (tmp_path / "x.safetensors").write_bytes(safetensors_bytes({"x": expected}))
    for name in ("x.npy", "x.safetensors"):
        assert zc.open_weights(tmp_path / name)["x"].shape == expected.shape


def test_any_alignment_of_gguf(tmp_path: Path) -> None:
    value = {"general.alignment": struct.pack("<II", 4, 1 << 21)}
    path = tmp_path / "x.gguf"
    path.write_bytes(gguf_bytes({"x": ((3,), 27, np.arange(3).tobytes())}, value, alignment=1 << 21))
    assert zc.open_weights(path)["x"].tolist() == [0, 1, 2]
