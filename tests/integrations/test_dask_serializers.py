"""Dask's serializers in one process: which recipients get frames, handles, or Dask's own messages."""

from __future__ import annotations

import asyncio
import gc
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import dask_tasks as tasks

import zerocopy as zc
import zerocopy.integrations.dask
from zerocopy.errors import FrameworkNotInstalledError
from zerocopy.integrations.dask import peers, serializers

pytest.importorskip("distributed")
from distributed.protocol import deserialize, serialize
from distributed.protocol.serialize import deserialize_bytes, serialize_bytes
from distributed.spill import SpillBuffer

MIB, ROWS = 1 << 20, 1 << 17
FRAMEWORKS = ["numpy", "torch", "jax", "tensorflow", "pyarrow", "pandas", "polars"]
EVERY = pytest.mark.parametrize("framework", FRAMEWORKS)


@pytest.fixture(autouse=True)
def _installed() -> Iterator[None]:
    zerocopy.integrations.dask.install()
    yield
    zerocopy.integrations.dask.uninstall()


def reader(**in_flight: Any) -> dict[str, Any]:
    """Return the context of a message to a process that reads frames."""
    return {"recipient": {peers.KEY: {"frames": peers.FRAMES_VERSION, "memory": b""}, **in_flight}}


def near_reader() -> tuple[dict[str, Any], list[Any]]:
    """Return the context of a reply to a process of this machine, and the handles in flight."""
    handles: list[Any] = []
    return reader(**{peers._IN_FLIGHT: handles}), handles


def equal(a: Any, b: Any) -> bool:
    """Whether two objects have the same type, types of elements, and values."""
    if type(a) is not type(b):
        return False
    if hasattr(a, "equals"):
        return bool(a.equals(b))
    return a.dtype == b.dtype and tuple(a.shape) == tuple(b.shape) and bool((a == b).__array__().all())


def is_handle(header: Any) -> bool:
    return "handle" in (header.get("sub-header") or {}).get(peers.KEY, {})


def make(framework: str, nbytes: int = 3 * MIB) -> Any:
    pytest.importorskip(framework)
    return tasks.make(framework, nbytes)


@EVERY
def test_a_handle_for_a_reader_of_this_machine(framework: str) -> None:
    obj = make(framework)
    context, handles = near_reader()
    header, frames = serialize(obj, context=context)
    assert is_handle(header)
    assert not frames
    assert len(handles) == 1
    assert len(pickle.dumps(header)) < 4096
    received = deserialize(header, frames)
    assert equal(received, obj)
    assert tasks.describe(received)["mapped"]
    assert serialize(obj, context=context)[0] == header, "a second recipient gets the same handle"
    handles.clear()
    del received
    gc.collect()


@pytest.mark.hazard("training#frames-at-any-byte")
@EVERY
def test_frames_for_a_reader_of_another_machine(framework: str) -> None:
    obj = make(framework)
    header, frames = serialize(obj, context=reader())
    assert not is_handle(header)
    for shift in (0, 5, 15, 16):  # as frames lie that Dask has received
        assert equal(deserialize(header, [shifted(frame, shift) for frame in frames]), obj)


def shifted(frame: Any, shift: int) -> memoryview:
    view = memoryview(frame).cast("B")
    memory = np.empty(view.nbytes + 128, np.uint8)
    start = -memory.ctypes.data % 64 + shift
    memory[start : start + view.nbytes] = view
    return memory[start : start + view.nbytes].data


