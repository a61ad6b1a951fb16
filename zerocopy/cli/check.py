"""The command ``zerocopy check``: the conformance of a project's producer or consumer."""

from __future__ import annotations

import sys
from typing import Any

import click

from zerocopy.errors import OptionError
from zerocopy.testing import check as checks


@click.command("check", short_help="Check a producer or a consumer of DLPack, Arrow or buffers.")
@click.option("--consumer", is_flag=True, help="TARGET takes an array or a table, as mylib:from_dlpack.")
@click.option("--protocol", "protocols", multiple=True, metavar="NAME", help="Check this protocol only.")
@click.option("--json", "as_json", is_flag=True, help="Write a JSON document.")
@click.option("--junit", type=click.File("w", "utf-8", lazy=False), help="Write JUnit's XML to a file too.")
@click.option(
    "--allow",
    type=click.Path(exists=True, dir_okay=False),
    help="A TOML or JSON file of cases whose findings are left out, each with its reason.",
)
@click.option(
    "--timeout", type=click.FloatRange(0.1), default=60.0, help="Seconds for one case. Default: 60."
)
@click.option("--scripts", is_flag=True, help="Write the script of each finding.")
@click.argument("target")
def check(
    consumer: bool,
    protocols: tuple[str, ...],
    as_json: bool,
    junit: Any,
    allow: str | None,
    timeout: float,
    scripts: bool,
    target: str,
) -> None:
    """Check TARGET, an import string such as mylib:make_array, which returns a new array or table.

    Each case runs in a process that may crash. The exit code is 1 if there are findings that are not
    optional, and 2 for a target that cannot be imported.
    """
    sys.path.insert(0, "")
    try:
        side = "consumer" if consumer else "producer"
        allowed = checks.read_allowed(allow) if allow else None
        report = checks.check(side, target, protocols or None, allowed, timeout)
    except OptionError as error:
        raise click.UsageError(str(error)) from error
    if junit:
        junit.write(report.to_junit())
    click.echo(report.to_json() if as_json else report)
    if scripts and not as_json:
        click.echo("\n".join(f"\n# {each.case}: {each.what}\n{each.script}" for each in report.findings))
    sys.exit(not report.passed)
