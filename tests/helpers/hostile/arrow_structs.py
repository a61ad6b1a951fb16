"""Arrow C schemas, arrays and streams with wrong fields, over the memory of valid pyarrow arrays.

The C data interface tells no sizes of buffers, so these lies are outside: a leaf that claims more rows
than it has, a type of wider elements, more pointers than an array of pointers has, and a last offset
past the end of its buffer. Arrays whose content is wrong inside a buffer get ``validate="full"``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

from helpers.hostile.arrow_content import wrong_content
from helpers.hostile.case import Built, keep
from helpers.hostile.tables import arrow_values, random_array
from zerocopy._engine import options
from zerocopy.protocols.arrow_c import ArrowArray, ArrowArrayStream, ArrowDeviceArray
from zerocopy.protocols.arrow_schema import ArrowSchema

_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
#: Whether the option that checks the content of buffers exists.
CAN_VALIDATE = "validate" in options.NAMES


def _release_schema(address: int) -> None:
    ArrowSchema.from_address(address).release = None


def _release_array(address: int) -> None:
    ArrowArray.from_address(address).release = None


def _release_stream(address: int) -> None:
    ArrowArrayStream.from_address(address).release = None


_Release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_RELEASE_SCHEMA, _RELEASE_ARRAY = _Release(_release_schema), _Release(_release_array)
_RELEASE_STREAM = _Release(_release_stream)


def address_of(function: Any) -> int:
    """Return the address of a C function."""
    return int(ctypes.cast(function, ctypes.c_void_p).value or 0)


class Structs:
    """A schema and an array that copy the structs of a pyarrow array, with lists of all their parts."""

    def __init__(self, array: Any) -> None:
        schema, values = ArrowSchema(), ArrowArray()
        array._export_to_c(ctypes.addressof(values), ctypes.addressof(schema))
        keep((array, schema, values))
        self.schemas: list[Any] = []
        self.arrays: list[Any] = []
        self.counts: dict[int, int] = {}  #: the true number of children, by a part's address
        self.dictionaries: set[int] = set()  #: addresses of parts that are inside a dictionary
        self.schema = self._schema(schema)
        self.array = self._array(values, False)

    def _schema(self, old: Any) -> Any:
        new = keep(ArrowSchema())
        new.format, new.name, new.metadata, new.flags = old.format, old.name, old.metadata, old.flags
        new.release = address_of(_RELEASE_SCHEMA)
        self.schemas.append(new)
        self._link(ArrowSchema, self._schema, old, new)
        if old.dictionary:
            new.dictionary = ctypes.pointer(self._schema(old.dictionary.contents))
        return new

    def _array(self, old: Any, in_dictionary: bool) -> Any:
        new = keep(ArrowArray())
        new.length, new.null_count, new.offset = old.length, old.null_count, old.offset
        new.n_buffers, has = old.n_buffers, [old.buffers[i] for i in range(old.n_buffers)]
        new.buffers = keep((ctypes.c_void_p * max(len(has), 1))(*has))
        new.release = address_of(_RELEASE_ARRAY)
        self.arrays.append(new)
        if in_dictionary:
            self.dictionaries.add(ctypes.addressof(new))
        self._link(ArrowArray, lambda child: self._array(child, in_dictionary), old, new)
        if old.dictionary:
            new.dictionary = ctypes.pointer(self._array(old.dictionary.contents, True))
        return new

    def _link(self, cls: Any, copy: Callable[[Any], Any], old: Any, new: Any) -> None:
        new.n_children = self.counts[ctypes.addressof(new)] = old.n_children
        pointers = [ctypes.pointer(copy(old.children[i].contents)) for i in range(old.n_children)]
        if pointers:
            new.children = keep((ctypes.POINTER(cls) * len(pointers))(*pointers))

    def count(self, part: Any) -> int:
        """Return how many children a part has, whatever it claims."""
        return self.counts[ctypes.addressof(part)]

    def has_views(self) -> bool:
        """Whether the buffers of a part refer to others by content that only full validation checks."""
        return any((f.format or b"").startswith((b"v", b"+v", b"+r")) for f in self.schemas)


def capsules(
    structs: Structs, names: tuple[bytes, bytes] = (b"arrow_schema", b"arrow_array")
) -> tuple[Any, Any]:
    """Return capsules of a schema and an array."""
    schema = _new_capsule(ctypes.addressof(structs.schema), keep(names[0]), None)
    return schema, _new_capsule(ctypes.addressof(structs.array), keep(names[1]), None)


class ArrayExporter:
    """An object with ``__arrow_c_array__``, which returns any value."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return self.make()


