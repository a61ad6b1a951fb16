"""What was asked of ``install_pool``: read, checked, and comparable."""

from __future__ import annotations

import csv
import io
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from zerocopy.errors import PoolOptionError
from zerocopy.pool import advice, hook, kinds
from zerocopy.pool.options import (
    FALSE,
    NONE,
    TRUE,
    nearest,
    read_devices,
    read_flag,
    read_fraction,
    read_frameworks,
    read_host,
    read_kind,
    read_log,
)
from zerocopy.pool.sizes import parse_size, show_value

VARIABLE = "ZEROCOPY_POOL"

_SIZES = ("limit", "reserve", "initial", "release_threshold")
_FLAGS = ("track", "strict")


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of one pool; sizes in bytes. See :func:`zerocopy.install_pool`.

    Attributes
    ----------
    kind, host, devices, limit, fraction, reserve, initial : object
        As :func:`zerocopy.install_pool` has them, read: names in their shortest form, sizes in bytes.
    release_threshold, frameworks, track, log, strict, allocator : object
        The same.

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
    allocator: Any = None

    @classmethod
    def read(cls, /, kind: Any = "auto", **options: Any) -> Settings:
        """Check options as they are passed to ``install_pool``.

        What means the same is the same afterwards: ``host="Recycle"`` and ``"recycle"``,
        frameworks in another order.

        Raises
        ------
        PoolOptionError
            One of them cannot be read, is not known, or contradicts another.
        """
        known = [f.name for f in fields(cls)]
        for name in options:
            if name not in known:
                raise PoolOptionError(
                    f"{name}={show_value(options[name])}", "no such option", nearest(name, known)
                )
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
    def from_text(cls, text: str, asked: str = VARIABLE) -> Settings:
        """Read ``"rmm,limit=8GiB,track=1"``, as ``ZEROCOPY_POOL`` has it.

        Several devices or frameworks are joined by ``+``: ``devices=0+1``. An option whose value
        has a comma stands in quotes, as in CSV: ``rmm,"log=a,b.csv"``.

        Examples
        --------
        >>> Settings.from_text("rmm,limit=8GiB,track=1").limit
        8589934592
        """
        options: dict[str, Any] = {}
        for place, part in enumerate(_parts(text, asked)):
            name, equals, value = part.partition("=")
            if not part:
                continue
            if not equals:
                if place:
                    raise PoolOptionError(
                        f"{asked}={text!r}",
                        f"{part!r} is no option",
                        'write the kind first, then name=value; a value with a comma as "name=a,b"',
                    )
                name, value = "kind", "auto" if part.lower() in TRUE else part
            elif not (name and value) or name.strip() in options:
                lacking = "has no value" if name else "has no name"
                why = f"{name.strip() or part} {'is there twice' if name and value else lacking}"
                raise PoolOptionError(f"{asked}={text!r}", why, 'write it as "rmm,limit=8GiB,track=1"')
            options[name.strip()] = value.strip()
        if "allocator" in options:
            raise PoolOptionError(
                f"{asked}={text!r}", "an allocator is an object", "pass it: install_pool(allocator=...)"
            )
        try:
            return cls.read(**options)
        except PoolOptionError as error:
            why = f"{error.asked}: {error.why}"
            raise PoolOptionError(f"{asked}={text!r}", why, error.remedy) from error

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Settings | None:
        """Return what ``ZEROCOPY_POOL`` asks for; None where it is not set, empty or ``off``.

        ``1``, ``true``, ``yes`` and ``on`` are ``auto``.
        """
        text = environ.get(VARIABLE, "").strip()
        return None if text.lower() in ("", *FALSE) else cls.from_text(text)

    def _check(self) -> None:
        """Refuse what contradicts itself."""
        if self.kind == "custom" and self.allocator is None:
            raise PoolOptionError("kind='custom'", "there is no allocator", "pass allocator=")
        if self.allocator is not None and self.kind != "custom":
            raise PoolOptionError(
                f"kind={self.kind!r}, allocator=...",
                "an allocator of your own takes the kind's place",
                "leave kind= out",
            )
        if isinstance(self.allocator, type):
            raise PoolOptionError(
                f"allocator={self.allocator!r}", "it is a class, and no object of it", "call it"
            )
        for name in ("allocate", "deallocate"):
            if self.allocator is not None and not callable(getattr(self.allocator, name, None)):
                raise PoolOptionError(
                    f"allocator={self.allocator!r}",
                    f"it has no {name}()",
                    "it needs allocate(nbytes, stream) -> int and deallocate(ptr, nbytes, stream)",
                )
        for name in ("initial", "release_threshold"):
            if self.kind == "custom" and getattr(self, name) is not None:
                raise PoolOptionError(
                    f"allocator=..., {name}={getattr(self, name)}",
                    "an allocator of your own keeps what it keeps",
                    "leave it out, and have the allocator do it",
                )
        if self.kind == "driver" and self.capped:
            ways = [f"kind='rmm' has one, for {advice.under_a_cap()}", *advice.own_caps(hook.of_frameworks())]
            raise PoolOptionError(
                f"kind='driver', {', '.join(self.caps())}",
                "CUDA's default memory pool has no cap",
                "; ".join([*ways, "MPS limits whole processes"]),
            )
        if self.log is not None and not self.by_rmm and self.kind != "auto":
            raise PoolOptionError(
                f"kind={self.kind!r}, log={self.log!r}", "RMM keeps the log", "use kind='rmm', or track=True"
            )
        if self.release_threshold is not None and self.kind not in ("auto", "driver", "rmm:async"):
            raise PoolOptionError(
                f"kind={self.kind!r}, release_threshold={self.release_threshold}",
                "pools of CUDA's asynchronous allocator have one, others do not",
                "use kind='driver' or 'rmm:async', or leave it out; trim() gives memory back",
            )
        if self.kind == "rmm:arena" and not self.capped and self.initial is None:
            raise PoolOptionError(
                "kind='rmm:arena'",
                "arenas take their memory at once, all that they will have",
                "say how much: limit=, fraction=, reserve= or initial=",
            )
        if self.limit == 0:
            raise PoolOptionError("limit=0", "nothing could be allocated", "leave it out for no limit")
        if self.initial is not None and self.limit is not None and self.initial > self.limit:
            raise PoolOptionError(
                f"initial={self.initial}, limit={self.limit}",
                "a pool cannot begin with more than it may have",
                "initial= is what is guaranteed, limit= the most",
            )

    @property
    def by_rmm(self) -> bool:
        """Whether the kind that is named is made of RMM's resources."""
        return kinds.by_rmm(self.kind)

    @property
    def capped(self) -> bool:
        """Whether a cap is asked for."""
        return bool(self.caps())

    def caps(self) -> list[str]:
        """Return the options that ask for a cap, as they were passed."""
        return [f"{n}={v}" for n in ("limit", "fraction", "reserve") if (v := getattr(self, n)) is not None]

    def wants(self, framework: str) -> bool:
        """Whether the pool is for a framework: no ``frameworks=`` means all."""
        return self.frameworks is None or framework in self.frameworks

    def named(self, framework: str) -> bool:
        """Whether a framework is named: that opts in to what is off by itself."""
        return self.frameworks is not None and framework in self.frameworks

    def __str__(self) -> str:
        """Write it down; `from_text` reads it again, but for an allocator."""
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


def of_this_command() -> bool:
    """Whether Python was started as ``python -m zerocopy.pool``, which installs what its options say,
    or as the command ``zerocopy``.

    Asked while the package is imported for it: ``sys.argv[0]`` is ``-m`` until the module is found
    (Python's documentation, ``sys.argv``).
    """
    arguments = getattr(sys, "argv", [])
    # The command `zerocopy` has no need of a pool; its doctor says what is wrong with the variable.
    if arguments and os.path.basename(arguments[0]) in ("zerocopy", "zerocopy.exe"):
        return True
    if arguments[:1] != ["-m"] or len(arguments) >= len(sys.orig_argv):
        return False
    word = sys.orig_argv[-len(arguments)]  # before the program's own arguments; -m may be written to it
    return re.fullmatch(r"(-[A-Za-z]*m)?zerocopy(\.pool)?(\.__main__)?", word) is not None


def _parts(text: str, asked: str) -> list[str]:
    try:
        rows = list(csv.reader([text], skipinitialspace=True, strict=True))
    except csv.Error as error:
        raise PoolOptionError(
            f"{asked}={text!r}", f"it cannot be read: {error}", 'write it as "rmm,limit=8GiB,track=1"'
        ) from error
    return [part.strip() for row in rows for part in row]
