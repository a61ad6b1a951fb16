"""The monitor's page in a browser: a Bokeh server with one document for each page.

`feed` reads the samples once for all pages. `pages` lists the pages, and `contents` their charts and tables,
which `drawing` draws; their types are in `parts`, without Bokeh, because the terminal draws some of them.
`access` refuses requests without the token.
"""
