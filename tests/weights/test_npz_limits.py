"""Members of archives that claim more than the file holds are refused before they are decompressed."""

from __future__ import annotations

import struct
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

import zerocopy as zc


def test_a_header_is_not_decompressed_beyond_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", b"\x93NUMPY\2\0" + struct.pack("<I", 50_000_000) + b" " * 50_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(zc.errors.ReadError, match="header claims 50,000,000 bytes"):
            zc.open_weights(path)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_a_header_of_a_file_is_not_allocated(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(b"\x93NUMPY\2\0" + struct.pack("<I", 2**32 - 1) + b" " * 40)
    with pytest.raises(zc.errors.ReadError, match="more than the limit"):
        zc.open_weights(path)


def test_a_false_compressed_size_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez_compressed(path, a=np.zeros(1000))
    data = bytearray(path.read_bytes())
    entry = data.index(b"PK\1\2")
    data[entry + 20 : entry + 24] = struct.pack("<I", 2**31)
    path.write_bytes(data)
    with pytest.raises(zc.errors.ReadError):
        zc.open_weights(path)["a"]