@pytest.mark.parametrize("framework", ["torch", "tensorflow", "jax", "pyarrow", "polars"])
@pytest.mark.parametrize("part", [MIB, 64 * MIB])
@pytest.mark.parametrize("compression", [None, "zlib"])
def test_frames_over_tcp_arrive_aligned(framework: str, part: int, compression: Any, monkeypatch) -> None:
    from distributed.comm import connect, listen, tcp
    from distributed.protocol import to_serialize

    obj = make(framework)
    copied: list[int] = []
    received: list[Any] = []
    blocks: list[memoryview] = []
    monkeypatch.setattr(tcp.TCP, "max_shard_size", part)
    monkeypatch.setattr(tcp, "host_array", lambda n, own=tcp.host_array: blocks.append(own(n)) or blocks[-1])
    monkeypatch.setattr(
        serializers, "_copy", lambda buffer, own=serializers._copy: copied.append(1) or own(buffer)
    )

    async def receive(comm: Any) -> None:
        received.append(await comm.read())

    async def send() -> None:
        listener = await listen("tcp://127.0.0.1:0", receive)
        comm = await connect(listener.contact_address)
        comm.remote_info = {**comm.remote_info, **reader()["recipient"]}
        comm.handshake_options = {**comm.handshake_options, "compression": compression}
        await comm.write({"results": [to_serialize(obj), to_serialize(obj)]})
        while not received:
            await asyncio.sleep(0.01)
        await comm.close()
        listener.stop()

    asyncio.run(send())
    assert all(equal(result, obj) for result in received[0]["results"])
    assert compression or not copied
    for frame in [frame for result in received[0]["results"] for frame in tasks.frames_of(result)]:
        assert compression or any(
            np.may_share_memory(frame, np.frombuffer(block, np.uint8)) for block in blocks
        )


def test_uninstall_returns_dasks_own_memory() -> None:
    from distributed.comm import tcp
    from distributed.protocol.utils import host_array

    assert tcp.host_array is serializers.aligned_memory
    assert np.frombuffer(tcp.host_array(1000), np.uint8).ctypes.data % 64 == 0
    assert len(tcp.host_array(0)) == 0
    zerocopy.integrations.dask.uninstall()
    assert tcp.host_array is host_array


@pytest.mark.hazard("robustness#messages-that-are-passed-on")
@EVERY
def test_dasks_own_way_for_all_others(framework: str, tmp_path: Path) -> None:
    """The scheduler, other clients, the disk: no header of zerocopy."""
    obj = make(framework)
    for context in (None, {}, {"recipient": {}}, {"recipient": {peers.KEY: {"frames": 99}}}):
        header, frames = serialize(obj, context=context)
        assert peers.KEY not in str(header)
        assert equal(deserialize(header, frames), obj)
    assert equal(deserialize_bytes(serialize_bytes(obj)), obj)
    buffer = SpillBuffer(str(tmp_path), target=1)
    buffer["key"] = obj
    assert "key" in buffer.disk
    assert equal(buffer["key"], obj)


@EVERY
def test_small_objects_are_bytes(framework: str) -> None:
    context, handles = near_reader()
    obj = make(framework, 3 * 4096)
    header, frames = serialize(obj, context=context)
    assert not is_handle(header)
    assert not handles
    assert equal(deserialize(header, frames), obj)


@pytest.mark.hazard("robustness#replica-that-is-sent-on")
def test_a_replica_is_sent_on_after_its_owner_has_dropped_it() -> None:
    """Dask's active memory manager drops the owner's object when there is a replica."""
    context, handles = near_reader()
    array = tasks.make("numpy", MIB)
    replica = deserialize(*serialize(array, context=context))
    header, frames = serialize(replica, context=context)
    del array, handles[0]
    gc.collect()
    zc.shared.blocks.large_blocks.trim()
    assert np.array_equal(deserialize(header, frames), tasks.values(MIB))


@pytest.mark.hazard("training#writes-to-arguments-in-dask")
def test_results_of_one_handle_are_private() -> None:
    context, _handles = near_reader()
    array = tasks.make("numpy", MIB)
    header, frames = serialize(array, context=context)
    first = deserialize(header, frames)
    first[:] = -1
    assert np.array_equal(deserialize(header, frames), array)
    assert array[5] == 5


