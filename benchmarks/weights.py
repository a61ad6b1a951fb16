"""The time to the first tensor, to all tensors and to their sums, and the peak of memory."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import zerocopy as zc
from benchmarks.children import call
from benchmarks.contest import Contest, installed
from benchmarks.goals import Promise, figure, judge, labelled, ratio
from benchmarks.machine import peak_of
from benchmarks.suite import Case, Section, Settings, Suite, Task
from benchmarks.timing import Statement

LIBRARY, OURS = "library", "load"
ALL, SUMS, FIRST = "all tensors", "all tensors and their sums", "first tensor"
LIMIT = 0.8
COPIED, PEAK = "bytes copied", "peak memory"
COUNT, COLUMNS = 300, 1024
NBYTES, QUICK_NBYTES = 2 << 30, 16 << 20


class Files(NamedTuple):
    """Paths of one model: tensors at multiples of 8 bytes, of 64 bytes, and an ``.npz`` archive."""

    plain: str
    aligned: str
    archive: str


class Question(NamedTuple):
    """Statements of the library and of ``open_weights`` that give the same; the modules that they import."""

    library: str
    ours: str
    imports: str


def questions(settings: Settings) -> dict[str, Question]:
    """Return the questions by their names."""
    made = {}
    for target, library in (("torch", "torch"), ("jax", "flax"), ("numpy", "numpy")):
        if not settings.wants(target) or not installed(target, "safetensors"):
            continue
        imports = f"import {target}, safetensors.{library}\nload_file = safetensors.{library}.load_file"
        files = {"": "plain"} if target != "jax" else {"": "plain", " from an aligned file": "aligned"}
        for suffix, file in files.items():
            read, loaded = f"open_weights({file}, to={target!r}).read()", f"load_file({file})"
            made[f"{target}{suffix}: {ALL}"] = Question(loaded, read, imports)
            made[f"{target}{suffix}: {SUMS}"] = Question(f"sums({loaded})", f"sums({read})", imports)
        kind = {"torch": "pt", "jax": "flax", "numpy": "np"}[target]
        first = f"first(plain, {kind!r})", f"open_weights(plain, to={target!r})['t7']"
        made[f"{target}: {FIRST}"] = Question(*first, imports)
    if settings.wants("numpy"):
        archive = "dict(numpy.load(archive))", "open_weights(archive).read()"
        made[f"numpy from an .npz file: {ALL}"] = Question(*archive, "import numpy")
    return made


def sums(tensors: dict[str, Any]) -> float:
    """Return the sum of all elements, which reads all memory."""
    return sum(float(tensor.sum()) for tensor in tensors.values())


def first(path: str, kind: str) -> Any:
    """Return one tensor by the library."""
    from safetensors import safe_open

    with safe_open(path, kind) as file:
        return file.get_tensor("t7")


@contextmanager
def written(nbytes: int) -> Iterator[Files]:
    """Write the files, and remove them at the end."""
    from zerocopy.weights.align import align

    rows = max(1, nbytes // COUNT // COLUMNS // 4)
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory(prefix="zerocopy-weights-") as folder:
        files = Files(*(str(Path(folder) / name) for name in ("m.safetensors", "a.safetensors", "m.npz")))
        tensors = {f"t{i}": rng.random((rows, COLUMNS), np.float32) for i in range(COUNT)}
        np.savez(files.archive, **tensors)  # type: ignore[arg-type]
        size, header = rows * COLUMNS * 4, {}
        for i, name in enumerate(tensors):
            header[name] = {
                "dtype": "F32",
                "shape": [rows, COLUMNS],
                "data_offsets": [i * size, (i + 1) * size],
            }
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 64)  # with the 8 bytes of its length, 8 bytes off
        with open(files.plain, "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            file.writelines(tensor.data for tensor in tensors.values())
        tensors.clear()
        align(files.plain, files.aligned)
        yield files


def names_of(files: Files, question: Question) -> dict[str, Any]:
    """Return the names that the statements of a question use."""
    names: dict[str, Any] = {**files._asdict(), "open_weights": zc.open_weights, "sums": sums, "first": first}
    exec(question.imports, names)
    return names


def _size(settings: Settings) -> int:
    return settings.sizes[0] if settings.sizes else QUICK_NBYTES if settings.quick else NBYTES


def time_tasks(settings: Settings) -> list[Task]:
    """Return one task: all questions are about the same files."""
    return [Task("all questions", partial(run, settings), seconds=20)] if questions(settings) else []


def run(settings: Settings, nbytes: int = 0) -> list[Case]:
    """Time the library and ``open_weights`` in turns."""
    cases = []
    with written(nbytes or _size(settings)) as files:
        for name, question in questions(settings).items():
            names = names_of(files, question)
            to = name.partition(":")[0].split()[0]
            path = files.aligned if "aligned" in name else files.archive if ".npz" in name else files.plain
            plan = zc.open_weights(path, to=to).explain(["t7"] if FIRST in name else None)
            contest = Contest()
            case = contest.case(name, {COPIED: float(plan.copied_bytes)})
            contest.add(case, LIBRARY, "library", Statement(question.library, names))
            contest.add(case, OURS, "ours", Statement(question.ours, names))
            cases += contest.time(settings.pace)
    return cases


PROMISES = (
    Promise(
        "at most 0.8x of load_file", ratio(labelled(LIBRARY), labelled(OURS)), LIMIT, cases=(f"torch: {ALL}",)
    ),
    Promise("no bytes copied", figure(COPIED), 0.0, "bytes", (f"jax from an aligned file: {ALL}",)),
)


def memory_tasks(settings: Settings) -> list[Task]:
    """Return one task on Linux, where the peak is counted in KiB."""
    if not sys.platform.startswith("linux") or not questions(settings):
        return []
    return [Task("all questions", partial(peaks, settings), seconds=30)]


def peaks(settings: Settings, nbytes: int = 0) -> list[Case]:
    """Return the growth of the peak of resident memory in a fresh process, pages of the file included."""
    cases = []
    with written(nbytes or _size(settings)) as files:
        for name, question in questions(settings).items():
            if SUMS in name:
                figures = {
                    f"{PEAK}, {LIBRARY}": call(_peak, files, question, question.library),
                    f"{PEAK}, {OURS}": call(_peak, files, question, question.ours),
                }
                cases.append(Case(name, figures=figures))
    return cases


def _peak(files: Files, question: Question, statement: str) -> int:
    names = names_of(files, question)
    return peak_of(partial(eval, statement, names))


SUITE = Suite(
    "weights",
    "the tensors of a file of weights",
    (
        Section(
            "loading",
            "tensors of a safetensors file in each framework",
            time_tasks,
            goals=partial(judge, PROMISES),
        ),
        Section(
            "memory", "peak memory of a process that reads all tensors", memory_tasks, "figures", quick=False
        ),
    ),
    frameworks=("numpy", "torch", "jax"),
    distributions=("numpy", "torch", "jax", "jaxlib", "safetensors"),
)
