"""Records the copies of a program by line of code, and reads its memory: records, samples and readers.

>>> import numpy as np, zerocopy as zc
>>> with zc.monitor.record() as r:
...     array = zc.convert(np.arange(3.0), to="numpy")
>>> print(r)
1 call: ...

A process that is monitored records its conversions and writes a :class:`ProcessRecord` to a run directory.
A reader, such as the page or the terminal, adds the GPUs and the machine to these records: a
:class:`Sample`. The types are in :mod:`zerocopy.monitor.sample`, without any code that displays them.
Importing this module imports none of its parts: they are loaded when a name is first used.
"""

from __future__ import annotations

from zerocopy.interpreter import lazy_names as _lazy_names

TYPE_CHECKING = False  # importing typing takes longer than the rest of this file
if TYPE_CHECKING:
    from zerocopy.monitor.conversion import ConversionRow as ConversionRow
    from zerocopy.monitor.report import Recording as Recording, Snapshot as Snapshot, record as record
    from zerocopy.monitor.session import (
        Session as Session,
        snapshot as snapshot,
        start as start,
        stop as stop,
    )
    from zerocopy.monitor.writes import Write as Write

if not TYPE_CHECKING:  # with it, a type checker accepts any name
    __getattr__, __dir__, __all__ = _lazy_names(
        __name__,
        {
            "report": "record Recording Snapshot",
            "session": "start snapshot stop Session",
            "conversion": "ConversionRow",
            "writes": "Write",
        },
    )
