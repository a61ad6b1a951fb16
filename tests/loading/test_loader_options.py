"""Invalid values of options, and options that are larger than the data."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import zerocopy as zc

TABLE = pa.table({"x": np.arange(5.0), "n": np.arange(5), "city": ["Bern", "Oslo", "Bern", "Rome", "Bern"]})
NUMBERS = TABLE.select(["x", "n"])


@pytest.mark.parametrize(
    "options",
    [
        {"columns": []},
        {"columns": "xn"},
        {"columns": iter(["x"])},
        {"progress": "x"},
        {"batch_size": 0},
        {"batch_size": 2.0},
        {"shuffle": "yes"},
        {"shuffle": -1},
        {"seed": -1},
        {"prefetch": 0},
        {"epochs": 0},
        {"rank": -1},
        {"world_size": 0},
        {"rank": 1, "world_size": 1},
        {"layout": "rows"},
        {"on_error": "ignore"},
        {"encode": 0},
        {"drop_last": "yes"},
        {"drop_last": 1},
    ],
    ids=lambda options: next(iter(options)),
)
def test_wrong_values_are_refused(options: dict[str, Any]) -> None:
    name, *_ = options
    with pytest.raises(zc.errors.OptionError, match=rf"loader\({name}=") as caught:
        zc.loader(NUMBERS, to="numpy", **options)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("name", "wrong", "right"),
    [
        ("lists", "padd", "pad"),
        ("layout", "colums", "columns"),
        ("layout", "matrx", "matrix"),
        ("on_error", "rais", "raise"),
        ("encode", "byte", "bytes"),
        ("shuffle", "ful", "full"),
        ("nulls", "masc", "mask"),
        ("device", "cpuu", "cpu"),
    ],
)
def test_a_misspelled_value_gets_the_nearest_one_which_works(name: str, wrong: str, right: str) -> None:
    with pytest.raises(zc.ZeroCopyError, match=f'did you mean {name}="{right}"') as caught:
        list(zc.loader(NUMBERS, "numpy", **{name: wrong}))  # type: ignore[arg-type]
    assert isinstance(caught.value, ValueError)
    assert list(zc.loader(NUMBERS, "numpy", columns=["x"], **{name: right}))  # type: ignore[arg-type]


OPTIONS = [name for name in inspect.signature(zc.loader).parameters if name not in ("source", "to")]


@pytest.mark.parametrize("option", OPTIONS)
def test_the_message_for_a_misspelled_name_has_the_option(option: str) -> None:
    with pytest.raises(TypeError, match=f"did you mean '{option}'"):
        zc.loader(NUMBERS, "numpy", **{f"{option}x": None})


@pytest.mark.parametrize(
    ("wrong", "option"),
    [("batch", "batch_size"), ("num_epochs", "epochs"), ("ranks", "rank"), ("prefetch_factor", "prefetch")],
)
def test_the_message_for_a_wrong_name_has_the_right_one(wrong: str, option: str) -> None:
    with pytest.raises(TypeError, match=rf"'{wrong}'; did you mean '{option}'") as caught:
        zc.loader(NUMBERS, "numpy", **{wrong: 4})  # type: ignore[arg-type]
    assert "It takes 'source', 'to', 'batch_size', 'columns'" in str(caught.value)


@pytest.mark.parametrize(
    "options", [{}, {"shuffle": True}, {"layout": "matrix", "dtype": "float64"}], ids=str
)
@pytest.mark.parametrize("batch", [10**8, 2**62])
def test_batches_larger_than_the_data(batch: int, options: dict[str, Any]) -> None:
    """No buffer is larger than the data."""
    loader = zc.loader(NUMBERS, to="numpy", batch_size=batch, **options)
    assert len(loader) == 1
    (only,) = loader
    assert len(only["x"] if isinstance(only, dict) else only) == 5
    assert loader.explain().batch_bytes == 80


def test_explain_of_columns_with_one_name() -> None:
    twice = pa.table([pa.array([1]), pa.array([2])], names=["a", "a"])
    loader = zc.loader(twice, to="pyarrow")
    assert [batch.num_columns for batch in loader] == [2]
    assert "a: aliased" in str(loader.explain())


def test_a_matrix_of_codes_says_why_it_is_refused() -> None:
    with pytest.raises(zc.UnsupportedConversionError, match="cannot hold their meaning") as caught:
        zc.loader(TABLE, to="numpy", layout="matrix", encode=True, nulls=0)
    assert "nulls=0)" not in "".join(caught.value.calls)


def test_a_rank_requires_the_number_of_processes() -> None:
    for options, why in ({"rank": 0}, "world_size= is missing"), ({"world_size": 2}, "rank= is missing"):
        with pytest.raises(zc.errors.OptionError, match=why):
            zc.loader(NUMBERS, "numpy", **options)


def test_shards_stay_equal_after_unequal_ones() -> None:
    """With ``drop_last``, the states of all shards continue with equally many batches in each."""
    options: dict[str, Any] = {"to": "numpy", "batch_size": 3, "drop_last": True}
    data, states, taken = {"x": np.arange(51)}, [], []
    for rank, count in ((0, 0), (1, 5)):
        loader = zc.loader(data, rank=rank, world_size=2, **options)
        iterator = iter(loader)
        taken += [next(iterator)["x"].tolist() for _ in range(count)]
        states.append(loader.state_dict())
    lengths = []
    for rank in range(2):
        loader = zc.loader(data, rank=rank, world_size=2, **options)
        loader.load_state_dict(states)
        lengths.append(len(loader))
        taken += [batch["x"].tolist() for batch in loader]
    assert lengths[0] == lengths[1]
    rows = [row for batch in taken for row in batch]
    assert len(rows) == len(set(rows))
    assert len(rows) > 51 - 3 * 3


def test_exit_with_a_batch_alive_is_silent(run_python) -> None:
    """Buffers are freed after the globals of their module."""
    completed = run_python(
        "import numpy as np, zerocopy as zc\n"
        "iterator = iter(zc.loader({'x': np.arange(2000)}, to='numpy', batch_size=32, shuffle=300))\n"
        "import zerocopy.loading.buffers as buffers\n"
        "batch = next(iterator)\n"
        "vars(buffers).update(dict.fromkeys([name for name in vars(buffers) if name[:2] != '__']))\n"
    )
    assert (completed.returncode, completed.stderr) == (0, "")
