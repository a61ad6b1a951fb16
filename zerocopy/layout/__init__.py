"""Rows and columns: how records are taken apart, and put together again."""
