"""Rows of SciPy's sparse arrays, and errors of sources, which name the target that was asked for."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import numpy as np
import pytest
from helpers.pasting import pasted

import zerocopy as zc
from zerocopy import registry

sparse = pytest.importorskip("scipy.sparse")

ROWS, BATCH = 23, 4
DENSE = sparse.random(ROWS, 6, 0.4, random_state=0).toarray().astype("f4")
DENSE[[0, 7, 8, 9, 10, 11, 22]] = 0  # a batch without elements, and rows without at both ends
FORMATS = ("csr", "csc", "coo", "bsr", "lil", "dok", "dia")


def dense(batch: Any) -> np.ndarray[Any, Any]:
    return zc.convert(batch, "scipy").toarray()


def rows(batches: Any) -> np.ndarray[Any, Any]:
    parts = [dense(batch) for batch in batches]
    assert all(len(part) == BATCH for part in parts[:-1])
    return np.concatenate(parts)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("make", [sparse.csr_array, sparse.csr_matrix])
def test_batches_are_the_rows_in_order(format: str, make: Any) -> None:
    source = make(DENSE).asformat(format)
    loader = zc.loader(source, to="scipy", batch_size=BATCH)
    for _ in range(2):
        batches = list(loader)
        assert {batch.format for batch in batches} == {"coo" if format == "coo" else "csr"}
        assert np.array_equal(rows(batches), DENSE)
    assert len(loader) == 6
    assert loader.stats().rows == 2 * ROWS
    assert "23 in 1 group" in str(loader.explain())


@pytest.mark.parametrize("to", ["torch", "jax", "tensorflow", "sparse", "scipy"])
def test_batches_are_what_convert_gives(to: str) -> None:
    pytest.importorskip(to)
    source = sparse.coo_array(DENSE) if to == "tensorflow" else sparse.csr_array(DENSE)
    expected = type(zc.convert(source, to))
    batches = list(zc.loader(source, to=to, batch_size=BATCH))
    assert {type(batch) for batch in batches} == {expected}
    assert np.array_equal(rows(batches), DENSE)


def test_batches_of_csr_alias_the_values() -> None:
    source = sparse.csr_array(DENSE)
    for batch in zc.loader(source, to="scipy", batch_size=BATCH):
        assert batch.nnz == 0 or np.shares_memory(batch.data, source.data)
        assert batch.nnz == 0 or np.shares_memory(batch.indices, source.indices)


def test_unsorted_and_repeated_elements_stay_as_they_are() -> None:
    for indices in ([2, 0, 1, 0], [0, 0, 1, 0]):
        source = sparse.csr_array(
            (np.arange(1, 5.0), np.array(indices, "i4"), np.array([0, 3, 4], "i4")), shape=(2, 3)
        )
        (first, second) = zc.loader(source, to="scipy", batch_size=1)
        assert not first.has_canonical_format
        assert np.array_equal(np.concatenate([first.toarray(), second.toarray()]), source.toarray())


@pytest.mark.parametrize("shuffle", [True, "full", 8])
def test_shuffled_batches_have_each_row_once(shuffle: Any) -> None:
    source = sparse.csr_array(np.arange(1, ROWS + 1, dtype="f8")[:, None] * np.ones(3))
    loader = zc.loader(source, to="scipy", batch_size=BATCH, shuffle=shuffle)
    delivered = rows(loader)[:, 0].tolist()
    assert sorted(delivered) == list(range(1, ROWS + 1)) != delivered


def test_groups_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("zerocopy.loading.sources.memory", "zerocopy._frameworks.scipy.loading"):
        monkeypatch.setattr(f"{module}.GROUP_ROWS", 5)
    loader = zc.loader(sparse.csr_array(DENSE), to="scipy", batch_size=BATCH)
    assert loader.explain().groups == 5
    assert np.array_equal(rows(loader), DENSE)


def test_options_that_apply() -> None:
    source = sparse.csr_array(DENSE)
    (batch, *_) = zc.loader(source, to="scipy", batch_size=BATCH, dtype="float64")
    assert batch.dtype == np.float64
    assert np.array_equal(batch.toarray(), DENSE[:BATCH])
    halves = [rows(zc.loader(source, "scipy", batch_size=BATCH, rank=k, world_size=2)) for k in range(2)]
    assert np.array_equal(np.concatenate(halves), DENSE)
    assert len(list(zc.loader(source, to="scipy", batch_size=BATCH, drop_last=True))) == 5


@pytest.mark.parametrize(
    "options",
    [{"columns": ["x"]}, {"schema": {"x": "int8"}}, {"nulls": 0}, {"encode": True}, {"layout": "matrix"}],
    ids=lambda options: next(iter(options)),
)
def test_options_of_columns_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(zc.errors.OptionError, match="has no columns"):
        zc.loader(sparse.csr_array(DENSE), to="scipy", **options)


def test_states_and_copies() -> None:
    source = sparse.csr_array(DENSE)
    loader = zc.loader(source, to="scipy", batch_size=BATCH, shuffle=True)
    batches = iter(loader)
    next(batches)
    others = [
        copy.copy(loader),
        pickle.loads(pickle.dumps(loader)),
        zc.loader(source, "scipy", batch_size=BATCH, shuffle=True),
    ]
    others[-1].load_state_dict(loader.state_dict())
    left = rows(batches)
    assert all(np.array_equal(rows(other), left) for other in others)
    changed = sparse.csr_array(DENSE * 2)
    with pytest.raises(zc.errors.LoaderStateError):
        zc.loader(changed, "scipy", batch_size=BATCH, shuffle=True).load_state_dict(loader.state_dict())


def test_an_array_without_rows_has_no_batches() -> None:
    for shape in ((0, 3), (0, 0)):
        loader = zc.loader(sparse.csr_array(shape, dtype="f4"), to="scipy")
        assert list(loader) == []
        loader.load_state_dict(loader.state_dict())


# -- errors name the target ----------------------------------------------------------------------


def refused_sources() -> dict[str, Any]:
    torch = pytest.importorskip("torch")
    return {
        "csr": sparse.csr_array(DENSE),
        "one dimension": sparse.coo_array(np.ones(3)),
        "sparse tensor": torch.ones(3, 2).to_sparse(),
        "gradient": torch.ones(3, requires_grad=True),
        "member": {"x": torch.ones(3, requires_grad=True)},
        "sparse member": {"x": sparse.csr_array(DENSE)},
        "objects": np.array([None, 1]),
        "text": "no file",
        "number": 3,
    }


def error_of(source: Any, to: str) -> zc.ZeroCopyError | None:
    try:
        zc.loader(source, to=to)
    except zc.ZeroCopyError as error:
        return error
    return None


@pytest.mark.parametrize("to", registry.frameworks())
def test_errors_of_sources_name_the_target(to: str) -> None:
    for source in refused_sources().values():
        error = error_of(source, to)
        if error is not None and not isinstance(error, zc.FrameworkNotInstalledError):
            assert not error.asked.startswith("convert(")
            assert set(re.findall(r"to=['\"]?([\w.]+)", error.asked)) <= {to}


def test_fixes_of_sources_work_when_pasted() -> None:
    torch = pytest.importorskip("torch")
    for x, to in (
        (sparse.csr_array(DENSE), "numpy"),
        (sparse.csr_array(DENSE), "polars"),
        (sparse.csr_array(DENSE), "tensorflow"),
        (sparse.coo_array(np.ones(3)), "torch"),
        (torch.ones(3, requires_grad=True), "numpy"),
        (torch.ones(3, 2).to_sparse(), "torch"),
    ):
        pytest.importorskip(to)
        with pytest.raises(zc.ZeroCopyError) as caught:
            zc.loader(x, to=to)
        assert caught.value.calls
        for call in caught.value.calls:
            assert call.startswith("zc.loader(")
            assert len(list(pasted(call, {"zc": zc, "source": x}))) == 1
