"""``GradientsHook``: how a framework differentiates its functions, and how it calls those of others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

#: The shape of an array and the standard name of its dtype.
Spec = tuple[tuple[int, ...], str]
#: Cotangents, None for zeros, to gradients: None for zeros and for inputs that were not wanted.
Pullback = Callable[[Sequence[Any]], list[Any]]
#: A function of arrays of one framework that returns a list of its arrays.
ArrayFunction = Callable[..., list[Any]]


class Crossing(Protocol):
    """A function of another framework, for arrays of the consumer."""

    def derivative(
        self, wanted: tuple[bool, ...], given: tuple[bool, ...], known: Pullback | None = None
    ) -> Crossing:
        """Return the function from all inputs and the `given` cotangents to the `wanted` gradients.

        `known` is the pullback at the inputs that the function is called with first.
        """
        ...

    def run(self, arrays: Sequence[Any], to: str = "") -> list[Any]:
        """Return the outputs, as arrays of the framework `to` or of the consumer."""
        ...

    def pull(self, arrays: Sequence[Any], wanted: tuple[bool, ...]) -> tuple[list[Any], Pullback]:
        """Return the outputs and the pullback for the `wanted` inputs."""
        ...

    def specs(self, inputs: Sequence[Spec]) -> list[Spec]:
        """Return the shapes and dtypes of the outputs for such inputs; computes no values."""
        ...


class GradientsHook:
    """Base class of the frameworks' classes `Gradients`.

    The first four methods serve functions of the framework (producer), the others functions of another
    framework that its arrays are passed to (consumer). A gradient of a complex ``z = x + iy`` is
    ``dL/dx + i dL/dy`` here; a framework with the other convention conjugates on its side.
    """

    def run(self, function: ArrayFunction, arrays: Sequence[Any]) -> list[Any]:
        """Return the outputs of a function; records nothing for gradients."""
        raise NotImplementedError

    def pull(
        self, function: ArrayFunction, arrays: Sequence[Any], wanted: tuple[bool, ...]
    ) -> tuple[list[Any], Pullback]:
        """Return the outputs of a function, without history, and its pullback, which can be called again."""
        raise NotImplementedError

    def derivative(
        self, function: ArrayFunction, wanted: tuple[bool, ...], given: tuple[bool, ...]
    ) -> ArrayFunction:
        """Return the function from all inputs and the `given` cotangents to the `wanted` gradients."""
        raise NotImplementedError

    def specs(self, function: ArrayFunction, inputs: Sequence[Spec]) -> list[Spec]:
        """Return the shapes and dtypes of the outputs of a function; computes no values."""
        raise NotImplementedError

    def differentiable(self, crossing: Crossing) -> Callable[..., Sequence[Any]]:
        """Return a function of the framework's arrays that calls `crossing` and has its gradients."""
        raise NotImplementedError

    def adopt(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that calls `differentiable`, in a form that the framework's compilers accept."""
        return function

    def zeros(self, array: Any) -> Any:
        """Return zeros with the shape and dtype of an array of the framework."""
        raise NotImplementedError

    def device(self, array: Any) -> Any:
        """Return the device of an array; None if it is not known yet."""
        return array.device
