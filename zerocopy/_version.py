"""The version of zerocopy; ``pyproject.toml`` and ``CITATION.cff`` have the same."""

__version__ = "0.1.0"
