"""``CardReader``: the GPUs of the machine, read through NVML."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from zerocopy.monitor.sample import Card, CardProcess, Cards, NVLink
from zerocopy.protocols.nvml import (
    CardLostError,
    DriverRestartedError,
    Nvml,
    NvmlUnavailableError,
    Utilization,
    known,
)

#: Seconds between two reads of a GPU's PCIe counters: NVML counts for 20 ms in each of the two calls
#: (nvmlDeviceGetPcieThroughput, nvml.h).
PCIE_EVERY = 1.0
#: Seconds between two attempts to start NVML.
RETRY_EVERY = 5.0
# Constants of nvml.h: nvmlPcieUtilCounter_t, nvmlTemperatureSensors_t, nvmlClockType_t, and
# NVML_FI_DEV_NVLINK_LINK_COUNT, _THROUGHPUT_DATA_RX and _TX.
PCIE_RECEIVED, PCIE_SENT = 1, 0
TEMPERATURE_GPU, CLOCK_SM, CLOCK_MEMORY = 0, 1, 2
LINK_COUNT, LINK_RECEIVED, LINK_SENT = 91, 139, 138

_NO_PROCESS = {0, (1 << 32) - 1}  # PIDs that NVML lists for processes it cannot name
_NO_GPU = (
    "the NVIDIA driver lists no GPU: check nvidia-smi -L; in a container, NVIDIA_VISIBLE_DEVICES or the "
    "request for nvidia.com/gpu"
)
_NOT_LISTED = "the driver does not list the GPU any more: look for Xid in dmesg"
_RESTARTING = "the NVIDIA driver is being restarted; it is read again within seconds"


class _Pcie(NamedTuple):
    """The last PCIe figures of one GPU, in bytes per second."""

    time: float
    received: int | None
    sent: int | None


class CardReader:
    """Reads the GPUs through NVML, which neither initialises CUDA nor allocates GPU memory.

    A field is None where NVML has no figure, as "N/A" in nvidia-smi. A GPU that stops answering has
    the reason in `lost`; the others are still read. If the driver is restarted, NVML is started again.

    A GPU in MIG mode is listed as its MIG devices, ``"0:0"`` and ``"0:1"``, each with its memory and
    its processes. NVML does not count the utilization of MIG devices, so it is None. Temperature and
    clocks are those of the GPU; power and PCIe throughput are None, since NVML does not divide them.

    `seconds` is the duration of the last read. A driver that does not return from a call blocks the read.
    """

    def __init__(self, library: Any = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds: float = 0.0
        self._library, self._clock = library, clock
        self._nvml: Nvml | None = None
        self._failed: tuple[float, str] | None = None  # when NVML did not start, and why
        self._names: dict[int, tuple[str, str]] = {}  # UUID and name of each GPU that answered
        self._pcie: dict[int, _Pcie] = {}
        self._turn: int | None = None  # the GPU whose PCIe counters this read may wait for

    def read(self) -> Cards:
        """Return all GPUs, or why there are none; never raises."""
        start = self._clock()
        try:
            return self._read()
        finally:
            self.seconds = self._clock() - start

    def close(self) -> None:
        """Release NVML; the next read starts it again."""
        if self._nvml is not None:
            self._nvml.stop()
        self._nvml = None

    def _read(self) -> Cards:
        for _ in range(2):  # once more if the driver was restarted
            try:
                return self._read_cards(self._started())
            except NvmlUnavailableError as error:
                return Cards(driver="", why_not=str(error), cards=[])
            except (DriverRestartedError, CardLostError):  # of a call that is not about one GPU
                self.close()
        return Cards(driver="", why_not=_RESTARTING, cards=[])

    def _started(self) -> Nvml:
        if self._nvml is not None:
            return self._nvml
        now = self._clock()
        if self._failed is not None and now < self._failed[0] + RETRY_EVERY:
            raise NvmlUnavailableError(self._failed[1])
        try:
            self._nvml = Nvml(self._library)
        except NvmlUnavailableError as error:
            self._failed = now, str(error)
            raise
        self._failed = None
        return self._nvml

    def _read_cards(self, nvml: Nvml) -> Cards:
        driver = nvml.text("nvmlSystemGetDriverVersion")
        count = nvml.count()
        self._turn = self._next_turn()
        cards = [card for index in range(count) for card in self._cards_of(nvml, index)]
        cards += [_lost(index, *self._names[index], _NOT_LISTED) for index in self._unlisted(count)]
        if cards and all(card["lost"] for card in cards):
            self.close()  # a restarted driver answers only to a new start
        return Cards(driver=driver, why_not="" if cards else _NO_GPU, cards=cards)

    def _unlisted(self, count: int) -> list[int]:
        """Return the indices of GPUs that answered once and are beyond those that the driver lists."""
        listed = {self._names[index][0] for index in range(count) if index in self._names}
        return [i for i, (uuid, _) in sorted(self._names.items()) if i >= count and uuid not in listed]

    def _cards_of(self, nvml: Nvml, index: int) -> list[Card]:
        """Return a GPU, or the MIG devices of a GPU in MIG mode."""
        uuid, name = self._names.get(index, ("", ""))
        try:
            handle = nvml.handle(index)
            uuid, name = nvml.text("nvmlDeviceGetUUID", handle), nvml.text("nvmlDeviceGetName", handle)
            self._names[index] = uuid, name
            in_mig_mode, parts = nvml.parts(handle)
            if parts:
                return [_mig_card(nvml, f"{index}:{i}", handle, part) for i, part in enumerate(parts)]
            if in_mig_mode:
                name += " (MIG mode, without a MIG device)"
            return [self._whole_card(nvml, index, uuid, name, handle)]
        except CardLostError as error:
            self._pcie.pop(index, None)
            return [_lost(index, uuid, name, str(error))]

    def _whole_card(self, nvml: Nvml, index: int, uuid: str, name: str, handle: Any) -> Card:
        pcie = self._read_pcie(nvml, index, handle)
        rates = nvml.read(Utilization(), "nvmlDeviceGetUtilizationRates", handle)
        return _card(
            nvml,
            handle,
            index=str(index),
            uuid=uuid,
            name=name,
            utilization=None if rates is None else known(rates.gpu),
            memory_utilization=None if rates is None else known(rates.memory),
            power=_watts(nvml.number("nvmlDeviceGetPowerUsage", handle)),
            power_limit=_watts(nvml.number("nvmlDeviceGetPowerManagementLimit", handle)),
            pcie_received=pcie.received,
            pcie_sent=pcie.sent,
            nvlinks=_nvlinks(nvml, handle),
            **_clocks(nvml, handle),
        )

    def _next_turn(self) -> int | None:
        """Return the GPU whose PCIe figures are the oldest, if they are old enough to be read again."""
        index = min(self._pcie, key=lambda i: self._pcie[i].time, default=None)
        due = index is not None and self._clock() - self._pcie[index].time >= PCIE_EVERY
        return index if due else None

    def _read_pcie(self, nvml: Nvml, index: int, handle: Any) -> _Pcie:
        """Return the PCIe figures: of one GPU per read, which bounds the read's duration."""
        last = self._pcie.get(index)
        if last is not None and self._turn != index:
            return last
        received, sent = (
            nvml.number("nvmlDeviceGetPcieThroughput", handle, counter)
            for counter in (PCIE_RECEIVED, PCIE_SENT)
        )
        # NVML counts in KB, which differ from the KiB of its NVLink fields (nvml.h).
        self._pcie[index] = last = _Pcie(self._clock(), _times(received, 1000), _times(sent, 1000))
        return last


