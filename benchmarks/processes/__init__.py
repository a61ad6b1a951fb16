"""Arrays and tables between processes: pickle, shared memory, and engines."""
