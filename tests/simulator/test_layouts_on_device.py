"""The public layout functions over device memory, under Numba's simulator."""

from __future__ import annotations

import os

import numpy as np
import pytest

import zerocopy as zc

if not os.environ.get("NUMBA_ENABLE_CUDASIM"):
    pytest.skip("Numba's simulator must be on before Python starts", allow_module_level=True)

cuda = pytest.importorskip("numba.cuda")


NESTED = np.dtype([("id", ">i4"), ("at", [("x", "f4"), ("y", "f4")]), ("v", "u1", (3,))])


def host(x: object) -> np.ndarray:
    return np.asarray(x.copy_to_host())


def rows(n: int = 100) -> np.ndarray:
    return np.random.default_rng(n).integers(0, 255, n * NESTED.itemsize, np.uint8).view(NESTED)


def test_round_trip_keeps_the_records() -> None:
    source = rows()
    columns = zc.aos_to_soa(cuda.to_device(source.view(np.uint8)), dtype=NESTED)
    assert list(columns) == ["id", "at", "v"]
    assert list(columns["at"]) == ["x", "y"]
    assert host(columns["id"]).tobytes() == source["id"].astype("i4").tobytes()
    assert host(columns["at"]["y"]).tobytes() == source["at"]["y"].tobytes()
    assert host(columns["v"]).shape == (100, 3)
    sources = {
        "id": cuda.to_device(host(columns["id"])),
        "at": {name: cuda.to_device(host(part)) for name, part in columns["at"].items()},
        "v": cuda.to_device(host(columns["v"])),
    }
    back = zc.soa_to_aos(sources, NESTED)
    assert back.dtype == NESTED
    assert host(back).tobytes() == source.tobytes()
    native = zc.soa_to_aos(sources)
    assert native.dtype["id"] == np.dtype("i4")
    assert host(native)["id"].tolist() == source["id"].tolist()


def test_selected_fields_are_written_to_out() -> None:
    source = rows()
    out = {"v": cuda.to_device(np.zeros((100, 3), np.uint8))}
    columns = zc.aos_to_soa(cuda.to_device(source.view(np.uint8)), dtype=NESTED, fields=["v"], out=out)
    assert columns["v"] is out["v"]
    assert host(out["v"]).tobytes() == source["v"].tobytes()
    records = cuda.to_device(np.zeros(100, NESTED))
    on_host = zc.aos_to_soa(source)
    on_device = {
        "id": cuda.to_device(on_host["id"]),
        "at": {k: cuda.to_device(v) for k, v in on_host["at"].items()},
    }
    on_device["v"] = cuda.to_device(on_host["v"])
    assert zc.soa_to_aos(on_device, NESTED, out=records) is records
    assert host(records).tobytes() == source.tobytes()


def test_invalid_arguments_are_refused() -> None:
    buffer = cuda.to_device(rows().view(np.uint8))
    with pytest.raises(zc.UnsupportedConversionError, match="has no fields"):
        zc.aos_to_soa(buffer)
    with pytest.raises(zc.UnsupportedConversionError, match="no field 'w'"):
        zc.aos_to_soa(buffer, dtype=NESTED, fields=["w"])
    with pytest.raises(zc.CopyRequiredError):
        zc.aos_to_soa(buffer, dtype=NESTED, copy=False)
    with pytest.raises(zc.UnsupportedConversionError, match="out has no column 'id'"):
        zc.aos_to_soa(buffer, dtype=NESTED, out={})
    with pytest.raises(zc.UnsupportedConversionError, match="float128"):
        zc.aos_to_soa(cuda.to_device(np.zeros(32, np.uint8)), dtype=[("a", ">f16")])
    with pytest.raises(zc.UnsupportedConversionError, match="not a whole number"):
        zc.aos_to_soa(cuda.to_device(np.zeros(NESTED.itemsize + 1, np.uint8)), dtype=NESTED)


def test_interfaces_that_raise_are_refused() -> None:
    """torch raises RuntimeError for a tensor that requires gradients, which hasattr does not catch."""

    class Refuses:
        @property
        def __cuda_array_interface__(self):
            raise RuntimeError("it requires grad")

    with pytest.raises(zc.UnsupportedConversionError, match="requires grad") as caught:
        zc.soa_to_aos({"x": Refuses()})
    assert "detach" in caught.value.remedy
    out = {"id": Refuses(), "at": {"x": Refuses(), "y": Refuses()}, "v": Refuses()}
    with pytest.raises(zc.UnsupportedConversionError, match="requires grad"):
        zc.aos_to_soa(cuda.to_device(rows().view(np.uint8)), dtype=NESTED, out=out)
