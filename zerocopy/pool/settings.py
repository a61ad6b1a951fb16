"""`Settings`: the options of ``install_pool``, parsed, checked and comparable."""

from __future__ import annotations

import math
import numbers
import operator
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from zerocopy.device import CUDA, Device
from zerocopy.errors import OptionError
from zerocopy.formatting import shown
from zerocopy.pool import host
from zerocopy.pool.attachments import framework_names, other_limits
from zerocopy.pool.sizes import InvalidValueError, read_option, read_size, suggest

VARIABLE = "ZEROCOPY_POOL"
NO_LIMIT = "CUDA's default memory pool has no limit"

#: Each kind of pool, with a one-line description.
KINDS = {
    "auto": "the driver's pool if a framework in use can share only that, otherwise RMM's",
    "driver": "CUDA's device-default memory pool, which every framework can share; without a limit",
    "rmm": "RMM's pool over cudaMalloc; supports a hard limit",
    "rmm:pool": "the same",
    "rmm:arena": "RMM's arenas, for many threads",
    "rmm:binning": "RMM's bins of fixed sizes up to 4 MiB, and its pool for larger blocks",
    "rmm:async": "RMM's own pool of CUDA's asynchronous allocator",
    "managed": "RMM's pool over managed memory with prefetch: may exceed the memory of the GPU",
    "custom": "an RMM resource or a custom allocator: resource=, allocator=",
}

_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
_NONE = "none"  # text form of an empty frameworks=
_DEVICE = re.compile(r"\s*(?:([0-9]{1,10})|cuda(?::([0-9]{1,10}))?)\s*")


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
    strict: bool = False
    resource: Any = None
    allocator: Any = None

    @classmethod
    def read(cls, /, kind: Any = "auto", **options: Any) -> Settings:
        """Parse options as they are passed to ``install_pool``.

        Equivalent options compare equal: ``host="Recycle"`` and ``"recycle"``, frameworks in
        another order.
        """
        read = {"kind": read_option(_read_kind, kind, "kind")}
        for name, value in options.items():
            if name not in _READERS:
                asked = f"{name}={shown(value)}"
                raise OptionError(asked, "no such option", suggest(name, _READERS))
            if value is not None:
                read[name] = read_option(_READERS[name], value, name)
        if read["kind"] == "auto" and not read.keys().isdisjoint(_OBJECTS):
            read["kind"] = "custom"
        settings = cls(**read)
        settings._check()
        return settings

    @classmethod
    def from_text(cls, text: str) -> Settings:
        """Parse ``"rmm,limit=8GiB,track=1"``, the form of ``ZEROCOPY_POOL``.

        Several devices, frameworks or modes are joined by ``+``: ``devices=0+1``.

        Examples
        --------
        >>> Settings.from_text("rmm,limit=8GiB,track=1").limit
        8589934592
        """
        try:
            return cls.read(**_parse(text))
        except OptionError as error:
            asked = f"{VARIABLE}={text!r}"
            raise OptionError(asked, f"{error.asked}: {error.why}", error.remedy) from error

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Settings | None:
        """Return the settings in ``ZEROCOPY_POOL``; None if it is unset, empty or ``off``.

        ``1``, ``true``, ``yes`` and ``on`` mean ``auto``.
        """
        text = environ.get(VARIABLE, "").strip()
        return None if text.lower() in ("", *_FALSE) else cls.from_text(text)

    def __str__(self) -> str:
        """Return the text form, which `from_text` parses, except for a resource or an allocator."""
        default = type(self)()
        custom = next((name for name in _OBJECTS if getattr(self, name) is not None), None)
        shown = [self.kind if custom is None else f"{custom}=..."]
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            if field.name not in _OBJECTS and value != getattr(default, field.name):
                text = ("+".join(map(str, value)) or _NONE) if isinstance(value, tuple) else value
                shown.append(f"{field.name}={text}")
        return ",".join(shown)

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

    def _check(self) -> None:
        self._check_objects()
        asked = why = remedy = ""
        if self.kind == "driver" and self.has_limit:
            asked, why = f"kind='driver', {', '.join(self.limit_options())}", NO_LIMIT
            remedy = other_limits("kind='rmm' has one, for")
        elif self.release_threshold is not None and self.kind not in ("auto", "driver", "rmm:async"):
            asked = f"kind={self.kind!r}, release_threshold={self.release_threshold}"
            why = "only pools of CUDA's asynchronous allocator have a release threshold"
            remedy = "use kind='driver' or 'rmm:async', or leave it out; trim() returns unused memory"
        elif self.kind == "rmm:arena" and not self.has_limit and self.initial is None:
            asked, why = "kind='rmm:arena'", "arenas allocate all their memory at once"
            remedy = "pass its size: limit=, fraction=, reserve= or initial="
        elif self.limit == 0:
            asked, why, remedy = "limit=0", "no allocation would be possible", "leave it out for no limit"
        elif self.initial is not None and self.limit is not None and self.initial > self.limit:
            asked, why = f"initial={self.initial}, limit={self.limit}", "the initial size exceeds the limit"
            remedy = "pass a smaller initial=, which is allocated at once, or a larger limit="
        if asked:
            raise OptionError(asked, why, remedy)

    def _check_objects(self) -> None:
        """Check ``resource=`` and ``allocator=``, of which a pool of the kind ``"custom"`` has one."""
        given = [name for name in _OBJECTS if getattr(self, name) is not None]
        asked, why, remedy = f"{', '.join(given)}=..., kind={self.kind!r}", "", "leave kind= out"
        own = next((name for name in ("initial", "release_threshold") if getattr(self, name) is not None), "")
        if len(given) > 1:
            why, remedy = "only one of them provides the memory", f"pass {' or '.join(given)}"
        elif not given and self.kind == "custom":
            asked, why, remedy = "kind='custom'", "the allocator is missing", "pass resource= or allocator="
        elif given and self.kind != "custom":
            why = f"{given[0]}= replaces the kind"
        elif given and own:
            asked, why = f"{given[0]}=..., {own}=...", "the object manages its own reserve"
            remedy = f"leave {own}= out, and configure the object"
        if why:
            raise OptionError(asked, why, remedy)


