"""Tracebacks of refusals: they end at the caller's line, and keep the causes that are not zerocopy's own."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest

import zerocopy as zc
from zerocopy import pickling, testing
from zerocopy.pool.host import aligned_numpy, c_library

pd, torch = pytest.importorskip("pandas"), pytest.importorskip("torch")

#: The most lines after the caller's frame; a message of two lines is two of them.
MOST = 6
REVERSED = np.arange(6)[::-1]
TEXT = pd.DataFrame({"a": ["x"], "b": [1]})
NO_HANDLE = pickle.dumps(zc.share(np.arange(3))).replace(b"ZCSH", b"ZCSX")
CLOSED = zc.share(TEXT)
CLOSED.close()


class Raises:
    """A producer whose export raises."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **options: Any) -> Any:
        raise ValueError("the producer's own")


class Closed(zc.Framework):
    """A framework that is not installed."""

    name = "closed_framework"


def _next_batch() -> Any:
    batches = iter(zc.loader({"a": np.array([1, None], object)}, "torch"))
    return next(batches)


def _resumed() -> Any:
    loader = zc.loader({"a": np.arange(3)}, "torch")
    loader.load_state_dict({"version": -1})


def _accepted(x: Any) -> Any:
    return zc.accepts("torch", copy=False)(lambda x: x)(x)


def _returned() -> Any:
    return zc.accepts("torch")(lambda x: {1, 2})(np.arange(3))


def _forbidden() -> None:
    with zc.forbid_copies():
        zc.convert(REVERSED, "torch")


def _forbidden_call() -> None:
    with zc.forbid_copies(also="torch"):
        torch.tensor(REVERSED.copy())


def _refused_scope() -> Any:
    aligned_numpy._capsule.cache_clear()  # the handler that exists stays valid
    with mock.patch.object(c_library, "refusal", return_value=zc.Reason("no glibc", "use Linux")):
        zc.aligned_numpy()


#: Calls that are refused, by the public function; the name before a space is that of `zerocopy`.
REFUSALS: dict[str, Callable[[], Any]] = {
    "convert copy": lambda: zc.convert(REVERSED, "torch", copy=False),
    "convert text": lambda: zc.convert("text", "torch"),
    "convert table": lambda: zc.convert(TEXT, "torch"),
    "convert matrix": lambda: zc.convert(TEXT, "torch", layout="matrix"),
    "convert records": lambda: zc.convert(TEXT, "torch", layout="records"),
    "convert tree": lambda: zc.convert({"w": [REVERSED, "text"]}, "numpy"),
    "convert cast": lambda: zc.convert(np.array([300]), "torch", dtype="uint8"),
    "convert device": lambda: zc.convert(REVERSED, "torch", device="vulkan"),
    "convert name": lambda: zc.convert(REVERSED, "troch"),
    "convert sparse": lambda: zc.convert(torch.eye(3).to_sparse(), "numpy"),
    "convert absent": lambda: zc.convert(REVERSED, "closed_framework"),
    "explain name": lambda: zc.explain(REVERSED, "troch"),
    "converter type": lambda: zc.converter(np.ndarray, "troch"),
    "forbid_copies": lambda: zc.forbid_copies(also="troch"),
    "forbid_copies call": _forbidden,
    "forbid_copies also": _forbidden_call,
    "converter call": lambda: zc.converter(np.ndarray, "torch", copy=False)(REVERSED),
    "view": lambda: zc.view("text"),
    "decode": lambda: zc.decode(REVERSED, like=REVERSED),
    "shares_memory": lambda: zc.shares_memory("text", "text2"),
    "aos_to_soa": lambda: zc.aos_to_soa(np.arange(3)),
    "soa_to_aos": lambda: zc.soa_to_aos({"a": np.array([300])}, [("a", "u1")]),
    "check_pairs": lambda: zc.check_pairs("text"),
    "accepts name": lambda: zc.accepts("troch"),
    "accepts call": lambda: _accepted(REVERSED),
    "accepts result": _returned,
    "array_namespace": lambda: zc.array_namespace("text"),
    "kind": lambda: zc.kind(CLOSED),
    "is_array": lambda: zc.is_array(CLOSED),
    "is_column": lambda: zc.is_column(CLOSED),
    "is_table": lambda: zc.is_table(CLOSED),
    "bridge": lambda: zc.bridge(len, "torch"),
    "share": lambda: zc.share("text"),
    "channel": lambda: zc.channel({"a": 3}),
    "shared_empty": lambda: zc.shared_empty(1 << 60),
    "Shared": lambda: zc.Shared.from_bytes(b"text"),
    "empty": lambda: zc.empty(-1),
    "aligned": lambda: zc.aligned("text"),
    "aligned_numpy": _refused_scope,
    "save": lambda: zc.save({"x": "text"}, "m.safetensors"),
    "open_weights": lambda: zc.open_weights("missing.safetensors"),
    "dataset": lambda: zc.dataset(object(), "torch"),
    "dataset rows": lambda: zc.dataset({"a": np.array([1.5, None], object)}, "torch"),
    "loader option": lambda: zc.loader({"a": np.arange(3)}, "torch", batch_size=0),
    "loader source": lambda: zc.loader(object(), "torch"),
    "loader batch": _next_batch,
    "loader state": _resumed,
    "install_pool": lambda: zc.install_pool("rrm"),
    "monitor": lambda: zc.monitor.snapshot(),
    "pickling": lambda: pickling.loads(NO_HANDLE),
    "check_producer": lambda: testing.check_producer(len, ["dlpak"]),
}
#: Public functions that raise no error of zerocopy's own.
NEVER = {"FrameworkName", "frameworks", "register", "installed_pool"}


