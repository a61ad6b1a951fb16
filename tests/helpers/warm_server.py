"""The program of a process that has imported the frameworks and runs each program in a forked child.

helpers/warm.py passes this text to ``python -c``, so that a program has the ``sys.path`` of ``python -c``.
Standard input has one request in JSON on each line. The answers on standard output are the child's process
id, and its exit status when it has ended. A child leaves the loop and runs its program as ``__main__``. It
ends as any interpreter does if the request asks for it; otherwise it leaves out the finalization, which takes
0.5 s of CPU time with all frameworks.
"""

import atexit
import ctypes
import gc
import importlib.util
import json
import os
import sys
import threading
import traceback
import warnings

#: Frameworks that start no thread at import, because a fork has only the thread that calls it. zerocopy is
#: not among them: its first import and its first conversion are parts of the tests.
MODULES = (
    *("numpy", "ml_dtypes", "scipy.sparse", "pyarrow.parquet", "pandas", "polars", "duckdb", "nanoarrow"),
    *("xarray", "awkward", "numba", "torch", "tvm_ffi", "jax", "jax.numpy", "tensorflow"),
)


def serve() -> dict:
    """Answer requests until standard input ends; in a child, return the request."""
    for name in MODULES:
        if importlib.util.find_spec(name.partition(".")[0]) is not None:
            importlib.import_module(name)
    if "polars" in sys.modules and sys.modules["polars"].__version__.startswith("2.0."):
        atexit._clear()  # in a forked child, the exit handler of polars 2.0.0 never returns
    gc.collect()
    # The frameworks' objects are never freed: at the end, some of them would close standard output.
    for obj in gc.get_objects():
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(obj))
    gc.freeze()
    with open(0, "rb", 0, closefd=False) as requests:  # without a buffer, which a child would inherit
        while line := requests.readline():
            request = json.loads(line)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # JAX warns at each fork
                child = os.fork()
            if not child:
                enter(request)
                return request
            os.write(1, b"%d\n" % child)
            os.write(1, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    os._exit(0)


def enter(request: dict) -> None:
    """Redirect standard input and output, and set variables of the environment."""
    for number, (path, flags) in enumerate(
        ((os.devnull, os.O_RDONLY), (request["stdout"], os.O_WRONLY), (request["stderr"], os.O_WRONLY))
    ):
        file = os.open(path, flags)
        os.dup2(file, number)
        os.close(file)
    os.environ.update(request["environment"])


class End:
    """Ends the process with the exit status of an interpreter, after threads and exit handlers."""

    modules = (atexit, os, sys, threading, traceback)  # the program has other globals

    def __call__(self, error: BaseException | None) -> None:
        """Print the error that the program has raised, and end."""
        atexit, os, sys, threading, traceback = self.modules
        status = 0 if error is None else 1
        if isinstance(error, SystemExit):
            status = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
            if isinstance(error.code, str):
                print(error.code, file=sys.stderr)
        elif error is not None:
            traceback.print_exception(error)
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


_request, _end = serve(), End()
for _name in [name for name in globals() if not name.startswith("_")]:
    del globals()[_name]
if _request["finalized"]:
    del _name, _end
    exec(compile(globals().pop("_request")["code"], "<string>", "exec"))
else:
    try:
        exec(compile(_request["code"], "<string>", "exec"))
    except BaseException as error:  # noqa: BLE001 - the exit status shows it
        _end(error)
    _end(None)
