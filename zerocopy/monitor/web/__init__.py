"""The monitor's page in a browser: a Bokeh server with one document for each page.

`feed` reads the samples once for all pages; `pages` lists the pages, `contents` their charts and tables,
which `drawing` draws; `access` refuses requests without the token.
"""
