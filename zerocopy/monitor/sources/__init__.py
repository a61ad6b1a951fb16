"""The sources of a sample: each module reads one part of it."""
