"""Benchmarks: ``python -m benchmarks``.

Each suite is a module or package in this folder and a row in :data:`benchmarks.suite.SUITES`. The others
are shared: ``suite`` defines suite, section, task, case, entry and goal; ``contest`` checks contenders, and
``timing`` and ``gpu_timing`` are the clocks with which they take turns; ``children`` are processes that are
measured; ``goals`` judges cases; ``machine`` describes the computer; ``schedule`` selects and orders tasks,
and ``run`` runs them; ``results`` reads and writes JSON; ``report`` prints tables and compares two runs;
``plots`` draws pictures; ``page`` and ``pages`` write the pages of docs/.
"""
