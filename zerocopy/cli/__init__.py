"""The ``zerocopy`` command."""
