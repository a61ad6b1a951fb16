"""Draw pictures from files of results.

::

    python -m benchmarks.plots benchmarks/results/layout-....json --out docs/pictures
"""

from __future__ import annotations

from pathlib import Path

import click

from benchmarks.plots import draw, require
from benchmarks.results import read


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=".",
    show_default=True,
    help="The folder to draw into.",
)
def main(files: tuple[Path, ...], out: Path) -> None:
    """Draw the pictures of the results in FILES, each as SVG and PNG.

    If two files have results for the same picture, the later one is drawn.
    """
    try:
        require()
    except ImportError as error:
        raise click.ClickException(str(error)) from error
    drawn = 0
    for file in files:
        try:
            results = read(file)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        try:
            written = draw(results, out)
        except ValueError as error:
            click.echo(f"{file}: {error}", err=True)
            continue
        for path in written:
            click.echo(f"written to {path}", err=True)
        drawn += len(written)
    if not drawn:
        raise click.ClickException("nothing was drawn")


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.plots")