class DeviceExporter:
    """An object with ``__arrow_c_device_array__``, which returns any value."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make

    def __arrow_c_device_array__(self, requested_schema: Any = None, **_: Any) -> Any:
        return self.make()


class StreamExporter:
    """An object with ``__arrow_c_stream__``, which returns any value."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.make()


class StreamWithSchema(StreamExporter):
    """An object with ``__arrow_c_stream__`` and ``__arrow_c_schema__``."""

    def __init__(self, make: Callable[[], Any], schema: Callable[[], Any]) -> None:
        super().__init__(make)
        self.schema = schema

    def __arrow_c_schema__(self) -> Any:
        return self.schema()


def _answer(rng: Random, exporter: Any, good: Callable[[], Any]) -> Built | None:
    """Return an exporter that raises or returns another object; None for most random numbers."""
    if rng.random() > 0.06:
        return None
    odd: list[Any] = [
        None,
        3,
        (),
        (None, None),
        "ab",
        RuntimeError("no"),
        NotImplementedError(),
        MemoryError("none"),
    ]
    odd += [KeyError("x"), TypeError("bad"), StopIteration(), RecursionError("deep")]
    value = rng.choice([*odd, "swapped", "single"])
    if value == "swapped":
        return Built(
            exporter(lambda: good()[::-1] if isinstance(good(), tuple) else good()), "swapped capsules"
        )
    if value == "single":
        return Built(
            exporter(lambda: good()[0] if isinstance(good(), tuple) else (good(), good())), "other tuple"
        )

    def give() -> Any:
        if isinstance(value, BaseException):
            raise value
        return value

    return Built(exporter(give), f"export gives {value!r}")


def _with_wrong_content(rng: Random) -> tuple[Any, str] | None:
    """Return an array with wrong content, or None for most states of the generator, which stays as it is."""
    own = Random()
    own.setstate(rng.getstate())
    content = wrong_content(own) if CAN_VALIDATE and own.random() < 0.15 else None
    return None if content and _ends_outside(content[0]) else content


def _ends_outside(array: Any) -> bool:
    """Whether a slice of text only has a last offset beyond its buffer: C structs do not contain sizes."""
    width = {"string": 4, "binary": 4, "large_string": 8, "large_binary": 8}.get(str(array.type))
    if width is None:
        return False
    _, offsets, text = array.buffers()
    used = np.frombuffer(offsets, f"i{width}")[array.offset :][: len(array) + 1]
    return bool(used[0] >= 0 and (np.diff(used) >= 0).all() and used[-1] > text.size)


def _mutated(rng: Random, array: Any) -> tuple[Structs, list[str]]:
    """Return the structs of an array with at most two wrong fields, and their names."""
    structs = Structs(array)
    wrong = []
    for _ in range(rng.choice([0, 1, 1, 1, 2])):
        name = rng.choice(list(_WRONG))
        part = _WRONG[name](rng, structs)
        if part:
            wrong.append(f"{name}: {part}")
    return structs, wrong


def build_array(rng: Random) -> Built:
    """Return an object with ``__arrow_c_array__``."""
    if wrong := _with_wrong_content(rng):
        array, text = wrong
        exported = ArrayExporter(lambda: capsules(Structs(array)))
        return Built(exported, f"ArrayExporter with wrong {text}", plain=True, options={"validate": "full"})
    array = random_array(rng)
    seed = rng.getrandbits(32)
    _, wrong = _mutated(Random(seed), array)
    names = rng.choice(
        [(b"arrow_schema", b"arrow_array")] * 12 + [(b"arrow_schema", b"x"), (b"used", b"arrow_array")]
    )
    exporter = rng.choice([ArrayExporter] * 4 + [DeviceExporter])
    as_device = exporter is DeviceExporter
    device = rng.choice([(1, -1)] * 4 + [(2, 0), (3, 0), (13, 0), (99, 0), (1, 2**40), (-1, 0)])

    def make() -> Any:
        structs = _mutated(Random(seed), array)[0]
        return _device_capsules(structs, device) if as_device else capsules(structs, names)

    odd = _answer(rng, exporter, make)
    if odd is not None:
        return odd
    good = not wrong and names == (b"arrow_schema", b"arrow_array") and not as_device
    text = f"{exporter.__name__} {array.type} x {len(array)}: {'; '.join(wrong) or 'valid'}; {names}"
    return Built(exporter(make), text, rows=arrow_values(array) if good else None, plain=True)


