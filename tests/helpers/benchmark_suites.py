"""Small suites for tests of the benchmarks' machinery."""

from click.testing import CliRunner

from benchmarks import cli
from benchmarks.suite import Case, Entry, Section, Suite, Task
from benchmarks.timing import Pace, Timing

SHORT = Pace(rounds=2, block=1000, patience=1000)


def timed(name, ours=100.0, other=200.0):
    return Case(
        name,
        [
            Entry("zc.convert(x)", "ours", Timing.of([ours])),
            Entry("by_hand(x)", "idiom", Timing.of([other])),
        ],
    )


def task(name, ours=100.0):
    return Task(name, lambda: [timed(name, ours)])


def suite(*sections, name="tiny"):
    return Suite(name, "a small suite", sections, frameworks=("numpy", "torch"))


def section(name, *tasks, **more):
    return Section(name, f"about {name}", lambda settings: list(tasks), **more)


def run(*arguments):
    return CliRunner().invoke(cli.main, list(map(str, arguments)), catch_exceptions=False)
