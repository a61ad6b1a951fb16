"""The monitor's figures of real GPUs: NVML's against the driver's, the split of the memory, and holders."""

from __future__ import annotations

import pytest
from helpers.gpu_pool_processes import MARKS, Run, programs

pytestmark = MARKS

#: Names of the programs below. `card` is CUDA's first device; PIDs agree outside containers only.
SETUP = """
from zerocopy.monitor.holders import find_holders
from zerocopy.monitor.memory_split import memory_split
from zerocopy.monitor.cards import CardReader
if os.environ.get("CUDA_VISIBLE_DEVICES"): skip("CUDA_VISIBLE_DEVICES is set")
reader = CardReader()
cards = reader.read()
assert not cards["why_not"], cards["why_not"]
if any(":" in card["index"] for card in cards["cards"]): skip("a GPU is in MIG mode")
def pids(card): return {one["pid"] for one in card["processes"] or ()}
def record(pool):
    stats = pool.stats(0)
    device = {"in_use": stats.current_bytes, "reserved": stats.reserved_bytes}
    empty = {"in_use": 0, "reserved": 0}
    devices = {card["index"]: device if card["index"] == "0" else empty for card in cards["cards"]}
    return {"ended": False, "process": {"pid": os.getpid()}, "pool": {"devices": devices}}
"""


@pytest.fixture
def run(run_python: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    check = programs(run_python, monkeypatch)
    return lambda code: check(SETUP + code)


def test_monitor_cards_are_those_of_the_driver(run: Run) -> None:
    run(
        """
assert len(cards["cards"]) == cuda_driver.count()
for card in cards["cards"]:
    assert not card["lost"] and card["uuid"].startswith("GPU-") and card["name"]
    assert 0 <= card["memory_used"] + card["memory_free"] <= card["memory_total"]
names = sorted(card["name"] for card in cards["cards"])
assert names == sorted(cuda_driver.name_and_memory(i)[0] for i in range(cuda_driver.count()))
for _ in range(20):
    print(f"{reader.seconds * 1e3:.2f} ms", reader.read()["cards"][0])
"""
    )


def test_monitor_sees_an_allocation(run: Run) -> None:
    run(
        """
keep_context()
settle()
before = reader.read()["cards"][0]["memory_used"]
with cuda_driver.on_device(0) as library:
    pointer = ctypes.c_uint64()
    cuda_driver.call(library.cuMemAlloc_v2, ctypes.byref(pointer), ctypes.c_size_t(256 * MIB))
    after = reader.read()["cards"][0]["memory_used"]
    cuda_driver.call(library.cuMemFree_v2, pointer)
print(before, after)
assert free() and after - before >= 256 * MIB
"""
    )


def test_monitor_lists_this_process(run: Run) -> None:
    run(
        """
keep_context()
card = reader.read()["cards"][0]
if os.readlink("/proc/self/ns/pid") != "pid:[4026531836]": skip("a container: NVML lists PIDs of the host")
assert os.getpid() in pids(card), card["processes"]
"""
    )


def test_monitor_split_sums_to_the_total(run: Run) -> None:
    run(
        """
pool = begin("driver", frameworks=())
keep_context()
pointer = pool.allocate(64 * MIB)
settle()
cards = reader.read()
card = cards["cards"][0]
split = memory_split(card, [record(pool)], cards)
print(split)
if split.process_outside_pool is None and os.getpid() not in pids(card): skip("; ".join(split.why_not))
assert split.why_not == () and split.pool_in_use == 64 * MIB
assert split.total == card["memory_total"]
assert split.process_outside_pool > 0  # the context
pool.deallocate(pointer, 64 * MIB)
"""
    )


def test_monitor_holders_have_this_process(run: Run) -> None:
    run(
        """
keep_context()
result = find_holders()
print(result)
mine = [one for one in result.holders if one.pid == os.getpid()]
if not mine: skip(f"no file of the driver is open, as under WSL: {os.listdir('/dev')}")
assert mine[0].this_process and any("nvidia" in name for name in mine[0].devices)
"""
    )


def test_monitor_reads_without_a_context(run: Run) -> None:
    """NVML neither initialises CUDA nor breaks it in a forked child."""
    run(
        """
for _ in range(3): reader.read()
child = os.fork()
if child == 0:
    try:
        keep_context()
    except BaseException as error:
        print(error, flush=True)
        os._exit(1)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    )
