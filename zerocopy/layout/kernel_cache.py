"""Machine code of the CPU kernels: Numba compiles it once; later processes load it without Numba.

With ``cache=True`` Numba also stores its machine code, but loads it through all of Numba: the import,
and the types of all its functions (SciPy's too), precede the first call. The kernels use no Python
object, so an object file is enough, and llvmlite can load it without Numba. ``python -m benchmarks
layout/start`` measures the time. Only public functions of Numba and llvmlite are used.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from zerocopy.errors.warning import warn
from zerocopy.layout import cache_folder

_HERE = Path(__file__).parent
_NAME = "zerocopy_kernel"

#: Argument types of each kernel: integers of the size of an address, and flags.
ARGUMENTS = {
    "to_columns": (*(ctypes.c_ssize_t,) * 7, ctypes.c_bool, ctypes.c_ssize_t),
    "to_rows": (*(ctypes.c_ssize_t,) * 6, ctypes.c_bool, ctypes.c_ssize_t),
}

Kernel = Callable[..., Any]

_loaded: list[Any] = []  # LLVM engines, which own the loaded code


def load(name: str) -> Kernel:
    """Return a kernel, from disk or else from Numba, which may take seconds or raise ImportError."""
    import llvmlite.binding as llvm

    cpu = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    key = hashlib.sha256(repr((_fingerprint(), llvm.llvm_version_info, cpu)).encode()).hexdigest()
    file = f"{name}-{key[:32]}.o"
    folders = _folders()
    for folder in folders:
        code = _read(folder, file)
        kernel = _linked(llvm, name, code) if code is not None else None
        if kernel is not None:
            return kernel
    if not hasattr(llvm, "create_pass_builder"):
        raise ImportError("Numba is too old for the kernels; pip install 'numba>=0.63'")
    compiled = getattr(import_module(f"zerocopy.layout.kernels.{name}"), name)
    if not hasattr(compiled, "inspect_llvm"):
        raise ImportError("NUMBA_DISABLE_JIT is set, and the kernels exist only as machine code")
    code = _object_code(llvm, compiled, cpu)
    _store(folders, file, code)
    kernel = _linked(llvm, name, code)
    if kernel is None:
        raise ImportError(f"Numba compiled the kernel {name} without its function")
    return kernel


def _fingerprint() -> str:
    """Return a digest of the source of all kernels."""
    digest = hashlib.sha256()
    for path in (*sorted((_HERE / "kernels").glob("*.py")), _HERE / "groups.py", _HERE / "record_plan.py"):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _folders() -> list[str]:
    """Return the cache folders: that of NUMBA_CACHE_DIR, the package's own, and the user's.

    Relative paths are ignored, as the XDG specification requires: anyone may have written the
    current folder.
    """
    configured = os.environ.get("NUMBA_CACHE_DIR", "")
    home = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(home):
        home = os.path.expanduser("~/.cache")
    folders = [
        configured and os.path.join(configured, "zerocopy"),
        os.path.join(_HERE, "kernels", "__pycache__"),
        os.path.join(home, "zerocopy"),
    ]
    return [folder for folder in folders if os.path.isabs(folder)]


def _linked(llvm: Any, name: str, code: bytes) -> Kernel | None:
    """Return the function in some object code; None if the code does not have it."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    address = engine.get_function_address(_NAME)
    if not address:  # a call of address 0 would crash
        return None
    _loaded.append(engine)
    # Numba's functions take pointers to a result and to an exception, and return a status.
    signature = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, *ARGUMENTS[name])
    function = signature(address)
    unused = (ctypes.c_void_p * 2)()  # the kernels return nothing and raise nothing
    first, second = ctypes.addressof(unused), ctypes.addressof(unused) + ctypes.sizeof(ctypes.c_void_p)
    _loaded.append(unused)

    def kernel(*arguments: Any) -> None:
        # ctypes releases the GIL during the call.
        if function(first, second, *arguments):
            raise SystemError(f"the kernel {name} failed")

    return kernel


def _object_code(llvm: Any, kernel: Any, cpu: tuple[str, str]) -> bytes:
    """Compile Numba's LLVM module of a kernel again, without the wrappers that Python calls."""
    (text,) = kernel.inspect_llvm().values()
    module = llvm.parse_assembly(text)
    for function in module.functions:
        if function.is_declaration:
            continue
        if function.linkage == llvm.Linkage.external and function.name.startswith("_ZN"):
            function.name = _NAME
        else:
            function.linkage = llvm.Linkage.internal
    machine = llvm.Target.from_triple(module.triple).create_target_machine(
        cpu=cpu[0], features=cpu[1], opt=3, reloc="default", codemodel="jitdefault", jit=True
    )
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    builder = llvm.create_pass_builder(machine, options)
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, builder)
    code: bytes = machine.emit_object(module)
    return code


def _read(folder: str, file: str) -> bytes | None:
    """Return stored code; None if the file is missing or damaged, or if another user can change it."""
    try:
        # Read once: the bytes that are checked are those that are linked.
        stored = cache_folder.read(folder, file)
    except OSError:
        return None
    digest, code = stored[:32], stored[32:]
    return code if code and hashlib.sha256(code).digest() == digest else None


def _store(folders: list[str], file: str, code: bytes) -> None:
    """Store code in the first folder that is writable by the user alone; warn if there is none."""
    refusals = []
    for folder in folders:
        try:
            cache_folder.write(folder, file, hashlib.sha256(code).digest() + code)
        except OSError as error:
            refusals.append(str(error) if isinstance(error, cache_folder.UntrustedError) else folder)
        else:
            return
    warn(
        "the kernels of aos_to_soa are compiled in each process, which takes some seconds, because no "
        f"cache folder is writable by this user alone: {', '.join(refusals)}; "
        "set NUMBA_CACHE_DIR to a folder that only this user can write, as an absolute path"
    )
