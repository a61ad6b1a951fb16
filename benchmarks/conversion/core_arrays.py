"""Questions about single arrays: pairs, fresh tensors, dtypes, read-only memory, options, explain."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import zerocopy as zc
from benchmarks.conversion import goals
from benchmarks.conversion.contenders import Pair, aliases, contenders, pairs
from benchmarks.conversion.question import Question, Timed, method, methods, ours
from benchmarks.conversion.subjects import SUBJECTS, aligned_values, numpy_dtype
from zerocopy.dtype import by_name

COUNT = 1000  # elements

#: Options are measured between these frameworks, which need the least time without options.
OPTION_PAIRS: tuple[Pair, ...] = (("numpy", "torch"), ("torch", "numpy"))

Wants = Callable[[str], bool]


def arrays(wants: Wants) -> Iterator[Question]:
    """Yield the questions of the installed and wanted frameworks."""
    known = pairs(wants)
    for name in dict.fromkeys(source for source, _ in known):
        yield same_type(name)
    for pair in known:
        yield across(pair)
    if ("torch", "numpy") in known:
        yield fresh()
    for pair in known:
        if "pyarrow" not in pair:  # it has neither dtype
            yield from dtypes(pair)
    for pair in known:
        if pair[0] == "numpy":
            yield read_only(pair)
    for pair in OPTION_PAIRS:
        if pair in known:
            yield from options(pair)
    for pair in known:
        yield explained(pair)


def same_type(name: str) -> Question:
    """Return the question of an object that already belongs to the target."""
    x = SUBJECTS[name].make(aligned_values(COUNT))

    def wrong(result: Any) -> str:
        return "" if result is x else "gives another object"

    return Question(f"{name} -> {name}", ours(f'zc.convert(x, "{name}")', {"x": x}), wrong)


def across(pair: Pair, name: str = "", make: Callable[[], Any] | None = None) -> Question:
    """Return the question of one pair: zerocopy, the documented call, and code by hand."""
    expected = aligned_values(COUNT)
    x = SUBJECTS[pair[0]].make(expected)
    timed = ours(f'zc.convert(x, "{pair[1]}")', {"x": x}, make)
    timed += methods(contenders(pair), {"x": x}, "documented", "idiom", make=make)
    return Question(name or " -> ".join(pair), timed, partial(aliases, pair, x, expected))


def fresh() -> Question:
    """Return the question of tensors whose storage was never converted before."""
    import torch

    return across(("torch", "numpy"), f"torch -> numpy, {goals.FRESH}", partial(torch.empty, COUNT))


#: bfloat16 and float8 by hand: as bits, which the target views as the dtype.
_AS_BITS = {
    ("numpy", "torch"): "torch.from_numpy(x.view(np.{bits})).view(torch.{name})",
    ("torch", "numpy"): "x.view(torch.{bits}).numpy().view(dtype)",
}


def _compared(pair: Pair, x: Any) -> list[Timed]:
    """Return the conversion of `x`, and that of an ordinary array of float32 as a reference."""
    call = f'zc.convert({{}}, "{pair[1]}")'.format
    plain = SUBJECTS[pair[0]].make(aligned_values(COUNT))
    reference = method(call("float32"), "reference", {"float32": plain}, goals.FLOAT32)
    return [*ours(call("x"), {"x": x}), replace(reference, checked=False)]


def dtypes(pair: Pair) -> Iterator[Question]:
    """Yield a question for each dtype that NumPy lacks, if the target can alias it."""
    for name in goals.DTYPES:
        expected = aligned_values(COUNT, name)
        x = SUBJECTS[pair[0]].make(expected)
        if not zc.explain(x, pair[1]).zero_copy:
            continue  # TensorFlow takes float8 only with a copy
        timed = _compared(pair, x)
        if pair in _AS_BITS:
            code = _AS_BITS[pair].format(bits=by_name(name).storage.name, name=name)
            timed.append(method(code, "idiom", {"x": x, "dtype": numpy_dtype(name)}))
        yield Question(f"{' -> '.join(pair)}, {name}", timed, partial(aliases, pair, x, expected))


def read_only(pair: Pair) -> Question:
    """Return the question of a NumPy array that is marked read-only."""
    expected = aligned_values(COUNT)
    x = expected.view()
    x.flags.writeable = False
    name = f"{' -> '.join(pair)}, {goals.READ_ONLY}"
    return Question(name, _compared(pair, x), partial(aliases, pair, expected, expected))


def options(pair: Pair) -> Iterator[Question]:
    """Yield a question for each option that changes nothing for this array."""
    expected = aligned_values(COUNT)
    x = SUBJECTS[pair[0]].make(expected)
    plain = f'zc.convert(x, "{pair[1]}")'
    for option in goals.OPTIONS:
        timed = ours(f'zc.convert(x, "{pair[1]}", {option})', {"x": x})
        timed.append(method(plain, "reference", {"x": x}, goals.PLAIN))
        yield Question(f"{' -> '.join(pair)}, {option}", timed, partial(aliases, pair, x, expected))


def explained(pair: Pair) -> Question:
    """Return the question of a plan."""
    x = SUBJECTS[pair[0]].make(aligned_values(COUNT))

    def wrong(plan: Any) -> str:
        return "" if plan.possible and plan.zero_copy else f"plans {plan}"

    timed = [method(f'zc.explain(x, "{pair[1]}")', "ours", {"x": x})]
    return Question(f"{' -> '.join(pair)}, {goals.EXPLAIN}", timed, wrong)