def after_caller(call: Callable[[], Any]) -> tuple[str, int]:
    """Return the text of a refusal's traceback, and its number of lines after the caller's frame."""
    try:
        call()
    except zc.ZeroCopyError:
        text = traceback.format_exc().rstrip()
    lines = text.splitlines()
    own = max(i for i, line in enumerate(lines) if f'File "{__file__}"' in line)
    rest = lines[own + 1 :]
    while rest and set(rest[0]) > {" "} and rest[0].startswith("    "):
        rest = rest[1:]  # the caller's line, and the marks under it
    return text, len(rest)


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ZEROCOPY_TRACEBACK", raising=False)
    zc.register(Closed())


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_shows_few_lines_after_the_caller(name: str) -> None:
    for _ in range(2):  # without and with a route
        text, count = after_caller(REFUSALS[name])
        assert count <= MOST, text
        assert "During handling" not in text


def test_each_public_function_has_a_refusal_here() -> None:
    functions = {n for n in zc.__all__ if callable(getattr(zc, n)) and not isinstance(getattr(zc, n), type)}
    assert functions - NEVER <= {name.partition(" ")[0] for name in REFUSALS}


def test_the_error_of_a_producer_stays_in_the_traceback() -> None:
    text, _ = after_caller(lambda: zc.convert(Raises(), "numpy"))
    assert "ValueError: the producer's own" in text
    assert "in __dlpack__" in text
    assert "During handling" not in text


def test_an_error_that_the_caller_handles_stays_in_the_traceback() -> None:
    def call() -> None:
        try:
            raise KeyError("the caller's own")
        except KeyError:
            zc.convert(REVERSED, "torch", copy=False)

    text, _ = after_caller(call)
    assert text.count("During handling") == 1
    assert 'KeyError: "the caller\'s own"' in text


def test_the_function_that_accepts_wraps_stays_in_the_traceback() -> None:
    @zc.accepts("torch")
    def inner(x: Any) -> Any:
        return zc.convert("text", "torch")

    text, _ = after_caller(lambda: inner(np.arange(3)))
    assert "in inner" in text


def test_the_full_traceback_can_be_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEROCOPY_TRACEBACK", "full")
    text, count = after_caller(REFUSALS["convert copy"])
    assert "in make_plan" in text
    assert count > MOST
