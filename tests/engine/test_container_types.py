"""Dataclasses, mappings and mutable sequences are converted leaf by leaf; leaves="keep" keeps objects."""

from __future__ import annotations

import dataclasses
from collections import ChainMap, Counter, UserDict, UserList, deque, namedtuple
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from helpers.arrays import sample
from helpers.frameworks import HOST
from helpers.pasting import pasted

import zerocopy as zc
from zerocopy import registry

TENSORS = [name for name in HOST if not registry.by_name(name).tables]


@dataclass
class Layer:
    weight: Any
    bias: Any


@dataclass(frozen=True, slots=True)
class FrozenLayer:
    weight: Any
    bias: Any


@dataclass
class Marked:
    """Fields marked static as JAX, Equinox and Flax mark them."""

    weight: Any
    size: int = field(default=3, metadata={"static": True})
    name: str = field(default="w", metadata={"pytree_node": False})


@dataclass
class Validated:
    """A dataclass whose constructor accepts NumPy's arrays alone."""

    weight: Any

    def __post_init__(self) -> None:
        assert type(self.weight) is np.ndarray

    @cached_property
    def total(self) -> Any:
        return self.weight.sum()


class CustomMapping(Mapping):
    def __init__(self, items: dict) -> None:
        self._items = dict(items)

    def __getitem__(self, key):
        return self._items[key]

    def __iter__(self):
        return iter(self._items)

    def __len__(self):
        return len(self._items)


def containers() -> list[Any]:
    a, b = sample("f4"), sample("i4")
    return [
        Layer(a, b),
        FrozenLayer(a, b),
        Marked(a),
        Validated(a),
        MappingProxyType({"a": a, "b": [b]}),
        CustomMapping({"a": a, "b": {"c": b}}),
        UserDict(a=a, b=(b,)),
        ChainMap({"a": a}, {"b": [b]}),
        UserList([a, b]),
        deque([a, b], maxlen=2),
        Layer({"inner": MappingProxyType({"x": a})}, UserList([Marked(b)])),
        {"layers": [Layer(a, b)]},
    ]


def leaves_of(obj: Any) -> list[Any]:
    """Return the arrays of a container, without zerocopy's own walk."""
    if dataclasses.is_dataclass(obj) and not isinstance(obj, type):
        return [leaf for f in dataclasses.fields(obj) for leaf in leaves_of(getattr(obj, f.name))]
    if isinstance(obj, Mapping):
        return [leaf for value in obj.values() for leaf in leaves_of(value)]
    if isinstance(obj, (list, tuple, UserList, deque)):
        return [leaf for value in obj for leaf in leaves_of(value)]
    return [] if isinstance(obj, (str, int)) else [obj]


@pytest.mark.parametrize("target", TENSORS)
@pytest.mark.parametrize("container", containers(), ids=lambda c: type(c).__name__)
def test_containers_are_rebuilt_with_converted_leaves(container: Any, target: str) -> None:
    originals = [(id(leaf), leaf.copy()) for leaf in leaves_of(container)]
    plan = zc.explain(container, target)
    result = zc.convert(container, to=target)
    assert plan.possible
    assert plan.zero_copy == zc.shares_memory(container, result)
    assert type(result) is type(container)
    assert result is not container
    for leaf, (_, expected) in zip(leaves_of(result), originals, strict=True):
        assert (
            type(leaf).__module__.partition(".")[0]
            == type(zc.convert(expected, target)).__module__.partition(".")[0]
        )
        np.testing.assert_array_equal(zc.convert(leaf, "numpy"), expected)
    assert [id(leaf) for leaf in leaves_of(container)] == [address for address, _ in originals]
    assert not zc.shares_memory(container, zc.convert(container, to=target, copy=True))


@pytest.mark.parametrize("container", containers(), ids=lambda c: type(c).__name__)
def test_containers_of_arrays_are_converted_without_copies(container: Any) -> None:
    result = zc.convert(container, to="numpy", copy=False)
    assert all(map(zc.shares_memory, leaves_of(result), leaves_of(container)))


def test_static_fields_are_kept() -> None:
    result = zc.convert(Marked(sample("f4"), 7, "layer"), to="numpy", copy=True)
    assert (result.size, result.name) == (7, "layer")


def test_computed_attributes_of_the_source_are_not_copied() -> None:
    layer = Validated(sample("f4"))
    assert layer.total is layer.total
    result = zc.convert(layer, to="numpy", copy=True)
    assert "total" not in vars(result)
    result.weight[...] = 0
    assert result.total == 0


