"""The cost of sending arrays and tables to other processes."""
