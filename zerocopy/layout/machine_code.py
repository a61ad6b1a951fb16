"""The kernels' machine code: compiled by Numba once, and from then on loaded without it.

Numba keeps on disk what it has compiled (``cache=True``), and loads it again with all of Numba: it
is imported, and the types of all its functions, SciPy among them, are made before the first one
runs. The kernels need none of that: no object of Python is in them. So what is kept here is an
object file, which LLVM loads as it stands, without Numba; ``python -m benchmarks layout/start``
says how long that takes. It is made with public functions of Numba and llvmlite alone.
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

#: The arguments of each kernel; all are numbers of the size of an address, but for flags.
ARGUMENTS = {
    "to_columns": (*(ctypes.c_ssize_t,) * 7, ctypes.c_bool, ctypes.c_ssize_t),
    "to_rows": (*(ctypes.c_ssize_t,) * 6, ctypes.c_bool, ctypes.c_ssize_t),
}

Kernel = Callable[..., Any]

_loaded: list[Any] = []  # engines: their code goes with them


def load(name: str) -> Kernel:
    """Return a kernel, from disk if it is there, else from Numba, which may take seconds.

    Raises
    ------
    ImportError
        There is no Numba, or none that works with this NumPy.
    """
    import llvmlite.binding as llvm

    cpu = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    key = hashlib.sha256(repr((_fingerprint(), llvm.llvm_version_info, cpu)).encode()).hexdigest()
    kept = [folder / f"{name}-{key[:32]}.o" for folder in _folders()]
    for path in kept:
        code = _read(path)
        if code is not None:
            return _linked(llvm, name, code)
    if not hasattr(llvm, "create_pass_builder"):
        raise ImportError("it is too old for the kernels: pip install 'numba>=0.63'")
    compiled = getattr(import_module(f"zerocopy.layout.kernels.{name}"), name)
    if not hasattr(compiled, "inspect_llvm"):
        raise ImportError("NUMBA_DISABLE_JIT is set, and the kernels are nothing but machine code")
    code = _object_code(llvm, compiled, cpu)
    if not any(_write(path, code) for path in kept):
        warnings.warn(
            f"the kernels of aos_to_soa are compiled in each process, which takes some seconds: none of "
            f"{', '.join(str(path.parent) for path in kept)} can be written; set NUMBA_CACHE_DIR to a folder",
            RuntimeWarning,
            stacklevel=2,
        )
    return _linked(llvm, name, code)


def _fingerprint() -> str:
    """Return what stands for the source of all kernels."""
    digest = hashlib.sha256()
    for path in (*sorted((_HERE / "kernels").glob("*.py")), _HERE / "groups.py", _HERE / "plan.py"):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _folders() -> list[Path]:
    """Return where code is kept: where Numba is told to, beside the source, or in the user's cache."""
    told = os.environ.get("NUMBA_CACHE_DIR")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    beside = [_HERE / "kernels" / "__pycache__", Path(home) / "zerocopy"]
    return [Path(told) / "zerocopy", *beside] if told else beside


def _linked(llvm: Any, name: str, code: bytes) -> Kernel:
    """Return a function of some object code."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _loaded.append(engine)
    # Numba's functions take where to put their result, and an exception, and return a status.
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, *ARGUMENTS[name])
    function = kind(engine.get_function_address(_NAME))
    nowhere = (ctypes.c_void_p * 2)()  # of nothing, and of errors, which there are none of
    first, second = ctypes.addressof(nowhere), ctypes.addressof(nowhere) + ctypes.sizeof(ctypes.c_void_p)
    _loaded.append(nowhere)

    def kernel(*arguments: Any) -> None:
        # ctypes gives the GIL up for the time of the call.
        if function(first, second, *arguments):
            raise SystemError(f"the kernel {name} failed")

    return kernel


def _object_code(llvm: Any, kernel: Any, cpu: tuple[str, str]) -> bytes:
    """Compile what Numba made of a kernel once more, without what calls it from Python."""
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
    """Return code that was kept, if it is whole."""
    try:
        kept = path.read_bytes()
    except OSError:
        return None
    digest, code = kept[:32], kept[32:]
    return code if hashlib.sha256(code).digest() == digest else None


def _write(path: Path, code: bytes) -> bool:
    """Keep code, whole or not at all; return whether it could be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as draft:
            draft.write(hashlib.sha256(code).digest() + code)
        try:
            os.chmod(draft.name, 0o644)  # as other files of the folder: others may be using it
            os.replace(draft.name, path)
        except OSError:
            os.unlink(draft.name)
            raise
    except OSError:
        return False
    return True