def test_attributes_that_are_not_fields_are_kept() -> None:
    layer = Layer(sample("f4"), sample("f4"))
    layer.note = "kept"
    assert zc.convert(layer, to="numpy", copy=True).note == "kept"


def test_fields_that_are_not_set_are_left_out() -> None:
    layer = Layer(sample("f4"), None)
    del layer.bias
    assert not hasattr(zc.convert(layer, to="numpy"), "bias")


@pytest.mark.parametrize(
    "names", [("__array_interface__",), ("__array__",), ("__dlpack__", "__dlpack_device__")]
)
def test_dataclass_that_produces_an_array_is_not_a_container(names: tuple[str, ...]) -> None:
    array = sample("f4")

    @dataclass
    class Image:
        pixels: Any

    for name in names:
        value = getattr(array, name)
        setattr(
            Image,
            name,
            property(lambda self, v=value: v) if name == "__array_interface__" else staticmethod(value),
        )
    plan = zc.explain(Image(array), "numpy")
    assert not plan.leaves


def test_dataclass_with_an_array_interface_of_the_instance_is_not_a_container() -> None:
    @dataclass
    class Memory:
        __array_interface__: Any

    array = sample("f4")
    assert zc.shares_memory(zc.convert(Memory(array.__array_interface__), to="numpy"), array)


def test_type_that_a_framework_owns_is_not_a_container(monkeypatch) -> None:
    @dataclass
    class Box:
        values: Any

    class Boxes(zc.Framework):
        name = "boxes"
        root_modules = (__name__.partition(".")[0],)

        def owns(self, cls: type) -> bool:
            return cls is Box

        def source(self, obj: Any) -> zc.Source:
            return zc.Source("Box", zc.view(obj.values), host=lambda: obj.values)

    zc.convert(Box(sample("f4")), to="numpy")  # a container, until the framework is registered
    zc.register(Boxes())
    try:
        assert isinstance(zc.convert(Box(sample("f4")), to="numpy"), np.ndarray)
    finally:
        registry._known.pop("boxes", None)
        for owners in registry._by_root.values():
            owners[:] = [owner for owner in owners if owner.name != "boxes"]
        registry._by_type.clear()
        registry._by_lasting_type.clear()


def test_mapping_that_its_constructor_changes_is_refused() -> None:
    class Doubled(CustomMapping):
        def __init__(self, items: dict) -> None:
            super().__init__({key: [value, value] for key, value in items.items()})

    source = Doubled({"a": sample("f4")})
    with pytest.raises(zc.UnsupportedConversionError, match="cannot be rebuilt") as raised:
        zc.convert(source, "numpy")
    assert raised.value.code == "container-type"
    assert not zc.explain(source, "numpy").possible


class ScalingDict(dict):
    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value * 2)


class UpperDict(dict):
    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key.upper(), value)


class ScalingList(list):
    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, [item * 2 for item in value])


class ScalingTuple(tuple):
    def __new__(cls, items: Any) -> Any:
        return super().__new__(cls, [item * 2 for item in items])


class ScalingPoint(namedtuple("ScalingPoint", "x")):
    def __new__(cls, x: Any) -> Any:
        return super().__new__(cls, x * 2)


@pytest.mark.parametrize(
    "container",
    [
        ScalingDict({"a": np.ones(2)}),
        UpperDict({"a": np.ones(2)}),
        ScalingList([np.ones(2)]),
        ScalingTuple([np.ones(2)]),
        ScalingPoint(np.ones(2)),
    ],
    ids=lambda container: type(container).__name__,
)
def test_containers_whose_methods_change_the_items_are_refused(container: Any) -> None:
    pytest.importorskip("torch")
    with pytest.raises(zc.UnsupportedConversionError, match="change the items") as caught:
        zc.convert(container, to="torch")
    assert caught.value.code == "container-type"
    fixed = pasted(caught.value.calls[0], {"zc": zc, "x": container})
    values = fixed.values() if isinstance(fixed, dict) else fixed
    assert [value.tolist() for value in values] == [
        value.tolist() for value in (container.values() if isinstance(container, dict) else container)
    ]


