"""Dask, Ray and Arrow Flight from one host to another: `network` makes both on this machine.

The contenders of an engine run in a process on the first host, which starts those on the second.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from statistics import median
from typing import Any

import psutil

from benchmarks.children import call
from benchmarks.contest import installed
from benchmarks.goals import NOISE, Promise, fastest, figure, judge, ratio
from benchmarks.hosts.network import ADDRESSES, missing, two_hosts
from benchmarks.processes import SUITE as PROCESSES, dask, flight, ray
from benchmarks.processes.goals import promise
from benchmarks.processes.objects import available, make
from benchmarks.processes.row import Contender, memcpy, row
from benchmarks.suite import Case, Entry, Section, Settings, Suite, Task

SIZES = (16 << 20, 256 << 20)
#: Those that Dask and Ray alone send as zerocopy does are measured too: they must not become slower.
FRAMEWORKS = ("numpy", "torch", "jax", "tensorflow", "pyarrow", "pandas")
#: Figures: CPU time of both workers.
PROCESSOR, PROCESSOR_TODAY = "CPU ms of both workers", "CPU ms without zerocopy"
_DASK = "Dask and zerocopy"
_ROUNDS, _PATIENCE = 15, 10_000_000_000
#: The resource of the second node of Ray.
SECOND = "second"
_PORT = 6379
_STORE_BYTES = 2 << 30
#: Variables of Ray's processes; those of a cluster also share `RAY_TMPDIR`.
VARIABLES = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}


def _tasks(engine: str, settings: Settings) -> list[Task]:
    if not installed(_ENGINES[engine][0]):
        return []
    return [Task(engine, partial(_run, engine, settings))]


def _run(engine: str, settings: Settings) -> list[Case]:
    """Return the cases of an engine; or one that says what this process lacks to make hosts."""
    if why := missing():
        return [Case("two hosts", [Entry("all", "reference", left_out=why)])]
    with two_hosts() as (here, there), tempfile.TemporaryDirectory() as folder:
        variables = VARIABLES | {"RAY_TMPDIR": folder}
        return call(measure, engine, there, settings, before=here, variables=variables)


def measure(engine: str, there: Sequence[str], settings: Settings) -> list[Case]:
    """Return the cases of an engine; runs on the first host."""
    return list(_ENGINES[engine][2](there, settings))


def _cases(settings: Settings) -> Iterator[tuple[str, str, int]]:
    """Yield the end of each case's name, its framework and its bytes."""
    for nbytes in settings.sizes or SIZES:
        for framework in available(settings):
            if framework in FRAMEWORKS:
                yield f"{nbytes >> 20} MiB, {framework}", framework, nbytes


def _dask(there: Sequence[str], settings: Settings) -> Iterator[Case]:
    with ExitStack() as stack:
        sides = {
            name: stack.enter_context(dask.Cluster(options, ADDRESSES[0], there))
            for name, options in ((dask.TODAY, None), (_DASK, {}))
        }
        for name, framework, nbytes in _cases(settings):
            spent: dict[str, list[float]] = {label: [] for label in sides}
            contenders = [
                Contender(label, role, partial(sides[label].transfer, framework, nbytes, spent[label]))
                for label, role in ((dask.TODAY, "idiom"), (_DASK, "ours"))
            ]
            empty = partial(sides[dask.TODAY].transfer, None, 0)
            case = _row(f"Dask, {name}", [*contenders, Contender(dask.EMPTY, "reference", empty)], settings)
            # Other work on the machine disturbs it less than the time.
            processor = {label: median(several) / 1e6 for label, several in spent.items()}
            case.figures |= {PROCESSOR: processor[_DASK], PROCESSOR_TODAY: processor[dask.TODAY]}
            yield case


def _ray(there: Sequence[str], settings: Settings) -> Iterator[Case]:
    with two_nodes(there) as reader:
        for name, framework, nbytes in _cases(settings):
            if framework not in ray.FRAMEWORKS:
                continue
            obj = make(framework, nbytes)
            grown: dict[str, list[float]] = {ray.TODAY: [], ray.OURS: []}
            contenders = [
                Contender(side, role, partial(ray.fetch, reader, obj, side, grown[side]))
                for side, role in ((ray.TODAY, "idiom"), (ray.OURS, "ours"))
            ]
            case = _row(f"Ray, {name}", [*contenders, memcpy(nbytes)], settings)
            case.figures |= _private(grown[ray.OURS], grown[ray.TODAY])
            yield case


