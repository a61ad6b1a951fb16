"""``open_weights`` of ``.npy`` and ``.npz`` files."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from helpers.tiers import sampled
from helpers.weight_files import check, mutated

import zerocopy as zc


def arrays() -> dict[str, np.ndarray]:
    return {
        "c": np.arange(12, dtype="f4").reshape(3, 4),
        "f": np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        "scalar": np.array(3, "i8"),
        "empty": np.zeros((0, 3), "f4"),
        "flags": np.array([True, False]),
        "swapped": np.arange(3, dtype=">i4"),
    }


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("to", ["numpy", "torch"])
def test_members_have_their_values(tmp_path: Path, save: Any, to: str) -> None:
    path = tmp_path / "x.npz"
    save(path, **arrays())
    weights = zc.open_weights(path, to=to)
    assert list(weights) == list(arrays())
    read = weights.read()
    for name, expected in arrays().items():
        array = zc.convert(read[name], "numpy")
        assert (array == expected).all()
        assert array.shape == expected.shape
        assert weights.tensors[name].dtype == expected.dtype


def test_stored_members_alias_and_compressed_ones_are_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=np.arange(64.0))
    np.savez_compressed(tmp_path / "y.npz", a=np.arange(64.0))
    stored, compressed = (zc.open_weights(tmp_path / name) for name in ("x.npz", "y.npz"))
    assert zc.shares_memory(stored["a"], stored["a"])
    assert not zc.shares_memory(compressed["a"], compressed["a"])
    assert stored.tensors["a"].offset > 0
    assert compressed.tensors["a"].offset == -1
    assert not stored["a"].flags.writeable


@pytest.mark.parametrize("order", ["C", "F"])
def test_an_npy_file_has_one_array_with_the_name_of_the_file(tmp_path: Path, order: Any) -> None:
    pytest.importorskip("jax")
    expected = np.array(np.arange(6.0).reshape(2, 3), order=order)
    np.save(tmp_path / "emb.npy", expected)
    weights = zc.open_weights(tmp_path / "emb.npy", to="jax", dtype="float32")
    assert list(weights) == ["emb"]
    assert weights["emb"].tolist() == expected.tolist()
    mapped = zc.open_weights(tmp_path / "emb.npy")["emb"]
    assert mapped.flags.f_contiguous is (order == "F")
    assert zc.open_weights(tmp_path / "emb.npy", copy=True)["emb"].tolist() == expected.tolist()


def test_an_aligned_npy_file_is_aliased_by_jax(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    np.save(tmp_path / "x.npy", np.arange(16, dtype="f4"))  # NumPy aligns the array to 64 bytes
    weights = zc.open_weights(tmp_path / "x.npy", to="jax", copy=False)
    assert zc.shares_memory(weights, weights["x"])


def test_records_and_text_are_arrays_of_numpy(tmp_path: Path) -> None:
    records = np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")])
    np.savez(tmp_path / "x.npz", records=records, text=np.array(["a", "bc"]))
    read = zc.open_weights(tmp_path / "x.npz").read()
    assert read["records"].tolist() == [(1, 2.0)]
    assert read["text"].tolist() == ["a", "bc"]


def _npy(header: str, data: bytes = b"", version: tuple[int, int] = (1, 0)) -> bytes:
    text = header.encode("latin1")
    size = len(text).to_bytes(2 if version == (1, 0) else 4, "little")
    return b"\x93NUMPY" + bytes(version) + size + text + data


def _descr(shape: str = "(3,)", descr: str = "'<f8'") -> str:
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}"


INVALID = {
    "empty": b"",
    "magic": b"NUMPY",
    "version": _npy(_descr(), bytes(24), (9, 9)),
    "short": _npy(_descr(), bytes(23)),
    "long": _npy(_descr(), bytes(25)),
    "objects": _npy(_descr(descr="'|O'"), bytes(24)),
    "code": _npy("__import__('os').getpid()"),
    "negative": _npy(_descr("(-3,)"), bytes(24)),
    "huge": _npy(_descr(f"({2**62}, {2**62})"), bytes(24)),
    "huge and empty": _npy(_descr(f"(0, {2**62}, {2**62})")),
    "nested": _npy("(" * 5000),
    "nested minus": _npy("-" * 9000 + "1"),
    "large header": _npy(_descr() + " " * 20_000, bytes(24)),
    "claimed header": b"\x93NUMPY\x02\x00\xff\xff\xff\xff{}",
    "descr": _npy(_descr(descr="'<q9'"), bytes(24)),
    "dtype of fields": _npy(_descr(descr="[('a', '<f8'), ('a', '<f8')]"), bytes(48)),
}


@pytest.mark.hazard("untrusted-data#headers-of-weights", "untrusted-data#python-objects-in-weights")
@pytest.mark.parametrize("case", INVALID)
@pytest.mark.parametrize("archive", [False, True])
def test_invalid_headers_are_refused(tmp_path: Path, case: str, archive: bool) -> None:
    path = tmp_path / ("x.npz" if archive else "x.npy")
    path.write_bytes(INVALID[case])
    if archive:
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("x.npy", INVALID[case])
    assert not check(path)


def test_numbers_of_ml_dtypes_are_raw_records_in_numpy_files(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones(3, ml_dtypes.bfloat16))  # NumPy writes them as |V2
    assert zc.open_weights(tmp_path / "x.npy").tensors["x"].dtype == "V2"


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_generated_archives_are_read_or_refused(tmp_path: Path, save: Any) -> None:
    stream = io.BytesIO()
    save(stream, **arrays())
    path = tmp_path / "x.npz"
    for (seed,) in sampled(20, range(2000)):
        path.write_bytes(mutated(stream.getvalue(), seed))
        check(path)


def test_generated_npy_files_are_read_or_refused(tmp_path: Path) -> None:
    stream = io.BytesIO()
    np.save(stream, arrays()["c"])
    path = tmp_path / "x.npy"
    for (seed,) in sampled(20, range(2000)):
        path.write_bytes(mutated(stream.getvalue(), seed))
        check(path)


def test_members_of_an_archive_lie_within_it(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, a=np.arange(100.0))
    data = path.read_bytes()
    start = data.rindex(b"PK\x01\x02")
    cut = data[:500] + data[start:]  # the central directory names more bytes than the file has
    path.write_bytes(cut)
    assert not check(path)


@pytest.mark.hazard("untrusted-data#compressed-members")
def test_a_compressed_member_that_claims_more_than_deflate_can_hold_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez_compressed(path, a=np.zeros(1 << 16))
    assert check(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as file:
        file.writestr("x.npy", _npy(_descr(), bytes(24)))
    assert not check(path)


def test_the_plan_of_a_compressed_member_inflates_it(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez_compressed(path, a=np.arange(64.0))
    plan = zc.open_weights(path).explain()
    leaf = plan.leaves["['a']"]
    assert (plan.zero_copy, plan.copied_bytes, plan.aliased_bytes) == (False, 512, 0)
    assert (leaf.reasons[0].code, leaf.steps[0]) == ("compressed", "inflate it into new memory")
    refused = zc.open_weights(path, copy=False)
    with pytest.raises(zc.CopyRequiredError, match="compressed") as caught:
        refused["a"]
    plan = refused.explain()
    assert not plan.possible
    assert str(plan.error) == str(caught.value)
    exec(caught.value.remedy.partition(" writes")[0], {"numpy": np})
    assert zc.open_weights(tmp_path / "x.stored.npz", copy=False)["a"].tolist() == list(range(64))


def test_the_plan_of_an_unaligned_member_names_its_order(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(
            "f.npy",
            _npy(_descr("(2, 3)").replace("False", "True").ljust(1 + len(_descr("(2, 3)"))), bytes(48)),
        )
    weights = zc.open_weights(path, to="torch")
    assert not zc.open_weights(path)["f"].flags.aligned
    (step,) = weights.explain().leaves["['f']"].steps
    assert "column-major" in step
    assert weights["f"].stride() == (1, 2)


def test_compressed_weights_are_not_converted_without_a_copy(tmp_path: Path) -> None:
    path = str(tmp_path / "a.npz")
    np.savez_compressed(path, w=np.ones(3))
    weights = zc.open_weights(path)
    plan = zc.explain(weights, "numpy", copy=False)
    with pytest.raises(zc.CopyRequiredError, match="compressed") as caught:
        zc.convert(weights, "numpy", copy=False)
    assert not plan.possible
    assert plan.error.args == caught.value.args
    exec(caught.value.remedy.partition(" writes")[0], {"numpy": np})
    stored = zc.open_weights(str(tmp_path / "a.stored.npz"))
    assert zc.convert(stored, "numpy", copy=False)["w"].tolist() == [1, 1, 1]


RECORDS = [("x", "f4"), ("flag", "?"), ("many", "?", (2,)), ("inner", [("flag", "?")])]


@pytest.mark.parametrize("byte", [4, 6, 7])
@pytest.mark.parametrize("save", [np.save, np.savez, np.savez_compressed])
def test_invalid_booleans_in_records_are_refused(tmp_path: Path, byte: int, save: Any) -> None:
    records = np.zeros(3, RECORDS)
    records.view("u1")[8 + byte] = 2
    path = str(tmp_path / f"a.{'npy' if save is np.save else 'npz'}")
    save(path, records)
    weights = zc.open_weights(path)
    (name,) = weights
    with pytest.raises(zc.errors.ReadError, match="booleans") as caught:
        weights[name]
    assert caught.value.code == "invalid-booleans"
    assert isinstance(weights.explain().error, zc.errors.ReadError)


NAMES = ["größe", "Größe\n", "数", "😀", "a\\ü", "'ü\"", "\x00é", "\ud800é", "ÿ", "naïve Σ"]


@pytest.mark.hazard("untrusted-data#names-of-fields")
@pytest.mark.filterwarnings("ignore:Stored array in format")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("save", [np.save, np.savez, np.savez_compressed])
def test_names_of_fields_are_those_that_numpy_wrote(tmp_path: Path, name: str, save: Any) -> None:
    inner = np.dtype([(name + "Ω", "f4"), ("plain", "i2", (2,))])
    records = np.zeros(2, [(name, "f4"), ("Ω", inner)])
    records[name] = [1, 2]
    path = tmp_path / ("x.npy" if save is np.save else "x.npz")
    save(path, records)
    loaded = zc.open_weights(path)["x" if save is np.save else "arr_0"]
    assert loaded.dtype == records.dtype
    assert loaded[name].tolist() == [1, 2]


def _version_3(header: bytes) -> bytes:
    return b"\x93NUMPY\3\0" + len(header).to_bytes(4, "little") + header + bytes(8)


@pytest.mark.parametrize("name", [b"\xff", b"\xc3", b"\xed\xa0\x80"])
def test_names_that_are_not_utf_8_are_refused(tmp_path: Path, name: bytes) -> None:
    header = b"{'descr': [('%b', '<f4')], 'fortran_order': False, 'shape': (2,)}" % name
    (tmp_path / "x.npy").write_bytes(_version_3(header))
    assert not check(tmp_path / "x.npy")


@pytest.mark.parametrize("name", ["", "/", "a/", "../a.npy", ".npy", "a\\b.npy", "a.npy.npy", "Ω.npy"])
def test_any_name_of_a_member_is_read_or_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("z.npy", _npy(_descr(), bytes(24)))
        member = zipfile.ZipInfo("replaced")  # it does not accept an empty name
        member.filename = name
        with archive.open(member, "w") as stream:
            stream.write(_npy(_descr(), bytes(24)))
    assert check(path)
    names = list(zc.open_weights(path))
    assert names == (["z"] if name.endswith("/") else ["z", name.removesuffix(".npy")])


# -- members that are not arrays of numbers ---------------------------------------------


def _archive(path: Path, member: str, compression: int = zipfile.ZIP_STORED) -> str:
    """Write an archive of two arrays, with a member of another kind between them."""
    npys = {}
    for name in ("a", "b"):
        stream = io.BytesIO()
        np.save(stream, np.arange(3) + (name == "b"))
        npys[name] = stream.getvalue()
    objects = io.BytesIO()
    np.save(objects, np.array([None, "x"]), allow_pickle=True)
    contents = {
        "text": ("notes.txt", b"some text"),
        "empty": ("notes.txt", b""),
        "without array": ("c.npy", b"NUMPY"),
        "objects": ("c.npy", objects.getvalue()),
        "no bytes": ("c.npy", _npy(_descr(descr="'|S0'"))),
        "bzip2": ("c.npy", npys["a"]),
        "lzma": ("c.npy", npys["a"]),
        "encrypted": ("c.npy", npys["a"]),
    }
    name, data = contents[member]
    other = {"bzip2": zipfile.ZIP_BZIP2, "lzma": zipfile.ZIP_LZMA}.get(member, compression)
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("a.npy", npys["a"])
        archive.mkdir("folder") if hasattr(archive, "mkdir") else None
        archive.writestr(name, data, other)
        if member == "encrypted":
            archive.getinfo(name).flag_bits |= 1
        archive.writestr("b.npy", npys["b"])
    if member == "encrypted":  # its local header too
        content = bytearray(path.read_bytes())
        content[content.index(name.encode()) - 24] |= 1
        path.write_bytes(content)
    return name.removesuffix(".npy")


MEMBERS = ["text", "empty", "without array", "objects", "no bytes", "bzip2", "lzma", "encrypted"]
COMPRESSIONS = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]


@pytest.mark.hazard("untrusted-data#other-members")
@pytest.mark.parametrize("member", MEMBERS)
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_member_of_another_kind_leaves_the_others(tmp_path: Path, member: str, compression: int) -> None:
    path = tmp_path / "x.npz"
    name = _archive(path, member, compression)
    weights = zc.open_weights(str(path))
    assert list(weights) == ["a", name, "b"]
    assert weights["a"].tolist() == [0, 1, 2]
    assert {key: value.tolist() for key, value in weights.read(["a", "b"]).items()}["b"] == [1, 2, 3]
    assert weights.explain(["a", "b"]).possible
    assert weights.nbytes == 48
    errors = []
    for use in (
        lambda: weights[name],
        weights.read,
        lambda: zc.convert(weights, "numpy"),
        lambda: weights[name],
    ):
        with pytest.raises(zc.errors.ReadError, match=name.removesuffix(".txt")) as caught:
            use()
        errors.append(caught.value)
    assert errors[0] is not errors[-1]
    error = errors[-1]
    assert error.code in ("python-objects", "unreadable-member")
    assert "damaged" not in str(error)
    for plan in (weights.explain([name]), weights.explain()):
        assert not plan.possible
        assert (type(plan.error), plan.error.code, plan.error.remedy) == (
            zc.errors.ReadError,
            error.code,
            error.remedy,
        )
    if member == "encrypted":
        assert "pwd=password" in error.remedy
        return
    call = error.remedy.partition(" returns its")[0].partition(" loads it")[0].partition(" reads it")[0]
    value = eval(call, {"numpy": np, "zipfile": zipfile})
    assert value is not None
    with pytest.raises(zc.errors.ReadError):
        zc.share(weights)
    again = pickle.loads(pickle.dumps(weights))
    assert again["b"].tolist() == [1, 2, 3]


@pytest.mark.parametrize("member", MEMBERS)
@pytest.mark.parametrize("copy", [False, True])
def test_the_error_of_a_member_is_the_same_with_copies(tmp_path: Path, member: str, copy: bool) -> None:
    path = tmp_path / "x.npz"
    name = _archive(path, member)
    weights = zc.open_weights(path, copy=copy)
    assert weights["b"].tolist() == [1, 2, 3]
    with pytest.raises(zc.errors.ReadError):
        weights[name]


@pytest.mark.parametrize("member", ["text", "objects"])
def test_the_loader_reads_the_chosen_members(tmp_path: Path, member: str) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "x.npz"
    name = _archive(path, member)
    (batch,) = zc.loader(str(path), "numpy", batch_size=3, columns=["a", "b"])
    assert {key: value.tolist() for key, value in batch.items()} == {"a": [0, 1, 2], "b": [1, 2, 3]}
    with pytest.raises(zc.errors.ReadError, match=name.removesuffix(".txt")):
        zc.loader(str(path), "numpy", batch_size=3)


def test_an_object_array_names_the_call_that_runs_its_code(tmp_path: Path) -> None:
    path = str(tmp_path / "x.npy")
    np.save(path, np.array([None, "x"]), allow_pickle=True)
    with pytest.raises(zc.errors.ReadError, match="Python objects") as caught:
        zc.open_weights(path)
    assert eval(caught.value.remedy.partition(" loads")[0], {"numpy": np}).tolist() == [None, "x"]


@pytest.mark.parametrize("copy", [None, False, True])
def test_an_empty_compressed_member(tmp_path: Path, copy: bool | None) -> None:
    np.savez_compressed(tmp_path / "x.npz", a=np.zeros((0, 3), "f4"))
    weights = zc.open_weights(tmp_path / "x.npz", copy=copy)
    assert weights["a"].shape == (0, 3)
    assert weights.explain().possible
