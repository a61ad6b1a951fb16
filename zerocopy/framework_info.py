"""``FrameworkInfo``: one known framework, as it is listed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FrameworkInfo:
    """One known framework, as :func:`frameworks` lists it.

    Attributes
    ----------
    name : str
        The import name; ``to=`` takes it.
    kind : str
        ``"tensor"``, ``"table"`` or ``"both"``.
    installed : bool
        Whether it can be imported; it is not imported to find out.
    version : str or None
        None if it is not installed, or has no known version.
    devices : tuple of str
        If it is imported, the devices that it sees; otherwise the kinds that it supports.
    install : str
        Command that installs it.

    Examples
    --------
    >>> import zerocopy as zc
    >>> row = zc.frameworks()["numpy"]
    >>> row.kind, row.devices, row.install
    ('tensor', ('cpu',), 'pip install numpy')
    """

    name: str
    kind: str
    installed: bool
    version: str | None
    devices: tuple[str, ...]
    install: str