def _device_capsules(structs: Structs, device: tuple[int, int]) -> tuple[Any, Any]:
    whole = keep(ArrowDeviceArray())
    whole.array = structs.array
    whole.device_type, whole.device_id = device
    schema = _new_capsule(ctypes.addressof(structs.schema), b"arrow_schema", None)
    return keep(schema), _new_capsule(ctypes.addressof(whole), keep(b"arrow_device_array"), None)


# -- streams --------------------------------------------------------------------------

_GetNext = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_GetLastError = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


def stream(rng: Random, make_structs: Callable[[], Structs], batches: int) -> tuple[Any, list[str]]:
    """Return a stream's capsule: its callbacks return error codes, released structs or NULL messages."""
    wrong: list[str] = []
    way = rng.choice(
        [
            "",
            "",
            "",
            "schema",
            "next",
            "later",
            "released",
            "names",
            "NULL",
            "message",
            "no release",
            "functions",
            "functions",
        ]
    )
    code = rng.choice([5, 22, -1, 2**31 - 1])
    message = rng.choice([b"disk failed", b"\xff\xfe", b"", None])
    state = {"left": batches}
    shown = keep(ctypes.create_string_buffer(message)) if message is not None else None

    def get_schema(_: int, out: int) -> int:
        if way == "schema":
            return code
        fresh = make_structs().schema
        if way == "released":
            fresh.release = None
        ctypes.memmove(out, ctypes.addressof(fresh), ctypes.sizeof(ArrowSchema))
        return 0

    def get_next(_: int, out: int) -> int:
        if way == "next" or (way == "later" and state["left"] == batches - 1):
            return code
        if state["left"] == 0:
            ctypes.memset(out, 0, ctypes.sizeof(ArrowArray))
            return 0
        state["left"] -= 1
        ctypes.memmove(out, ctypes.addressof(make_structs().array), ctypes.sizeof(ArrowArray))
        return 0

    def get_last_error(_: int) -> int:
        return ctypes.addressof(shown) if shown is not None else 0

    struct = keep(ArrowArrayStream())
    functions = keep((_GetNext(get_schema), _GetNext(get_next), _GetLastError(get_last_error)))
    struct.get_schema, struct.get_next, struct.get_last_error = map(address_of, functions)
    struct.release = address_of(_RELEASE_STREAM)
    if way == "functions":
        struct.get_next = None
    if way == "NULL":
        struct.get_last_error = None
    if way == "no release":
        struct.release = None
    if way:
        wrong.append(f"stream {way} (code {code}, message {message!r})")
    name = rng.choice([b"arrow_array_stream"] * 9 + [b"used"]) if way == "names" else b"arrow_array_stream"
    return _new_capsule(ctypes.addressof(struct), keep(name), None), wrong


def build_stream(rng: Random) -> Built:
    """Return an object with ``__arrow_c_stream__``, with or without its schema, which may be another."""
    if content := _with_wrong_content(rng):
        whole, text = content
        working = next(i for i in range(100) if not stream(Random(i), lambda: Structs(whole), 1)[1])
        exported = StreamExporter(lambda: stream(Random(working), lambda: Structs(whole), 2)[0])
        return Built(exported, f"stream with wrong {text}", plain=True, options={"validate": "full"})
    array = random_array(rng)
    seed, stream_seed, batches = rng.getrandbits(32), rng.getrandbits(32), rng.choice([0, 1, 1, 2, 3])
    _, wrong = _mutated(Random(seed), array)
    once = rng.random() < 0.4
    state = {"count": 0}

    def make() -> Any:
        state["count"] += 1
        if once and state["count"] > 1:
            raise ValueError("the stream can be exported once")
        return stream(Random(stream_seed), lambda: _mutated(Random(seed), array)[0], batches)[0]

    wrong += stream(Random(stream_seed), lambda: _mutated(Random(seed), array)[0], batches)[1]
    odd = _answer(rng, StreamExporter, make)
    if odd is not None:
        return odd
    obj: Any = StreamExporter(make)
    kind = rng.random()
    if kind < 0.4:
        other = random_array(rng) if kind < 0.1 else array
        obj = StreamWithSchema(make, lambda: capsules(_mutated(Random(seed), other)[0])[0])
        wrong += [f"schema of {other.type}"] if kind < 0.1 else []
    good = not wrong
    rows = (arrow_values(array) or []) * batches if good and arrow_values(array) is not None else None
    text = f"stream of {array.type} x {len(array)} x {batches}: {'; '.join(wrong) or 'valid'}"
    return Built(obj, text, rows=rows, once=once, plain=True)


# -- wrong fields: each returns what it changed, or "" for nothing ------------------------


def _pick(rng: Random, structs: Structs, schema: bool = False) -> Any:
    return rng.choice(structs.schemas if schema else structs.arrays)