# -- one card -----------------------------------------------------------------------


def _card(nvml: Nvml | None = None, handle: Any = None, **fields: Any) -> Card:
    """Return a card with these fields, its memory and its processes."""
    values: dict[str, Any] = {**dict.fromkeys(Card.__annotations__), "nvlinks": [], "lost": ""}
    if nvml is not None:
        values |= {**_memory(nvml, handle), "processes": _processes(nvml, handle)}
    return Card(**{**values, **fields})  # type: ignore[typeddict-item]


def _lost(index: int, uuid: str, name: str, reason: str) -> Card:
    return _card(index=str(index), uuid=uuid, name=name, lost=reason)


def _mig_card(nvml: Nvml, index: str, gpu: Any, part: Any) -> Card:
    uuid, name = nvml.text("nvmlDeviceGetUUID", part), nvml.text("nvmlDeviceGetName", part)
    return _card(nvml, part, index=index, uuid=uuid, name=name, **_clocks(nvml, gpu))


def _clocks(nvml: Nvml, handle: Any) -> dict[str, int | None]:
    return {
        "temperature": nvml.number("nvmlDeviceGetTemperature", handle, TEMPERATURE_GPU),
        "sm_clock": nvml.number("nvmlDeviceGetClockInfo", handle, CLOCK_SM),
        "memory_clock": nvml.number("nvmlDeviceGetClockInfo", handle, CLOCK_MEMORY),
    }


def _memory(nvml: Nvml, handle: Any) -> dict[str, int | None]:
    memory = nvml.memory(handle)
    names = ("total", "used", "free")
    return {f"memory_{name}": None if memory is None else known(getattr(memory, name)) for name in names}


def _processes(nvml: Nvml, handle: Any) -> list[CardProcess] | None:
    """Return the processes of CUDA, graphics and MPS; None if NVML lists none of these kinds."""
    memory: dict[int, int | None] = {}
    lists = [nvml.processes(handle, kind) for kind in ("Compute", "Graphics", "MPSCompute")]
    for infos in lists:
        for pid, used in infos or ():
            if pid not in _NO_PROCESS:
                # A process of several kinds has the same figure in each list.
                memory[pid] = max(used, memory.get(pid) or 0) if used is not None else memory.get(pid)
    if all(infos is None for infos in lists):
        return None
    return [CardProcess(pid=pid, memory=used) for pid, used in sorted(memory.items())]


def _nvlinks(nvml: Nvml, handle: Any) -> list[NVLink]:
    """Return the active links and their data bytes, which NVML counts in KiB (nvml.h, fields 138 and 139)."""
    (count,) = nvml.fields(handle, [(LINK_COUNT, 0)])
    links = [i for i in range(min(count or 0, 64)) if nvml.number("nvmlDeviceGetNvLinkState", handle, i) == 1]
    # The scope of these fields is the number of the link.
    fields = [(field, link) for field in (LINK_RECEIVED, LINK_SENT) for link in links]
    sizes = [_times(value, 1024) for value in (nvml.fields(handle, fields) if links else [])]
    pairs = zip(links, sizes[: len(links)], sizes[len(links) :], strict=True)
    return [NVLink(link=link, received_bytes=rx, sent_bytes=tx) for link, rx, tx in pairs]


def _times(value: int | None, unit: int) -> int | None:
    return None if value is None else value * unit


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000
