"""``python -m zerocopy``: the command ``zerocopy``."""

from zerocopy.cli.main import main

main()
