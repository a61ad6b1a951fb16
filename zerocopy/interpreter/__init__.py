"""The interpreter: callbacks at the end of an import, and programs that run in this process."""
