"""scikit-learn: `MoveTo`, a step of a pipeline that hands the data to another framework.

Importing this package does not import scikit-learn; the first use of ``MoveTo`` does.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from zerocopy.integrations.sklearn.move_to import MoveTo as MoveTo

__all__ = ["MoveTo"]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name != "MoveTo":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from zerocopy.integrations.sklearn.move_to import MoveTo

        return MoveTo

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
