"""``python -m zerocopy``: the command ``zerocopy``."""

from zerocopy.cli import main

main()
