"""Frozen names for libraries: `zerocopy.stable.v1`."""
