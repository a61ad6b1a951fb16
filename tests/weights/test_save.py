"""``save``: the library reads the same bits, tensors are aligned, and errors and kills leave the old file."""

from __future__ import annotations

import errno
import json
import math
import os
import resource
import stat
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from helpers.frameworks import HOST
from helpers.weight_files import NAMES, dtype_of, file_of, gguf_bytes, model
from hypothesis import given, settings, strategies as st

import zerocopy as zc
from zerocopy.dtype import by_name
from zerocopy.weights import safetensors as own

library = pytest.importorskip("safetensors")

linux = pytest.mark.skipif(sys.platform != "linux", reason="files without a name, limits and signals")


def header(path: object) -> dict[str, Any]:
    data = Path(str(path)).read_bytes()
    length = int.from_bytes(data[:8], "little")
    assert (8 + length) % 8 == 0
    return json.loads(data[8 : 8 + length])


def by_library(path: object) -> dict[str, tuple[str, list[int], bytes]]:
    """Return the types, shapes and bytes that the parser of the safetensors library reads."""
    tensors = library.deserialize(Path(str(path)).read_bytes())
    return {name: (each["dtype"], each["shape"], bytes(each["data"])) for name, each in tensors}


def expected(array: np.ndarray) -> tuple[str, list[int], bytes]:
    return NAMES[array.dtype.name], list(array.shape), array.astype(array.dtype.newbyteorder("<")).tobytes()


def names_in(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "model.safetensors")


# -- values and places --------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_each_type_has_the_same_bits_in_the_library(path: str, name: str) -> None:
    rng = np.random.default_rng(0)
    kind = dtype_of(name)
    data = rng.integers(0, 2 if name == "bool" else 256, 24 * kind.itemsize, "u1").view(kind)
    arrays = {"x": data.reshape(2, 3, 4), "one": data[:1].reshape(()), "none": data[:0].reshape(0, 3)}
    assert zc.save(arrays, path) == path
    assert by_library(path) == {name: expected(array) for name, array in arrays.items()}
    weights = zc.open_weights(path)
    assert all(weights[name].tobytes() == arrays[name].tobytes() for name in arrays)
    torch = pytest.importorskip("safetensors.torch")
    if name != "float8_e4m3fnuz":  # not a type of the library's table for torch
        assert torch.load_file(path)["x"].shape == (2, 3, 4)


@pytest.mark.parametrize("source", HOST)
def test_arrays_of_each_framework_have_their_bits(path: str, source: str) -> None:
    dtypes = ["float32", "int64", "uint8", "bfloat16", "float16", "bool", "float8_e4m3fn", "complex64"]
    arrays = {}
    for name in dtypes:
        array = np.arange(6).reshape(2, 3).astype(dtype_of(name))
        try:
            arrays[name] = array, zc.convert(array, source)
        except zc.ZeroCopyError:
            continue  # the framework lacks the type, or two dimensions
    flat = np.arange(7, dtype="float32")
    arrays["flat"] = flat, zc.convert(flat, source)
    zc.save({name: array for name, (_, array) in arrays.items()}, path)
    read = by_library(path)
    for name, (array, given_array) in arrays.items():
        back = np.asarray(zc.convert(given_array, "numpy"))
        assert back.dtype == array.dtype or source in ("mxnet", "jax")
        assert read[name] == expected(back)


_SHAPES = st.lists(st.integers(0, 5), max_size=4)
_TENSORS = st.dictionaries(
    st.text(max_size=6).filter(lambda n: n != own.METADATA and not n.startswith(own.PADDING)),
    st.tuples(st.sampled_from(sorted(NAMES)), _SHAPES, st.sampled_from("CFVS")),
    max_size=8,
)


def laid_out(kind: str, shape: list[int], order: str, seed: int) -> np.ndarray:
    dtype = dtype_of(kind)
    rng = np.random.default_rng(seed)
    size = math.prod(shape) * dtype.itemsize
    array = rng.integers(0, 2 if kind == "bool" else 256, size, "u1").view(dtype).reshape(shape)
    if order == "F":
        return np.asfortranarray(array)
    if order == "V" and shape:
        return array[::-1]
    if order == "S" and dtype.isbuiltin == 1:
        return array.astype(dtype.newbyteorder(">"))
    return array


