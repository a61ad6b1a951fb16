"""Images of Pillow and frames of PyAV to arrays, by zerocopy and by the calls of their libraries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import zerocopy as zc
from benchmarks.contest import Contest
from benchmarks.suite import Case, Goal, Section, Settings, Task, median
from benchmarks.tables.data import installed
from benchmarks.timing import Statement

WIDTH, HEIGHT = 1920, 1080
LIMIT = 0.1


class Question(NamedTuple):
    """An object ``x``, zerocopy's call and the call of its library, which give equal arrays."""

    name: str
    make: Callable[[], Any]
    ours: str
    library: str
    needs: tuple[str, ...]


def _image(mode: str) -> Any:
    from PIL import Image

    shape = (HEIGHT, WIDTH, 3) if mode == "RGB" else (HEIGHT, WIDTH)
    return Image.fromarray(np.random.default_rng(0).integers(0, 255, shape, np.uint8), mode)


def _frame(form: str) -> Any:
    import av

    return av.VideoFrame.from_ndarray(np.asarray(_image("RGB")), "rgb24").reformat(format=form)


QUESTIONS = (
    Question(
        "Pillow RGB to NumPy", partial(_image, "RGB"), 'zc.convert(x, "numpy")', "np.asarray(x)", ("PIL",)
    ),
    Question("Pillow L to NumPy", partial(_image, "L"), 'zc.convert(x, "numpy")', "np.asarray(x)", ("PIL",)),
    Question(
        "Pillow RGB to torch",
        partial(_image, "RGB"),
        'zc.convert(x, "torch")',
        "torch.from_numpy(np.array(x))",
        ("PIL", "torch"),
    ),
    Question(
        "PyAV rgb24 to torch",
        partial(_frame, "rgb24"),
        'zc.convert(x, "torch")',
        "torch.from_numpy(x.to_ndarray())",
        ("PIL", "av", "torch"),
    ),
    Question(
        "PyAV yuv420p, its luma to torch",
        partial(_frame, "yuv420p"),
        """zc.convert(x, "torch")["y"]""",
        f"torch.from_numpy(x.to_ndarray()[:{HEIGHT}])",
        ("PIL", "av", "torch"),
    ),
)


def run(question: Question, settings: Settings) -> list[Case]:
    """Compare the results, then time both calls in turns."""
    names: dict[str, Any] = {"x": question.make(), "zc": zc, "np": np}
    if "torch" in question.needs:
        import torch

        names["torch"] = torch
    contest = Contest()
    case = contest.case(question.name)
    for code, role in ((question.ours, "ours"), (question.library, "library")):
        contest.add(case, code, role, Statement(code, names))
    values = [Statement(entry.label, names).value() for entry in case.entries]
    ours, theirs = map(np.asarray, values)
    assert ours.dtype == theirs.dtype
    assert np.array_equal(ours, theirs)
    assert zc.shares_memory(names["x"], values[0])
    return contest.time(settings.pace)


def tasks(settings: Settings) -> list[Task]:
    """Return a task for each kind of image whose libraries are installed."""
    able = [each for each in QUESTIONS if installed(*each.needs)]
    return [Task(each.name, partial(run, each, settings)) for each in able if settings.wants("numpy")]


def goals(cases: Sequence[Case]) -> list[Goal]:
    """Compare zerocopy with Pillow's copies of RGB; PyAV's own arrays can be aliases."""
    judged = []
    for case in cases:
        if not case.name.startswith("Pillow RGB"):
            continue
        ours, theirs = case.timed("ours"), case.timed("library")
        if ours and theirs:
            ratio = median(ours[0]) / median(theirs[0])
            judged.append(
                Goal(f"images of Pillow: {LIMIT}x of its copy at most", case.name, ratio, LIMIT, "x")
            )
    return judged


SECTIONS = (
    Section("images", f"images and frames of {WIDTH} x {HEIGHT} to one tensor", tasks, "rivals", goals),
)
