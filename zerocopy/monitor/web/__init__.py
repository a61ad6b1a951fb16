"""The monitor's page in a browser: a Bokeh server with one document for each page.

`feed` reads the samples once for all pages; `pages` lists the pages and their parts; `charts` and
`tables` draw; `access` refuses requests without the token; `server` starts and stops the server.
"""