@settings(max_examples=60, deadline=None)
@given(
    _TENSORS,
    st.sampled_from([8, 64, 4096]),
    st.booleans(),
    st.none() | st.integers(1, 300),
    st.none() | st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
)
def test_mappings_round_trip(tmp_path_factory: Any, tensors, align, pad, limit, metadata) -> None:
    folder = tmp_path_factory.mktemp("saved")
    arrays = {name: laid_out(*each, i) for i, (name, each) in enumerate(tensors.items())}
    options = {"align": align, "pad": pad, "metadata": metadata, "max_shard_size": limit}
    opened = zc.save(arrays, folder / "m.safetensors", **options)
    weights = zc.open_weights(opened)
    assert set(weights) == set(arrays)
    for name, value in (metadata or {}).items():
        assert name == "total_size" or weights.metadata[name] == value
    read: dict[str, Any] = {}
    for file in folder.glob("*.safetensors"):
        tensors_of_file = by_library(file)
        assert library.safe_open(file, "np").metadata() == (metadata or None)
        assert not any(name.startswith(own.PADDING) for name in tensors_of_file) or pad
        read |= tensors_of_file
    for name, array in arrays.items():
        assert read[name] == expected(array)
        tensor = weights.tensors[name]
        if pad or tensor.nbytes % align == 0:
            assert tensor.offset % align == 0
        assert tensor.offset % array.dtype.itemsize == 0
    assert not [name for name in names_in(folder) if name.endswith(".tmp")]


def test_jax_aliases_all_tensors_of_whole_lines_and_with_pad_the_others(path: str) -> None:
    pytest.importorskip("jax")
    odd = {"scale": np.array(2.0, "f4"), "mask": np.array([True, False, True]), **model()}
    zc.save(odd, path)
    plan = zc.open_weights(path, to="jax").explain(model())
    assert plan.zero_copy
    assert {own.PADDING in text for text in header(path)} == {False}
    zc.save(odd, path, pad=True)
    read = zc.open_weights(path, to="jax", copy=False).read()
    assert {name: zc.convert(array, "numpy").tobytes() for name, array in read.items()} == {
        name: array.tobytes() for name, array in odd.items()
    }


def test_packed_types_keep_their_type(tmp_path: Path, path: str) -> None:
    torch = pytest.importorskip("torch")
    pairs = torch.arange(8, dtype=torch.uint8).reshape(2, 4).view(torch.float4_e2m1fn_x2)
    zc.save({"x": pairs}, path)
    assert header(path)["x"]["dtype"] == "F4"
    assert by_library(path)["x"][1:] == ([2, 8], bytes(range(8)))
    six = tmp_path / "six.safetensors"
    entry = {"dtype": "F6_E2M3", "shape": [2, 4], "data_offsets": [0, 6]}
    six.write_bytes(file_of({"x": entry}, bytes(range(6))))
    zc.save(zc.open_weights(six), path)
    assert header(path)["x"] == entry
    with pytest.raises(zc.UnsupportedConversionError, match="no float4_e2m1fn"):
        zc.save({"x": np.zeros(4, ml_dtypes.float4_e2m1fn)}, path)
    gguf = tmp_path / "m.gguf"
    gguf.write_bytes(gguf_bytes({"x": ((1, 32), 8, bytes(34))}))
    weights = zc.open_weights(gguf)
    with pytest.raises(zc.UnsupportedConversionError, match="type Q8_0, which safetensors lacks") as caught:
        zc.save(weights, path)
    exec(caught.value.remedy.partition(" saves")[0], {"zc": zc, "weights": weights, "path": path})
    assert (header(path)["x"]["dtype"], zc.open_weights(path)["x"].nbytes) == ("U8", 34)


