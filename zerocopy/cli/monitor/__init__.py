"""``zerocopy monitor``: `command` reads the options, `view` draws, `program` runs a program."""