def _length(rng: Random, structs: Structs) -> str:
    array = _pick(rng, structs)
    if ctypes.addressof(array) in structs.dictionaries or structs.has_views():
        array.length = -1
    elif (
        structs.count(array)
        and rng.random() < 0.5
        and array is structs.array
        and structs.schema.format == b"+s"
    ):
        array.length += rng.choice([1, 2**40, 2**62])  # its children have fewer rows
    else:
        array.length = rng.choice([-1, -(2**63), 0])
    return f"{array.length}"


def _offset(rng: Random, structs: Structs) -> str:
    array = _pick(rng, structs)
    if array.length and array is structs.array and structs.schema.format == b"+s":
        array.offset = rng.choice([-1, -(2**63), 2**62, 2**63 - 1, 1])
    else:
        array.offset = rng.choice([-1, -(2**63)])
    return f"{array.offset}"


def _null_count(rng: Random, structs: Structs) -> str:
    array = _pick(rng, structs)
    array.null_count = rng.choice([-1, -2, array.length + 1, 2**62, -(2**63), array.length])
    return f"{array.null_count} of {array.length}"


def _n_buffers(rng: Random, structs: Structs) -> str:
    array = _pick(rng, structs)
    if structs.has_views():
        return ""  # views have any number of buffers
    array.n_buffers = rng.choice([-1, 0, 1, 2, 3, 4, 2**31, 2**62])
    return f"{array.n_buffers}"


def _buffers(rng: Random, structs: Structs) -> str:
    array = _pick(rng, structs)
    if array.n_buffers <= 0 or array.n_buffers > 8 or not array.buffers:
        return ""
    way = rng.randrange(3)
    if way == 0:
        array.buffers = ctypes.POINTER(ctypes.c_void_p)()
        return "NULL array"
    index = rng.randrange(array.n_buffers)
    array.buffers[index] = None
    if way == 1 and not array.dictionary and not structs.has_views():
        array.null_count = rng.choice([-1, 0, array.null_count])
    return f"{index} is NULL"


def _children(rng: Random, structs: Structs) -> str:
    array = _pick(rng, structs)
    way = rng.randrange(3)
    if way == 0 or not structs.count(array):
        array.n_children = rng.choice([-1, 0, 1, 2**40] if not structs.count(array) else [-1, 0])
        return f"count {array.n_children}"
    if way == 1:
        array.children = ctypes.POINTER(ctypes.POINTER(ArrowArray))()
        return "NULL array"
    if array.children:
        array.children[rng.randrange(structs.count(array))] = ctypes.POINTER(ArrowArray)()
    return "one is NULL"


def _dictionary(rng: Random, structs: Structs) -> str:
    array = _pick(rng, structs)
    if array.dictionary:
        array.dictionary = ctypes.POINTER(ArrowArray)()
        return "NULL"
    other = keep(ArrowArray())
    other.release, other.n_buffers = address_of(_RELEASE_ARRAY), 2
    other.buffers = keep((ctypes.c_void_p * 2)())
    array.dictionary = ctypes.pointer(other)
    return "unexpected"


def _array_release(rng: Random, structs: Structs) -> str:
    array = _pick(rng, structs)
    array.release = None
    return "NULL"


_WIDTHS = {
    b"c": 1,
    b"C": 1,
    b"s": 2,
    b"S": 2,
    b"e": 2,
    b"i": 4,
    b"I": 4,
    b"f": 4,
    b"tdD": 4,
    b"tts": 4,
    b"l": 8,
}
_WIDTHS |= {b"L": 8, b"g": 8, b"tdm": 8, b"ttu": 8, b"tDs": 8, b"tss:": 8, b"tsn:UTC": 8, b"tsu:Mars/Base": 8}
_ODD_FORMATS = [
    b"",
    b"x",
    b"??",
    b"\xff",
    b"w:",
    b"w:-1",
    b"w:abc",
    b"w:99999999999999999999",
    b"d:",
    b"d:5",
    b"+w:",
]
_ODD_FORMATS += [
    b"d:5,2,7",
    b"d:x,y",
    b"+w:-3",
    b"+w:x",
    b"+ud:",
    b"+ud:0,0",
    b"+us:x",
    b"ts",
    b"tsq:",
    b"ts" * 400,
]
_ODD_FORMATS += [
    b"w:0",
    b"+w:0",
    b"d:5,2,99999999999",
    b"vv",
    b"+vx",
    b"t",
    b"td",
    b"tts ",
    b" i",
    b"i ",
    b"ii",
]


