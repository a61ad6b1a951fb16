"""The generated pages of docs/: a module for each suite, with ``TITLE``, ``ABOUT`` and ``body``."""
