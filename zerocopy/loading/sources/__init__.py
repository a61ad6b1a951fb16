"""What the loader reads: one kind of source in each file."""
