"""Types without a framework file have compiled routes, which give what the slow path gives."""

from __future__ import annotations

import array
import ctypes
import gc
import itertools
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.native_core import core, exported, require_core
from helpers.versions import numpy_capsule

import zerocopy as zc
from zerocopy._engine.convert import convert_slowly
from zerocopy._engine.routes import NO_ROUTE, routes_of
from zerocopy.protocols import array_interface, producer

require_core()


class Producer:
    """A producer of an array's capsules, which counts the requests."""

    def __init__(self, source: np.ndarray[Any, Any], device: Any = (1, 0)) -> None:
        self.source, self.device, self.calls = source, device, 0

    def __dlpack__(self, **options: Any) -> Any:
        self.calls += 1
        return numpy_capsule(self.source, **options)

    def __dlpack_device__(self) -> Any:
        return self.device


class Legacy(Producer):
    """A producer older than DLPack 1.0."""

    def __dlpack__(self, stream: Any = None) -> Any:
        return super().__dlpack__()


class Interface:
    """A producer of NumPy's array interface, as an attribute of each instance."""

    def __init__(self, source: np.ndarray[Any, Any]) -> None:
        self.source, self.__array_interface__ = source, source.__array_interface__


#: Makes an object of a type without a framework file over an array.
MAKERS: dict[str, Callable[[Any], Any]] = {
    "DLPack": Producer,
    "DLPack 0.8": Legacy,
    "array interface": Interface,
    "buffer": lambda x: memoryview(x),
}


OPTIONS: list[dict[str, Any]] = [{}, {"copy": False}, {"copy": True}, {"writable": True}, {"device": "cpu"}]


def sources() -> list[np.ndarray[Any, Any]]:
    """Arrays that each route takes, and others that only the slow path judges."""
    read_only = np.arange(64, dtype="i4")
    read_only.flags.writeable = False
    plain = [np.arange(64).astype(dtype) for dtype in ("i1", "u1", "i4", "f4", "c8", "u8", "?", ">i2")]
    others = np.array([0, 2], np.uint8).view(np.bool_)
    shaped = [
        np.arange(128, dtype="i4")[::2],
        np.ones((3, 4), "f4").T,
        np.ones((0, 2), "f4"),
        np.array(2.5, "f4"),
    ]
    return [
        *plain,
        *shaped,
        np.arange(9, dtype="f4")[::-1],
        np.zeros(9, "u1")[1:].view("f4"),
        others,
        read_only,
    ]


def aligned(count: int) -> np.ndarray[Any, Any]:
    """Return an array that every target aliases."""
    return np.asarray(array_interface.aligned_copy(np.arange(count, dtype="f4")))


def outcome(convert: Callable[..., Any], obj: Any, source: Any, to: str, options: dict[str, Any]) -> Any:
    """Return the values of a result and whether it aliases, or the code of the error."""
    try:
        result = convert(obj, to, options)
    except zc.ZeroCopyError as error:
        return error.code
    values = zc.convert(result, "numpy")
    return (
        type(result),
        values.dtype,
        values.tolist(),
        zc.shares_memory(values, source),
        type(result).__name__ == "BooleanArray" or zc.view(result).readonly,  # bits are not a view
    )


@pytest.mark.parametrize("to", ["numpy", "torch", "pyarrow", "jax", "tensorflow"])
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_the_slow_path_is_the_oracle(make: Callable[[Any], Any], to: str) -> None:
    pytest.importorskip(to)
    fast = lambda obj, to, options: zc.convert(obj, to, **options)  # noqa: E731
    for options in OPTIONS:
        fast(make(aligned(64)), to, options)
        assert routes_of(to, options)[type(make(np.arange(4)))] is not NO_ROUTE
        for source in sources():
            results = [outcome(call, make(source), source, to, options) for call in (convert_slowly, fast)]
            assert results[0] == results[1], (options, source)


@pytest.mark.parametrize("device", [(2, 0), (1, 1), (3, 0), (1,), None, (1, 2**70), ("cpu", 0)])
def test_a_device_that_is_not_the_host_is_left_to_the_slow_path(device: Any) -> None:
    zc.convert(Producer(np.arange(3)), "numpy")
    with pytest.raises(zc.ZeroCopyError) as error:
        zc.convert(Producer(np.arange(3), device), "numpy")
    assert error.value.code


