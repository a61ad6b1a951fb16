"""Convert, explain, and compare memory: the calls behind the public functions."""
