"""``zerocopy monitor``: `run` does what the options ask for, `view` draws, `program` runs a program."""
