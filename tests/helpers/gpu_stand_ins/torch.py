"""torch for the CPU, with host memory that it treats as CUDA memory.

The address of a tensor's memory determines its device, and streams are numbers that always report
pending work. torch's Python code runs unchanged, including its exporter's checks; the DLPack functions
below it write the simulated device into the capsule. Operators return results on the host, except
those that are wrapped here. CUDA's operators, the stream of a copy and the caching allocator are not
simulated.
"""

from __future__ import annotations

from types import ModuleType

from helpers import cuda_stubs
from helpers.gpu_stand_ins.memory import TOTAL, Devices
from helpers.gpu_stand_ins.torch_streams import use_streams
from zerocopy.device import CPU, CUDA
from zerocopy.protocols import dlpack


def use(torch: ModuleType, devices: Devices) -> None:
    """Patch torch for the rest of the process."""
    # On two busy cores a copy of 256 KiB takes 6 ms with two threads, most of it waiting.
    torch.set_num_threads(1)
    placed = _placing(torch, devices)
    _where(torch, devices)
    _moves(torch, placed)
    _factories(torch, placed)
    _capsules(torch)
    _interface(torch, devices)
    _cuda(torch, devices)
    use_streams(torch, devices)


def _placing(torch, devices):
    """Return a function that copies a tensor, row-major, to a device's memory."""

    def placed(tensor, index=None):
        index = devices.current if index is None else index
        nbytes = tensor.numel() * tensor.element_size()
        try:
            block = devices.allocate(max(nbytes, 1), index)
        except MemoryError as error:
            raise torch.OutOfMemoryError("CUDA out of memory") from error
        fresh = torch.from_numpy(block)[:nbytes].view(tensor.dtype).reshape(tensor.shape)
        return fresh.copy_(tensor.detach())

    return placed


def _where(torch, devices):
    tensor = torch.Tensor

    def index(self):
        """Return the device's number, or None on the host."""
        recorded = getattr(self, "_cuda_index", None)  # set at import: an empty tensor has no address
        if recorded is not None or self.layout is not torch.strided:
            return recorded
        return devices.ordinal(self.untyped_storage().data_ptr())

    def device(self):
        position = index(self)
        return torch.device("cpu") if position is None else torch.device("cuda", position)

    tensor.device = property(device)
    tensor.is_cuda = property(lambda self: index(self) is not None)
    tensor.is_cpu = property(lambda self: index(self) is None)
    tensor.get_device = lambda self: -1 if index(self) is None else index(self)


def _moves(torch, placed):
    tensor = torch.Tensor
    plain_to, plain_clone, plain_numpy = tensor.to, tensor.clone, tensor.numpy

    def to(self, where=None, *args, copy=False, **options):
        if not isinstance(where, (str, torch.device)):
            arguments = () if where is None else (where, *args)
            result = plain_to(self, *arguments, copy=copy, **options)
            return placed(result, self.get_device()) if self.is_cuda and result is not self else result
        destination = torch.device(where)
        if destination.type == "cuda":
            index = destination.index or 0
            return self if self.device == torch.device("cuda", index) and not copy else placed(self, index)
        return plain_clone(self) if copy or self.is_cuda else self

    def clone(self, memory_format=torch.preserve_format):
        if self.is_cuda:
            return placed(self, self.get_device())
        return plain_clone(self, memory_format=memory_format)

    def numpy(self):
        if self.is_cuda:
            raise TypeError("can't convert cuda:0 device type tensor to numpy")
        return plain_numpy(self)

    def resolving(name, is_lazy):
        plain = getattr(tensor, name)

        def resolve(self):
            resolved = plain(self)
            return placed(resolved, self.get_device()) if self.is_cuda and is_lazy(self) else resolved

        return resolve

    tensor.to, tensor.clone, tensor.numpy = to, clone, numpy
    tensor.resolve_conj = resolving("resolve_conj", tensor.is_conj)
    tensor.resolve_neg = resolving("resolve_neg", tensor.is_neg)
    tensor.cpu = lambda self: to(self, "cpu")
    tensor.pin_memory = lambda self: self  # page-locked memory is ordinary host memory
    tensor.record_stream = lambda self, stream: None


def _factories(torch, placed):
    def factory(plain):
        def make(*args, device=None, requires_grad=False, **options):
            tensor = plain(*args, **options)
            if device is not None and torch.device(device).type == "cuda":
                tensor = placed(tensor, torch.device(device).index or 0)
            return tensor.requires_grad_(requires_grad)

        return make

    for name in ("ones", "tensor", "empty"):
        setattr(torch, name, factory(getattr(torch, name)))


def _capsules(torch):
    def exporting(plain):
        def to_dlpack(tensor, **options):
            capsule = plain(tensor, **options)
            if tensor.is_cuda:
                described, _ = dlpack._tensor(capsule)
                described.device_type, described.device_id = CUDA, tensor.get_device()
            return capsule

        return to_dlpack

    plain_import = torch._C._from_dlpack

    def from_dlpack(capsule):
        described, _ = dlpack._tensor(capsule)
        kind, index = described.device_type, described.device_id
        if kind not in (CPU, CUDA):
            raise RuntimeError(f"Unsupported device_type: {kind}")
        described.device_type, described.device_id = CPU, 0
        tensor = plain_import(capsule)
        if kind == CUDA:
            tensor._cuda_index = index
        return tensor

    torch._C._to_dlpack = torch.utils.dlpack.to_dlpack = exporting(torch._C._to_dlpack)
    torch._C._to_dlpack_versioned = exporting(torch._C._to_dlpack_versioned)
    torch._C._from_dlpack = from_dlpack


def _interface(torch, devices):
    def as_tensor(producer, device=None):
        entries = producer.__cuda_array_interface__
        ptr, readonly = entries["data"]
        if readonly:
            raise TypeError("the read only flag is not supported, should always be False")
        host = cuda_stubs.over(ptr, entries["shape"], entries["typestr"], entries["strides"], producer)
        tensor = torch.from_numpy(host)  # refuses negative strides
        index = torch.device(device).index
        assert ptr == 0 or devices.ordinal(ptr) == index, "memory of another device"
        tensor._cuda_index = index
        return tensor

    torch.as_tensor = as_tensor


def _cuda(torch, devices):
    cuda = torch.cuda
    torch.version.cuda = "13.0"
    cuda.is_available = lambda: True
    cuda.device_count = lambda: devices.count
    cuda.current_device = lambda: devices.current
    cuda.memory_allocated = lambda: devices.used
    cuda.mem_get_info = lambda device=None: (devices.free, TOTAL)
    cuda.synchronize = cuda.empty_cache = lambda: None

    def device(index_or_device):
        if isinstance(index_or_device, int):
            return devices.on(index_or_device)
        index = torch.device(index_or_device).index
        return devices.on(index or 0)

    cuda.device = device
