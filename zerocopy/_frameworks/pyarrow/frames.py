"""pyarrow's tables and arrays as frames: its own pickle of a slice has the whole buffers."""

from __future__ import annotations

from typing import Any

from zerocopy.frames.hook import FramesHook


class Frames(FramesHook):
    """Tables and arrays of Arrow's own types; pyarrow pickles extension types of others itself."""

    def types(self) -> tuple[type, ...]:
        import pyarrow as pa

        arrays = [cls for cls in vars(pa.lib).values() if isinstance(cls, type) and issubclass(cls, pa.Array)]
        return (pa.Table, pa.RecordBatch, pa.ChunkedArray, *arrays)

    def keeps_all(self, obj: Any) -> bool:
        import pyarrow as pa

        if isinstance(obj, (pa.Table, pa.RecordBatch)):
            return all(_is_own(pa, kind) for kind in obj.schema.types)
        return _is_own(pa, obj.type)


def _is_own(pa: Any, kind: Any) -> bool:
    """Whether a type, and the types in it, are registered by pyarrow itself."""
    if isinstance(kind, pa.BaseExtensionType):
        own = (pa.FixedShapeTensorType, pa.Bool8Type, pa.OpaqueType, pa.UuidType, pa.JsonType)
        return type(kind) in own and _is_own(pa, kind.storage_type)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _is_own(pa, kind.value_type)
    return all(_is_own(pa, kind.field(i).type) for i in range(kind.num_fields))
