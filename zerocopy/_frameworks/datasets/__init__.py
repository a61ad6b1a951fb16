"""Hugging Face datasets: ``Dataset``, whose Arrow table is aliased in both directions.

Rows that ``select()``, ``shuffle()`` or ``sort()`` put in another order are gathered when they are converted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from secrets import token_hex
from typing import Any

from zerocopy._frameworks import _obstacles as obstacles
from zerocopy._frameworks._private import Private
from zerocopy.errors import Fix, Reason, UnsupportedConversionError
from zerocopy.framework import Framework
from zerocopy.protocols.arrow_schema import Field
from zerocopy.source import Source
from zerocopy.tables.arrow_column import UnreadColumn
from zerocopy.tables.column import Column, Table
from zerocopy.tables.decode import as_one_tensor
from zerocopy.tables.hub import hub
from zerocopy.tables.labels import listed, text_warnings
from zerocopy.tables.lists import nested_lists, shape_of

_FEATURES = b"huggingface"  # the key of a schema's metadata
_INDICES = Reason(
    "its rows are in the order of indices, as select(), shuffle() and sort() leave them",
    "convert flatten_indices() of the dataset, which writes them in that order once",
    code="exporter-copies",
)
#: Other versions: each dataset is gathered, because it may have indices, and `integrations` adds no format.
_READ = "Dataset._indices, formatting._FORMAT_TYPES, formatting._FORMAT_TYPES_ALIASES"
PRIVATE = Private("datasets", "4 to 5", _READ, "16,384 rows of 8 columns: 6 / 100 ms; no public formats")
_BITS = obstacles.packed_bits("datasets")
_DECODED = Reason(
    "datasets has no dictionaries: it is decoded",
    "decode it first",
    code="dictionary-encoding",
    fixes=[Fix(action="decode-dictionary")],
)
_WIDE = Reason(
    "datasets has decimals of 128 and 256 bits only", "cast it to decimal128 in Arrow", code="other-type"
)
_NULLABLE = Reason(
    "datasets has no nested fields that forbid nulls, and a cast copies them",
    "make them nullable in Arrow",
    code="other-type",
)
#: Kinds of types that datasets lacks: a remedy, and the action of a fix.
_LACKS = {
    "interval": ("make a struct of its months, days and nanoseconds", "seconds split-interval"),
    "union": ("convert it to a struct with one field per type", ""),
    "map": ("cast it to a list of structs in Arrow", ""),
    # Not x.cast: pyarrow 26 turns list views into wrong lists, without an error.
    "list_view": ("convert it to lists", "lists"),
    "run_end_encoded": ("decode it first: pyarrow.compute.run_end_decode(x)", "decode-runs"),
    "unknown": ("cast it first, or leave it out", "cast:int64"),
}
#: Extension types that are features: JSON, and arrays of several dimensions.
_OWN = ("arrow.json", "datasets.features.")
#: Those of the features ``Array2D`` to ``Array5D``, which store nested lists.
_ARRAYS = re.compile(r"datasets\.features\.features\.Array[2-5]DExtensionType")
#: Time zones that datasets can parse in the name of a type (``string_to_arrow``).
_ZONE = re.compile(r"[\w/+\-:]*", re.ASCII)


class Datasets(Framework):
    """``datasets.Dataset``, a table; as a source also one of its columns, ``x["name"]``.

    The format and the transform of a dataset are not applied. The result has a random fingerprint: that of
    the content would read all memory, and later writes would make it wrong.
    """

    name = "datasets"
    aliases = ("huggingface", "hf")
    types = ("Dataset",)
    kind = "table"
    kinds: Mapping[str, Any] = {"Column": "column"}
    root_modules = ("datasets",)
    distribution = "datasets"
    min_version = "4.0"  # older versions have other features of lists, and no columns
    mutable = False
    max_ndim = 63  # Arrow imports schemas of 64 levels, and the table is one of them
    actions: Mapping[str, Fix] = {"column": Fix("{x}.with_format('arrow')[:][{label}]")}

    def owns(self, cls: type) -> bool:
        return issubclass(cls, self._types())

    def is_native(self, obj: Any) -> bool:
        return isinstance(obj, self.module().Dataset)

    def _types(self) -> tuple[Any, ...]:
        ds: Any = self.module()
        return ds.Dataset, ds.arrow_dataset.Column, ds.table.Table, ds.IterableDataset

    def formats(self) -> tuple[Any, Any]:
        """Return the formats by name, and the names by their aliases; neither has a public name."""
        datasets = self.module()
        if not PRIVATE():
            why = f"datasets {datasets.__version__} is not known"
            fix = 'use zc.dataset(data, to="torch"); or zc.convert(data.with_format("arrow")[:8], "torch")'
            raise UnsupportedConversionError("install()", why, fix)
        return datasets.formatting._FORMAT_TYPES, datasets.formatting._FORMAT_TYPES_ALIASES

    # -- source ---------------------------------------------------------------

    def source(self, obj: Any) -> Source:
        table = self.table(obj)
        if table.read is not None and table.single:
            table = table.read()
        return as_one_tensor(table)

    def table(self, obj: Any, index: bool | None = None) -> Table:
        dataset, column, arrow, stream = self._types()
        name = f"datasets.{type(obj).__name__}"
        if isinstance(obj, stream):
            raise _unread(name)
        if isinstance(obj, arrow):
            return replace(_table_of(obj.table), name=name, obj=obj)
        if isinstance(obj, dataset):
            return self._rows(obj, name, None)
        assert isinstance(obj, column)
        if not isinstance(obj.source, dataset):
            why = "it is a field inside a column"
            raise obstacles.refuse_source(name, Reason(why, "convert the column", code="not-an-array"))
        return replace(self._rows(obj.source, name, obj.column_name), obj=obj)

    def _rows(self, obj: Any, name: str, label: str | None) -> Table:
        """Return a dataset, or one of its columns, as a table."""

        def described(arrow: Any) -> Table:
            part = _table_of(arrow if label is None else arrow.column(label))
            part.warnings = _ignored(obj)
            part.name, part.obj = name, obj
            if label is not None:
                part.labels = [label]
            return part

        table = described(obj.data.table)
        if not _may_have_indices(obj):
            return table

        def read() -> Table:
            gathered = described(self._gathered(obj))
            for column in gathered.columns:
                column.reasons = (_INDICES if label is None else reason,)
            gathered.obj = None
            return gathered

        item = "" if label is None else f".source.flatten_indices()[{_escaped(repr(label))}]"
        fix = Fix("{x}" + (item or ".flatten_indices()"), "writes them in that order once")
        types = [_field_of(column) for column in table.columns]
        reason = Reason(_INDICES.why, _INDICES.remedy, code=_INDICES.code, fixes=[fix])
        columns = [UnreadColumn(name, kind, (reason,)) for kind in types]
        return replace(table, columns=columns, length=0, read=read)

    def _gathered(self, obj: Any) -> Any:
        """Return the rows of a dataset in the order of its indices, as an Arrow table."""
        # No kernel for text as views, or offsets past 32 bits: datasets itself gathers rows, one by one.
        with suppress(hub().module().ArrowException):
            if PRIVATE() and obj._indices is not None:
                return obj.data.table.take(obj._indices.column(0))
        return obj.with_format("arrow")[:]

    def fast_exporters(self, cls: type) -> dict[str, Callable[[Any], Any]]:
        if cls is not self.module().Dataset:
            return {}
        pairs = hub().fast_exporters(hub().module().Table)["columns"]

        def columns(dataset: Any, index: object = None) -> Any:
            if _may_have_indices(dataset):
                raise ValueError("its rows are in the order of indices")
            return pairs(dataset.data.table)

        return {"columns": columns}

    # -- target ---------------------------------------------------------------

    def column_reasons(self, column: Column) -> list[Reason]:
        reasons = dict.fromkeys(column.arrow_reasons())
        if column.field is not None:
            reasons |= dict.fromkeys(_reasons_against(column.field))
        elif column.source is not None:
            self.check_view(column.source.view)
        return list(reasons)

    def table_reasons(self, table: Table) -> list[list[Reason]]:
        obstacles.check_unique(map(str, table.labels), "datasets")
        obstacles.check_nul(table.labels, "datasets")
        obstacles.check_utf8(table.labels, "datasets")
        if not table.columns and table.length:
            why = "it has rows and no columns, and a dataset without columns has no rows"
            raise UnsupportedConversionError("", why, "add a column", code="no-columns")
        return super().table_reasons(table)

    def table_warnings(self, table: Table) -> tuple[str, ...]:
        kept = self._features(table)
        lost = ", ".join(repr(k.decode(errors="replace")) for k in table.metadata if k not in kept)
        warnings = [f"the schema's metadata ({lost}) is lost: a dataset keeps its features"] if lost else []
        if table.index:
            warnings.append(f"datasets has no index: it becomes {table.index} ordinary columns")
        for label, column in zip(table.labels, table.columns, strict=True):
            if column.field is not None:
                subject = "it: " if table.single else f"column {label!r}: "
                warnings += dict.fromkeys(subject + change for change in _changes(column.field))
        return (*warnings, *text_warnings("datasets", table.labels))

    def _features(self, table: Table) -> dict[bytes, bytes]:
        """Return a schema's metadata with the features of its columns only; empty if there are none."""
        if _FEATURES not in table.metadata:
            return {}
        try:
            info = json.loads(table.metadata[_FEATURES])["info"]["features"]
            features = {label: info[label] for label in table.labels if label in info}
            self.module().Features.from_dict(features)
        except (KeyError, NotImplementedError, TypeError, ValueError):
            return {}
        return {_FEATURES: json.dumps({"info": {"features": features}}).encode()}

    def is_tensor_type(self, extension: str) -> bool:
        return _ARRAYS.fullmatch(extension) is not None

    def from_table(self, table: Table) -> Any:
        self.table_reasons(table)  # the fast path has not called it
        pa, arrow = hub().module(), hub().from_table(table)
        try:
            return self._dataset(self._adapted(pa, arrow, table))
        except (pa.ArrowException, KeyError, NotImplementedError, TypeError, ValueError) as error:
            why, remedy = f"datasets cannot hold it: {error}", "cast or leave out the column"
            raise UnsupportedConversionError("to='datasets'", why, remedy, code="framework-error") from error

    def _adapted(self, pa: Any, arrow: Any, table: Table) -> Any:
        columns = [_adapted(pa, array) for array in arrow.columns]
        # datasets would cast all columns if one field is not nullable.
        fields = [
            pa.field(field.name, array.type, metadata=field.metadata)
            for field, array in zip(arrow.schema, columns, strict=True)
        ]
        schema = pa.schema(fields, metadata=self._features(table) or None)
        return pa.Table.from_arrays(columns, schema=schema) if columns else arrow

    def from_column(self, table: Table) -> Any:
        return self.from_table(replace(table, labels=[str(table.labels[0]) or "column_0"]))

    def fast_importers(self) -> dict[str, Callable[[Any], Any]]:
        return {"hub": self._of_hub}

    def _of_hub(self, named: tuple[str | None, Any, Any]) -> Any:
        if named[0] is not None:
            raise ValueError("a column: the slow path makes a table of it")
        return self._dataset(hub().as_table(*named[1:]))

    def _dataset(self, arrow: Any) -> Any:
        # A hash of the content takes 4 ms per MB, and a fingerprint in the metadata is that of other rows.
        return self.module().Dataset(arrow, fingerprint=token_hex(8))


