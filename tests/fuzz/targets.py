"""What is fuzzed: each target reads bytes as one input of a reader, and has seeds made from valid objects.

``read`` raises for a bug and returns for all other inputs. The inputs, and the checks of results, are those
of ``tests.native.fuzz``, ``helpers.hostile``, ``helpers.frame_samples``, ``helpers.weight_files`` and
``tests/shared/faults/fuzz.py``.
"""

from __future__ import annotations

import contextlib
import gc
import io
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any, ClassVar

sys.path[:0] = [str(Path(__file__).parents[1])]

from tests.fuzz.byte_random import ByteRandom  # noqa: E402 - after the path is set

#: Inputs after which the memory that builders keep is freed.
_PERIOD = 500


class Core:
    """Capsules, buffers, Arrow structs and tables for the compiled core, with an oracle."""

    def __init__(self) -> None:
        from tests.native import fuzz

        self._fuzzer, self._corpus = fuzz.Fuzzer(), fuzz.CORPUS
        self._random = fuzz.random_bytes

    def seeds(self) -> Iterator[bytes]:
        yield from (path.read_bytes() for path in sorted(self._corpus.glob("*.bin")))
        yield from map(self._random, range(100))

    def read(self, data: bytes) -> None:
        self._fuzzer.run(data)


class Hostile:
    """Inputs of one builder of ``helpers.hostile``, with its check of every promise."""

    families: ClassVar[tuple[str, ...]]
    to: ClassVar[tuple[str, ...]]

    def __init__(self) -> None:
        from helpers.hostile import case, check, generate

        for name in ("torch", "jax", "tensorflow"):  # a conversion through them would import them
            with contextlib.suppress(ImportError):
                import_module(name)
        self._builders = [generate.FAMILIES[name][0] for name in self.families]
        self._case, self._check, self._kept = case.Case, check.check, case.KEPT
        self._first, self._count = len(self._kept), 0

    def seeds(self) -> Iterator[bytes]:
        """Yield inputs of which builders make valid objects, and others."""
        for way in range(64):
            yield bytes([way]) + bytes(64)
            yield bytes([way]) + Random(way).randbytes(200)

    def read(self, data: bytes) -> None:
        way, rest = (data or b"\0")[0], data[1:]
        build = self._builders[way % len(self._builders)]
        options: dict[str, Any] = {}
        if copy := (way >> 3) % 4:
            options["copy"] = (None, True, False)[copy - 1]
        to = self.to[(way >> 1) % len(self.to)]
        case = self._case(0, self.families[0], lambda: build(ByteRandom(rest)), to, options, False)
        outcome = self._check(case)
        assert outcome.kind != "finding", outcome.detail
        self._count += 1
        if self._count % _PERIOD == 0:  # results of earlier inputs are gone, also those in cycles
            del case
            gc.collect()
            del self._kept[self._first :]


class Capsules(Hostile):
    """DLPack capsules, of both versions."""

    families, to = ("dlpack",), ("numpy", "pyarrow")


class Interfaces(Hostile):
    """The array interface, ``__array__`` and buffers."""

    families, to = ("array-interface", "array-method", "buffer"), ("numpy", "pyarrow")


class ArrowStructs(Hostile):
    """Arrow schemas, arrays, device arrays and streams."""

    families, to = ("arrow-array", "arrow-stream"), ("pyarrow", "numpy", "pandas")


class Headers:
    """Headers of frames: the first byte chooses the object whose frames are given."""

    def __init__(self) -> None:
        from helpers import frame_samples

        self._samples = [*frame_samples.arrays(), *frame_samples.tables()]
        self._frames = [[bytes(part) for part in sample.frames] for sample in self._samples]
        self._read = frame_samples.read

    def seeds(self) -> Iterator[bytes]:
        yield from (bytes([i]) + sample.header for i, sample in enumerate(self._samples))

    def read(self, data: bytes) -> None:
        frames = self._frames[(data or b"\0")[0] % len(self._frames)]
        self._read(data[1:], frames)


