"""Sphinx: ``sphinx-build -W docs docs/_build`` (the ``docs`` extra has what it needs)."""

from __future__ import annotations

project = "zerocopy"
author = "the zerocopy developers"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "index"
html_theme = "pydata_sphinx_theme"
html_theme_options = {"show_toc_level": 2, "navigation_with_keys": False}
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
exclude_patterns = ["_build"]
# Links to files of the repository are for reading on the forge: they leave the site. The
# map of the pages is the table in index.md, which a forge shows as well as a site does.
suppress_warnings = ["myst.xref_missing", "toc.not_included"]
