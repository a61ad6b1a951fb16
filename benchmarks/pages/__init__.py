"""The pages of docs/ that are written from results: a file a suite, with ``TITLE``, ``ABOUT``, ``body``."""
