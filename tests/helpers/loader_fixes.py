"""The walk that pastes the fixes of the loader's messages, as that of `fix_cases` does for ``convert``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import zerocopy as zc
from helpers import fix_objects
from helpers.fix_cases import Case, Recorder, attempt, restore
from helpers.pasting import pasted
from zerocopy.loading.loader import Loader

OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"layout": "matrix"},
    {"encode": True},
    {"nulls": 0},
    {"nulls": "mask", "shuffle": True, "batch_size": 1},
    {"dtype": "float32"},
    {"lists": "pad"},
    {"columns": ["x"], "batch_size": 1},
)
#: Codes for which no call of the same source helps: a text says what a source is.
NO_CALL = {
    "not-a-source": "the object has no rows",
    "not-an-array": "the value has no array",
    "unsupported": "the value has no array",
    "missing-file": "the caller knows which files exist",
    "no-files": "the caller knows which files exist",
    "no-memory": "the object has no memory",
    "too-few-dimensions": "the object has no rows",
    "duplicate-names": "the caller chooses the names",
    "python-objects": "Arrow has no type for the objects",
    "missing-dtype": "no framework has a type for quantized values",
    "used-up": "the stream was read",
}


class LoaderRecorder(Recorder):
    """``zc`` as a fix sees it: `loader` remembers its source, which the next fix calls ``source``."""

    source: Any = None

    def loader(self, source: Any, *args: Any, **options: Any) -> Any:
        self.source = source
        return zc.loader(source, *args, **options)


def consume(result: Any) -> None:
    """Read all batches of a loader, or of a generator that converts them."""
    if isinstance(result, (Loader, Iterator)):
        for _ in result:
            pass


def cases(module: str, targets: tuple[str, ...]) -> Iterator[Case]:
    """Yield the objects of one framework, with each target and option."""
    for name, make in fix_objects.objects().items():
        if name.partition(" ")[0] == module and "uuid" not in name:  # each scan has other values
            for to in targets:
                yield from (Case(name, make, to, options) for options in OPTIONS)


def problems_of(case: Case) -> list[str]:
    """Paste each fix of a refusal of the loader, and the first fix of each next one; return the problems."""
    error = attempt(lambda: consume(zc.loader(case.make(), case.to, **case.options)))
    if error is None:
        return []
    problems = [f"{case}: names convert: {error}"] if "convert(" in error.asked else []
    if not error.calls and error.code not in NO_CALL:
        problems.append(f"{case}: no call: {error}")
    for first in error.calls:
        source = case.make()
        problems += _follow(first, {"source": source}, [(error.code, error.why)], case)
        if ";" in first:
            restore()
    return problems


def _follow(code: str, names: dict[str, Any], seen: list[Any], case: Case) -> list[str]:
    recorder = LoaderRecorder()
    try:
        then = attempt(lambda: consume(pasted(code, {"zc": recorder, **names})))
    except Exception as raised:  # noqa: BLE001
        return [f"{case}: {code}\n    raised {type(raised).__name__}: {raised}"]
    if then is None or (not then.calls and then.code in NO_CALL):
        return []
    if not then.calls or (then.code, then.why) in seen or len(seen) > 3:
        return [f"{case}: {code}\n    did not help: {then}"]
    is_batch = then.asked.startswith("convert(")
    names = {"x": recorder.obj} if is_batch else {"source": recorder.source}
    return _follow(then.calls[0], names, [*seen, (then.code, then.why)], case)