def test_plain_items_of_subclasses_are_kept_by_value() -> None:
    torch = pytest.importorskip("torch")
    size = torch.Size([1000, 70_000])
    batch = zc.convert({"x": np.ones(2), "size": size, "n": Counter(a=70_000)}, "torch", leaves="keep")
    assert batch["size"] == size
    assert type(batch["size"]) is torch.Size
    assert batch["n"] == Counter(a=70_000)


def test_mapping_of_a_file_is_refused_before_its_leaves_are_read() -> None:
    reads = []

    class File(CustomMapping):
        def __init__(self, items: dict, path: str) -> None:
            super().__init__(items)

    class Dataset:
        @property
        def __array_interface__(self):
            reads.append(1)
            return sample("f4").__array_interface__

    with pytest.raises(zc.UnsupportedConversionError, match="cannot be rebuilt"):
        zc.convert(File({"x": Dataset()}, "file.h5"), to="numpy", copy=True)
    assert len(reads) <= 1  # the check for a protocol; no conversion


def test_mapping_whose_items_raise_is_refused() -> None:
    class Broken(CustomMapping):
        def __iter__(self):
            raise OSError("the file is closed")

    with pytest.raises(zc.UnsupportedConversionError, match="the file is closed"):
        zc.convert(Broken({}), to="numpy")
    assert not zc.explain(Broken({}), to="numpy").possible


def test_cycle_through_a_dataclass_is_refused() -> None:
    layer = Layer(sample("f4"), None)
    layer.bias = [layer]
    with pytest.raises(zc.UnsupportedConversionError, match=r"holds itself at \.bias\[0\]"):
        zc.convert(layer, to="numpy")
    assert not zc.explain(layer, to="numpy").possible


def test_errors_and_plans_name_fields_as_attributes() -> None:
    model = {"layers": [Layer(sample("f4"), object())]}
    with pytest.raises(zc.UnsupportedConversionError, match=r"\['layers'\]\[0\]\.bias"):
        zc.convert(model, to="numpy")
    assert "['layers'][0].bias" in zc.explain(model, to="numpy").leaves


def test_mappings_of_columns_are_tables_of_table_frameworks() -> None:
    columns = UserDict(a=np.arange(3), b=np.ones(3))
    for target in (name for name in HOST if registry.by_name(name).kind == "table"):
        for mapping in (columns, MappingProxyType(dict(columns))):
            result, expected = zc.convert(mapping, to=target), zc.convert(dict(columns), to=target)
            assert type(result) is type(expected)
    matrix = zc.convert(MappingProxyType({"a": np.ones(2), "b": np.ones(2)}), "numpy", layout="matrix")
    assert matrix.shape == (2, 2)


# -- leaves="keep" --------------------------------------------------------------------

CALLABLE = len
KEPT = ["text", b"bytes".decode(), None, 3, 2.5, True, 1j, CALLABLE, object(), {1, 2}, int, np.str_("n")]


def checkpoint() -> dict[str, Any]:
    return {
        "model": Layer(sample("f4"), None),
        "epoch": 3,
        "name": "run",
        "losses": [0.5, 0.25],
        "extra": KEPT,
    }


@pytest.mark.parametrize("target", TENSORS)
def test_leaves_that_are_not_arrays_are_kept(target: str) -> None:
    source = checkpoint()
    plan = zc.explain(source, target, leaves="keep")
    result = zc.convert(source, to=target, leaves="keep")
    assert result["epoch"] == 3
    assert result["losses"] == [0.5, 0.25]
    assert result["model"].bias is None
    assert all(kept is original for kept, original in zip(result["extra"], KEPT, strict=True))
    assert zc.view(result["model"].weight).shape == sample("f4").shape
    assert plan.possible
    assert plan.zero_copy == zc.shares_memory(source, result)
    assert plan.leaves["['epoch']"].kept
    assert not plan.leaves["['model'].weight"].kept
    assert "['name']: str -> " in str(plan)
    assert "kept unchanged" in str(plan)
    assert "1 array " in str(plan)


@pytest.mark.parametrize(
    "leaf",
    [leaf for leaf in KEPT if not isinstance(leaf, (np.str_, int, float, complex))],
    ids=lambda leaf: type(leaf).__name__,
)
def test_leaves_that_are_not_arrays_are_refused_by_default(leaf: Any) -> None:
    source = {"x": sample("f4"), "leaf": leaf}
    with pytest.raises(zc.UnsupportedConversionError, match='leaves="keep"') as raised:
        zc.convert(source, to="numpy")
    plan = zc.explain(source, to="numpy")
    assert plan.error is not None
    assert plan.error.remedy == raised.value.remedy
    assert zc.convert(source, to="numpy", leaves="keep")["leaf"] is leaf


