"""Child processes that are measured: a function, code in a fresh interpreter, or calls line by line.

As a program it reads a pickled function with its arguments, and writes the pickled result.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


def environment() -> dict[str, str]:
    """Return an environment in which a child imports the same modules as this process.

    It has no ZEROCOPY_POOL, because that pool would serve everything that is measured.
    """
    path = os.pathsep.join(filter(None, [os.getcwd(), *sys.path]))
    return {k: v for k, v in os.environ.items() if k != "ZEROCOPY_POOL"} | {"PYTHONPATH": path}


def call(
    function: Callable[..., T],
    *arguments: Any,
    before: Sequence[str] = (),
    variables: Mapping[str, str] | None = None,
) -> T:
    """Return the result of a function in a fresh process; `before` are words before the command."""
    completed = subprocess.run(
        [*before, sys.executable, "-m", __name__],
        input=pickle.dumps((function, arguments)),
        stdout=subprocess.PIPE,
        env=environment() | dict(variables or {}),
        check=False,
    )
    if completed.returncode:
        raise RuntimeError(f"the process of {function.__name__}() ended with {completed.returncode}")
    result: T = pickle.loads(completed.stdout)
    return result


def evaluate(code: str) -> Any:
    """Return the JSON that a program prints in a fresh interpreter, which imports nothing else."""
    variables = environment()
    # Otherwise each interpreter would compile the modules of zerocopy again.
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", code]
    return json.loads(subprocess.run(command, env=variables, stdout=subprocess.PIPE, check=True).stdout)


class Side:
    """A contender that is a process, which executes calls; its label is unique in its case."""

    program = "benchmarks.pool.child"

    def __init__(self, label: str, *arguments: str) -> None:
        self.label = label
        self._process = subprocess.Popen(
            [sys.executable, "-m", self.program, *arguments],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, name: str, *arguments: Any) -> Any:
        """Call a function in the child, and return the result; RuntimeError if the child has ended."""
        self.start(name, *arguments)
        return self.result()

    def start(self, name: str, *arguments: Any) -> None:
        """Call a function in the child; `result` waits for it."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # the child has ended: `result` raises
            self._process.stdin.write(json.dumps([name, *arguments]) + "\n")
            self._process.stdin.flush()

    def result(self) -> Any:
        """Return the result of the call that was started; raises as `ask` does."""
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the process with {self.label} ended ({self._process.wait()})")
        return json.loads(answer)

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


class _Closable(Protocol):
    def close(self) -> None: ...


S = TypeVar("S", bound=_Closable)


@contextmanager
def started(processes: Iterable[S]) -> Iterator[list[S]]:
    """Start processes; they end at the end of the block."""
    with ExitStack() as stack:
        yield [stack.enter_context(closing(one)) for one in processes]


def serve(create: Callable[[], Any]) -> None:
    """Execute the calls of the input in a child, until it ends."""
    # Libraries that print to stdout must not disturb the results.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    child = create()
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        print(json.dumps(getattr(child, name)(*arguments)), file=answers, flush=True)


if __name__ == "__main__":
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    function, arguments = pickle.load(sys.stdin.buffer)
    output.write(pickle.dumps(function(*arguments)))
    output.flush()
