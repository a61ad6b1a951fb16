"""``open_weights`` of GGUF files: types, quantized blocks, metadata; hostile headers."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from helpers.tiers import sampled
from helpers.weight_files import check, dtype_of, gguf_bytes, mutated, number, text

import zerocopy as zc
from zerocopy.weights import gguf

TYPES = {name: number for number, name in gguf._PLAIN.items()}


def array_of(name: str) -> np.ndarray:
    return np.arange(6).reshape(2, 3).astype(dtype_of(name))


def model() -> bytes:
    tensors = {name: ((2, 3), kind, array_of(name).tobytes()) for name, kind in TYPES.items()}
    tensors["blocks"] = ((4, 64), 8, bytes(range(256)) + bytes(16))
    metadata = {
        "general.architecture": struct.pack("<I", 8) + text("llama"),
        "general.alignment": number(4, "I", 32),
        "rope": number(6, "f", 0.5),
        "tokens": struct.pack("<IIQ", 9, 8, 2) + text("a") + text(b"\xff"),
        "scores": struct.pack("<IIQ3f", 9, 6, 3, 1, 2, 3),
        "flag": number(7, "?", True),
    }
    return gguf_bytes(tensors, metadata)


@pytest.mark.parametrize("to", ["numpy", "torch", "jax"])
def test_tensors_have_their_types_values_and_shapes(tmp_path: Path, to: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(model())
    weights = zc.open_weights(path, to=to)
    names = [name for name in weights if to != "jax" or name not in ("int64", "float64")]
    for name, array in weights.read(names).items():
        loaded = zc.convert(array, "numpy")
        if name == "blocks":
            assert (loaded.dtype, loaded.shape) == (np.uint8, (4, 68))
            assert loaded.ravel()[:256].tolist() == list(range(256))
        else:
            assert loaded.dtype == array_of(name).dtype
            assert loaded.tolist() == array_of(name).tolist()


def test_metadata_are_python_values(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(model())
    assert zc.open_weights(tmp_path / "m.gguf").metadata == {
        "general.architecture": "llama",
        "general.alignment": 32,
        "rope": 0.5,
        "tokens": ["a", "\ufffd"],
        "scores": [1, 2, 3],
        "flag": True,
    }


def test_quantized_tensors_name_their_type(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    path = tmp_path / "m.gguf"
    path.write_bytes(model())
    weights = zc.open_weights(path, to="torch")
    tensor = weights.tensors["blocks"]
    assert (tensor.packed, tensor.packed_shape, tensor.shape) == ("Q8_0", (4, 64), (4, 68))
    assert weights.tensors["float32"].packed == ""
    plan = weights.explain(["blocks", "float32"])
    assert plan.leaves["['blocks']"].warnings[-1] == "it has the bytes of Q8_0, a type that NumPy lacks"
    assert plan.zero_copy


def test_a_file_with_an_alignment_of_64_is_aliased_by_jax(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    path = tmp_path / "m.gguf"
    tensors = {name: ((2, 3), TYPES["float32"], array_of("float32").tobytes()) for name in "ab"}
    path.write_bytes(gguf_bytes(tensors, {"general.alignment": number(4, "I", 64)}, 64))
    assert zc.open_weights(path, to="jax", copy=False).explain().zero_copy
    path.write_bytes(gguf_bytes(tensors))
    assert zc.open_weights(path, to="jax").explain().copied_bytes in (24, 48)  # at multiples of 32


def test_big_endian_files_have_swapped_arrays(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    path = tmp_path / "m.gguf"
    content = array_of("float32").astype(">f4").tobytes()
    path.write_bytes(gguf_bytes({"x": ((2, 3), 0, content)}, order=">"))
    weights = zc.open_weights(path, to="torch")
    assert weights.tensors["x"].dtype == ">f4"
    assert weights["x"].tolist() == array_of("float32").tolist()
    path.write_bytes(gguf_bytes({"x": ((2, 3), 30, bytes(12))}, order=">"))
    with pytest.raises(zc.errors.ReadError, match="big-endian bfloat16"):
        zc.open_weights(path)


_X = {"x": ((2, 3), 0, bytes(24))}
_NESTED = struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 1000
INVALID = {
    "empty": b"",
    "magic": b"GGML" + bytes(100),
    "version 1": gguf_bytes(_X, version=1),
    "version 99": gguf_bytes(_X, version=99),
    "cut header": gguf_bytes(_X)[:40],
    "cut tensor": gguf_bytes(_X)[:-1],
    "many tensors": b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0),
    "many pairs": b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60),
    "long name": b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**63),
    "type of value": gguf_bytes(_X, {"a": number(99, "I", 0)}),
    "large array": gguf_bytes(_X, {"a": struct.pack("<IIQ", 9, 0, 2**62)}),
    "large array of text": gguf_bytes(_X, {"a": struct.pack("<IIQ", 9, 8, 2**62)}),
    "nested arrays": gguf_bytes(_X, {"a": _NESTED}),
    "alignment 0": gguf_bytes(_X, {"general.alignment": number(4, "I", 0)}),
    "alignment 12": gguf_bytes(_X, {"general.alignment": number(4, "I", 12)}),
    "alignment of text": gguf_bytes(_X, {"general.alignment": struct.pack("<I", 8) + text("32")}),
    "dimensions": gguf_bytes({"x": ((1,) * 5, 0, bytes(4))}),
    "overflow": gguf_bytes({"x": ((2**63, 2**63), 0, bytes(4))}),
    "empty and large": gguf_bytes({"x": ((0, 2**63, 2**63), 0, bytes(4))}),
    "type": gguf_bytes({"x": ((1,), 77, bytes(4))}),
    "blocks": gguf_bytes({"x": ((2, 33), 8, bytes(68))}),
    "two names": gguf_bytes(_X).replace(struct.pack("<QQ", 1, 0), struct.pack("<QQ", 2, 0), 1),
    "overlap": gguf_bytes({"x": _X["x"], "y": _X["x"]}).replace(
        struct.pack("<IQ", 0, 32), struct.pack("<IQ", 0, 0)
    ),
    "offset": gguf_bytes({"x": _X["x"], "y": _X["x"]}).replace(
        struct.pack("<IQ", 0, 32), struct.pack("<IQ", 0, 31)
    ),
    "far offset": gguf_bytes({"x": _X["x"], "y": _X["x"]}).replace(
        struct.pack("<IQ", 0, 32), struct.pack("<IQ", 0, 2**63)
    ),
    "twice": gguf_bytes(_X, {"a": number(0, "B", 1), "b": number(0, "B", 1)}).replace(text("b"), text("a")),
}


@pytest.mark.hazard("untrusted-data#headers-of-weights")
@pytest.mark.parametrize("case", INVALID)
def test_invalid_headers_are_refused(tmp_path: Path, case: str) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(INVALID[case])
    assert not check(path)


@pytest.mark.hazard("untrusted-data#headers-of-weights")
def test_generated_files_are_read_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    for (seed,) in sampled(10, range(2000)):
        path.write_bytes(mutated(model(), seed))
        check(path)


def test_the_library_writes_the_same_files(tmp_path: Path) -> None:
    library = pytest.importorskip("gguf")
    path = tmp_path / "m.gguf"
    writer = library.GGUFWriter(path, "llama")
    writer.add_uint32("answer", 42)
    writer.add_array("tokens", ["a", "b"])
    writer.add_tensor("w", array_of("float32"))
    writer.add_tensor("h", array_of("float16"))
    rows = np.random.default_rng(0).random((4, 64), "f4")
    quantized = library.quants.quantize(rows, library.GGMLQuantizationType.Q8_0)
    writer.add_tensor("q", quantized, raw_dtype=library.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    weights = zc.open_weights(path)
    assert weights.metadata["answer"] == 42
    assert weights.metadata["tokens"] == ["a", "b"]
    assert weights["w"].tolist() == array_of("float32").tolist()
    assert weights["h"].tolist() == array_of("float16").tolist()
    assert (weights["q"] == quantized).all()
    blocks = library.GGML_QUANT_SIZES
    assert {
        int(k): (k.name, *v) for k, v in blocks.items() if k.name not in ("F32", "F16", "BF16", "F64")
    } == {
        **gguf._BLOCKS,
        **{
            number: (kind.upper().replace("INT", "I"), 1, np.dtype(kind).itemsize)
            for number, kind in gguf._PLAIN.items()
            if kind.startswith("int")
        },
    }
