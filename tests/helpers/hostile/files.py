"""Files for ``zerocopy matrix --input``: valid ones, and truncated, changed and renamed ones."""

from __future__ import annotations

import io
import shutil
import tempfile
import zipfile
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from helpers.hostile.case import Built
from helpers.hostile.tables import random_type, random_value

_SUFFIXES = [".npy", ".npz", ".arrow", ".parquet", ".csv", ".feather"]
_FOLDER = Path(tempfile.mkdtemp(prefix="zerocopy-hostile-"))


def remove_files() -> None:
    """Delete the files of this process."""
    shutil.rmtree(_FOLDER, ignore_errors=True)


def build(rng: Random) -> Built:
    """Return the path of a file, of which at most three places are wrong."""
    suffix = rng.choice(_SUFFIXES)
    data, wrong = _valid(rng, suffix), []
    for _ in range(rng.choice([0, 1, 1, 2, 3])):
        name = rng.choice(list(_WRONG))
        data = _WRONG[name](rng, data)
        wrong.append(name)
    if rng.random() < 0.08:
        suffix = rng.choice([*_SUFFIXES, ".txt", "", ".NPY"])
        wrong.append("renamed")
    path = _FOLDER / f"case-{rng.getrandbits(64):016x}{suffix}"
    path.write_bytes(data)
    return Built(path, f"{suffix} of {len(data)} bytes: {', '.join(wrong) or 'valid'}")


def _valid(rng: Random, suffix: str) -> bytes:
    out = io.BytesIO()
    if suffix == ".npy":
        np.save(out, _array(rng), allow_pickle=True)
    elif suffix == ".npz":
        (np.savez if rng.random() < 0.5 else np.savez_compressed)(out, x=_array(rng), y=np.zeros(2))
    elif suffix == ".csv":
        rows = [
            ",".join(rng.choice(["1", "2.5", "", "x", "é", '"a,b"', "nan"]) for _ in range(3))
            for _ in range(4)
        ]
        out.write(("a,b,c\n" + "\n".join(rows)).encode())
    else:
        _write_table(rng, suffix, out)
    return out.getvalue()


def _array(rng: Random) -> np.ndarray:
    dtype = rng.choice(["f4", "i8", "?", ">f8", "S3", "U2", "M8[s]", "O", [("a", "i4"), ("b", "f8")], "c16"])
    return np.zeros(rng.choice([(), (0,), (4,), (3, 2)]), dtype)


def _write_table(rng: Random, suffix: str, out: io.BytesIO) -> None:
    import pyarrow as pa
    from pyarrow import feather, ipc, parquet

    kinds = [random_type(rng) for _ in range(rng.choice([1, 2, 3]))]
    count = rng.choice([0, 1, 5])
    columns = [pa.array([random_value(rng, kind, 0.2) for _ in range(count)], kind) for kind in kinds]
    table = pa.table(columns, [f"c{i}" for i in range(len(columns))])
    try:
        if suffix == ".parquet":
            parquet.write_table(table, out)
        elif suffix == ".feather":
            feather.write_feather(table, out)
        else:
            make = rng.choice([ipc.new_file, ipc.new_stream])
            with make(out, table.schema) as writer:
                writer.write_table(table)
    except (pa.ArrowException, ValueError, NotImplementedError):  # the format lacks a type
        out.seek(0)
        out.truncate()
        parquet.write_table(pa.table({"a": [1, 2]}), out)


def _truncate(rng: Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _flip(rng: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 8])):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _word(rng: Random, data: bytes) -> bytes:
    """Write an extreme 32-bit number somewhere, at a position that is a multiple of four."""
    changed = bytearray(data)
    if len(changed) >= 8:
        start = rng.randrange(len(changed) // 4) * 4
        number = rng.choice([0, 1, 2**31 - 1, 2**31, 2**32 - 1, 255])
        changed[start : start + 4] = number.to_bytes(4, "little")
    return bytes(changed[: len(data)])


def _swap(rng: Random, data: bytes) -> bytes:
    if len(data) < 4:
        return data
    a, b, c = sorted(rng.randrange(len(data)) for _ in range(3))
    return data[:a] + data[b:c] + data[a:b] + data[c:]


def _insert(rng: Random, data: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.randbytes(rng.choice([1, 8, 100])) + data[at:]


def _other(rng: Random, data: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(rng.choice(["x.npy", "x", "../x.npy"]), rng.choice([b"", b"\x93NUMPY", data[:50]]))
    return rng.choice([b"", b"\0" * 64, b"ARROW1\0\0", b"PAR1PAR1", b"\x93NUMPY\x01\x00", out.getvalue()])


_WRONG: dict[str, Any] = {
    "truncated": _truncate,
    "flipped": _flip,
    "word": _word,
    "exchanged": _swap,
    "inserted": _insert,
    "other": _other,
}
