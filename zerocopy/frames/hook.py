"""``FramesHook``: which objects of a framework frames can hold, and how tables keep their properties."""

from __future__ import annotations

from typing import Any


class FramesHook:
    """Base class of the frameworks' classes `Frames`.

    Attributes
    ----------
    restores_tables : bool
        Whether `restore` builds objects from Arrow tables, because ``convert`` would change their types.
    """

    restores_tables = False

    def types(self) -> tuple[type, ...]:
        """Return the types whose objects, not those of subclasses, `zerocopy.pickling` sends as frames."""
        return ()

    def keeps_all(self, obj: Any) -> bool:
        """Whether frames keep the type, the values and the flags of `obj`, and send no more bytes."""
        return False

    def flatten(self, obj: Any) -> tuple[Any, str]:
        """Return the table to send for `obj`, and a note: text in the header for `restore` or `finish`."""
        return obj, ""

    def restore(self, table: Any, note: str) -> Any:
        """Return the object that `flatten` got, over its table as an object of pyarrow."""
        raise NotImplementedError

    def finish(self, obj: Any, note: str) -> Any:
        """Return a converted object with the properties that its note describes; the note is not empty."""
        raise ValueError(f"the note {note!r} has no meaning")