def _may_have_indices(obj: Any) -> bool:
    """Whether the rows of a dataset may have another order than those of its table."""
    return not PRIVATE() or obj._indices is not None


def _table_of(arrow: Any) -> Table:
    table: Table = hub().table(arrow)
    return table


def _field_of(column: Column) -> Field:
    assert column.field is not None
    return column.field


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _unread(name: str) -> UnsupportedConversionError:
    why = "it is a stream of examples, which has no memory until it is read"
    read = Fix("datasets.Dataset.from_list(list({x}))", "reads all of it")
    return obstacles.refuse_source(name, Reason(why, code="unread", fixes=[read]))


def _ignored(obj: Any) -> tuple[str, ...]:
    """Return the warnings of a dataset whose rows differ from those of its table."""
    form = obj.format
    names = [str(name) for name in form["columns"] or ()]
    if form["type"] == "custom":
        return ("the transform of the dataset is not applied",)
    hidden = [name for name in obj.column_names if name not in names]
    if hidden:
        return (f"the format of the dataset is ignored: it hides {listed(hidden)}",)
    return ()


# -- types ----------------------------------------------------------------------


_lacks = partial(obstacles.refuse_type, "datasets")


def _reasons_against(field: Field) -> Iterator[Reason]:
    """Yield why a type is copied; refuse one that datasets lacks."""
    for part in field.walk():
        nested = part is not field
        if part.kind in _LACKS:
            remedy, action = _LACKS[part.kind]
            raise _lacks(part, remedy, action="" if nested else action)
        if part.timezone and not _ZONE.fullmatch(part.timezone):
            raise _lacks(part, "cast it to a zone of the time zone database")
        names = [child.name for child in part.children]
        if part.kind == "struct" and len({*names}) != len(names):
            raise _lacks(part, "rename its fields", " with two fields of one name")
        other = part.extension and not part.extension.startswith(_OWN)
        if nested and (other or part.dictionary is not None):
            raise _lacks(part, "cast it to its storage in Arrow", " inside another type")
        if part.kind == "decimal" and part.width < 16:
            if nested:
                raise _lacks(part, "cast it to decimal128 in Arrow", " inside another type")
            yield _WIDE
        if nested and not part.nullable and field.dictionary is None and not field.extension:
            yield _NULLABLE
    if field.extension == "arrow.bool8":
        yield _BITS
    elif field.extension == "arrow.fixed_shape_tensor" and shape_of(field)[1]:
        raise _lacks(field, "store them in the order of their dimensions first", " with permuted dimensions")
    elif field.dictionary is not None:
        yield _DECODED