@pytest.mark.parametrize(
    "make_array",
    [
        lambda: np.asfortranarray(np.arange(MIB, dtype="f4").reshape(1024, 1024)),
        lambda: np.arange(4 * MIB, dtype="f4")[::2],
        lambda: np.broadcast_to(np.arange(10), (MIB, 10)),
        lambda: np.ma.masked_array(np.arange(MIB), np.arange(MIB) % 2),
        lambda: np.zeros(MIB, [("a", "i4"), ("b", "f8")]),
        lambda: np.arange(MIB).astype("M8[s]"),
        lambda: np.matrix(np.ones((1024, 1024))),
        lambda: np.array([{}, "text"] * 1000, object),
    ],
    ids=["fortran", "strided", "broadcast", "masked", "records", "datetime", "matrix", "objects"],
)
@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_arrays_of_numpy_keep_their_properties(make_array: Any) -> None:
    array = make_array()
    context, _handles = near_reader()
    received = deserialize(*serialize(array, context=context))
    own = deserialize(*serialize(array))
    assert type(received) is type(own) is type(array)
    assert received.dtype == array.dtype
    assert received.strides == own.strides
    assert np.array_equal(np.asarray(received), np.asarray(array))
    assert received.flags.writeable == own.flags.writeable
    if isinstance(array, np.ma.MaskedArray):
        assert np.array_equal(received.mask, array.mask)


@pytest.mark.hazard("robustness#properties-in-dask")
def test_torch_tensors_keep_gradients_parameters_and_types() -> None:
    torch = pytest.importorskip("torch")
    context, _handles = near_reader()
    leaf = torch.ones(MIB, requires_grad=True)
    received = deserialize(*serialize(leaf, context=context))
    assert received.requires_grad
    assert received.is_leaf
    assert torch.equal(received, leaf)
    parameter = torch.nn.Parameter(torch.ones(MIB), requires_grad=False)
    received = deserialize(*serialize(parameter, context=context))
    assert type(received) is torch.nn.Parameter
    assert not received.requires_grad
    half = torch.arange(MIB, dtype=torch.bfloat16)  # Dask alone cannot send it
    received = deserialize(*serialize(half, context=context))
    assert received.dtype is torch.bfloat16
    assert torch.equal(received, half)


