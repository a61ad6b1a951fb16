"""Routes with options return the results of the slow path, for all pairs of frameworks on the host."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from helpers.arrays import sample
from helpers.frameworks import ALIASING, HOST, PAIRS

import zerocopy as zc
from zerocopy._engine import routes
from zerocopy._native import core


@pytest.mark.parametrize("to", ALIASING)
def test_copies_are_aligned_to_64_bytes(to: str) -> None:
    for _ in range(20):
        result = zc.convert(np.arange(5.0), to, copy=True)
        assert zc.view(result).is_aligned(64)


# -- tables -----------------------------------------------------------------------


def test_errors_repeat_the_options_in_the_order_of_the_call() -> None:
    x = sample("f4", (64,))
    for options in ({"dtype": "float32", "copy": False}, {"copy": False, "dtype": "float32"}):
        text = ", ".join(f"{name}={value!r}" for name, value in options.items())
        zc.convert(x, "numpy", **options)
        with pytest.raises(zc.CopyRequiredError) as error:
            zc.convert(x.astype("f8"), to="numpy", **options)
        assert f"to='numpy', {text})" in str(error.value)


@pytest.mark.parametrize("kind", ["pyarrow", "pandas", "polars"])
@pytest.mark.parametrize("columns", [[], ()], ids=str)
def test_no_columns_are_an_empty_dict(kind: str, columns: Any) -> None:
    pytest.importorskip(kind)
    table = zc.convert({"a": np.arange(8.0), "b": np.arange(8.0)}, kind)
    for _ in range(3):
        assert zc.convert(table, "numpy", columns=columns) == {}
        assert zc.converter(table, "numpy", columns=columns)(table) == {}
        assert zc.convert(table, "numpy", columns=columns, layout="matrix").shape[1] == 0


def test_labels_that_are_equal_are_the_labels_of_the_table() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({1: [1.0], "1": [2.0], 2.5: [3.0]})
    for labels in ([1], [True], [1.0], [np.int64(1)], ["1"], [2.5]):
        results = []
        for _ in range(3):
            result = zc.convert(frame, "numpy", columns=labels)
            results.append([(key, type(key), value.tolist()) for key, value in result.items()])
        routes.clear()
        result = zc.convert(frame, "numpy", columns=labels)
        assert results == [[(key, type(key), value.tolist()) for key, value in result.items()]] * 3


def test_list_of_labels_can_change_between_calls() -> None:
    pa = pytest.importorskip("pyarrow")
    table, labels = pa.table({"a": [1], "b": [2]}), ["a"]
    assert list(zc.convert(table, "numpy", columns=labels)) == ["a"]
    labels[:] = ["b"]
    assert list(zc.convert(table, "numpy", columns=labels)) == ["b"]


# -- the tables of routes ------------------------------------------------------------


def test_values_that_are_equal_and_of_other_types_have_other_keys() -> None:
    x = sample("f4")
    for _ in range(2):
        zc.convert(x, "numpy", copy=True)
        zc.convert(x, "numpy", writable=False)
        for options in ({"copy": 1}, {"copy": 1.0}, {"writable": 0}, {"copy": np.True_}):
            with pytest.raises(ValueError, match="True, False or None"):
                zc.convert(x, "numpy", **options)


def test_an_option_that_cannot_be_hashed_takes_the_slow_path() -> None:
    x = sample("f4")
    assert zc.convert(x, "numpy", dtype={"float32": "float64"}).dtype == "f8"
    with pytest.raises(zc.LossyConversionError) as caught:
        zc.convert(np.array([300]), "numpy", dtype={"int64": "uint8"})
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    with pytest.raises(TypeError, match="unexpected keyword") as wrong:
        zc.convert(x, "numpy", colour={})
    assert wrong.value.__suppress_context__


def test_replacing_a_framework_drops_the_routes_with_options() -> None:
    from zerocopy import registry

    x, kept = sample("f4"), routes.routes_of("numpy", {"copy": False})
    zc.convert(x, "numpy", copy=False)
    assert (kept.get(np.ndarray) is None) == (core is None)
    zc.register(registry.by_name("numpy"))
    assert kept.get(np.ndarray) is None
    assert zc.convert(x, "numpy", copy=False) is x


def test_a_refusal_is_not_kept() -> None:
    x = sample("f4")[:, ::2]
    if "tensorflow" not in HOST:
        pytest.skip("needs a framework that refuses strides")
    for _ in range(2):
        with pytest.raises(zc.CopyRequiredError):
            zc.convert(x, "tensorflow", copy=False)
        assert routes.routes_of("tensorflow", {"copy": False}).get(np.ndarray) is None


@pytest.mark.parametrize("options", [{name: None} for name in sorted(routes.OPTIONS)], ids=str)
def test_none_is_the_default(options: dict[str, Any]) -> None:
    x = sample("f4")
    for _ in range(2):
        assert zc.convert(x, "numpy", **options) is x


@pytest.mark.skipif(core is None, reason="only the compiled core has routes with options")
@pytest.mark.parametrize(("source", "to"), PAIRS)
def test_pairs_have_routes_with_options(source: str, to: str) -> None:
    if "mxnet" in (source, to):
        pytest.skip("its errors must not come from the fast path")
    x = zc.convert(sample("f4", (64,)), source, copy=True)
    from zerocopy import registry

    for options in ({"copy": False}, {"device": "cpu"}, {"writable": False}, {"dtype": "float32"}):
        own = registry.by_name(to)
        copies = own.can_copy_to_device or to == "numpy"
        if source == to and (own.tables or not copies) and options != {"copy": False}:
            continue  # its own arrays are columns, or it does not copy them itself
        if to not in ALIASING and source != to and not options.keys() <= {"device", "writable"}:
            continue  # its importers copy
        plain = {"copy"} if source == to else {"copy", "device"}
        if "native" not in own.fast_importers() and not options.keys() <= plain:
            continue  # the core cannot mark or compare the memory
        zc.convert(x, to, **options)
        assert routes.routes_of(to, options).get(type(x)) not in (None, routes.NO_ROUTE), options


# -- containers and threads ------------------------------------------------------------


def test_leaf_without_a_route_names_its_path() -> None:
    rows = [sample("f4", (64,)), {"x": np.array(["text"])}]
    if "torch" not in HOST:
        pytest.skip("needs a framework without text")
    for _ in range(2):
        with pytest.raises(zc.UnsupportedConversionError, match=r"\[1\]\['x'\]"):
            zc.convert(rows, "torch", copy=False)


def test_threads_convert_and_share_converters_while_routes_are_dropped() -> None:
    x, errors = sample("f4", (64,)), []
    options = [{"copy": False}, {"copy": True}, {"writable": False}, {"device": "cpu"}, {"dtype": "float32"}]

    converters = {to: [zc.converter(np.ndarray, to, **each) for each in options] for to in HOST}

    def work() -> None:
        try:
            for i in range(300):
                k = i % len(options)
                for to in HOST:
                    result = converters[to][k](x) if i % 2 else zc.convert(x, to, **options[k])
                    assert zc.shares_memory(x, result) == (k != 1)
        except BaseException as error:  # noqa: BLE001 - shown by the main thread
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        routes.clear()
        for thread in threads:
            thread.join(0.002)
    assert not errors
