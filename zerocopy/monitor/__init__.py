"""What was copied, where, and what the memory does: records, samples, and their readers.

A process that is monitored records its conversions and writes a :class:`ProcessRecord` to a run directory.
A reader, such as the page or the terminal, adds the GPUs and the machine to these records: a
:class:`Sample`. The types are in :mod:`zerocopy.monitor.sample`, without any code that displays them.
"""
