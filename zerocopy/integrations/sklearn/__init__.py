"""scikit-learn: `MoveTo`, a step of a pipeline that hands the data to another framework.

Importing this package does not import scikit-learn; the first use of ``MoveTo`` does.
"""

from __future__ import annotations

from zerocopy.interpreter import lazy_names as _lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zerocopy.integrations.sklearn.move_to import MoveTo as MoveTo

if not TYPE_CHECKING:
    __getattr__, __dir__, __all__ = _lazy_names(__name__, {"move_to": "MoveTo"})
