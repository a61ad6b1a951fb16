"""``open_weights``: values, types, aliases, lifetimes and options of the lazy mapping."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.weight_files import NAMES, dtype_of, model, write

import zerocopy as zc
from zerocopy.protocols.array_interface import address
from zerocopy.weights import file

TARGETS = ("numpy", "torch", "jax", "tensorflow")


@pytest.fixture
def path(tmp_path: Path) -> str:
    return write(tmp_path / "model.safetensors", model(), metadata={"format": "pt"})


def values(array: object) -> np.ndarray:
    return zc.convert(array, "numpy").astype("float64")


@pytest.mark.parametrize("to", TARGETS)
def test_all_tensors_have_their_values_in_each_target(path: str, to: str) -> None:
    weights = zc.open_weights(path, to=to)
    read = weights.read()
    assert list(read) == list(weights) == list(model())
    for name, expected in model().items():
        assert zc.convert(read[name], "numpy").dtype == expected.dtype
        assert (values(read[name]) == expected.astype("float64")).all()
        assert (values(weights[name]) == expected.astype("float64")).all()


@pytest.mark.parametrize("name", NAMES)
def test_each_type_of_the_format_has_its_dtype(tmp_path: Path, name: str) -> None:
    array = np.array([0, 1, 1, 0], dtype_of(name))
    path = write(tmp_path / "x.safetensors", {"x": array})
    loaded = zc.open_weights(path)["x"]
    assert loaded.dtype == array.dtype
    assert loaded.tobytes() == array.tobytes()


def test_headers_are_known_without_reading_tensors(path: str) -> None:
    weights = zc.open_weights(path, to="torch")
    assert len(weights) == 3
    assert "layer.bias" in weights
    assert "absent" not in weights
    tensor = weights.tensors["layer.weight"]
    assert (tensor.dtype, tensor.shape, tensor.nbytes, tensor.file) == ("bfloat16", (16, 32), 1024, path)
    assert weights.metadata == {"format": "pt"}
    assert weights.nbytes == sum(array.nbytes for array in model().values())
    assert repr(weights) == f"<zerocopy.Weights: {path} with 3 tensors of 3.1 KiB, to='torch'>"


def test_an_absent_name_is_a_key_error_with_the_nearest_name(path: str) -> None:
    with pytest.raises(KeyError, match=r"no tensor 'layer\.wieght'; did you mean 'layer\.weight'"):
        zc.open_weights(path)["layer.wieght"]
    assert zc.open_weights(path).get("absent") is None


@pytest.mark.parametrize(("multiple", "aliases"), [(64, True), (8, False)])
def test_jax_aliases_aligned_tensors_and_one_block_has_the_others(
    tmp_path: Path, multiple: int, aliases: bool
) -> None:
    pytest.importorskip("jax")
    tensors = model()
    path = tmp_path / "model.safetensors"
    write(path, tensors, multiple=multiple)
    if not aliases:  # one more character in the header moves all tensors
        write(path, tensors, multiple=64, metadata={})
        data = path.read_bytes()
        length = int.from_bytes(data[:8], "little") + 8
        path.write_bytes(length.to_bytes(8, "little") + data[8 : 8 + length - 8] + b" " * 8 + data[length:])
    weights = zc.open_weights(str(path), to="jax")
    plan = weights.explain()
    assert plan.zero_copy is aliases
    assert plan.copied_bytes == (0 if aliases else weights.nbytes)
    assert all(leaf.zero_copy is aliases for leaf in plan.leaves.values())
    read = weights.read()
    assert zc.shares_memory(weights, read) is aliases
    places = [array.unsafe_buffer_pointer() for array in read.values()]
    assert all(place % 64 == 0 for place in places)
    if not aliases:
        (reason,) = plan.leaves["['layer.bias']"].reasons
        assert reason.code == "misaligned"
        assert reason.remedy.startswith(f"zerocopy align {path}")
        assert max(places) - min(places) < weights.nbytes  # in one block
        with pytest.raises(zc.CopyRequiredError, match=f"zerocopy align {path}"):
            zc.open_weights(str(path), to="jax", copy=False)["layer.bias"]


@pytest.mark.parametrize("to", [*TARGETS, "pyarrow.Tensor"])
@pytest.mark.parametrize("options", [{}, {"copy": True}, {"writable": True}, {"dtype": "float32"}])
def test_the_plan_of_each_tensor_is_what_happens(tmp_path: Path, to: str, options: dict[str, bool]) -> None:
    tensors = {**model(), "odd": np.ones(3, "float32"), "scalar": np.array(1.0, "float32")}
    weights = zc.open_weights(write(tmp_path / "m.safetensors", tensors), to=to, **options)
    mapped = zc.convert(weights, "numpy")
    for name in tensors:
        (plan,) = weights.explain([name]).leaves.values()
        if not plan.possible:
            with pytest.raises(type(plan.error)):
                weights[name]
            continue
        assert plan.zero_copy is zc.shares_memory(mapped[name], weights[name]), (name, str(plan))
        assert plan.zero_copy is zc.shares_memory(mapped[name], weights.read([name])[name]), (name, str(plan))


@pytest.mark.parametrize("to", ["numpy", "torch"])
def test_aliases_are_at_the_addresses_of_one_mapping(path: str, to: str) -> None:
    weights = zc.open_weights(path, to=to, copy=False)
    first, again = (values_at(weights["embed.weight"]) for _ in range(2))
    bias = values_at(weights["layer.bias"])
    assert first == again
    tensors = weights.tensors
    assert bias - first == tensors["layer.bias"].offset - tensors["embed.weight"].offset
    assert weights.explain().zero_copy
    assert zc.explain(weights, to).zero_copy
    assert zc.shares_memory(weights, zc.convert(weights, to))


def values_at(array: object) -> int:
    return address(zc.convert(array, "numpy"))


def test_numpy_arrays_are_read_only_and_writable_copies_only_pages(path: str) -> None:
    before = Path(path).read_bytes()
    with pytest.raises(ValueError, match="read-only"):
        zc.open_weights(path)["layer.bias"][:] = 1
    weights = zc.open_weights(path, writable=True)
    array = weights["layer.bias"]
    array[:] = 7
    assert (weights["layer.bias"] == 7).all()  # the same pages
    assert (zc.open_weights(path)["layer.bias"] == model()["layer.bias"]).all()
    assert Path(path).read_bytes() == before


@pytest.mark.hazard("untrusted-data#writes-to-mapped-weights")
def test_a_write_to_a_tensor_of_torch_changes_this_process_alone(path: str) -> None:
    pytest.importorskip("torch")
    before = Path(path).read_bytes()
    weights = zc.open_weights(path, to="torch")
    assert "for this process alone" in weights.explain().leaves["['layer.bias']"].warnings[0]
    weights["layer.bias"].zero_()
    assert not weights["layer.bias"].any()
    assert Path(path).read_bytes() == before


@pytest.mark.parametrize("to", ["numpy", "torch", "jax"])
def test_copies_do_not_alias_the_mapping(path: str, to: str) -> None:
    weights = zc.open_weights(path, to=to, copy=True)
    read = weights.read()
    assert not zc.shares_memory(weights, read)
    assert weights.explain().copied_bytes == weights.nbytes
    os.truncate(path, 0)  # the copies stay readable
    for name, expected in model().items():
        assert (values(read[name]) == expected.astype("float64")).all()


def test_the_block_is_read_by_threads_in_parts(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "_CHUNK", 100)
    read = zc.open_weights(path, copy=True).read()
    assert all((values(read[name]) == array.astype("float64")).all() for name, array in model().items())


def test_a_cast_is_that_of_convert(path: str) -> None:
    pytest.importorskip("torch")
    array = zc.open_weights(path, to="torch", dtype="float32")["layer.weight"]
    assert str(array.dtype) == "torch.float32"


@pytest.mark.parametrize("to", ["numpy", "torch", "jax"])
def test_results_keep_the_file_alive(path: str, to: str) -> None:
    weights = zc.open_weights(path, to=to)
    read = weights.read()
    del weights
    os.unlink(path)
    gc.collect()
    for name, expected in model().items():
        assert (values(read[name]) == expected.astype("float64")).all()


def test_dropping_all_results_closes_the_files(path: str) -> None:
    def opened() -> int:
        names = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
        return sum(os.path.exists(name) and os.readlink(name) == path for name in names)

    read = zc.open_weights(path).read()
    assert opened() > 0
    del read
    gc.collect()
    assert opened() == 0


@pytest.mark.hazard("untrusted-data#weights-that-are-cut-off")
def test_a_file_that_is_cut_off_or_changed_is_refused_at_the_next_access(path: str) -> None:
    size = os.path.getsize(path)
    for change in (lambda: os.truncate(path, size - 1), lambda: os.utime(path, ns=(0, 0))):
        weights = zc.open_weights(path)
        change()
        with pytest.raises(zc.errors.ReadError, match="was changed after it was opened") as caught:
            weights["embed.weight"]
        assert caught.value.code == "changed-file"
        assert caught.value.file == path
        write(Path(path), model(), metadata={"format": "pt"})


def test_a_file_that_is_replaced_by_a_rename_keeps_its_values(path: str, tmp_path: Path) -> None:
    weights = zc.open_weights(path)
    other = write(tmp_path / "other", {"x": np.zeros(1)})
    os.replace(other, path)
    assert (weights["layer.bias"] == model()["layer.bias"]).all()
    assert list(zc.open_weights(path)) == ["x"]


def test_threads_get_the_same_mapping(path: str) -> None:
    weights = zc.open_weights(path)
    with ThreadPoolExecutor(8) as pool:
        arrays = list(pool.map(lambda _: weights["embed.weight"], range(64)))
    assert len({address(array) for array in arrays}) == 1


def _child(weights: object, queue: object) -> None:
    queue.put({name: float(array.astype("float64").sum()) for name, array in weights.items()})


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.full)])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning")
def test_another_process_reads_the_same_file(path: str, method: str) -> None:
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    weights = zc.open_weights(path)
    weights["layer.bias"]
    process = context.Process(target=_child, args=(weights, queue))
    process.start()
    sums = queue.get(timeout=60)
    process.join()
    assert sums == {name: float(array.astype("float64").sum()) for name, array in model().items()}


def test_a_pickle_names_the_file(path: str) -> None:
    pytest.importorskip("torch")
    data = pickle.dumps(zc.open_weights(path, to="torch", copy=True))
    assert len(data) < 500
    restored = pickle.loads(data)
    assert (restored.to, restored.explain().copied_bytes) == ("torch", restored.nbytes)


def test_a_pickle_of_a_relative_path_is_opened_in_another_folder(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(os.path.dirname(path))
    data = pickle.dumps(zc.open_weights(os.path.basename(path)))
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert list(pickle.loads(data)) == list(model())


def test_a_descriptor_that_the_program_closed_is_a_read_error(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(fd: int) -> os.stat_result:
        raise OSError(9, "Bad file descriptor")

    weights = zc.open_weights(path)
    monkeypatch.setattr(file, "os", SimpleNamespace(fstat=closed))
    with pytest.raises(zc.errors.ReadError, match="Bad file descriptor"):
        weights["layer.bias"]


def test_several_files_are_one_mapping(tmp_path: Path) -> None:
    first = write(tmp_path / "1.safetensors", {"a": np.ones(3)}, metadata={"x": "1"})
    second = write(tmp_path / "2.safetensors", {"b": np.zeros(2)})
    weights = zc.open_weights([first, Path(second)])
    assert list(weights) == ["a", "b"]
    assert weights.metadata == {"x": "1"}
    with pytest.raises(zc.errors.ReadError, match="the tensor 'a' is also in"):
        zc.open_weights([first, first])


def test_an_index_names_the_tensors_of_its_shards(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    write(tmp_path / "m-1.safetensors", {"a": np.ones(3), "unlisted": np.ones(1)})
    write(tmp_path / "m-2.safetensors", {"b": np.zeros(2)})
    index = tmp_path / "m.safetensors.index.json"
    places = {"b": "m-2.safetensors", "a": "m-1.safetensors"}
    index.write_text(json.dumps({"metadata": {"total_size": 40}, "weight_map": places}))
    weights = zc.open_weights(index, to="torch")
    assert list(weights) == ["b", "a"]
    assert weights.metadata == {"total_size": 40}
    assert weights["a"].tolist() == [1, 1, 1]


@pytest.mark.hazard("untrusted-data#index-outside-its-folder")
@pytest.mark.parametrize(
    ("places", "match"),
    [
        ({"a": "../m.safetensors"}, "not a file in its folder"),
        ({"a": "/etc/passwd"}, "not a file in its folder"),
        ({"a": ".."}, "not a file in its folder"),
        ({"a": 3}, "not a file in its folder"),
        ({"a": "m\0.safetensors"}, "not a file in its folder"),
        ({"a": "absent.safetensors"}, "does not exist"),
        ({"b": "m.safetensors"}, "does not have it"),
        (["m.safetensors"], "no weight_map"),
    ],
)
def test_an_index_that_is_not_valid_is_refused(tmp_path: Path, places: object, match: str) -> None:
    write(tmp_path / "m.safetensors", {"a": np.ones(3)})
    index = tmp_path / "m.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": places}))
    with pytest.raises(zc.errors.ReadError, match=match):
        zc.open_weights(index)


@pytest.mark.parametrize("to", ["numpy", "torch", "jax"])
def test_tensors_without_elements_and_of_no_dimension(tmp_path: Path, to: str) -> None:
    tensors = {"scalar": np.array(3.0, "f4"), "empty": np.zeros((0, 3), "i4"), "none": np.zeros(0, "u1")}
    read = zc.open_weights(write(tmp_path / "x.safetensors", tensors), to=to).read()
    assert {name: tuple(array.shape) for name, array in read.items()} == {
        name: array.shape for name, array in tensors.items()
    }
    assert float(read["scalar"]) == 3


def test_a_file_without_tensors_is_an_empty_mapping(tmp_path: Path) -> None:
    weights = zc.open_weights(write(tmp_path / "x.safetensors", {}))
    assert dict(weights) == {}
    assert weights.read() == {}
    assert weights.explain().leaves == {}


@pytest.mark.parametrize("name", ["F4", "F6_E2M3"])
def test_packed_types_are_bytes_with_their_name(tmp_path: Path, name: str) -> None:
    pytest.importorskip("torch")
    from helpers.weight_files import file_of

    path = tmp_path / "x.safetensors"
    nbytes = 4 if name == "F4" else 6
    header = {"x": {"dtype": name, "shape": [2, 4], "data_offsets": [0, nbytes]}}
    path.write_bytes(file_of(header, bytes(range(nbytes))))
    weights = zc.open_weights(path, to="torch")
    tensor = weights.tensors["x"]
    assert (tensor.packed, tensor.packed_shape, tensor.dtype) == (name, (2, 4), "uint8")
    assert weights["x"].tolist() == [[*range(nbytes // 2)], [*range(nbytes // 2, nbytes)]]
    assert f"the bytes of {name}" in weights.explain().leaves["['x']"].warnings[-1]


def test_the_library_reads_and_writes_the_same_files(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.torch")
    import torch

    generator = torch.Generator().manual_seed(0)
    tensors = {f"t{i}": torch.rand(i, 3, generator=generator).to(torch.bfloat16) for i in range(1, 9)}
    path = str(tmp_path / "x.safetensors")
    library.save_file(tensors, path, metadata={"a": "b"})
    read = zc.open_weights(path, to="torch").read()
    assert set(read) == set(tensors)
    assert all(torch.equal(read[name], tensor) for name, tensor in tensors.items())
    ours = write(tmp_path / "y.safetensors", model())
    assert all(
        (values(array) == values(model()[name])).all() for name, array in library.load_file(ours).items()
    )


def test_targets_and_options_are_checked_before_files_are_opened(path: str) -> None:
    with pytest.raises(zc.errors.UnknownFrameworkError):
        zc.open_weights(path, to="tpu")
    with pytest.raises(ValueError, match="copy must be True, False or None"):
        zc.open_weights(path, copy=1)


def test_the_fix_of_a_refusal_loads_the_array_that_it_names_x(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = write(tmp_path / "x.safetensors", {"x": np.ones((2, 2), dtype_of("bfloat16"))})
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.open_weights(path, to="pyarrow.Tensor")["x"]
    assert caught.value.remedy.startswith(f"x = zc.open_weights({path!r})['x']; zc.convert(x, ")
    load, call = caught.value.calls[0].split("; ")
    names = {"zc": zc}
    exec(load, names)
    assert eval(call, names).shape == (2, 2)


def test_a_refusal_names_the_tensor_and_the_call(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    path = write(tmp_path / "x.safetensors", {"x": np.array([1, 2**40])})
    with pytest.raises(zc.LossyConversionError, match=r"^open_weights\('.*', to='torch'\)\['x'\]"):
        zc.open_weights(path, to="torch", dtype="int32")["x"]


def test_a_module_is_a_target_and_its_name_is_in_the_pickle(path: str) -> None:
    pytest.importorskip("torch")
    import torch

    weights = zc.open_weights(path, to=torch)
    assert weights.to == "torch"
    assert pickle.loads(pickle.dumps(weights))["layer.bias"].dtype == torch.float16


def test_a_type_of_ml_dtypes_without_it_names_the_package(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    to_numpy = file.to_numpy
    monkeypatch.setattr(file, "to_numpy", lambda dtype: None if dtype.name == "bfloat16" else to_numpy(dtype))
    with pytest.raises(zc.FrameworkNotInstalledError, match="pip install ml_dtypes"):
        zc.open_weights(path)


def test_a_recording_counts_the_bytes_that_are_copied_and_why(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    path = write(
        tmp_path / "m.safetensors",
        {"a": np.ones(16, "f4"), "odd": np.ones(3, "f4"), "b": np.ones(8, "f4")},
        multiple=64,
    )
    weights = zc.open_weights(path, to="jax")
    plan = weights.explain()
    assert plan.copied_bytes == 32
    with zc.monitor.record() as recording:
        weights.read()
    rows = recording.rows
    assert sum(row.copied_bytes for row in rows) == 32
    assert sum(row.aliased_bytes for row in rows) == plan.aliased_bytes == 76
    assert {row.file for row in rows} == {__file__}
    (copied,) = [row for row in rows if row.copied_bytes]
    assert copied.why.startswith("JAX requires memory aligned to 64 bytes")
    assert "(zc.open_weights(" in copied.fix  # the caller has no array x
    halves = write(tmp_path / "halves.safetensors", {"a": np.full(16, 0.5, "f4")}, multiple=64)
    with zc.monitor.record() as recording, pytest.raises(zc.LossyConversionError):
        zc.open_weights(halves, to="torch", dtype="uint8").read()
    assert recording.rows[0].fix.startswith("x = zc.open_weights(")
