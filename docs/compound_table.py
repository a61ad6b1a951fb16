"""The table of sparse and ragged arrays in docs/conversions/pairs.md, for ``conversions.py``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

import zerocopy
from zerocopy import registry
from zerocopy.errors import ZeroCopyError
from zerocopy.framework import hook_of
from zerocopy.protocols.array_interface import aligned_copy
from zerocopy.sparse_ragged.hook import CompoundHook
from zerocopy.sparse_ragged.ragged import RaggedLayout
from zerocopy.sparse_ragged.sparse import SparseLayout


@dataclass(frozen=True)
class Sample:
    """A kind of array: its title, a layout to ask the frameworks about, and the array in one framework."""

    title: str
    layout: Any
    make: Callable[[], Any]


def sparse(form: str, index: str) -> Any:
    """Return a SciPy array with aligned parts, whose coordinates are rows of one array."""
    import scipy.sparse

    x = scipy.sparse.csr_array(np.eye(64, dtype="f4")).asformat(form)
    x.data = aligned_copy(x.data)
    if form == "coo":
        x.coords = tuple(aligned_copy(np.stack(x.coords).astype(index)))
    else:
        x.indices, x.indptr = (aligned_copy(part.astype(index)) for part in (x.indices, x.indptr))
    return x


def ragged(offsets: str) -> Any:
    """Return a list array of pyarrow with aligned values and offsets of one type."""
    import pyarrow as pa

    kind = pa.ListArray if offsets == "int32" else pa.LargeListArray
    ends = aligned_copy(np.array([0, 2, 2, 5], offsets))
    return kind.from_arrays(pa.array(ends), pa.array(aligned_copy(np.arange(5, dtype="f4"))))


SAMPLES = [
    *(
        Sample(f"Ragged, {offsets}", RaggedLayout(1, 1), lambda o=offsets: ragged(o))
        for offsets in ("int32", "int64")
    ),
    *(
        Sample(f"{form.upper()}, {index}", SparseLayout(form, (1, 1)), lambda f=form, i=index: sparse(f, i))
        for form in ("csr", "csc", "bsr", "coo")
        for index in ("int32", "int64")
    ),
]


def table(names: Iterable[str], table_of: Callable[[list[str], list[list[str]]], str]) -> str:
    """Return a row for each sample with its frameworks, and with the pairs that are not aliases, by reason.

    Parameters
    ----------
    names : iterable of str
        The installed frameworks.
    table_of : callable
        ``table_of(heads, rows) -> str``.
    """
    hooks = {name: hook_of(registry.by_name(name), CompoundHook) for name in names}
    titles: dict[tuple[str, str, str], list[str]] = {}  # int32 and int64 often have the same outcomes
    for sample in SAMPLES:
        chosen = [name for name, hook in hooks.items() if hook.accepts(sample.layout)]
        sources = {name: x for name in chosen if (x := _source(sample, name)) is not None}
        others: dict[tuple[str, str, str], list[str]] = {}
        for target in chosen:
            for name, x in sources.items():
                word, reasons = _outcome(x, target)
                for why in reasons:
                    others.setdefault((word, target, why), []).append(name)
        lines = [f"{_origin(word, to, names, sources)}: {why}" for (word, to, why), names in others.items()]
        titles.setdefault((", ".join(sources), ", ".join(chosen), "<br>".join(lines)), []).append(
            sample.title
        )
    rows = [["; ".join(some), *cells] for cells, some in titles.items()]
    return table_of(["format", "from", "to", "other than alias"], rows)


def _origin(word: str, target: str, names: list[str], sources: Iterable[str]) -> str:
    """Return an outcome with its target, and its sources if others have another outcome."""
    every = names == [name for name in sources if name != target]
    return f"{word} to {target}" + ("" if every else f" from {', '.join(names)}")


def _source(sample: Sample, name: str) -> Any:
    try:
        return zerocopy.convert(sample.make(), to=name)
    except ZeroCopyError:
        return None


def _outcome(x: Any, target: str) -> tuple[str, list[str]]:
    """Return a word for the pair, and why it copies or refuses."""
    plan = zerocopy.explain(x, target)
    if not plan.possible:
        return "refused", [plan.reasons[0].why]
    result = zerocopy.convert(x, to=target)
    if zerocopy.shares_memory(x, result) != plan.shares_memory:
        raise AssertionError(f"a promise is broken: to {target}; zerocopy.explain has details")
    word = "alias" if plan.zero_copy else "part" if plan.shares_memory else "copy"
    return word, [] if plan.zero_copy else [reason.why for reason in plan.reasons]
