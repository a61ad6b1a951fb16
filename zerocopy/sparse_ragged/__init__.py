"""Compound arrays: arrays of several buffers, such as sparse and ragged ones."""