def test_values_that_are_not_their_bytes_are_resolved(path: str) -> None:
    torch = pytest.importorskip("torch")
    z = torch.tensor([1 + 2j], dtype=torch.complex64)
    booleans = np.array([255, 0, 1], "u1").view(bool)
    parameter = torch.nn.Parameter(torch.ones(3))
    zc.save(
        {"conj": z.conj(), "bools": booleans, "parameter": parameter, "swapped": np.arange(3, dtype=">i2")},
        path,
    )
    weights = zc.open_weights(path)
    assert weights["conj"].tolist() == [1 - 2j]
    assert weights["bools"].tolist() == [True, False, True]
    assert weights["parameter"].tolist() == [1, 1, 1]
    assert weights["swapped"].tolist() == [0, 1, 2]


def test_arrays_of_a_device_are_copied_to_the_host_once(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from zerocopy.source import Source
    from zerocopy.strided_view import StridedView
    from zerocopy.weights import save as module

    copies = []
    array = np.arange(6, dtype="f4").reshape(2, 3)

    def to_host(stream: int | None) -> np.ndarray:
        copies.append(stream)
        return array

    def refuse() -> np.ndarray:
        raise AssertionError("the memory is on a device")

    view = StridedView(64, (2, 3), (12, 4), by_name("float32"), zc.Device("cuda", 0), False, None)
    source = Source("torch.Tensor", view, host=refuse, to_host=to_host)
    monkeypatch.setattr(module, "describe_array", lambda value: source)
    with pytest.raises(zc.errors.OptionError):
        zc.save({"x": object(), "__metadata__": object()}, path)
    assert copies == []
    zc.save({"x": object()}, path)
    assert copies == [None]
    assert by_library(path) == {"x": expected(array)}


def test_arrays_without_values_are_refused(path: str) -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(zc.ZeroCopyError, match=r"\['x'\]: "):
        zc.save({"x": torch.empty(3, device="meta")}, path)
    jax = pytest.importorskip("jax")
    with pytest.raises(zc.ZeroCopyError, match=r"\['x'\]: "):
        jax.jit(lambda x: zc.save({"x": x}, path))(np.ones(3))
    assert not os.path.exists(path)


def test_tied_tensors_are_written_twice(path: str) -> None:
    torch = pytest.importorskip("torch")
    shared = torch.arange(16.0)
    zc.save({"embed": shared, "head": shared}, path)
    weights = zc.open_weights(path, to="torch")
    assert weights.tensors["embed"].offset != weights.tensors["head"].offset
    assert torch.equal(weights["embed"], weights["head"])


def test_the_memory_of_contiguous_arrays_is_written_without_a_copy(path: str) -> None:
    import tracemalloc

    arrays = {f"{i}": np.ones(1 << 20) for i in range(4)}
    arrays["transposed"] = np.ones((1 << 10, 1 << 9)).T
    zc.save(arrays, path)
    tracemalloc.start()
    try:
        zc.save(arrays, path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < arrays["transposed"].nbytes + (2 << 20)


# -- tensors of open files ------------------------------------------------------------------


def test_the_dtype_of_a_mapping_is_that_of_its_values(path: str) -> None:
    zc.save({"w": np.arange(3, dtype="f4")}, path)
    zc.save(zc.open_weights(path, dtype="float16"), path)
    assert by_library(path) == {"w": expected(np.arange(3, dtype="f2"))}


def test_compressed_tensors_are_inflated_one_by_one(tmp_path: Path, path: str) -> None:
    import tracemalloc

    archive = tmp_path / "m.npz"
    arrays = {name: np.full((1 << 9, 1 << 10), i, "f8") for i, name in enumerate("abcd")}
    arrays["F"] = np.asfortranarray(np.arange(6, dtype=">i2").reshape(2, 3))
    np.savez_compressed(archive, none=np.ones(0), flags=np.array([True, False]), **arrays)
    weights = zc.open_weights(archive)
    zc.save(weights, path)
    tracemalloc.start()
    try:
        zc.save(weights, path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * arrays["a"].nbytes
    read = by_library(path)
    assert {name: read[name] for name in arrays} == {name: expected(each) for name, each in arrays.items()}
    assert read["flags"][2] == b"\1\0"
    np.savez_compressed(archive, w=np.ones((2, 2), "M8[s]"))
    with pytest.raises(zc.UnsupportedConversionError, match="datetime64"):
        zc.save(zc.open_weights(archive), path)


def test_a_source_that_changes_meanwhile_is_refused(
    tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = zc.save(model(), tmp_path / "source.safetensors")
    write = own.write

    def changed(*arguments: Any) -> None:
        write(*arguments)
        os.utime(source, (1, 1))

    monkeypatch.setattr(own, "write", changed)
    with pytest.raises(zc.errors.ReadError, match="was changed"):
        zc.save(zc.open_weights(source), path)
    assert names_in(tmp_path) == ["source.safetensors"]


def test_errors_of_a_source_keep_their_name(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from zerocopy.weights import save as module

    def fails(*arguments: Any) -> Any:
        raise FileNotFoundError(2, "no such file", "source.h5")
        yield

    monkeypatch.setattr(module, "_parts", fails)
    with pytest.raises(FileNotFoundError) as caught:
        zc.save(ONE, path)
    assert caught.value.filename == "source.h5"
    assert not os.path.exists(path)


# -- shards ----------------------------------------------------------------------------------


def test_shards_have_hugging_faces_names_and_index(tmp_path: Path, path: str) -> None:
    arrays = {name: np.full(100, i, "f4") for i, name in enumerate("abcde")}
    index = zc.save(arrays, path, max_shard_size="1kB", metadata={"format": "pt"})
    assert names_in(tmp_path) == [
        *(f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)),
        "model.safetensors.index.json",
    ]
    content = json.loads(Path(index).read_text())
    assert content["metadata"] == {"total_size": 2000}
    assert content["weight_map"]["c"] == "model-00002-of-00003.safetensors"
    weights = zc.open_weights(index, to="numpy")
    assert {name: array.tolist() for name, array in weights.read().items()} == {
        name: array.tolist() for name, array in arrays.items()
    }
    hub = pytest.importorskip("huggingface_hub")
    torch = pytest.importorskip("torch")
    module = torch.nn.ParameterDict({name: torch.zeros(100) for name in arrays})
    hub.load_torch_model(module, tmp_path, safe=True, strict=True)
    assert module["e"].tolist() == [4.0] * 100


def test_one_file_is_enough_below_the_limit(tmp_path: Path, path: str) -> None:
    assert zc.save({"a": np.ones(3)}, path, max_shard_size="1GB") == path
    assert names_in(tmp_path) == ["model.safetensors"]


def test_a_save_in_the_other_form_is_refused(tmp_path: Path, path: str) -> None:
    arrays = {"a": np.ones(3), "b": np.ones(3)}
    index = zc.save(arrays, path, max_shard_size=24)
    before = names_in(tmp_path)
    with pytest.raises(zc.errors.OptionError, match="from an earlier save in another form") as caught:
        zc.save(arrays, path)
    assert names_in(tmp_path) == before
    exec(caught.value.remedy.partition("; or")[0], {})
    zc.save(arrays, path)
    with pytest.raises(zc.errors.OptionError, match="from an earlier save in another form"):
        zc.save(arrays, path, max_shard_size=24)
    assert not os.path.exists(index)


def test_shards_of_an_older_index_are_removed(tmp_path: Path, path: str) -> None:
    arrays = {name: np.full(100, i, "f4") for i, name in enumerate("abcde")}
    zc.save(arrays, path, max_shard_size=800)
    (tmp_path / "model-00001-of-00004.safetensors").write_bytes(b"of no index")
    index = Path(zc.save(arrays, path, max_shard_size=1200))
    kept = [
        *("model-00001-of-00002.safetensors", "model-00001-of-00004.safetensors"),
        *("model-00002-of-00002.safetensors", "model.safetensors.index.json"),
    ]
    assert names_in(tmp_path) == kept
    other = tmp_path / "other.safetensors"
    other.write_bytes(b"not a shard of this name")
    index.write_text(json.dumps({"weight_map": {"x": other.name}}))
    zc.save(arrays, path, max_shard_size=1200)
    index.write_text("{")
    zc.save(arrays, path, max_shard_size=1200)
    assert names_in(tmp_path) == [*kept, other.name]


# -- refusals ---------------------------------------------------------------------------------


class Broken:
    """A producer whose export fails."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **options: object) -> object:
        raise ValueError("the producer's own")


ONE = {"x": np.ones(3)}
REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "not a mapping": ([np.ones(3)], {}, "list is not a mapping of names to arrays"),
    "text": ({"x": "text"}, {}, r"save\('.*'\)\['x'\]"),
    "nested": ({"x": {"y": np.ones(3)}}, {}, r"\['x'\]: "),
    "object": ({"a": np.ones(1), "x": np.array([object()])}, {}, r"\['x'\]: "),
    "date": ({"x": np.zeros(3, "M8[s]")}, {}, "datetime64"),
    "records": ({"x": np.zeros(3, [("a", "f4")])}, {}, r"\['x'\]: "),
    "complex128": ({"x": np.ones(3) * 1j}, {}, r"no complex128.\n  To fix: zc.convert\(x, .*'complex64'\)"),
    "producer": ({"x": Broken()}, {}, "the producer's own"),
    "number as a name": ({1: np.ones(3)}, {}, "the name 1 is not text"),
    "metadata as a name": ({"__metadata__": np.ones(3)}, {}, "is reserved"),
    "padding as a name": ({"zerocopy.padding.0": np.ones(3)}, {}, "is reserved"),
    "surrogates in a name": ({"\ud800": np.ones(3)}, {}, "cannot be encoded as UTF-8"),
    "metadata of numbers": (ONE, {"metadata": {"a": 1}}, "mapping of text to text"),
    "metadata of text": (ONE, {"metadata": "text"}, "mapping of text to text"),
    "surrogates in metadata": (ONE, {"metadata": {"a": "\udcff"}}, "mapping of text to text"),
    "align of 3": (ONE, {"align": 3}, "align=3 is not a power of 2"),
    "align of 4": (ONE, {"align": 4}, "align=4 is not a power of 2 from 8"),
    "align of 128 MiB": (ONE, {"align": 1 << 27}, f"from 8 to {1 << 26}.\n  To fix: .*align="),
    "align of text": (ONE, {"align": "64"}, "is not a power of 2"),
    "negative size": (ONE, {"max_shard_size": -1}, "max_shard_size=-1"),
    "unknown unit": (ONE, {"max_shard_size": "5 lots"}, "max_shard_size='5 lots'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_and_changes_nothing(tmp_path: Path, path: str, case: str) -> None:
    Path(path).write_bytes(b"old")
    mapping, options, message = REFUSED[case]
    with pytest.raises(zc.ZeroCopyError, match=message) as caught:
        zc.save(mapping, path, **options)
    assert caught.value.remedy
    assert isinstance(caught.value, (TypeError, ValueError))
    assert names_in(tmp_path) == ["model.safetensors"]
    assert Path(path).read_bytes() == b"old"


def test_masked_and_sparse_arrays_are_refused(path: str) -> None:
    torch = pytest.importorskip("torch")
    for value in (np.ma.masked_array([1, 2], [0, 1]), torch.eye(3).to_sparse()):
        with pytest.raises(zc.ZeroCopyError, match=r"\['x'\]: "):
            zc.save({"x": value}, path)


@pytest.mark.parametrize(
    ("name", "error"),
    [("m.bin", zc.errors.OptionError), ("m\0.safetensors", zc.errors.OptionError), (b"m", TypeError)],
)
def test_a_path_of_another_kind_is_refused(name: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        zc.save(ONE, name)


def test_a_folder_or_a_pipe_is_not_replaced(tmp_path: Path) -> None:
    for name, make in (("a.safetensors", os.mkdir), ("b.safetensors", os.mkfifo)):
        make(tmp_path / name)
        with pytest.raises(zc.errors.OptionError, match="exists and is not a file"):
            zc.save(ONE, tmp_path / name)


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    path = str(tmp_path / "none" / "m.safetensors")
    with pytest.raises(FileNotFoundError, match="pass a path in an existing folder") as caught:
        zc.save(ONE, path)
    assert caught.value.filename == path


@linux
@pytest.mark.parametrize("has_nameless_files", [True, False])
def test_names_of_255_bytes_fit_and_longer_ones_are_refused_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_nameless_files: bool
) -> None:
    if not has_nameless_files:
        monkeypatch.delattr(os, "O_TMPFILE")
    path = tmp_path / f"{'x' * 243}.safetensors"
    for value in (1, 2):
        zc.save({"x": np.full(3, value)}, path)
        assert zc.open_weights(path)["x"][0] == value
    monkeypatch.setattr(own, "write", None)
    with pytest.raises(OSError, match="name too long") as caught:
        zc.save(ONE, tmp_path / f"x{path.name}")
    assert caught.value.filename == str(tmp_path / f"x{path.name}")
    assert names_in(tmp_path) == [path.name]


@linux
def test_a_folder_that_cannot_be_read_is_enough(run_python: Any) -> None:
    completed = run_python(
        """
import os, shutil, tempfile
import numpy as np, zerocopy as zc
folder = tempfile.mkdtemp(dir="/tmp")
path = f"{folder}/m.safetensors"
zc.save({"x": np.ones(3)}, f"{folder}/other.safetensors")
os.chmod(folder, 0o333)
is_root = os.geteuid() == 0
if is_root:  # root can read any folder
    os.seteuid(65534)
try:
    for value in (1, 2):
        zc.save({"x": np.full(3, value)}, path)
    print(zc.open_weights(path)["x"])
finally:
    if is_root:
        os.seteuid(0)
    os.chmod(folder, 0o700)
    shutil.rmtree(folder)
"""
    )
    assert completed.stdout == "[2 2 2]\n", completed.stderr


@linux
def test_a_folder_that_the_system_cannot_sync_is_enough(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync, number = os.fsync, errno.EINVAL

    def fails(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fails)
    zc.save(ONE, path)
    number = errno.EIO
    with pytest.raises(OSError, match="pass a path in an existing folder") as caught:
        zc.save(ONE, path)
    assert caught.value.filename == path


@linux
def test_a_folder_that_cannot_be_written_to_is_named(run_python: Any, tmp_path: Path) -> None:
    completed = run_python(
        f"""
import os
import numpy as np, zerocopy as zc
path = {str(tmp_path)!r} + "/m.safetensors"
zc.save({{"x": np.ones(3)}}, path)
os.chmod({str(tmp_path)!r}, 0o500)
if os.geteuid() == 0:  # root can write to any folder
    os.seteuid(65534)
try:
    zc.save({{"x": np.ones(4)}}, path)
except PermissionError as error:
    print(error.filename == path)
"""
    )
    tmp_path.chmod(0o700)
    assert completed.stdout == "True\n", completed.stderr
    assert zc.open_weights(tmp_path / "m.safetensors")["x"].shape == (3,)


def test_permissions_of_the_old_file_stay(tmp_path: Path, path: str) -> None:
    mask = os.umask(0o027)
    try:
        zc.save(ONE, path)
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o640
        os.chmod(path, 0o604)
        zc.save(ONE, path)
    finally:
        os.umask(mask)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o604


def test_a_file_can_be_saved_to_itself(tmp_path: Path, path: str) -> None:
    zc.save(model(), path)
    before = zc.open_weights(path)
    held = before["embed.weight"]
    zc.save(before, path)
    assert (held == model()["embed.weight"]).all()
    assert set(zc.open_weights(path)) == set(model())
    assert names_in(tmp_path) == ["model.safetensors"]


@pytest.mark.parametrize("has_nameless_files", [True, False])
def test_an_error_while_writing_leaves_the_old_file(
    tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch, has_nameless_files: bool
) -> None:
    if not has_nameless_files:
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    zc.save(ONE, path)
    before = Path(path).read_bytes()

    def fails(file: Any, *arguments: Any) -> None:
        file.write(b"part")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(own, "write", fails)
        with pytest.raises(KeyboardInterrupt):
            zc.save(model(), path)
    assert names_in(tmp_path) == ["model.safetensors"]
    assert Path(path).read_bytes() == before
    zc.save(model(), path)
    assert set(zc.open_weights(path)) == set(model())
    assert names_in(tmp_path) == ["model.safetensors"]


@linux
@pytest.mark.parametrize("has_nameless_files", [True, False])
def test_a_full_disk_leaves_the_old_file(run_python: Any, tmp_path: Path, has_nameless_files: bool) -> None:
    completed = run_python(
        f"""
import os, resource
if not {has_nameless_files}:
    del os.O_TMPFILE
import numpy as np, zerocopy as zc
os.chdir({str(tmp_path)!r})
zc.save({{"x": np.ones(3)}}, "m.safetensors")
before = open("m.safetensors", "rb").read()
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
for size in (1 << 18, 1 << 22):
    try:
        zc.save({{f"{{i}}": np.ones(size) for i in range(2)}}, "m.safetensors")
    except OSError as error:
        print(error.filename, str(error).count("that has room"))
print(os.listdir(), open("m.safetensors", "rb").read() == before)
"""
    )
    assert completed.stderr == ""
    assert completed.stdout == "m.safetensors 1\n" * 2 + "['m.safetensors'] True\n"
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 1 << 20


KILLED = """
import os, signal, sys
import numpy as np, zerocopy as zc
from zerocopy.weights import safetensors
os.chdir({folder!r})
if {named}:
    del os.O_TMPFILE
limit = {limit}

def arrays(value):
    return {{name: np.full(300, value, "f4") for name in "abcd"}}

def save(value):
    return zc.save(arrays(value), "m.safetensors", max_shard_size=limit)

events, killed_at = 0, None

def event():
    global events
    events += 1
    if events == killed_at:
        os.kill(os.getpid(), signal.SIGKILL)

def watched(function):
    def call(*arguments, **options):
        event()
        result = function(*arguments, **options)
        event()
        return result
    return call

class Watched:
    def __init__(self, file): self.file = file
    def write(self, data):
        self.file.write(data)
        self.file.stream.flush()
        event()

write = safetensors.write
safetensors.write = lambda file, *rest: write(Watched(file), *rest)
for name in ("open", "fsync", "link", "replace", "unlink", "chmod"):
    setattr(os, name, watched(getattr(os, name)))

opened = save(1)
first, total = events, None
seen = set()
for point in range(1, 200):
    save(1)
    child = os.fork()
    if not child:
        events, killed_at = 0, point
        save(2)
        os._exit(0)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    left = [name for name in os.listdir() if name.endswith(".tmp")]
    try:
        values = {{float(array[0]) for array in zc.open_weights(opened).read().values()}}
    except FileNotFoundError:
        values = set()
    seen.add(tuple(sorted(values)))
    if not values <= {{1.0}} and not values <= {{2.0}}:
        print("mixed", point, values)
    if len(left) > ({named} or 1) * 9:
        print("left", point, left)
    for name in left:
        os.unlink(name)
    if not ended:
        break
print(sorted(seen), point > 10)
"""


@linux
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("limit", [None, 2400])
def test_a_kill_at_any_point_leaves_the_old_or_the_new_file(
    run_python: Any, tmp_path: Path, limit: int | None, named: bool
) -> None:
    completed = run_python(KILLED.format(folder=str(tmp_path), named=named, limit=limit))
    assert completed.stderr == ""
    seen = [(1.0,), (2.0,)] if limit is None else [(), (1.0,), (2.0,)]
    assert completed.stdout == f"{seen} True\n"


@linux
def test_a_killed_process_leaves_no_file(run_python: Any, tmp_path: Path) -> None:
    completed = run_python(
        f"""
import os, signal
import numpy as np, zerocopy as zc
from zerocopy.weights import safetensors
os.chdir({str(tmp_path)!r})
write = safetensors.write
def killed(file, *rest):
    write(file, *rest)
    file.stream.flush()
    os.kill(os.getpid(), signal.SIGKILL)
safetensors.write = killed
zc.save({{"x": np.ones(1 << 18)}}, "m.safetensors")
"""
    )
    assert completed.returncode == -9
    assert names_in(tmp_path) == []
