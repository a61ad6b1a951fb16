"""Routes with options, identity and call routes, and the arguments of all constructors."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.interruptions import raise_by_signal
from helpers.native_core import (
    REFUSED,
    aligned_copy,
    aligned_empty,
    core,
    exported,
    keep_capsule,
    memory_route,
    require_core,
)

from zerocopy.protocols import dlpack

require_core()

EXPORTER, IMPORTER = (core.NDArrayExporter(), core.NDArrayImporter()) if core is not None else (None, None)


def read_only(array):
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("copy", [None, False, True])
@pytest.mark.parametrize("writable", [None, False, True])
@pytest.mark.parametrize("source_is_writable", [False, True])
def test_copy_and_writable(copy, writable, source_is_writable):
    array = np.arange(12.0).reshape(3, 4)
    array.flags.writeable = source_is_writable
    route = memory_route(EXPORTER, IMPORTER, copy=copy, writable=writable)
    copies = copy is True or (writable is True and not source_is_writable)
    if copies and copy is False:
        with pytest.raises(BufferError, match=REFUSED):
            route(array)
        return
    result = route(array)
    assert np.shares_memory(result, array) is not copies
    assert result.flags.writeable is ((source_is_writable or copies) and writable is not False)
    np.testing.assert_array_equal(result, array)


@pytest.mark.parametrize("copy", [None, False, True])
@pytest.mark.parametrize("writable", [None, False, True])
def test_an_object_of_the_target_is_returned_itself_if_nothing_changes(copy, writable):
    route = memory_route(EXPORTER, IMPORTER, copy=copy, writable=writable, dtype=(2, 64), owned=True)
    array = np.arange(4.0)
    assert (route(array) is array) is (copy is not True and writable is not False)
    if writable is False and copy is not True:
        assert route(read_only(array)) is array
    elif writable is True and copy is None:
        assert not np.shares_memory(route(read_only(array)), array)
    with pytest.raises(BufferError, match=REFUSED):
        route(np.ones(4, bool))  # another dtype, which the core does not cast
    if copy is False:
        with pytest.raises(BufferError, match=REFUSED):
            route(np.arange(4))  # a cast copies
    else:
        assert route(np.arange(4)).dtype == np.float64


def test_a_target_of_immutable_objects_does_not_copy_read_only_memory():
    got = []
    route = memory_route(EXPORTER, keep_capsule(got), mutable=False, marks_readonly=False, writable=True)
    array = read_only(np.arange(4.0))
    route(array)
    assert dlpack.read(got[0]).ptr == array.ctypes.data


@pytest.mark.parametrize(("dtype", "name"), [((2, 64), "float64"), ((2, 32), "float32"), ((0, 64), "int64")])
def test_a_route_with_a_dtype_casts_to_it(dtype, name):
    route = memory_route(EXPORTER, IMPORTER, dtype=dtype, fallback=lambda x: None)
    array = np.arange(3.0)
    assert route(array).dtype == name
    assert np.shares_memory(route(array), array) is (name == "float64")
    assert (route(array + 0.5) is None) is (name == "int64")  # a number that does not fit
    assert (route(np.arange(8.0)[::2]) is None) is (name != "float64")  # the slow path casts memory with gaps


@pytest.mark.parametrize("alignment", [1, 8, 64, 4096])
@pytest.mark.parametrize("offset", range(0, 64, 8))
def test_misaligned_memory_is_copied_unless_copies_are_forbidden(alignment, offset):
    array, got = aligned_empty((16,), np.dtype("f8"))[offset // 8 :], []
    array[:] = range(len(array))
    importer = core.CapsuleImporter(
        got.append, dtypes=[(2, 64)], alignment=alignment, layout="row-major", arguments=()
    )
    aliases = array.ctypes.data % alignment == 0
    forbids = memory_route(EXPORTER, importer, copy=False, fallback=lambda x: "slow")
    assert (forbids(array) == "slow") is not aliases
    got.clear()
    if not aliases and alignment > 64:  # a copy is aligned to 64 bytes
        assert memory_route(EXPORTER, importer, fallback=lambda x: "slow")(array) in ("slow", None)
        return
    memory_route(EXPORTER, importer)(array)
    view = dlpack.read(got[0])
    assert (view.ptr == array.ctypes.data) is aliases
    assert view.ptr % alignment == 0
    np.testing.assert_array_equal(np.from_dlpack(dlpack.Handover(got[0])), array)


@pytest.mark.parametrize(
    ("layout", "make", "aliases"),
    [
        ("row-major", lambda x: x, True),
        ("row-major", np.asfortranarray, False),
        ("compact", np.asfortranarray, True),
        ("compact", lambda x: aligned_copy(x).transpose(1, 0, 2), True),
        ("compact", lambda x: x[:, :1], False),
        ("compact", lambda x: np.broadcast_to(x[:1], (3, 3, 4)), False),
        ("row-major", lambda x: x[:1, :1], True),
        ("compact", lambda x: x[:, :, ::2], False),
    ],
)
def test_layouts(layout, make, aliases):
    array, got = make(aligned_copy(np.arange(24.0).reshape(2, 3, 4))), []
    importer = core.CapsuleImporter(got.append, dtypes=[(2, 64)], alignment=8, layout=layout, arguments=())
    memory_route(EXPORTER, importer)(array)
    assert (dlpack.read(got[0]).ptr == array.ctypes.data) is aliases
    np.testing.assert_array_equal(np.from_dlpack(dlpack.Handover(got[0])), array)


@pytest.mark.parametrize("answer", [True, False, 0, 1, None, "x"])
def test_64_bits_depend_on_an_attribute_read_for_each_call(answer):
    class Config:
        wide = answer

    got = []
    importer = core.CapsuleImporter(
        got.append,
        dtypes=[(2, 64), (2, 32), (5, 64), (5, 128), (0, 64)],
        alignment=1,
        layout="compact",
        arguments=(),
        wide=(Config, "wide"),
    )
    route = memory_route(EXPORTER, importer, fallback=lambda x: "slow")
    for dtype, wide in (("f8", True), ("f4", False), ("c8", False), ("c16", True), ("i8", True)):
        assert (route(np.ones(3, dtype)) == "slow") is (wide and not answer)


def test_a_missing_attribute_refuses_and_keeps_the_error():
    source, got = exported(np.arange(4.0)), []
    importer = core.CapsuleImporter(
        got.append, dtypes=[(2, 64)], alignment=1, layout="compact", arguments=(), wide=(object(), "wide")
    )
    with pytest.raises(AttributeError, match="wide"):
        memory_route(core.CapsuleExporter(lambda x: x), importer)(source.capsule())
    assert source.deleted == 1
    assert not got


def test_an_array_without_a_base_is_not_taken():
    arrays = [np.arange(3), np.ma.zeros(3), [1], None]
    for array in arrays:
        route = memory_route(core.ArrayExporter(lambda x, array=array: array), IMPORTER)
        with pytest.raises(BufferError, match=REFUSED):
            route(0)
    route = memory_route(core.ArrayExporter(lambda x: x[:], readonly=True), IMPORTER)
    assert not route(np.arange(3)).flags.writeable


def test_the_second_exporter_runs_after_an_error_but_not_after_an_interrupt():
    def fails(obj):
        raise obj

    route = memory_route(
        core.FirstExporter(core.BufferExporter(), core.CapsuleExporter(lambda x: x)), IMPORTER
    )
    assert route(b"ab").tobytes() == b"ab"
    np.testing.assert_array_equal(route(exported(np.arange(3)).capsule()), range(3))
    route = memory_route(
        core.FirstExporter(core.CapsuleExporter(fails), core.CapsuleExporter(fails)), IMPORTER
    )
    for error in (ValueError, KeyboardInterrupt, MemoryError):
        with pytest.raises(error):
            route(error())


def test_the_second_exporter_runs_first_after_a_type_that_the_first_lacks():
    """An exporter that is skipped still runs if the other one fails, and for the other types."""
    calls = []

    def first(x):
        calls.append("first")
        if x.dtype == "i4" or x.size == 2:
            raise ValueError("refused")
        return x.__dlpack__()

    def second(x):
        calls.append("second")
        if x.size == 3:
            raise ValueError("refused")
        return x.__dlpack__()

    exporter = core.FirstExporter(
        core.CapsuleExporter(first), core.CapsuleExporter(second), lacks=[(0, 32), (0, 64)]
    )
    route = memory_route(exporter, IMPORTER)
    plain, lacking, empty, odd = np.zeros(1), np.zeros(1, "i4"), np.zeros(2), np.zeros(3)
    for array, expected in (
        (plain, ["first"]),
        (empty, ["first", "second"]),  # the next object is tried with the first
        (plain, ["first"]),
        (lacking, ["first", "second"]),
        (lacking, ["second"]),
        (lacking, ["second"]),
        (plain, ["second"]),
        (plain, ["first"]),
        (lacking, ["first", "second"]),
        (odd, ["second", "first"]),
        (plain, ["first"]),
    ):
        calls.clear()
        np.testing.assert_array_equal(route(array), array)
        assert calls == expected
    with pytest.raises(ValueError, match="refused"):
        route(np.zeros(3, "i4"))


def test_the_fallback_runs_after_an_error_but_not_after_an_interrupt():
    def fails(obj):
        raise obj

    route = memory_route(core.CapsuleExporter(fails), IMPORTER, fallback=lambda x: "slow")
    assert route(ValueError()) == "slow"
    with pytest.raises(KeyboardInterrupt):
        route(KeyboardInterrupt())


@pytest.mark.parametrize("cls", [TimeoutError, ValueError, TypeError, MemoryError, KeyboardInterrupt])
def test_the_fallback_does_not_run_after_an_exception_of_a_signal_handler(cls):
    """In each place where the core tries again after an exception."""
    failing = core.CapsuleExporter(raise_by_signal)
    routes = [
        memory_route(failing, IMPORTER, fallback=lambda x: "slow"),
        memory_route(core.FirstExporter(failing, core.CapsuleExporter(lambda x: None)), IMPORTER),
        memory_route(core.ArrayExporter(raise_by_signal), IMPORTER, fallback=lambda x: "slow"),
    ]
    for route in routes:
        error = cls("from the handler")
        with pytest.raises(cls) as caught:
            route(error)
        assert caught.value is error


def test_identity_and_call_routes():
    obj = object()
    assert core.IdentityRoute()(obj) is obj
    assert core.CallRoute(lambda x: (x, 1))(obj) == (obj, 1)
    with pytest.raises(ZeroDivisionError):
        core.CallRoute(lambda x: x / 0)(1)


def test_a_failing_copy_function_frees_the_memory():
    source = exported(np.arange(4.0))
    route = memory_route(core.CapsuleExporter(lambda x: x), IMPORTER, copy=True)
    for function, error in (
        (len, None),
        (lambda x: x.tolist(), BufferError),
        (lambda x: 1 / 0, ZeroDivisionError),
    ):
        source.deleted = 0
        core.set_copy_function(function)
        try:
            with pytest.raises(error or BufferError):
                route(source.capsule())
        finally:
            core.set_copy_function(aligned_copy)
        assert source.deleted == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: core.MemoryRoute(EXPORTER, IMPORTER),
        lambda: core.MemoryRoute(IMPORTER, EXPORTER, True, True),
        lambda: core.MemoryRoute(None, None, True, True),
        lambda: memory_route(EXPORTER, IMPORTER, copy=1),
        lambda: memory_route(EXPORTER, IMPORTER, writable="yes"),
        lambda: memory_route(EXPORTER, IMPORTER, dtype=(1,)),
        lambda: core.NDArrayExporter(1),
        lambda: core.NDArrayImporter(1),
        lambda: core.BufferExporter(1, 2),
        lambda: core.IdentityRoute(1),
        lambda: core.FirstExporter(EXPORTER, None),
        lambda: core.FirstExporter(EXPORTER, EXPORTER, lacks=[(0, 3)]),
        lambda: core.ExchangeExporter(None),
        lambda: core.ExchangeImporter(None, []),
        lambda: core.CapsuleImporter(len, dtypes=[], alignment=0, layout="compact", arguments=()),
        lambda: core.CapsuleImporter(len, dtypes=[], alignment=3, layout="compact", arguments=()),
        lambda: core.CapsuleImporter(len, dtypes=[], alignment=1, layout="odd", arguments=()),
        lambda: core.CapsuleImporter(len, dtypes=[], alignment=1, layout="compact", arguments=(1, 2, 3)),
        lambda: core.CapsuleImporter(len, dtypes=[], alignment=1, layout="compact", arguments=(), wide=(1,)),
        lambda: core.ArrowImporter(len, [(0, 8)]),
        lambda: core.Route(),
        lambda: core.Exporter(),
        lambda: core.Importer(),
        lambda: core.Owner(),
        lambda: core.HeldBuffer(),
        lambda: object.__new__(core.MemoryRoute),
        lambda: object.__new__(core.Exporter),
        lambda: type("X", (core.Exporter,), {})(),
        lambda: object.__new__(type("X", (core.Route,), {})),
    ],
)
def test_wrong_arguments_and_bare_objects_are_refused(make):
    with pytest.raises((TypeError, ValueError, SystemError)):
        make()


def test_an_extension_type_cannot_be_subclassed():
    for cls in (core.MemoryRoute, core.NDArrayExporter, core.NDArrayImporter, core.TreeRoute):
        with pytest.raises(TypeError, match="not an acceptable base type"):
            type("X", (cls,), {})


def test_every_constructor_refuses_unknown_keywords():
    constructors = [value for value in vars(core).values() if isinstance(value, type)]
    assert len(constructors) > 10
    for constructor in constructors:
        with pytest.raises(TypeError):
            constructor(unknown=None)
        with pytest.raises(TypeError):
            constructor(lambda x: x, unknown=None)