def _parse(text: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for place, part in enumerate(piece.strip() for piece in text.split(",")):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        why = ""
        if not part:
            continue
        if not equals and place == 0:
            name, value = "kind", "auto" if part.lower() in _TRUE else part
        elif not equals:
            why = "it is not an option"
        elif not name or not value:
            why = "it has no value" if name else "it has no name"
        elif name in options:
            why = "it occurs twice"
        elif name in _OBJECTS:
            why = "an object cannot be given as text: call install_pool()"
        if why:
            raise OptionError(repr(part), why, 'write the kind first, then name=value: "rmm,limit=8GiB"')
        options[name] = value
    return options


def _read_kind(kind: Any) -> str:
    """Return a kind of :data:`KINDS`, under its shortest name."""
    text = kind.lower() if isinstance(kind, str) else None
    if text is None or text not in KINDS:
        hint = " (an allocator is passed as allocator=)" if hasattr(kind, "allocate") else ""
        kinds = [each for each in KINDS if each != "custom"]  # the object selects it
        remedy = suggest(kind, kinds) if text is not None else f"known: {', '.join(kinds)}"
        if text in host.MODES:
            remedy = f'pass the mode of host memory as host="{text}"'
        raise InvalidValueError("no such kind of pool" + hint, remedy)
    return "rmm" if text == "rmm:pool" else text


def _read_host(value: Any) -> str:
    """Return the names of modes of host memory, in their order, joined by ``+``; ``"off"`` for none."""
    text = "off" if value is False else value
    if isinstance(text, (list, tuple)) and all(isinstance(mode, str) for mode in text):
        text = "+".join(text)
    if not isinstance(text, str):
        raise InvalidValueError("it is not the name of a mode", 'write host="aligned"')
    return "+".join(mode.name for mode in host.parse(text)) or "off"


def _read_flag(value: Any) -> bool:
    word = value.lower() if isinstance(value, str) else ""
    if word in _TRUE + _FALSE:
        return word in _TRUE
    is_numpys = type(value).__name__ in ("bool", "bool_")
    if is_numpys or (isinstance(value, int) and value in (0, 1)):
        return bool(value)
    raise InvalidValueError("it is not a bool", "write True or False")


def _read_fraction(value: Any) -> float:
    # numbers.Real covers NumPy's scalars, which are not all floats, and fractions.
    is_number = isinstance(value, (str, numbers.Real)) and not isinstance(value, bool)
    try:
        number = float(value) if is_number else math.nan
    except (ValueError, OverflowError) as error:
        raise InvalidValueError("it is not a number", "write it as 0.5") from error
    if not 0 < number <= 1:
        why = "it is a fraction of the GPU's total memory, more than 0 and at most 1"
        raise InvalidValueError(why, "write it as 0.5")
    return number


def device_number(value: Any) -> int | None:
    """Return the number of a device in any usual form; None if the value names no device."""
    if isinstance(value, Device):
        value = value.id if value.type in (CUDA, "cuda") else None
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        # Text, and objects with such a text: torch.device("cuda:0").
        match = _DEVICE.fullmatch(str(value)) if not isinstance(value, bytes) else None
        number = int(match[1] or match[2] or 0) if match is not None else None
    # CUDA takes a device as a C int.
    return number if number is not None and 0 <= number < 2**31 else None


def _elements(value: Any) -> list[Any]:
    """Return the elements of a list or of a text with + or commas."""
    if isinstance(value, str):
        return re.split("[+,]", value)
    several = isinstance(value, Iterable) and not isinstance(value, (bytes, bytearray, Device))
    return list(value) if several else [value]


def _read_devices(value: Any) -> tuple[int, ...]:
    single = device_number(value)
    parsed = [device_number(each) for each in _elements(value)] if single is None else [single]
    devices = tuple(each for each in parsed if each is not None)
    if len(devices) < len(parsed):
        why = "a device is a number, from 0 on, as CUDA counts them"
        raise InvalidValueError(why, "write 0, [0, 1] or 'cuda:0'")
    if not devices or len(set(devices)) < len(devices):
        raise InvalidValueError("none, or one twice", "write 0 or [0, 1]; leave it out for all")
    return devices


def _read_frameworks(value: Any) -> tuple[str, ...]:
    """Return the names of frameworks that can use a pool, in order of attachment."""
    known = framework_names()
    elements = [] if isinstance(value, str) and value == _NONE else _elements(value)
    chosen = [each.strip() if isinstance(each, str) else each for each in elements]
    for each in chosen:
        if not isinstance(each, str) or each not in known:
            raise InvalidValueError(f"{shown(each)} cannot use a pool", suggest(shown(each), known))
    return tuple(each for each in known if each in chosen)


def _read_resource(value: Any) -> Any:
    """Return an RMM resource, or a function that returns the resource of a device."""
    is_function = callable(value) and not isinstance(value, type)
    return value if is_function and not hasattr(value, "allocate") else _read_allocator(value)


def _read_allocator(value: Any) -> Any:
    if isinstance(value, type):
        raise InvalidValueError("it is a class, not an instance", "pass an instance")
    for method in ("allocate", "deallocate"):
        if not callable(getattr(value, method, None)):
            remedy = "it needs allocate(nbytes, stream) -> int and deallocate(ptr, nbytes, stream)"
            raise InvalidValueError(f"it has no {method}()", remedy)
    return value


#: The options that are objects, and have no text.
_OBJECTS = ("resource", "allocator")
_READERS: dict[str, Callable[[Any], Any]] = {
    "kind": _read_kind,
    "host": _read_host,
    "devices": _read_devices,
    "limit": read_size,
    "fraction": _read_fraction,
    **dict.fromkeys(("reserve", "initial", "release_threshold"), read_size),
    "frameworks": _read_frameworks,
    **dict.fromkeys(("track", "strict"), _read_flag),
    "resource": _read_resource,
    "allocator": _read_allocator,
}
