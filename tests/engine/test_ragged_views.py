"""Arrow lists that contain views, and slices with nulls outside of their own lists."""

from __future__ import annotations

from typing import Any

import pytest
from helpers import fix_cases

import zerocopy as zc

pa = pytest.importorskip("pyarrow")
pytest.importorskip("awkward")
if not hasattr(pa, "list_view"):
    pytest.skip("this pyarrow has no list views", allow_module_level=True)

DEEP = [[[1], [2, 3]], [], [[], [4]]]
INT = pa.int64()


@pytest.mark.parametrize("copy", [None, True])
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.list_(pa.list_view(INT)), DEEP),
        (pa.list_view(pa.list_(INT)), DEEP),
        (pa.list_view(pa.list_view(INT)), DEEP),
        (pa.list_(pa.list_(pa.list_view(INT))), [DEEP, [], DEEP]),
        (pa.list_(pa.list_view(pa.list_(INT))), [DEEP, [], DEEP]),
    ],
    ids=str,
)
def test_offsets_outside_of_views_are_the_sources_own(kind: Any, value: Any, copy: bool | None) -> None:
    x = pa.array(value, kind)
    plan = zc.explain(x, "awkward", copy=copy)
    result = zc.convert(x, "awkward", copy=copy)
    assert result.tolist() == value
    assert plan.shares_memory == zc.shares_memory(x, result)
    assert plan.shares_memory == (copy is None and not str(kind).startswith("list_view"))
    own = [leaf.copied_bytes == 0 for name, leaf in plan.leaves.items() if name != ".values"]
    views = [part.startswith("list_view") for part in str(kind).split("<item: ")[:-1]]
    outer = views.index(True)
    assert own == [copy is None and level < outer for level in range(len(views))]


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(
    ("value", "own"),
    [
        ([[None], [1.0], [2.0, 3.0]], slice(1, 3)),
        ([[1.0], [2.0, 3.0], [None]], slice(0, 2)),
        ([[[None]], [[1.0]], [None]], slice(1, 2)),
    ],
)
def test_nulls_outside_of_a_slice_have_a_fix(value: Any, own: slice, chunked: bool) -> None:
    x = pa.array(value)[own]
    x = pa.chunked_array([x]) if chunked else x
    with pytest.raises(zc.UnsupportedConversionError, match="outside of its own lists") as raised:
        zc.convert(x, "awkward")
    result = fix_cases.paste(raised.value.calls[0], x, fix_cases.Recorder())
    assert result.tolist() == value[own]


def test_nulls_of_a_slice_itself_are_refused() -> None:
    x = pa.array([[1.0], [None], [None, 2.0]])[1:]
    with pytest.raises(zc.UnsupportedConversionError, match="2 of its values are null"):
        zc.convert(x, "awkward")