@pytest.mark.hazard("robustness#properties-in-dask")
def test_pandas_keeps_attributes_extension_types_and_subclasses() -> None:
    pd = pytest.importorskip("pandas")

    class Named(pd.DataFrame):
        @property
        def _constructor(self) -> type:
            return Named

    context, _handles = near_reader()
    frame = pd.DataFrame(
        {
            "number": np.arange(ROWS),
            "nullable": pd.array([1, None] * (ROWS // 2), "Int64"),
            "kind": pd.Categorical(["b", "a"] * (ROWS // 2), ["b", "a"], ordered=True),
            "object": [(1,)] * ROWS,
        },
        index=pd.date_range("2020", periods=ROWS, freq="s", name="time"),
    )
    frame.attrs["unit"] = "m"
    header, frames = serialize(frame, context=context)
    received = deserialize(header, frames)
    assert is_handle(header)
    pd.testing.assert_frame_equal(received, frame)
    assert received.attrs == frame.attrs
    assert received.index.freq == frame.index.freq
    assert not is_handle(serialize(Named(frame), context=context)[0])


@pytest.mark.parametrize("kind", ["weak", "deleted"])
def test_jax_arrays_that_frames_would_change(kind: str) -> None:
    jax = pytest.importorskip("jax")
    context, _handles = near_reader()
    array = jax.numpy.full(MIB, 1.5) if kind == "deleted" else jax.numpy.broadcast_to(1.5, (MIB,))
    if kind == "deleted":
        array.delete()
        header, _ = serialize(array, context=context)
        assert header["serializer"] == "error"
        return
    received = deserialize(*serialize(array, context=context))
    assert received.weak_type == array.weak_type
    assert equal(received, array)


# -- handles in flight --------------------------------------------------------------------


class _Comm:
    def __init__(self, announced: Any) -> None:
        self.remote_info = {peers.KEY: announced}


@pytest.mark.hazard("robustness#object-dropped-before-it-is-opened")
@pytest.mark.parametrize("same_host", [True, False])
def test_handles_live_until_the_recipient_has_confirmed(same_host: bool) -> None:
    array = tasks.make("numpy", MIB)
    comm = _Comm(peers._announcement(same_host))
    sent = {}

    async def get_data(comm: Any, keys: Any, serializers: Any = None) -> str:
        sent["message"] = serialize(array, context={"recipient": comm.remote_info})
        return "OK"

    assert asyncio.run(peers.keep_in_flight(get_data)(comm, keys=["x"])) == "OK"
    assert comm.remote_info == {peers.KEY: peers._announcement(same_host)}
    assert is_handle(sent["message"][0]) is same_host
    assert np.array_equal(deserialize(*sent["message"]), array)


@pytest.mark.hazard("robustness#addresses-of-processes")
def test_a_process_that_may_not_open_the_memory_gets_frames(monkeypatch) -> None:
    announced = peers._announcement(True)
    for other in (b"x" + announced["memory"][1:], announced["memory"] + b"x", b"", None):
        comm = _Comm({**announced, "memory": other})

        async def get_data(comm: Any) -> Any:
            return peers.handles_in_flight({"recipient": comm.remote_info})

        assert asyncio.run(peers.keep_in_flight(get_data)(comm)) is None


def test_a_handle_that_is_stale_is_an_error_after_which_dask_asks_again() -> None:
    context, handles = near_reader()
    array = tasks.make("numpy", MIB)
    header, frames = serialize(array, context=context)
    handles[0].close()
    with pytest.raises(OSError, match="could not be opened"):
        deserialize(header, frames)


@pytest.mark.hazard("robustness#no-memory-in-dask")
def test_without_memory_objects_are_sent_as_bytes(monkeypatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise zc.errors.SharedMemoryError("", "no room", "")

    monkeypatch.setattr(serializers, "share_buffers", refuse)
    context, handles = near_reader()
    array = tasks.make("numpy", MIB)
    header, frames = serialize(array, context=context)
    assert not is_handle(header)
    assert not handles
    assert np.array_equal(deserialize(header, frames), array)


def test_kept_handles_have_a_limit_and_end_with_their_objects() -> None:
    handles = serializers.KeptHandles(limit=5 * MIB)
    arrays = [np.ones(2 * MIB, np.uint8) for _ in range(4)]
    for i, array in enumerate(arrays):
        handles.add(array, zc.share(array), {"number": i})
    assert [handles.find(array) is not None for array in arrays] == [False, False, True, True]
    assert handles._bytes == 4 * MIB
    del arrays, array
    gc.collect()
    assert not handles._entries
    assert not handles._recent
    assert handles._bytes == 0


# -- installation ---------------------------------------------------------------------------


def test_after_uninstall_nothing_is_sent_and_everything_is_read() -> None:
    context, _handles = near_reader()
    array = tasks.make("numpy", MIB)
    message = serialize(array, context=context)
    zerocopy.integrations.dask.uninstall()
    assert np.array_equal(deserialize(*message), array)
    assert peers.KEY not in str(serialize(array, context=context)[0])


def test_a_pickle_names_dasks_own_function() -> None:
    """Dask's pickler sends the registered function to processes that may lack zerocopy."""
    from distributed.protocol import dask_deserialize

    pickled = pickle.dumps(dask_deserialize.dispatch(np.ndarray))
    assert b"zerocopy" not in pickled
    assert callable(pickle.loads(pickled))


def test_install_imports_no_framework(run_python) -> None:
    process = run_python(
        """
        import sys
        import zerocopy.integrations.dask
        assert "distributed" not in sys.modules
        before = {"torch", "jax", "jaxlib", "tensorflow", "polars"}
        zerocopy.integrations.dask.install()
        assert not before & set(sys.modules), before & set(sys.modules)
        """
    )
    assert process.returncode == 0, process.stderr


def test_an_array_arrives_where_its_framework_is_not_imported(run_python) -> None:
    """Types of JAX are defined in jaxlib, whose import does not import JAX."""
    jax = pytest.importorskip("jax")
    message = serialize(jax.numpy.arange(4, dtype="float32"), context=reader())
    process = run_python(
        f"""
        import pickle, sys
        import zerocopy.integrations.dask
        from distributed.protocol import deserialize
        zerocopy.integrations.dask.install()
        header, frames = pickle.loads({pickle.dumps((message[0], list(map(bytes, message[1]))))!r})
        print(deserialize(header, frames).tolist())
        """
    )
    assert process.stdout.strip() == "[0.0, 1.0, 2.0, 3.0]", process.stderr


def test_without_distributed(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(FrameworkNotInstalledError, match=r"pip install 'distributed>=2026.1'"):
        zerocopy.integrations.dask.install()