class Handles:
    """Handles of shared memory, with a right checksum, whose owner is another process.

    An input is the difference to a valid handle, because a handle names a process: the first byte chooses the
    handle, and the others are combined with its bytes by exclusive or.
    """

    def __init__(self) -> None:
        from tests.shared.faults import fuzz

        self._fuzz, self._watch = fuzz, fuzz.Watch()
        # Its input is the end of a pipe of this process, so it ends with this process.
        self._owner = subprocess.Popen([sys.executable, "-c", fuzz.OWNER], stdin=-1, stdout=-1, text=True)
        assert self._owner.stdout is not None
        self._handles = [bytes.fromhex(self._owner.stdout.readline()) for _ in range(5)]
        fuzz.warm(self._handles)

    def seeds(self) -> Iterator[bytes]:
        size = max(map(len, self._handles))
        for i in range(len(self._handles)):
            yield bytes([i])
            yield from (bytes([i]) + bytes(at) + b"\x01" for at in range(size))

    def read(self, data: bytes) -> None:
        body = bytearray(self._handles[(data or b"\0")[0] % len(self._handles)][:-4])
        mask = data[1:]
        body += bytes(max(0, len(mask) - len(body)))
        for i, byte in enumerate(mask):
            body[i] ^= byte
        with self._watch:
            self._fuzz.attempt(self._fuzz.signed(body))
        assert not self._watch.foreign, f"opened {self._watch.foreign}"

    def close(self) -> None:
        """End the owner."""
        self._owner.communicate()


class Indexes:
    """Indexes of several frames in a segment whose owner lies about its content."""

    def __init__(self) -> None:
        from helpers.lying_segments import attempt, handle_of, memfd

        self._attempt, self._handle_of, self._memfd = attempt, handle_of, memfd

    def seeds(self) -> Iterator[bytes]:
        from helpers import frame_samples

        from zerocopy.shared.handle import SAME_BLOCK, index_bytes, pack_index

        for split in (*frame_samples.arrays(), *frame_samples.tables()):
            first, places = index_bytes(split.header, 0, len(split.frames)), []
            for frame in split.frames:
                places.append((SAME_BLOCK, first, frame.nbytes))
                first += frame.nbytes
            parts = [pack_index(split.header, [], places), *(bytes(frame) for frame in split.frames)]
            yield b"\x01" + b"".join(parts)

    def read(self, data: bytes) -> None:
        from zerocopy.shared.handle import INDEXED, SMALL, TABLE
        from zerocopy.shared.segment import HEAD

        way, content = (data or b"\0")[0], data[1:]
        flags = INDEXED | (TABLE if way & 1 else 0) | (SMALL if way & 2 else 0)
        with self._memfd(1 << 16, content=bytes(4096 - HEAD.size) + content[: 1 << 15]) as fd:
            self._attempt(self._handle_of(fd, 4096, len(content[: 1 << 15]), flags))


class WeightFiles:
    """Files of weights: the first byte chooses the format, and the others are the file."""

    suffixes = (".safetensors", ".gguf", ".npy", ".npz")

    def __init__(self) -> None:
        from helpers import weight_files

        self._files = weight_files
        self._folder = tempfile.TemporaryDirectory()

    def seeds(self) -> Iterator[bytes]:
        import numpy as np

        arrays = {"a": np.arange(6, dtype="f4").reshape(2, 3), "b": np.array([True, False])}
        yield b"\0" + self._files.safetensors_bytes(arrays, {"format": "pt"})
        tensors = {"x": ((2, 3), 0, bytes(24)), "q": ((2, 32), 8, bytes(68))}
        pairs = {"n": self._files.number(4, "I", 3), "t": b"\x08\0\0\0" + self._files.text("a")}
        yield b"\1" + self._files.gguf_bytes(tensors, pairs)
        for way, save in ((2, np.save), (3, np.savez), (3, np.savez_compressed)):
            stream = io.BytesIO()
            save(stream, arrays["a"])
            yield bytes([way]) + stream.getvalue()

    def read(self, data: bytes) -> None:
        suffix = self.suffixes[(data or b"\0")[0] % len(self.suffixes)]
        path = Path(self._folder.name) / f"x{suffix}"
        path.write_bytes(data[1:])
        self._files.check(path)

    def close(self) -> None:
        """Remove the file."""
        self._folder.cleanup()


TARGETS: dict[str, Callable[[], Any]] = {
    "core": Core,
    "capsules": Capsules,
    "interfaces": Interfaces,
    "arrow": ArrowStructs,
    "frames": Headers,
    "handles": Handles,
    "indexes": Indexes,
    "weights": WeightFiles,
}
