"""Frameworks that are installed and have arrays in host memory, and every pair of them."""

from __future__ import annotations

from zerocopy import registry


def host_frameworks() -> list[str]:
    """Every framework that the registry knows, that is installed and lives on the host."""
    return [
        name
        for name, info in registry.frameworks().items()
        if info.installed and info.kind != "table" and "cpu" in registry.by_name(name).device_kinds
    ]


HOST = host_frameworks()
PAIRS = [(source, target) for source in HOST for target in HOST]
