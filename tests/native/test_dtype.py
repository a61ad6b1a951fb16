"""The core's tables of NumPy's dtypes."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.native_core import ALL_DTYPES, core, exported, memory_route, require_core

from zerocopy.dtype import by_name

require_core()


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
@pytest.mark.parametrize("version", [None, (1, 0)])
def test_each_numeric_dtype_passes_both_ways(dtype, version):
    array = np.arange(6).astype(dtype)
    export = core.CapsuleExporter(lambda capsule: capsule)
    result = memory_route(export, core.NDArrayImporter())(exported(array, version=version).capsule())
    assert result.dtype == dtype
    assert result.ctypes.data == array.ctypes.data
    assert memory_route(core.NDArrayExporter(), core.NDArrayImporter())(array).dtype == dtype


@pytest.mark.parametrize("letter", "bBhHiIlLqQefd?FD")
def test_each_of_numpys_type_numbers_has_a_counterpart(letter):
    result = memory_route(core.NDArrayExporter(), core.NDArrayImporter())(np.ones(3, letter))
    assert result.dtype == np.dtype(letter)


def test_dtypes_of_ml_dtypes_pass_with_their_own_code():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        dtype, standard = np.dtype(getattr(ml_dtypes, name)), by_name(name)
        core.set_dtype(dtype, standard.code, standard.bits)
        array = np.arange(4).astype(dtype)
        result = memory_route(core.NDArrayExporter(), core.NDArrayImporter())(array)
        assert result.dtype == dtype
        assert result.tobytes() == array.tobytes()


@pytest.mark.parametrize(
    ("dtype", "code", "bits"),
    [("f4", 2, 64), ("f8", 2, 32), ("f4", 2, 31), ("f4", 32, 32), ("f4", -1, 32), (">f4", 2, 32)],
)
def test_a_wrong_pair_is_refused(dtype, code, bits):
    with pytest.raises(ValueError, match="no counterpart"):
        core.set_dtype(np.dtype(dtype), code, bits)


@pytest.mark.parametrize("pairs", [[(2, 31)], [(32, 8)], [(-1, 8)], [(2, 0)]])
def test_importers_refuse_types_that_dlpack_lacks(pairs):
    with pytest.raises(ValueError, match="no DLPack data type"):
        core.CapsuleImporter(len, dtypes=pairs, alignment=1, layout="compact", arguments=())
    with pytest.raises(ValueError, match="not a DLPack data type"):
        core.ArrowImporter(len, dict.fromkeys(pairs))


@pytest.mark.parametrize("pairs", [3, None, [3], [("a", 8)], [(1,)]])
def test_importers_refuse_malformed_pairs(pairs):
    with pytest.raises((TypeError, SystemError)):
        core.CapsuleImporter(len, dtypes=pairs, alignment=1, layout="compact", arguments=())
