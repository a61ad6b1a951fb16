"""Headers from the internet: each invalid file raises `ReadError`, and nothing else."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from helpers.tiers import sampled
from helpers.weight_files import check, entry, file_of, model, mutated, safetensors_bytes

import zerocopy as zc

_PAIR = {"dtype": "I32", "shape": [2, 2], "data_offsets": [0, 16]}


def _entry(**changes: object) -> bytes:
    return file_of({"test": {**_PAIR, **changes}}, bytes(16))


#: Those of the safetensors library's own tests (safetensors/src/tensor.rs), and others.
INVALID: dict[str, bytes] = {
    "no file": b"",
    "too small": b"\x01\x00",
    "header too large": b"<\x00\x00\x00\x00\xff\xff\xff" + b'{"test":{}}',
    "header length": b"<\x00\x00\x00\x00\x00\x00\x00",
    "not UTF-8": b"\x01\x00\x00\x00\x00\x00\x00\x00\xff",
    "not JSON": b"\x01\x00\x00\x00\x00\x00\x00\x00{",
    "UTF-16": file_of(json.dumps({}).encode("utf-16")),
    "list": file_of([]),
    "number": file_of(b"3"),
    "null": file_of(b"null"),
    "deep": file_of(b"[" * 200_000),
    "deep objects": file_of(b'{"a":' * 100_000),
    "long number": file_of(b'{"a":' + b"9" * 10_000 + b"}"),
    "NaN": file_of(b'{"a": NaN}'),
    "duplicate": file_of(b'{"a": %b, "a": %b}' % ((json.dumps(_PAIR).encode(),) * 2), bytes(16)),
    "duplicate inner": file_of(
        b'{"a": {"dtype": "U8", "dtype": "U8", "shape": [], "data_offsets": [0, 1]}}', b"1"
    ),
    "surrogate": file_of(b'{"\\ud800": {"dtype": "U8", "shape": [], "data_offsets": [0, 1]}}', b"1"),
    "incomplete buffer": file_of({"test": _PAIR}, bytes(15)),
    "extra bytes": file_of({"test": _PAIR}, bytes(17)),
    "info": _entry(data_offsets=[0, 4]),
    "overflow": _entry(shape=[2, 18446744073709551614]),
    "overflow of the bytes": _entry(shape=[2, 9223372036854775807]),
    "overflow of an empty shape": file_of(
        {"a": {"dtype": "U8", "shape": [0, 2**62, 2**62], "data_offsets": [0, 0]}}
    ),
    "dimensions": _entry(shape=[2, 2] + [1] * 100),
    "negative": _entry(shape=[-2, -2]),
    "float shape": _entry(shape=[2.0, 2]),
    "bool shape": _entry(shape=[True, 4]),
    "shape of text": _entry(shape="22"),
    "no shape": file_of({"test": {"dtype": "U8", "data_offsets": [0, 1]}}, b"1"),
    "entry of text": file_of({"test": "U8"}, b"1"),
    "dtype": _entry(dtype="I33"),
    "dtype of list": _entry(dtype=["I32"]),
    "reversed": _entry(data_offsets=[16, 0]),
    "negative offset": _entry(data_offsets=[-16, 0]),
    "one offset": _entry(data_offsets=[16]),
    "offset of text": _entry(data_offsets=["0", "16"]),
    "huge offset": _entry(data_offsets=[0, 2**70]),
    "gap at the start": file_of({"test": {**_PAIR, "data_offsets": [4, 20]}}, bytes(20)),
    "gap": file_of({"a": _PAIR, "b": {**_PAIR, "data_offsets": [20, 36]}}, bytes(36)),
    "overlap": file_of({f"{i}": _PAIR for i in range(10)}, bytes(16)),
    "odd F4": file_of({"x": {"dtype": "F4", "shape": [3], "data_offsets": [0, 1]}}, b"1"),
    "metadata": file_of({"__metadata__": {"a": 1}}),
    "metadata list": file_of({"__metadata__": ["a"]}),
}


@pytest.mark.hazard("untrusted-data#headers-of-weights")
@pytest.mark.parametrize("case", INVALID)
def test_invalid_files_are_refused(tmp_path: Path, case: str) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(INVALID[case])
    assert not check(path)


def test_padding_around_the_header_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    for data in (b"{}\x0d\x20\x09\x0a", b"\x09\x0a{}\x0d\x20"):
        path.write_bytes(len(data).to_bytes(8, "little") + data)
        assert check(path)


def test_unknown_keys_of_an_entry_are_ignored(tmp_path: Path) -> None:
    array = np.arange(3)
    path = tmp_path / "x.safetensors"
    path.write_bytes(file_of({"x": {**entry(array, 0), "more": [1]}}, array.tobytes()))
    assert check(path)


@pytest.mark.hazard("untrusted-data#headers-of-weights")
def test_generated_files_are_read_or_refused(tmp_path: Path) -> None:
    path, valid = tmp_path / "x.safetensors", 0
    original = safetensors_bytes({**model(), "flags": np.array([True, False])}, {"format": "pt"})
    for (seed,) in sampled(10, range(2000)):
        path.write_bytes(mutated(original, seed))
        valid += check(path)
    assert valid < 1000


def test_generated_indexes_are_read_or_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"m-{name}.safetensors").write_bytes(safetensors_bytes({name: np.arange(3)}))
    places = {name: f"m-{name}.safetensors" for name in ("a", "b")}
    original = json.dumps({"metadata": {"total_size": 48}, "weight_map": places}).encode()
    path = tmp_path / "m.index.json"
    for (seed,) in sampled(20, range(2000)):
        path.write_bytes(mutated(original, seed))
        check(path)


@pytest.mark.hazard("untrusted-data#booleans-of-weights")
def test_booleans_have_bytes_0_and_1(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    path = tmp_path / "x.safetensors"
    path.write_bytes(file_of({"x": {"dtype": "BOOL", "shape": [2], "data_offsets": [0, 2]}}, b"\1\2"))
    weights = zc.open_weights(path, to="torch")
    with pytest.raises(zc.errors.ReadError, match="a byte other than 0 and 1"):
        weights["x"]


@pytest.mark.parametrize("case", ["folder", "pipe", "absent", "nul", "suffix", "empty list"])
def test_paths_that_are_not_files_of_weights_are_refused(tmp_path: Path, case: str) -> None:
    path = tmp_path / ("x.txt" if case == "suffix" else "x.safetensors")
    if case == "folder":
        path.mkdir()
    elif case == "pipe":
        os.mkfifo(path)
    elif case == "suffix":
        path.write_bytes(b"")
    given = {"nul": "a\0b.safetensors", "empty list": []}.get(case, path)
    with pytest.raises(zc.errors.ReadError) as caught:
        zc.open_weights(given)
    assert caught.value.remedy


def test_a_limit_of_the_system_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno

    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    path = tmp_path / "x.safetensors"
    path.write_bytes(file_of({}))
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(zc.errors.ReadError, match="ulimit -n"):
        zc.open_weights(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads all files")
def test_a_file_without_permission_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(file_of({}))
    path.chmod(0)
    with pytest.raises(zc.errors.ReadError, match="PermissionError"):
        zc.open_weights(path)
