"""What was asked of ``install_pool``: read, checked, and comparable."""

from __future__ import annotations

import csv
import difflib
import io
import numbers
import operator
import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from zerocopy.device import CUDA, Device
from zerocopy.errors import PoolOptionError
from zerocopy.pool.sizes import parse_size, show_value

VARIABLE = "ZEROCOPY_POOL"

#: Each kind, and what it is in one line.
KINDS = {
    "auto": "the driver's pool where torch, JAX or TensorFlow is in use, RMM's otherwise",
    "driver": "CUDA's device-default memory pool, which every framework can share; no cap of its own",
    "rmm": "RMM's pool over cudaMalloc; the kind with a hard cap",
    "rmm:pool": "the same",
    "rmm:arena": "RMM's arenas, for many threads",
    "rmm:binning": "RMM's bins of fixed sizes up to 4 MiB, and its pool for what is larger",
    "rmm:async": "a pool of RMM's own made of CUDA's asynchronous allocator",
    "managed": "RMM's pool over managed memory with prefetch: more memory than the card has",
    "custom": "an allocator of your own: allocator=",
}
HOST_MODES = ("aligned", "recycle", "pinned")
_SIZES = ("limit", "reserve", "initial", "release_threshold")
_FLAGS = ("track", "strict")
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
_NONE = "none"  # how no framework at all is written down
_DEVICE = re.compile(r"\s*(?:([0-9]{1,10})|cuda(?::([0-9]{1,10}))?)\s*")


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
                    f"{name}={show_value(options[name])}", "no such option", _near(name, known)
                )
        read: dict[str, Any] = {"kind": _kind(kind), **options}
        if read.get("allocator") is not None and read["kind"] == "auto":
            read["kind"] = "custom"
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
        read["log"] = _log(read.get("log"))
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
                name, value = "kind", "auto" if part.lower() in _TRUE else part
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
        return None if text.lower() in ("", *_FALSE) else cls.from_text(text)

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
            raise PoolOptionError(
                f"kind='driver', {', '.join(self.caps())}",
                "CUDA's default memory pool has no cap",
                "kind='rmm' has one, for CuPy, Numba and cuDF; torch has a function of its own, "
                "torch.cuda.set_per_process_memory_fraction(); MPS limits whole processes",
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
        """Write it down; `from_text` reads it again, but for an allocator."""
        default = type(self)()
        shown = [self.kind] if self.allocator is None else ["allocator=..."]
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            if field.name != "allocator" and value != getattr(default, field.name):
                text = ("+".join(map(str, value)) or _NONE) if isinstance(value, tuple) else value
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


def _near(name: Any, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(str(name).lower(), list(known), n=2, cutoff=0.5)
    hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    return f"{hint}there are: {', '.join(known)}"


def _kind(kind: Any) -> str:
    found = kind.lower() if isinstance(kind, str) else None
    if found is None or found not in KINDS:
        hint = " (an allocator is passed as allocator=)" if hasattr(kind, "allocate") else ""
        kinds = [name for name in KINDS if name != "custom"]  # which is what allocator= makes
        near = _near(kind, kinds) if found is not None else f"there are: {', '.join(kinds)}"
        if found in HOST_MODES:
            near = f'that is a mode of host memory: host="{found}"'
        raise PoolOptionError(f"kind={show_value(kind)}", "no such kind of pool" + hint, near)
    return "rmm" if found == "rmm:pool" else found


def _flag(value: Any, name: str) -> bool:
    if isinstance(value, str) and value.lower() in _TRUE + _FALSE:
        return value.lower() in _TRUE
    try:
        known = value in (True, False)  # 0 and 1 too, and NumPy's
    except (TypeError, ValueError, RuntimeError):  # an array, which is neither
        known = False
    if not known:
        raise PoolOptionError(
            f"{name}={show_value(value)}", "it is yes or no", f"write {name}=True or {name}=False"
        )
    return bool(value)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise PoolOptionError(f"fraction={text!r}", "it is no number", "write it as 0.5") from error


def _fraction(value: Any) -> float | None:
    if value is None:
        return None
    number: Any = _number(value) if isinstance(value, str) else value
    # numbers.Real has NumPy's scalars, which are no floats, and fractions.
    real = isinstance(number, numbers.Real) and not isinstance(number, bool)
    if not real or not 0 < number <= 1:
        raise PoolOptionError(
            f"fraction={show_value(value)}",
            "it is the part of the card's total memory: more than 0, at most 1",
            "write it as 0.5",
        )
    return float(number)


def device_number(value: Any) -> int | None:
    """Return the number of a device as people name it; None for what names none.

    Examples
    --------
    >>> device_number(1), device_number("cuda:1"), device_number("1"), device_number(b"1")
    (1, 1, 1, None)
    """
    if isinstance(value, Device):
        value = value.id if value.type in (CUDA, "cuda") else None
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        # Text, and what shows itself as such: torch.device("cuda:0").
        match = _DEVICE.fullmatch(str(value)) if not isinstance(value, bytes) else None
        number = int(match[1] or match[2] or 0) if match is not None else None
    # A device is an int of C to CUDA.
    return number if number is not None and 0 <= number < 2**31 else None


def _devices(value: Any) -> tuple[int, ...] | None:
    if value is None:
        return None
    whole = device_number(value)
    if whole is not None:
        return (whole,)
    if isinstance(value, str):
        given: list[Any] = re.split("[+,]", value)
    else:
        given = list(value) if _several(value) else [value]
    found = [device_number(each) for each in given]
    read = tuple(each for each in found if each is not None)
    if len(read) < len(found):
        raise PoolOptionError(
            f"devices={show_value(value)}",
            "a device is a number, from 0 on, as CUDA counts them",
            "write 0, [0, 1] or 'cuda:0'",
        )
    if not read or len(set(read)) < len(read):
        raise PoolOptionError(
            f"devices={show_value(value)}", "none, or one twice", "write 0 or [0, 1]; leave it out for all"
        )
    return read


def _several(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, bytearray, Device))


def _frameworks(value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    from zerocopy.pool import hook

    known = hook.names()
    if isinstance(value, str):
        given: list[Any] = [] if value == _NONE else re.split("[+,]", value)
    else:
        given = list(value) if _several(value) else [value]
    names = [each.strip() if isinstance(each, str) else each for each in given]
    for name in names:
        if not isinstance(name, str) or name not in known:
            raise PoolOptionError(
                f"frameworks={show_value(value)}",
                f"{show_value(name)} takes no memory from a pool",
                _near(show_value(name), known),
            )
    return tuple(name for name in known if name in names)


def _log(value: Any) -> str | None:
    if value is None:
        return None
    try:
        path = os.fsdecode(value)
    except TypeError:
        path = ""
    if not path or "\0" in path:
        raise PoolOptionError(f"log={show_value(value)}", "it is no path of a file", 'write log="pool.csv"')
    return path


def _host(value: Any) -> str:
    from zerocopy.pool import host

    text = "off" if value is None or value is False else value
    if isinstance(text, (list, tuple)) and all(isinstance(name, str) for name in text):
        text = "+".join(text)
    if not isinstance(text, str):
        raise PoolOptionError(f"host={show_value(value)}", "it is the name of a mode", 'write host="aligned"')
    return "+".join(mode.name for mode in host.parse(text)) or "off"
