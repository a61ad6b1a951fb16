"""Questions about single arrays: pairs, fresh tensors, dtypes, read-only memory, options, explain."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import zerocopy as zc
from benchmarks.conversion import goals
from benchmarks.conversion.contenders import Pair, contenders, differs, namespace, pairs
from benchmarks.conversion.question import Method, Question, method, ours
from benchmarks.conversion.subjects import SUBJECTS, Array, aligned_values, numpy_dtype
from benchmarks.timing import Statement
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


def aliases(pair: Pair, x: Any, expected: Array, result: Any) -> str:
    """Return how a result differs from an alias of `x`, or nothing."""
    return differs(pair, result, expected) or ("" if zc.shares_memory(x, result) else "copies")


def across(pair: Pair, name: str = "", make: Callable[[], Any] | None = None) -> Question:
    """Return the question of one pair: zerocopy, the documented call, and code by hand."""
    expected = aligned_values(COUNT)
    x = SUBJECTS[pair[0]].make(expected)
    names = namespace(pair) | {"x": x}
    methods = ours(f'zc.convert(x, "{pair[1]}")', names, make)
    methods += [
        method(contender.code, contender.role, names, contender.note, make)
        for contender in contenders(pair)
        if contender.role in ("documented", "idiom")
    ]
    return Question(name or " -> ".join(pair), methods, partial(aliases, pair, x, expected))


def fresh() -> Question:
    """Return the question of tensors whose storage was never converted before."""
    import torch

    return across(("torch", "numpy"), f"torch -> numpy, {goals.FRESH}", partial(torch.empty, COUNT))


#: bfloat16 and float8 by hand: as bits, which the target views as the dtype.
_AS_BITS = {
    ("numpy", "torch"): "torch.from_numpy(x.view(np.{bits})).view(torch.{name})",
    ("torch", "numpy"): "x.view(torch.{bits}).numpy().view(dtype)",
}


def _compared(pair: Pair, x: Any, names: dict[str, Any]) -> list[Method]:
    """Return the conversion of `x`, and that of an ordinary array of float32 as a reference."""
    call = f'zc.convert({{}}, "{pair[1]}")'.format
    plain = SUBJECTS[pair[0]].make(aligned_values(COUNT))
    code = call("float32")
    statement = Statement(code, {"zc": zc, "float32": plain})
    reference = Method(code, "reference", statement, goals.FLOAT32, checked=False)
    return [*ours(call("x"), {**names, "x": x}), reference]


def dtypes(pair: Pair) -> Iterator[Question]:
    """Yield a question for each dtype that NumPy lacks, if the target can alias it."""
    for name in goals.DTYPES:
        expected = aligned_values(COUNT, name)
        x = SUBJECTS[pair[0]].make(expected)
        if not zc.explain(x, pair[1]).zero_copy:
            continue  # TensorFlow takes float8 only with a copy
        names = namespace(pair) | {"x": x, "dtype": numpy_dtype(name)}
        methods = _compared(pair, x, names)
        if pair in _AS_BITS:
            code = _AS_BITS[pair].format(bits=by_name(name).storage.name, name=name)
            methods.append(method(code, "idiom", names))
        wrong = partial(aliases, pair, x, expected)
        yield Question(f"{' -> '.join(pair)}, {name}", methods, wrong)


def read_only(pair: Pair) -> Question:
    """Return the question of a NumPy array that is marked read-only."""
    expected = aligned_values(COUNT)
    x = expected.view()
    x.flags.writeable = False
    methods = _compared(pair, x, namespace(pair))
    return Question(
        f"{' -> '.join(pair)}, {goals.READ_ONLY}", methods, partial(aliases, pair, expected, expected)
    )


def options(pair: Pair) -> Iterator[Question]:
    """Yield a question for each option that changes nothing for this array."""
    expected = aligned_values(COUNT)
    x = SUBJECTS[pair[0]].make(expected)
    plain = f'zc.convert(x, "{pair[1]}")'
    for option in goals.OPTIONS:
        names = {"zc": zc, "x": x}
        methods = ours(f'zc.convert(x, "{pair[1]}", {option})', names)
        methods.append(method(plain, "reference", names, goals.PLAIN))
        yield Question(f"{' -> '.join(pair)}, {option}", methods, partial(aliases, pair, x, expected))


def explained(pair: Pair) -> Question:
    """Return the question of a plan."""
    x = SUBJECTS[pair[0]].make(aligned_values(COUNT))

    def wrong(plan: Any) -> str:
        return "" if plan.possible and plan.zero_copy else f"plans {plan}"

    methods = [method(f'zc.explain(x, "{pair[1]}")', "ours", {"zc": zc, "x": x})]
    return Question(f"{' -> '.join(pair)}, {goals.EXPLAIN}", methods, wrong)
