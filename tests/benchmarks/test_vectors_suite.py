"""The suite ``vectors``: images are checked before they are timed, and the page has both sections."""

from __future__ import annotations

import pytest

from benchmarks.pages import vectors as page
from benchmarks.results import Results, read_plain
from benchmarks.suite import Case, Entry, Settings, load
from benchmarks.timing import Pace, Timing
from benchmarks.vectors import images, lists

CHOSEN = Settings(pace=Pace(rounds=2, block=20_000, patience=50_000_000))


@pytest.mark.parametrize("question", images.QUESTIONS, ids=lambda question: question.name)
def test_an_image_is_checked_and_timed(question):
    for name in question.needs:
        pytest.importorskip(name)
    (case,) = images.run(question, CHOSEN)
    assert case.timed("ours")
    assert case.timed("library")


def test_goals_and_page(tmp_path):
    def case(name, ours, theirs, code):
        return Case(
            name,
            [Entry("zc", timing=Timing.of([ours])), Entry(code, "library", timing=Timing.of([theirs]))],
        )

    cases = [
        case("Pillow RGB to NumPy", 5.0, 100.0, "np.asarray(x)"),
        case("PyAV rgb24 to torch", 9.0, 3.0, "y"),
    ]
    (goal,) = images.goals(cases)
    assert (goal.value, goal.met) == (0.05, True)
    results = Results.begin([load("vectors")], CHOSEN)
    results.cases["vectors/images"] = cases
    results.cases["vectors/lists"] = [case("datasets, List", 1.0, 100.0, "ds.with_format")]
    assert lists.goals(results.cases["vectors/lists"])[0].met
    results.save(tmp_path / "vectors.json")
    text = "\n".join(page.body(read_plain(tmp_path / "vectors.json")))
    assert text.index("### datasets, List") < text.index("### PyAV rgb24 to torch")
