"""The monitor's page in a browser: a Bokeh server, whose documents draw the history of an observer.

`pages` lists and draws the pages, and `contents` their charts and tables; the types of these are in `parts`,
without Bokeh, because the terminal draws some of them. `access` refuses requests without the token.
"""
