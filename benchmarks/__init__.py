"""Benchmarks: ``python -m benchmarks``.

Each suite is a package in this folder and a row in :data:`benchmarks.suite.SUITES`. The modules
are shared: ``suite`` defines suite, section, task, case, entry and goal; ``timing`` is the clock and
``gpu_timing`` that of a device; ``machine`` describes the computer; ``schedule`` selects and orders
tasks, and ``run`` runs them; ``results`` reads, writes and compares JSON; ``report`` prints tables;
``plots`` draws pictures; ``page`` and ``pages`` write the pages of docs/.
"""
