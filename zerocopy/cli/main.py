"""The command line of ``zerocopy``: the options of ``matrix`` and ``doctor``, and ``monitor``.

click and rich come with the extra ``cli``. They are imported inside functions, so that `main` can
report that they are missing.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import zerocopy
from zerocopy.cli.audit_command import audit_command
from zerocopy.cli.monitor.command import monitor_command

if TYPE_CHECKING:
    import click

_MISSING = "zerocopy: the command needs click and rich: pip install 'zerocopy-interchange[{}]'"


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
        print(_MISSING.format("monitor" if "monitor" in sys.argv[1:2] else "cli"), file=sys.stderr)
        sys.exit(1)
    if os.environ.get("ZEROCOPY_POOL"):
        from zerocopy.pool.install import discard_deferred_error

        discard_deferred_error()  # `doctor` reports it
    command()(prog_name="zerocopy")


def command() -> click.Group:
    """Return the command line as a click group."""
    import click

    @click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
    @click.version_option(zerocopy.__version__, message="%(prog)s %(version)s")
    def group() -> None:
        """Convert arrays and tables between Python frameworks without copying them."""

    group.add_command(_matrix_command())
    group.add_command(_doctor_command())
    group.add_command(monitor_command())
    group.add_command(audit_command())
    return group


def _input_option(command: Callable[..., None]) -> Callable[..., None]:
    import click

    text = "Data to convert: .npy, .npz, or with pyarrow .csv, .parquet, .arrow, .feather. Default: iris."
    return click.option("--input", "path", metavar="FILE", help=text)(command)


def _size_option(command: Callable[..., None]) -> Callable[..., None]:
    import click

    text = "Refuse a file with more bytes, or with more after decompression. Default: 1 GiB."
    size = click.IntRange(1)
    return click.option("--max-bytes", type=size, metavar="N", default=1 << 30, help=text)(command)


def _matrix_command() -> click.Command:
    import click

    @click.command(short_help="Convert between every pair of frameworks and check each promise.")
    @_input_option
    @_size_option
    @click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
    @click.option(
        "--frameworks", metavar="A,B", help="Only these frameworks. Default: all that are installed."
    )
    @click.option("--from", "sources", metavar="A,B", help="Only these frameworks as sources.")
    @click.option(
        "--types",
        metavar="A,B",
        help="Only columns with these types or names, such as int64,string. Default: all.",
    )
    @click.option(
        "--only",
        type=click.Choice(["arrays", "columns"]),
        help="Only one of the two parts: the grid of arrays, or the columns by type.",
    )
    @click.option(
        "--repeat",
        "samples",
        type=click.IntRange(1, 1_000_000),
        metavar="N",
        help="Times to measure per cell. Default: up to 50 within a tenth of a second.",
    )
    @click.option(
        "--full", is_flag=True, help="Print everything: times, all reasons, warnings, columns by type."
    )
    def matrix(as_json: bool, full: bool, **options: Any) -> None:
        """Convert real data between every pair of installed frameworks, and check each promise.

        First arrays: rows are sources, columns are targets. Then columns of a table by type
        (strings, dates, nulls, lists): one grid for each framework of tables. The output is a
        summary of one screen, unless --full or --repeat is passed. The exit code is 1
        if a promise is broken: a wrong value, a copy reported as zero-copy, or an exception that
        is not a ZeroCopyError.
        """
        code = _run_matrix(as_json, full or options["samples"] is not None, options)
        if code:
            sys.exit(code)

    return matrix


def _run_matrix(as_json: bool, full: bool, options: dict[str, Any]) -> int:
    """Print the matrix, and return the exit code."""
    from zerocopy.cli.matrix import run

    _quiet_tensorflow()
    result = run.run_matrix(run.Options(**options, timed=full or as_json))
    if as_json:
        _print_json(run.document(result))
        return result.exit_code
    from zerocopy.cli.matrix.print_matrix import print_matrix
    from zerocopy.cli.matrix.print_summary import print_summary
    from zerocopy.cli.terminal import Output

    if full:
        print_matrix(result, Output())
    else:
        print_summary(result.summary(), Output())
    return result.exit_code


def _doctor_command() -> click.Command:
    import click

    @click.command(short_help="Report what is installed and what is missing.")
    @click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
    @click.option(
        "--import", "importing", is_flag=True, help="Import each installed framework, to list its devices."
    )
    def doctor(as_json: bool, importing: bool) -> None:
        """Report installed and missing packages, and the hardware."""
        from zerocopy.cli.doctor import report

        _quiet_tensorflow()
        document = report(importing)
        if as_json:
            _print_json(document)
        else:
            from zerocopy.cli.print_doctor import print_doctor
            from zerocopy.cli.terminal import Output

            print_doctor(document, Output())

    return doctor


def _quiet_tensorflow() -> None:
    """Hide TensorFlow's messages at import, unless the user has set these variables.

    TensorFlow logs about oneDNN before it reads the log level, so the second variable disables
    oneDNN. It selects kernels, and conversions run none.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")


def _print_json(document: dict[str, Any]) -> None:
    print(json.dumps(document, indent=2, allow_nan=False))
