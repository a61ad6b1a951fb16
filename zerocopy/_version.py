"""The version of zerocopy: ``pyproject.toml`` reads it here, and ``CITATION.cff`` has the same."""

__version__ = "0.1.0"