@contextmanager
def two_nodes(there: Sequence[str]) -> Iterator[Any]:
    """Start Ray with a node on each host, and yield a reader on the second."""
    here, second = ADDRESSES
    start = (sys.executable, "-m", "ray.scripts.scripts", "start", f"--object-store-memory={_STORE_BYTES}")
    head = (
        "--head",
        f"--port={_PORT}",
        f"--node-ip-address={here}",
        "--include-dashboard=false",
        "--num-cpus=1",
    )
    node = (
        f"--address={here}:{_PORT}",
        f"--node-ip-address={second}",
        f'--resources={{"{SECOND}": 1}}',
        "--block",
    )
    subprocess.run([*start, *head], stdout=subprocess.DEVNULL, check=True)
    process = subprocess.Popen([*there, *start, *node], stdout=subprocess.DEVNULL)
    try:
        with ray.cluster(address=f"{here}:{_PORT}", reader={"resources": {SECOND: 0.1}}) as reader:
            yield reader
    finally:
        process.kill()


def _flight(there: Sequence[str], settings: Settings) -> Iterator[Case]:
    for name, framework, nbytes in _cases(settings):
        if framework != "pyarrow":
            continue
        with flight.connect(f"grpc://{ADDRESSES[1]}:0", nbytes, there) as client:
            calls = {"do_get": flight.do_get(client, b"kept"), "fetch": flight.fetch(client, b"kept")}
            grown = {label: [_growth(call) for _ in range(5)] for label, call in calls.items()}
            contenders = [
                Contender(label, "ours" if label == "fetch" else "idiom", partial(flight.discard, call))
                for label, call in calls.items()
            ]
            case = _row(f"Flight, {name}", [*contenders, memcpy(nbytes)], settings)
            case.figures |= _private(grown["fetch"], grown["do_get"])
            yield case


def _growth(call: Callable[[], Any]) -> float:
    """Return the private memory of a call's result."""
    process = psutil.Process()
    before = process.memory_full_info().uss
    result = call()
    grown = process.memory_full_info().uss - before
    del result
    return float(grown)


def _private(ours: Sequence[float], today: Sequence[float]) -> dict[str, float]:
    return {ray.PRIVATE: ray.mebibytes(median(ours)), ray.PRIVATE_TODAY: ray.mebibytes(median(today))}


def _row(name: str, contenders: Sequence[Contender], settings: Settings) -> Case:
    for one in contenders:
        one.call()  # imports the framework in other processes
    return row(name, contenders, settings, rounds=_ROUNDS, patience=_PATIENCE)


def _processor(case: Case) -> float | None:
    ours, today = case.figures.get(PROCESSOR), case.figures.get(PROCESSOR_TODAY)
    return None if ours is None or today is None else ours / today


def _promises(size: str) -> tuple[Promise, ...]:
    frames, over = ("torch", "jax", "tensorflow", "pyarrow"), ratio(fastest("idiom"))
    private, today = figure(ray.PRIVATE), figure(ray.PRIVATE_TODAY)
    return (
        promise(f"Dask, {size}: CPU time over Dask alone", f"Dask, {size}", _processor, 1, frameworks=frames),
        promise(f"Ray, {size}: over Ray alone", f"Ray, {size}", over, 1),
        promise(f"Ray, {size}: {ray.PRIVATE}", f"Ray, {size}", private, 0, "bytes", today),
        promise(f"Flight, {size}: over do_get, at most {NOISE}x for noise", f"Flight, {size}", over, NOISE),
    )


PROMISES = tuple(promise for nbytes in SIZES for promise in _promises(f"{nbytes >> 20} MiB"))

#: The module that an engine needs, its description and its cases.
_ENGINES: dict[str, tuple[str, str, Callable[[Sequence[str], Settings], Iterable[Case]]]] = {
    "dask": ("distributed", "Dask: worker to worker", _dask),
    "ray": ("ray", "Ray: get of an object of another node", _ray),
    "flight": ("pyarrow", "Arrow Flight: a table of a server", _flight),
}

SECTIONS = tuple(
    # The processes of two hosts take a minute to start.
    Section(name, about, partial(_tasks, name), "rivals", partial(judge, PROMISES), quick=False)
    for name, (_, about, _) in _ENGINES.items()
)

SUITE = Suite(
    "hosts",
    "arrays and tables between two hosts: Dask, Ray, Flight; needs root and ip",
    SECTIONS,
    frameworks=FRAMEWORKS,
    distributions=PROCESSES.distributions,
)
