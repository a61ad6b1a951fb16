"""The command ``zerocopy align``: copies of safetensors files whose tensors need no further copy."""

from __future__ import annotations

import os
import shutil

import click

from zerocopy.errors import ZeroCopyError
from zerocopy.formatting import format_bytes, printable
from zerocopy.weights.align import Alignment, align as align_file
from zerocopy.weights.open_weights import shards

_SUFFIX = ".safetensors"


@click.command("align", short_help="Copy safetensors files so that tensors start at multiples of 64 bytes.")
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    help="The copy, or a folder for the copies of several files. Default: FILE.aligned.safetensors.",
)
@click.option(
    "--pad",
    is_flag=True,
    help="Align all tensors: tensors of zeros, named zerocopy.padding.N, fill the gaps between them.",
)
@click.option("--force", is_flag=True, help="Replace existing files.")
@click.argument("files", nargs=-1, required=True, type=click.Path())
def align(output: str | None, pad: bool, force: bool, files: tuple[str, ...]) -> None:
    """Copy safetensors FILES, or the shards of an index, so that tensors start at multiples of 64 bytes.

    Frameworks that require this alignment then use the file without a copy. Names, types, shapes, values
    and metadata stay as they are; the copy is compared with the original. Without --pad, tensors whose size
    is not a multiple of 64 bytes come last, and all of them but the first may start elsewhere.
    """
    try:
        indexes = [path for path in files if path.endswith(".json")]
        paths = [path for each in files for path in (shards(each) if each in indexes else [each])]
        pairs = [(path, _target(path, output, len(files) > 1 or bool(indexes))) for path in paths]
        pairs_of_indexes = [(path, _target(path, output, True)) for path in indexes]
        for _, target in pairs + pairs_of_indexes:
            if os.path.exists(target) and not force:
                raise click.UsageError(
                    printable(f"{target} exists; pass --force to replace it, or -o with another name")
                )
        for path, target in pairs:
            click.echo(f"{printable(target)}:\n  {_text(align_file(path, target, pad))}")
        for path, target in pairs_of_indexes:
            if os.path.abspath(path) != os.path.abspath(target):
                shutil.copyfile(path, target)
    except (ZeroCopyError, OSError) as error:
        raise click.ClickException(printable(str(error), "\n")) from error


def _target(path: str, output: str | None, several: bool) -> str:
    """Return the name of the copy of a file."""
    if output is None:
        if several and not path.endswith(_SUFFIX):
            raise click.UsageError("an index needs a folder for the copies: -o aligned/")
        return path.removesuffix(_SUFFIX) + f".aligned{_SUFFIX}"
    if several or output.endswith(os.sep) or os.path.isdir(output):
        os.makedirs(output, exist_ok=True)
        return os.path.join(output, os.path.basename(path))
    return output


def _text(report: Alignment) -> str:
    text = f"{report.after:,} of {report.tensors:,} tensors start at a multiple of 64 bytes"
    text += f" ({report.before:,} before)"
    rest = report.nbytes - report.aligned_bytes
    return text + (f"\n  {format_bytes(rest)} do not: --pad aligns them" if rest else "")
