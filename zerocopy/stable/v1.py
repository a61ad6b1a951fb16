"""``import zerocopy.stable.v1 as zc``: the names that a library can depend on without an upper bound.

Names, parameters, defaults, types of results, errors and their codes stay as they are in all later versions
of zerocopy; tests/stable_v1.json lists them. If `zerocopy` changes, this file adapts the new form to the old
one; incompatible changes go into a ``v2``. At present, all names are those of `zerocopy`.

>>> import numpy as np
>>> import zerocopy.stable.v1 as zc
>>> zc.kind(zc.convert(np.arange(3), "torch"))
Kind(framework='torch', kind='array')
"""

import zerocopy

TYPE_CHECKING = False  # importing typing takes longer than this file
if TYPE_CHECKING:
    from typing import Any

    from zerocopy import (
        CopyRequiredError as CopyRequiredError,
        DeviceError as DeviceError,
        Framework as Framework,
        FrameworkNotInstalledError as FrameworkNotInstalledError,
        Kind as Kind,
        LossyConversionError as LossyConversionError,
        Plan as Plan,
        Reason as Reason,
        StridedView as StridedView,
        UnsupportedConversionError as UnsupportedConversionError,
        ZeroCopyError as ZeroCopyError,
        accepts as accepts,
        convert as convert,
        converter as converter,
        errors as errors,
        explain as explain,
        forbid_copies as forbid_copies,
        is_array as is_array,
        is_column as is_column,
        is_table as is_table,
        kind as kind,
        shares_memory as shares_memory,
        view as view,
    )

_NAMES = (
    "CopyRequiredError DeviceError Framework FrameworkNotInstalledError Kind LossyConversionError Plan "
    "Reason StridedView UnsupportedConversionError ZeroCopyError accepts convert converter errors explain "
    "forbid_copies is_array is_column is_table kind shares_memory view"
)

if not TYPE_CHECKING:  # with it, a type checker accepts any name
    __all__ = _NAMES.split()

    def __getattr__(name: str) -> "Any":
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(zerocopy, name)
        return value

    def __dir__() -> "list[str]":
        return __all__
