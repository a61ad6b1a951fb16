"""The index of pandas as a coordinate: what the plan says of its memory is true."""

from __future__ import annotations

from typing import Any

import pytest

import zerocopy as zc

np = pytest.importorskip("numpy")
pd = pytest.importorskip("pandas")
xr = pytest.importorskip("xarray")

pytestmark = pytest.mark.filterwarnings("ignore")


def _arrays(obj: Any) -> list[Any]:
    variables = obj.variables.values() if isinstance(obj, xr.Dataset) else [obj.variable]
    return [variable.values for variable in variables]


@pytest.mark.parametrize("copy", [None, True, False])
@pytest.mark.parametrize("values", [">i4", ">f8", "<i4", "<f8"])
@pytest.mark.parametrize("kind", [">i4", ">i8", ">f8", ">u2", "<i4", "<f8", "M8[ns]", "bool"])
def test_coordinates_alias_as_the_plan_says(kind: str, values: str, copy: bool | None) -> None:
    column = np.arange(5).astype(values)
    index = pd.Index(np.arange(5).astype(kind))
    sources = [
        pd.DataFrame({"a": column}, index=index, copy=False),
        pd.Series(column, index=index, copy=False),
        index,
    ]
    for source, options in zip([*sources, sources[1]], [{}, {}, {}, {"index": True}], strict=True):
        plan = zc.explain(source, "xarray", copy=copy, **options)
        if not plan.possible:
            with pytest.raises(zc.CopyRequiredError):
                zc.convert(source, "xarray", copy=copy, **options)
            continue
        made = zc.convert(source, "xarray", copy=copy, **options)
        theirs = [index.to_numpy()] if source is index else [column, index.to_numpy()]
        ours = _arrays(made)
        aliases = any(np.shares_memory(one, other) for one in ours for other in theirs)
        assert plan.shares_memory == aliases, (plan, options)
        if not options:  # the index is not part of a series
            assert zc.shares_memory(source, made) == aliases
        if "index" in options or isinstance(source, pd.DataFrame):
            labels = next(one for name, one in made.variables.items() if name == "dim_0").values
            assert labels.tolist() == index.to_numpy().tolist()


def test_a_write_to_a_copied_index_is_not_seen() -> None:
    memory = np.arange(5).astype(">i4")
    index = pd.Index(memory, copy=False)
    made = zc.convert(pd.DataFrame({"a": ["x"] * 5}, index=index), "xarray")
    memory[0] = 99
    assert made["dim_0"].values.tolist() == [0, 1, 2, 3, 4]
