"""Stand-ins for GPUs in the tests of pools: host memory, CUDA's memory pools.

They behave as documented; tests/gpu checks the real interfaces.
"""

from __future__ import annotations

import ctypes
import threading

#: How the interpreter may exit with outstanding memory.
ENDS = ("cycle", "global", "thread", "atexit", "daemon")
#: A program that exits as `end` says, while the result of `take()` is alive.
ENDING = """
import atexit, threading, time
if end == "cycle":
    held = take()
    held.append(held)
    del held
elif end == "global":
    held = take()
elif end == "thread":
    def work(held): time.sleep(0.5)
    threading.Thread(target=work, args=(take(),)).start()
elif end == "atexit":
    atexit.register(lambda held: take(), take())
else:
    assert end == "daemon"
    def work():
        while True: take()
    threading.Thread(target=work, daemon=True).start()
    time.sleep(0.5)
"""

_libc = ctypes.CDLL(None)
_libc.aligned_alloc.restype = ctypes.c_void_p
_libc.aligned_alloc.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
_libc.free.argtypes = [ctypes.c_void_p]


class HostAllocator:
    """An external allocator over the C library, which records outstanding memory."""

    def __init__(self):
        self.out, self.streams, self._lock = {}, [], threading.Lock()
        self._allocate, self._free = _libc.aligned_alloc, _libc.free

    def allocate(self, nbytes, stream):
        ptr = self._allocate(256, (nbytes + 255) & ~255)
        with self._lock:
            self.out[ptr] = nbytes
            self.streams.append(stream)
        return ptr

    def deallocate(self, ptr, nbytes, stream):
        with self._lock:
            assert self.out.pop(ptr) == nbytes
        self._free(ptr)


class LibcMemory:
    """Ordinary memory in the place of page-locked memory."""

    def allocate(self, nbytes):
        ptr = _libc.aligned_alloc(4096, nbytes)
        if not ptr:
            raise MemoryError(f"{nbytes} bytes")
        return ptr

    def free(self, ptr, nbytes):
        _libc.free(ptr)

    def fence(self):
        """Return no event: only page-locked memory is copied asynchronously."""
        return []


class FakeDriver:
    """The driver's memory pools over host memory: used and reserved bytes, and the threshold."""

    def __init__(self, capacity=1 << 30):
        self.capacity, self.calls, self.used, self.reserved, self.high = capacity, [], 0, 0, 0
        self.threshold, self.sizes, self.held, self.awake, self.begun = 0, {}, [], False, False

    def __getattribute__(self, name):
        # As in the real driver, other calls fail before cuInit (3: CUDA_ERROR_NOT_INITIALIZED).
        unasked = ("cuInit", "cuDriverGetVersion", "cuGetErrorName")
        if name.startswith("cu") and name not in unasked and not (self.begun or self.awake):
            return lambda *arguments: 3
        return super().__getattribute__(name)

    def cuInit(self, flags):
        self.begun = True
        self.calls.append("cuInit")
        return 0

    def cuDriverGetVersion(self, version):
        version._obj.value = 12090
        return 0

    def cuDeviceGetName(self, name, size, device):
        name.value = b"stand-in %d" % device.value
        return 0

    def cuDeviceTotalMem_v2(self, total, device):
        total._obj.value = self.capacity
        return 0

    def cuDeviceGetCount(self, count):
        count._obj.value = 2
        return 0

    def cuGetErrorName(self, code, name):
        name._obj.value = b"CUDA_ERROR"
        return 0

    def cuCtxGetDevice(self, device):
        device._obj.value = 0
        return 0

    def cuDevicePrimaryCtxGetState(self, device, flags, active):
        active._obj.value = int(self.awake or bool(self.held))
        return 0

    def cuDeviceGet(self, device, index):
        device._obj.value = index.value
        return 0

    def cuDevicePrimaryCtxRetain(self, context, device):
        return 0

    cuCtxPushCurrent_v2 = cuCtxPopCurrent_v2 = cuDevicePrimaryCtxRelease_v2 = lambda self, *a: 0

    def cuDeviceGetAttribute(self, value, number, device):
        value._obj.value = 1
        return 0

    def cuDeviceGetDefaultMemPool(self, pool, device):
        pool._obj.value = 4242 + device.value
        return 0

    def cuMemPoolGetAttribute(self, pool, attribute, value):
        value._obj.value = {4: self.threshold, 5: self.reserved, 7: self.used, 8: self.high}[attribute.value]
        return 0

    def cuMemPoolSetAttribute(self, pool, attribute, value):
        if attribute.value == 4:
            self.threshold = value._obj.value
        else:
            assert attribute.value == 8
            assert value._obj.value == 0  # the driver refuses any other
            self.high = self.used
        return 0

    def cuMemAllocFromPoolAsync(self, ptr, size, pool, stream):
        if self.used + size.value > self.capacity:
            return 2
        ptr._obj.value = _libc.aligned_alloc(256, (size.value + 255) & ~255)
        self.sizes[ptr._obj.value] = size.value
        self.used += size.value
        self.high = max(self.high, self.used)
        self.reserved = max(self.reserved, self.used)
        self.calls.append(("allocate", size.value, stream.value))
        return 0

    def cuMemFreeAsync(self, ptr, stream):
        self.used -= self.sizes.pop(ptr.value)
        self.calls.append(("free", stream.value))
        _libc.free(ptr.value)
        return 0

    def cuMemPoolTrimTo(self, pool, keep):
        self.reserved = max(self.used, keep.value)
        return 0

    def cuStreamSynchronize(self, stream):
        return 0

    def cuMemGetInfo_v2(self, free, total):
        free._obj.value, total._obj.value = self.capacity - self.reserved, self.capacity
        return 0
