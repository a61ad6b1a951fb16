"""ndarrays as sources and targets of the core: the supported layouts, which stay unchanged."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from helpers.native_core import REFUSED, core, keep_capsule, memory_route, require_core
from numpy.lib.stride_tricks import as_strided

from zerocopy.protocols import dlpack

require_core()

BASE = np.arange(720, dtype=np.float32)
LAYOUTS = {
    "row-major": BASE.reshape(8, 90),
    "Fortran": np.asfortranarray(BASE.reshape(8, 9, 10)),
    "transposed": BASE.reshape(8, 9, 10).transpose(1, 2, 0),
    "strided": BASE[3::7],
    "strided in both": BASE.reshape(24, 30)[1::3, 2::5],
    "broadcast": np.broadcast_to(BASE[:9], (4, 9)),
    "broadcast in the middle": np.broadcast_to(BASE[:4].reshape(4, 1, 1), (4, 5, 1)),
    "overlapping": as_strided(BASE, (10, 4), (8, 4)),
    "0-d": BASE[5:6].reshape(()),
    "one element": BASE[7:8],
    "sizes of 1": BASE[:12].reshape(1, 3, 1, 4, 1),
    "odd strides of size 1": as_strided(BASE, (1, 3, 1), (-12, 4, 2**40)),
    "fractional stride of size 1": as_strided(BASE, (1, 3), (3, 4)),
    "reversed axis of size 1": BASE[:6].reshape(1, 6)[::-1],
    "64 dimensions" if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else "32 dimensions": BASE[:4].reshape(
        (2,) + (1,) * (62 if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else 30) + (2,)
    ),
    "memmap-like subarray": BASE.reshape(6, 120)[2:4],
}
#: Arrays that the core refuses and the slow path converts.
NOT_TAKEN = {
    "big-endian": np.arange(4, dtype=">f4" if np.little_endian else "<f4"),
    "unaligned": np.zeros(41, np.uint8)[1:].view(np.float32),
    "negative stride": BASE[::-1],
    "negative inner stride": BASE[:12].reshape(3, 4)[:, ::-1],
    "fractional stride": as_strided(BASE.view(np.uint8)[:64].view("f4"), (3,), (6,)),
    "zero size": np.zeros(0, np.float32),
    "zero in the middle": np.zeros((3, 0, 4)),
    "datetime": np.array(["2020-01-01"], "M8[s]"),
    "timedelta": np.zeros(2, "m8[ns]"),
    "objects": np.array([None, object()]),
    "text": np.array(["a", "bc"]),
    "bytes": np.array([b"a", b"bc"]),
    "void": np.zeros(2, "V8"),
    "structured": np.zeros(2, [("x", "f4")]),
    "long double": np.zeros(2, "g"),
}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("writable", [True, False])
def test_an_ndarray_passes_with_its_layout(name, writable):
    array = LAYOUTS[name].view()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy warns about writes to overlapping arrays
        if writable and not array.flags.writeable:
            pytest.skip("broadcast arrays are read-only")
        array.flags.writeable = writable
    result = memory_route(core.NDArrayExporter(), core.NDArrayImporter())(array)
    assert type(result) is np.ndarray
    assert result is not array
    assert result.ctypes.data == array.ctypes.data
    assert result.shape == array.shape
    assert result.dtype == array.dtype
    assert result.flags.writeable is writable
    assert not result.flags.owndata
    pairs = zip(result.strides, array.strides, array.shape, strict=True)
    assert all(mine == right for mine, right, extent in pairs if extent > 1)
    assert result.tobytes() == array.tobytes()


@pytest.mark.parametrize("name", NOT_TAKEN)
def test_an_ndarray_that_the_core_does_not_take_is_left_to_the_slow_path(name):
    array = NOT_TAKEN[name]
    with pytest.raises(BufferError, match=REFUSED):
        memory_route(core.NDArrayExporter(), core.NDArrayImporter())(array)
    route = memory_route(core.NDArrayExporter(), core.NDArrayImporter(), fallback=lambda x: ("slow", x))
    assert route(array)[1] is array


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_capsule_of_an_ndarray_describes_the_same_elements(name):
    array, got = LAYOUTS[name], []
    compact = name not in (
        "strided",
        "strided in both",
        "broadcast",
        "broadcast in the middle",
        "overlapping",
    )
    memory_route(core.NDArrayExporter(), keep_capsule(got))(array)
    view = dlpack.read(got[0])
    assert (view.ptr == array.ctypes.data) is compact
    assert view.shape == array.shape
    imported = np.from_dlpack(dlpack.Handover(got[0]))
    assert imported.tobytes() == array.tobytes()


@pytest.mark.hazard("robustness#shapes-that-change")
def test_a_new_shape_in_the_importers_code_does_not_reach_the_capsule():
    array, got = np.arange(12, dtype=np.float64).reshape(3, 4), []

    class Config:
        @property
        def wide(self):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                array.shape = (2, 1, 1, 2, 3)  # frees the numbers of the shape
            return True

    importer = core.CapsuleImporter(
        got.append, dtypes=[(2, 64)], alignment=1, layout="row-major", arguments=(), wide=(Config(), "wide")
    )
    memory_route(core.NDArrayExporter(), importer)(array)
    assert dlpack.read(got[0]).shape == (3, 4)


def test_bases_are_held_and_never_hidden_owners():
    array = np.arange(5.0)
    view = array[1:]
    result = memory_route(core.NDArrayExporter(), core.NDArrayImporter())(view)
    assert result.base is array or result.base is view
    again = memory_route(core.NDArrayExporter(), core.NDArrayImporter())(result)
    assert np.shares_memory(again, array)
