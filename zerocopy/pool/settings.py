"""What was asked of ``install_pool``: read, checked, and comparable."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from zerocopy.errors import PoolOptionError
from zerocopy.pool.sizes import parse_size

VARIABLE = "ZEROCOPY_POOL"

#: Each kind, and what it is in one line.
KINDS = {
    "auto": "the driver's pool where torch, JAX or TensorFlow is in use, RMM's otherwise",
    "driver": "CUDA's device-default memory pool, which every framework can share; no hard cap",
    "rmm": "RMM's pool over cudaMalloc; the kind with a hard cap",
    "rmm:pool": "the same",
    "rmm:arena": "RMM's arenas, for many threads",
    "rmm:binning": "RMM's bins of fixed sizes up to 4 MiB, and its pool for what is larger",
    "rmm:async": "a pool of RMM's own made of CUDA's asynchronous allocator",
    "managed": "RMM's pool over managed memory with prefetch: more memory than the card has",
    "custom": "an allocator of your own: allocator=",
}
_SIZES = ("limit", "reserve", "initial", "release_threshold")
_FLAGS = ("track", "strict")
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of one pool; sizes in bytes. See :func:`zerocopy.install_pool`."""

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
    def read(cls, kind: Any = "auto", **options: Any) -> Settings:
        """Check options as they are passed to ``install_pool``.

        Raises
        ------
        PoolOptionError
            One of them cannot be read, is not known, or contradicts another.
        """
        known = {f.name for f in fields(cls)}
        for name in options:
            if name not in known:
                raise PoolOptionError(f"{name}={options[name]!r}", "no such option", _near(name, known))
        read: dict[str, Any] = {"kind": _kind(kind), **options}
        for name in _SIZES:
            if read.get(name) is not None:
                read[name] = parse_size(read[name], name)
        for name in _FLAGS:
            if name in read:
                read[name] = _flag(read[name], name)
        read["devices"] = _devices(read.get("devices"))
        read["frameworks"] = _frameworks(read.get("frameworks"))
        read["fraction"] = _fraction(read.get("fraction"))
        read["host"] = _host(read.get("host", "off"))
        if read.get("log") is not None:
            read["log"] = os.fspath(read["log"])
        settings = cls(**read)
        settings._check()
        return settings

    @classmethod
    def from_text(cls, text: str, asked: str = VARIABLE) -> Settings:
        """Read ``"rmm,limit=8GiB,track=1"``, as ``ZEROCOPY_POOL`` has it.

        Several devices or frameworks are joined by ``+``: ``devices=0+1``.

        Examples
        --------
        >>> Settings.from_text("rmm,limit=8GiB,track=1").limit
        8589934592
        """
        options: dict[str, Any] = {}
        for place, part in enumerate(piece.strip() for piece in text.split(",")):
            name, equals, value = part.partition("=")
            if not part:
                continue
            if not equals:
                if place:
                    raise PoolOptionError(
                        f"{asked}={text!r}", f"{part!r} is no option", "write the kind first, then name=value"
                    )
                name, value = "kind", part
            elif not value or name.strip() in options:
                why = f"{name.strip()} has no value" if not value else f"{name.strip()} is there twice"
                raise PoolOptionError(f"{asked}={text!r}", why, 'write it as "rmm,limit=8GiB,track=1"')
            options[name.strip()] = value.strip()
        if "allocator" in options:
            raise PoolOptionError(
                f"{asked}={text!r}", "an allocator is an object", "pass it: install_pool(allocator=...)"
            )
        for name in ("devices", "frameworks"):
            if name in options:
                options[name] = [part for part in options[name].split("+") if part]
        if "fraction" in options:
            options["fraction"] = _number(options["fraction"])
        return cls.read(**options)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Settings | None:
        """Return what ``ZEROCOPY_POOL`` asks for; None where it is not set, empty or ``off``."""
        text = environ.get(VARIABLE, "").strip()
        return None if text.lower() in ("", *_FALSE) else cls.from_text(text)

    def _check(self) -> None:
        """Refuse what contradicts itself."""
        if self.kind == "custom" and self.allocator is None:
            raise PoolOptionError("kind='custom'", "there is no allocator", "pass allocator=")
        if self.allocator is not None and self.kind not in ("auto", "custom"):
            raise PoolOptionError(
                f"kind={self.kind!r}, allocator=...",
                "an allocator of your own takes the kind's place",
                "leave kind= out",
            )
        for name in ("allocate", "deallocate"):
            if self.allocator is not None and not callable(getattr(self.allocator, name, None)):
                raise PoolOptionError(
                    f"allocator={self.allocator!r}",
                    f"it has no {name}()",
                    "it needs allocate(nbytes, stream) -> int and deallocate(ptr, nbytes, stream)",
                )
        if self.kind == "driver" and self.capped:
            raise PoolOptionError(
                f"kind='driver', {', '.join(self.caps())}",
                "CUDA's default memory pool has no cap",
                "kind='rmm' has one; MPS limits whole processes: CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
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
        if self.initial is not None and self.limit is not None and self.initial > self.limit:
            raise PoolOptionError(
                f"initial={self.initial}, limit={self.limit}",
                "a pool cannot begin with more than it may have",
                "initial= is what is guaranteed, limit= the most",
            )

    @property
    def by_rmm(self) -> bool:
        """Whether the kind that is named is made of RMM's resources."""
        return self.kind in ("custom", "managed") or self.kind.startswith("rmm")

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
        default = type(self)()
        shown = [self.kind] if self.allocator is None else ["allocator=..."]
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            if field.name != "allocator" and value != getattr(default, field.name):
                joined = isinstance(value, tuple)
                shown.append(f"{field.name}={'+'.join(map(str, value)) if joined else value}")
        return ",".join(shown)


def _near(name: Any, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(str(name).lower(), list(known), n=2, cutoff=0.5)
    hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    return f"{hint}there are: {', '.join(known)}"


def _kind(kind: Any) -> str:
    found = str(kind).lower() if isinstance(kind, str) else kind
    if not isinstance(found, str) or found not in KINDS:
        hint = " (an allocator is passed as allocator=)" if hasattr(kind, "allocate") else ""
        raise PoolOptionError(f"kind={kind!r}", "no such kind of pool" + hint, _near(kind, KINDS))
    return "rmm" if found == "rmm:pool" else found


def _flag(value: Any, name: str) -> bool:
    if isinstance(value, str) and value.lower() in _TRUE + _FALSE:
        return value.lower() in _TRUE
    if value in (True, False, 0, 1):
        return bool(value)
    raise PoolOptionError(f"{name}={value!r}", "it is yes or no", f"write {name}=True or {name}=False")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise PoolOptionError(f"fraction={text!r}", "it is no number", "write it as 0.5") from error


def _fraction(value: Any) -> float | None:
    if value is None:
        return None
    number = _number(value) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 < number <= 1:
        raise PoolOptionError(
            f"fraction={value!r}",
            "it is the part of the card's total memory: more than 0, at most 1",
            "write it as 0.5",
        )
    return float(number)


def _devices(value: Any) -> tuple[int, ...] | None:
    if value is None:
        return None
    given = [value] if isinstance(value, (int, str)) else value
    try:
        found = tuple(int(str(device).removeprefix("cuda:")) for device in given)
    except (TypeError, ValueError) as error:
        raise PoolOptionError(
            f"devices={value!r}",
            "a device is a number, as CUDA counts them",
            "write 0, [0, 1] or 'cuda:0'",
        ) from error
    if not found or min(found) < 0 or len(set(found)) < len(found):
        raise PoolOptionError(
            f"devices={value!r}",
            "none, a negative one, or one twice",
            "write 0 or [0, 1]; leave it out for all",
        )
    return found


def _frameworks(value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    from zerocopy.pool import hook

    given = [value] if isinstance(value, str) else list(value)
    known = hook.names()
    for name in given:
        if name not in known:
            raise PoolOptionError(
                f"frameworks={value!r}", f"{name!r} takes no memory from a pool", _near(name, known)
            )
    return tuple(given)


def _host(value: Any) -> str:
    from zerocopy.pool import host

    text = "off" if value is None or value is False else value
    if not isinstance(text, str):
        raise PoolOptionError(f"host={value!r}", "it is the name of a mode", 'write host="aligned"')
    host.parse(text)  # refuses what it does not know
    return text
