"""Private names of other packages: each use has a range of versions, a fallback and a measured gain."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

from zerocopy.framework import version_numbers
from zerocopy.protocols.exporter_errors import is_error

_T = TypeVar("_T")


class Private:
    """A use of private names of a package, which tests and docs/version-guards.md enumerate.

    Parameters
    ----------
    package : str
        The import name of the module that has ``__version__``.
    versions : str
        The versions for which the use was tested, such as "3" for 3.x, or "0.7 to 0.12"; others, and
        versions in which the names differ, use the public fallback.
    names : str
        The private names, separated by commas.
    gain : str
        The measured times of both sides, or why no public name does the same.
    """

    def __init__(self, package: str, versions: str, names: str, gain: str) -> None:
        self.package, self.versions, self.names, self.gain = package, versions, names, gain
        #: Whether the version is in the range and no comparison has failed; None before the first call.
        self.known: bool | None = None

    def __call__(self) -> bool:
        """Whether the installed version is in the range, and no comparison has failed."""
        if self.known is None:
            first, _, last = self.versions.partition(" to ")
            low = version_numbers(first)
            high = version_numbers(last) if last else low
            version = version_numbers(getattr(sys.modules.get(self.package), "__version__", ""))
            self.known = low <= version and version[: len(high)] <= high
        return self.known

    def choose(self, make: Callable[[], _T], agrees: Callable[[_T], bool], public: _T) -> _T:
        """Return the result of `make` if the version is known and `agrees` confirms it; else `public`."""
        try:
            if self() and agrees(made := make()):
                return made
        except Exception as error:
            if not is_error(error):
                raise
        self.known = False
        return public


def uses() -> dict[str, Private]:
    """Return each use by its module and variable; imports the modules of all frameworks, but no framework."""
    from importlib import import_module
    from pkgutil import walk_packages

    package, own = sys.modules[__package__ or ""], dict[str, Private]()
    for module in walk_packages(package.__path__, f"{package.__name__}."):
        for name, value in vars(import_module(module.name)).items():
            if isinstance(value, Private) and value not in own.values():
                own[f"{module.name}.{name}"] = value
    return own
