"""What things cost, measured: ``python -m benchmarks``.

Each suite is one row in :data:`benchmarks.suite.SUITES` and one package beside this
file. What they share is here: ``suite`` has the words (suite, section, task, case,
entry, goal), ``timing`` the clock and ``gpu_timing`` that of a device, ``machine`` what is
said about the computer, ``schedule`` which tasks run and in which order, ``run`` runs them,
``results`` the JSON and the comparison of two runs, ``report`` the tables, ``plots`` the
pictures, ``page`` and ``pages`` the pages of docs/.
"""
