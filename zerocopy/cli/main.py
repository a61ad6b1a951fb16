"""The command line of ``zerocopy``. Each command has a file, which is imported when the command runs.

click and rich come with the extra ``cli``. They are imported inside functions, so that `main` can
report that they are missing.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING

import zerocopy

if TYPE_CHECKING:
    import click

#: The file of each command, in which the command has its own name.
_COMMANDS = {
    "align": "align",
    "audit": "audit_command",
    "check": "check",
    "doctor": "doctor",
    "matrix": "matrix",
    "monitor": "monitor.command",
}
_MISSING = "zerocopy: the command needs click and rich: pip install click rich packaging"


def main() -> None:
    """Run the command line.

    The exit code is 0, or 1 for a broken promise, or 2 for invalid input.
    """
    try:
        import click  # noqa: F401
        import rich  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name not in ("click", "rich"):
            raise
        print(_MISSING, file=sys.stderr)
        sys.exit(1)
    if os.environ.get("ZEROCOPY_POOL"):
        from zerocopy.pool.install import discard_deferred_error

        discard_deferred_error()  # `doctor` reports it
    command()(prog_name="zerocopy")


def command() -> click.Group:
    """Return the command line as a click group."""
    import click

    class Pool(click.Command):  # its own parser reads all arguments, "--" too
        def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
            ctx.args = args
            return args

        def invoke(self, ctx: click.Context) -> None:
            from zerocopy.pool.__main__ import main as run

            run(ctx.args, "zerocopy pool")

    class Commands(click.Group):
        def list_commands(self, ctx: click.Context) -> list[str]:
            return sorted([*_COMMANDS, "pool"])

        def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
            if name == "pool":
                return Pool(name, short_help="Run a program on one memory pool, or show the pool.")
            if name not in _COMMANDS:
                return None
            loaded: click.Command = getattr(import_module(f"zerocopy.cli.{_COMMANDS[name]}"), name)
            return loaded

    @click.group(
        cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
    )
    @click.version_option(zerocopy.__version__, message="%(prog)s %(version)s")
    def group() -> None:
        """Convert arrays and tables between Python frameworks without copying them."""

    return group