def test_a_refused_capsule_is_the_one_that_the_slow_path_imports() -> None:
    """The route requests the capsule; its booleans have to be read, which the slow path does."""
    for flags in (0, 2):  # 2: IS_COPIED
        source = exported(np.arange(8, dtype=np.uint8), version=(1, 1), code=6, bits=8, flags=flags)
        obj = Producer(np.arange(3))
        zc.convert(obj, "numpy")
        obj.source = type("Once", (), {"__dlpack__": lambda self, s=source, **options: s.capsule()})()
        obj.calls = 0
        assert zc.convert(obj, "numpy").tolist() == [False] + [True] * 7
        assert obj.calls == 1


def test_negative_strides_over_one_element_are_no_reversal() -> None:
    pytest.importorskip("torch")
    memory = np.arange(4, dtype="i2")
    zc.convert(Producer(memory), "torch")
    for version in (None, (1, 1)):
        source = exported(memory, version=version, shape=(1, 1, 2), strides=(-2, -2, 1))
        obj = Producer(source)  # type: ignore[arg-type]
        source.__dlpack__ = lambda source=source, **options: source.capsule()  # type: ignore[attr-defined]
        result = zc.convert(obj, "torch", copy=False)
        assert result.tolist() == [[[0, 1]]]
        assert zc.shares_memory(result, memory)


def test_no_capsule_is_kept_after_the_conversion() -> None:
    zc.convert(Producer(np.arange(3)), "numpy")
    data = np.array([True, False])
    alive = weakref.ref(data)
    zc.convert(Producer(data), "numpy", copy=True)
    zc.convert([Producer(np.arange(3)), {"a": Producer(data)}], "numpy", copy=True)
    del data
    gc.collect()
    assert alive() is None


class Fails(Producer):
    """A producer whose second request of a device raises, after a route has its capsule."""

    error: type[BaseException] = RuntimeError

    def __dlpack_device__(self) -> Any:
        self.asked = getattr(self, "asked", 0) + 1
        if self.asked == 2:
            raise self.error("device")
        return (1, 0)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_refused_capsule_is_dropped_if_the_slow_path_fails(error: type[BaseException]) -> None:
    zc.convert(Fails(np.arange(3)), "numpy")
    routes = {"convert": lambda x: zc.convert(x, "numpy"), "converter": zc.converter(Fails, "numpy")}
    routes["accepts"] = zc.accepts("numpy")(lambda x: x)
    for name, call in routes.items():
        obj = Fails(np.array([True, False]))
        obj.error = error
        with pytest.raises((error, zc.ZeroCopyError)):
            call(obj)
        alive = weakref.ref(obj.source)
        obj.source = np.arange(3)
        gc.collect()
        assert alive() is None, name
        assert call(obj).tolist() == [0, 1, 2], name


def test_a_destructor_of_a_refused_capsule_does_not_lose_the_exception() -> None:
    zc.convert(Fails(np.arange(3)), "numpy")
    for error in (RuntimeError, KeyboardInterrupt):
        source = exported(np.arange(8, dtype=np.uint8), version=(1, 1), bits=4)
        obj = Fails(np.arange(3))
        obj.error = error
        capsules = [source.capsule()]
        source.drop()
        obj.source = type("Once", (), {"__dlpack__": lambda self, c=capsules, **options: c.pop()})()
        with pytest.raises((error, zc.ZeroCopyError)):
            zc.convert(obj, "numpy")
        gc.collect()
        assert source.deleted == 1


def test_each_leaf_of_a_tree_is_asked_once() -> None:
    for second in (np.arange(3), np.array([True, False])):
        tree = [Producer(np.arange(2)), {"a": Producer(second)}]
        zc.convert(tree, "numpy")
        calls = [tree[0].calls, tree[1]["a"].calls]  # type: ignore[attr-defined,index]
        assert calls == [1, 1]


