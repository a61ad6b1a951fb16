"""The interpreter: callbacks at the end of an import, programs that run in this process, and its shutdown."""
