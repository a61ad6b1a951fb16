"""Objects that go from one process to another."""