def test_object_outside_a_container_is_refused_with_leaves_keep() -> None:
    for obj in ("text", 3, None):
        with pytest.raises(zc.UnsupportedConversionError) as raised:
            zc.convert(obj, to="numpy", leaves="keep")
        assert "keeps it" not in raised.value.remedy


def test_arrays_that_cannot_be_converted_are_not_kept() -> None:
    """Keeping them would return an array of the source's framework without notice."""
    for leaf in (np.array([object()]), np.zeros(2, "M8[s]"), np.float32(1)):
        plan = zc.explain([leaf], to="torch", leaves="keep")
        assert not plan.leaves["[0]"].kept
        assert plan.error is None or "leaves" not in plan.error.remedy


def test_leaves_keep_on_an_array_changes_nothing() -> None:
    array = sample("f4")
    assert zc.convert(array, to="numpy", leaves="keep") is array
    assert zc.convert(array, to="numpy", leaves=None) is array


@pytest.mark.parametrize("value", ["drop", True, False, 1, ""])
def test_other_values_of_leaves_are_refused(value: Any) -> None:
    for run in (zc.convert, zc.explain):
        with pytest.raises(ValueError, match="leaves must be 'keep' or 'error' or None"):
            run([sample("f4")], "numpy", leaves=value)


def test_plan_without_arrays_is_kept() -> None:
    plan = zc.explain({"epoch": 3}, "numpy", leaves="keep")
    assert plan.kept
    assert not plan.zero_copy
    assert not zc.explain([], "numpy", leaves="keep").kept
    with pytest.raises(zc.errors.UnknownFrameworkError):
        zc.convert({"epoch": 3}, to="nonsense", leaves="keep")


def test_checkpoint_is_a_container_for_table_frameworks_too() -> None:
    source = {"weight": sample("f4"), "epoch": 3}
    for target in (name for name in HOST if registry.by_name(name).tables):
        assert zc.explain(source, target, leaves="keep").possible
        assert zc.convert(source, to=target, leaves="keep")["epoch"] == 3


@pytest.mark.hazard("producers#mappings-that-cannot-be-rebuilt")
@pytest.mark.parametrize("groups", [{}, {"g{}": {}}, {"a": {"b": {}}, "c": {}}])
@pytest.mark.parametrize(
    "wrap", [lambda x: x, lambda x: {"file {0}": x}, lambda x: [x]], ids=["", "dict", "list"]
)
def test_fix_for_an_hdf5_file_works_when_pasted(groups: Any, wrap: Any, tmp_path: Any) -> None:
    h5py = pytest.importorskip("h5py")

    def fill(group: Any, inner: Any) -> None:
        group["x"] = sample("f4")
        for name, deeper in inner.items():
            fill(group.create_group(name), deeper)

    with h5py.File(tmp_path / "x.h5", "w") as file:
        fill(file, groups)
        x = wrap(file)
        with pytest.raises(zc.UnsupportedConversionError, match="cannot be rebuilt") as raised:
            zc.convert(x, "numpy")
        (code,) = raised.value.calls
        assert str(raised.value).count("dict(") == str(code).count("dict(")
        result = pasted(code, {"zc": zc, "x": x})
    assert set(result) == {"x", *groups}
    np.testing.assert_array_equal(result["x"], sample("f4"))


def test_fix_for_a_list_that_cannot_be_rebuilt_works_when_pasted() -> None:
    class NotCopied(list):
        def __copy__(self) -> Any:
            raise TypeError("no copy")

    x = NotCopied([sample("f4")])
    with pytest.raises(zc.UnsupportedConversionError, match="cannot be rebuilt") as raised:
        zc.convert(x, "numpy")
    (code,) = raised.value.calls
    assert isinstance(pasted(code, {"zc": zc, "x": x}), list)


def test_fix_for_a_file_that_links_to_itself_is_short(tmp_path: Any) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_group("a")["root"] = h5py.SoftLink("/")
        file["b"] = h5py.SoftLink("/a")
        with pytest.raises(zc.UnsupportedConversionError, match="cannot be rebuilt") as raised:
            zc.convert(file, "numpy")
    assert len(raised.value.calls[0]) < 1000
