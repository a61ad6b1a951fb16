"""Arrays and tables between two hosts, which are network namespaces of this machine."""

from benchmarks.hosts import engines
from benchmarks.processes import SUITE as _PROCESSES
from benchmarks.suite import Suite

SUITE = Suite(
    "hosts",
    "arrays and tables between two hosts: Dask, Ray, Flight; needs root and ip",
    engines.SECTIONS,
    frameworks=engines.FRAMEWORKS,
    distributions=_PROCESSES.distributions,
)
