"""Each pair in which one side is a table framework, compared with the fastest correct code by hand."""
