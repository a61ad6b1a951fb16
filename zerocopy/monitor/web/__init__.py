"""The monitor's pages in a browser, which need no package: HTML, and charts as SVG.

`server` answers requests that have its token; `pages` lists the pages, `contents` their charts and tables,
which `drawing` draws.
"""
