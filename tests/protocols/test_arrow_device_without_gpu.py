"""Arrow device arrays on a machine without a GPU: host memory converts, and plans promise no other copy."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.table_cases import TABLES

import zerocopy as zc
from zerocopy.device import CUDA, CUDA_HOST, CUDA_MANAGED
from zerocopy.protocols import arrow_c, cuda_driver
from zerocopy.protocols.arrow_schema import pointer

pa = pytest.importorskip("pyarrow")

HOST_TABLES = [name for name in TABLES if name not in ("cudf", "pylibcudf")]
COLUMNS = {
    "int64": pa.array([1, 2]),
    "nulls": pa.array([1.5, None, 3.5]),
    "nulls first": pa.array([None, 1, 2]),
    "bool": pa.array([True, False]),
    "date": pa.array([1, None], pa.date32()),
    "text": pa.array(["a", None, "bcd"]),
    "lists": pa.array([[1.0], [2.0, 3.0]]),
    "fixed lists": pa.array([[1, 2], [3, 4]], pa.list_(pa.int64(), 2)),
    "empty": pa.array([], pa.float32()),
    "struct": pa.array([{"a": 1, "b": 2.0}]),
}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"nulls": 0},
    {"nulls": "nan"},
    {"nulls": "mask"},
    {"encode": True},
    {"encode": True, "nulls": "mask"},
    {"dtype": "float64"},
    {"dtype": "float64", "nulls": 1},
    {"layout": "matrix"},
    {"layout": "matrix", "nulls": 0},
    {"layout": "records", "nulls": 0},
    {"copy": True},
    {"device": "cpu"},
]


class OnDevice:
    """An exporter of a pyarrow array that reports a device."""

    def __init__(self, array: Any, device_type: int, uncounted: bool = False) -> None:
        self.array, self.device_type, self.uncounted = array, device_type, uncounted

    def __arrow_c_device_array__(self, requested_schema: Any = None, **_: Any) -> Any:
        schema, capsule = self.array.__arrow_c_device_array__()
        whole = arrow_c.ArrowDeviceArray.from_address(pointer(capsule, arrow_c.DEVICE_ARRAY))
        whole.device_type, whole.device_id = self.device_type, 0
        if self.uncounted:
            whole.array.null_count = -1
        return schema, capsule


@pytest.mark.hazard("producers#pinned-arrow-memory")
@pytest.mark.parametrize("device_type", [CUDA_HOST, CUDA_MANAGED])
@pytest.mark.parametrize("target", HOST_TABLES)
@pytest.mark.parametrize("name", COLUMNS)
def test_pinned_and_managed_memory_becomes_a_table(name: str, target: str, device_type: int) -> None:
    def source() -> OnDevice:
        return OnDevice(COLUMNS[name], device_type)

    assert zc.explain(source(), target).possible
    result = zc.convert(zc.convert(source(), target), "pyarrow.Table")
    assert result.num_rows == len(COLUMNS[name])


@pytest.mark.hazard("producers#plans-without-a-driver")
@pytest.mark.skipif(cuda_driver.missing() is None, reason="there is a GPU")
@pytest.mark.parametrize("target", ["numpy", "torch", "tensorflow", *HOST_TABLES])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_plans_of_cuda_memory_agree_without_a_driver(options: dict[str, Any], target: str) -> None:
    pytest.importorskip(target)
    for array in COLUMNS.values():
        for uncounted in (False, True):
            for nested in (False, True):
                whole = pa.StructArray.from_arrays([array], ["x"]) if nested else array

                def source(whole: Any = whole, uncounted: bool = uncounted) -> OnDevice:
                    return OnDevice(whole, CUDA, uncounted)

                def attempt(call: Any, source: Any = source) -> Any:
                    try:
                        return getattr(call(source(), target, **options), "possible", True)
                    except zc.ZeroCopyError:
                        return False
                    except (TypeError, ValueError) as error:
                        return type(error)

                assert attempt(zc.explain) == attempt(zc.convert), (array.type, nested, uncounted)