class _Table(ctypes.Structure):
    """``DLPackExchangeAPI`` of DLPack 1.3."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("export", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(ctypes.c_void_p))),
        ("others", ctypes.c_void_p * 3),
    )


def _capsule_of(table: _Table, name: bytes = b"dlpack_exchange_api") -> Any:
    """Return a capsule of a table, which the caller keeps; also the name, which is a constant."""
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return new(("PyCapsule_New", ctypes.pythonapi))(ctypes.addressof(table), name, None)


def _exchange_type(sources: list[Any], major: int = 1, capsule: Any = None) -> type:
    """Return a type whose C exchange API exports the last one of `sources`, or fails without one.

    `capsule` replaces the table by another one.
    """

    @_Table._fields_[4][1]
    def export(obj: Any, out: Any) -> int:
        if not sources:
            return -1
        out[0] = ctypes.addressof(sources[-1].managed)
        return 0

    table = _Table(major, 3, None, None, export)
    capsule = _capsule_of(table) if capsule is None else capsule
    methods = {
        "__dlpack__": lambda self, **options: sources[-1].capsule(),
        "__dlpack_device__": lambda self: (1, 0),
        "__dlpack_c_exchange_api__": capsule,
        "held": table,
    }
    return type("Exchanged", (), methods)


def test_a_type_with_the_c_exchange_api_is_read_through_it() -> None:
    sources: list[Any] = []
    cls = _exchange_type(sources)
    memory = np.arange(6, dtype="f4")
    for flags, alive in ((0, 0), (1, 1), (0, 2)):
        sources.append(exported(memory, version=(1, 1), flags=flags))
        result = zc.convert(cls(), "numpy", copy=False)
        assert (result.tolist(), result.flags.writeable) == (memory.tolist(), not flags)
        # The first conversion imports a capsule; later ones take the struct of the table.
        assert (len(sources[-1].capsules), sources[-1].deleted) == (alive == 0, 0)
        del result
        sources[-1].drop()
        assert sources[-1].deleted == 1


def test_structs_that_the_core_refuses_are_released_once() -> None:
    sources: list[Any] = [exported(np.arange(6, dtype="f4"), version=(1, 1))]
    cls = _exchange_type(sources)
    zc.convert(cls(), "numpy")
    wrong = {"version": (2, 0)}, {"version": (1, 0), "bits": 7}, {"version": (1, 0), "device_type": 99}
    for fields in wrong:
        sources.append(exported(np.arange(6, dtype="f4"), **fields))
        with pytest.raises(zc.ZeroCopyError):
            zc.convert(cls(), "numpy")
        sources[-1].drop()
        assert sources[-1].deleted == 2  # of the table, and of the capsule that the slow path requests
    boolean = exported(np.array([0, 1, 3], "u1"), version=(1, 1), code=6)
    sources.append(boolean)
    assert zc.convert(cls(), "numpy").tolist() == [False, True, True]


def test_a_subclass_that_overrides_the_method_has_no_exchange_api() -> None:
    base = _exchange_type([exported(np.arange(6, dtype="f4"), version=(1, 1))])
    overrides = type(
        "Overrides", (base,), {"__dlpack__": lambda self, **options: np.arange(3).__dlpack__(**options)}
    )
    assert producer._exchange_api(base) is producer._exchange_api(type("Inherits", (base,), {}))
    assert producer._exchange_api(overrides) is None
    for _ in range(2):
        assert zc.convert(overrides(), "numpy").tolist() == [0, 1, 2]


def test_a_subclass_that_overrides_the_method_later_is_not_read_through_the_exchange_api() -> None:
    base = _exchange_type([exported(np.arange(6, dtype="f4"), version=(1, 1))])
    cls = type("Overrides", (base,), {})
    for _ in range(2):
        assert zc.convert(cls(), "numpy").tolist() == [0, 1, 2, 3, 4, 5]
    cls.__dlpack__ = lambda self, **options: np.arange(3).__dlpack__(**options)  # type: ignore[attr-defined]
    for _ in range(2):
        assert zc.convert(cls(), "numpy").tolist() == [0, 1, 2]
    del cls.__dlpack__  # type: ignore[attr-defined]
    assert len(zc.convert(cls(), "numpy")) == 6


def test_an_exchange_api_of_another_version_is_not_used() -> None:
    cls = _exchange_type([exported(np.arange(3, dtype="f4"), version=(1, 1))], major=2)
    for _ in range(2):
        assert zc.convert(cls(), "numpy").tolist() == [0, 1, 2]


def _older(head: _Table, *tables: _Table) -> Any:
    """Return the capsule of a chain of tables, newest first."""
    for newer, older in itertools.pairwise((head, *tables)):
        newer.previous = ctypes.addressof(older)
    return _capsule_of(head)


def _itself() -> Any:
    table = _Table(9, 0)
    return _older(table, table), table


#: Capsules whose table has no function of version 1 to export a tensor, with what keeps them.
_UNUSABLE = {
    "no functions": lambda: (_capsule_of(table := _Table(1, 3)), table),
    "other version": lambda: (_capsule_of(table := _Table(2, 0)), table),
    "other version before no functions": lambda: (_older(*(tables := (_Table(2, 0), _Table(1, 3)))), tables),
    "chain of itself": _itself,
    "other name": lambda: (_capsule_of(table := _Table(1, 3), b"dltensor"), table),
    "not a capsule": lambda: ("text", None),
}


@pytest.mark.hazard("robustness#missing-functions")
@pytest.mark.parametrize("name", _UNUSABLE)
def test_an_exchange_api_without_the_function_is_not_used(name: str) -> None:
    capsule, held = _UNUSABLE[name]()
    cls = _exchange_type([exported(np.arange(3, dtype="f4"), version=(1, 1))], capsule=capsule)
    for _ in range(3):
        assert zc.convert(cls(), "numpy").tolist() == [0, 1, 2]
        assert zc.explain(cls(), "numpy").zero_copy
    with pytest.raises((TypeError, ValueError)):
        core.ExchangeImporter(capsule, [])
    del held


@pytest.mark.hazard("robustness#missing-functions")
@pytest.mark.parametrize("missing", range(5))
def test_each_function_of_the_core_is_checked_where_it_is_used(missing: int) -> None:
    """Fields 3 to 7 are the functions; one of them is NULL and the others are never called."""
    words = (ctypes.c_void_p * 7)(1 | 3 << 32, None, *[1] * 5)
    words[2 + missing] = None
    capsule = _capsule_of(words)  # type: ignore[arg-type]
    assert core.ProducerExporter(capsule, None) is not None
    if missing == 2:
        with pytest.raises(ValueError, match="no table"):
            core.ExchangeImporter(capsule, [])
    else:
        core.ExchangeImporter(capsule, [])


def test_an_older_table_of_a_chain_is_used() -> None:
    sources: list[Any] = [exported(np.arange(6, dtype="f4"), version=(1, 1))]
    older = _exchange_type(sources)
    head = _Table(2, 0)
    cls = _exchange_type(sources, capsule=_older(head, older.held))  # type: ignore[attr-defined]
    zc.convert(cls(), "numpy")
    sources.append(exported(np.arange(6, dtype="f4"), version=(1, 1)))
    assert zc.convert(cls(), "numpy").tolist() == [0, 1, 2, 3, 4, 5]
    assert not sources[-1].capsules


def test_a_destructor_that_keeps_another_capsule_loses_none() -> None:
    """A thread keeps one refused capsule; its destructor can convert, and so keep another one."""
    route = core.MemoryRoute(
        core.ProducerExporter(None, (1, 1)), core.NDArrayImporter(), mutable=True, marks_readonly=True
    )
    alive: list[Any] = []

    class Refused:
        def __init__(self, at_end: Callable[[], None] = lambda: None) -> None:
            self.at_end = at_end
            alive.append(weakref.ref(self))

        def __dlpack__(self, **options: Any) -> Any:
            return exported(np.arange(3.0), version=(1, 1), bits=7).capsule()

        def __dlpack_device__(self) -> Any:
            return 1, 0

        def __del__(self) -> None:
            self.at_end()

    def keep(*arguments: Any) -> None:
        with pytest.raises(BufferError):
            route(Refused(*arguments))

    keep(keep)
    keep()
    assert len(alive) == 3
    core.drop_capsule()
    gc.collect()
    assert [ref() for ref in alive] == [None] * 3


def test_an_instance_with_an_interface_is_not_read_as_a_buffer() -> None:
    """The interface comes first, so types whose instances can have one have no route for their buffer."""

    class Bytes(bytearray):
        pass

    zc.convert(Bytes(b"abcd"), "numpy")
    obj, memory = Bytes(b"abcd"), np.arange(3)
    obj.__array_interface__ = memory.__array_interface__  # type: ignore[attr-defined]
    assert zc.convert(obj, "numpy").tolist() == [0, 1, 2]


def test_a_released_buffer_and_an_exported_one() -> None:
    view = memoryview(array.array("d", [1.0, 2.0]))
    for _ in range(2):
        result = zc.convert(view, "numpy")
    with pytest.raises(BufferError):
        view.release()
    del result
    gc.collect()
    view.release()
    with pytest.raises(zc.ZeroCopyError, match="released"):
        zc.convert(view, "numpy")