def _changes(field: Field) -> Iterator[str]:
    """Yield the parts of a type that are lost; the values are kept."""
    if any(not part.nullable for part in field.walk()):
        yield "datasets has no columns that forbid nulls"
    if field.extension == "arrow.bool8":
        yield "booleans become bits"
    elif field.extension == "arrow.fixed_shape_tensor":
        yield "tensors become nested lists"
    elif field.extension and not field.extension.startswith(_OWN):
        yield f"{field.extension} is lost: a dataset has its storage"
    elif field.dictionary is not None:
        yield "categories become plain values"
    elif field.kind == "decimal" and field.width < 16:
        yield "decimals become decimal128"


def _adapted(pa: Any, array: Any) -> Any:
    """Return a chunked array in types that datasets has: itself if it has them already."""
    kind = array.type
    if isinstance(kind, pa.FixedShapeTensorType):
        return nested_lists(array, pa)
    if isinstance(kind, pa.Bool8Type):
        return _cast(pa, array, pa.bool_())
    if pa.types.is_dictionary(kind):
        parts = [_decoded(chunk) for chunk in array.chunks]
        return _adapted(pa, pa.chunked_array(parts, kind.value_type))
    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name.startswith(_OWN):
            return array
        return pa.chunked_array([chunk.storage for chunk in array.chunks], kind.storage_type)
    if pa.types.is_decimal32(kind) or pa.types.is_decimal64(kind):
        return _cast(pa, array, pa.decimal128(kind.precision, kind.scale))
    nullable = _nullable(kind)
    # The type's text names fields that forbid nulls; a cast can alias parts, and the plan has a copy.
    return array if str(nullable) == str(kind) else _cast(pa, hub().copied(array), nullable)


def _decoded(chunk: Any) -> Any:
    rows, kind = hub().decoded(chunk), chunk.dictionary.type
    return rows if rows.type == kind else rows.cast(kind)


def _cast(pa: Any, array: Any, kind: Any) -> Any:
    return pa.chunked_array([chunk.cast(kind) for chunk in array.chunks], kind)


def _nullable(kind: Any) -> Any:
    """Return a type whose nested fields may all be null."""
    return hub().with_fields(kind, lambda field: field.with_type(_nullable(field.type)).with_nullable(True))


FRAMEWORK = Datasets()
