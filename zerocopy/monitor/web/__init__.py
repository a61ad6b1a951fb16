"""The monitor's page in a browser: HTML that is drawn from the history of an observer.

`pages` lists the pages, and `contents` their charts and tables, whose types are in `parts`. `server` sends
the pages to readers that have the token.
"""
