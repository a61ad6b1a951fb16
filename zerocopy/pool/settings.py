"""`Settings`: the options of ``install_pool``, parsed, checked and comparable."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from zerocopy.errors import PoolOptionError
from zerocopy.pool import hooks
from zerocopy.pool.options import (
    FALSE,
    NONE,
    TRUE,
    ipc_refusal,
    is_rmm_kind,
    read_devices,
    read_flag,
    read_fraction,
    read_frameworks,
    read_host,
    read_kind,
    read_log,
)
from zerocopy.pool.sizes import parse_size, show_value, suggest

VARIABLE = "ZEROCOPY_POOL"

_SIZES = ("limit", "reserve", "initial", "release_threshold")
_FLAGS = ("track", "strict", "ipc")


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of one pool in canonical form: short names, sizes in bytes. See `install_pool`.

    Examples
    --------
    >>> asked = Settings.read("RMM", limit="1GiB", frameworks=["torch", "cupy"])
    >>> print(asked)
    rmm,limit=1073741824,frameworks=torch+cupy
    >>> Settings.from_text(str(asked)) == asked
    True
    """

    kind: str = "auto"
    host: str = "off"
    devices: tuple[int, ...] | None = None
    limit: int | None = None
    fraction: float | None = None
    reserve: int | None = None
    initial: int | None = None
    release_threshold: int | None = None
    frameworks: tuple[str, ...] | None = None
    track: bool = False
    log: str | None = None
    strict: bool = False
    ipc: bool = False
    allocator: Any = None

    @classmethod
    def read(cls, /, kind: Any = "auto", **options: Any) -> Settings:
        """Parse options as they are passed to ``install_pool``.

        Equivalent options compare equal: ``host="Recycle"`` and ``"recycle"``, frameworks in
        another order.
        """
        known = [f.name for f in fields(cls)]
        for name in options:
            if name not in known:
                asked = f"{name}={show_value(options[name])}"
                raise PoolOptionError(asked, "no such option", suggest(name, known))
        read: dict[str, Any] = {"kind": read_kind(kind), **options}
        if read.get("allocator") is not None and read["kind"] == "auto":
            read["kind"] = "custom"
        for name in _SIZES:
            if read.get(name) is not None:
                read[name] = parse_size(read[name], name)
        for name in _FLAGS:
            if name in read:
                read[name] = read_flag(read[name], name)
        read["devices"] = read_devices(read.get("devices"))
        read["frameworks"] = read_frameworks(read.get("frameworks"))
        read["fraction"] = read_fraction(read.get("fraction"))
        read["host"] = read_host(read.get("host", "off"))
        read["log"] = read_log(read.get("log"))
        settings = cls(**read)
        settings._check()
        return settings

    @classmethod
    def from_text(cls, text: str) -> Settings:
        """Parse ``"rmm,limit=8GiB,track=1"``, the form of ``ZEROCOPY_POOL``.

        Several devices or frameworks are joined by ``+``: ``devices=0+1``. An option whose value
        has a comma is quoted as in CSV: ``rmm,"log=a,b.csv"``.

        Examples
        --------
        >>> Settings.from_text("rmm,limit=8GiB,track=1").limit
        8589934592
        """
        asked, form = f"{VARIABLE}={text!r}", 'write it as "rmm,limit=8GiB,track=1"'
        options: dict[str, Any] = {}
        for place, part in enumerate(_parts(text, asked, form)):
            name, equals, value = (piece.strip() for piece in part.partition("="))
            if not part:
                continue
            if not equals:
                if place:
                    raise PoolOptionError(
                        asked,
                        f"{part!r} is not an option",
                        'write the kind first, then name=value; a value with a comma as "name=a,b"',
                    )
                name, value = "kind", "auto" if part.lower() in TRUE else part
            elif not name or not value:
                why = f"{name} has no value" if name else f"{part} has no name"
                raise PoolOptionError(asked, why, form)
            elif name in options:
                raise PoolOptionError(asked, f"{name} occurs twice", form)
            options[name] = value
        if "allocator" in options:
            raise PoolOptionError(
                asked, "an allocator cannot be given as text", "call install_pool(allocator=...)"
            )
        try:
            return cls.read(**options)
        except PoolOptionError as error:
            raise PoolOptionError(asked, f"{error.asked}: {error.why}", error.remedy) from error

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Settings | None:
        """Return the settings in ``ZEROCOPY_POOL``; None if it is unset, empty or ``off``.

        ``1``, ``true``, ``yes`` and ``on`` mean ``auto``.
        """
        text = environ.get(VARIABLE, "").strip()
        return None if text.lower() in ("", *FALSE) else cls.from_text(text)

    def _check(self) -> None:
        """Raise if options contradict each other."""
        self._check_allocator()
        if self.kind == "driver" and self.has_limit:
            limits = [f"kind='rmm' has one, for {hooks.limited_frameworks()}"]
            raise PoolOptionError(
                f"kind='driver', {', '.join(self.limit_options())}",
                "CUDA's default memory pool has no limit",
                "; ".join(
                    [*limits, *hooks.own_limits(hooks.framework_hooks()), "MPS limits whole processes"]
                ),
            )
        if self.log is not None and not is_rmm_kind(self.kind) and self.kind != "auto":
            raise PoolOptionError(
                f"kind={self.kind!r}, log={self.log!r}", "RMM writes the log", "use kind='rmm', or track=True"
            )
        if self.release_threshold is not None and self.kind not in ("auto", "driver", "rmm:async"):
            raise PoolOptionError(
                f"kind={self.kind!r}, release_threshold={self.release_threshold}",
                "only pools of CUDA's asynchronous allocator have a release threshold",
                "use kind='driver' or 'rmm:async', or leave it out; trim() returns unused memory",
            )
        if self.ipc and self.kind != "rmm:async":
            why, remedy = ipc_refusal(self.kind)
            raise PoolOptionError(f"kind={self.kind!r}, ipc=True", why, remedy)
        if self.kind == "rmm:arena" and not self.has_limit and self.initial is None:
            raise PoolOptionError(
                "kind='rmm:arena'",
                "arenas allocate all their memory at once",
                "pass its size: limit=, fraction=, reserve= or initial=",
            )
        if self.limit == 0:
            raise PoolOptionError("limit=0", "no allocation would be possible", "leave it out for no limit")
        if self.initial is not None and self.limit is not None and self.initial > self.limit:
            raise PoolOptionError(
                f"initial={self.initial}, limit={self.limit}",
                "the initial size exceeds the limit",
                "pass a smaller initial=, which is allocated at once, or a larger limit=",
            )

    def _check_allocator(self) -> None:
        allocator = self.allocator
        if allocator is None:
            if self.kind == "custom":
                raise PoolOptionError("kind='custom'", "the allocator is missing", "pass allocator=")
            return
        asked = f"allocator={allocator!r}"
        if self.kind != "custom":
            raise PoolOptionError(
                f"kind={self.kind!r}, allocator=...",
                "a custom allocator replaces the kind",
                "leave kind= out",
            )
        if isinstance(allocator, type):
            raise PoolOptionError(asked, "it is a class, not an instance", "pass an instance")
        for name in ("allocate", "deallocate"):
            if not callable(getattr(allocator, name, None)):
                raise PoolOptionError(
                    asked,
                    f"it has no {name}()",
                    "it needs allocate(nbytes, stream) -> int and deallocate(ptr, nbytes, stream)",
                )
        for name in ("initial", "release_threshold"):
            if getattr(self, name) is not None:
                raise PoolOptionError(
                    f"allocator=..., {name}={getattr(self, name)}",
                    "a custom allocator manages its own reserve",
                    "leave it out, and configure the allocator",
                )

    @property
    def has_limit(self) -> bool:
        """Whether the options set a limit."""
        return bool(self.limit_options())

    def limit_options(self) -> list[str]:
        """Return the options that set a limit, as text."""
        return [f"{n}={v}" for n in ("limit", "fraction", "reserve") if (v := getattr(self, n)) is not None]

    def wants(self, framework: str) -> bool:
        """Whether the pool is for a framework; without ``frameworks=`` it is for all."""
        return self.frameworks is None or framework in self.frameworks

    def named(self, framework: str) -> bool:
        """Whether ``frameworks=`` names a framework, which opts in to attachments that are off by default."""
        return self.frameworks is not None and framework in self.frameworks

    def __str__(self) -> str:
        """Return the text form, which `from_text` parses, except for an allocator."""
        default = type(self)()
        shown = [self.kind] if self.allocator is None else ["allocator=..."]
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            if field.name != "allocator" and value != getattr(default, field.name):
                text = ("+".join(map(str, value)) or NONE) if isinstance(value, tuple) else value
                shown.append(f"{field.name}={text}")
        row = io.StringIO()
        csv.writer(row, lineterminator="").writerow(shown)
        return row.getvalue()


def _parts(text: str, asked: str, form: str) -> list[str]:
    try:
        rows = list(csv.reader([text], skipinitialspace=True, strict=True))
    except csv.Error as error:
        raise PoolOptionError(asked, f"it cannot be read: {error}", form) from error
    return [part.strip() for row in rows for part in row]
