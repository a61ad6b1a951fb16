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
import tempfile
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

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
    paths = [folder / f"{name}-{key[:32]}.o" for folder in _folders()]
    for path in paths:
        code = _read(path)
        if code is not None:
            return _linked(llvm, name, code)
    if not hasattr(llvm, "create_pass_builder"):
        raise ImportError("Numba is too old for the kernels; pip install 'numba>=0.63'")
    compiled = getattr(import_module(f"zerocopy.layout.kernels.{name}"), name)
    if not hasattr(compiled, "inspect_llvm"):
        raise ImportError("NUMBA_DISABLE_JIT is set, and the kernels exist only as machine code")
    code = _object_code(llvm, compiled, cpu)
    if not any(_write(path, code) for path in paths):
        warnings.warn(
            "the kernels of aos_to_soa are compiled in each process, which takes some seconds, because no "
            f"cache folder is writable: {', '.join(str(path.parent) for path in paths)}; "
            "set NUMBA_CACHE_DIR to a writable folder",
            RuntimeWarning,
            stacklevel=2,
        )
    return _linked(llvm, name, code)


def _fingerprint() -> str:
    """Return a digest of the source of all kernels."""
    digest = hashlib.sha256()
    for path in (*sorted((_HERE / "kernels").glob("*.py")), _HERE / "groups.py", _HERE / "record_plan.py"):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _folders() -> list[Path]:
    """Return the cache folders: that of NUMBA_CACHE_DIR, the package's own, and the user's."""
    configured = os.environ.get("NUMBA_CACHE_DIR")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    defaults = [_HERE / "kernels" / "__pycache__", Path(home) / "zerocopy"]
    return [Path(configured) / "zerocopy", *defaults] if configured else defaults


def _linked(llvm: Any, name: str, code: bytes) -> Kernel:
    """Return the function in some object code."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _loaded.append(engine)
    # Numba's functions take pointers to a result and to an exception, and return a status.
    signature = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, *ARGUMENTS[name])
    function = signature(engine.get_function_address(_NAME))
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


def _read(path: Path) -> bytes | None:
    """Return stored code, or None if the file is missing or damaged."""
    try:
        stored = path.read_bytes()
    except OSError:
        return None
    digest, code = stored[:32], stored[32:]
    return code if hashlib.sha256(code).digest() == digest else None


def _write(path: Path, code: bytes) -> bool:
    """Store code atomically; return whether the folder is writable."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as draft:
            draft.write(hashlib.sha256(code).digest() + code)
        try:
            os.chmod(draft.name, 0o644)  # readable by all users, as other files of the folder
            os.replace(draft.name, path)
        except OSError:
            os.unlink(draft.name)
            raise
    except OSError:
        return False
    return True