def _format(rng: Random, structs: Structs) -> str:
    schema = _pick(rng, structs, schema=True)
    way = rng.random()
    if way < 0.1:
        schema.format = None
    elif schema.format in _WIDTHS and way < 0.5:
        width = _WIDTHS[schema.format]
        schema.format = rng.choice([f for f, w in _WIDTHS.items() if w <= width])
    elif schema.format in (b"i", b"l", b"I", b"L", b"f", b"g") and way < 0.6:
        # Zero bytes are not a claim of memory, and a list without elements has no rows of its child.
        schema.format = b"w:0"
    else:
        schema.format = rng.choice(_ODD_FORMATS)
    return f"{schema.format!r}"


def _schema_name(rng: Random, structs: Structs) -> str:
    schema = _pick(rng, structs, schema=True)
    schema.name = rng.choice([None, b"", b"\xff\xfe", b"a" * 5000, b"x\ny", "é😀".encode()])
    return f"{(schema.name or b'NULL')[:20]!r}"


def _flags(rng: Random, structs: Structs) -> str:
    schema = _pick(rng, structs, schema=True)
    schema.flags = rng.choice([0, 1, 2, 4, 7, -1, 2**62])
    return f"{schema.flags}"


def _metadata(rng: Random, structs: Structs) -> str:
    schema = _pick(rng, structs, schema=True)
    pairs = rng.choice(
        [
            [],
            [(b"", b"")],
            [
                (
                    b"ARROW:extension:name",
                    rng.choice([b"arrow.bool8", b"arrow.fixed_shape_tensor", b"x.y", b"\xff"]),
                )
            ],
            [(b"ARROW:extension:name", b"arrow.uuid"), (b"ARROW:extension:metadata", b"{")],
            [
                (b"ARROW:extension:name", b"arrow.fixed_shape_tensor"),
                (b"ARROW:extension:metadata", _json(rng)),
            ],
            [
                (
                    b"pandas",
                    rng.choice([b"{", b"{}", b"[]", b'{"index_columns": 3}', b"\xff", b'{"columns": [3]}']),
                )
            ],
            [(b"a", b"1"), (b"a", b"2")],
        ]
    )
    text = len(pairs).to_bytes(4, "little", signed=True)
    for key, value in pairs:
        text += len(key).to_bytes(4, "little") + key + len(value).to_bytes(4, "little") + value
    if rng.random() < 0.15:  # a negative number is wrong for any memory
        text = (-1).to_bytes(4, "little", signed=True)
    schema.metadata = ctypes.addressof(keep(ctypes.create_string_buffer(text)))
    return f"{pairs}"


def _json(rng: Random) -> bytes:
    return rng.choice(
        [b'{"shape": [2]}', b'{"shape": [-1]}', b'{"shape": "x"}', b"{}", b'{"shape": [2, 99999999999]}']
    )


def _schema_children(rng: Random, structs: Structs) -> str:
    schema = _pick(rng, structs, schema=True)
    way = rng.randrange(3)
    if way == 0 or not structs.count(schema):
        schema.n_children = -1 if structs.count(schema) or rng.random() < 0.5 else 1  # 1 with a NULL array
        return f"count {schema.n_children}"
    if way == 1:
        schema.children = ctypes.POINTER(ctypes.POINTER(ArrowSchema))()
        return "NULL array"
    if schema.children:
        schema.children[rng.randrange(structs.count(schema))] = ctypes.POINTER(ArrowSchema)()
    return "one is NULL"


def _schema_dictionary(rng: Random, structs: Structs) -> str:
    schema = _pick(rng, structs, schema=True)
    if schema.dictionary:
        schema.dictionary = ctypes.POINTER(ArrowSchema)()
        return "NULL"
    other = keep(ArrowSchema())
    other.format, other.flags, other.release = b"u", 2, address_of(_RELEASE_SCHEMA)
    schema.dictionary = ctypes.pointer(other)
    return "unexpected"


def _schema_release(rng: Random, structs: Structs) -> str:
    schema = _pick(rng, structs, schema=True)
    schema.release = None
    return "NULL"


_WRONG: dict[str, Callable[[Random, Structs], str]] = {
    "length": _length,
    "offset": _offset,
    "null_count": _null_count,
    "n_buffers": _n_buffers,
    "buffers": _buffers,
    "children": _children,
    "dictionary": _dictionary,
    "array release": _array_release,
    "format": _format,
    "name": _schema_name,
    "flags": _flags,
    "metadata": _metadata,
    "schema children": _schema_children,
    "schema dictionary": _schema_dictionary,
    "schema release": _schema_release,
}
