"""``decode=``: row groups of Parquet files that a framework decodes on a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from zerocopy import registry
from zerocopy._engine.plan_for import plan_for
from zerocopy._engine.target import resolve
from zerocopy.errors import ZeroCopyError
from zerocopy.loading.batch_plan import BatchPlan
from zerocopy.loading.dataset import Dataset, DecodedRows, Stream
from zerocopy.loading.errors import LoaderOptionError, ReadError
from zerocopy.loading.hook import hook_of
from zerocopy.loading.options import LoaderOptions, opening
from zerocopy.loading.sources.parquet import ParquetFiles
from zerocopy.protocols.exporter_errors import is_error

#: Options of the host's reader, with the values that ask for nothing.
_OF_THE_HOST = {"encode": (None, False), "schema": (None,), "on_error": ("raise",), "shuffle": (False, None)}
_HOST = "leave out decode=: the host then decodes the files"


class DecodedFiles(Dataset):
    """The row groups of local Parquet files; a framework decodes each on a device.

    Parameters
    ----------
    files : ParquetFiles
        The files, of which the host reads only the metadata.
    decode : callable
        ``decode(path, row_groups, columns)`` returns `DecodedRows`.
    library : str
        The framework's name, for messages.
    """

    def __init__(
        self, files: ParquetFiles, decode: Callable[[str, list[int], list[str]], DecodedRows], library: str
    ) -> None:
        self._files, self._decode, self._library = files, decode, library
        self.name = f"{files.name}, decoded by {library}"
        self.note = f"{library} decodes on the device, without a copy through the host"
        self.schema, self.groups = files.schema, files.groups

    def read(self, index: int) -> Any:
        """Return the rows of a group, on the device."""
        group, names = self.groups[index], list(self.schema.names)
        row_groups = self._files.row_groups(index)
        try:
            rows = self._decode(group.file, row_groups, names)
        except (MemoryError, ZeroCopyError):
            raise
        except BaseException as error:
            if not is_error(error):
                raise
            self._files.check(index)
            raise ReadError(
                f"reading {group}",
                f"{self._library} raised {type(error).__name__}: {error}",
                f"replace the file; or {_HOST}",
                file=group.file,
                row_group=group.number,
            ) from error
        self._files.check(index)
        return rows

    def fingerprint(self) -> str:
        """Return the digest of the files: the host can continue the state of a device."""
        return self._files.fingerprint()


class DecodedPlan(BatchPlan):
    """Batches are converted from slices of rows that their framework makes."""

    is_decoded = True

    def _prepare(self, content: Any, options: LoaderOptions) -> None:
        """`content` is an Arrow table of the types, or `DecodedRows`; neither has rows."""
        if isinstance(content, DecodedRows):
            with opening(options, "source"):
                converter = plan_for(content.table, options.to, **options.conversion)
                converter(content.table)  # refuses a type that the target lacks
        else:
            converter = plan_for(content.schema, options.to, **options.conversion)
        self.to_target = lambda rows: converter(rows.table)
        self.is_matrix = options.is_matrix
        self.template = self.copies = None


def plan_batches(source: Dataset | Stream, content: Any, options: LoaderOptions) -> BatchPlan:
    """Return the plan of a source's batches."""
    is_decoded = isinstance(source, DecodedFiles) or isinstance(content, DecodedRows)
    return DecodedPlan(content, options) if is_decoded else BatchPlan(content, options)


def decode_source(source: Dataset | Stream, options: LoaderOptions) -> Dataset | Stream:
    """Return a source that the framework of ``decode=`` decodes; without the option, the source itself.

    Raises
    ------
    LoaderOptionError
        The framework does not decode files, the source is not local Parquet files, or `device` is the host.
    """
    if options.decode is None:
        return source
    framework = resolve(options.to)
    device = None if options.device is None else framework.parse_device(options.device)
    if device is None or device.kind != "cuda":
        raise _refusal(options, f"device={options.device!r} is not a CUDA device", 'pass device="cuda"')
    if not isinstance(source, ParquetFiles) or not source.is_plain:
        why = f"the source is {source.name}, and only the columns of local Parquet files are decoded"
        raise _refusal(options, why, f"pass paths of Parquet files; or {_HOST}")
    decoder = hook_of(registry.by_name(options.decode)).decoder(source, device.id)
    assert decoder is not None  # `check_decode` has refused other frameworks
    return decoder


def check_decode(options: LoaderOptions) -> None:
    """Refuse an unknown decoder, and options that only the host's reader has, before a file is opened."""
    if options.decode is None:
        return
    framework = registry.find(options.decode) if isinstance(options.decode, str) else None
    if not hook_of(framework).can_decode:
        known = " or ".join(repr(name) for name in _decoders())
        why = f"it must be None, or a framework that decodes Parquet files: {known}"
        raise _refusal(options, why, f"pass decode={known}; or {_HOST}")
    for name, defaults in _OF_THE_HOST.items():
        value = getattr(options, name)
        if not any(value is default or value == default for default in defaults):
            why = f"{name}= is not supported for rows that are decoded on a device"
            raise _refusal(options, why, f"leave out {name}=; or {_HOST}")


def _decoders() -> Sequence[str]:
    """Return the names of the frameworks that decode Parquet files."""
    return [name for name in registry.frameworks() if hook_of(registry.by_name(name)).can_decode]


def _refusal(options: LoaderOptions, why: str, fix: str) -> LoaderOptionError:
    return LoaderOptionError(f"loader(decode={options.decode!r})", why, fix)
